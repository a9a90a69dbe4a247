package grammar

import (
	"fmt"
	"math/big"
	"strings"
)

// Limits of the rules of multipleOf.
const (
	maxModulus       = 1 << 12 // digits of multipleOf without its decimal point, as a number
	maxMultiples     = 1 << 10 // multiples that are listed one by one
	maxMultipleRules = 1 << 12
	maxDecimals      = 16 // of multipleOf
)

// multiples writes the numbers between the limits that are multiples of all steps; integers
// only if whole is set. Their digits are followed by an automaton whose state is the
// remainder. It returns false if that takes too many rules, and there are too many multiples
// to list them.
func (w *schemaWriter) multiples(steps []*value, l limits, whole bool) (body string, ok bool, err error) {
	step, ok, err := commonStep(steps, whole)
	if err != nil || !ok {
		return "", false, err
	}
	decimals, _ := step.FloatPrec() // exact: steps are decimal
	if decimals > maxDecimals || !shortNumber(step) {
		return "", false, nil
	}
	modulus := new(big.Rat).Mul(step, new(big.Rat).SetInt(power(decimals))).Num()
	from, to := l.scaled(decimals).integerBounds()
	if from.Cmp(to) > 0 {
		return "", true, nil
	}
	if body, ok := listMultiples(from, to, modulus, decimals); ok {
		return body, true, nil
	}
	if !modulus.IsInt64() || modulus.Int64() > maxModulus {
		return "", false, nil
	}
	d := &digitWriter{schemaWriter: w, prefix: w.newName(), modulus: int(modulus.Int64()), decimals: decimals, rules: map[[2]int]string{}}
	body = d.signed(from, to)
	if len(d.rules) > maxMultipleRules {
		return "", false, nil
	}
	for _, rule := range d.written {
		w.define(rule[0], rule[1])
	}
	return body, true, w.spend(len(d.rules))
}

// commonStep returns the least number that is a multiple of all steps, and of 1 if whole is
// set; false if a step has too many digits.
func commonStep(steps []*value, whole bool) (step *big.Rat, ok bool, err error) {
	step = new(big.Rat)
	if whole {
		step.SetInt64(1)
	}
	for _, m := range steps {
		n, ok := m.number()
		if ok && n.Sign() <= 0 {
			return nil, false, failAt(m, "multipleOf must be above 0")
		}
		if !ok || !shortNumber(n) {
			return nil, false, nil
		}
		step = commonMultiple(step, n)
	}
	return step, true, nil
}

// scaled returns the limits times a power of ten. A missing limit becomes the largest number
// of defaultDigits digits, or of as many digits as the other limit has if that is beyond it.
func (l limits) scaled(decimals int) limits {
	scale := new(big.Rat).SetInt(power(decimals))
	most := power(defaultDigits + decimals)
	if l.low == nil {
		l.low, l.exclusiveLow = new(big.Rat).SetInt(new(big.Int).Neg(most)), true
	} else {
		l.low = new(big.Rat).Mul(l.low, scale)
	}
	if l.high == nil {
		l.high, l.exclusiveHigh = new(big.Rat).SetInt(most), true
		if l.low.Cmp(l.high) >= 0 {
			l.high = new(big.Rat).Mul(l.low, new(big.Rat).SetInt64(10))
		}
	} else {
		l.high = new(big.Rat).Mul(l.high, scale)
		if l.high.Cmp(l.low) <= 0 && l.exclusiveLow {
			l.low = new(big.Rat).Mul(l.high, new(big.Rat).SetInt64(10))
		}
	}
	return l
}

func power(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// commonMultiple returns the least positive common multiple of a and b; b if a is 0.
func commonMultiple(a, b *big.Rat) *big.Rat {
	if a.Sign() == 0 {
		return b
	}
	num := new(big.Int).Mul(a.Num(), b.Num())
	num.Div(num, new(big.Int).GCD(nil, nil, a.Num(), b.Num()))
	return new(big.Rat).SetFrac(num, new(big.Int).GCD(nil, nil, a.Denom(), b.Denom()))
}

// listMultiples lists the multiples of modulus between two numbers, with a decimal point
// before the last digits; false if there are too many.
func listMultiples(from, to, modulus *big.Int, decimals int) (string, bool) {
	last := new(big.Int).Div(to, modulus)
	first := new(big.Int).Neg(new(big.Int).Div(new(big.Int).Neg(from), modulus))
	count := new(big.Int).Sub(last, first)
	if !count.IsInt64() || count.Int64() >= maxMultiples {
		return "", false
	}
	var list []string
	for i := int64(0); i <= count.Int64(); i++ {
		n := new(big.Int).Mul(new(big.Int).Add(first, big.NewInt(i)), modulus)
		list = append(list, Literal(new(big.Rat).SetFrac(n, power(decimals)).FloatString(decimals)))
	}
	return strings.Join(list, " | "), true
}

// digitWriter writes rules of the digits of multiples of modulus.
type digitWriter struct {
	*schemaWriter
	prefix   string
	modulus  int
	decimals int               // digits after the decimal point
	rules    map[[2]int]string // by the arguments of lastDigits
	written  [][2]string       // name and body
}

// signed writes the multiples from low to high, of either sign.
func (d *digitWriter) signed(low, high *big.Int) string {
	var parts []string
	if low.Sign() < 0 {
		least := big.NewInt(1)
		if high.Sign() < 0 {
			least.Neg(high)
		}
		if body := d.magnitudes(least, new(big.Int).Neg(low)); body != "" {
			parts = append(parts, `"-" (`+body+`)`)
		}
	}
	if high.Sign() >= 0 {
		least := new(big.Int)
		if low.Sign() > 0 {
			least = low
		}
		parts = append(parts, d.magnitudes(least, high))
	}
	return alternatives(parts...)
}

// magnitudes writes the multiples from low to high, which are not negative.
func (d *digitWriter) magnitudes(low, high *big.Int) string {
	least := 1 + d.decimals
	to := high.String()
	var parts []string
	for n := max(least, len(low.String())); n <= max(least, len(to)); n++ {
		from := new(big.Int)
		if n > least {
			from = power(n - 1)
		}
		if from.Cmp(low) < 0 {
			from = low
		}
		last := new(big.Int).Sub(power(n), one)
		if last.Cmp(high) > 0 {
			last = high
		}
		parts = append(parts, d.between(fmt.Sprintf("%0*s", n, from), fmt.Sprintf("%0*s", n, last), 0))
	}
	return alternatives(parts...)
}

// between writes the last digits of multiples, from low to high. k is the value of the
// digits before them, with zeros in place of these, modulo modulus.
func (d *digitWriter) between(low, high string, k int) string {
	n := len(low)
	if n == 0 || strings.Trim(low, "0") == "" && strings.Trim(high, "9") == "" {
		return d.lastDigits(n, k)
	}
	var parts []string
	for c := low[0]; c <= high[0]; c++ {
		from, to := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
		if c == low[0] {
			from = low[1:]
		}
		if c == high[0] {
			to = high[1:]
		}
		if rest := d.between(from, to, d.remainder(n, k, c)); rest != "" {
			parts = append(parts, fmt.Sprintf(`"%c" (%s)`, c, rest))
		}
	}
	return d.withPoint(n, strings.Join(parts, " | "))
}

// remainder returns k of the digits after the first of n digits.
func (d *digitWriter) remainder(n, k int, digit byte) int {
	place := new(big.Int).Mod(power(n-1), big.NewInt(int64(d.modulus)))
	return (k + int(digit-'0')*int(place.Int64())) % d.modulus
}

// withPoint puts the decimal point before the last n digits if it belongs there.
func (d *digitWriter) withPoint(n int, body string) string {
	if body != "" && n == d.decimals && n > 0 {
		return `"." (` + body + `)`
	}
	return body
}

// lastDigits returns the name of the rule of all last n digits of multiples after digits
// with the value k, as in between; "" if there are none. Trailing zeros of a fraction are optional.
func (d *digitWriter) lastDigits(n, k int) string {
	if n == 0 {
		if k == 0 {
			return `""`
		}
		return ""
	}
	key := [2]int{n, k}
	if name, ok := d.rules[key]; ok {
		return name
	}
	if len(d.rules) > maxMultipleRules {
		return ""
	}
	d.rules[key] = ""
	digits := map[string]string{}
	var order []string
	for c := byte('0'); c <= '9'; c++ {
		rest := d.lastDigits(n-1, d.remainder(n, k, c))
		if rest == "" {
			continue
		}
		if digits[rest] == "" {
			order = append(order, rest)
		}
		digits[rest] += string(c)
	}
	var parts []string
	for _, rest := range order {
		parts = append(parts, "["+digits[rest]+"] "+rest)
	}
	body := d.withPoint(n, strings.Join(parts, " | "))
	if k == 0 && n <= d.decimals {
		body = alternatives(body, `""`)
	}
	if body == "" {
		return ""
	}
	name := fmt.Sprintf("%s-%d-%d", d.prefix, n, k)
	d.rules[key] = name
	d.written = append(d.written, [2]string{name, body})
	return name
}
