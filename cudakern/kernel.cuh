// Declarations for kernels that compile both for GPUs (nvcc) and for the emulator
// (g++ -DEMU, see emu/):
//
//	KERNEL(scale_f32, 256, 4)(float *x, float factor, int n)
//	{
//		int i = blockIdx.x * blockDim.x + threadIdx.x;
//		if (i < n)
//			x[i] *= factor;
//	}
//
// Rules for sources: names of kernels are unique over all modules; other functions are DEVICE;
// shared memory is SHARED, dynamic, its size is given at launch; lanes synchronize only in the
// functions below, they never rely on running in lockstep; type punning uses memcpy; inline PTX is
// wrapped in a small function with a C++ version for EMU.
//
// Both must compute the same bits. nvcc (-fmad=false) and g++ (-ffp-contract=off) contract nothing, so
// a fused multiply-add is written fmaf. Approximate device functions (__expf, rsqrtf, __fdividef …)
// are forbidden: no other hardware has their bits. + - * / sqrtf, fmaf and conversions are correctly
// rounded everywhere.
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef EMU
#include "emu/device.h"
#else
#include <cuda_fp16.h>

// KERNEL(name, threads, blocks)(parameters…) defines a kernel for blocks of up to threads threads; the
// compiler limits its registers so that blocks blocks fit on a multiprocessor.
#define KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name

// A device function, always inlined.
#define DEVICE static __device__ __forceinline__

// SHARED(type, name) declares name as a pointer to the block's dynamic shared memory, aligned to 16
// bytes. A second one points to the same memory.
#define SHARED(type, name) \
	extern __shared__ __align__(16) unsigned char block_shared[]; \
	type *const name = reinterpret_cast<type *>(block_shared)

#define UNROLL _Pragma("unroll")

#endif

enum { WARP = 32 };
constexpr unsigned WHOLE_WARP = 0xffffffffu; // mask of all lanes

DEVICE int lane_id(void) { return threadIdx.x & (WARP - 1); } // blockDim.x is a multiple of WARP
DEVICE int warp_id(void) { return threadIdx.x / WARP; }

#ifndef EMU // emu/device.h has its own, which record the caller

// Barrier for all threads of the block, with memory ordering among them.
DEVICE void syncthreads(void) { __syncthreads(); }

// Barrier for one of the parts of the block, of threads threads each, a multiple of WARP.
DEVICE void sync_part(int part, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(1 + part), "r"(threads) : "memory"); }

// Barrier for the lanes of a warp.
DEVICE void syncwarp(void)
{
#if __CUDA_ARCH__ >= 700
	__syncwarp();
#else
	asm volatile("" ::: "memory"); // before sm_70 lanes run in lockstep
#endif
}

// Returns v of another lane. T has 4 bytes. All lanes of the warp must call it.
template <typename T> DEVICE T shfl(T v, int lane) { return __shfl_sync(WHOLE_WARP, v, lane); }
template <typename T> DEVICE T shfl_xor(T v, int mask) { return __shfl_xor_sync(WHOLE_WARP, v, mask); }
template <typename T> DEVICE T shfl_up(T v, unsigned by) { return __shfl_up_sync(WHOLE_WARP, v, by); }
template <typename T> DEVICE T shfl_down(T v, unsigned by) { return __shfl_down_sync(WHOLE_WARP, v, by); }

// Returns a mask in which bit l is lane l's b.
DEVICE unsigned warp_ballot(bool b) { return __ballot_sync(WHOLE_WARP, b); }

#endif

// Sum and maximum over the warp, in a fixed order; every lane gets the result.
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

// Loads through the read-only cache (LDG.CI on sm_52), for memory that is not written while the kernel
// runs. p must be aligned to the size of the load.
DEVICE uint4 ldg128(const void *p) { return __ldg(static_cast<const uint4 *>(p)); }
DEVICE uint2 ldg64(const void *p) { return __ldg(static_cast<const uint2 *>(p)); }
DEVICE uint32_t ldg32(const void *p) { return __ldg(static_cast<const unsigned int *>(p)); }
DEVICE uint16_t ldg16(const void *p) { return __ldg(static_cast<const unsigned short *>(p)); }
DEVICE uint8_t ldg8(const void *p) { return __ldg(static_cast<const unsigned char *>(p)); }
DEVICE float ldg_float(const float *p) { return __ldg(p); }
DEVICE float2 ldg_float2(const float *p) { return __ldg(reinterpret_cast<const float2 *>(p)); }
DEVICE float4 ldg_float4(const float *p) { return __ldg(reinterpret_cast<const float4 *>(p)); }

// Conversions between the bits of a half and float; float_to_half rounds to nearest, ties to even.
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
