// RoPE: pair i of every head is turned by the angle pos · turns[i].
//
// A block per 256 pairs of a row: threads compute the angles that a head has, then each
// turns a pair.
#include "rope.cuh"

KERNEL(rope, 256, 4)(float *x, int cols, int dim, int pairs, int apart, int between, const uint64_t *turns,
	float magnitude, const int *pos, const int *rows)
{
	SHARED(float2, angles);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	turn_angles(angles, pairs, turns, magnitude, pos[row]);
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= cols / dim * pairs)
		return;
	int pair = i % pairs;
	float *a = x + (size_t)row * cols + i / pairs * dim + pair * between, *b = a + apart;
	float2 t = turned(*a, *b, angles[pair]);
	*a = t.x;
	*b = t.y;
}
