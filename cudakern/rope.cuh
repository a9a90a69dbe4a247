// Turning pairs of elements by angles that grow with the position.
//
// Angles are whole numbers of 2^-64 turns: position times turns drops full turns exactly,
// which no product of floats would at far positions. Of a head of dim elements, pairs pairs
// are turned; the elements of one are apart elements apart, the
// first elements of neighbouring ones are between.
#pragma once

#include "kernel.cuh"

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

// The sines and cosines by which the pairs of a head are turned at a position, times
// magnitude, computed by all threads of the block.
DEVICE void turn_angles(float2 *angles, int pairs, const uint64_t *turns, float magnitude, int pos)
{
	for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
		float sine, cosine;
		sincos_turns((uint64_t)(uint32_t)pos * turns[pair], &sine, &cosine);
		angles[pair] = make_float2(cosine * magnitude, sine * magnitude);
	}
	syncthreads();
}

// The pair (u, v), turned.
DEVICE float2 turned(float u, float v, float2 angle)
{
	return make_float2(fmaf(u, angle.x, -(v * angle.y)), fmaf(u, angle.y, v * angle.x));
}
