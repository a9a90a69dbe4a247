// RoPE: pair i of every head is turned by the angle pos · turns[i].
//
// A block per 256 pairs of a row: threads compute the angles that a head has, then each
// turns a pair. Angles are whole numbers of 2^-64 turns: position times turns drops full turns
// exactly, which no product of floats would at far positions.
#include "math.cuh"

// The sine and cosine of angle · 2^-64 turns, to 1e-7.
DEVICE void sincos_turns(uint64_t angle, float *sine, float *cosine)
{
	// The nearest quarter turn, and what is left of it: an eighth of a turn to either side.
	uint64_t quarter = (angle + (1ull << 61)) >> 62;
	int32_t rest = (int32_t)((int64_t)(angle - (quarter << 62) + (1ull << 31)) >> 32);
	float x = (float)rest * 1.46291808e-9f; // 2π/2^32
	float z = x * x;
	float s = fmaf(fmaf(-1.9515296e-4f, z, 8.3321609e-3f), z, -1.6666655e-1f);
	float c = fmaf(fmaf(2.4433157e-5f, z, -1.3887316e-3f), z, 4.1666646e-2f);
	s = fmaf(s * z, x, x);
	c = fmaf(c * z, z, fmaf(-0.5f, z, 1.0f));
	bool swap = quarter & 1;
	*sine = swap ? c : s;
	*cosine = swap ? s : c;
	if (quarter & 2)
		*sine = -*sine;
	if ((quarter + 1) & 2)
		*cosine = -*cosine;
}

// pairs: turned in each head of dim elements; apart: elements of a pair; stride: first
// elements of neighbouring pairs.
KERNEL(rope, 256, 4)(float *x, int cols, int dim, int pairs, int apart, int stride, const uint64_t *turns,
	const int *pos, const int *rows)
{
	SHARED(float2, angles);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	for (int pair = threadIdx.x; pair < pairs; pair += 256)
		sincos_turns((uint64_t)(uint32_t)pos[row] * turns[pair], &angles[pair].y, &angles[pair].x);
	syncthreads();
	int i = blockIdx.x * 256 + threadIdx.x;
	if (i >= cols / dim * pairs)
		return;
	int pair = i % pairs;
	float *a = x + (size_t)row * cols + i / pairs * dim + pair * stride, *b = a + apart;
	float cosine = angles[pair].x, sine = angles[pair].y, u = *a, v = *b;
	*a = fmaf(u, cosine, -(v * sine));
	*b = fmaf(u, sine, v * cosine);
}
