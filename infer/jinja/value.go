package jinja

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

// Value is the result of an expression: nil (None), *undefined, bool, int64, *big.Int
// (integers that do not fit), float64, Text, *List, *Dict, *view, *generator, *namespace or
// *callable. Values are immutable, except the attributes of a namespace and whether a
// generator was read.
type Value any

// undefined is a variable, attribute or item that does not exist. It prints as nothing;
// most other uses of it fail with its message. The message is formatted only then, because
// it may name a long key and there may be many of them.
type undefined struct {
	format string
	args   []any
}

func missing(format string, args ...any) *undefined { return &undefined{format, args} }

func isUndefined(v Value) bool {
	_, is := v.(*undefined)
	return is
}

// fail throws the message as a *RenderError.
func (u *undefined) fail() { fail(u.format, u.args...) }

// List is a list, a tuple or a range.
type List struct {
	Items  []Value
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

func tuple(items ...Value) *List { return &List{Items: items, tuple: true} }

// Dict keeps its keys in order of insertion.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[any]int
}

// NewDict returns an empty Dict.
func NewDict() *Dict { return &Dict{} }

func (d *Dict) set(k, v Value) { d.put(keyOf(k), k, v) }

// put sets the entry of the key k, for which keyOf returned id.
func (d *Dict) put(id any, k, v Value) {
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

// Set sets the entry of a name, which counts as the template's text.
func (d *Dict) Set(name string, v Value) { d.set(Literal(name), v) }

// Get returns the entry of a name.
func (d *Dict) Get(name string) (Value, bool) {
	i, ok := d.index[name]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

// Clone returns a copy of d that has the same values.
func (d *Dict) Clone() *Dict {
	clone := NewDict()
	clone.Update(d)
	return clone
}

// Update sets the entries of other, in its order.
func (d *Dict) Update(other *Dict) {
	for i, k := range other.keys {
		d.set(k, other.vals[i])
	}
}

// view is dict.keys(), dict.values() or dict.items().
type view struct {
	name  string // dict_keys, dict_values, dict_items
	items []Value
}

// generator is the result of map, select and similar filters: its items are computed when
// it is read, and it can be read once.
type generator struct{ items func() []Value }

type namespace struct{ attrs *Dict }

// callable is a function, method or macro.
type callable struct {
	name string
	call func(in *interp, a args) Value
	attr func(name string) Value // nil if it has no attributes
	show func() string           // returns how it prints; nil for its name
}

// keyOf returns the identity of v as the key of a dict: equal keys have equal identities.
func keyOf(v Value) any {
	switch v := v.(type) {
	case Text:
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
	case *List:
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
	fail("unhashable type: '%s'", TypeName(v))
	return nil
}

// writeKey writes the identity of a tuple or of one of its items.
func writeKey(b *strings.Builder, v Value, depth int) {
	if depth > maxDepth {
		throw(overLimit("nesting depth", maxDepth, "levels"))
	}
	if l, ok := v.(*List); ok && l.tuple {
		addToKey(b, fmt.Sprintf("(%d", len(l.Items)))
		for _, e := range l.Items {
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
func (in *interp) keyOf(v Value) any {
	switch v := v.(type) {
	case Text:
		in.budget.scan(len(v.s))
	case *big.Int:
		in.allocDigits(v)
	case *List:
		in.budget.step(1 + maxTupleKey/scanUnit)
	}
	id := keyOf(v)
	if tuple, ok := id.([2]string); ok {
		in.budget.alloc(len(tuple[1]))
	}
	return id
}

// put sets an entry of a dict that is not shared yet.
func (in *interp) put(d *Dict, k, v Value) {
	in.budget.allocEntry(d)
	d.put(in.keyOf(k), k, v)
}

// get returns the value of a key.
func (in *interp) get(d *Dict, k Value) (Value, bool) {
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

// TypeName returns Python's name of the type of v, for error messages.
func TypeName(v Value) string {
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
	case Text:
		return "str"
	case *List:
		switch {
		case v.tuple:
			return "tuple"
		case v.bounds != nil:
			return "range"
		}
		return "list"
	case *Dict:
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

func truth(v Value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case Text:
		return v.s != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	}
	return true
}

// normalize returns an integer as int64 if it fits, else as *big.Int.
func normalize(v *big.Int) Value {
	if v.IsInt64() {
		return v.Int64()
	}
	if v.BitLen() > maxDigits {
		throw(overLimit("integer", maxDigits, "bits"))
	}
	return v
}

// normalize normalizes an integer and counts its memory.
func (in *interp) normalize(v *big.Int) Value {
	in.budget.alloc(v.BitLen() / 8)
	return normalize(v)
}

// allocDigits counts the memory and the work of converting v to digits.
func (in *interp) allocDigits(v *big.Int) { in.budget.alloc(v.BitLen()) }

// integer returns v as an integer; bool counts as one.
func integer(v Value) (*big.Int, bool) {
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
func smallInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return boolInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// float returns any number as a float64.
func float(v Value) (float64, bool) {
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

func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, *big.Int, float64:
		return true
	}
	return false
}

// numberOrder compares two numbers; ok is false if one of them is NaN.
func numberOrder(a, b Value) (order int, ok bool) {
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
func (in *interp) equal(a, b Value) bool {
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
	case Text:
		y, ok := b.(Text)
		if !ok || len(x.s) != len(y.s) {
			return false
		}
		in.budget.scan(len(x.s))
		return x.s == y.s
	case *List:
		y, ok := b.(*List)
		return ok && sameKind(x, y) && in.equalItems(x.Items, y.Items)
	case *Dict:
		y, ok := b.(*Dict)
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
	case Text, *List, *Dict, *view:
		return false
	}
	return a == b
}

func (in *interp) equalItems(a, b []Value) bool {
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
func (in *interp) order(op string, a, b Value) (order int, ok bool) {
	in.budget.step(1)
	if isNumber(a) && isNumber(b) {
		return numberOrder(a, b)
	}
	if u, isUndefined := firstUndefined(a, b); isUndefined {
		u.fail()
	}
	switch x := a.(type) {
	case Text:
		if y, ok := b.(Text); ok {
			in.budget.scan(min(len(x.s), len(y.s)))
			return strings.Compare(x.s, y.s), true
		}
	case *List:
		y, ok := b.(*List)
		if !ok || !sameKind(x, y) || x.bounds != nil {
			break
		}
		in.budget.enter()
		defer in.budget.leave()
		for i := range min(len(x.Items), len(y.Items)) {
			if !in.equal(x.Items[i], y.Items[i]) {
				return in.order(op, x.Items[i], y.Items[i])
			}
		}
		return cmp.Compare(len(x.Items), len(y.Items)), true
	}
	fail("'%s' not supported between instances of '%s' and '%s'", op, TypeName(a), TypeName(b))
	return 0, false
}

// sameKind reports whether both are lists, tuples or ranges.
func sameKind(a, b *List) bool { return a.tuple == b.tuple && (a.bounds == nil) == (b.bounds == nil) }

func firstUndefined(vs ...Value) (*undefined, bool) {
	for _, v := range vs {
		if u, ok := v.(*undefined); ok {
			return u, true
		}
	}
	return nil, false
}

// sort orders items by key, stably.
func (in *interp) sort(items []Value, reverse bool, key func(Value) Value) []Value {
	in.budget.alloc(len(items) * (3*itemSize + valueSize))
	type keyed struct{ k, v Value }
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
	out := make([]Value, len(items))
	for i, p := range pairs {
		out[i] = p.v
	}
	return out
}

// contains evaluates Python's v in container.
func (in *interp) contains(container, v Value) bool {
	switch c := container.(type) {
	case Text:
		sub, ok := v.(Text)
		if !ok {
			fail("'in <string>' requires string as left operand, not %s", TypeName(v))
		}
		in.budget.scan(len(c.s))
		return strings.Contains(c.s, sub.s)
	case *Dict:
		_, ok := c.index[in.keyOf(v)]
		return ok
	}
	if !iterable(container) {
		if u, ok := container.(*undefined); ok {
			u.fail()
		}
		fail("argument of type '%s' is not iterable", TypeName(container))
	}
	for _, e := range in.iterate(container) {
		if in.equal(e, v) {
			return true
		}
	}
	return false
}

// iterable reports whether iterate accepts v.
func iterable(v Value) bool {
	switch v.(type) {
	case *undefined, Text, *List, *Dict, *view, *generator:
		return true
	}
	return false
}

// iterate returns the items that a loop over v visits. The caller must not change them.
func (in *interp) iterate(v Value) []Value {
	switch v := v.(type) {
	case *undefined:
		return nil
	case Text:
		n := in.length(v)
		in.budget.alloc(n * (itemSize + valueSize))
		out := make([]Value, 0, n)
		for i := range v.s {
			in.budget.step(1)
			c := v.at(i)
			c.safe = false
			out = append(out, c)
		}
		return out
	case *List:
		return v.Items
	case *Dict:
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
	fail("'%s' object is not iterable", TypeName(v))
	return nil
}

// length evaluates Python's len(v).
func (in *interp) length(v Value) int {
	switch v := v.(type) {
	case *undefined:
		return 0
	case Text:
		in.budget.scan(len(v.s))
		return v.runes()
	case *List:
		return len(v.Items)
	case *Dict:
		return len(v.keys)
	case *view:
		return len(v.items)
	}
	fail("object of type '%s' has no len()", TypeName(v))
	return 0
}

// str returns Python's str(v), as which v is printed.
func (in *interp) str(v Value) Text {
	switch v := v.(type) {
	case Text:
		return v
	case *undefined:
		return Text{}
	}
	b := in.builder()
	in.repr(b, v)
	return b.take().markedWhole()
}

// repr writes Python's repr(v).
func (in *interp) repr(b *builder, v Value) {
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
	case Text:
		in.reprText(b, v)
	case *List:
		if v.bounds != nil {
			b.literal(v.bounds.String())
		} else if !v.tuple {
			in.reprItems(b, "[", v.Items, "]")
		} else if len(v.Items) == 1 {
			in.reprItems(b, "(", v.Items, ",)")
		} else {
			in.reprItems(b, "(", v.Items, ")")
		}
	case *Dict:
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

func (in *interp) reprItems(b *builder, open string, items []Value, end string) {
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

func (in *interp) reprDict(b *builder, d *Dict) {
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

func (in *interp) reprText(b *builder, t Text) {
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
