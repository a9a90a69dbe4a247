// Rotary position embedding: rotates pairs of elements by angles proportional to the position.
//
// Angles are integers in units of 2^-64 rotations: position · frequency overflows by whole rotations
// and is exact at any position; a product of floats would lose bits at large ones. Of a head of dim
// elements, pairs pairs are rotated; distance is that between the elements of a pair, pair_stride that
// between the first elements of consecutive pairs.
#pragma once

#include "kernel.cuh"

// Sine and cosine of angle · 2^-64 rotations, with an error of up to 1e-7.
DEVICE void sincos_fixed(uint64_t angle, float *sine, float *cosine)
{
	// Range reduction: the nearest quarter of a rotation, and a rest of up to ±1/8.
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

// Computes the cosine and sine for each pair of a head at a position, times magnitude. All threads of
// the block must call it. frequencies are the angles per position.
DEVICE void rope_factors(float2 *cos_sin, int pairs, const uint64_t *frequencies, float magnitude, int pos)
{
	for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
		float sine, cosine;
		sincos_fixed((uint64_t)(uint32_t)pos * frequencies[pair], &sine, &cosine);
		cos_sin[pair] = make_float2(cosine * magnitude, sine * magnitude);
	}
	syncthreads();
}

// Returns the pair (u, v), rotated.
DEVICE float2 rotate(float u, float v, float2 cos_sin)
{
	return make_float2(fmaf(u, cos_sin.x, -(v * cos_sin.y)), fmaf(u, cos_sin.y, v * cos_sin.x));
}
