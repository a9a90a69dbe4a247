// RMSNorm: y = x / sqrt(mean(x²) + eps) · w, row by row.
//
// A block per row. Thread t sums the squares of elements t, t+256, …; the sums meet in a
// tree.
#include "kernel.cuh"

// The sum of v over a block of 256 threads, to every thread. partial holds 8 floats.
DEVICE float block_sum(float v, float *partial)
{
	v = warp_sum(v);
	if (lane_id() == 0)
		partial[warp_id()] = v;
	syncthreads();
	return ((partial[0] + partial[1]) + (partial[2] + partial[3])) + ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

KERNEL(rmsnorm, 256, 4)(float *dst, const float *x, const float *w, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += (size_t)row * cols;
	dst += (size_t)row * cols;
	float sum = 0.0f;
#pragma unroll 4
	for (int i = threadIdx.x; i < cols; i += 256)
		sum = fmaf(x[i], x[i], sum);
	float scale = 1.0f / sqrtf(block_sum(sum, partial) / (float)cols + eps);
#pragma unroll 4
	for (int i = threadIdx.x; i < cols; i += 256)
		dst[i] = x[i] * scale * w[i];
}
