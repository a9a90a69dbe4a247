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

// x = x · (1 + factor · ln(1 + floor(pos / period)))
KERNEL(temper, 256, 8)(float *x, float factor, int period, int cols, const int *pos, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] *= fmaf(factor, log_of((float)(1 + pos[row] / period)), 1.0f);
}

// dst = a(gate) · up, or a(gate) where up is null
KERNEL(glu, 256, 8)(float *dst, const float *gate, const float *up, int kind, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	size_t i = (size_t)row * cols + col;
	dst[i] = glu_of(kind, gate[i], up ? up[i] : 1.0f);
}

// x = x · factor, and x = cap · tanh(x / cap) unless cap is 0
KERNEL(scale_rows, 256, 8)(float *x, float factor, float cap, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	float v = x[(size_t)row * cols + col] * factor;
	x[(size_t)row * cols + col] = cap > 0.0f ? tanh_of(v / cap) * cap : v;
}

// x = x · sigmoid(gate), of which a row has gates: cols or 1
KERNEL(gate_rows, 256, 8)(float *x, const float *gate, int gates, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] /= 1.0f + exp_of(-gate[(size_t)row * gates + (gates == 1 ? 0 : col)]);
}

// x = x · w, of which there are values: cols or 1
KERNEL(multiply_rows, 256, 8)(float *x, const float *w, int values, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] *= w[values == 1 ? 0 : col];
}

// Columns from … of each part of x, width of them, become columns to … of each part of dst.
// Parts have dst_part and x_part columns.
KERNEL(copy_columns, 256, 8)(float *dst, const float *x, int parts, int dst_part, int x_part, int to, int from, int width, const int *rows)
{
	int row, col;
	if (!element(parts * width, rows, &row, &col))
		return;
	int part = col / width, i = col % width;
	dst[((size_t)row * parts + part) * dst_part + to + i] = x[((size_t)row * parts + part) * x_part + from + i];
}

// dst[i] = x[out[i]]
KERNEL(gather_rows, 256, 8)(float *dst, const float *x, int cols, const int *out, const int *outs)
{
	int row, col;
	if (element(cols, outs, &row, &col))
		dst[(size_t)row * cols + col] = x[(size_t)out[row] * cols + col];
}
