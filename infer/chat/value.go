package chat

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// value is the result of an expression: nil (None), *undefined, bool, int64, *big.Int
// (integers that do not fit), float64, text, *list, *dict, *view, *generator, *namespace or
// *callable. Values are immutable, except the attributes of a namespace and whether a
// generator was read.
type value any

// undefined is a variable, attribute or item that does not exist. It prints as nothing;
// most other uses of it fail with its message. The message is formatted only then, because
// it may name a long key and there may be many of them.
type undefined struct {
	format string
	args   []any
}

func missing(format string, args ...any) *undefined { return &undefined{format, args} }

func isUndefined(v value) bool {
	_, is := v.(*undefined)
	return is
}

// fail throws the message as a *RenderError.
func (u *undefined) fail() { fail(u.format, u.args...) }

type list struct {
	items  []value
	tuple  bool
	bounds *rangeBounds // not nil for a range, which has its own type in Python
	fields []string     // names of the items; nil if they have none
}

// rangeBounds are the arguments of a range.
type rangeBounds struct{ start, stop, step int }

func (s *rangeBounds) String() string {
	if s.step == 1 {
		return fmt.Sprintf("range(%d, %d)", s.start, s.stop)
	}
	return fmt.Sprintf("range(%d, %d, %d)", s.start, s.stop, s.step)
}

func tuple(items ...value) *list { return &list{items: items, tuple: true} }

// dict keeps its keys in order of insertion.
type dict struct {
	keys  []value
	vals  []value
	index map[any]int
}

func newDict() *dict { return &dict{} }

func (d *dict) set(k, v value) { d.put(keyOf(k), k, v) }

// put sets the entry of the key k, for which keyOf returned id.
func (d *dict) put(id any, k, v value) {
	if i, ok := d.index[id]; ok {
		d.vals[i] = v
		return
	}
	if d.index == nil {
		d.index = map[any]int{}
	}
	d.index[id] = len(d.keys)
	d.keys = append(d.keys, k)
	d.vals = append(d.vals, v)
}

func (d *dict) setName(name string, v value) { d.set(literal(name), v) }

func (d *dict) getName(name string) (value, bool) {
	i, ok := d.index[name]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// view is dict.keys(), dict.values() or dict.items().
type view struct {
	name  string // dict_keys, dict_values, dict_items
	items []value
}

// generator is the result of map, select and similar filters: its items are computed when
// it is read, and it can be read once.
type generator struct{ items func() []value }

type namespace struct{ attrs *dict }

// callable is a function, method or macro.
type callable struct {
	name string
	call func(in *interp, a args) value
	attr func(name string) value // nil if it has no attributes
	show func() string           // returns how it prints; nil for its name
}

// keyOf returns the identity of v as the key of a dict: equal keys have equal identities.
func keyOf(v value) any {
	switch v := v.(type) {
	case text:
		return v.s
	case nil, int64:
		return v
	case bool:
		return boolInt(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v)
		}
		return v
	case *big.Int:
		return [1]string{v.Text(62)}
	case *list:
		if v.tuple {
			var b strings.Builder
			writeKey(&b, v, 0)
			return [2]string{"tuple", b.String()}
		}
	case *undefined:
		return [3]string{"undefined"} // all are equal
	case *generator, *namespace, *callable:
		return v
	}
	fail("unhashable type: '%s'", typeName(v))
	return nil
}

// writeKey writes the identity of a tuple or of one of its items.
func writeKey(b *strings.Builder, v value, depth int) {
	if depth > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
	if l, ok := v.(*list); ok && l.tuple {
		addToKey(b, fmt.Sprintf("(%d", len(l.items)))
		for _, e := range l.items {
			writeKey(b, e, depth+1)
		}
		return
	}
	id := keyOf(v)
	s, _ := id.(string)
	switch id.(type) {
	case string:
	case *generator, *namespace, *callable: // equal only to itself
		s = fmt.Sprintf("%p", id)
	default:
		s = fmt.Sprint(id)
	}
	addToKey(b, fmt.Sprintf(" %T:%d:", id, len(s)))
	addToKey(b, s)
}

func addToKey(b *strings.Builder, s string) {
	if b.Len()+len(s) > maxTupleKey {
		throw(overLimit("string", maxTupleKey, "bytes of a tuple as key"))
	}
	b.WriteString(s)
}

// keyOf returns the identity of v as a key, and counts its work and memory.
func (in *interp) keyOf(v value) any {
	switch v := v.(type) {
	case text:
		in.budget.scan(len(v.s))
	case *big.Int:
		in.allocDigits(v)
	case *list:
		in.budget.step(1 + maxTupleKey/scanUnit)
	}
	id := keyOf(v)
	if tuple, ok := id.([2]string); ok {
		in.budget.alloc(len(tuple[1]))
	}
	return id
}

// put sets an entry of a dict that is not shared yet.
func (in *interp) put(d *dict, k, v value) {
	in.budget.allocEntry(d)
	d.put(in.keyOf(k), k, v)
}

// get returns the value of a key.
func (in *interp) get(d *dict, k value) (value, bool) {
	i, ok := d.index[in.keyOf(k)]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// typeName returns Python's name of the type of v, for error messages.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case *undefined:
		return "Undefined"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case text:
		return "str"
	case *list:
		switch {
		case v.tuple:
			return "tuple"
		case v.bounds != nil:
			return "range"
		}
		return "list"
	case *dict:
		return "dict"
	case *view:
		return v.name
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

func truth(v value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case text:
		return v.s != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	}
	return true
}

// normalize returns an integer as int64 if it fits, else as *big.Int.
func normalize(v *big.Int) value {
	if v.IsInt64() {
		return v.Int64()
	}
	if v.BitLen() > maxDigits {
		throw(overLimit("integer", maxDigits, "bits"))
	}
	return v
}

// normalize normalizes an integer and counts its memory.
func (in *interp) normalize(v *big.Int) value {
	in.budget.alloc(v.BitLen() / 8)
	return normalize(v)
}

// allocDigits counts the memory and the work of converting v to digits.
func (in *interp) allocDigits(v *big.Int) { in.budget.alloc(v.BitLen()) }

// integer returns v as an integer; bool counts as one.
func integer(v value) (*big.Int, bool) {
	switch v := v.(type) {
	case bool:
		return big.NewInt(boolInt(v)), true
	case int64:
		return big.NewInt(v), true
	case *big.Int:
		return v, true
	}
	return nil, false
}

// smallInt returns v as an int64 if it is an integer that fits.
func smallInt(v value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return boolInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// float returns any number as a float64.
func float(v value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	i, ok := smallInt(v)
	return float64(i), ok
}

func isNumber(v value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// numberOrder compares two numbers; ok is false if one of them is NaN.
func numberOrder(a, b value) (order int, ok bool) {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		return x.Cmp(y), true
	}
	f, _ := float(a)
	g, _ := float(b)
	if math.IsNaN(f) || math.IsNaN(g) {
		return 0, false
	}
	return cmp.Compare(f, g), true
}

// equal evaluates Python's a == b.
func (in *interp) equal(a, b value) bool {
	in.budget.step(1)
	if isNumber(a) && isNumber(b) {
		if x, ok := a.(int64); ok {
			if y, ok := b.(int64); ok {
				return x == y
			}
		}
		order, ok := numberOrder(a, b)
		return ok && order == 0
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case text:
		y, ok := b.(text)
		if !ok || len(x.s) != len(y.s) {
			return false
		}
		in.budget.scan(len(x.s))
		return x.s == y.s
	case *list:
		y, ok := b.(*list)
		return ok && sameKind(x, y) && in.equalItems(x.items, y.items)
	case *dict:
		y, ok := b.(*dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		in.budget.enter()
		defer in.budget.leave()
		for i, k := range x.keys {
			v, ok := in.get(y, k)
			if !ok || !in.equal(x.vals[i], v) {
				return false
			}
		}
		return true
	case *view:
		y, ok := b.(*view)
		return ok && x.name == y.name && in.equalItems(x.items, y.items)
	}
	if isNumber(a) || isNumber(b) {
		return false
	}
	switch b.(type) {
	case text, *list, *dict, *view:
		return false
	}
	return a == b
}

func (in *interp) equalItems(a, b []value) bool {
	if len(a) != len(b) {
		return false
	}
	in.budget.enter()
	defer in.budget.leave()
	for i := range a {
		if !in.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// order compares a and b as Python's operator op and sorting do, and fails where Python
// does; ok is false if one of them is NaN.
func (in *interp) order(op string, a, b value) (order int, ok bool) {
	in.budget.step(1)
	if isNumber(a) && isNumber(b) {
		return numberOrder(a, b)
	}
	if u, isUndefined := firstUndefined(a, b); isUndefined {
		u.fail()
	}
	switch x := a.(type) {
	case text:
		if y, ok := b.(text); ok {
			in.budget.scan(min(len(x.s), len(y.s)))
			return strings.Compare(x.s, y.s), true
		}
	case *list:
		y, ok := b.(*list)
		if !ok || !sameKind(x, y) || x.bounds != nil {
			break
		}
		in.budget.enter()
		defer in.budget.leave()
		for i := range min(len(x.items), len(y.items)) {
			if !in.equal(x.items[i], y.items[i]) {
				return in.order(op, x.items[i], y.items[i])
			}
		}
		return cmp.Compare(len(x.items), len(y.items)), true
	}
	fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0, false
}

// sameKind reports whether both are lists, tuples or ranges.
func sameKind(a, b *list) bool { return a.tuple == b.tuple && (a.bounds == nil) == (b.bounds == nil) }

func firstUndefined(vs ...value) (*undefined, bool) {
	for _, v := range vs {
		if u, ok := v.(*undefined); ok {
			return u, true
		}
	}
	return nil, false
}

// sort orders items by key, stably.
func (in *interp) sort(items []value, reverse bool, key func(value) value) []value {
	in.budget.alloc(len(items) * (3*itemSize + valueSize))
	type keyed struct{ k, v value }
	pairs := make([]keyed, len(items))
	for i, v := range items {
		pairs[i] = keyed{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b keyed) int {
		order, _ := in.order("<", a.k, b.k)
		if reverse {
			return -order
		}
		return order
	})
	out := make([]value, len(items))
	for i, p := range pairs {
		out[i] = p.v
	}
	return out
}

// contains evaluates Python's v in container.
func (in *interp) contains(container, v value) bool {
	switch c := container.(type) {
	case text:
		sub, ok := v.(text)
		if !ok {
			fail("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		in.budget.scan(len(c.s))
		return strings.Contains(c.s, sub.s)
	case *dict:
		_, ok := c.index[in.keyOf(v)]
		return ok
	}
	if !iterable(container) {
		if u, ok := container.(*undefined); ok {
			u.fail()
		}
		fail("argument of type '%s' is not iterable", typeName(container))
	}
	for _, e := range in.iterate(container) {
		if in.equal(e, v) {
			return true
		}
	}
	return false
}

// iterable reports whether iterate accepts v.
func iterable(v value) bool {
	switch v.(type) {
	case *undefined, text, *list, *dict, *view, *generator:
		return true
	}
	return false
}

// iterate returns the items that a loop over v visits. The caller must not change them.
func (in *interp) iterate(v value) []value {
	switch v := v.(type) {
	case *undefined:
		return nil
	case text:
		n := in.length(v)
		in.budget.alloc(n * (itemSize + valueSize))
		out := make([]value, 0, n)
		for i := range v.s {
			in.budget.step(1)
			c := v.at(i)
			c.safe = false
			out = append(out, c)
		}
		return out
	case *list:
		return v.items
	case *dict:
		return v.keys
	case *view:
		return v.items
	case *generator:
		if items := v.items; items != nil {
			v.items = nil
			in.budget.enter() // it may read another generator
			defer in.budget.leave()
			return items()
		}
		return nil
	}
	fail("'%s' object is not iterable", typeName(v))
	return nil
}

// length evaluates Python's len(v).
func (in *interp) length(v value) int {
	switch v := v.(type) {
	case *undefined:
		return 0
	case text:
		in.budget.scan(len(v.s))
		return v.runes()
	case *list:
		return len(v.items)
	case *dict:
		return len(v.keys)
	case *view:
		return len(v.items)
	}
	fail("object of type '%s' has no len()", typeName(v))
	return 0
}

// str returns Python's str(v), as which v is printed.
func (in *interp) str(v value) text {
	switch v := v.(type) {
	case text:
		return v
	case *undefined:
		return text{}
	}
	b := in.builder()
	in.repr(b, v)
	return b.take().markedWhole()
}

// repr writes Python's repr(v).
func (in *interp) repr(b *builder, v value) {
	in.budget.step(1)
	switch v := v.(type) {
	case nil:
		b.literal("None")
	case *undefined:
		b.literal("Undefined")
	case bool:
		if v {
			b.literal("True")
		} else {
			b.literal("False")
		}
	case int64:
		b.literal(strconv.FormatInt(v, 10))
	case *big.Int:
		in.allocDigits(v)
		b.literal(v.String())
	case float64:
		b.literal(formatFloat(v))
	case text:
		in.reprText(b, v)
	case *list:
		if v.bounds != nil {
			b.literal(v.bounds.String())
		} else if !v.tuple {
			in.reprItems(b, "[", v.items, "]")
		} else if len(v.items) == 1 {
			in.reprItems(b, "(", v.items, ",)")
		} else {
			in.reprItems(b, "(", v.items, ")")
		}
	case *dict:
		in.reprDict(b, v)
	case *view:
		in.reprItems(b, v.name+"([", v.items, "])")
	case *generator:
		b.literal("<generator object>")
	case *namespace:
		b.literal("<Namespace ")
		in.reprDict(b, v.attrs)
		b.literal(">")
	case *callable:
		if v.show != nil {
			b.literal(v.show())
		} else {
			b.literal("<function " + v.name + ">")
		}
	}
}

func (in *interp) reprItems(b *builder, open string, items []value, end string) {
	in.budget.enter()
	defer in.budget.leave()
	b.literal(open)
	for i, v := range items {
		if i > 0 {
			b.literal(", ")
		}
		in.repr(b, v)
	}
	b.literal(end)
}

func (in *interp) reprDict(b *builder, d *dict) {
	in.budget.enter()
	defer in.budget.leave()
	b.literal("{")
	for i, k := range d.keys {
		if i > 0 {
			b.literal(", ")
		}
		in.repr(b, k)
		b.literal(": ")
		in.repr(b, d.vals[i])
	}
	b.literal("}")
}

func (in *interp) reprText(b *builder, t text) {
	quote := '\''
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = '"'
	}
	if t.safe {
		b.literal("Markup(")
		defer b.literal(")")
	}
	b.literal(string(quote))
	b.text(in.mapRunes(t, func(_ int, r rune) string {
		switch {
		case r == quote || r == '\\':
			return `\` + string(r)
		case r == '\n':
			return `\n`
		case r == '\r':
			return `\r`
		case r == '\t':
			return `\t`
		case unicode.IsPrint(r):
			return runeText(r)
		}
		return escapeRune(r)
	}))
	b.literal(string(quote))
}

// escapeRune returns a code point as an escape of a Python string.
func escapeRune(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// formatFloat returns Python's repr of a float: the shortest digits that parse to f.
func formatFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
