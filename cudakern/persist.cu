// A resident kernel that decodes: persist_<weights>. Its blocks stay on the device from step to step. Block 0 takes the
// inputs of a step from a ring that the host writes (ring.cuh), all blocks walk the list of launches that a graph would
// be captured from, and block 0 answers with the candidates. The blocks divide those of each launch among
// them, and meet at a barrier before a launch that reads what an earlier one wrote. The kernels are those of
// the sources included below, unchanged, so the results have the same bits.
//
// In here a kernel is a function: a phase. blockIdx is the block of its launch that it computes, and gridDim the
// grid of the launch. Kernels for 128 threads run in the two halves of a block, which do not wait for each other.
//
// While blocks wait for others, they request the weights of the next products for the L2 cache. What the kernel
// itself writes must not be loaded through the read-only path, which is not coherent: all ldg* are loads from the
// L2 cache here, and a test looks for others in the compiled code.
//
// Compiled for one weight type, and a cache of float16.
#ifndef EMU
#include <cuda_fp16.h>
#include <utility>
#define __ldg(p) __ldcg(p)
#endif

#define CACHE_F16
#include "barrier.cuh"
#include "ring.cuh"

// ---------------------------------------------------------------------------------------
// Lists of launches and programs, in device memory; persist.go writes them

struct Extent { uint32_t x, y, z; };

struct Launch {
	uint32_t kernel;                          // hash of its name
	uint32_t flags;
	uint32_t parts;                           // 0: its blocks have 256 threads; else 128, and so many of them run side by side
	uint32_t part_bytes;                      // shared memory of each
	Extent grid;
	uint32_t blocks;                          // of the grid
	struct { uint64_t begin, end; } ahead[4]; // memory to request for the L2 cache behind it
	uint64_t values[40];                      // parameters
};

enum {
	MEETS = 1, // all blocks meet behind the launch
	KEEPS = 2, // the logits are complete, and are copied beside it
};

// What a command names: the launches of a step, and the memory that it takes its inputs from and leaves its results in.
struct Program {
	const Launch *launches;
	uint32_t *inputs;         // the data of commands is copied there
	uint32_t *tokens;         // among the inputs
	const uint32_t *drawn;    // tokens that the step before drew
	const uint4 *results;     // candidates of each output row
	const float *logits;      // of each output row
	float *kept[2];           // copies of the logits, for the slots of commands
	uint32_t *stamps;         // null, or gets two clocks of each block and launch
	uint32_t count;           // launches
	uint32_t vocab;           // logits of a row
	uint32_t result_units;    // of a row, 16 bytes each
	uint32_t unused[3];
};

// Arguments of a command, which has the inputs of a step as data; no data: they are as they were.
enum {
	STEP_AHEAD, // rows whose tokens are those that the step before drew
	STEP_OUTS,  // output rows
	STEP_SLOT,  // of the kept logits
};

// ---------------------------------------------------------------------------------------
// What phases see

enum { WARPS_OF_BLOCK = 8, PART_THREADS = 128, PARTS = 2 };

// What a warp computes: a block of the launch.
struct Place {
	Extent block, grid;
	uint32_t parts;  // as in Launch
	uint32_t memory; // where the shared memory of the phase begins
};

// The first shared memory of a block; that of its phases follows.
struct Head {
	Place places[WARPS_OF_BLOCK];
	struct { uint32_t arrived, generation; } barriers[PARTS]; // of halves, in the emulation
	uint32_t padding[4];
	Launch launches[2]; // the current and the next one, in turn
	Program program;
	Ring ring;        // of block 0
	uint64_t beat_at; // when it last told the host that it is alive, in a command
	uint64_t unused;
};

enum { HEAD_BYTES = sizeof(Head), LAUNCH_UNITS = sizeof(Launch) / 16 };
static_assert(HEAD_BYTES == 1280 && sizeof(Program) == 96, "as persistHead and programBytes in persist.go");
static_assert(HEAD_BYTES % 16 == 0 && sizeof(Launch) % 16 == 0 && LAUNCH_UNITS <= int(WARP) && sizeof(Program) % 16 == 0, "a warp copies launches and programs in units of 16 bytes");

DEVICE unsigned char *block_memory(void)
{
#ifdef EMU
	return static_cast<unsigned char *>(emu::self->block->shared);
#else
	extern __shared__ __align__(16) unsigned char block_shared[];
	return block_shared;
#endif
}

DEVICE Head &head(void) { return *reinterpret_cast<Head *>(block_memory()); }
DEVICE Place &place(void) { return head().places[threadIdx.x / WARP]; }
DEVICE unsigned own_block(void) { return blockIdx.x; } // of the resident kernel
DEVICE unsigned all_blocks(void) { return gridDim.x; }

// The half of the block that the thread belongs to.
DEVICE unsigned part(void) { return threadIdx.x / PART_THREADS; }

#ifdef EMU

// Barrier for the threads of a half.
inline void sync_part(EMU_CALLER)
{
	auto &b = head().barriers[part()];
	const uint32_t generation = b.generation;
	if (++b.arrived == PART_THREADS) {
		b.arrived = 0;
		b.generation++;
	} else
		emu::wait_word(&b.generation, [=](uint32_t g) { return g != generation; }, false, uint64_t(1) << 40, file, line);
}

// Barrier for the threads of the phase's block.
inline void sync_phase(EMU_CALLER)
{
	if (place().parts == 0)
		syncthreads(file, line);
	else
		sync_part(file, line);
}

#else

DEVICE void sync_part(void) { asm volatile("bar.sync %0, 128;" ::"r"(1 + part()) : "memory"); }

DEVICE void sync_phase(void)
{
	if (place().parts == 0)
		syncthreads();
	else
		sync_part();
}

#endif

// The index of a thread in its half, and in the phase's block, and the latter's number of threads.
struct Number { unsigned x; };
DEVICE Number thread_of_part(void) { return {threadIdx.x % PART_THREADS}; }
DEVICE Number thread_of_phase(void) { return {place().parts == 0 ? threadIdx.x : threadIdx.x % PART_THREADS}; }
DEVICE Number threads_of_phase(void) { return {place().parts == 0 ? 256u : unsigned(PART_THREADS)}; }

#pragma push_macro("blockIdx")
#pragma push_macro("gridDim")
#pragma push_macro("KERNEL")
#pragma push_macro("SHARED")
#undef blockIdx
#undef gridDim
#undef KERNEL
#undef SHARED
#define blockIdx (place().block)
#define gridDim (place().grid)
#define KERNEL(name, threads, blocks) DEVICE void name
#define SHARED(type, name) type *const name = reinterpret_cast<type *>(block_memory() + HEAD_BYTES)

// Headers that are the same for all.
#include "activation.cuh"
#include "experts.cuh"
#include "image.cuh"
#include "kvcache.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "overlap.cuh"
#include "tile.cuh"

// rope.cuh serves blocks of both sizes.
#pragma push_macro("threadIdx")
#pragma push_macro("blockDim")
#undef threadIdx
#undef blockDim
#define threadIdx thread_of_phase()
#define blockDim threads_of_phase()
#define syncthreads() sync_phase()
#include "rope.cuh"
#undef syncthreads
#pragma pop_macro("blockDim")
#pragma pop_macro("threadIdx")

namespace of_activations {
#include "activation.cu"
#undef IMAGES
}
namespace of_candidates {
#include "candidates.cu"
}
namespace of_norms {
#include "rmsnorm.cu"
}
namespace of_rope {
#include "rope.cu"
}
namespace of_rows {
#include "rows.cu"
}
namespace of_cache {
#include "storekv.cu"
}
namespace of_weights {
#include "embed.cu"
#include "matmul.cu"
}

// Kernels for 128 threads.
#pragma push_macro("threadIdx")
#pragma push_macro("blockDim")
#undef threadIdx
#undef blockDim
#undef SHARED
#define SHARED(type, name) type *const name = reinterpret_cast<type *>(block_memory() + place().memory)
#define threadIdx thread_of_part()
#define blockDim (Number{PART_THREADS})
#define syncthreads() sync_part()
#define warp_id() int(thread_of_part().x / WARP)
namespace of_attention {
#include "attention.cu"
}
#undef warp_id
#undef syncthreads
#pragma pop_macro("blockDim")
#pragma pop_macro("threadIdx")

#pragma pop_macro("SHARED")
#pragma pop_macro("KERNEL")
#pragma pop_macro("gridDim")
#pragma pop_macro("blockIdx")

using namespace of_activations;
using namespace of_attention;
using namespace of_cache;
using namespace of_candidates;
using namespace of_norms;
using namespace of_rope;
using namespace of_rows;
using namespace of_weights;

// ---------------------------------------------------------------------------------------
// The phases

#if SCALE_BYTES == 0
#define UNITS float
#define IMAGE f32
#elif defined(EXACT)
#define UNITS dp2a
#define IMAGE i16
#else
#define UNITS i16
#define IMAGE i16
#endif

#define JOIN(a, b, c, d) JOIN_NAMED(a, b, c, d)
#define JOIN_NAMED(a, b, c, d) a##b##c##d
#define PRODUCT_PHASES(X, weight, units) PRODUCT_PHASES_NAMED(X, weight, units)
#define PRODUCT_PHASES_NAMED(X, weight, units) X(matmul_##weight##_##units##_n1) X(matmul_##weight##_##units##_n2) X(matmul_##weight##_##units##_n4)
#define ATTENTION_PHASES(X, dims) X(attention_f16_d##dims##_n1) X(attention_f16_d##dims##_n2) X(attention_f16_d##dims##_n4) X(attention_f16_d##dims##_n8)

// Heads of up to 32 elements: only small models of tests have them.
#ifdef EMU
#define TEST_PHASES(X) ATTENTION_PHASES(X, 32)
#else
#define TEST_PHASES(X)
#endif

#define PHASES(X) \
	X(JOIN(embed_, WEIGHT, , )) \
	X(JOIN(activation_, IMAGE, , )) X(JOIN(activation_, IMAGE, _rmsnorm, )) X(JOIN(activation_, IMAGE, _glu, )) \
	PRODUCT_PHASES(X, WEIGHT, UNITS) \
	ATTENTION_PHASES(X, 64) ATTENTION_PHASES(X, 128) TEST_PHASES(X) \
	X(storekv_f16) X(storekv_rope_f16) X(rope) X(rmsnorm) \
	X(add_rows) X(add_bias) X(glu) X(scale_rows) X(gather_rows) \
	X(candidates_part) X(candidates_merge)

// FNV-1a: hashOf in persist.go.
DEVICE constexpr uint32_t hash_of(const char *name)
{
	uint32_t h = 2166136261u;
	while (*name)
		h = (h ^ uint8_t(*name++)) * 16777619u;
	return h;
}

#ifdef EMU
#define CALLED static __attribute__((noinline))
#else
#define CALLED static __device__ __noinline__
#endif

// The function that runs a phase with its parameters, which are in the block's shared memory from byte at on. It
// is not inlined, so that the compiler gives registers to each phase by itself.
template <auto F> struct Caller;

template <typename... P, void (*F)(P...)> struct Caller<F> {
	CALLED void run(unsigned at) { run_with(at, std::index_sequence_for<P...>()); }

private:
	template <size_t... I> DEVICE void run_with(unsigned at, std::index_sequence<I...>) { F(value<P>(at + 8 * I)...); }
	template <typename T> DEVICE T value(unsigned at)
	{
		T v;
		memcpy(&v, block_memory() + at, sizeof v);
		return v;
	}
};

DEVICE void run_phase(uint32_t kernel, unsigned values)
{
	switch (kernel) {
#define RUN(name) RUN_NAMED(name)
#define RUN_NAMED(name) \
	case hash_of(#name): \
		Caller<name>::run(values); \
		break;
		PHASES(RUN)
	}
}

DEVICE bool is_phase(uint32_t kernel)
{
	switch (kernel) {
#define IS(name) IS_NAMED(name)
#define IS_NAMED(name) case hash_of(#name):
		PHASES(IS)
		return true;
	}
	return false;
}

// ---------------------------------------------------------------------------------------
// The walk

// Runs the block's share of a launch.
DEVICE void run_launch(const Launch &l)
{
	const unsigned parts = max(l.parts, 1u), first = own_block() + (l.parts == 0 ? 0 : part()) * all_blocks();
	const bool leads = threadIdx.x % WARP == 0;
	const unsigned values = unsigned(reinterpret_cast<const unsigned char *>(l.values) - block_memory());
	Place &p = place();
	if (leads)
		p.grid = l.grid, p.parts = l.parts, p.memory = HEAD_BYTES + (l.parts == 0 ? 0 : part()) * l.part_bytes;
	if (l.parts > 0 && part() >= l.parts)
		return;
	for (unsigned block = first; block < l.blocks; block += parts * all_blocks()) {
		if (leads)
			p.block = {block % l.grid.x, block / l.grid.x % l.grid.y, block / l.grid.x / l.grid.y};
		syncwarp();
		run_phase(l.kernel, values);
		sync_phase(); // shared memory may still be read
	}
}

// Copies a launch or a program to shared memory, up to 512 bytes. A warp calls it.
template <typename T> DEVICE void copy_record(T *to, const T *from)
{
	const int lane = threadIdx.x % WARP;
	if (lane < int(sizeof(T) / 16))
		reinterpret_cast<uint4 *>(to)[lane] = __ldcg(reinterpret_cast<const uint4 *>(from) + lane);
}

// Requests the block's share of what comes next.
DEVICE void request_ahead([[maybe_unused]] const Launch &l)
{
#ifndef EMU
	for (int i = 0; i < 4; i++) {
		const uint64_t stride = uint64_t(all_blocks()) * blockDim.x * 128;
		for (uint64_t at = l.ahead[i].begin + (uint64_t(own_block()) * blockDim.x + threadIdx.x) * 128; at < l.ahead[i].end; at += stride)
			asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
	}
#endif
}

// How long a block waits for the others, in nanoseconds, before all give up; before a command beside the time for which
// block 0 waits for one.
constexpr uint64_t PATIENCE = 10000000000;

// After how long block 0 tells the host how far a step is, in nanoseconds. Most steps are shorter.
constexpr uint64_t BEAT = 20000000;

// Stores the clock of the block's multiprocessor: when it begins with launch i, and when it is done.
DEVICE void stamp([[maybe_unused]] const Program &p, [[maybe_unused]] unsigned i, [[maybe_unused]] int done)
{
#ifndef EMU
	if (p.stamps && threadIdx.x == 0)
		p.stamps[(size_t(own_block()) * p.count + i) * 2 + done] = uint32_t(clock64());
#endif
}

// Tells the host that the kernel has not stopped. Thread 0 of block 0.
DEVICE void beat(uint32_t at)
{
	Head &h = head();
	const uint64_t now = device_time();
	if (now - h.beat_at > BEAT) {
		h.beat_at = now;
		ring_beat(&h.ring, at);
	}
}

// Copies the logits of rows rows: the host may read them while the next step is computed. The blocks that launch l leaves idle do it.
DEVICE void keep_logits(const Launch &l, unsigned rows, unsigned slot)
{
	const Program &p = head().program;
	const unsigned first = l.blocks < all_blocks() ? l.blocks : 0;
	if (own_block() < first)
		return;
	const size_t n = size_t(rows) * p.vocab, stride = size_t(all_blocks() - first) * blockDim.x;
	for (size_t i = size_t(own_block() - first) * blockDim.x + threadIdx.x; i < n; i += stride)
		p.kept[slot][i] = __ldcg(p.logits + i);
}

// Runs the launches of the block's program. Returns false if blocks have waited for each other for too long.
DEVICE bool walk(Grid *grid, unsigned outs, unsigned slot)
{
	Head &h = head();
	const bool copies = warp_id() == 1, beats = own_block() == 0 && threadIdx.x == 0; // warp 0 polls
	if (copies)
		copy_record(&h.launches[0], h.program.launches);
	syncthreads();
	for (unsigned i = 0; i < h.program.count; i++) {
		const Launch &l = h.launches[i % 2];
		stamp(h.program, i, 0);
		run_launch(l);
		if (l.flags & KEEPS)
			keep_logits(l, outs, slot);
		stamp(h.program, i, 1);
		if (l.flags & MEETS)
			arrive(*grid);
		else
			syncthreads();
		if (copies && i + 1 < h.program.count)
			copy_record(&h.launches[(i + 1) % 2], h.program.launches + i + 1);
		request_ahead(l);
		if (beats)
			beat(i + 1);
		if (!(l.flags & MEETS))
			syncthreads();
		else if (!wait_for_grid(grid, PATIENCE))
			return false;
	}
	return true;
}

// ---------------------------------------------------------------------------------------
// Commands

// Takes a command from the ring, copies its data to the inputs of its program, and the tokens that the step before drew. Block 0.
DEVICE void take_step(Order *order, const Program *programs)
{
	Head &h = head();
	uint4 unit = {};
	ring_take(&h.ring, order, &unit);
	if (load_word(&order->leave))
		return;
	const Program &p = programs[load_word(&order->program)];
	ring_copy(&h.ring, order, unit, p.inputs);
	syncthreads();
	if (threadIdx.x < load_word(&order->args[STEP_AHEAD]))
		p.tokens[threadIdx.x] = load_word(p.drawn + threadIdx.x);
	if (threadIdx.x == 0)
		h.beat_at = device_time();
}

// Answers the command with the candidates of its output rows. Block 0.
DEVICE void answer_step(const Order *order, unsigned outs)
{
	Head &h = head();
	const Program &p = h.program;
	::Result *const result = ring_result(h.ring, load_word(&order->number));
	const unsigned units = outs * p.result_units;
	for (unsigned i = threadIdx.x; i < units; i += blockDim.x)
		reinterpret_cast<uint4 *>(result->data)[i] = __ldcg(p.results + i);
	ring_answer(&h.ring, RESULT_DONE, 4 * units);
}

#if defined(EXACT)
#define WALKER(what) JOIN(persist_exact_, WEIGHT, what, )
#else
#define WALKER(what) JOIN(persist_, WEIGHT, what, )
#endif

// Answers the commands of a ring. idle is for how long block 0 waits for one, in nanoseconds.
RESIDENT(WALKER(), 256, 2)(void *ring, Barrier *barrier, Order *order, const Program *programs, uint64_t idle)
{
	Head &h = head();
	Grid grid = join_grid(barrier);
	if (own_block() == 0 && threadIdx.x == 0)
		h.ring = ring_open(ring);
#ifdef EMU
	if (threadIdx.x < PARTS)
		h.barriers[threadIdx.x] = {0, 0};
#endif
	syncthreads();
	uint32_t leave = 0;
	while (leave == 0) {
		if (own_block() == 0)
			take_step(order, programs);
		leave = meet(&grid, idle + PATIENCE) ? load_word(&order->leave) : uint32_t(LEFT_BROKEN);
		if (leave)
			break;
		const unsigned outs = load_word(&order->args[STEP_OUTS]), slot = load_word(&order->args[STEP_SLOT]);
		if (warp_id() == 1)
			copy_record(&h.program, programs + load_word(&order->program));
		syncthreads();
		if (!walk(&grid, outs, slot))
			leave = LEFT_BROKEN;
		else if (own_block() == 0)
			answer_step(order, outs);
	}
	if (own_block() == 0 && threadIdx.x == 0)
		ring_leave(&h.ring, leave);
}

// found[i] = whether kernels[i], a hash, is a phase. One block.
KERNEL(WALKER(_has), 256, 1)(int *found, const uint32_t *kernels, int n)
{
	for (int i = threadIdx.x; i < n; i += 256)
		found[i] = is_phase(kernels[i]);
}
