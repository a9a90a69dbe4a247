// The common part of all paths. A path (path_*.c) includes this header, switches the compiler to its
// instruction set, and includes its simd_*.h and then the kernels, path.h: one source, compiled once for each
// instruction set.
#include "engine.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The compiler must not contract a · b + c to a fused multiply-add unless a kernel calls vf_fma:
// otherwise two copies of the same expression could round differently. GCC does not under -std=c11.
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

INLINE uint32_t load_u32(const uint8_t *p)
{
	uint32_t v;
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

// Returns p. The compiler does not know that, so that it loads values at p again where it would otherwise
// keep them from before: with 16 registers, it would store and load other values instead.
INLINE const void *reloaded(const void *p)
{
	__asm__ volatile("" : "+r"(p));
	return p;
}

// Distance of prefetches: in bytes, and the most in blocks of a panel, into L2 and into L1. Products take longer for each
// byte the fewer bits they have. The hardware prefetcher stops at page boundaries.
enum { AHEAD = 4096, BLOCKS_AHEAD = 28, BLOCKS_AHEAD_NEAR = 14 };

// Prefetches bytes bytes of weights at p into L2: into L1 was up to 14 % slower on Intel's processors. The address may be
// invalid.
INLINE void fetch_ahead(const uint8_t *p, const int bytes)
{
	UNROLL for (int k = 0; k < bytes; k += LINE)
		__builtin_prefetch(p + k, 0, 2);
}

// Returns the distance of prefetches of blocks of so many bytes, at most blocks of them.
INLINE size_t ahead_of(size_t bytes, int blocks) { return (size_t)blocks * bytes < AHEAD ? (size_t)blocks * bytes : AHEAD; }

// Prefetches the block that is as far ahead of p as its products need. On AMD's processors it comes into L1: from L2, products of formats
// with few bits were slower.
INLINE void fetch_block(const uint8_t *p, const size_t bytes)
{
	bool near = engine_fetch_near;
	__asm__("" : "+r"(near)); // or else GCC tests it in a mask register, which takes vector instructions
	if (!near) {
		fetch_ahead(p + ahead_of(bytes, BLOCKS_AHEAD), (int)bytes);
		return;
	}
	p += ahead_of(bytes, BLOCKS_AHEAD_NEAR);
	UNROLL for (size_t k = 0; k < bytes; k += LINE)
		__builtin_prefetch(p + k, 0, 3);
}
