// A barrier for all blocks of a resident kernel. It needs no cooperative launch, which sm_52 lacks.
//
// Memory order: what any thread of any block stores before it arrives, every thread of every block can load
// after it has waited, unless it loads through the read-only cache (ldg*, __ldg), which may keep what
// it loaded before. In detail:
//
//  1. syncthreads orders the stores of the block's threads before thread 0.
//  2. Thread 0 calls fence and adds 1 to arrived. The fence is cumulative: the stores of the whole
//     block are visible to the device before the addition is.
//  3. Thread 0 polls arrived with volatile loads until all blocks have added, and calls fence, so
//     that no load of the block after the barrier returns what was in memory or in the L1 cache before.
//  4. syncthreads orders thread 0 before the other threads.
//
// arrived only grows, and wraps around: the barrier number n, from 1, is passed when base + n · blocks have
// arrived. So nothing is reset between two barriers, and no block has to release the others.
//
// A block that waits for too long gives up: it sets error and adds BARRIER_BROKEN to arrived, by which all
// others give up too, here or at their next barrier. The kernel must end then. The host initialises the barrier
// before each launch.
#pragma once

#include "resident.cuh"

// In device memory.
struct Barrier {
	uint32_t arrived;  // initially base
	uint32_t base;
	uint32_t error;   // 1 + the block that gave up first; 0: none
	uint32_t missing; // how many blocks it waited for
};

enum { BARRIER_BROKEN = 1 << 30 }; // far more than there are blocks

// The barrier as thread 0 of a block sees it. All threads may have one, or share it.
struct Grid {
	Barrier *barrier;
	uint32_t target; // of arrived, at the next barrier
};

// Orders what the block has stored and loaded before it, and stores and loads after it. A block has no use for the single order of
// all fences that __threadfence has in addition, from compute capability 7.0 on.
DEVICE void fence(void)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 700
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
	__threadfence();
#endif
}

DEVICE Grid join_grid(Barrier *b) { return {b, load_word(&b->base) + gridDim.x}; }

// Arrives at the next barrier without waiting. What the block stores from here on is ordered by the barrier
// after that one. All threads call it.
DEVICE void arrive(const Grid &grid CALLER)
{
	syncthreads(PASS_ONLY_CALLER);
	if (threadIdx.x == 0) {
		fence();
		atomicAdd(&grid.barrier->arrived, 1u);
	}
}

// Waits until all blocks have arrived, for at most the given time. All threads call it. Returns false in all
// threads if a block has given up.
DEVICE bool wait_for_grid(Grid *grid, uint64_t nanoseconds CALLER)
{
	bool failed = false;
	if (threadIdx.x == 0) {
		Barrier *b = grid->barrier;
		int ahead = 0; // of the target
		const uint32_t target = grid->target;
		const bool passed = wait_until(&b->arrived, [&](uint32_t arrived) { return (ahead = int(arrived - target)) >= 0; }, nanoseconds PASS_CALLER);
		failed = !passed || ahead >= BARRIER_BROKEN / 2;
		if (!passed && atomicCAS(&b->error, 0u, blockIdx.x + 1) == 0) {
			store_word(&b->missing, uint32_t(-ahead));
			__threadfence();
			atomicAdd(&b->arrived, uint32_t(BARRIER_BROKEN));
		}
		fence();
		grid->target = target + gridDim.x;
	}
	return !any_of_block(failed PASS_CALLER);
}

// Meets all blocks.
DEVICE bool meet(Grid *grid, uint64_t nanoseconds CALLER)
{
	arrive(*grid PASS_CALLER);
	return wait_for_grid(grid, nanoseconds PASS_CALLER);
}
