package gguf

import (
	"encoding/binary"
	"math"
)

// QuantizeQ8_0 writes values, whole blocks, to dst in format Q8_0. The scale of a block is its
// largest magnitude / 127, so that a value is off by at most 1/254 of that, and by the rounding of
// the scale to half precision. A block with a NaN or an infinity becomes all NaN.
func QuantizeQ8_0(values []float32, dst []byte) {
	for ; len(values) > 0; values, dst = values[32:], dst[34:] {
		largest := float32(0)
		for _, v := range values[:32] {
			largest = max(largest, v, -v) // NaN if any is
		}
		bits := F32ToF16(largest / 127)
		binary.LittleEndian.PutUint16(dst, bits)
		inverse := float32(0)
		if scale := F16ToF32(bits); !(scale <= 65504) {
			binary.LittleEndian.PutUint16(dst, 0x7e00) // a NaN
		} else if scale > 0 {
			inverse = 1 / scale
		}
		for i, v := range values[:32] {
			q := math.RoundToEven(float64(v) * float64(inverse))
			if q != q { // NaN · 0
				q = 0
			}
			dst[2+i] = byte(int8(max(-127, min(127, q))))
		}
	}
}
