package grammar

import (
	"bytes"
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

// value is a JSON value that keeps the order of its members, the digits of its
// numbers, and where it stands.
type value struct {
	kind    valueKind
	members []member // of an object
	items   []*value // of an array
	text    string   // of a string or number
	truth   bool
	pointer string // JSON pointer from the root of the document
}

type member struct {
	name string
	*value
}

// valueKind is a set of JSON types, so that a value's own is one of a set.
type valueKind uint8

const (
	kindNull valueKind = 1 << iota
	kindBool
	kindObject
	kindArray
	kindString
	kindInteger
	kindFraction // a number that is no integer

	kindNumber = kindInteger | kindFraction
	anyKind    = kindNull | kindBool | kindObject | kindArray | kindString | kindNumber
)

// get returns the member of a name, nil for none.
func (v *value) get(name string) *value {
	if v.kind == kindObject {
		for _, m := range v.members {
			if m.name == name {
				return m.value
			}
		}
	}
	return nil
}

// parseJSON reads a document.
func parseJSON(data []byte) (*value, error) {
	if len(data) > maxText {
		return nil, fmt.Errorf("the schema has %d bytes; the limit is %d", len(data), maxText)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("the schema is not valid UTF-8")
	}
	r := jsonReader{json.NewDecoder(bytes.NewReader(data))}
	r.UseNumber()
	v, err := r.value("", 0)
	if err == nil {
		if _, err = r.Token(); err == io.EOF {
			return v, nil
		}
		err = errors.New("something follows it")
	}
	return nil, fmt.Errorf("the schema is not a JSON document: %w", err)
}

type jsonReader struct{ *json.Decoder }

func (r jsonReader) value(pointer string, depth int) (*value, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("it is nested more than %d deep", maxNesting)
	}
	token, err := r.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	v := &value{pointer: pointer}
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
	return v, err
}

func (r jsonReader) object(v *value, depth int) error {
	seen := map[string]bool{}
	for r.More() {
		token, err := r.Token()
		if err != nil {
			return err
		}
		name, ok := token.(string)
		if !ok {
			return fmt.Errorf("%v is not the name of a member", token)
		}
		if seen[name] {
			return fmt.Errorf("%s holds %q twice", place(v.pointer), name)
		}
		seen[name] = true
		m, err := r.value(v.pointer+"/"+pointerEscaper.Replace(name), depth+1)
		if err != nil {
			return err
		}
		v.members = append(v.members, member{name, m})
	}
	_, err := r.Token()
	return err
}

func (r jsonReader) array(v *value, depth int) error {
	for r.More() {
		item, err := r.value(v.pointer+"/"+strconv.Itoa(len(v.items)), depth+1)
		if err != nil {
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

// place writes a JSON pointer for people.
func place(pointer string) string { return "#" + pointer }

// maxExponent bounds the digits of a number of a schema.
const maxExponent = 400

// number returns the value of a number; false for one that is too long.
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

// encode writes v as JSON without white space, in one way for equal values: numbers
// that are equal, and objects whose members have another order.
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

// ordered returns the members of an object as they stand there, or by name.
func (v *value) ordered(byName bool) []member {
	if !byName {
		return v.members
	}
	return slices.SortedFunc(slices.Values(v.members), func(a, b member) int { return strings.Compare(a.name, b.name) })
}

// writeJSONString writes text with the escapes that it must have and no other.
func writeJSONString(b *strings.Builder, text string) {
	b.WriteByte('"')
	for _, r := range text {
		b.WriteString(jsonChar(r))
	}
	b.WriteByte('"')
}

// jsonChar returns a character as it stands in a JSON string.
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
