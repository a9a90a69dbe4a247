package gguf

import (
	_ "embed" // for the codebooks
	"encoding/binary"
	"math"
	"math/bits"
)

// Codebooks holds the points of the codebooks of types IQ1, IQ2 and IQ3, which the format
// defines as lists of numbers (ggml, src/ggml-common.h). A point is 16 bits, little-endian: the
// codes of 8 values, two bits each, or for IQ3 of 4 values, three bits each. The codebooks of
// IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S and IQ1 follow each other, with 256, 512, 1024, 256, 512
// and 2048 points.
//
//go:embed codebooks.bin
var Codebooks []byte

// A codebook gives a group of 8 values: one point, or for IQ3 two.
type codebook struct {
	points []byte
	width  int        // bits of a code
	values [8]float32 // by code
}

var (
	iq2xxs = codebook{Codebooks, 2, iq2Values}
	iq2xs  = codebook{Codebooks[2*256:], 2, iq2Values}
	iq2s   = codebook{Codebooks[2*768:], 2, iq2Values}
	iq3xxs = codebook{Codebooks[2*1792:], 3, [8]float32{4, 12, 20, 28, 36, 44, 52, 62}}
	iq3s   = codebook{Codebooks[2*2048:], 3, [8]float32{1, 3, 5, 7, 9, 11, 13, 15}}
	iq1    = codebook{Codebooks[2*2560:], 2, [8]float32{-1, 0, 1}}

	iq2Values = [8]float32{8, 25, 43}

	// The values of four-bit codes.
	iq4Values   = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	mxfp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, float32(math.Copysign(0, -1)), -1, -2, -3, -4, -6, -8, -12}
	nvfp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// point returns the codes of point i.
func (c *codebook) point(i int) uint32 { return uint32(binary.LittleEndian.Uint16(c.points[2*i:])) }

// put writes a group to dst: scale times the value of each code, negative where signs has a bit.
func (c *codebook) put(dst []float32, scale float32, codes uint32, signs byte) {
	for i := range dst[:8] {
		v := scale * c.values[codes>>(c.width*i)&(1<<c.width-1)]
		if signs>>i&1 != 0 {
			v = -v
		}
		dst[i] = v
	}
}

// signsOf returns the signs of a group from seven bits: there is an even number of negative ones.
func signsOf(seven uint32) byte {
	low := byte(seven & 0x7f)
	return low | byte(bits.OnesCount8(low)&1)<<7
}

// iq2Scale returns the scale of a part of an IQ2 block from its four bits.
func iq2Scale(d float32, four byte) float32 { return d * (0.5 + float32(four)) * 0.25 }

// decodeIQ2_XXS: a block is a half-precision scale d and eight parts of 32 values, 8 bytes each:
// four points of the codebook, then 32 bits with seven bits for the signs of each group and four
// bits for the part's scale.
func decodeIQ2_XXS(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[66:], dst[256:] {
		d := half(src)
		for group := range 32 {
			part := src[2+group/4*8:]
			rest := binary.LittleEndian.Uint32(part[4:])
			iq2xxs.put(dst[8*group:], iq2Scale(d, byte(rest>>28)), iq2xxs.point(int(part[group%4])), signsOf(rest>>(group%4*7)))
		}
	}
}

// decodeIQ2_XS: a block is a half-precision scale d, 32 words of 16 bits with a point in their low
// nine bits and seven bits for the group's signs, and 8 bytes with four bits for the scale of every
// 16 values.
func decodeIQ2_XS(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[74:], dst[256:] {
		d := half(src)
		for group := range 32 {
			word := binary.LittleEndian.Uint16(src[2+2*group:])
			four := src[66+group/4] >> (group / 2 % 2 * 4) & 0xf
			iq2xs.put(dst[8*group:], iq2Scale(d, four), iq2xs.point(int(word&511)), signsOf(uint32(word>>9)))
		}
	}
}

// decodeIQ2_S: a block is a half-precision scale d, the low 8 bits of 32 points, 32 bytes of signs,
// 8 bytes with the upper two bits of four points each, and the scales of IQ2_XS.
func decodeIQ2_S(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[82:], dst[256:] {
		d := half(src)
		for group := range 32 {
			point := int(src[2+group]) | int(src[66+group/4])>>(group%4*2)&3<<8
			four := src[74+group/4] >> (group / 2 % 2 * 4) & 0xf
			iq2s.put(dst[8*group:], iq2Scale(d, four), iq2s.point(point), src[34+group])
		}
	}
}

// decodeIQ3_XXS: a block is a half-precision scale d, 64 points and eight times 32 bits with signs
// and scale as in IQ2_XXS.
func decodeIQ3_XXS(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[98:], dst[256:] {
		d := half(src)
		for group := range 32 {
			rest := binary.LittleEndian.Uint32(src[66+group/4*4:])
			points := src[2+2*group:]
			codes := iq3xxs.point(int(points[0])) | iq3xxs.point(int(points[1]))<<12
			iq3xxs.put(dst[8*group:], d*(0.5+float32(rest>>28))*0.5, codes, signsOf(rest>>(group%4*7)))
		}
	}
}

// decodeIQ3_S: a block is a half-precision scale d, the low 8 bits of 64 points, 8 bytes with their
// ninth bits, 32 bytes of signs and 4 bytes with four bits for the scale of every 32 values.
func decodeIQ3_S(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[110:], dst[256:] {
		d := half(src)
		point := func(i int) uint32 { return iq3s.point(int(src[2+i]) | int(src[66+i/8])>>(i%8)&1<<8) }
		for group := range 32 {
			four := src[106+group/8] >> (group / 4 % 2 * 4) & 0xf
			iq3s.put(dst[8*group:], d*float32(1+2*int(four)), point(2*group)|point(2*group+1)<<12, src[74+group])
		}
	}
}

// putShifted writes a group of an IQ1 block to dst: scale times the value of each code plus 1/8,
// or minus 1/8.
func putShifted(dst []float32, scale float32, codes uint32, down bool) {
	shift := float32(0.125)
	if down {
		shift = -shift
	}
	for i := range dst[:8] {
		dst[i] = scale * (iq1.values[codes>>(2*i)&3] + shift)
	}
}

// decodeIQ1_S: a block is a half-precision scale d, the low 8 bits of 32 points, and eight words of
// 16 bits, one for every 32 values: the upper three bits of four points, three bits for the
// scale and a bit that turns the shift down.
func decodeIQ1_S(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[50:], dst[256:] {
		d := half(src)
		for group := range 32 {
			word := int(binary.LittleEndian.Uint16(src[34+group/4*2:]))
			point := int(src[2+group]) | word>>(group%4*3)&7<<8
			putShifted(dst[8*group:], d*float32(2*(word>>12&7)+1), iq1.point(point), word>>15 != 0)
		}
	}
}

// decodeIQ1_M: a block is the low 8 bits of 32 points, 16 bytes with four bits for each group, the
// upper three bits of its point and one that turns its shift down, and four words of 16 bits,
// each with three bits for the scale of every 16 values and four of the half-precision scale d.
func decodeIQ1_M(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[56:], dst[256:] {
		d := F16ToF32(iq1mScale(src))
		for group := range 32 {
			upper := int(src[32+group/2]) >> (group % 2 * 4)
			three := binary.LittleEndian.Uint16(src[48+group/8*2:]) >> (group / 2 % 4 * 3) & 7
			putShifted(dst[8*group:], d*float32(2*three+1), iq1.point(int(src[group])|upper&7<<8), upper&8 != 0)
		}
	}
}

// iq1mScale returns the bits of a block's scale: the top four of each word, lowest first.
func iq1mScale(block []byte) (d uint16) {
	for i := range 4 {
		d |= uint16(block[49+2*i]>>4) << (4 * i)
	}
	return d
}

// decodeIQ4_NL: a block is a half-precision scale d and 32 four-bit codes in the order of Q4_0.
func decodeIQ4_NL(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[18:], dst[32:] {
		putCodes(dst, half(src), src[2:18], &iq4Values)
	}
}

// decodeIQ4_XS: a block is a half-precision scale d, 16 bits with the upper two of eight six-bit
// scales, 4 bytes with their low four bits and eight parts of 32 codes in the order of Q4_0; the
// values are (d·(scale-32)) times that of the code.
func decodeIQ4_XS(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[136:], dst[256:] {
		d, upper := half(src), binary.LittleEndian.Uint16(src[2:])
		for i := range 8 {
			six := int(src[4+i/2]>>(i%2*4)&0xf) | int(upper>>(2*i)&3)<<4
			putCodes(dst[32*i:], d*float32(six-32), src[8+16*i:][:16], &iq4Values)
		}
	}
}

// decodeMXFP4: a block is an exponent e and 32 four-bit codes in the order of Q4_0, small floats of
// two bits of exponent and one of fraction, whose values are doubled here; the scale is
// 2^(e-128).
func decodeMXFP4(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[17:], dst[32:] {
		putCodes(dst, float32(math.Ldexp(1, int(src[0])-128)), src[1:17], &mxfp4Values)
	}
}

// decodeNVFP4: a block is four scales and 64 codes like those of MXFP4. A scale, of 16 values, is a small float
// without a sign, of four bits of exponent and three of fraction, which is halved here because the values
// are doubled. The first 8 of a part's values lie in the low halves of its 8 bytes.
func decodeNVFP4(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[36:], dst[64:] {
		for i, code := range src[4:36] {
			at, scale := i/8*16+i%8, nvfp4Scale(src[i/8])/2
			dst[at] = scale * nvfp4Values[code&0xf]
			dst[at+8] = scale * nvfp4Values[code>>4]
		}
	}
}

// nvfp4Scale returns the value of a scale; 127 is not a number and counts as 0. Bit 7 is ignored.
func nvfp4Scale(bits byte) float32 {
	exponent, fraction := int(bits>>3&15), float64(bits&7)/8
	switch {
	case bits == 127:
		return 0
	case exponent == 0:
		return float32(math.Ldexp(fraction, -6))
	}
	return float32(math.Ldexp(1+fraction, exponent-7))
}

// putCodes writes 32 values: scale times those of the codes in the low halves of 16 bytes, then of
// those in the high halves.
func putCodes(dst []float32, scale float32, codes []byte, values *[16]float32) {
	for i, code := range codes {
		dst[i] = scale * values[code&0xf]
		dst[i+16] = scale * values[code>>4]
	}
}
