// Measures memory bandwidth, the bound for matrix products of one row: sums[block] = the sum of the words
// that the thread block has read.
//
// A thread issues four loads of 16 bytes before it adds, to keep enough of them in flight. Grid: any
// number of blocks; they divide the units of 16 bytes among them.
#include "kernel.cuh"

DEVICE uint32_t sum_of(uint4 v) { return v.x + v.y + v.z + v.w; }

KERNEL(memory_read, 256, 4)(uint32_t *sums, const uint4 *src, long long units)
{
	SHARED(uint32_t, warps);
	const long long stride = (long long)gridDim.x * blockDim.x;
	long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t sum = 0;
	for (; i + 3 * stride < units; i += 4 * stride) {
		uint4 a = ldg128(src + i), b = ldg128(src + i + stride);
		uint4 c = ldg128(src + i + 2 * stride), d = ldg128(src + i + 3 * stride);
		sum += sum_of(a) + sum_of(b) + sum_of(c) + sum_of(d);
	}
	for (; i < units; i += stride)
		sum += sum_of(ldg128(src + i));
	UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2)
		sum += shfl_xor(sum, mask);
	if (lane_id() == 0)
		warps[warp_id()] = sum;
	syncthreads();
	if (threadIdx.x == 0) {
		sum = 0;
		for (int w = 0; w < int(blockDim.x) / WARP; w++)
			sum += warps[w];
		sums[blockIdx.x] = sum;
	}
}
