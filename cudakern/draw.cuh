// Draw: the token that a sampler draws from the candidates of a row, with the settings that most requests
// have: top-k, top-p, min-p and temperature, in this order, and a random number of Philox for a seed and a
// position. The arithmetic is that of package sample: float64, in the same order, so that the token is the same one
// to the bit, wherever the candidates suffice. Where they do not, it is the likeliest token or one of those that are
// known. The token is a proposal: the host draws again, with all samplers of the request.
#pragma once

#include "math.cuh"

// The settings for a row; Draw in Go writes them.
struct Draw {
	double top_p, min_p;  // 1 and 0: off
	double inverse;       // 1 / temperature; 0: the likeliest token
	uint32_t seed[2];
	int top_k;            // 0: off
	int pos;              // of the token in its sequence
};

#ifdef EMU
#define CONSTANT static const
#else
#define CONSTANT static __constant__
#endif

// 2^(i/64)
CONSTANT double exp2_table[64] = {
	1.0, 1.0108892860517005, 1.0218971486541166, 1.0330248790212284,
	1.0442737824274138, 1.0556451783605572, 1.0671404006768235, 1.0787607977571199,
	1.0905077326652577, 1.102382583307841, 1.1143867425958924, 1.1265216186082418,
	1.1387886347566916, 1.1511892299529827, 1.1637248587775775, 1.1763969916502812,
	1.189207115002721, 1.202156731452703, 1.215247359980469, 1.22848053610687,
	1.241857812073484, 1.255380757024691, 1.2690509571917332, 1.2828700160787783,
	1.2968395546510096, 1.3109612115247644, 1.3252366431597413, 1.339667524053303,
	1.3542555469368927, 1.3690024229745907, 1.383909881963832, 1.398979672538311,
	1.4142135623730951, 1.42961333839197, 1.4451808069770467, 1.4609177941806468,
	1.4768261459394993, 1.4929077282912648, 1.5091644275934226, 1.5255981507445382,
	1.5422108254079407, 1.559004400237837, 1.5759808451078865, 1.593142151342267,
	1.6104903319492543, 1.6280274218573478, 1.6457554781539647, 1.6636765803267364,
	1.6817928305074292, 1.7001063537185235, 1.718619298122478, 1.7373338352737062,
	1.7562521603732995, 1.7753764925265212, 1.7947090750031072, 1.8142521755003986,
	1.8340080864093424, 1.8539791250833855, 1.8741676341103, 1.8945759815869656,
	1.9152065613971472, 1.9360617934922946, 1.9571441241754002, 1.978456026387951,
};

// e^x for x <= 0, 0 below -700: expNeg in package sample.
DEVICE double exp_neg(double x)
{
	if (!(x >= -700.0))
		return 0.0;
	const double rounder = 6755399441055744.0; // 1.5·2^52
	double t = x * 92.33248261689366 + rounder, n = t - rounder;
	double r = x - n * 0.010830424696223417 - n * 2.572804622327669e-14;
	double q = 0.16666666666666666 + r * (0.041666666666666664 + r * 0.008333333333333333);
	double p = r + r * r * (0.5 + r * q);
	unsigned long long bits, sum;
	memcpy(&bits, &t, 8);
	double y = exp2_table[bits % 64];
	y = y + y * p;
	memcpy(&sum, &y, 8);
	sum += bits >> 6 << 52;
	memcpy(&y, &sum, 8);
	return y;
}

// Returns the random number for a seed and a position, in [0, 1): the first two words of Philox4x32-10.
DEVICE double uniform_of(const uint32_t seed[2], int pos)
{
	uint32_t c0 = pos, c1 = 0, c2 = 0, c3 = 0, k0 = seed[0], k1 = seed[1];
	for (int round = 0; round < 10; round++) {
		unsigned long long a = 0xd2511f53ull * c0, b = 0xcd9e8d57ull * c2;
		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0, c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1, c3 = (uint32_t)a;
		k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
	}
	unsigned long long both = (unsigned long long)c1 << 32 | c0;
	return (double)(both >> 11) * (1.0 / 9007199254740992.0);
}

// Candidates that are left after the stages so far: the first count, of which the weights of the first
// known are at hand. mass is the weight of all of them.
struct Left {
	int count, known;
	double mass;
};

// Leaves the first kept candidates, whose weight is mass.
DEVICE void cut(Left *left, int kept, double mass)
{
	if (kept < left->count)
		left->count = kept, left->mass = mass, left->known = min(left->known, kept);
}

DEVICE double sum_of(const double *weights, int n)
{
	double sum = 0.0;
	for (int i = 0; i < n; i++)
		sum += weights[i];
	return sum;
}

// Applies top-k, top-p and min-p to candidates with the given weights, the likeliest first.
DEVICE void truncate(Left *left, const Draw &d, const double *weights)
{
	if (d.top_k > 0 && d.top_k <= left->known)
		cut(left, d.top_k, sum_of(weights, d.top_k));
	if (d.top_p < 1.0) {
		double sum = 0.0, target = d.top_p * left->mass;
		for (int i = 0; i < left->known; i++)
			if ((sum += weights[i]) >= target) {
				cut(left, i + 1, sum);
				break;
			}
	}
	if (d.min_p > 0.0) {
		int kept = 1;
		while (kept < left->known && !(weights[kept] < d.min_p * weights[0]))
			kept++;
		if (kept < left->known)
			cut(left, kept, sum_of(weights, kept));
	}
}

// Returns the index of the first candidate at which the sum of weights exceeds u times the mass; if that of
// those that are known does not, the last one of them, or the first if there are others.
DEVICE int pick(const Left &left, const double *weights, double u)
{
	double sum = 0.0, target = u * left.mass;
	for (int i = 0; i < left.known; i++)
		if ((sum += weights[i]) > target)
			return i;
	if (left.known < left.count)
		return 0;
	int last = left.known - 1;
	while (last > 0 && weights[last] == 0.0)
		last--;
	return last;
}
