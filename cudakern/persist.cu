// A resident kernel that decodes: persist_<weights>. Its blocks stay on the device from step to step. Block 0 takes the
// inputs of a step from a ring that the host writes (ring.cuh), all blocks walk the list of launches that a graph would
// be captured from, and block 0 answers with the candidates. The blocks divide those of each launch among
// them, and meet at a barrier before a launch that reads what an earlier one wrote. The kernels are those of
// the sources included below, unchanged, so the results have the same bits.
//
// In here a kernel is a function: a phase. blockIdx is the block of its launch that it computes, and gridDim the
// grid of the launch. All have 256 threads.
//
// Launches that may overlap in a stream (overlap.cuh) overlap here, too: such a phase begins while other blocks still compute
// what it needs, requests its first weights, or keys and values of earlier steps, and meets the others in wait_for_previous. In front
// of any other phase, blocks meet before it begins.
//
// What the kernel itself writes must not be loaded through the read-only path, which is not coherent: all ldg* are loads from the
// L2 cache here, and a test looks for others in the compiled code.
//
// Compiled for one weight type, and caches of float16, Q8_0 and Q4_0.
#ifndef EMU
#include <cuda_fp16.h>
#include <type_traits>
#include <utility>
#define __ldg(p) __ldcg(p)
#endif
#define READ_ONLY "ld.global.cg" // of request in attention_heads.cu

#define CACHE_F16
#define ALL_HEADS
#include "barrier.cuh"
#include "ring.cuh"

// ---------------------------------------------------------------------------------------
// Lists of launches and programs, in device memory; persist.go writes them

struct Extent { uint32_t x, y, z; };

struct Launch {
	uint32_t kernel; // hash of its name
	uint32_t flags;
	Extent grid;
	uint32_t blocks; // of the grid
	uint32_t unused[2];
	uint64_t values[40]; // parameters
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
	float *kept;              // copies of the logits, for each slot of a command
	uint64_t kept_logits;     // of a slot
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

enum { BLOCK_THREADS = 256, WARPS_OF_BLOCK = BLOCK_THREADS / WARP };

// What a warp computes: a block of a launch.
struct Standing {
	Extent block, grid;
	uint32_t launch; // its number
	uint32_t state;  // State
};

// How a warp stands to the last meeting of all blocks, of which the launch needs to know: what comes before it is done.
enum State { MET, WAITS, BROKEN };

// The first shared memory of a block; that of its phases follows.
struct Head {
	Standing places[WARPS_OF_BLOCK];
	Grid grid;          // of thread 0
	Launch launches[2]; // the current and the next one, in turn
	Program program;
	Ring ring;        // of block 0
	uint64_t beat_at; // when it last told the host that it is alive, in a command
	uint64_t unused;
};

enum { HEAD_BYTES = sizeof(Head), LAUNCH_UNITS = sizeof(Launch) / 16 };
static_assert(HEAD_BYTES == 1136 && sizeof(Program) == 96, "as persistHead and programBytes in persist.go");
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
DEVICE Standing &place(void) { return head().places[threadIdx.x / WARP]; }
DEVICE unsigned own_block(void) { return blockIdx.x; } // of the resident kernel
DEVICE unsigned all_blocks(void) { return gridDim.x; }

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
#include "again.cuh"
#include "copies.cuh"
#include "experts.cuh"
#include "formats.cuh"
#include "image.cuh"
#include "kvcache.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "overlap.cuh"
#include "rope.cuh"
#include "tile.cuh"

#define begin_next() static_cast<void>(0)
#define wait_for_previous() wait_for_blocks()
DEVICE void wait_for_blocks(void);

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
#include "storekv_any.cu"
}
namespace of_weights {
#include "embed.cu"
#include "matmul_row.cu"
}
namespace of_attention {
#include "attention_heads.cu"
}

#undef wait_for_previous
#undef begin_next
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
#define PRODUCT_PHASE(what) PRODUCT_PHASE_OF(WEIGHT, UNITS, what)
#define PRODUCT_PHASE_OF(weight, units, what) PRODUCT_PHASE_NAMED(weight, units, what)
#define PRODUCT_PHASE_NAMED(weight, units, what) matmul_##weight##_##units##_##what

// Those that call wait_for_previous.
#define EARLY_PHASES(X) \
	X(PRODUCT_PHASE(norm)) X(PRODUCT_PHASE(glu)) X(PRODUCT_PHASE(one)) \
	X(attention_heads_d64_n2) X(attention_heads_d64_n4) X(attention_heads_d128_n2) X(attention_heads_d128_n4) \
	X(attention_heads_quantized_d64_n2) X(attention_heads_quantized_d64_n4) X(attention_heads_quantized_d128_n2) X(attention_heads_quantized_d128_n4)

#define OTHER_PHASES(X) \
	X(JOIN(embed_, WEIGHT, , )) \
	X(JOIN(activation_, IMAGE, , )) X(JOIN(activation_, IMAGE, _rmsnorm, )) X(JOIN(activation_, IMAGE, _glu, )) \
	X(PRODUCT_PHASE(n1)) X(PRODUCT_PHASE(n2)) X(PRODUCT_PHASE(n4)) \
	X(storekv_f16) X(storekv_rope_f16) X(storekv_any) X(rope) X(rmsnorm) \
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

// The place of a value in shared memory, as an address that the compiler knows to be there.
DEVICE unsigned place_of(const void *p) { return unsigned(static_cast<const unsigned char *>(p) - block_memory()); }

// Returns a parameter, the first or second half of a unit.
template <typename T> DEVICE T parameter(const uint4 &unit, bool second)
{
	const uint32_t low = second ? unit.z : unit.x, high = second ? unit.w : unit.y;
	if constexpr (sizeof(T) == sizeof low) {
		T v;
		memcpy(&v, &low, sizeof v);
		return v;
	} else {
		const uint64_t bits = uint64_t(high) << 32 | low;
		if constexpr (std::is_pointer_v<T>)
			return static_cast<T>(in_device_memory(bits));
		else
			return bits;
	}
}

// The function that runs a phase with its parameters, which are in the block's shared memory from byte at on. It
// is not inlined, so that the compiler gives registers to each phase by itself.
template <auto F> struct Caller;

template <typename... P, void (*F)(P...)> struct Caller<F> {
	CALLED void run(unsigned at) { run_with(reinterpret_cast<const uint4 *>(block_memory() + at), std::index_sequence_for<P...>()); }

private:
	template <size_t... I> DEVICE void run_with(const uint4 *values, std::index_sequence<I...>)
	{
		uint4 units[(sizeof...(P) + 1) / 2];
		UNROLL for (size_t i = 0; i < sizeof units / sizeof *units; i++)
			units[i] = values[i];
		F(parameter<P>(units[I / 2], I % 2)...);
	}
};

// at: as for Caller.
DEVICE void run_phase(uint32_t kernel, unsigned at)
{
	switch (kernel) {
#define RUN(name) RUN_NAMED(name)
#define RUN_NAMED(name) \
	case hash_of(#name): \
		Caller<name>::run(at); \
		break;
		EARLY_PHASES(RUN)
		OTHER_PHASES(RUN)
	}
}

#define IS(name) IS_NAMED(name)
#define IS_NAMED(name) case hash_of(#name):

DEVICE bool begins_early(uint32_t kernel)
{
	switch (kernel) {
		EARLY_PHASES(IS)
		return true;
	}
	return false;
}

DEVICE bool is_phase(uint32_t kernel)
{
	switch (kernel) {
		OTHER_PHASES(IS)
		return true;
	}
	return begins_early(kernel);
}

// ---------------------------------------------------------------------------------------
// The walk

// Copies a launch or a program to shared memory, up to 512 bytes. A warp calls it.
template <typename T> DEVICE void copy_record(T *to, const T *from)
{
	const int lane = threadIdx.x % WARP;
	if (lane < int(sizeof(T) / 16))
		reinterpret_cast<uint4 *>(to)[lane] = __ldcg(reinterpret_cast<const uint4 *>(from) + lane);
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

// Copies launch number i of the program to shared memory, if there is one. One warp does it.
DEVICE void copy_launch(unsigned i)
{
	Head &h = head();
	if (warp_id() == 1 && i < h.program.count) // warp 0 polls
		copy_record(&h.launches[i % 2], h.program.launches + i);
}

// Meets all blocks, unless the warp has met them. All threads of the block call it. Meanwhile the next launch is copied.
DEVICE void wait_for_blocks(void)
{
	Head &h = head();
	Standing &p = place();
	if (p.state != WAITS)
		return;
	copy_launch(p.launch + 1);
	const bool met = wait_for_grid(&h.grid, PATIENCE);
	if (lane_id() == 0)
		p.state = met ? MET : BROKEN;
	syncwarp();
	stamp(h.program, p.launch, 0);
}

// Copies the logits of rows rows: the host may read them while the next step is computed. The blocks that launch l leaves idle do it.
DEVICE void keep_logits(const Launch &l, unsigned rows, unsigned slot)
{
	const Program &p = head().program;
	const unsigned first = l.blocks < all_blocks() ? l.blocks : 0;
	if (own_block() < first)
		return;
	float *kept = p.kept + slot * p.kept_logits;
	const size_t n = size_t(rows) * p.vocab, stride = size_t(all_blocks() - first) * blockDim.x;
	for (size_t i = size_t(own_block() - first) * blockDim.x + threadIdx.x; i < n; i += stride)
		kept[i] = __ldcg(p.logits + i);
}

// Runs the block's share of launch number i of the program. waits: blocks are to meet before. Returns false if they have waited for each
// other for too long.
DEVICE bool run_launch(const Launch &l, unsigned i, bool waits)
{
	Standing &p = place();
	const bool leads = lane_id() == 0;
	if (leads)
		p.grid = l.grid, p.launch = i, p.state = waits ? WAITS : MET;
	syncwarp();
	if (!waits)
		stamp(head().program, i, 0);
	if (!begins_early(l.kernel))
		wait_for_blocks();
	for (unsigned block = own_block(); block < l.blocks; block += all_blocks()) {
		if (leads)
			p.block = {block % l.grid.x, block / l.grid.x % l.grid.y, block / l.grid.x / l.grid.y};
		syncwarp();
		run_phase(l.kernel, place_of(l.values));
		syncthreads(); // shared memory may still be read
	}
	wait_for_blocks();
	return p.state != BROKEN;
}

// Runs the launches of the block's program. Returns false if blocks have waited for each other for too long.
DEVICE bool walk(unsigned outs, unsigned slot)
{
	Head &h = head();
	const bool beats = own_block() == 0 && threadIdx.x == 0;
	bool waits = false;
	copy_launch(0);
	syncthreads();
	for (unsigned i = 0; i < h.program.count; i++) {
		const Launch &l = h.launches[i % 2];
		if (!run_launch(l, i, waits))
			return false;
		if (l.flags & KEEPS)
			keep_logits(l, outs, slot);
		stamp(h.program, i, 1);
		if (!waits)
			copy_launch(i + 1);
		waits = l.flags & MEETS;
		if (waits)
			arrive(h.grid);
		else
			syncthreads();
		if (beats)
			beat(i + 1);
	}
	return !waits || wait_for_grid(&h.grid, PATIENCE);
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
RESIDENT(WALKER(), BLOCK_THREADS, 2)(void *ring, Barrier *barrier, Order *order, const Program *programs, uint64_t idle)
{
	Head &h = head();
	if (threadIdx.x == 0)
		h.grid = join_grid(barrier);
	if (own_block() == 0 && threadIdx.x == 0)
		h.ring = ring_open(ring);
	syncthreads();
	uint32_t leave = 0;
	while (leave == 0) {
		if (own_block() == 0)
			take_step(order, programs);
		leave = meet(&h.grid, idle + PATIENCE) ? load_word(&order->leave) : uint32_t(LEFT_BROKEN);
		if (leave)
			break;
		const unsigned outs = load_word(&order->args[STEP_OUTS]), slot = load_word(&order->args[STEP_SLOT]);
		if (warp_id() == 1)
			copy_record(&h.program, programs + load_word(&order->program));
		syncthreads();
		if (!walk(outs, slot))
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
