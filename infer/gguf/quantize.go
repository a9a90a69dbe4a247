package gguf

import (
	"encoding/binary"
	"math"
)

// wholeSteps are the steps that QuantizeQ8_0 tries for the largest magnitude of a block. Formats of two
// or three bits have few different values, which are whole multiples of a unit: 1, 3, … 15 of IQ3_S,
// the even ones to 26 and 31 of IQ3_XXS, 8, 25 and 43 of IQ2_XXS, 1, 7, 8 and 9 of IQ1. Whichever of these is the
// largest of a block, one of the steps makes all of them whole numbers.
var wholeSteps = [...]float32{127, 126, 120, 117, 121, 124, 125, 86}

// QuantizeQ8_0 writes values, whole blocks, to dst in format Q8_0. A value is off by at most 1/254 of
// the largest magnitude of its block, and by the rounding of the scale to half precision. Blocks whose
// values are few whole multiples of a unit are off by that rounding alone: see wholeSteps. A block with a
// NaN or an infinity becomes all NaN.
func QuantizeQ8_0(values []float32, dst []byte) {
	for ; len(values) > 0; values, dst = values[32:], dst[34:] {
		block := values[:32]
		largest := float32(0)
		for _, v := range block {
			largest = max(largest, v, -v) // NaN if any is
		}
		bits := F32ToF16(largest / wholeSteps[0])
		inverse := float32(0)
		if scale := F16ToF32(bits); !(scale <= 65504) {
			bits = 0x7e00 // a NaN
		} else if scale > 0 {
			bits, inverse = bestScale(block, largest)
		}
		binary.LittleEndian.PutUint16(dst, bits)
		for i, v := range block {
			q := math.RoundToEven(float64(v) * float64(inverse))
			if q != q { // NaN · 0
				q = 0
			}
			dst[2+i] = byte(int8(max(-127, min(127, q))))
		}
	}
}

// bestScale returns the scale that leaves the smallest largest error, and its inverse.
func bestScale(block []float32, largest float32) (bits uint16, inverse float32) {
	const exact = 0.04 // of a step: what the rounding of the scale leaves at most
	least := float32(math.Inf(1))
	for _, steps := range wholeSteps {
		b := F32ToF16(largest / steps)
		scale := F16ToF32(b)
		if scale == 0 {
			continue
		}
		off := float32(0)
		for _, v := range block {
			x := v * (1 / scale)
			const rounder = 3 << 22 // adding it leaves the nearest integer
			d := x - max(-127, min(127, (x+rounder)-rounder))
			off = max(off, d, -d)
		}
		if e := off * scale; e < least {
			least, bits, inverse = e, b, 1/scale
		}
		if off < exact {
			break
		}
	}
	return bits, inverse
}
