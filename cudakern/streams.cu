// Operations on parts of rows, for models with several residual streams. dst and x are rows of parts.
#include "norm.cuh"

// Part i of dst from column to on += Σ factor[i · sources + j] · part j of x, in the order of j; factors
// may be null: ones. Grid: (blocks of 256 columns, rows); a thread computes one element.
KERNEL(mix_parts, 256, 8)(float *dst, const float *x, const float *factors, int targets, int sources, int to, int width, const int *rows)
{
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= targets * width)
		return;
	int i = col / width, k = col % width;
	size_t at = (size_t)row * (to + targets * width) + to + col;
	float sum = dst[at];
	for (int j = 0; j < sources; j++) {
		float factor = factors ? factors[((size_t)row * targets + i) * sources + j] : 1.0f;
		sum = fmaf(factor, x[((size_t)row * sources + j) * width + k], sum);
	}
	dst[at] = sum;
}

// Returns the mean of the squares of x - mean. All threads of the block must call it.
DEVICE float mean_square(const float *x, float mean, int n, float *partial)
{
	float squares = 0.0f;
	for (int i = threadIdx.x; i < n; i += NORM_THREADS)
		squares = add_squares(x[i] - mean, squares);
	return block_sum(squares, partial) / (float)n;
}

// x = x · sqrt(mean(y²) / max(mean(x²), least)) for each part of x. Grid: (parts, rows).
KERNEL(match_rms, NORM_THREADS, 4)(float *x, const float *y, float least, int cols, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += ((size_t)row * gridDim.x + blockIdx.x) * cols;
	y += (size_t)row * cols;
	float own = mean_square(x, 0.0f, cols, partial);
	syncthreads(); // partial is still being read
	float scale = sqrtf(mean_square(y, 0.0f, cols, partial) / fmaxf(own, least));
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		x[i] *= scale;
}

// x = max(0, x - mean(x) - factor · sqrt(variance(x))). Grid: (1, rows).
KERNEL(sparsify, NORM_THREADS, 4)(float *x, float factor, int cols, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += (size_t)row * cols;
	float sum = 0.0f;
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		sum += x[i];
	float mean = block_sum(sum, partial) / (float)cols;
	syncthreads(); // partial is still being read
	float cut = fmaf(factor, sqrtf(mean_square(x, mean, cols, partial)), mean);
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		x[i] = fmaxf(0.0f, x[i] - cut);
}
