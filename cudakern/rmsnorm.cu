// Norms over every cols elements of a row: all of it, or each of its heads. weights heads have
// weights of their own, 1: the same.
//
//	RMSNorm    y = x / sqrt(mean(x²) + eps) · w
//	LayerNorm  y = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias
//
// A block per cols elements; norm.cuh says who reads what. dst may be x, so that the compiler may not
// move loads past stores: they are made four at a time too.
#include "norm.cuh"

DEVICE float scaled(float v, float scale, float w) { return v * scale * w; }
DEVICE float4 scaled(float4 v, float scale, float4 w)
{
	return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

// dst = x · scale · w, of n values of type T.
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

KERNEL(rmsnorm, NORM_THREADS, 4)(float *dst, const float *x, const float *w, int weights, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	size_t first = ((size_t)row * gridDim.x + blockIdx.x) * cols;
	x += first;
	dst += first;
	w += (size_t)(blockIdx.x % weights) * cols;
	float scale = norm_scale(x, cols, eps, partial);
	if (cols % 4 == 0)
		scale_row(reinterpret_cast<float4 *>(dst), reinterpret_cast<const float4 *>(x), reinterpret_cast<const float4 *>(w), cols / 4, scale);
	else
		scale_row(dst, x, w, cols, scale);
}

// bias is null or as long as a row.
KERNEL(layernorm, NORM_THREADS, 4)(float *dst, const float *x, const float *w, const float *bias, int weights, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	size_t first = ((size_t)row * gridDim.x + blockIdx.x) * cols;
	x += first;
	dst += first;
	w += (size_t)(blockIdx.x % weights) * cols;
	float sum = 0.0f, squares = 0.0f;
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		sum += x[i];
	float mean = block_sum(sum, partial) / (float)cols;
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS)
		squares = add_squares(x[i] - mean, squares);
	syncthreads();
	float scale = 1.0f / sqrtf(block_sum(squares, partial) / (float)cols + eps);
	for (int i = threadIdx.x; i < cols; i += NORM_THREADS) {
		float v = (x[i] - mean) * scale * w[i];
		dst[i] = bias ? v + bias[blockIdx.x * cols + i] : v;
	}
}
