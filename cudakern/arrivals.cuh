// Blocks that compute parts of one result: the last one that is done adds them.
#pragma once

#include "kernel.cuh"

// Counts the blocks that have stored their part of a result in *arrivals, which returns to 0, and reports to all threads whether this one is the
// last of blocks. flag is shared memory. What the other blocks have stored is loaded with __ldcg: not through the read-only cache.
DEVICE bool is_last(unsigned *arrivals, int blocks, int *flag)
{
	__threadfence();
	syncthreads();
	if (threadIdx.x == 0)
		*flag = atomicInc(arrivals, blocks - 1) == unsigned(blocks - 1);
	syncthreads();
	__threadfence();
	return *flag;
}
