// Formats of keys and values that are known at run time: those of device.CacheType. The keys or values of a head in a block of the cache are the codes
// of its 32 positions, [32][dim], and for Q8_0 and Q4_0 behind them the scales of every 32 codes, float16:
//
//	F32, F16  elements
//	Q8_0      a byte for each element, its code + 128
//	Q4_0      four bytes for eight elements, their codes + 8: those of the first four in the lower halves, of the others in the upper ones
//
// A value is code · scale in float32, which is exact.
#pragma once

#include "math.cuh"

enum Format { FORMAT_F32, FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_0 }; // Format in Go

// Elements of a block with one scale, and what is added to codes.
enum { SCALE_ELEMENTS = 32, Q8_0_OFFSET = 128, Q4_0_OFFSET = 8 };

// The arguments of a kernel that say what a cache is.
#define ANY_CACHE uint8_t *cache, int key_format, int value_format

DEVICE bool is_quantized(int format) { return format >= FORMAT_Q8_0; }

// Returns the bytes that the codes of n elements take.
DEVICE int code_bytes(int format, int n)
{
	return format == FORMAT_F32 ? 4 * n : format == FORMAT_F16 ? 2 * n : format == FORMAT_Q8_0 ? n : n / 2;
}

// Returns the bytes of the keys or values of a head of dim elements in a block.
DEVICE int head_bytes(int format, int dim)
{
	return code_bytes(format, 32 * dim) + (is_quantized(format) ? 2 * dim : 0);
}

// Returns where the keys (kind 0) or values (1) of a head begin in the cache. parts is 1 without values, else 2.
DEVICE size_t head_offset(int key_format, int value_format, int block, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	const int keys = head_bytes(key_format, dim), values = parts > 1 ? head_bytes(value_format, dim) : 0;
	return ((size_t)block * layers + layer) * (size_t)(heads * (keys + values)) + (kind == 0 ? head * keys : heads * keys + head * values);
}

// Returns the values of the N codes in the lowest bytes of a word, each of which is the code + offset.
template <int N> DEVICE void decode(uint32_t codes, int offset, float scale, float *v)
{
	UNROLL for (int i = 0; i < N; i++) // the byte in the mantissa of 32768 is 32768 + byte
		v[i] = (bits_to_float(__byte_perm(codes, 0x47000000, 0x7404 | i << 4)) - float(32768 + offset)) * scale;
}

DEVICE void halves(uint32_t pair, float *v)
{
	v[0] = half_to_float((uint16_t)(pair & 0xffff));
	v[1] = half_to_float((uint16_t)(pair >> 16));
}

// Returns the codes of four of the eight elements in a word of Q4_0: the first ones, or those behind.
DEVICE uint32_t four_codes(uint32_t word, bool behind) { return (behind ? word >> 4 : word) & 0x0f0f0f0f; }

// x · H for the 32 lanes' elements: see device.KVLayout.RotatesKeys. All lanes of the warp call it.
DEVICE float hadamard(float x)
{
	UNROLL for (int step = 1; step < WARP; step *= 2) {
		const float other = shfl_xor(x, step);
		x = lane_id() & step ? other - x : x + other;
	}
	return x;
}

// The same for the elements of a thread.
DEVICE void hadamard(float (&x)[32])
{
	UNROLL for (int step = 1; step < 32; step *= 2)
		UNROLL for (int i = 0; i < 32; i++)
			if (!(i & step)) {
				const float a = x[i], b = x[i | step];
				x[i] = a + b;
				x[i | step] = a - b;
			}
}

// Rotates whole blocks of queries, of dim elements each and stride apart, in memory of all warps: as keys, and divided by 32, so that scores
// are the same. All warps call it; they meet before they read or write what others have.
DEVICE void rotate_queries(float *q, int queries, int stride, int dim)
{
	const int blocks = dim / 32;
	syncthreads();
	for (int i = warp_id(); i < queries * blocks; i += blockDim.x / WARP) {
		float *const at = q + i / blocks * stride + i % blocks * 32 + lane_id();
		*at = hadamard(*at) * (1.0f / 32);
	}
}
