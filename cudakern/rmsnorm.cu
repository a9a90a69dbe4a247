// RMSNorm: y = x / sqrt(mean(x²) + eps) · w, row by row.
//
// A block per row. Where rows have a multiple of 4 elements, thread t takes those from
// 4t, 4t+1024, …, else single ones from t, t+256, … Its squares are summed in that order,
// and the sums of threads meet in a tree. Loads are made four at a time before anything
// that waits for them: dst may be x, so that the compiler may not move them past stores.
#include "kernel.cuh"

enum { THREADS = 256, BATCH = 4 };

// The sum of v over the block, to every thread. partial holds 8 floats.
DEVICE float block_sum(float v, float *partial)
{
	v = warp_sum(v);
	if (lane_id() == 0)
		partial[warp_id()] = v;
	syncthreads();
	return ((partial[0] + partial[1]) + (partial[2] + partial[3])) + ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

DEVICE float add_squares(float v, float sum) { return fmaf(v, v, sum); }
DEVICE float add_squares(float4 v, float sum) { return fmaf(v.w, v.w, fmaf(v.z, v.z, fmaf(v.y, v.y, fmaf(v.x, v.x, sum)))); }
DEVICE float scaled(float v, float scale, float w) { return v * scale * w; }
DEVICE float4 scaled(float4 v, float scale, float4 w)
{
	return make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w);
}

// One row of n values of type T, which hold cols elements.
template <typename T> DEVICE void norm(T *dst, const T *x, const T *w, int n, int cols, float eps, float *partial)
{
	float sum = 0.0f;
	for (int begin = threadIdx.x; begin < n; begin += BATCH * THREADS) {
		T v[BATCH] = {};
		UNROLL for (int i = 0; i < BATCH; i++)
			if (begin + i * THREADS < n)
				v[i] = x[begin + i * THREADS];
		UNROLL for (int i = 0; i < BATCH; i++)
			sum = add_squares(v[i], sum);
	}
	float scale = 1.0f / sqrtf(block_sum(sum, partial) / (float)cols + eps);
	for (int begin = threadIdx.x; begin < n; begin += BATCH * THREADS) {
		T v[BATCH] = {}, g[BATCH] = {};
		UNROLL for (int i = 0; i < BATCH; i++)
			if (begin + i * THREADS < n)
				v[i] = x[begin + i * THREADS], g[i] = w[begin + i * THREADS];
		UNROLL for (int i = 0; i < BATCH; i++)
			if (begin + i * THREADS < n)
				dst[begin + i * THREADS] = scaled(v[i], scale, g[i]);
	}
}

KERNEL(rmsnorm, 256, 4)(float *dst, const float *x, const float *w, int cols, float eps, const int *rows)
{
	SHARED(float, partial);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	x += (size_t)row * cols;
	dst += (size_t)row * cols;
	if (cols % 4 == 0)
		norm(reinterpret_cast<float4 *>(dst), reinterpret_cast<const float4 *>(x), reinterpret_cast<const float4 *>(w), cols / 4, cols, eps, partial);
	else
		norm(dst, x, w, cols, cols, eps, partial);
}
