// The paged KV cache: [block][layer][K|V][kv head][32][dim], float16 (CACHE_F16 is defined), or in formats that are known at run time
// (CACHE_ANY): formats.cuh says how they lie there; what kernels compute with is float32. A latent cache has one part, the keys, instead of two:
// its values are the first elements of the keys.
#pragma once

#include "formats.cuh"

enum { BLOCK_POSITIONS = 32, KEYS = 0, VALUES = 1 };

#if defined(CACHE_F16)
typedef uint16_t element;
#define CACHE_NAME(name) name##_f16
#define CACHE element *cache
DEVICE element to_element(float v) { return float_to_half(v); }

// A pointer to an element of a head's keys or values.
typedef const element *Elements;
DEVICE element load_element(Elements p) { return *p; }

#elif defined(CACHE_ANY)
typedef float element;
#define CACHE_NAME(name) name##_any
#define CACHE ANY_CACHE

// The same for any format. head is null, or where keys or values of a head begin in a block, and scales where their scales do.
struct Elements {
	const uint8_t *head, *scales;
	int format, index;
};

DEVICE bool operator==(const Elements &p, decltype(nullptr)) { return p.head == nullptr; }
DEVICE Elements operator+(Elements p, int n) { return {p.head, p.scales, p.format, p.index + n}; }
DEVICE void operator+=(Elements &p, int n) { p.index += n; }
DEVICE const uint8_t *codes_at(const Elements &p) { return p.head + code_bytes(p.format, p.index); }
DEVICE uint16_t scale_at(const Elements &p) { return ldg16(p.scales + p.index / SCALE_ELEMENTS * 2); }

// Returns the word of Q4_0 with the element.
DEVICE const uint8_t *word_at(const Elements &p) { return p.head + p.index / 8 * 4; }

// Loads N elements, 4 or 8, whose index is a multiple of that, as they lie in memory; a scale is in w[2].
template <int N> DEVICE void load_raw(const Elements &p, uint32_t *w)
{
	switch (p.format) {
	case FORMAT_F32:
		UNROLL for (int i = 0; i < N; i += 4) {
			const uint4 v = ldg128(codes_at(p) + 4 * i);
			memcpy(w + i, &v, sizeof v);
		}
		break;
	case FORMAT_F16:
		if (N == 8) {
			const uint4 v = ldg128(codes_at(p));
			memcpy(w, &v, sizeof v);
		} else {
			const uint2 v = ldg64(codes_at(p));
			memcpy(w, &v, sizeof v);
		}
		break;
	case FORMAT_Q8_0:
		if (N == 8) {
			const uint2 v = ldg64(codes_at(p));
			memcpy(w, &v, sizeof v);
		} else
			w[0] = ldg32(codes_at(p));
		w[2] = scale_at(p);
		break;
	default:
		w[0] = ldg32(word_at(p)), w[2] = scale_at(p);
		if (N == 4)
			w[0] = four_codes(w[0], p.index & 4);
	}
}

// Converts what load_raw has loaded.
template <int N> DEVICE void widen_raw(int format, const uint32_t *w, float *v)
{
	if (format == FORMAT_F32)
		memcpy(v, w, 4 * N);
	else if (format == FORMAT_F16)
		UNROLL for (int i = 0; i < N; i += 2)
			halves(w[i / 2], v + i);
	else {
		const float scale = half_to_float(uint16_t(w[2]));
		const bool bytes = format == FORMAT_Q8_0;
		const int offset = bytes ? Q8_0_OFFSET : Q4_0_OFFSET;
		decode<4>(N == 4 || bytes ? w[0] : four_codes(w[0], false), offset, scale, v);
		if (N == 8)
			decode<4>(bytes ? w[1] : four_codes(w[0], true), offset, scale, v + 4);
	}
}

// Calls f(j, v) with four elements of each of N vectors that are step elements apart from p on, or zeros unless first <= j * each <= last. All are
// requested before the first is converted. The index of p is a multiple of 4, and step a whole number of blocks if the format is quantized.
template <int N, typename F> DEVICE void load_each(Elements p, int step, int first, int last, int each, const F &f)
{
	uint32_t w[N][4] = {};
	const auto wanted = [&](int j) { return first <= j * each && j * each <= last; };
	const uint8_t *const codes = p.format == FORMAT_Q4_0 ? word_at(p) : codes_at(p);
	const int apart = code_bytes(p.format, step);
	switch (p.format) {
	case FORMAT_F32:
		UNROLL for (int j = 0; j < N; j++)
			if (wanted(j)) {
				const uint4 v = ldg128(codes + j * apart);
				memcpy(w[j], &v, sizeof v);
			}
		break;
	case FORMAT_F16:
		UNROLL for (int j = 0; j < N; j++)
			if (wanted(j)) {
				const uint2 v = ldg64(codes + j * apart);
				memcpy(w[j], &v, sizeof v);
			}
		break;
	default:
		UNROLL for (int j = 0; j < N; j++)
			if (wanted(j)) {
				w[j][0] = ldg32(codes + j * apart);
				w[j][2] = scale_at(p + j * step);
			}
		if (p.format == FORMAT_Q4_0)
			UNROLL for (int j = 0; j < N; j++)
				w[j][0] = four_codes(w[j][0], p.index & 4);
	}
	UNROLL for (int j = 0; j < N; j++) {
		float v[4];
		widen_raw<4>(p.format, w[j], v);
		f(j, v);
	}
}

DEVICE void load4(const Elements &p, float *v)
{
	uint32_t w[4] = {};
	load_raw<4>(p, w);
	widen_raw<4>(p.format, w, v);
}

DEVICE void load8(const Elements &p, float *v)
{
	uint32_t w[8] = {};
	load_raw<8>(p, w);
	widen_raw<8>(p.format, w, v);
}

DEVICE float load1(const Elements &p)
{
	float v;
	switch (p.format) {
	case FORMAT_F32:
		return ldg_float(reinterpret_cast<const float *>(codes_at(p)));
	case FORMAT_F16:
		return half_to_float(ldg16(codes_at(p)));
	case FORMAT_Q8_0:
		decode<1>(ldg8(codes_at(p)), Q8_0_OFFSET, half_to_float(scale_at(p)), &v);
		return v;
	}
	decode<1>(four_codes(ldg8(word_at(p) + p.index % 4), p.index & 4), Q4_0_OFFSET, half_to_float(scale_at(p)), &v);
	return v;
}

DEVICE float load_element(const Elements &p) { return load1(p); }
#endif

// Returns the index of the first element of a head's keys or values in a block of a cache of float16.
DEVICE size_t cache_index(int block, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	return ((((size_t)block * layers + layer) * parts + kind) * heads + head) * (BLOCK_POSITIONS * dim);
}
