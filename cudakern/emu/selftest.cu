// Kernels that test what all kernels rely on: arguments, shuffles, barriers, shared memory, atomics.
// Tests of the driver binding and of the emulator run them.
#include "../kernel.cuh"

// dst[i] = a · src[i] + b
KERNEL(selftest_affine, 256, 4)(float *dst, const float *src, float a, float b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		dst[i] = fmaf(a, src[i], b);
}

// sums[block] = the sum of the block's values; *total += the sum of all.
KERNEL(selftest_sum, 256, 4)(int *sums, int *total, const int *src, int n)
{
	SHARED(int, partial);
	int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? src[i] : 0;
	for (int mask = WARP / 2; mask > 0; mask /= 2)
		v += shfl_xor(v, mask);
	if (lane_id() == 0)
		partial[warp_id()] = v;
	syncthreads();
	if (threadIdx.x == 0) {
		int sum = 0;
		for (unsigned w = 0; w < blockDim.x / WARP; w++)
			sum += partial[w];
		sums[blockIdx.x] = sum;
		atomicAdd(total, sum);
	}
}

// Parts of 64 threads pass a value around, part i for i + 1 rounds.
KERNEL(selftest_parts, 256, 4)(int *dst)
{
	SHARED(int, values);
	const int threads = 64, part = threadIdx.x / threads;
	int v = threadIdx.x;
	for (int round = 0; round <= part; round++) {
		values[threadIdx.x] = v;
		sync_part(part, threads);
		v = values[part * threads + (threadIdx.x + 1) % threads];
		sync_part(part, threads);
	}
	dst[threadIdx.x] = v;
}
