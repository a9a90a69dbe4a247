// What every kernel is written with, so that one source runs on a GPU (nvcc) and in
// the emulation (g++ -DEMU, see emu/):
//
//	KERNEL(scale_f32, 256, 4)(float *x, float factor, int n)
//	{
//		int i = blockIdx.x * blockDim.x + threadIdx.x;
//		if (i < n)
//			x[i] *= factor;
//	}
//
// Rules for sources: kernels are named once over all modules; other functions are
// DEVICE; shared memory is SHARED, its size is given at launch; lanes meet only in the
// calls below and in syncthreads, never by luck; types are punned with memcpy; what
// only PTX can say stands behind a small function that says it in C++ for EMU.
//
// Same bits on both: nvcc contracts nothing (-fmad=false) and neither does g++
// (-ffp-contract=off), so say fmaf for a fused multiply-add. No approximate function
// of the GPU (__expf, rsqrtf, __fdividef …) may be used: its bits are its own.
// + - * / sqrtf fmaf and conversions are the same everywhere.
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef EMU
#include "emu/device.h"
#else
#include <cuda_fp16.h>

// KERNEL(name, threads, blocks)(parameters…): a kernel for blocks of at most threads
// threads, with registers few enough for blocks blocks per multiprocessor.
#define KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name

// A function that kernels call.
#define DEVICE static __device__ __forceinline__

// SHARED(type, name) declares name as a type * to the block's dynamic shared memory,
// aligned to 16 bytes. A second one names the same memory.
#define SHARED(type, name) \
	extern __shared__ __align__(16) unsigned char block_shared[]; \
	type *const name = reinterpret_cast<type *>(block_shared)

#define UNROLL _Pragma("unroll")

#endif

enum { WARP = 32 };
constexpr unsigned WHOLE_WARP = 0xffffffffu; // all its lanes

DEVICE int lane_id(void) { return threadIdx.x & (WARP - 1); } // blocks are multiples of WARP wide
DEVICE int warp_id(void) { return threadIdx.x / WARP; }

#ifndef EMU // emu/device.h has these too, and notes who calls

// All threads of the block wait for each other, and see what each wrote before.
DEVICE void syncthreads(void) { __syncthreads(); }

// The same for one warp.
DEVICE void syncwarp(void)
{
#if __CUDA_ARCH__ >= 700
	__syncwarp();
#else
	asm volatile("" ::: "memory"); // lanes run in step before sm_70
#endif
}

// v of another lane, for T of 4 bytes. All lanes of the warp must call.
template <typename T> DEVICE T shfl(T v, int lane) { return __shfl_sync(WHOLE_WARP, v, lane); }
template <typename T> DEVICE T shfl_xor(T v, int mask) { return __shfl_xor_sync(WHOLE_WARP, v, mask); }
template <typename T> DEVICE T shfl_up(T v, unsigned by) { return __shfl_up_sync(WHOLE_WARP, v, by); }
template <typename T> DEVICE T shfl_down(T v, unsigned by) { return __shfl_down_sync(WHOLE_WARP, v, by); }

// Bit l says whether lane l called with true.
DEVICE unsigned warp_ballot(bool b) { return __ballot_sync(WHOLE_WARP, b); }

#endif

// Sum and maximum over the warp, in one fixed order, to every lane.
DEVICE float warp_sum(float v)
{
	UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	return v;
}

DEVICE float warp_max(float v)
{
	UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2)
		v = fmaxf(v, shfl_xor(v, mask));
	return v;
}

// Loads of memory that nobody writes while the kernel runs, past the coherent caches
// (LDG.CI on sm_52). p must be aligned to the size that is loaded.
DEVICE uint4 ldg128(const void *p) { return __ldg(static_cast<const uint4 *>(p)); }
DEVICE uint2 ldg64(const void *p) { return __ldg(static_cast<const uint2 *>(p)); }
DEVICE uint32_t ldg32(const void *p) { return __ldg(static_cast<const unsigned int *>(p)); }
DEVICE uint16_t ldg16(const void *p) { return __ldg(static_cast<const unsigned short *>(p)); }
DEVICE uint8_t ldg8(const void *p) { return __ldg(static_cast<const unsigned char *>(p)); }
DEVICE float ldg_float(const float *p) { return __ldg(p); }
DEVICE float4 ldg_float4(const float *p) { return __ldg(reinterpret_cast<const float4 *>(p)); }

// float of the bits of a half, and the nearest half (ties to even) of a float.
DEVICE float half_to_float(uint16_t bits)
{
#ifdef EMU
	return emu::half_to_float(bits);
#else
	return __half2float(__ushort_as_half(bits));
#endif
}

DEVICE uint16_t float_to_half(float x)
{
#ifdef EMU
	return emu::float_to_half(x);
#else
	return __half_as_ushort(__float2half_rn(x));
#endif
}
