// Normalization of every cols consecutive elements of a row: the whole row, or each of its heads. weights
// is the number of weight vectors: one for each head, or 1 for all.
//
//	RMSNorm    y = x / sqrt(mean(x²) + eps) · w
//	LayerNorm  y = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias
//
// Grid: (heads, rows); a block normalizes one head. norm.cuh says which thread reads which elements. dst
// may be x, so the compiler cannot move loads above stores; the code issues four loads before them.
#include "norm.cuh"

DEVICE float scaled(float v, float scale, float w) { return v * scale * w; }
DEVICE float4 scaled(float4 v, float scale, float4 w)
{
	return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

// dst = x · scale · w, for n values of type T.
template <typename T> DEVICE void scale_row(T *dst, const T *x, const T *w, int n, float scale)
{
	for (int begin = threadIdx.x; begin < n; begin += NORM_BATCH * NORM_THREADS) {
		T v[NORM_BATCH] = {}, g[NORM_BATCH] = {};
		UNROLL for (int i = 0; i < NORM_BATCH; i++)
			if (begin + i * NORM_THREADS < n)
				v[i] = x[begin + i * NORM_THREADS], g[i] = w[begin + i * NORM_THREADS];
		UNROLL for (int i = 0; i < NORM_BATCH; i++)
			if (begin + i * NORM_THREADS < n)
				dst[begin + i * NORM_THREADS] = scaled(v[i], scale, g[i]);
	}
}

// Returns the index of the first element of the block's head in a row.
DEVICE size_t head_index(int row, int cols) { return ((size_t)row * gridDim.x + blockIdx.x) * cols; }

KERNEL(rmsnorm, NORM_THREADS, 4)(float *dst, const float *x, const float *w, int weights, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += head_index(row, cols);
	dst += head_index(row, cols);
	w += (size_t)(blockIdx.x % weights) * cols;
	float scale = norm_scale(x, cols, eps, partial);
	if (cols % 4 == 0)
		scale_row(reinterpret_cast<float4 *>(dst), reinterpret_cast<const float4 *>(x), reinterpret_cast<const float4 *>(w), cols / 4, scale);
	else
		scale_row(dst, x, w, cols, scale);
}

// bias is null or has as many values as a row.
KERNEL(layernorm, NORM_THREADS, 4)(float *dst, const float *x, const float *w, const float *bias, int weights, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += head_index(row, cols);
	dst += head_index(row, cols);
	w += (size_t)(blockIdx.x % weights) * cols;
	float sum = 0.0f, squares = 0.0f;
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		sum += x[i];
	float mean = block_sum(sum, partial) / (float)cols;
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		squares = add_squares(x[i] - mean, squares);
	syncthreads(); // partial is still being read
	float scale = 1.0f / sqrtf(block_sum(squares, partial) / (float)cols + eps);
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS) {
		float v = (x[i] - mean) * scale * w[i];
		dst[i] = bias ? v + bias[blockIdx.x * cols + i] : v;
	}
}
