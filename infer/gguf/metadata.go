package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
)

// kind is the type of a metadata value as encoded in the file.
type kind uint32

const (
	kindUint8   kind = 0
	kindInt8    kind = 1
	kindUint16  kind = 2
	kindInt16   kind = 3
	kindUint32  kind = 4
	kindInt32   kind = 5
	kindFloat32 kind = 6
	kindBool    kind = 7
	kindString  kind = 8
	kindArray   kind = 9
	kindUint64  kind = 10
	kindInt64   kind = 11
	kindFloat64 kind = 12
)

var kinds = [...]struct {
	name  string
	bytes uint64 // 0: variable
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (k kind) known() bool    { return int(k) < len(kinds) }
func (k kind) bytes() uint64  { return kinds[k].bytes }
func (k kind) String() string { return kinds[k].name }

// integer reports whether k is an integer type.
func (k kind) integer() bool {
	switch k {
	case kindUint8, kindInt8, kindUint16, kindInt16, kindUint32, kindInt32, kindUint64, kindInt64:
		return true
	}
	return false
}

func (k kind) float() bool { return k == kindFloat32 || k == kindFloat64 }

// value is the location of a validated metadata value in the header. Getters decode it.
type value struct {
	kind       kind // of the value, or of the elements of an array
	array      bool
	count      int // elements of an array
	start, end int // offsets in the header, without the length of a string and the type and length of an array
}

func (v value) String() string {
	if v.array {
		return "array of " + v.kind.String()
	}
	return v.kind.String()
}

// value validates the type and value at the cursor and advances past them.
func (c *cursor) value() (v value, err error) {
	if v.kind, err = c.kind("the value's type"); err != nil {
		return v, err
	}
	if v.kind == kindArray {
		return c.array()
	}
	if v.kind == kindString {
		n, err := c.skipText("the string")
		v.start, v.end = c.pos-n, c.pos
		return v, err
	}
	data, err := c.take(v.kind.bytes(), "the value")
	if err != nil {
		return v, err
	}
	v.start, v.end = c.pos-len(data), c.pos
	if v.kind == kindBool && data[0] > 1 {
		c.pos = v.start
		return v, c.fail("a bool is %d, want 0 or 1", data[0])
	}
	return v, nil
}

func (c *cursor) kind(what string) (kind, error) {
	n, err := c.u32(what)
	if err == nil && !kind(n).known() {
		c.pos -= 4
		err = c.fail("%s %d is unknown", what, n)
	}
	return kind(n), err
}

func (c *cursor) array() (v value, err error) {
	v.array = true
	if v.kind, err = c.kind("the elements' type"); err != nil {
		return v, err
	}
	if v.kind == kindArray {
		return v, c.fail("arrays inside arrays are not supported")
	}
	n, err := c.u64("the array's length")
	if err != nil {
		return v, err
	}
	least := v.kind.bytes()
	if v.kind == kindString {
		least = 8 // the length of an empty string
	}
	bytes, ok := mul(n, least)
	if rest := uint64(c.size - c.pos); !ok || bytes > rest {
		return v, c.fail("the file ends too early: an array of %d values of at least %d bytes needs more than the %d bytes left", n, least, rest)
	}
	v.count, v.start = int(n), c.pos
	if v.kind == kindString {
		for i := range v.count {
			if _, err := c.skipText("the string"); err != nil {
				return v, fmt.Errorf("element %d of %d: %w", i, n, err)
			}
		}
	} else {
		if err := c.skip(bytes, "the array"); err != nil {
			return v, err
		}
	}
	v.end = c.pos
	return v, nil
}

// TypeError is returned for a key whose value has another type than requested.
type TypeError struct {
	Key    string
	Found  string // the type in the file
	Wanted string
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("key %.80q is of type %s, want %s", e.Key, e.Found, e.Wanted)
}

// Optional returns the value of a key, or def if the key is missing. It returns other errors
// of get.
//
//	n, err := gguf.Optional(f.Uint, "llama.rope.dimension_count", headDim)
func Optional[T any](get func(key string) (T, error), key string, def T) (T, error) {
	v, err := get(key)
	if errors.Is(err, ErrMissing) {
		return def, nil
	}
	return v, err
}

// scalar returns the value of a key that is not an array.
func (f *File) scalar(key, wanted string, ok func(kind) bool) (value, error) {
	return f.find(key, wanted, func(v value) bool { return !v.array && ok(v.kind) })
}

// list returns the value of a key that is an array.
func (f *File) list(key, wanted string, ok func(kind) bool) (value, error) {
	return f.find(key, "array of "+wanted, func(v value) bool { return v.array && ok(v.kind) })
}

func (f *File) find(key, wanted string, ok func(value) bool) (value, error) {
	v, found := f.values[key]
	switch {
	case f.head == nil:
		return value{}, fmt.Errorf("key %.80q: %w", key, os.ErrClosed)
	case !found:
		return value{}, fmt.Errorf("key %.80q: %w", key, ErrMissing)
	case !ok(v):
		return value{}, &TypeError{Key: key, Found: v.String(), Wanted: wanted}
	}
	return v, nil
}

func is(want kind) func(kind) bool { return func(k kind) bool { return k == want } }

// Has reports whether the file has a key of any type.
func (f *File) Has(key string) bool {
	_, ok := f.values[key]
	return ok
}

// Str returns a string, which may be invalid UTF-8.
func (f *File) Str(key string) (string, error) {
	v, err := f.scalar(key, "string", is(kindString))
	if err != nil {
		return "", err
	}
	return string(f.head[v.start:v.end]), nil
}

// Bool returns a boolean.
func (f *File) Bool(key string) (bool, error) {
	v, err := f.scalar(key, "bool", is(kindBool))
	if err != nil {
		return false, err
	}
	return f.head[v.start] == 1, nil
}

// Float returns a number of type float32 or float64.
func (f *File) Float(key string) (float64, error) {
	v, err := f.scalar(key, "float", kind.float)
	if err != nil {
		return 0, err
	}
	return f.floatAt(v.kind, v.start), nil
}

// Int returns an integer of any type, or an error if it does not fit in 64 signed bits.
func (f *File) Int(key string) (int64, error) {
	v, err := f.scalar(key, "integer", kind.integer)
	if err != nil {
		return 0, err
	}
	n, ok := signed(f.integerAt(v.kind, v.start))
	if !ok {
		return 0, fmt.Errorf("key %.80q: %d is too large for a signed 64-bit integer", key, uint64(n))
	}
	return n, nil
}

// Uint returns an integer of any type, or an error if it is negative.
func (f *File) Uint(key string) (uint64, error) {
	v, err := f.scalar(key, "integer", kind.integer)
	if err != nil {
		return 0, err
	}
	n, negative := f.integerAt(v.kind, v.start)
	if negative {
		return 0, fmt.Errorf("key %.80q: %d is negative", key, int64(n))
	}
	return n, nil
}

// Strs returns an array of strings, which may be invalid UTF-8.
func (f *File) Strs(key string) ([]string, error) {
	v, err := f.list(key, "string", is(kindString))
	if err != nil {
		return nil, err
	}
	// One allocation for all strings: a vocabulary has hundreds of thousands.
	text := string(f.head[v.start:v.end])
	list := make([]string, v.count)
	at := 0
	for i := range list {
		n := int(binary.LittleEndian.Uint64(f.head[v.start+at:]))
		at += 8
		list[i] = text[at : at+n]
		at += n
	}
	return list, nil
}

// Uints returns an array of any integer type, or an error if a number is negative.
func (f *File) Uints(key string) ([]uint64, error) {
	v, err := f.list(key, "integer", kind.integer)
	if err != nil {
		return nil, err
	}
	list := make([]uint64, v.count)
	for i := range list {
		n, negative := f.integerAt(v.kind, v.start+i*int(v.kind.bytes()))
		if negative {
			return nil, fmt.Errorf("key %.80q: element %d: %d is negative", key, i, int64(n))
		}
		list[i] = n
	}
	return list, nil
}

// Ints returns an array of any integer type, or an error if a number does not fit in 32 signed
// bits.
func (f *File) Ints(key string) ([]int32, error) {
	v, err := f.list(key, "integer", kind.integer)
	if err != nil {
		return nil, err
	}
	list := make([]int32, v.count)
	for i := range list {
		n, ok := signed(f.integerAt(v.kind, v.start+i*int(v.kind.bytes())))
		if !ok || n < math.MinInt32 || n > math.MaxInt32 {
			return nil, fmt.Errorf("key %.80q: element %d does not fit in a signed 32-bit integer", key, i)
		}
		list[i] = int32(n)
	}
	return list, nil
}

// Floats returns an array of float32, or of float64 rounded to float32.
func (f *File) Floats(key string) ([]float32, error) {
	v, err := f.list(key, "float", kind.float)
	if err != nil {
		return nil, err
	}
	list := make([]float32, v.count)
	for i := range list {
		list[i] = float32(f.floatAt(v.kind, v.start+i*int(v.kind.bytes())))
	}
	return list, nil
}

// First returns the first values of a key, at most most of them, and their total number,
// which is 1 for a scalar. A value is a string, bool, int64 (if negative), uint64, float32 or
// float64. Time and memory do not depend on the length of the array.
func (f *File) First(key string, most int) (values []any, count int, array bool, err error) {
	v, err := f.find(key, "", func(value) bool { return true })
	if err != nil {
		return nil, 0, false, err
	}
	if !v.array {
		return []any{f.at(v.kind, v.start, v.end)}, 1, false, nil
	}
	at := v.start
	for range min(most, v.count) {
		end := at + int(v.kind.bytes())
		if v.kind == kindString {
			at += 8
			end = at + int(binary.LittleEndian.Uint64(f.head[at-8:]))
		}
		values = append(values, f.at(v.kind, at, end))
		at = end
	}
	return values, v.count, true, nil
}

// at decodes the value at start; end is used for strings only.
func (f *File) at(k kind, start, end int) any {
	switch k {
	case kindString:
		return string(f.head[start:end])
	case kindBool:
		return f.head[start] == 1
	case kindFloat32:
		return float32(f.floatAt(k, start))
	case kindFloat64:
		return f.floatAt(k, start)
	}
	n, negative := f.integerAt(k, start)
	if negative {
		return int64(n)
	}
	return n
}

func (f *File) floatAt(k kind, at int) float64 {
	if k == kindFloat32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(f.head[at:])))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(f.head[at:]))
}

// integerAt returns an integer as 64 bits of two's complement, and whether it is negative.
func (f *File) integerAt(k kind, at int) (n uint64, negative bool) {
	b := f.head[at:]
	switch k {
	case kindUint8:
		return uint64(b[0]), false
	case kindUint16:
		return uint64(binary.LittleEndian.Uint16(b)), false
	case kindUint32:
		return uint64(binary.LittleEndian.Uint32(b)), false
	case kindUint64:
		return binary.LittleEndian.Uint64(b), false
	}
	var i int64
	switch k {
	case kindInt8:
		i = int64(int8(b[0]))
	case kindInt16:
		i = int64(int16(binary.LittleEndian.Uint16(b)))
	case kindInt32:
		i = int64(int32(binary.LittleEndian.Uint32(b)))
	case kindInt64:
		i = int64(binary.LittleEndian.Uint64(b))
	}
	return uint64(i), i < 0
}

// signed converts a result of integerAt. It returns false for numbers above the largest int64.
func signed(n uint64, negative bool) (int64, bool) {
	return int64(n), negative || n <= math.MaxInt64
}
