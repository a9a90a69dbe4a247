// The emulated multiprocessor: how a block of a kernel runs on one CPU thread.
//
// Each thread of the block is a fiber with its own stack. A fiber runs until it waits for
// its warp (in a shuffle) or for its block (at a barrier); then the next runnable fiber
// runs. If none is runnable, the block is deadlocked, and the launch fails with an error
// that lists the waiting threads.
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

// A thread of the running block.
struct Thread {
	Dim3 index;
	unsigned number = 0; // within the block, x fastest
	Block *block = nullptr;
};

// The indices and shared memory of the running block.
struct Block {
	Dim3 index, shape, grid;
	void *shared = nullptr;
};

// Thread-local; the TLS model keeps access fast in a library loaded with dlopen.
#define EMU_LOCAL __thread __attribute__((tls_model("initial-exec")))

// The emulated thread that runs on this CPU thread.
extern EMU_LOCAL Thread *self;

// Waits for every thread of the block.
void wait_for_block(const char *file, int line);

// Waits for every thread of a part of the block: part i is the threads from i · threads on, threads of them.
void wait_for_part(int part, int threads, const char *file, int line);

// Waits for every lane of the warp and returns the value that each passed. The result is
// valid until the lane calls exchange again.
const uint32_t *exchange(uint32_t bits, const char *file, int line);

// Ends the launch with CUDA_ERROR_MISALIGNED_ADDRESS.
[[noreturn]] void misaligned(const void *p, size_t size);

inline void check_aligned(const void *p, size_t size)
{
	if (__builtin_expect(reinterpret_cast<uintptr_t>(p) % size != 0, 0))
		misaligned(p, size);
}

// A kernel as declared in its source.
struct Kernel {
	const char *module, *name;
	unsigned max_threads;
	std::vector<size_t> sizes;                          // of its parameters, in order
	void (*enter)(void (*function)(), void *const *args); // calls function with the values that args point to
	void (*function)();
};

// The kernels of all modules, in no order.
std::vector<Kernel> &kernels();

// The module of the kernels in a file. Each file constructs one before its kernels.
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
	uint64_t seed = 0;             // of the random order of blocks, warps and lanes; 0: ascending
	std::vector<uint64_t> storage; // of the arguments, each aligned to 8 bytes

	void copy_arguments(void *const *args);
	std::vector<void *> arguments() const;
};

// Errors of a launch, with the driver's numbers.
enum Fault { NO_FAULT = 0, ILLEGAL_ADDRESS = 700, MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719 };

// The number of CPU threads that run blocks.
unsigned cpu_threads();

// Runs all blocks on the CPU threads. Prints the first error to stderr.
Fault run(const Launch &launch);

} // namespace emu
