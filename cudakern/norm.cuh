// The scale of RMSNorm, 1 / sqrt(mean(x²) + eps), computed by a block of 256 threads for one row.
//
// If the length is a multiple of 4, thread t reads float4s at elements 4t, 4t+1024, …, else single
// elements t, t+256, … It sums the squares in that order; the sums of the threads are added in a
// fixed tree. Four loads are issued before the first result is used.
#pragma once

#include "kernel.cuh"

enum { NORM_THREADS = 256, NORM_BATCH = 4, NORM_FLOATS = NORM_THREADS / WARP }; // NORM_FLOATS: shared memory

DEVICE float add_squares(float v, float sum) { return fmaf(v, v, sum); }
DEVICE float add_squares(float4 v, float sum) { return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum)))); }

// Returns the thread's partial sum of the squares of n values of type T.
template <typename T> DEVICE float sum_squares(const T *x, int n)
{
	float sum = 0.0f;
	for (int begin = threadIdx.x; begin < n; begin += NORM_BATCH * NORM_THREADS) {
		T v[NORM_BATCH] = {};
		UNROLL for (int i = 0; i < NORM_BATCH; i++)
			if (begin + i * NORM_THREADS < n)
				v[i] = x[begin + i * NORM_THREADS];
		UNROLL for (int i = 0; i < NORM_BATCH; i++)
			sum = add_squares(v[i], sum);
	}
	return sum;
}

// Sums each value over NORM_THREADS threads of the block, which must all call it. partial is N · NORM_FLOATS floats of shared memory for
// each NORM_THREADS of them.
template <int N> DEVICE void block_sums(float (&sums)[N], float *partial)
{
	UNROLL for (int i = 0; i < N; i++) {
		const float sum = warp_sum(sums[i]);
		if (lane_id() == 0)
			partial[i * NORM_FLOATS + warp_id() % NORM_FLOATS] = sum;
	}
	syncthreads();
	UNROLL for (int i = 0; i < N; i++) {
		const float *const p = partial + i * NORM_FLOATS;
		sums[i] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
	}
}

DEVICE float block_sum(float sum, float *partial)
{
	float sums[1] = {sum};
	block_sums(sums, partial);
	return sums[0];
}

// Returns the scale. All threads of the block must call it.
DEVICE float norm_scale(const float *x, int cols, float eps, float *partial)
{
	float sum = cols % 4 == 0 ? sum_squares(reinterpret_cast<const float4 *>(x), cols / 4) : sum_squares(x, cols);
	return 1.0f / sqrtf(block_sum(sum, partial) / (float)cols + eps);
}
