package gguf

import (
	"fmt"
	"strings"
)

// Type is a tensor's element format, numbered as in the GGUF specification.
type Type uint32

const (
	F32     Type = 0
	F16     Type = 1
	Q4_0    Type = 2
	Q4_1    Type = 3
	Q5_0    Type = 6
	Q5_1    Type = 7
	Q8_0    Type = 8
	Q8_1    Type = 9
	Q2_K    Type = 10
	Q3_K    Type = 11
	Q4_K    Type = 12
	Q5_K    Type = 13
	Q6_K    Type = 14
	Q8_K    Type = 15
	IQ2_XXS Type = 16
	IQ2_XS  Type = 17
	IQ3_XXS Type = 18
	IQ1_S   Type = 19
	IQ4_NL  Type = 20
	IQ3_S   Type = 21
	IQ2_S   Type = 22
	IQ4_XS  Type = 23
	I8      Type = 24
	I16     Type = 25
	I32     Type = 26
	I64     Type = 27
	F64     Type = 28
	IQ1_M   Type = 29
	BF16    Type = 30
	TQ1_0   Type = 34
	TQ2_0   Type = 35
	MXFP4   Type = 39
	NVFP4   Type = 40
	Q1_0    Type = 41
	Q2_0    Type = 42
)

// maxType is the largest number that a type may have in a file. The specification has counted to a sixth
// of it in three years; a larger one is a sign of damage.
const maxType = 255

// removed are the names of types that were taken out of the specification. Their block layouts are unknown here.
var removed = map[Type]string{
	4: "Q4_2", 5: "Q4_3",
	31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}

// A row of a quantised tensor is a whole number of blocks; each block holds elements
// values in bytes bytes.
type format struct {
	name     string
	elements uint64
	bytes    uint64
	decode   func(src []byte, dst []float32) // whole blocks; nil: the values are unknown here

	// unit sets the scales of a block of random bits so that its values are about size
	// large. nil: random weights cannot be made.
	unit func(block []byte, size float64)
}

// formats is the one table of element formats, by type. What a format means is in
// dequantize.go and codebooks.go. Devices add rows of their own: infer/cpu/formats.h and
// cudakern/modules.txt.
var formats = [...]format{
	F32:  {"F32", 1, 4, decodeF32, unitF32},
	F16:  {"F16", 1, 2, decodeF16, unitF16},
	BF16: {"BF16", 1, 2, decodeBF16, unitBF16},
	F64:  {"F64", 1, 8, nil, nil},
	I8:   {"I8", 1, 1, nil, nil},
	I16:  {"I16", 1, 2, nil, nil},
	I32:  {"I32", 1, 4, nil, nil},
	I64:  {"I64", 1, 8, nil, nil},

	Q4_0:    {"Q4_0", 32, 18, decodeQ4_0, halves(scale{0, 1. / 4})},
	Q4_1:    {"Q4_1", 32, 20, decodeQ4_1, halves(scale{0, 1. / 8}, scale{2, -1})},
	Q5_0:    {"Q5_0", 32, 22, decodeQ5_0, halves(scale{0, 1. / 8})},
	Q5_1:    {"Q5_1", 32, 24, decodeQ5_1, halves(scale{0, 1. / 16}, scale{2, -1})},
	Q8_0:    {"Q8_0", 32, 34, decodeQ8_0, halves(scale{0, 1. / 64})},
	Q8_1:    {"Q8_1", 32, 36, nil, nil},
	Q2_K:    {"Q2_K", 256, 84, decodeQ2_K, halves(scale{80, 1. / 12}, scale{82, 1. / 8})},
	Q3_K:    {"Q3_K", 256, 110, decodeQ3_K, halves(scale{108, 1. / 32})},
	Q4_K:    {"Q4_K", 256, 144, decodeQ4_K, halves(scale{0, 1. / (8 * 32)}, scale{2, 1. / 32})},
	Q5_K:    {"Q5_K", 256, 176, decodeQ5_K, halves(scale{0, 1. / (16 * 32)}, scale{2, 1. / 32})},
	Q6_K:    {"Q6_K", 256, 210, decodeQ6_K, halves(scale{208, 1. / (16 * 64)})},
	Q8_K:    {"Q8_K", 256, 292, nil, nil},
	IQ2_XXS: {"IQ2_XXS", 256, 66, decodeIQ2_XXS, halves(scale{0, 1. / 50})},
	IQ2_XS:  {"IQ2_XS", 256, 74, decodeIQ2_XS, halves(scale{0, 1. / 50})},
	IQ2_S:   {"IQ2_S", 256, 82, decodeIQ2_S, halves(scale{0, 1. / 50})},
	IQ3_XXS: {"IQ3_XXS", 256, 98, decodeIQ3_XXS, halves(scale{0, 1. / 120})},
	IQ3_S:   {"IQ3_S", 256, 110, decodeIQ3_S, halves(scale{0, 1. / 128})},
	IQ1_S:   {"IQ1_S", 256, 50, decodeIQ1_S, halves(scale{0, 1. / 8})},
	IQ1_M:   {"IQ1_M", 256, 56, decodeIQ1_M, unitIQ1_M},
	IQ4_NL:  {"IQ4_NL", 32, 18, decodeIQ4_NL, halves(scale{0, 1. / 64})},
	IQ4_XS:  {"IQ4_XS", 256, 136, decodeIQ4_XS, halves(scale{0, 1. / (16 * 64)})},
	TQ1_0:   {"TQ1_0", 256, 54, decodeTQ1_0, halves(scale{52, 1})},
	TQ2_0:   {"TQ2_0", 256, 66, decodeTQ2_0, halves(scale{64, 1})},
	MXFP4:   {"MXFP4", 32, 17, decodeMXFP4, unitMXFP4},
	NVFP4:   {"NVFP4", 64, 36, decodeNVFP4, unitNVFP4},
	Q1_0:    {"Q1_0", 128, 18, nil, nil},
	Q2_0:    {"Q2_0", 64, 18, nil, nil},
}

// format returns what t is, without elements if t is unknown.
func (t Type) format() format {
	if int64(t) >= int64(len(formats)) {
		return format{}
	}
	return formats[t]
}

// Types returns all types that this package knows, in the order of their numbers.
func Types() (types []Type) {
	for t := range Type(len(formats)) {
		if t.Known() {
			types = append(types, t)
		}
	}
	return types
}

// Known reports whether t is a type whose block layout this package knows.
func (t Type) Known() bool { return t.format().elements > 0 }

// Block returns how many elements one block of t holds and how many bytes it
// takes. Both are 0 for an unknown type.
func (t Type) Block() (elements, bytes uint64) {
	f := t.format()
	return f.elements, f.bytes
}

// IsNewer reports whether t is a type that was added to the specification after those of this package.
func (t Type) IsNewer() bool { return int64(t) >= int64(len(formats)) && t <= maxType }

// IsRemoved reports whether t is a type that was taken out of the specification.
func (t Type) IsRemoved() bool { return removed[t] != "" }

// RowBytes returns the size in bytes of a row of n elements, 0 for an unknown type. n must be a
// multiple of the block's elements.
func (t Type) RowBytes(n int) int {
	f := t.format()
	if f.elements == 0 {
		return 0
	}
	return n / int(f.elements) * int(f.bytes)
}

func (t Type) String() string {
	if f := t.format(); f.elements > 0 {
		return f.name
	}
	if name := removed[t]; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Names lists types for a message: F32, F16.
func Names(types []Type) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}
