// Embed: dst[r] = row tokens[r] of a table, decoded to float32.
//
// A thread per element. The table lies as in the GGUF file; a row or a few of it are read
// per step, so the small loads that this takes do not matter. Compiled once for each
// type, with -DWEIGHT_<TYPE>.
#include "kernel.cuh"

DEVICE float half_at(const uint8_t *p) { return half_to_float((uint16_t)(p[0] | p[1] << 8)); }

#if defined(WEIGHT_F32)
#define NAME embed_f32
enum { ELEMENTS = 1, BYTES = 4 };
DEVICE float value(const uint8_t *block, int)
{
	float v;
	memcpy(&v, block, 4);
	return v;
}

#elif defined(WEIGHT_F16)
#define NAME embed_f16
enum { ELEMENTS = 1, BYTES = 2 };
DEVICE float value(const uint8_t *block, int) { return half_at(block); }

#elif defined(WEIGHT_Q8_0)
#define NAME embed_q8_0
enum { ELEMENTS = 32, BYTES = 34 };
// A scale d and 32 int8 q: q·d.
DEVICE float value(const uint8_t *block, int i) { return (float)(int8_t)block[2 + i] * half_at(block); }

#elif defined(WEIGHT_Q4_0)
#define NAME embed_q4_0
enum { ELEMENTS = 32, BYTES = 18 };
// A scale d and 32 four-bit q, the low halves of 16 bytes first: (q-8)·d.
DEVICE float value(const uint8_t *block, int i)
{
	int q = block[2 + i % 16] >> (i / 16 * 4) & 15;
	return (float)(q - 8) * half_at(block);
}

#elif defined(WEIGHT_Q4_K)
#define NAME embed_q4_k
enum { ELEMENTS = 256, BYTES = 144 };
// Scales d and m, eight pairs of six-bit (scale, offset) in 12 bytes, and 256 four-bit q,
// of which each 32 bytes hold two parts of 32, the first in their low halves:
// q·(d·scale) - m·offset.
DEVICE float value(const uint8_t *block, int i)
{
	const uint8_t *packed = block + 4;
	int part = i / 32, scale, offset;
	if (part < 4) {
		scale = packed[part] & 63;
		offset = packed[part + 4] & 63;
	} else {
		scale = (packed[part + 4] & 15) | packed[part - 4] >> 6 << 4;
		offset = packed[part + 4] >> 4 | packed[part] >> 6 << 4;
	}
	int q = block[16 + part / 2 * 32 + i % 32] >> (part % 2 * 4) & 15;
	return (float)q * (half_at(block) * (float)scale) - half_at(block + 2) * (float)offset;
}

#elif defined(WEIGHT_Q6_K)
#define NAME embed_q6_k
enum { ELEMENTS = 256, BYTES = 210 };
// 128 bytes with the low four bits of 256 q, 64 bytes with their upper two, 16 int8
// scales and a scale d: d·scale·(q-32). Of each 128 values, four runs of 32, the low
// bits of runs 0 and 2 share 32 bytes, as do those of 1 and 3; the upper bits of all four
// share 32.
DEVICE float value(const uint8_t *block, int i)
{
	int half = i / 128, run = i / 32 % 4, k = i % 32;
	int low = block[64 * half + run % 2 * 32 + k] >> (run / 2 * 4) & 15;
	int high = block[128 + 32 * half + k] >> (2 * run) & 3;
	float scale = half_at(block + 208) * (float)(int8_t)block[192 + i / 16];
	return scale * (float)((low | high << 4) - 32);
}
#endif

KERNEL(NAME, 256, 8)(float *dst, const uint8_t *table, int cols, const int *tokens, const int *rows)
{
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= cols)
		return;
	size_t i = (size_t)tokens[row] * cols + col;
	dst[(size_t)row * cols + col] = value(table + i / ELEMENTS * BYTES, (int)(i % ELEMENTS));
}
