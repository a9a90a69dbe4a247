package grammar

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// limits are the limits of numbers; nil for none.
type limits struct {
	low, high                   *big.Rat
	exclusiveLow, exclusiveHigh bool
}

// limitDigits is the number of digits that a limit may have.
const limitDigits = 40

func (w *schemaWriter) limits(c conjunction) (l limits, err error) {
	for _, v := range c {
		for _, m := range v.members {
			upper := strings.HasSuffix(m.name, "aximum")
			if !upper && !strings.HasSuffix(m.name, "inimum") || keywords[m.name].takes&kindNumber == 0 || m.kind&kindNumber == 0 {
				continue
			}
			exclusive := strings.HasPrefix(m.name, "exclusive")
			if name := "exclusiveM" + m.name[1:]; !exclusive && v.get(name) != nil && v.get(name).truth {
				exclusive = true // in the form of drafts before 6
			}
			n, ok := m.number()
			if ok && !shortNumber(n) {
				if n, ok = farLimit(n, upper); ok {
					exclusive = false
				}
			}
			if !ok {
				if err := w.ignore(m.value, "%s is supported up to %d digits", m.name, limitDigits); err != nil {
					return l, err
				}
				continue
			}
			if !upper {
				if l.low == nil || n.Cmp(l.low) > 0 || n.Cmp(l.low) == 0 && exclusive {
					l.low, l.exclusiveLow = n, exclusive
				}
			} else if l.high == nil || n.Cmp(l.high) < 0 || n.Cmp(l.high) == 0 && exclusive {
				l.high, l.exclusiveHigh = n, exclusive
			}
		}
	}
	return l, nil
}

// shortNumber reports whether n has at most limitDigits digits.
func shortNumber(n *big.Rat) bool {
	whole, fraction := decimal(new(big.Rat).Abs(n))
	return len(whole)+len(fraction) <= limitDigits
}

// farLimit returns the largest number of defaultDigits digits, or the least one, in place of
// a limit n beyond it; false if n is not beyond it.
func farLimit(n *big.Rat, upper bool) (*big.Rat, bool) {
	far := new(big.Rat).SetInt(new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(defaultDigits), nil), one))
	if upper {
		return far, n.Cmp(far) > 0
	}
	far.Neg(far)
	return far, n.Cmp(far) < 0
}

// validNumber reports whether a number of enum or const is valid by the keywords that
// constrain numbers.
func (w *schemaWriter) validNumber(c conjunction, n *big.Rat) (bool, error) {
	l, err := w.limits(c)
	if err != nil {
		return false, err
	}
	for _, m := range c.all("multipleOf") {
		if step, ok := m.number(); ok && step.Sign() > 0 && !new(big.Rat).Quo(n, step).IsInt() {
			return false, nil
		}
	}
	below := l.low != nil && (n.Cmp(l.low) < 0 || n.Cmp(l.low) == 0 && l.exclusiveLow)
	above := l.high != nil && (n.Cmp(l.high) > 0 || n.Cmp(l.high) == 0 && l.exclusiveHigh)
	return !below && !above, nil
}

// numbers writes the numbers of an alternative, or its integers if it allows no others.
func (w *schemaWriter) numbers(c conjunction) (string, error) {
	kinds, err := c.kinds()
	if err != nil {
		return "", err
	}
	whole := kinds&kindNumber == kindInteger
	l, err := w.limits(c)
	if err != nil {
		return "", err
	}
	list := slices.DeleteFunc(c.all("multipleOf"), func(m *value) bool { return whole && m.text == "1" })
	if len(list) > 0 {
		if body, ok, err := w.multiples(list, l, whole); ok || err != nil {
			return body, err
		}
		for _, m := range list {
			if err := w.ignore(m, "multipleOf is supported for values with few digits, or between limits with up to %d multiples", maxMultiples); err != nil {
				return "", err
			}
		}
	}
	switch {
	case l.low == nil && l.high == nil && whole:
		return w.sharedRule("integer"), nil
	case l.low == nil && l.high == nil:
		return w.sharedRule("number"), nil
	case whole:
		return l.integers(), nil
	}
	return l.decimals(), nil
}

var one = big.NewInt(1)

// integers writes the integers between the limits.
func (l limits) integers() string {
	from, to := l.integerBounds()
	if from != nil && to != nil && from.Cmp(to) > 0 {
		return ""
	}
	var parts []string
	if from == nil || from.Sign() < 0 {
		least := big.NewInt(1)
		if to != nil && to.Sign() < 0 {
			least.Neg(to)
		}
		var most *big.Int
		if from != nil {
			most = new(big.Int).Neg(from)
		}
		parts = append(parts, `"-" (`+digitsBetween(least, most)+`)`)
	}
	if to == nil || to.Sign() >= 0 {
		least := new(big.Int)
		if from != nil && from.Sign() > 0 {
			least = from
		}
		parts = append(parts, digitsBetween(least, to))
	}
	return strings.Join(parts, " | ")
}

// integerBounds returns the least and the largest integer between the limits; nil for none.
func (l limits) integerBounds() (from, to *big.Int) {
	if l.low != nil {
		from = new(big.Int).Neg(floor(new(big.Rat).Neg(l.low)))
		if l.exclusiveLow && l.low.IsInt() {
			from.Add(from, one)
		}
	}
	if l.high != nil {
		to = floor(l.high)
		if l.exclusiveHigh && l.high.IsInt() {
			to.Sub(to, one)
		}
	}
	return from, to
}

// floor returns the largest integer that is at most r.
func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean, and the denominator is positive
}

// defaultDigits is the number of digits that an integer without limits may have.
const defaultDigits = 16

// digitsBetween writes the integers from low, which is not negative, to high; nil for no
// limit.
func digitsBetween(low, high *big.Int) string {
	from := low.String()
	to := strings.Repeat("9", max(defaultDigits, len(from)))
	if high != nil {
		to = high.String()
	}
	var parts []string
	for n := len(from); n <= len(to); n++ {
		least, most := from, to
		if n > len(from) {
			least = "1" + strings.Repeat("0", n-1)
		}
		if n < len(to) {
			most = strings.Repeat("9", n)
		}
		parts = append(parts, digitsOfLength(least, most))
	}
	return strings.Join(parts, " | ")
}

// digitsOfLength writes the numbers from low to high, which have the same number of
// digits.
func digitsOfLength(low, high string) string {
	n := len(low)
	switch {
	case low == high:
		return Literal(low)
	case strings.Trim(low, "0") == "" && strings.Trim(high, "9") == "":
		return "[0-9]" + times(n, n)
	case n == 1:
		return digit(low[0], high[0])
	case low[0] == high[0]:
		return fmt.Sprintf(`"%c" (%s)`, low[0], digitsOfLength(low[1:], high[1:]))
	}
	var parts []string
	first, last := low[0], high[0]
	if rest := low[1:]; strings.Trim(rest, "0") != "" {
		parts = append(parts, fmt.Sprintf(`"%c" (%s)`, first, digitsOfLength(rest, strings.Repeat("9", n-1))))
		first++
	}
	top := ""
	if rest := high[1:]; strings.Trim(rest, "9") != "" {
		top = fmt.Sprintf(`"%c" (%s)`, last, digitsOfLength(strings.Repeat("0", n-1), rest))
		last--
	}
	if first <= last {
		parts = append(parts, digit(first, last)+" [0-9]"+times(n-1, n-1))
	}
	if top != "" {
		parts = append(parts, top)
	}
	return strings.Join(parts, " | ")
}

func digit(low, high byte) string { return fmt.Sprintf("[%c-%c]", low, high) }

// decimals writes the numbers between the limits, without exponents.
func (l limits) decimals() string {
	var parts []string
	if l.low == nil || l.low.Sign() < 0 {
		mirror := limits{low: new(big.Rat), exclusiveLow: true}
		if l.high != nil && l.high.Sign() < 0 {
			mirror.low, mirror.exclusiveLow = new(big.Rat).Neg(l.high), l.exclusiveHigh
		}
		if l.low != nil {
			mirror.high, mirror.exclusiveHigh = new(big.Rat).Neg(l.low), l.exclusiveLow
		}
		if body := mirror.magnitudes(); body != "" {
			parts = append(parts, `"-" (`+body+`)`)
		}
	}
	if l.high == nil || l.high.Sign() >= 0 {
		above := l
		if l.low == nil || l.low.Sign() < 0 {
			above.low, above.exclusiveLow = new(big.Rat), false
		}
		if body := above.magnitudes(); body != "" {
			parts = append(parts, body)
		}
	}
	return strings.Join(parts, " | ")
}

// defaultFraction is the number of digits that a fraction may have beyond those of its limits.
const defaultFraction = 16

// magnitudes writes the decimals from low, which is not negative, to high.
func (l limits) magnitudes() string {
	least, above := decimal(l.low)
	from := floor(l.low)
	if l.high == nil {
		rest := "(" + digitsBetween(new(big.Int).Add(from, one), nil) + ") " + anyFraction
		if f := above.atLeast(l.exclusiveLow).fraction(); f != impossible {
			rest = Literal(least) + f + " | " + rest
		}
		return rest
	}
	if c := l.low.Cmp(l.high); c > 0 || c == 0 && (l.exclusiveLow || l.exclusiveHigh) {
		return ""
	}
	most, below := decimal(l.high)
	to := floor(l.high)
	if least == most {
		f := between(above, below, l.exclusiveLow, l.exclusiveHigh).fraction()
		if f == impossible {
			return ""
		}
		return Literal(least) + f
	}
	var parts []string
	if f := above.atLeast(l.exclusiveLow).fraction(); f != impossible {
		parts = append(parts, Literal(least)+f)
	}
	next, last := new(big.Int).Add(from, one), new(big.Int).Sub(to, one)
	if next.Cmp(last) <= 0 {
		parts = append(parts, "("+digitsBetween(next, last)+") "+anyFraction)
	}
	if f := below.atMost(l.exclusiveHigh).fraction(); f != impossible {
		parts = append(parts, Literal(most)+f)
	}
	return strings.Join(parts, " | ")
}

var anyFraction = fmt.Sprintf(`("." [0-9]{1,%d})?`, defaultFraction)

// fractionDigits are the digits after a decimal point, without trailing zeros.
type fractionDigits string

// decimal splits r, which must be non-negative and have a finite decimal expansion.
func decimal(r *big.Rat) (whole string, fraction fractionDigits) {
	digits, _ := r.FloatPrec() // exact: it came from decimal digits
	whole, rest, _ := strings.Cut(r.FloatString(digits), ".")
	return whole, fractionDigits(strings.TrimRight(rest, "0"))
}

// digits is a set of digit strings after a decimal point: an expression of those that are
// not empty, "" for none, and whether the empty one is included.
type digits struct {
	some  string
	empty bool
}

var (
	anyDigits   = fmt.Sprintf("[0-9]{1,%d}", defaultFraction)
	moreDigits  = fmt.Sprintf("[0-9]{0,%d}", defaultFraction)
	aboveZero   = fmt.Sprintf(`"0"{0,%d} [1-9] %s`, defaultFraction, moreDigits)
	impossible  = "impossible"
	exactlyZero = digits{`"0"`, true}
)

// fraction writes the digits after a point; impossible if the set is empty.
func (d digits) fraction() string {
	switch {
	case d.some == "" && d.empty:
		return ""
	case d.some == "":
		return impossible
	case d.empty:
		return ` ("." (` + d.some + `))?`
	}
	return ` "." (` + d.some + `)`
}

// after writes the digits after a first one.
func (d digits) after(first byte) string {
	switch {
	case d.some == "" && d.empty:
		return fmt.Sprintf(`"%c"`, first)
	case d.some == "":
		return ""
	case d.empty:
		return fmt.Sprintf(`"%c" (%s)?`, first, d.some)
	}
	return fmt.Sprintf(`"%c" (%s)`, first, d.some)
}

func alternatives(list ...string) string {
	var some []string
	for _, s := range list {
		if s != "" {
			some = append(some, s)
		}
	}
	return strings.Join(some, " | ")
}

// atLeast returns the fractions that are at least f, or above f if strict.
func (f fractionDigits) atLeast(strict bool) digits {
	switch {
	case f == "" && strict:
		return digits{some: aboveZero}
	case f == "":
		return digits{anyDigits, true}
	}
	more := ""
	if f[0] < '9' {
		more = digit(f[0]+1, '9') + " " + moreDigits
	}
	return digits{some: alternatives(f[1:].atLeast(strict).after(f[0]), more)}
}

// atMost returns the fractions that are at most f, or below f if strict.
func (f fractionDigits) atMost(strict bool) digits {
	switch {
	case f == "" && strict:
		return digits{}
	case f == "":
		return exactlyZero
	}
	less := ""
	if f[0] > '0' {
		less = digit('0', f[0]-1) + " " + moreDigits
	}
	return digits{alternatives(f[1:].atMost(strict).after(f[0]), less), true}
}

// between returns the fractions from low to high.
func between(low, high fractionDigits, aboveLow, belowHigh bool) digits {
	if low == "" && high == "" {
		if aboveLow || belowHigh {
			return digits{}
		}
		return exactlyZero
	}
	a, b := byte('0'), byte('0')
	rest, top := low, high
	if low != "" {
		a, rest = low[0], low[1:]
	}
	if high != "" {
		b, top = high[0], high[1:]
	}
	var d digits
	switch {
	case a > b:
		return d
	case a == b:
		d.some = between(rest, top, aboveLow, belowHigh).after(a)
	default:
		middle := ""
		if a+1 < b {
			middle = digit(a+1, b-1) + " " + moreDigits
		}
		d.some = alternatives(rest.atLeast(aboveLow).after(a), middle, top.atMost(belowHigh).after(b))
	}
	d.empty = low == "" && !aboveLow
	return d
}
