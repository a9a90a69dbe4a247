package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// value is a JSON value with its position in the document. The order of members and the
// digits of numbers are kept.
type value struct {
	kind    valueKind
	members []member          // of an object
	byName  map[string]*value // the members of an object with more than fewMembers
	items   []*value          // of an array
	text    string            // of a string or number
	truth   bool

	id     int    // number in the document, in order of appearance
	parent *value // nil for the root
	name   string // in parent, if that is an object
	index  int    // in parent, if that is an array
}

type member struct {
	name string
	*value
}

// valueKind is a set of JSON types; a value has exactly one.
type valueKind uint8

const (
	kindNull valueKind = 1 << iota
	kindBool
	kindObject
	kindArray
	kindString
	kindInteger
	kindFraction // a number that is not an integer

	kindNumber = kindInteger | kindFraction
	anyKind    = kindNull | kindBool | kindObject | kindArray | kindString | kindNumber
)

// maxScannedMembers is the number of members up to which an object is searched linearly.
const maxScannedMembers = 16

// get returns the member of a name; nil if there is none.
func (v *value) get(name string) *value {
	if v.byName != nil {
		return v.byName[name]
	}
	if v.kind == kindObject {
		for _, m := range v.members {
			if m.name == name {
				return m.value
			}
		}
	}
	return nil
}

// maxValues limits the values in a schema.
const maxValues = 1 << 17

// parseJSON parses a schema. It returns an error that names the problem, or that of ctx.
func parseJSON(ctx context.Context, data []byte) (*value, error) {
	if len(data) > maxText {
		return nil, fmt.Errorf("the schema has %d bytes; the limit is %d", len(data), maxText)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("the schema is not valid UTF-8")
	}
	r := jsonReader{Decoder: json.NewDecoder(bytes.NewReader(data)), ctx: ctx}
	r.UseNumber()
	v := &value{}
	err := r.value(v, 0)
	if err == nil {
		if _, err = r.Token(); err == io.EOF {
			return v, nil
		}
		err = errors.New("text follows the document")
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errManyValues):
		return nil, err
	}
	return nil, fmt.Errorf("the schema is not a JSON document: %w", err)
}

var errManyValues = fmt.Errorf("the schema is too large: it holds more than %d values", maxValues)

type jsonReader struct {
	*json.Decoder
	ctx   context.Context
	count int // values so far
}

// value reads the next value into v.
func (r *jsonReader) value(v *value, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("it is nested more than %d deep", maxNesting)
	}
	v.id = r.count
	if r.count++; r.count > maxValues {
		return errManyValues
	}
	if r.count%1024 == 0 && r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	token, err := r.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	switch t := token.(type) {
	case nil:
		v.kind = kindNull
	case bool:
		v.kind, v.truth = kindBool, t
	case string:
		v.kind, v.text = kindString, t
	case json.Number:
		v.kind, v.text = kindFraction, string(t)
		if n, ok := v.number(); ok && n.IsInt() {
			v.kind = kindInteger
		}
	case json.Delim:
		if t == '{' {
			v.kind, err = kindObject, r.object(v, depth)
		} else {
			v.kind, err = kindArray, r.array(v, depth)
		}
	}
	return err
}

func (r *jsonReader) object(v *value, depth int) error {
	seen := map[string]*value{}
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return fmt.Errorf("%v is not the name of a member", token)
		}
		if seen[name] != nil {
			return fmt.Errorf("%s holds %q twice", v.pointer(), shorten(name))
		}
		m := &value{parent: v, name: name}
		seen[name] = m
		if err := r.value(m, depth+1); err != nil {
			return err
		}
		v.members = append(v.members, member{name, m})
	}
	if len(v.members) > maxScannedMembers {
		v.byName = seen
	}
	_, err := r.Token()
	return err
}

func (r *jsonReader) array(v *value, depth int) error {
	for r.More() {
		item := &value{parent: v, index: len(v.items)}
		if err := r.value(item, depth+1); err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := r.Token()
	return err
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointer returns the JSON pointer to v for error messages, with long parts truncated.
func (v *value) pointer() string {
	var parts []string
	for ; v.parent != nil; v = v.parent {
		part := pointerEscaper.Replace(shorten(v.name))
		if v.parent.kind == kindArray {
			part = strconv.Itoa(v.index)
		}
		parts = append(parts, "/"+part)
	}
	slices.Reverse(parts)
	const most = 16
	if len(parts) > most {
		parts = slices.Concat(parts[:most/2], []string{"/…"}, parts[len(parts)-most/2:])
	}
	return "#" + strings.Join(parts, "")
}

// shorten truncates text of a schema that an error message quotes.
func shorten(text string) string {
	const most = 80
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// maxExponent limits the digits and the exponent of a number in a schema.
const maxExponent = 400

// number returns the value of a number; false if it has too many digits.
func (v *value) number() (*big.Rat, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(v.text), "e")
	e := 0
	if exponent != "" {
		var err error
		if e, err = strconv.Atoi(exponent); err != nil {
			return nil, false
		}
	}
	if len(mantissa) > maxExponent || max(e, -e) > maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(v.text)
}

// encode returns v as JSON without white space. If sorted is set, equal values have the same
// encoding: members are sorted and numbers are written as fractions.
func (v *value) encode(sorted bool) string {
	var b strings.Builder
	v.write(&b, sorted)
	return b.String()
}

func (v *value) write(b *strings.Builder, sorted bool) {
	switch v.kind {
	case kindNull:
		b.WriteString("null")
	case kindBool:
		b.WriteString(strconv.FormatBool(v.truth))
	case kindString:
		writeJSONString(b, v.text)
	case kindInteger, kindFraction:
		if n, ok := v.number(); ok && sorted {
			b.WriteString(n.RatString())
		} else {
			b.WriteString(v.text)
		}
	case kindArray:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b, sorted)
		}
		b.WriteByte(']')
	case kindObject:
		b.WriteByte('{')
		for i, m := range v.ordered(sorted) {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSONString(b, m.name)
			b.WriteByte(':')
			m.write(b, sorted)
		}
		b.WriteByte('}')
	}
}

// ordered returns the members of an object in their order, or sorted by name.
func (v *value) ordered(byName bool) []member {
	if !byName {
		return v.members
	}
	return slices.SortedFunc(slices.Values(v.members), func(a, b member) int { return strings.Compare(a.name, b.name) })
}

// writeJSONString writes text as a JSON string with the required escapes only.
func writeJSONString(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		b.WriteString(jsonChar(r))
	}
	b.WriteByte('"')
}

// jsonChar returns a character as it is written in a JSON string.
func jsonChar(r rune) string {
	switch r {
	case '"', '\\':
		return `\` + string(r)
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < ' ' {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}
