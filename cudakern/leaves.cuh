// The order in which products of many rows take the blocks of inputs, that of the tree in which matmul.cu adds the sums of lanes: all blocks of
// lane 0, then 16, 8, 24, 4 … Each lane is a leaf. So one accumulator suffices for the leaf at hand, and one sum for each level of the tree.
//
// Where there are too few thread blocks for all multiprocessors, 2 or 4 of them compute the same results, each a part of the leaves
// that is a tree of its own. The last one that is done adds the sums of all parts, which is the rest of the tree: so the bits do not
// change.
#pragma once

#include "arrivals.cuh"
#include "tile.cuh"

// Returns leaf with its five bits reversed: the first of its blocks, which are TILE_BLOCKS apart.
DEVICE int lane_of(int leaf) { return __brev(leaf) >> 27; }

// What a thread block computes of the leaves, and where parts wait for the others: nowhere if there is one.
struct Parts {
	float4 *sums;       // [thread block of X and Y][part][4 sums][thread]
	unsigned *arrivals; // of thread blocks, 0 between launches
};

DEVICE int leaves_of_part() { return 32 / gridDim.z; }
DEVICE int first_leaf() { return blockIdx.z * leaves_of_part(); }

// Sets acc to the sum of all parts and returns true in the last thread block that has one; the others store theirs. shared is memory that the
// block no longer needs.
template <int THREADS, int COUNT> DEVICE bool add_parts(float (&acc)[COUNT], const Parts &parts, uint8_t *shared)
{
	const int EACH = COUNT / 4;
	const unsigned count = gridDim.z, block = blockIdx.y * gridDim.x + blockIdx.x;
	float4 *const all = parts.sums + size_t(block) * count * EACH * THREADS + threadIdx.x;
	UNROLL for (int i = 0; i < EACH; i++)
		all[(blockIdx.z * EACH + i) * THREADS] = make_float4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
	if (!is_last(parts.arrivals + block, count, reinterpret_cast<int *>(shared)))
		return false;
	UNROLL for (int i = 0; i < EACH; i++) {
		const auto of_part = [&](int part) { return __ldcg(all + (part * EACH + i) * THREADS); };
		const auto sum = [](float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); };
		float4 v = sum(of_part(0), of_part(1));
		if (count == 4)
			v = sum(v, sum(of_part(2), of_part(3)));
		acc[4 * i] = v.x, acc[4 * i + 1] = v.y, acc[4 * i + 2] = v.z, acc[4 * i + 3] = v.w;
	}
	return true;
}
