package gguf

import "math"

// F16ToF32 returns the value of the IEEE 754 half-precision number with the bits h.
func F16ToF32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exponent := uint32(h>>10) & 0x1f
	fraction := uint32(h) & 0x3ff
	switch exponent {
	case 0: // zero and subnormal: fraction · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// F32ToF16 returns the bits of the half-precision number nearest to x, ties to even, or
// infinity if x is too large.
func F32ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits>>16) & 0x8000
	magnitude := bits &^ (1 << 31)
	switch {
	case magnitude > 0xff<<23: // NaN
		return sign | 0x7e00
	case magnitude >= math.Float32bits(65520): // rounds to 2^16
		return sign | 0x7c00
	case magnitude < math.Float32bits(0x1p-14): // subnormal: the sum's last bit is worth 2^-24
		sum := math.Float32frombits(magnitude) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	half := magnitude - (127-15)<<23
	half += 0xfff + half>>13&1 // ties to even
	return sign | uint16(half>>13)
}
