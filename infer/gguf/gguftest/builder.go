// Package gguftest builds GGUF files for tests: valid files, hostile ones, and small complete
// models with random weights.
package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"m40-llm/infer/gguf"
)

// Builder builds a GGUF v3 file. It validates nothing, so that tests can build invalid files.
// The only key that it interprets is the alignment.
type Builder struct {
	keys      []keyValue
	tensors   []tensor
	alignment int
}

type keyValue struct {
	key   string
	value any
}

type tensor struct {
	name  string
	typ   gguf.Type
	shape []int
	data  []byte
}

// Field is the location of a number in the header, for tests that overwrite it.
type Field struct {
	Name   string
	Offset int
	Size   int // 4 or 8 bytes
}

// New returns a Builder of an empty file.
func New() *Builder { return &Builder{alignment: 32} }

// Set adds a metadata key. value is a Go integer, float, bool, string or a slice of one of
// them, and determines the type in the file; an int becomes a uint32, the type of most keys.
func (b *Builder) Set(key string, value any) *Builder {
	if v, ok := value.(int); ok {
		value = uint32(v)
	}
	if a, ok := value.(uint32); ok && key == "general.alignment" && a > 0 && a <= 1<<16 {
		b.alignment = int(a)
	}
	b.keys = append(b.keys, keyValue{key, value})
	return b
}

// Tensor adds a tensor. The first dimension of shape varies fastest.
func (b *Builder) Tensor(name string, t gguf.Type, shape []int, data []byte) *Builder {
	b.tensors = append(b.tensors, tensor{name, t, shape, data})
	return b
}

// Bytes returns the file.
func (b *Builder) Bytes() []byte {
	file, _ := b.Layout()
	return file
}

// Split returns the files of a split model of n files, with the tensors in order and all keys in
// the first.
func (b *Builder) Split(n int) [][]byte {
	files := make([][]byte, n)
	for i := range files {
		part := &Builder{alignment: b.alignment}
		if i == 0 {
			part.keys = append(part.keys, b.keys...)
		} else if b.alignment != 32 {
			part.Set("general.alignment", b.alignment)
		}
		part.Set("split.no", uint16(i)).Set("split.count", uint16(n)).Set("split.tensors.count", int32(len(b.tensors)))
		part.tensors = b.tensors[i*len(b.tensors)/n : (i+1)*len(b.tensors)/n]
		files[i] = part.Bytes()
	}
	return files
}

// Layout returns the file and the locations of all counts, lengths, offsets and types in its
// header.
func (b *Builder) Layout() ([]byte, []Field) {
	w := &writer{}
	w.bytes = append(w.bytes, "GGUF"...)
	w.u32("version", 3)
	w.u64("tensor count", uint64(len(b.tensors)))
	w.u64("key count", uint64(len(b.keys)))
	for _, kv := range b.keys {
		w.str(kv.key+" key", kv.key)
		w.value(kv.key, kv.value)
	}
	offset := 0
	for _, t := range b.tensors {
		w.str(t.name+" name", t.name)
		w.u32(t.name+" dimension count", uint32(len(t.shape)))
		for i, d := range t.shape {
			w.u64(fmt.Sprintf("%s dimension %d", t.name, i+1), uint64(d))
		}
		w.u32(t.name+" type", uint32(t.typ))
		w.u64(t.name+" offset", uint64(offset))
		offset = b.align(offset + len(t.data))
	}
	for _, t := range b.tensors {
		w.bytes = append(w.bytes, make([]byte, b.align(len(w.bytes))-len(w.bytes))...)
		w.bytes = append(w.bytes, t.data...)
	}
	return w.bytes, w.fields
}

func (b *Builder) align(n int) int { return (n + b.alignment - 1) / b.alignment * b.alignment }

// WriteFile writes the file to a temporary folder of the test and returns its path.
func (b *Builder) WriteFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type writer struct {
	bytes  []byte
	fields []Field
}

func (w *writer) u32(name string, v uint32) {
	w.fields = append(w.fields, Field{name, len(w.bytes), 4})
	w.bytes = binary.LittleEndian.AppendUint32(w.bytes, v)
}

func (w *writer) u64(name string, v uint64) {
	w.fields = append(w.fields, Field{name, len(w.bytes), 8})
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, v)
}

func (w *writer) str(name, s string) {
	w.u64(name+" length", uint64(len(s)))
	w.bytes = append(w.bytes, s...)
}

// value writes the type of a value and the value.
func (w *writer) value(key string, value any) {
	if text, ok := value.(string); ok {
		w.u32(key+" type", typeString)
		w.str(key, text)
		return
	}
	if list, ok := value.([]string); ok {
		w.arrayHead(key, typeString, len(list))
		for i, s := range list {
			if i == 0 {
				w.str(key+" first string", s)
				continue
			}
			w.bytes = binary.LittleEndian.AppendUint64(w.bytes, uint64(len(s)))
			w.bytes = append(w.bytes, s...)
		}
		return
	}
	if t, n, ok := array(value); ok {
		w.arrayHead(key, t, n)
	} else {
		w.u32(key+" type", scalar(value))
	}
	var err error
	if w.bytes, err = binary.Append(w.bytes, binary.LittleEndian, value); err != nil {
		panic(fmt.Sprintf("gguftest: value of key %q: %v", key, err))
	}
}

func (w *writer) arrayHead(key string, element uint32, n int) {
	w.u32(key+" type", typeArray)
	w.u32(key+" element type", element)
	w.u64(key+" element count", uint64(n))
}

// Metadata types as encoded in the file.
const (
	typeString = 8
	typeArray  = 9
)

func scalar(value any) uint32 {
	switch value.(type) {
	case uint8:
		return 0
	case int8:
		return 1
	case uint16:
		return 2
	case int16:
		return 3
	case uint32:
		return 4
	case int32:
		return 5
	case float32:
		return 6
	case bool:
		return 7
	case uint64:
		return 10
	case int64:
		return 11
	case float64:
		return 12
	}
	panic(fmt.Sprintf("gguftest: GGUF has no type for %T", value))
}

// array returns the element type and the length of a slice.
func array(value any) (element uint32, n int, ok bool) {
	switch v := value.(type) {
	case []uint8:
		return 0, len(v), true
	case []int8:
		return 1, len(v), true
	case []uint16:
		return 2, len(v), true
	case []int16:
		return 3, len(v), true
	case []uint32:
		return 4, len(v), true
	case []int32:
		return 5, len(v), true
	case []float32:
		return 6, len(v), true
	case []bool:
		return 7, len(v), true
	case []uint64:
		return 10, len(v), true
	case []int64:
		return 11, len(v), true
	case []float64:
		return 12, len(v), true
	}
	return 0, 0, false
}

// Quantize returns values encoded in format t: F32, F16, BF16, Q8_0 or Q4_0, or as
// zeros in Q1_0, which is refused. Rows must be whole blocks.
func Quantize(t gguf.Type, values []float32) []byte {
	elements, size := t.Block()
	out := make([]byte, 0, len(values)/int(elements)*int(size))
	for ; len(values) > 0; values = values[elements:] {
		out = appendBlock(out, t, values[:elements])
	}
	return out
}

func appendBlock(out []byte, t gguf.Type, values []float32) []byte {
	le := binary.LittleEndian
	switch t {
	case gguf.F32:
		return le.AppendUint32(out, math.Float32bits(values[0]))
	case gguf.F16:
		return le.AppendUint16(out, gguf.F32ToF16(values[0]))
	case gguf.BF16:
		return le.AppendUint16(out, uint16(math.Float32bits(values[0])>>16))
	case gguf.Q8_0:
		d := largest(values) / 127
		out = le.AppendUint16(out, gguf.F32ToF16(d))
		for _, v := range values {
			out = append(out, byte(int8(quant(v, d, 127))))
		}
		return out
	case gguf.Q4_0:
		d := largest(values) / 7
		out = le.AppendUint16(out, gguf.F32ToF16(d))
		for i := range 16 {
			out = append(out, byte(quant(values[i], d, 7)+8)|byte(quant(values[i+16], d, 7)+8)<<4)
		}
		return out
	case gguf.Q1_0: // which is not read: zeros
		_, size := t.Block()
		return append(out, make([]byte, size)...)
	}
	panic(fmt.Sprintf("gguftest: cannot quantize to %s", t))
}

func largest(values []float32) float32 {
	var m float32
	for _, v := range values {
		m = max(m, float32(math.Abs(float64(v))))
	}
	return m
}

func quant(v, d float32, most int) int {
	if d == 0 {
		return 0
	}
	return min(max(int(math.RoundToEven(float64(v/d))), -most), most)
}
