// Elementwise operations on rows. Grid: (blocks of 256 columns, rows); a thread computes one element.
#include "math.cuh"

// Sets the row and column of the thread's element. Returns false if the thread has none.
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
KERNEL(scale_by_position, 256, 8)(float *x, float factor, int period, int cols, const int *pos, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] *= fmaf(factor, log_of((float)(1 + pos[row] / period)), 1.0f);
}

// dst = g(gate) · up, or g(gate) if up is null, where g is the activation function kind
KERNEL(glu, 256, 8)(float *dst, const float *gate, const float *up, int kind, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	size_t i = (size_t)row * cols + col;
	dst[i] = glu_of(kind, gate[i], up ? up[i] : 1.0f);
}

// x · (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| · erfc(|x| / sqrt(2)) / 2, with erfc(a) = t · e^(p(t) - a²),
// where t = 1 / (1 + a / 2), by the Chebyshev polynomial of Numerical Recipes.
DEVICE float exact_gelu(float x)
{
	const float factors[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f, 0.09678418f, 0.37409196f, 1.00002368f, -1.26551223f};
	float size = fmaxf(x, -x), t = 1.0f / fmaf(size, 0.353553391f, 1.0f), p = 0.17087277f;
	UNROLL for (int i = 0; i < 9; i++)
		p = fmaf(p, t, factors[i]);
	return (x < 0.0f ? 0.0f : x) - size * 0.5f * t * exp_of(p - size * 0.5f * size);
}

// dst = exact_gelu(gate) · up, or exact_gelu(gate) if up is null
KERNEL(glu_exact, 256, 8)(float *dst, const float *gate, const float *up, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	size_t i = (size_t)row * cols + col;
	dst[i] = exact_gelu(gate[i]) * (up ? up[i] : 1.0f);
}

// ln(1 + y) for y from 0 to 1, with the relative error of log_of: its factor undoes the rounding of 1 + y.
DEVICE float log1p_of(float y)
{
	float u = 1.0f + y;
	return u == 1.0f ? y : log_of(u) * (y / (u - 1.0f));
}

// ln(1 + e^x)
DEVICE float softplus(float x) { return fmaxf(x, 0.0f) + log1p_of(exp_of(-fabsf(x))); }

enum { IDENTITY, SIGMOID, SOFTPLUS, EXP }; // Gate in Go, from Identity on

// dst = g(gate) · up, or g(gate) if up is null, where g is the function kind: x, 1 / (1 + e^-x), ln(1 + e^x) or e^x
KERNEL(glu_scan, 256, 8)(float *dst, const float *gate, const float *up, int kind, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	size_t i = (size_t)row * cols + col;
	float x = gate[i], y = x;
	if (kind == SIGMOID)
		y = 1.0f / (1.0f + exp_of(-x));
	else if (kind == SOFTPLUS)
		y = softplus(x);
	else if (kind == EXP)
		y = exp_of(x);
	dst[i] = up ? y * up[i] : y;
}

// x = e^(w · ln(1 + e^(x + bias))), the same w and bias for all rows; w has values values: cols, or 1. The bits
// are those of add_bias, glu_scan, multiply_rows and glu_scan.
KERNEL(decays, 256, 8)(float *x, const float *bias, const float *w, int values, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] = exp_of(softplus(x[(size_t)row * cols + col] + bias[col]) * w[values == 1 ? 0 : col]);
}

// x = x · factor, then the soft cap x = cap · tanh(x / cap) unless cap is 0
KERNEL(scale_rows, 256, 8)(float *x, float factor, float cap, int cols, const int *rows)
{
	int row, col;
	if (!element(cols, rows, &row, &col))
		return;
	float v = x[(size_t)row * cols + col] * factor;
	x[(size_t)row * cols + col] = cap > 0.0f ? tanh_of(v / cap) * cap : v;
}

// x = x · sigmoid(gate); a row of gate has gates values: cols, or 1 for the whole row
KERNEL(gate_rows, 256, 8)(float *x, const float *gate, int gates, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] /= 1.0f + exp_of(-gate[(size_t)row * gates + (gates == 1 ? 0 : col)]);
}

// x = x · w, the same w for all rows; it has values values: cols, or 1 for all columns
KERNEL(multiply_rows, 256, 8)(float *x, const float *w, int values, int cols, const int *rows)
{
	int row, col;
	if (element(cols, rows, &row, &col))
		x[(size_t)row * cols + col] *= w[values == 1 ? 0 : col];
}

// Copies width columns of each part of a row, from column from of x to column to of dst. A part has
// x_part columns in x and dst_part in dst.
KERNEL(copy_columns, 256, 8)(float *dst, const float *x, int parts, int dst_part, int x_part, int to, int from, int width, const int *rows)
{
	int row, col;
	if (!element(parts * width, rows, &row, &col))
		return;
	int part = col / width, i = col % width;
	dst[((size_t)row * parts + part) * dst_part + to + i] = x[((size_t)row * parts + part) * x_part + from + i];
}

// dst[i] = x[indices[i]] for i < *count
KERNEL(gather_rows, 256, 8)(float *dst, const float *x, int cols, const int *indices, const int *count)
{
	int row, col;
	if (element(cols, count, &row, &col))
		dst[(size_t)row * cols + col] = x[(size_t)indices[row] * cols + col];
}
