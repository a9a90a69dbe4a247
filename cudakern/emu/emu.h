// The emulated multiprocessor: how a block of a kernel runs on one CPU thread.
//
// Each thread of the block is a fiber with a stack of its own. A fiber runs until it
// must wait for others: for its warp in a shuffle or for its block in a barrier. Then
// the next one that can go on runs. If none can, the block is dead-locked, which ends
// the launch with an error that says who waits where.
#pragma once

#include <stdint.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace emu {

struct Dim3 {
	unsigned x = 1, y = 1, z = 1;
	uint64_t count() const { return uint64_t(x) * y * z; }
};

struct Block;

// One thread of the block that runs.
struct Thread {
	Dim3 index;
	unsigned number = 0; // within the block, x fastest
	Block *block = nullptr;
};

// What kernels may know of their block.
struct Block {
	Dim3 index, shape, grid;
	void *shared = nullptr;
};

// Of each CPU thread one; quick to find also in a library that was loaded late.
#define EMU_LOCAL __thread __attribute__((tls_model("initial-exec")))

// The thread that runs on this CPU thread.
extern EMU_LOCAL Thread *self;

// Waits for every thread of the block.
void meet_block(const char *file, int line);

// Waits for every lane of the warp, and gives what each brought. Valid until the lane
// meets its warp again.
const uint32_t *exchange(uint32_t bits, const char *file, int line);

// Ends the launch with CUDA_ERROR_MISALIGNED_ADDRESS.
[[noreturn]] void misaligned(const void *p, size_t size);

inline void check_aligned(const void *p, size_t size)
{
	if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % size != 0, 0))
		misaligned(p, size);
}

// A kernel as its source declares it.
struct Kernel {
	const char *module, *name;
	unsigned max_threads;
	std::vector<size_t> sizes;                          // of its parameters, in order
	void (*enter)(void (*function)(), void *const *args); // calls function with what args point to
	void (*function)();
};

// The kernels of all modules, in no order.
std::vector<Kernel> &kernels();

// The module that a file's kernels are in. Each file constructs one before its kernels.
struct Module {
	explicit Module(const char *name);
};

// The two halves of a kernel's registration: see KERNEL in device.h.
struct Declaration {
	Declaration(const char *name, unsigned max_threads);
};

struct Definition {
	template <typename... P> explicit Definition(void (*function)(P...))
	{
		define(reinterpret_cast<void (*)()>(function), {sizeof(P)...}, enter<P...>);
	}

private:
	static void define(void (*function)(), std::vector<size_t> sizes, void (*enter)(void (*)(), void *const *));

	template <typename... P> static void enter(void (*function)(), void *const *args)
	{
		call(reinterpret_cast<void (*)(P...)>(function), args, std::index_sequence_for<P...>());
	}

	template <typename... P, size_t... I>
	static void call(void (*function)(P...), [[maybe_unused]] void *const *args, std::index_sequence<I...>)
	{
		function(*static_cast<std::remove_cv_t<P> *>(args[I])...);
	}
};

// A launch: the kernel, its grid and a copy of its arguments.
struct Launch {
	const Kernel *kernel = nullptr;
	Dim3 grid, shape;
	size_t shared = 0;
	uint64_t seed = 0;             // draws the order of blocks, warps and lanes; 0: ascending
	std::vector<uint64_t> storage; // of the arguments, each from a multiple of 8 bytes

	void copy_arguments(void *const *args);
	std::vector<void *> arguments() const;
};

// What can end a launch, in the driver's numbers.
enum Fault { NO_FAULT = 0, ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

// CPU threads that run blocks.
unsigned cpu_threads();

// Runs all blocks, spread over the CPU threads. Says on stderr what went wrong.
Fault run(const Launch &launch);

} // namespace emu
