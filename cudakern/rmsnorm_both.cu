// RMSNorm of the heads of two tensors in place, such as queries and keys, in one launch. Grid: (heads of both, rows); a block normalizes one head, as that of rmsnorm.cu.
#include "kernel.cuh"

#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) DEVICE void name
#include "rmsnorm.cu"
#pragma pop_macro("KERNEL")

// x = RMSNorm(x) of cols elements.
DEVICE void normalize(float *x, const float *w, int cols, float eps)
{
	SHARED(float, partial);
	const float scale = norm_scale(x, cols, eps, partial);
	if (cols % 4 == 0)
		scale_row(reinterpret_cast<float4 *>(x), reinterpret_cast<const float4 *>(x), reinterpret_cast<const float4 *>(w), cols / 4, scale);
	else
		scale_row(x, x, w, cols, scale);
}

// Of heads_a heads of a, and of those of b, which have as many elements.
KERNEL(rmsnorm_both, NORM_THREADS, 4)(float *a, const float *w_a, int weights_a, int heads_a, float *b, const float *w_b, int weights_b, int cols, float eps, const int *rows)
{
	const int row = blockIdx.y;
	if (row >= *rows)
		return;
	const bool first = int(blockIdx.x) < heads_a;
	const int heads = first ? heads_a : int(gridDim.x) - heads_a, head = first ? blockIdx.x : blockIdx.x - heads_a;
	normalize((first ? a : b) + (size_t(row) * heads + head) * cols, (first ? w_a : w_b) + size_t(head % (first ? weights_a : weights_b)) * cols, cols, eps);
}
