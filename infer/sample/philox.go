package sample

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// DrawSeed returns a random seed below 2^32, which JavaScript can represent and users can
// type.
func DrawSeed() int64 {
	var b [4]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the process if there is no entropy
	return int64(binary.LittleEndian.Uint32(b[:]))
}

// uniforms returns the random numbers for a seed and a position, in [0, 1) with 53 random
// bits: draw chooses the token, coin decides whether XTC runs. The generator has no state,
// so a token does not depend on earlier draws.
func uniforms(seed int64, pos int) (draw, coin float64) {
	x := philox4x32(
		[4]uint32{uint32(pos), uint32(uint64(pos) >> 32), 0, 0},
		[2]uint32{uint32(seed), uint32(uint64(seed) >> 32)})
	return fraction(x[0], x[1]), fraction(x[2], x[3])
}

// fraction returns the 53 high bits of two words, divided by 2^53.
func fraction(low, high uint32) float64 {
	return float64((uint64(high)<<32|uint64(low))>>11) * 0x1p-53
}

// philox4x32 implements Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011): ten rounds of a bijection of the counter, selected
// by the key.
func philox4x32(ctr [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, ctr[0])
		hi1, lo1 := bits.Mul32(0xcd9e8d57, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return ctr
}
