package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// IsRandomizable reports whether SetRandomScale knows t.
func (t Type) IsRandomizable() bool { return t.format().unit != nil }

// SetRandomScale makes weights of random bits: it changes the scales of blocks, whole ones
// of type t, so that their values are about size large. With a negative size all scales
// are negative.
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

// scale is where a half-precision scale lies in a block, and how large it has to be so
// that values are about as large as 1.
type scale struct {
	at   int
	unit float64
}

// halves sets scales of half precision, each to 0.5 … 1.5 of its size by the bits that it
// had.
func halves(scales ...scale) func(block []byte, size float64) {
	return func(block []byte, size float64) {
		for _, s := range scales {
			at := block[s.at:]
			value := size * s.unit * (0.5 + float64(binary.LittleEndian.Uint16(at))/(1<<16))
			binary.LittleEndian.PutUint16(at, F32ToF16(float32(value)))
		}
	}
}

// unitF32 gives a value of any sign and fraction the exponent of size.
func unitF32(value []byte, size float64) {
	exponent := math.Float32bits(float32(size)) & 0x7f800000
	binary.LittleEndian.PutUint32(value, binary.LittleEndian.Uint32(value)&0x807fffff|exponent)
}

// unitF16 is the same for half precision.
func unitF16(value []byte, size float64) {
	exponent := F32ToF16(float32(size)) & 0x7c00
	binary.LittleEndian.PutUint16(value, binary.LittleEndian.Uint16(value)&0x83ff|exponent)
}
