package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// language is a set of strings: a regular expression with intersection and complement. It
// is immutable; languages creates each one once, so that equal ones are the same pointer.
type language struct {
	op       languageOp
	set      []runeRange // of langSet, normalised
	list     []*language // operands: two of langCat, one of langNot and langRepeat
	min, max int         // of langRepeat; max is unbounded for any number
	id       int
	nullable bool // contains the empty string
}

type languageOp uint8

const (
	langNone languageOp = iota
	langEmpty
	langSet
	langCat
	langAlt
	langAnd
	langNot
	langRepeat
)

// Limits of the automaton of a language, beyond which the error is errLanguage.
const (
	maxLanguages      = 1 << 15 // nodes
	maxLanguageStates = 1 << 11
)

var errLanguage = fmt.Errorf("its automaton has more than %d states", maxLanguageStates)

// languages creates languages and their derivatives.
type languages struct {
	nodes   map[string]*language
	derived map[derivation]*language
	spend   func(n int) error
	buffer  []byte

	none, empty, any *language
	err              error // of a limit that was exceeded: languages created since are incomplete
}

type derivation struct {
	id    int
	first rune
}

func newLanguages(spend func(n int) error) *languages {
	// These three must exist even if the budget is spent.
	free := func(int) error { return nil }
	l := &languages{nodes: map[string]*language{}, derived: map[derivation]*language{}, spend: free}
	l.none = l.node(language{op: langNone})
	l.empty = l.node(language{op: langEmpty, nullable: true})
	l.any = l.repeat(l.chars(anyRune), 0, unbounded)
	l.spend = spend
	return l
}

// node returns the language that equals n, and creates it if it is new.
func (l *languages) node(n language) *language {
	b := append(l.buffer[:0], byte(n.op))
	for _, number := range []int{n.min, n.max} {
		b = binary.LittleEndian.AppendUint32(b, uint32(number))
	}
	for _, part := range n.set {
		b = binary.LittleEndian.AppendUint32(b, uint32(part.low))
		b = binary.LittleEndian.AppendUint32(b, uint32(part.high))
	}
	for _, part := range n.list {
		b = binary.LittleEndian.AppendUint32(b, uint32(part.id))
	}
	l.buffer = b
	l.spendSteps(4 + len(b)/8)
	if known, ok := l.nodes[string(b)]; ok {
		return known
	}
	if l.err == nil && len(l.nodes) >= maxLanguages {
		l.err = errLanguage
	}
	if l.err != nil {
		return l.none
	}
	n.id = len(l.nodes)
	l.nodes[string(b)] = &n
	return &n
}

// spendSteps counts n steps of the schema.
func (l *languages) spendSteps(n int) {
	if l.err == nil {
		l.err = l.spend(n)
	}
}

func (l *languages) chars(set []runeRange) *language {
	if len(set) == 0 {
		return l.none
	}
	return l.node(language{op: langSet, set: set})
}

func (l *languages) literal(text string) *language {
	at := l.empty
	runes := []rune(text)
	for _, r := range slices.Backward(runes) {
		at = l.cat(l.chars([]runeRange{{r, r}}), at)
	}
	return at
}

func (l *languages) cat(a, b *language) *language {
	switch {
	case a == l.none || b == l.none:
		return l.none
	case a == l.empty:
		return b
	case b == l.empty:
		return a
	case a.op == langCat:
		return l.cat(a.list[0], l.cat(a.list[1], b))
	}
	return l.node(language{op: langCat, list: []*language{a, b}, nullable: a.nullable && b.nullable})
}

// flatten replaces the parts of list with operation op by their own parts, and removes
// duplicates and neutral.
func flatten(op languageOp, list []*language, neutral *language) (all []*language) {
	for _, part := range list {
		switch {
		case part == neutral:
		case part.op == op:
			all = append(all, part.list...)
		default:
			all = append(all, part)
		}
	}
	slices.SortFunc(all, func(a, b *language) int { return a.id - b.id })
	return slices.Compact(all)
}

func (l *languages) alt(list ...*language) *language {
	list = flatten(langAlt, list, l.none)
	switch {
	case len(list) == 0:
		return l.none
	case len(list) == 1:
		return list[0]
	case slices.Contains(list, l.any):
		return l.any
	}
	return l.node(language{op: langAlt, list: list, nullable: slices.ContainsFunc(list, func(p *language) bool { return p.nullable })})
}

func (l *languages) and(list ...*language) *language {
	list = flatten(langAnd, list, l.any)
	switch {
	case len(list) == 0:
		return l.any
	case len(list) == 1:
		return list[0]
	case slices.Contains(list, l.none):
		return l.none
	}
	return l.node(language{op: langAnd, list: list, nullable: !slices.ContainsFunc(list, func(p *language) bool { return !p.nullable })})
}

func (l *languages) not(a *language) *language {
	switch {
	case a.op == langNot:
		return a.list[0]
	case a == l.none:
		return l.any
	case a == l.any:
		return l.none
	}
	return l.node(language{op: langNot, list: []*language{a}, nullable: !a.nullable})
}

func (l *languages) repeat(a *language, low, high int) *language {
	if a.nullable {
		low = 0
	}
	switch {
	case high == 0 || a == l.empty || a == l.none && low == 0:
		return l.empty
	case a == l.none:
		return l.none
	case low == 1 && high == 1:
		return a
	case a.op == langRepeat && a.min == 0 && a.max == unbounded && high == unbounded:
		return a
	}
	return l.node(language{op: langRepeat, list: []*language{a}, min: low, max: high, nullable: low == 0})
}

// derive returns the derivative of a: what may follow r in the strings of a.
func (l *languages) derive(a *language, r rune) *language {
	key := derivation{a.id, r}
	if known, ok := l.derived[key]; ok {
		return known
	}
	l.spendSteps(4 + 4*len(a.list))
	var d *language
	switch a.op {
	case langNone, langEmpty:
		d = l.none
	case langSet:
		if d = l.none; hasRune(a.set, r) {
			d = l.empty
		}
	case langCat:
		d = l.cat(l.derive(a.list[0], r), a.list[1])
		if a.list[0].nullable {
			d = l.alt(d, l.derive(a.list[1], r))
		}
	case langNot:
		d = l.not(l.derive(a.list[0], r))
	case langRepeat:
		rest := a.max
		if rest < unbounded {
			rest--
		}
		d = l.cat(l.derive(a.list[0], r), l.repeat(a.list[0], max(a.min-1, 0), rest))
	default:
		parts := make([]*language, len(a.list))
		for i, part := range a.list {
			parts[i] = l.derive(part, r)
		}
		if a.op == langAlt {
			d = l.alt(parts...)
		} else {
			d = l.and(parts...)
		}
	}
	l.derived[key] = d
	return d
}

func hasRune(set []runeRange, r rune) bool {
	return slices.ContainsFunc(set, func(part runeRange) bool { return part.low <= r && r <= part.high })
}

// boundaries adds the characters at which the derivative of a changes. It skips the
// languages in seen and adds those that it visits, because parts are shared and would be
// visited many times. It ends early where the steps of the schema are spent.
func (l *languages) boundaries(a *language, to map[rune]struct{}, seen map[*language]struct{}) {
	if _, twice := seen[a]; twice || l.err != nil {
		return
	}
	seen[a] = struct{}{}
	l.spendSteps(2 + len(a.set))
	switch a.op {
	case langSet:
		for _, part := range a.set {
			to[part.low], to[part.high+1] = struct{}{}, struct{}{}
		}
	case langCat:
		l.boundaries(a.list[0], to, seen)
		if a.list[0].nullable {
			l.boundaries(a.list[1], to, seen)
		}
	default:
		for _, part := range a.list {
			l.boundaries(part, to, seen)
		}
	}
}

// contains reports whether text is in a.
func (l *languages) contains(a *language, text string) (bool, error) {
	for _, r := range text {
		a = l.derive(a, r)
	}
	return a.nullable, l.err
}

// languageState is a state of the automaton of a language.
type languageState struct {
	accepts bool
	live    bool // an accepting state can be reached
	edges   []languageEdge
}

type languageEdge struct {
	set []runeRange
	to  int
}

// automaton returns the states of a; the first is the initial one.
func (l *languages) automaton(a *language) ([]languageState, error) {
	numbers := map[*language]int{a: 0}
	queue := []*language{a}
	var states []languageState
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		s := languageState{accepts: at.nullable, live: at.nullable}
		borders := map[rune]struct{}{0: {}, firstAfterSurrogates: {}}
		l.boundaries(at, borders, map[*language]struct{}{})
		lows := make([]rune, 0, len(borders))
		for r := range borders {
			if r <= anyRune[1].high && !(anyRune[0].high < r && r < anyRune[1].low) {
				lows = append(lows, r)
			}
		}
		slices.Sort(lows)
		edge := map[int]int{} // by state
		for k, low := range lows {
			high := anyRune[1].high
			if k+1 < len(lows) {
				high = lows[k+1] - 1
			}
			next := l.derive(at, low)
			l.spendSteps(2)
			if l.err != nil {
				return nil, l.err
			}
			if next == l.none {
				continue
			}
			to, known := numbers[next]
			if !known {
				to = len(queue)
				if to == maxLanguageStates {
					return nil, errLanguage
				}
				numbers[next] = to
				queue = append(queue, next)
			}
			e, known := edge[to]
			if !known {
				e = len(s.edges)
				edge[to] = e
				s.edges = append(s.edges, languageEdge{to: to})
			}
			s.edges[e].set = append(s.edges[e].set, runeRange{low, high})
		}
		states = append(states, s)
	}
	markLive(states)
	return states, nil
}

// markLive sets live of the states from which an accepting state can be reached.
func markLive(states []languageState) {
	from := make([][]int, len(states))
	var todo []int
	for i, s := range states {
		for _, e := range s.edges {
			from[e.to] = append(from[e.to], i)
		}
		if s.live {
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range from[at] {
			if !states[before].live {
				states[before].live = true
				todo = append(todo, before)
			}
		}
	}
}

// language writes the rules of the strings of a, escaped as in JSON and without quotes, and
// returns the name of the first rule; "" if there are no strings.
func (w *schemaWriter) language(a *language) (string, error) {
	states, err := w.languages.automaton(a)
	if err != nil {
		return "", err
	}
	if !states[0].live {
		return "", nil
	}
	prefix := w.newName()
	name := func(i int) string { return fmt.Sprintf("%s-%d", prefix, i) }
	for i, s := range states {
		if !s.live {
			continue
		}
		var b strings.Builder
		for _, e := range s.edges {
			if states[e.to].live {
				writeJSONSet(&b, normalise(e.set))
				b.WriteString(" " + name(e.to) + " | ")
			}
		}
		body := strings.TrimSuffix(b.String(), " | ")
		if s.accepts {
			body = b.String() + `""`
		}
		w.define(name(i), body)
	}
	return name(0), nil
}

// pattern returns the strings in which a pattern matches. approximate is set if there are
// more of them, because unsupported assertions of the pattern are ignored.
func (l *languages) pattern(p *pattern) (a *language, approximate bool) {
	t := translator{languages: l}
	a = l.alt(
		t.translate(p, l.any, true),
		l.cat(l.chars(anyRune), l.cat(l.any, t.translate(p, l.any, false))),
	)
	return a, t.approximate
}

// translator turns patterns into languages.
type translator struct {
	*languages
	approximate bool
}

// translate returns the strings of p followed by those of rest, which lookaheads and $
// restrict. start is set if p is at the start of the string.
func (t *translator) translate(p *pattern, rest *language, start bool) *language {
	if t.err != nil {
		return t.none
	}
	switch p.op {
	case opStart:
		if start {
			return rest
		}
		return t.none
	case opEnd:
		return t.and(rest, t.empty)
	case opLook:
		ahead := t.translate(p.list[0], t.any, start)
		if p.negative {
			ahead = t.not(ahead)
		}
		return t.and(rest, ahead)
	case opUnsupported:
		t.approximate = true
		return rest
	case opSet:
		return t.cat(t.chars(p.set), rest)
	case opSequence:
		return t.translateSequence(p.list, rest, start)
	case opAlternatives:
		return t.translateAlternatives(p, rest, start)
	}
	return t.translateRepeat(p, rest, start)
}

func (t *translator) translateSequence(items []*pattern, rest *language, start bool) *language {
	starts := make([]bool, len(items))
	for i, item := range items {
		starts[i] = start
		if _, high := item.width(); high > 0 {
			start = false
		}
	}
	for i, item := range slices.Backward(items) {
		rest = t.translate(item, rest, starts[i])
	}
	return rest
}

func (t *translator) translateAlternatives(p *pattern, rest *language, start bool) *language {
	parts := make([]*language, len(p.list))
	if !p.zeroWidth() {
		for i, item := range p.list {
			parts[i] = t.translate(item, t.empty, false)
		}
		return t.cat(t.alt(parts...), rest)
	}
	for i, item := range p.list {
		parts[i] = t.translate(item, rest, start)
	}
	return t.alt(parts...)
}

func (t *translator) translateRepeat(p *pattern, rest *language, start bool) *language {
	item := p.list[0]
	if !item.zeroWidth() {
		return t.cat(t.repeat(t.translate(item, t.empty, false), p.min, p.max), rest)
	}
	if p.max == 1 {
		with := t.translate(item, rest, start)
		if p.min == 0 {
			with = t.alt(with, rest)
		}
		return with
	}
	t.approximate = true
	return t.cat(t.repeat(t.translate(item.withoutZeroWidth(), t.empty, false), p.min, p.max), rest)
}

// zeroWidth reports whether p contains assertions: parts that match no character.
func (p *pattern) zeroWidth() bool {
	return p.op >= opLook || slices.ContainsFunc(p.list, (*pattern).zeroWidth)
}

// withoutZeroWidth returns p without assertions.
func (p *pattern) withoutZeroWidth() *pattern {
	if p.op >= opLook {
		return &pattern{op: opSequence}
	}
	without := *p
	without.list = make([]*pattern, len(p.list))
	for i, item := range p.list {
		without.list[i] = item.withoutZeroWidth()
	}
	return &without
}
