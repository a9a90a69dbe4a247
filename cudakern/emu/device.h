// CUDA C++ features that C++ lacks, for kernels compiled by g++ (see ../kernel.cuh and emu.h). Only what
// kernels use; add others when needed.
#pragma once

#include <math.h>

#include "emu.h"

struct uint2 { unsigned x, y; };
struct int2 { int x, y; };
struct float2 { float x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define DEVICE static inline __attribute__((always_inline))
#define SHARED(type, name) type *const name = static_cast<type *>(emu::self->block->shared)
#define UNROLL // empty: forced unrolling makes g++ ten times slower
#define __restrict__ __restrict

// The parameter list follows the macro in the source, so name and list are registered in
// two steps: constructors of one file run in the order of the source.
#define EMU_JOIN2(a, b) a##b
#define EMU_JOIN(a, b) EMU_JOIN2(a, b)
#define KERNEL(name, threads, blocks) EMU_KERNEL(name, threads, blocks) // name may be a macro
#define EMU_KERNEL(name, threads, blocks) \
	static const emu::Declaration EMU_JOIN(declaration_of_, name)(#name, threads); \
	EMU_KERNEL_PARAMETERS
#define EMU_KERNEL_PARAMETERS(...) EMU_KERNEL_BODY(EMU_JOIN(emu_kernel_, __COUNTER__), __VA_ARGS__)
#define EMU_KERNEL_BODY(function, ...) \
	static void function(__VA_ARGS__); \
	static const emu::Definition EMU_JOIN(definition_of_, function)(function); \
	static void function(__VA_ARGS__)

#define threadIdx (emu::self->index)
#define blockIdx (emu::self->block->index)
#define blockDim (emu::self->block->shape)
#define gridDim (emu::self->block->grid)

namespace emu {

template <typename T> inline T from_lane(T v, int lane, const char *file, int line)
{
	static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
	uint32_t bits;
	memcpy(&bits, &v, 4);
	const uint32_t *all = exchange(bits, file, line);
	memcpy(&v, &all[lane & 31], 4);
	return v;
}

inline int lane() { return self->number & 31; }

template <typename T> inline T load(const T *p)
{
	check_aligned(p, sizeof(T));
	T v;
	memcpy(&v, p, sizeof v);
	return v;
}

// Converts exactly; a NaN keeps its sign and payload.
inline float half_to_float(uint16_t h)
{
	uint32_t sign = uint32_t(h & 0x8000) << 16, bits = h & 0x7fff, out;
	if (bits >= 0x7c00)
		out = sign | 0x7f800000 | (bits & 0x3ff) << 13;
	else if (bits >= 0x400)
		out = sign | ((bits << 13) + (112u << 23));
	else {
		float f = float(bits) * 0x1p-24f;
		memcpy(&out, &f, 4);
		out |= sign;
	}
	float f;
	memcpy(&f, &out, 4);
	return f;
}

// Rounds to nearest, ties to even; a NaN becomes 0x7fff, as on the GPU.
inline uint16_t float_to_half(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, 4);
	uint16_t sign = bits >> 16 & 0x8000;
	bits &= 0x7fffffff;
	if (bits > 0x7f800000)
		return 0x7fff;
	if (bits >= 0x477ff000) // rounds to 65536
		return sign | 0x7c00;
	if (bits < 0x38800000) { // below 2⁻¹⁴: whole multiples of 2⁻²⁴
		float magnitude;
		memcpy(&magnitude, &bits, 4);
		return sign | uint16_t(lrintf(magnitude * 0x1p24f));
	}
	uint32_t even = bits >> 13 & 1;
	return sign | uint16_t((bits - (112u << 23) + 0xfff + even) >> 13);
}

} // namespace emu

#define EMU_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void syncthreads(EMU_CALLER) { emu::wait_for_block(file, line); }
inline void sync_part(int part, int threads, EMU_CALLER) { emu::wait_for_part(part, threads, file, line); }
inline void syncwarp(EMU_CALLER) { emu::exchange(0, file, line); }
template <typename T> inline T shfl(T v, int lane, EMU_CALLER) { return emu::from_lane(v, lane, file, line); }
template <typename T> inline T shfl_xor(T v, int mask, EMU_CALLER) { return emu::from_lane(v, emu::lane() ^ mask, file, line); }
template <typename T> inline T shfl_up(T v, unsigned by, EMU_CALLER)
{
	int from = emu::lane() - int(by);
	return emu::from_lane(v, from < 0 ? emu::lane() : from, file, line);
}
template <typename T> inline T shfl_down(T v, unsigned by, EMU_CALLER)
{
	int from = emu::lane() + int(by);
	return emu::from_lane(v, from > 31 ? emu::lane() : from, file, line);
}
inline unsigned warp_ballot(bool b, EMU_CALLER)
{
	const uint32_t *all = emu::exchange(b, file, line);
	unsigned bits = 0;
	for (int l = 0; l < 32; l++)
		bits |= all[l] << l;
	return bits;
}

template <typename T> inline T __ldg(const T *p) { return emu::load(p); }
template <typename T> inline T __ldcs(const T *p) { return emu::load(p); }
template <typename T> inline T __ldcg(const T *p) { return emu::load(p); }
template <typename T> inline void __stcs(T *p, T v) { emu::check_aligned(p, sizeof v), *p = v; }
template <typename T> inline void __stcg(T *p, T v) { emu::check_aligned(p, sizeof v), *p = v; }

inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }
inline float __uint_as_float(unsigned v) { float f; memcpy(&f, &v, 4); return f; }
inline int __float_as_int(float f) { int v; memcpy(&v, &f, 4); return v; }
inline unsigned __float_as_uint(float f) { unsigned v; memcpy(&v, &f, 4); return v; }
// Values out of range become the nearest int and NaN becomes 0, as on the GPU.
inline int __float2int_rz(float f)
{
	return f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : int(f);
}
inline int __float2int_rn(float f) { return __float2int_rz(rintf(f)); }
inline float __int2float_rn(int v) { return float(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned __brev(unsigned v)
{
	unsigned r = 0;
	for (int i = 0; i < 32; i++)
		r |= (v >> i & 1) << (31 - i);
	return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selectors)
{
	uint64_t bytes = uint64_t(b) << 32 | a;
	unsigned r = 0;
	for (int i = 0; i < 4; i++)
		r |= unsigned(bytes >> 8 * (selectors >> 4 * i & 7) & 0xff) << 8 * i;
	return r;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Atomics on int and unsigned; each returns the previous value.
template <typename T> inline T atomicAdd(T *p, decltype(T(0)) v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
template <typename T> inline T atomicSub(T *p, decltype(T(0)) v) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); }
template <typename T> inline T atomicAnd(T *p, decltype(T(0)) v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
template <typename T> inline T atomicOr(T *p, decltype(T(0)) v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
template <typename T> inline T atomicExch(T *p, decltype(T(0)) v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
template <typename T> inline T atomicCAS(T *p, decltype(T(0)) old, decltype(T(0)) v)
{
	__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return old;
}
template <typename T> inline T atomicMax(T *p, decltype(T(0)) v)
{
	T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
	while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}
template <typename T> inline T atomicMin(T *p, decltype(T(0)) v)
{
	T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
	while (old > v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}
inline unsigned atomicInc(unsigned *p, unsigned last) // wraps to 0 after last
{
	unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
	while (!__atomic_compare_exchange_n(p, &old, old >= last ? 0 : old + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}
