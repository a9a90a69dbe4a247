package jinja

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// DecodeJSON reads one JSON value, all of whose text counts as the caller's. The order of
// keys and the difference between 1 and 1.0 are kept, because templates print them. Its
// memory is limited to that of a rendering.
func DecodeJSON(data []byte) (v Value, err error) {
	defer catch(&err)
	d := &decoder{json.NewDecoder(bytes.NewReader(data)), newBudget(context.Background(), Limits{Steps: math.MaxInt, Alloc: DefaultLimits.Alloc}, noClock)}
	d.UseNumber()
	v, err = d.value()
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more than one JSON value")
	}
	return v, nil
}

// decoder reads the values of one JSON document.
type decoder struct {
	*json.Decoder
	budget *budget
}

func noClock() time.Duration { return 0 }

func (d *decoder) value() (Value, error) {
	d.budget.enter()
	defer d.budget.leave()
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
		return nil, nil
	case bool:
		return t, nil
	case string:
		d.budget.alloc(len(t) + valueSize + markSize)
		return Marked(t, FromCaller), nil
	case json.Number:
		d.budget.alloc(len(t) + numberSize)
		return decodeNumber(t.String())
	case json.Delim:
		d.budget.allocValue()
		if t == '[' {
			return d.list()
		}
		return d.dict()
	}
	return nil, fmt.Errorf("unexpected JSON token %v", t)
}

func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, _ := strconv.ParseFloat(s, 64) // out of range: infinity, as in Python
		return f, nil
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	if len(s) > maxDigits/4 {
		return nil, overLimit("integer", maxDigits, "bits")
	}
	i, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("illegal number %q", s)
	}
	return normalize(i), nil
}

func (d *decoder) list() (Value, error) {
	l := &List{}
	for d.More() {
		d.budget.alloc(2 * itemSize) // append allocates up to twice the items
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	_, err := d.Token()
	return l, err
}

func (d *decoder) dict() (Value, error) {
	out := NewDict()
	for d.More() {
		d.budget.allocEntry(out)
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		key, ok := k.(string)
		if !ok {
			return nil, fmt.Errorf("illegal JSON key %v", k)
		}
		d.budget.alloc(len(key) + valueSize + markSize)
		out.set(Marked(key, FromCaller), v)
	}
	_, err := d.Token()
	return out, err
}

// jsonWriter writes JSON as Python's json.dumps does.
type jsonWriter struct {
	in          *interp
	b           *builder
	ascii       bool
	indent      Text // of one level
	pretty      bool
	item, colon Text // separators
	sorted      bool
}

func (w *jsonWriter) value(v Value, level int) {
	w.in.budget.step(1)
	switch v := v.(type) {
	case nil:
		w.b.literal("null")
	case bool:
		w.b.literal(strconv.FormatBool(v))
	case float64:
		w.b.literal(jsonFloat(v))
	case int64, *big.Int:
		w.in.repr(w.b, v)
	case Text:
		w.str(v)
	case *List:
		if v.bounds != nil {
			fail("Object of type range is not JSON serializable")
		}
		w.items("[", "]", len(v.Items), level, func(i int) { w.value(v.Items[i], level+1) })
	case *Dict:
		w.dict(v, level)
	default:
		fail("Object of type %s is not JSON serializable", TypeName(v))
	}
}

func (w *jsonWriter) items(open, end string, n, level int, item func(i int)) {
	w.in.budget.enter()
	defer w.in.budget.leave()
	w.b.literal(open)
	for i := range n {
		if i > 0 {
			w.b.text(w.item)
		}
		w.newline(level + 1)
		item(i)
	}
	if n > 0 {
		w.newline(level)
	}
	w.b.literal(end)
}

func (w *jsonWriter) newline(level int) {
	if !w.pretty {
		return
	}
	w.b.literal("\n")
	for range level {
		w.b.text(w.indent)
	}
}

func (w *jsonWriter) dict(d *Dict, level int) {
	w.in.budget.alloc(len(d.keys) * numberSize)
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if w.sorted {
		slices.SortStableFunc(order, func(a, b int) int {
			c, _ := w.in.order("<", d.keys[a], d.keys[b])
			return c
		})
	}
	w.items("{", "}", len(order), level, func(i int) {
		w.key(d.keys[order[i]])
		w.b.text(w.colon)
		w.value(d.vals[order[i]], level+1)
	})
}

func (w *jsonWriter) key(k Value) {
	switch k := k.(type) {
	case Text:
		w.str(k)
	case nil, bool, int64, *big.Int, float64:
		w.b.literal(`"`)
		w.value(k, 0)
		w.b.literal(`"`)
	default:
		fail("keys must be str, int, float, bool or None, not %s", TypeName(k))
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return formatFloat(f)
}

func (w *jsonWriter) str(t Text) {
	w.b.literal(`"`)
	w.b.text(w.in.mapRunes(t, func(_ int, r rune) string {
		switch r {
		case '"':
			return `\"`
		case '\\':
			return `\\`
		case '\n':
			return `\n`
		case '\r':
			return `\r`
		case '\t':
			return `\t`
		case '\b':
			return `\b`
		case '\f':
			return `\f`
		}
		switch {
		case r < 0x20:
			return fmt.Sprintf(`\u%04x`, r)
		case !w.ascii || r < 0x7f:
			return runeText(r)
		case r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			return fmt.Sprintf(`\u%04x\u%04x`, hi, lo)
		}
		return fmt.Sprintf(`\u%04x`, r)
	}))
	w.b.literal(`"`)
}

// tojson applies the filter as transformers defines it: it does not escape HTML.
func (in *interp) tojson(v Value, p params) Value {
	w := &jsonWriter{in: in, b: in.builder(), ascii: p.truth(0, false), sorted: p.truth(3, false), item: Literal(", "), colon: Literal(": ")}
	switch indent := p.get(1, nil).(type) {
	case nil:
	case Text:
		w.pretty, w.indent = true, indent
	default:
		n, ok := smallInt(indent)
		if !ok {
			fail("tojson: indent must be a number or a string, not %s", TypeName(indent))
		}
		w.pretty, w.indent = true, in.repeat(Literal(" "), int(min(max(n, 0), maxRange)))
	}
	if w.pretty {
		w.item = Literal(",")
	}
	if s := p.get(2, nil); s != nil {
		pair, ok := s.(*List)
		if !ok || len(pair.Items) != 2 {
			fail("tojson: separators must be a pair of strings")
		}
		w.item, w.colon = in.str(pair.Items[0]), in.str(pair.Items[1])
	}
	w.value(v, 0)
	return w.b.take().markedWhole()
}
