// What every path's kernels start from. A path includes this, switches the compiler
// to its instruction set, includes its simd_*.h and then the kernels themselves:
// one source, compiled once for each instruction set.
#include "engine.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
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

// How far before a weight's use it is asked for, in bytes: the processor's own prefetcher
// stops at each page.
enum { AHEAD = 4096 };

// Asks for bytes bytes of weights at p, which need not be there.
INLINE void fetch_ahead(const uint8_t *p, const int bytes)
{
	UNROLL for (int k = 0; k < bytes; k += LINE)
		__builtin_prefetch(p + k);
}
