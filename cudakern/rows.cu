// Operations on every element of every row, by itself: a thread per element, a block per
// 256 elements of a row.
#include "math.cuh"

// Bounds of a thread's element; false where it has none.
DEVICE bool element(int cols, const int *rows, int *row, int *col)
{
	*row = blockIdx.y;
	*col = blockIdx.x * blockDim.x + threadIdx.x;
	return *row < *rows && *col < cols;
}

// dst += x
KERNEL(add_rows, 256, 8)(float *dst, const float *x, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		dst[(size_t)row * cols + col] += x[(size_t)row * cols + col];
}

// x += bias, the same for all rows
KERNEL(add_bias, 256, 8)(float *x, const float *bias, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] += bias[col];
}

// dst = silu(gate) · up
KERNEL(swiglu, 256, 8)(float *dst, const float *gate, const float *up, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	size_t i = (size_t)row * cols + col;
	dst[i] = swiglu_of(gate[i], up[i]);
}

// dst[i] = x[out[i]]
KERNEL(gather_rows, 256, 8)(float *dst, const float *x, int cols, const int *out, const int *outs)
{
	int row, col;
	if (element(cols, outs, &row, &col))
		dst[(size_t)row * cols + col] = x[(size_t)out[row] * cols + col];
}
