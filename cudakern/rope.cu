// RoPE: rotates pair i of every head by the angle pos · frequencies[i].
//
// Grid: (blocks of 256 pairs, rows). The threads of a block first compute the factors for one head, then
// each rotates a pair.
#include "rope.cuh"

KERNEL(rope, 256, 4)(float *x, int cols, int dim, int pairs, int distance, int pair_stride, const uint64_t *frequencies,
	float magnitude, const int *pos, const int *rows)
{
	SHARED(float2, cos_sin);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	rope_factors(cos_sin, pairs, frequencies, magnitude, pos[row]);
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= cols / dim * pairs)
		return;
	int pair = i % pairs;
	float *a = x + (size_t)row * cols + i / pairs * dim + pair * pair_stride, *b = a + distance;
	float2 t = rotate(*a, *b, cos_sin[pair]);
	*a = t.x;
	*b = t.y;
}
