package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

// IsRandomizable reports whether SetRandomScale supports t.
func (t Type) IsRandomizable() bool { return t.format().unit != nil }

// SetRandomScale turns random bits into weights: it sets the scales of blocks, which must be
// whole blocks of type t, so that the magnitude of their values is about size. A negative size
// makes all scales negative, where the type's scales have a sign.
func SetRandomScale(t Type, blocks []byte, size float64) error {
	f := t.format()
	if f.unit == nil {
		return fmt.Errorf("cannot make random weights of type %s, only of %s", t, namesOf(func(f format) bool { return f.unit != nil }))
	}
	for ; len(blocks) > 0; blocks = blocks[f.bytes:] {
		f.unit(blocks[:f.bytes], size)
	}
	return nil
}

// scale is the offset of a half-precision scale in a block, and the scale at which the
// magnitude of values is about 1.
type scale struct {
	at   int
	unit float64
}

// halves returns a function that sets scales of half precision to 0.5 … 1.5 times the wanted
// one, depending on their previous bits.
func halves(scales ...scale) func(block []byte, size float64) {
	return func(block []byte, size float64) {
		for _, s := range scales {
			at := block[s.at:]
			value := size * s.unit * (0.5 + float64(binary.LittleEndian.Uint16(at))/(1<<16))
			binary.LittleEndian.PutUint16(at, F32ToF16(float32(value)))
		}
	}
}

// unitF32 sets the exponent of a value to that of size and keeps its sign and fraction.
func unitF32(value []byte, size float64) {
	exponent := math.Float32bits(float32(size)) & 0x7f800000
	binary.LittleEndian.PutUint32(value, binary.LittleEndian.Uint32(value)&0x807fffff|exponent)
}

// unitF16 is like unitF32 for half precision.
func unitF16(value []byte, size float64) {
	exponent := F32ToF16(float32(size)) & 0x7c00
	binary.LittleEndian.PutUint16(value, binary.LittleEndian.Uint16(value)&0x83ff|exponent)
}

// unitBF16 is like unitF32 for the upper half of a float32.
func unitBF16(value []byte, size float64) {
	exponent := uint16(math.Float32bits(float32(size))>>16) & 0x7f80
	binary.LittleEndian.PutUint16(value, binary.LittleEndian.Uint16(value)&0x807f|exponent)
}

// unitMXFP4 sets the exponent of a block to that of a scale of size/4 or size/2. A block has
// no other scale.
func unitMXFP4(block []byte, size float64) {
	block[0] = byte(math.Float32bits(float32(math.Abs(size)))>>23) - 1 - block[0]&1
}

// unitNVFP4 sets the four scales of a block, which have no sign, to 0.5 … 1.5 times the wanted one,
// depending on their previous bits. The smallest scale is 1/512.
func unitNVFP4(block []byte, size float64) {
	for i, bits := range block[:4] {
		wanted := math.Abs(size) / 3 * (0.5 + float64(bits)/256)
		// Scales grow with their bits; 127 is not one.
		block[i] = byte(1 + sort.Search(125, func(n int) bool { return float64(nvfp4Scale(byte(n+2))) > wanted }))
	}
}

// unitIQ1_M is like halves for a scale whose four parts lie in as many words.
func unitIQ1_M(block []byte, size float64) {
	d := make([]byte, 2)
	binary.LittleEndian.PutUint16(d, iq1mScale(block))
	halves(scale{0, 1. / 8})(d, size)
	bits := binary.LittleEndian.Uint16(d)
	for i := range 4 {
		block[49+2*i] = block[49+2*i]&0xf | byte(bits>>(4*i)&0xf<<4)
	}
}
