// Resident kernels: kernels whose blocks all run at the same time, so that they can wait for each other and for
// the host. A launch must not have more blocks than the device can keep (Function.Resident in resident.go).
//
//	RESIDENT(name, 256, 2)(parameters…) { … }
//
// Blocks and the host see what others write only in the order that fences and these functions establish:
//
//   - A writer stores its data, calls __threadfence (data for other blocks) or __threadfence_system (data for
//     the host), and then stores a word with store_word. If several threads of a block store data, each calls
//     the fence, then all meet at syncthreads, and then one stores the word.
//   - A reader waits for the word, and then calls the same fence before it loads the data. For the other threads
//     of its block, that thread then calls syncthreads.
//   - What another block or the host writes while the kernel runs is never loaded with ldg* or __ldg: the
//     read-only cache is not coherent. Data in host memory is loaded with load_word.
//
// Every wait ends: after a time limit it gives up, and its caller must be able to go on.
#pragma once

#include "kernel.cuh"

#ifdef EMU

#include "emu/resident.h"

#define RESIDENT(name, threads, blocks) EMU_RESIDENT(name, threads, blocks) // name may be a macro
#define EMU_RESIDENT(name, threads, blocks) \
	static const emu::Resident EMU_JOIN(resident_, name)(#name, blocks); \
	EMU_KERNEL(name, threads, blocks)

// Parameters and arguments that tell the emulator the line of the caller; they come last.
#define CALLER , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define PASS_CALLER , file, line
#define PASS_ONLY_CALLER file, line

template <typename F> inline bool wait_until(const volatile uint32_t *word, F is_ready, uint64_t nanoseconds CALLER)
{
	return emu::wait_word(word, is_ready, false, nanoseconds, file, line);
}

template <typename F> inline bool wait_for_host(const volatile uint32_t *word, F is_ready, uint64_t nanoseconds CALLER)
{
	return emu::wait_word(word, is_ready, true, nanoseconds, file, line);
}

inline bool any_of_block(bool b CALLER) { return emu::any_of_block(b, file, line); }
inline uint32_t load_word(const volatile uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
inline void store_word(volatile uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
inline uint4 load_units(const uint4 *p) { return emu::load(p); }
inline uint64_t device_time(void) { return emu::nanoseconds(); }

inline void *in_device_memory(uint64_t address) { return reinterpret_cast<void *>(address); }

#else

#define RESIDENT(name, threads, blocks) KERNEL(name, threads, blocks)
#define CALLER
#define PASS_CALLER
#define PASS_ONLY_CALLER

// Loads and stores that neither a cache of a multiprocessor nor the compiler keeps from other blocks or the
// host. They order nothing else.
DEVICE uint32_t load_word(const volatile uint32_t *p) { return *p; }
DEVICE void store_word(volatile uint32_t *p, uint32_t v) { *p = v; }

// Returns a pointer of which the compiler knows that it is to device or mapped host memory, and not to shared memory. Without that it knows so
// of parameters of kernels alone.
DEVICE void *in_device_memory(uint64_t address) { return __cvta_global_to_generic(address); }

// Loads 16 bytes of mapped host memory, after the word was seen that says they are there.
DEVICE uint4 load_units(const uint4 *p) { return __ldcv(p); }

// Returns the time in nanoseconds; it advances in steps of up to about a microsecond.
DEVICE uint64_t device_time(void)
{
	uint64_t t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

// Lets other warps run for a while between two polls.
DEVICE void pause_polling(unsigned nanoseconds)
{
#if __CUDA_ARCH__ >= 700
	__nanosleep(nanoseconds);
#endif
}

template <typename F> DEVICE bool poll_word(const volatile uint32_t *word, F is_ready, uint64_t nanoseconds, unsigned pause)
{
	if (is_ready(load_word(word)))
		return true;
	const uint64_t start = device_time();
	for (unsigned polls = 1;; polls++) {
		if (is_ready(load_word(word)))
			return true;
		if (polls % 16 == 0 && device_time() - start > nanoseconds)
			return is_ready(load_word(word));
		pause_polling(pause);
	}
}

// Waits until is_ready(*word), and returns true, or false if it is not after the given time. Another block
// stores the word. Lanes of a warp must not wait for each other in it.
template <typename F> DEVICE bool wait_until(const volatile uint32_t *word, F is_ready, uint64_t nanoseconds)
{
	return poll_word(word, is_ready, nanoseconds, 20);
}

// The same for a word in mapped host memory that the host stores.
template <typename F> DEVICE bool wait_for_host(const volatile uint32_t *word, F is_ready, uint64_t nanoseconds)
{
	return poll_word(word, is_ready, nanoseconds, 200);
}

// Barrier for all threads of the block that returns true for all if any of them passes true.
DEVICE bool any_of_block(bool b) { return __syncthreads_or(b) != 0; }

#endif
