// Shared memory by its address instead of by a pointer.
#pragma once

#include "kernel.cuh"

// An address in shared memory. The compiler recomputes a pointer to the block's memory for every use, in several instructions;
// again(address_of(…)) stays in a register.
#ifdef EMU
typedef uint8_t *Address;
#else
typedef uint32_t Address;
#endif

DEVICE Address address_of(void *shared)
{
#ifdef EMU
	return static_cast<uint8_t *>(shared);
#else
	return uint32_t(__cvta_generic_to_shared(shared));
#endif
}

// Loads v, which has 1, 2, 4, 8 or 16 bytes, in one load.
template <typename T> DEVICE void load_shared(T &v, Address at)
{
#ifdef EMU
	memcpy(&v, at, sizeof v);
#else
	if constexpr (sizeof v == 1) {
		uint16_t x;
		asm volatile("ld.shared.u8 %0, [%1];" : "=h"(x) : "r"(at));
		memcpy(&v, &x, sizeof v);
	} else if constexpr (sizeof v == 2) {
		uint16_t x;
		asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(at));
		memcpy(&v, &x, sizeof v);
	} else if constexpr (sizeof v == 4) {
		uint32_t x;
		asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
		memcpy(&v, &x, sizeof v);
	} else if constexpr (sizeof v == 8) {
		uint2 x;
		asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(at));
		memcpy(&v, &x, sizeof v);
	} else {
		static_assert(sizeof v == 16);
		uint4 x;
		asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at));
		memcpy(&v, &x, sizeof v);
	}
#endif
}

template <typename T> DEVICE T load_shared(Address at)
{
	T v;
	load_shared(v, at);
	return v;
}

// Stores v, which has 4 bytes.
template <typename T> DEVICE void store_shared(Address at, T v)
{
#ifdef EMU
	memcpy(at, &v, sizeof v);
#else
	uint32_t x;
	static_assert(sizeof v == sizeof x);
	memcpy(&x, &v, sizeof x);
	asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
#endif
}
