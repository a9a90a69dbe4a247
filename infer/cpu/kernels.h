// What every path's kernels start from. A path includes this, switches the compiler
// to its instruction set, includes its simd_*.h and then the kernels themselves:
// one source, compiled once for each instruction set.
#include "engine.h"

#include <math.h>
#include <string.h>

// Products and sums are rounded one by one unless a kernel says vf_fma: otherwise two
// copies of the same expression could differ in their bits. GCC does so under -std=c11.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE uint16_t load_u16(const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE float float_of(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

INLINE uint32_t bits_of(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

// Bytes of a quantised block or super-block.
INLINE int block_bytes(const int type)
{
	switch (type) {
	case TYPE_Q8_0:
		return Q8_BYTES;
	case TYPE_Q4_0:
		return Q4_BYTES;
	case TYPE_Q4_K:
		return Q4K_BYTES;
	case TYPE_Q5_K:
		return Q5K_BYTES;
	default:
		return Q6K_BYTES;
	}
}

// Value k of block i of a super-block, as an integer.
INLINE int super_value(const int type, const uint8_t *w, int i, int k)
{
	switch (type) {
	case TYPE_Q4_K:
		return w[Q4K_Q + i / 2 * BLOCK + k] >> i % 2 * 4 & 15;
	case TYPE_Q5_K:
		return (w[Q5K_Q + i / 2 * BLOCK + k] >> i % 2 * 4 & 15) | (w[Q5K_HIGH + k] >> i & 1) << 4;
	default: { // Q6_K
		const int half = i / 4, run = i % 4;
		int low = w[(half * 2 + run % 2) * BLOCK + k] >> run / 2 * 4 & 15;
		return (low | (w[Q6K_HIGH + half * BLOCK + k] >> 2 * run & 3) << 4) - 32;
	}
	}
}

// Asks for bytes bytes of weights at p, which need not be there. Tiles read several rows
// of a weight at once, which the processor's own prefetcher follows badly; so each step
// of a tile asks for its share of the tile after the next.
INLINE void fetch_ahead(const uint8_t *p, const int bytes)
{
	UNROLL for (int k = 0; k < bytes; k += LINE)
		__builtin_prefetch(p + k);
}
