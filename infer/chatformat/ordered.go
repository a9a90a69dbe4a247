package chatformat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// object is a JSON object whose members keep their order. Values are objects, []any, strings,
// json.Number, bool or nil.
type object []member

type member struct {
	name  string
	value any
}

// index returns the index of a member, -1 if there is none.
func (o object) index(name string) int {
	return slices.IndexFunc(o, func(m member) bool { return m.name == name })
}

// get returns a member; nil if there is none.
func (o object) get(name string) any {
	if i := o.index(name); i >= 0 {
		return o[i].value
	}
	return nil
}

// set sets a member, at the end if it is new.
func (o *object) set(name string, value any) {
	if i := o.index(name); i >= 0 {
		(*o)[i].value = value
		return
	}
	*o = append(*o, member{name, value})
}

// encodeOrdered encodes what decodeOrdered returns. Characters are escaped as JSON requires, and no others.
func encodeOrdered(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := writeOrdered(&b, value); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func writeOrdered(b *bytes.Buffer, value any) error {
	switch v := value.(type) {
	case object:
		return writeItems(b, "{}", len(v), func(i int) error {
			if err := writeOrdered(b, v[i].name); err != nil {
				return err
			}
			b.WriteByte(':')
			return writeOrdered(b, v[i].value)
		})
	case []any:
		return writeItems(b, "[]", len(v), func(i int) error { return writeOrdered(b, v[i]) })
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	b.Truncate(len(bytes.TrimRight(b.Bytes(), "\n")))
	return err
}

// writeItems writes n items between brackets.
func writeItems(b *bytes.Buffer, brackets string, n int, item func(i int) error) error {
	b.WriteByte(brackets[0])
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := item(i); err != nil {
			return err
		}
	}
	b.WriteByte(brackets[1])
	return nil
}

// maxOrderedDepth bounds the nesting of what decodeOrdered reads.
const maxOrderedDepth = 200

// decodeOrdered decodes JSON whose objects keep the order of their members.
func decodeOrdered(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return orderedValue(d, 0)
}

func orderedValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxOrderedDepth {
		return nil, fmt.Errorf("JSON nests deeper than %d levels", maxOrderedDepth)
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := orderedValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o = append(o, member{name.(string), value}) // the decoder returns names as strings
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			value, err := orderedValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}
