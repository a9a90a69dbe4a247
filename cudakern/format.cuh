// How numbers come out of the blocks of a weight, as they lie on the device (weights.cuh),
// for the products of a few rows (matmul.cu) and of many (matmul_tile.cu).
#pragma once

#include "weights.cuh"

// Block<OUTPUTS> is one block of OUTPUTS neighbouring outputs: of a band, or of one.

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)

// Too many registers; the block stays in memory until its numbers are needed.
template <int OUTPUTS> struct Block {
	const uint8_t *tile;
	int blocks, block;
};

DEVICE void load_block(Block<BAND_OUTPUTS> &w, const uint8_t *tile, int blocks, int block) { w = {tile, blocks, block}; }

#else

template <int OUTPUTS> struct Block {
	uint32_t quants[OUTPUTS][4 * CHUNKS];
	uint16_t scales[OUTPUTS];
#if defined(WEIGHT_Q6_K)
	uint32_t high[OUTPUTS][2];
	uint16_t super[OUTPUTS];
#elif defined(WEIGHT_Q4_K)
	uint32_t super[OUTPUTS];
#endif
};

DEVICE void load_block(Block<BAND_OUTPUTS> &w, const uint8_t *tile, int blocks, int block)
{
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			uint4 v = ldg128(tile + quants_at(blocks, output, chunk, block));
			memcpy(&w.quants[output][4 * chunk], &v, sizeof v);
		}
	uint2 scales = ldg64(tile + scales_at(blocks, block));
	memcpy(w.scales, &scales, sizeof scales);
#if defined(WEIGHT_Q6_K)
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++) {
		uint2 high = ldg64(tile + high_at(blocks, output, block));
		memcpy(w.high[output], &high, sizeof high);
	}
	uint2 super = ldg64(tile + super_at(blocks, block));
	memcpy(w.super, &super, sizeof super);
#elif defined(WEIGHT_Q4_K)
	uint4 super = ldg128(tile + super_at(blocks, block));
	memcpy(w.super, &super, sizeof super);
#endif
}

// The scales of one output's block.
DEVICE void load_scales(Block<1> &w, const uint8_t *tile, int blocks, int output, int block)
{
	w.scales[0] = ldg16(tile + scales_at(blocks, block) + output * SCALE_BYTES);
#if defined(WEIGHT_Q6_K)
	w.super[0] = ldg16(tile + super_at(blocks, block) + output * SUPER_BYTES);
#elif defined(WEIGHT_Q4_K)
	w.super[0] = ldg32(tile + super_at(blocks, block) + output * SUPER_BYTES);
#endif
}

#endif

// ---------------------------------------------------------------------------------------
// Formats: how a block's numbers come out, and what a sum of them is worth
//
//	HALVES       parts of a block with a scale of their own
//	OFFSET       of a q, so that a weight is (q - OFFSET) · scale
//	part_scale   the scale of such a part, of quantised weights
//	minimum      what Q4_K takes off every weight
//
// and on path i16
//	pair           inputs 2p and 2p + 1 as two int16, 16 times too large for odd p if
//	               ODD_SHIFT is 4
//
// on the paths magic and float
//	widen          inputs 4j … 4j + 3, BIAS too large

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)

enum { HALVES = 1, OFFSET = 0, BIAS = 0 };

template <int O> DEVICE void widen(const Block<O> &w, int output, int j, float v[4])
{
#if defined(WEIGHT_F32)
	uint4 chunk = ldg128(w.tile + quants_at(w.blocks, output, j, w.block));
	memcpy(v, &chunk, sizeof chunk);
#else
	uint4 chunk = ldg128(w.tile + quants_at(w.blocks, output, j / 2, w.block));
	uint32_t pairs[2] = {j % 2 ? chunk.z : chunk.x, j % 2 ? chunk.w : chunk.y};
	UNROLL for (int i = 0; i < 4; i++)
		v[i] = half_to_float(uint16_t(pairs[i / 2] >> 16 * (i % 2)));
#endif
}

#elif defined(WEIGHT_Q8_0)

enum { HALVES = 1, OFFSET = 128, ODD_SHIFT = 0, BIAS = -OFFSET };

template <int O> DEVICE uint32_t pair(const Block<O> &w, int output, int p)
{
	uint32_t word = w.quants[output][p / 2];
	return p % 2 ? __byte_perm(word, 0, 0x4341) : word & 0x00ff00ff;
}

// A byte is too large for the mantissa of 128.0. In that of 2²³ it is a whole number
// again after one subtraction, which is exact.
DEVICE void widen_bytes(uint32_t word, float v[4])
{
	const float magic = 8388608;
	const unsigned selectors[4] = {0x7440, 0x7442, 0x7441, 0x7443};
	UNROLL for (int i = 0; i < 4; i++)
		v[i] = __uint_as_float(__byte_perm(word, __float_as_uint(magic), selectors[i])) - (magic + OFFSET);
}

template <int O> DEVICE void widen(const Block<O> &w, int output, int j, float v[4]) { widen_bytes(w.quants[output][j], v); }

template <int O> DEVICE float part_scale(const Block<O> &w, int output, int) { return half_to_float(w.scales[output]); }

#else // 4 and 6 bits

#if defined(WEIGHT_Q6_K)

enum { HALVES = 2, OFFSET = 32 };

// The upper two bits of pair p, right above its lower four as pair returns them.
template <int O> DEVICE uint32_t pair_high(const Block<O> &w, int output, int p)
{
	uint32_t high = w.high[output][p / 8], swapped = __byte_perm(high, 0, 0x2301);
	switch (p % 8) {
	case 0: return high & 0x00300030;
	case 1: return high << 2 & 0x03000300;
	case 2: return swapped & 0x00300030;
	case 3: return swapped << 2 & 0x03000300;
	case 4: return high << 2 & 0x00300030;
	case 5: return swapped & 0x03000300;
	case 6: return swapped << 2 & 0x00300030;
	default: return high & 0x03000300;
	}
}

// The upper two bits of the even or the odd pairs of word i, in bytes, as widen wants them.
template <int O> DEVICE uint32_t byte_high(const Block<O> &w, int output, int i, bool odd)
{
	uint32_t high = w.high[output][i / 2];
	return (i % 2 ? (odd ? high << 4 : high << 2) : (odd ? high >> 2 : high)) & 0x30303030;
}

template <int O> DEVICE float part_scale(const Block<O> &w, int output, int half)
{
	float part = int8_t(w.scales[output] >> 8 * half);
	return half_to_float(w.super[output]) * part;
}

#else

template <int O> DEVICE uint32_t pair_high(const Block<O> &, int, int) { return 0; }
template <int O> DEVICE uint32_t byte_high(const Block<O> &, int, int, bool) { return 0; }

#if defined(WEIGHT_Q4_0)

enum { HALVES = 1, OFFSET = 8 };

template <int O> DEVICE float part_scale(const Block<O> &w, int output, int) { return half_to_float(w.scales[output]); }

#else // Q4_K: q · (d · part) - min · offset

enum { HALVES = 1, OFFSET = 0 };

template <int O> DEVICE float part_scale(const Block<O> &w, int output, int)
{
	float d = half_to_float(uint16_t(w.super[output])), part = uint8_t(w.scales[output]);
	return d * part;
}

template <int O> DEVICE float minimum(const Block<O> &w, int output)
{
	float min = half_to_float(uint16_t(w.super[output] >> 16)), offset = uint8_t(w.scales[output] >> 8);
	return min * offset;
}

#endif
#endif

enum { ODD_SHIFT = 4, BIAS = 128 };

template <int O> DEVICE uint32_t pair(const Block<O> &w, int output, int p)
{
	uint32_t word = w.quants[output][p / 4];
	if (p % 4 >= 2)
		word = __byte_perm(word, 0, 0x4321); // word >> 8, in one instruction of full rate
	return (word & (p % 2 ? 0x00f000f0 : 0x000f000f)) | pair_high(w, output, p);
}

// The lower or the upper four of the eight inputs that even and odd have: its bytes are
// the numbers of the word's even and odd pairs.
DEVICE void widen_nibbles(uint32_t even, uint32_t odd, bool upper, float v[4])
{
	const uint32_t magic = __float_as_uint(BIAS);
	const unsigned first = upper ? 0x7144 : 0x7044, second = upper ? 0x7344 : 0x7244;
	v[0] = __uint_as_float(__byte_perm(even, magic, first));
	v[1] = __uint_as_float(__byte_perm(even, magic, second));
	v[2] = __uint_as_float(__byte_perm(odd, magic, first));
	v[3] = __uint_as_float(__byte_perm(odd, magic, second));
}

template <int O> DEVICE void widen(const Block<O> &w, int output, int j, float v[4])
{
	uint32_t word = w.quants[output][j / 2];
	uint32_t even = (word & 0x0f0f0f0f) | byte_high(w, output, j / 2, false);
	uint32_t odd = (word >> 4 & 0x0f0f0f0f) | byte_high(w, output, j / 2, true);
	widen_nibbles(even, odd, j % 2, v);
}

#endif

// ---------------------------------------------------------------------------------------
// Sums of products

// sum + both products of two pairs of int16.
DEVICE void add_products(int &sum, uint32_t a, uint32_t b)
{
#ifdef EMU
	sum += int(int16_t(a)) * int16_t(b) + int(int16_t(a >> 16)) * int16_t(b >> 16);
#else
	// Two XMAD that pick the halves themselves; from shifts and casts nvcc makes four
	// instructions.
	asm("{\n\t.reg .s16 al, ah, bl, bh;\n\t"
	    "mov.b32 {al, ah}, %1;\n\tmov.b32 {bl, bh}, %2;\n\t"
	    "mad.wide.s16 %0, al, bl, %0;\n\tmad.wide.s16 %0, ah, bh, %0;\n\t}"
	    : "+r"(sum) : "r"(a), "r"(b));
#endif
}

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)
template <int O> DEVICE float fold(const Block<O> &, int, int, float dot, float, float acc) { return acc + dot; }
#else
// acc + dot, a part's sum of products, brought to its scale and that of the activations.
template <int O> DEVICE float fold(const Block<O> &w, int output, int half, float dot, float scale, float acc)
{
	return fmaf(part_scale(w, output, half) * scale, dot, acc);
}
#endif

#if defined(WEIGHT_Q4_K)
// acc - what the minimum takes off for activations with the sum x.
template <int O> DEVICE float less_minimum(const Block<O> &w, int output, float x, float acc) { return fmaf(-minimum(w, output), x, acc); }
#else
template <int O> DEVICE float less_minimum(const Block<O> &, int, float, float acc) { return acc; }
#endif
