package gguf

import "encoding/binary"

// Types with three values, -d, 0 and d, which are stored as 0, 1 and 2. TQ2_0 has room for a fourth one.

// ternary is a type with three values: a block is bytes with 256 stored values and a half-precision
// scale d.
type ternary struct {
	bytes  int
	unpack func(block []byte, stored *[256]byte)
}

var ternaries = map[Type]ternary{
	TQ1_0: {52, unpackTQ1_0},
	TQ2_0: {64, unpackTQ2_0},
}

func decodeTQ1_0(src []byte, dst []float32) { ternaries[TQ1_0].decode(src, dst) }
func decodeTQ2_0(src []byte, dst []float32) { ternaries[TQ2_0].decode(src, dst) }

func (t ternary) decode(src []byte, dst []float32) {
	var stored [256]byte
	for ; len(dst) > 0; src, dst = src[t.bytes+2:], dst[256:] {
		t.unpack(src, &stored)
		d := half(src[t.bytes:])
		for i, q := range stored {
			dst[i] = float32(int(q)-1) * d
		}
	}
}

// unpackTQ2_0 reads 64 bytes with values of two bits in the order of Q2_K.
func unpackTQ2_0(block []byte, stored *[256]byte) {
	for i := range stored {
		stored[i] = block[i/128*32+i%32] >> (i / 32 % 4 * 2) & 3
	}
}

// unpackTQ1_0 reads three runs of bytes with the digits of base 3 of fractions: byte b means
// b/256, and a digit is the whole part of three times what those before it leave. The first digits of
// all bytes of a run come first, then the second ones, and so on.
func unpackTQ1_0(block []byte, stored *[256]byte) {
	next := 0
	for _, run := range [...]struct{ first, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		power := byte(1)
		for range run.digits {
			for _, b := range block[run.first:][:run.bytes] {
				stored[next] = byte(uint16(b*power) * 3 >> 8)
				next++
			}
			power *= 3
		}
	}
}

// IsTernary reports whether TernaryToQ2_K supports t.
func (t Type) IsTernary() bool { return ternaries[t].unpack != nil }

// TernaryToQ2_K writes the values in src, whole blocks of the ternary type t, to dst in format Q2_K.
// They stay the same: all scales and offsets are 1, and d is the unit of both.
func TernaryToQ2_K(t Type, src, dst []byte) {
	var stored [256]byte
	for from := ternaries[t]; len(src) > 0; src, dst = src[from.bytes+2:], dst[84:] {
		from.unpack(src, &stored)
		for i := range 16 {
			dst[i] = 1<<4 | 1
		}
		clear(dst[16:80])
		for i, q := range stored {
			dst[16+i/128*32+i%32] |= q << (i / 32 % 4 * 2)
		}
		d := binary.LittleEndian.Uint16(src[from.bytes:])
		binary.LittleEndian.PutUint16(dst[80:], d)
		binary.LittleEndian.PutUint16(dst[82:], d)
	}
}
