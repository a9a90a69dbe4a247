package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dequantize writes the values of the elements in src, whole blocks of type t, to dst.
// It knows F32, F16, BF16, Q8_0 and Q4_0.
func Dequantize(t Type, src []byte, dst []float32) error {
	decode, ok := decoders[t]
	if !ok {
		return fmt.Errorf("cannot compute with weights of type %s, only with F32, F16, BF16, Q8_0 and Q4_0", t)
	}
	elements, bytes := t.Block()
	if len(dst)%int(elements) != 0 || len(src) != t.RowBytes(len(dst)) {
		return fmt.Errorf("%d bytes are not %d elements of type %s, which has %d bytes for every %d elements", len(src), len(dst), t, bytes, elements)
	}
	decode(src, dst)
	return nil
}

var decoders = map[Type]func(src []byte, dst []float32){
	F32:  decodeF32,
	F16:  decodeF16,
	BF16: decodeBF16,
	Q8_0: decodeQ8_0,
	Q4_0: decodeQ4_0,
}

func decodeF32(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// decodeBF16: the upper half of a float32.
func decodeBF16(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// decodeQ8_0: a block is a half-precision scale d and 32 int8 q; the values are q·d.
func decodeQ8_0(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[34:], dst[32:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:34] {
			dst[i] = float32(int8(q)) * d
		}
	}
}

// decodeQ4_0: a block is a half-precision scale d and 32 four-bit q; the values are
// (q-8)·d. The low halves of the 16 bytes come first, then the high ones.
func decodeQ4_0(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[18:], dst[32:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:18] {
			dst[i] = float32(int(q&0xf)-8) * d
			dst[i+16] = float32(int(q>>4)-8) * d
		}
	}
}
