// Math functions on float that return the same bits in the emulator and on every GPU; those of CUDA's
// library do not guarantee that.
#pragma once

#include "kernel.cuh"

#define LOG2_E 1.44269504088896340736f

DEVICE float bits_to_float(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

DEVICE uint32_t float_to_bits(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, 4);
	return bits;
}

// 2^(x+low) for |low| << 1, with an error of up to 1.5 ulp; 0 if x < -125.
DEVICE float exp2_sum(float x, float low)
{
	if (x < -125.0f)
		return 0.0f;
	if (x >= 128.0f)
		return bits_to_float(0x7f800000);
	// 1.5·2^23 + x has no fraction bits: the low bits of the sum are x rounded to an integer.
	const float magic = 12582912.0f;
	float sum = x + magic;
	float f = (x - (sum - magic)) + low;
	// A near-minimax polynomial of degree 6 for |f| <= 1/2 that is exact at 0.
	float p = 0.000153533605f;
	p = fmaf(p, f, 0.0013398875f);
	p = fmaf(p, f, 0.00961843692f);
	p = fmaf(p, f, 0.0555033237f);
	p = fmaf(p, f, 0.240226477f);
	p = fmaf(p, f, 0.693147182f);
	p = fmaf(p, f, 1.0f);
	// Half the power times two: x may round up to 128, and 2^128 is not a float.
	uint32_t n = float_to_bits(sum) << 23;
	return p * bits_to_float(n + (126u << 23)) * 2.0f;
}

DEVICE float exp2_of(float x) { return exp2_sum(x, 0.0f); }

// e^x, as 2^(x·log2 e), with the rounding error of the product as low.
DEVICE float exp_of(float x)
{
	float high = x * LOG2_E;
	float low = fmaf(x, 1.925963033500e-8f, fmaf(x, LOG2_E, -high));
	return exp2_sum(high, low);
}

// ln(x) for a normal x > 0, with an error of up to 1e-7: ln(m) of the mantissa m in
// [sqrt(1/2), sqrt(2)) is the series of 2·atanh((m-1)/(m+1)).
DEVICE float log_of(float x)
{
	uint32_t bits = float_to_bits(x) - 0x3f3504f3u;
	float exponent = (float)((int32_t)bits >> 23), m = bits_to_float((bits & 0x7fffffu) + 0x3f3504f3u);
	float s = (m - 1.0f) / (m + 1.0f), z = s * s;
	float p = fmaf(fmaf(fmaf(fmaf(1.0f / 9, z, 1.0f / 7), z, 0.2f), z, 1.0f / 3), z, 1.0f);
	return fmaf(exponent, 0.693147182f, 2.0f * s * p);
}

enum { SILU, GELU, CLAMPED_SWIGLU, SQUARED_RELU }; // Gate in Go

// gate / (1 + e^-u) · up, where u is gate for SILU, 2 · sqrt(2/π) · (gate + 0.044715 · gate³) for GELU.
// CLAMPED_SWIGLU limits gate to at most 7 and up to ±7, then adds 1 to up; u is 1.702 · gate.
// SQUARED_RELU is max(gate, 0)² · up.
DEVICE float glu_of(int kind, float gate, float up)
{
	if (kind == SQUARED_RELU)
		return (gate < 0.0f ? 0.0f : gate * gate) * up;
	if (kind == CLAMPED_SWIGLU)
		gate = fminf(gate, 7.0f), up = fminf(fmaxf(up, -7.0f), 7.0f) + 1.0f;
	float u = kind == GELU ? gate * 1.59576912f * fmaf(0.044715f * gate, gate, 1.0f) : kind == SILU ? gate : gate * 1.702f;
	return gate / (1.0f + exp_of(-u)) * up;
}

// tanh(x) = 1 - 2 / (e^2x + 1)
DEVICE float tanh_of(float x) { return 1.0f - 2.0f / (exp_of(x + x) + 1.0f); }
