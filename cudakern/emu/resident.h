// Resident kernels: all blocks of a launch are alive at the same time, so that they can wait for each other
// and for the host. See ../resident.cuh.
//
// One CPU thread runs all blocks of such a launch, beside the threads of the program. A fiber that waits for
// a word lets the others run. If every thread of every block waits, and none of them for the host, the launch
// fails with an error that lists which blocks wait where.
#pragma once

#include <atomic>
#include <functional>

#include "emu.h"

namespace emu {

// Declares that a kernel is resident, with up to blocks blocks on a multiprocessor.
struct Resident {
	Resident(const char *name, unsigned blocks);
};

// Returns how many blocks of a resident kernel a multiprocessor runs at most; 0: the kernel is not resident.
unsigned resident_blocks(const Kernel &kernel);

// Runs all blocks at the same time, on this CPU thread. It gives up soon after stop has become true. Prints
// the error to stderr.
Fault run_resident(const Launch &launch, const std::atomic<bool> &stop);

// Runs f on a new CPU thread that handles no signals of the program, except faults.
void start_thread(std::function<void()> f);

// What a thread waits for: holds(of) becomes true. host: the host makes it true, not the kernel.
struct Condition {
	bool (*holds)(const void *of);
	const void *of;
	bool host;
};

// Waits for the condition and returns true, or returns false if it does not hold after the given time and no
// other thread of the launch can run. Only resident kernels may call it.
bool wait(const Condition &condition, uint64_t nanoseconds, const char *file, int line);

// Waits for every thread of the block and returns true for all if any of them passes true.
bool any_of_block(bool b, const char *file, int line);

// Returns the time in nanoseconds.
uint64_t nanoseconds();

template <typename F> struct Word {
	const volatile uint32_t *at;
	F is_ready;
	static bool holds(const void *of)
	{
		const Word *w = static_cast<const Word *>(of);
		return w->is_ready(__atomic_load_n(w->at, __ATOMIC_ACQUIRE));
	}
};

template <typename F>
inline bool wait_word(const volatile uint32_t *at, F is_ready, bool host, uint64_t nanoseconds, const char *file, int line)
{
	check_aligned(const_cast<const uint32_t *>(at), 4);
	Word<F> word{at, is_ready};
	return wait({Word<F>::holds, &word, host}, nanoseconds, file, line);
}

} // namespace emu
