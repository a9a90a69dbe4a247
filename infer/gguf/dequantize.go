package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"m40-llm/infer/units"
)

// Dequantize writes the values of the elements in src, whole blocks of type t, to dst. It
// fails if t has no decoder.
func Dequantize(t Type, src []byte, dst []float32) error {
	f := t.format()
	if f.decode == nil {
		return fmt.Errorf("cannot compute with weights of type %s, only with %s", t, namesOf(func(f format) bool { return f.decode != nil }))
	}
	if len(dst)%int(f.elements) != 0 || len(src) != t.RowBytes(len(dst)) {
		return fmt.Errorf("%d bytes are not %d elements of type %s, which has %d bytes for every %d elements", len(src), len(dst), t, f.bytes, f.elements)
	}
	f.decode(src, dst)
	return nil
}

// namesOf returns the names of the formats for which is returns true, as a list for a sentence.
func namesOf(is func(format) bool) string {
	var names []string
	for _, f := range formats {
		if is(f) {
			names = append(names, f.name)
		}
	}
	return units.List(names)
}

func decodeF32(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func decodeF16(src []byte, dst []float32) {
	for i := range dst {
		dst[i] = half(src[2*i:])
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
		d := half(src)
		for i, q := range src[2:34] {
			dst[i] = float32(int8(q)) * d
		}
	}
}

// decodeQ4_0: a block is a half-precision scale d and 32 four-bit q; the values are
// (q-8)·d. The low halves of the 16 bytes come first, then the high ones.
func decodeQ4_0(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[18:], dst[32:] {
		d := half(src)
		for i, q := range src[2:18] {
			dst[i] = float32(int(q&0xf)-8) * d
			dst[i+16] = float32(int(q>>4)-8) * d
		}
	}
}

// decodeQ4_1: a block is a half-precision scale d, a half-precision m and 32 four-bit q in the
// order of Q4_0; the values are q·d + m.
func decodeQ4_1(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[20:], dst[32:] {
		d, m := half(src), half(src[2:])
		for i, q := range src[4:20] {
			dst[i] = float32(float32(q&0xf)*d) + m
			dst[i+16] = float32(float32(q>>4)*d) + m
		}
	}
}

// decodeQ5_0: a block is a half-precision scale d, 32 bits and 32 four-bit q in the order of
// Q4_0. Bit i is the fifth of value i; the values are (q-16)·d.
func decodeQ5_0(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[22:], dst[32:] {
		d, fifths := half(src), binary.LittleEndian.Uint32(src[2:])
		for i, q := range src[6:22] {
			dst[i] = float32(int(q&0xf|fifth(fifths, i))-16) * d
			dst[i+16] = float32(int(q>>4|fifth(fifths, i+16))-16) * d
		}
	}
}

// decodeQ5_1: like Q5_0, with a half-precision m after d; the values are q·d + m.
func decodeQ5_1(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[24:], dst[32:] {
		d, m, fifths := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
		for i, q := range src[8:24] {
			dst[i] = float32(float32(q&0xf|fifth(fifths, i))*d) + m
			dst[i+16] = float32(float32(q>>4|fifth(fifths, i+16))*d) + m
		}
	}
}

// half returns the half-precision number that src begins with.
func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }

// fifth returns bit i of bits as the fifth bit of a value.
func fifth(bits uint32, i int) byte { return byte(bits>>i&1) << 4 }

// decodeQ2_K: a block is 16 bytes, each with a four-bit scale in its low half and a four-bit
// offset in its high one, 64 bytes with 256 two-bit q, a half-precision scale d and a
// half-precision scale m of the offsets: the values of part i, which are 16, are
// q·(d·scale) - m·offset. Each half of a block is four runs of 32 values, which share 32 bytes.
func decodeQ2_K(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[84:], dst[256:] {
		d, m := half(src[80:]), half(src[82:])
		for i := range 256 {
			q := src[16+i/128*32+i%32] >> (i / 32 % 4 * 2) & 3
			part := src[i/16]
			dst[i] = float32(float32(q)*(d*float32(part&0xf))) - m*float32(part>>4)
		}
	}
}

// decodeQ3_K: a block is 32 bytes with the third bits of 256 q, bit i of byte k for value k
// of run i, 64 bytes with their lower two bits in the order of Q2_K, 12 bytes with 16 six-bit
// scales and a half-precision scale d; the values are (q-4)·(d·(scale-32)), with a scale for
// every 16. The low four bits of scales 0-7 and 8-15 are the halves of the first eight bytes;
// the upper two bits of scale i lie in byte 8 + i%4, at bit i/4·2.
func decodeQ3_K(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[110:], dst[256:] {
		d, packed := half(src[108:]), src[96:108]
		var scale [16]float32
		for i := range scale {
			six := packed[i%8]>>(i/8*4)&0xf | packed[8+i%4]>>(i/4*2)&3<<4
			scale[i] = d * float32(int(six)-32)
		}
		for i := range 256 {
			q := src[32+i/128*32+i%32]>>(i/32%4*2)&3 | src[i%32]>>(i/32)&1<<2
			dst[i] = scale[i/16] * float32(int(q)-4)
		}
	}
}

// decodeQ4_K: a block is a half-precision scale d, a half-precision scale m of the
// offsets, eight pairs of six bits (see kScales) and 256 four-bit q: the values of
// part i are q·(d·scale) - m·offset. Each 32 bytes of q hold two parts, the first in
// their low halves.
func decodeQ4_K(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[144:], dst[256:] {
		scale, offset := kScales(src)
		for i, q := range src[16:144] {
			part, at := i/32*2, i/32*64+i%32
			dst[at] = float32(float32(q&0xf)*scale[part]) - offset[part]
			dst[at+32] = float32(float32(q>>4)*scale[part+1]) - offset[part+1]
		}
	}
}

// decodeQ5_K: like Q4_K, with 32 bytes before the four-bit q that hold the fifth bits:
// bit i of byte k belongs to value k of part i.
func decodeQ5_K(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[176:], dst[256:] {
		scale, offset := kScales(src)
		high := src[16:48]
		for i, q := range src[48:176] {
			part, at := i/32*2, i/32*64+i%32
			fifth := high[i%32] >> part
			dst[at] = float32(float32(q&0xf|fifth&1<<4)*scale[part]) - offset[part]
			dst[at+32] = float32(float32(q>>4|fifth>>1&1<<4)*scale[part+1]) - offset[part+1]
		}
	}
}

// kScales returns the scales and offsets of the eight parts of a Q4_K or Q5_K block.
// Of 12 bytes the first four hold in their low six bits the scales of parts 0-3, the next
// four their offsets; the last four the low four bits of scale and offset of parts
// 4-7, whose upper two bits are the top bits of the first eight bytes.
func kScales(block []byte) (scale, offset [8]float32) {
	d, m := half(block), half(block[2:])
	packed := block[4:16]
	for i := range 4 {
		scale[i] = d * float32(packed[i]&63)
		offset[i] = m * float32(packed[i+4]&63)
		scale[i+4] = d * float32(packed[i+8]&0xf|packed[i]>>6<<4)
		offset[i+4] = m * float32(packed[i+8]>>4|packed[i+4]>>6<<4)
	}
	return scale, offset
}

// decodeQ6_K: a block is 128 bytes with the low four bits of 256 q, 64 bytes with
// their upper two, 16 int8 scales and a half-precision scale d; the values are
// (q-32)·(d·scale), with a scale for every 16. Each half of a block is four runs of 32
// values: the low bits of runs 0 and 2 share 32 bytes, as do those of 1 and 3, and the
// upper bits of all four share 32 bytes.
func decodeQ6_K(src []byte, dst []float32) {
	for ; len(dst) > 0; src, dst = src[210:], dst[256:] {
		d := half(src[208:])
		for half := range 2 {
			low, high, scales := src[64*half:], src[128+32*half:], src[192+8*half:]
			for i := range 128 {
				run, k := i/32, i%32
				q := low[run%2*32+k]>>(run/2*4)&0xf | high[k]>>(2*run)&3<<4
				dst[128*half+i] = d * float32(int8(scales[i/16])) * float32(int(q)-32)
			}
		}
	}
}
