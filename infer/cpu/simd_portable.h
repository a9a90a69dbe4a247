// Vectors of 4 floats in the compiler's vector type, which compiles for every processor. Products are
// rounded before they are added unless every processor of the kind has FMA.

#define LANES 4
#define TILE_ROWS 4
#define TILE_OUTS 2
#define WIDE 2 // vectors of V that share a load of its weights

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

INLINE vf vf_zero(void) { return (vf){0}; }
INLINE vf vf_set(float x) { return (vf){x, x, x, x}; }
INLINE vf vf_load_n(const void *p, int n)
{
	vf a = {0};
	memcpy(&a, p, sizeof(float) * (size_t)n);
	return a;
}
INLINE vf vf_load(const void *p) { return vf_load_n(p, LANES); }
INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, &a, sizeof(float) * (size_t)n); }
INLINE void vf_store(float *p, vf a) { vf_store_n(p, a, LANES); }

#if defined(__aarch64__)
INLINE float half_to_float(uint16_t h)
{
	__fp16 f;
	memcpy(&f, &h, sizeof f);
	return f;
}

INLINE uint16_t float_to_half(float x)
{
	__fp16 f = (__fp16)x;
	uint16_t h;
	memcpy(&h, &f, sizeof h);
	return h;
}
#else
#include "half.h"
#endif

INLINE float load_half(const uint8_t *p) { return half_to_float(load_u16(p)); }
INLINE vf vf_load_h_n(const uint8_t *p, int n)
{
	vf a = {0};
	for (int i = 0; i < n; i++)
		a[i] = load_half(p + 2 * i);
	return a;
}
INLINE vf vf_load_h(const uint8_t *p) { return vf_load_h_n(p, LANES); }
INLINE vf vf_load_b(const uint8_t *p) // bfloat16
{
	vf a;
	for (int i = 0; i < LANES; i++)
		a[i] = float_of((uint32_t)load_u16(p + 2 * i) << 16);
	return a;
}
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	for (int i = 0; i < n; i++) {
		uint16_t h = float_to_half(a[i]);
		memcpy(p + 2 * i, &h, sizeof h);
	}
}

INLINE vf vf_add(vf a, vf b) { return a + b; }
INLINE vf vf_sub(vf a, vf b) { return a - b; }
INLINE vf vf_mul(vf a, vf b) { return a * b; }
INLINE vf vf_div(vf a, vf b) { return a / b; }
#if defined(__aarch64__)
INLINE vf vf_fma(vf a, vf b, vf c)
{
	return (vf){__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]), __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
}
#else
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
#endif
INLINE vf vf_pick(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
INLINE vf vf_max(vf a, vf b) { return vf_pick(a > b, a, b); } // b if either is NaN
INLINE vf vf_min(vf a, vf b) { return vf_pick(a < b, a, b); } // b if either is NaN

INLINE vf vf_unless_below(vf a, vf b, vf c) { return (vf)((vi)a & ~(b < c)); } // a, but 0 where b < c

// For |a| < 2^22: adding 1.5 · 2^23 leaves no bits for a fraction.
INLINE vf vf_round(vf a)
{
	const vf magic = vf_set(0x1.8p23f);
	return (a + magic) - magic;
}

// a · 2ⁿ for whole |n| ≤ 252: two factors, because one may exceed the range of exponents.
INLINE vf vf_scale2(vf a, vf n)
{
	vi whole, half;
	for (int i = 0; i < LANES; i++)
		whole[i] = n[i] == n[i] ? (int32_t)n[i] : 0; // where n is NaN, a is NaN too
	half = whole >> 1;
	return a * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
}

INLINE float vf_sum(vf a) { return (a[0] + a[1]) + (a[2] + a[3]); }

// The sums of a whole tile: y[r·ys + o] = vf_sum(a[r][o]).
INLINE void vf_sum_tile(const vf a[TILE_ROWS][TILE_OUTS], float *y, size_t ys)
{
	for (int r = 0; r < TILE_ROWS; r++)
		for (int o = 0; o < TILE_OUTS; o++)
			y[r * ys + o] = vf_sum(a[r][o]);
}

INLINE float vf_maximum(vf a)
{
	float lo = a[0] > a[1] ? a[0] : a[1], hi = a[2] > a[3] ? a[2] : a[3];
	return lo > hi ? lo : hi;
}

// The largest |x| of a block, compared as integers, so that NaN is larger than infinity.
INLINE float block_max(const float *x)
{
	uint32_t max = 0;
	for (int i = 0; i < BLOCK; i++) {
		uint32_t a = bits_of(x[i]) & 0x7fffffff;
		max = a > max ? a : max;
	}
	return float_of(max);
}

// q = x · scale, rounded to the nearest integer, ties to even.
INLINE void block_round(const float *x, float scale, int8_t *q)
{
	for (int i = 0; i < BLOCK; i += LANES) {
		vf v = vf_round(vf_mul(vf_load(x + i), vf_set(scale)));
		for (int k = 0; k < LANES; k++)
			q[i + k] = (int8_t)v[k];
	}
}

// Vectors of bytes, four for each lane.
#define PANEL_ROWS 4 // rows of activations that share a load of a panel
#define FLOAT_ROWS 2 // the same for float formats
#define FEW_REGISTERS false // see reloaded

typedef uint8_t vb __attribute__((vector_size(4 * LANES)));

INLINE vb vb_load(const uint8_t *p)
{
	vb a;
	memcpy(&a, p, sizeof a);
	return a;
}
INLINE vb vb_low(vb a) { return a & 15; }
INLINE vb vb_high(vb a) { return a >> 4; }

// Each byte shifted left by shift, or right by -shift. The bits that this frees are unspecified.
INLINE vb vb_shift(vb a, const int shift) { return shift > 0 ? a << shift : a >> -shift; }

// The same, masked with mask.
INLINE vb vb_bits(vb a, const int shift, int mask) { return vb_shift(a, shift) & (uint8_t)mask; }

// Bits of a where mask has ones, and of b where it has zeros.
INLINE vb vb_select(vb a, vb b, int mask) { return (a & (uint8_t)mask) | (b & (uint8_t)~mask); }

// table[a] for each byte of a, below 16.
INLINE vb vb_lookup(const uint8_t *table, vb a)
{
	vb b;
	for (int i = 0; i < 4 * LANES; i++)
		b[i] = table[a[i]];
	return b;
}

INLINE vb vb_or(vb a, vb b) { return a | b; }

// Each byte shifted right by shift and masked with mask.
INLINE vf vf_bits(const uint8_t *p, const int shift, int mask)
{
	return (vf){(float)(p[0] >> shift & mask), (float)(p[1] >> shift & mask), (float)(p[2] >> shift & mask), (float)(p[3] >> shift & mask)};
}
INLINE vf vf_bytes(const uint8_t *p) { return vf_bits(p, 0, 255); }
INLINE vf vf_int8(const uint8_t *p) { return (vf){(int8_t)p[0], (int8_t)p[1], (int8_t)p[2], (int8_t)p[3]}; }

// In each lane l, table[w >> shift & 15], 32 bits of any type, for word w of 32 bits at p + 4l.
INLINE vf vf_lookup(const void *table, const uint8_t *p, int shift)
{
	float a[LANES];
	for (int l = 0; l < LANES; l++)
		memcpy(a + l, (const float *)table + (load_u32(p + 4 * l) >> shift & 15), sizeof *a);
	return vf_load(a);
}

INLINE vi vi_set(int32_t x) { return (vi){x, x, x, x}; }

// In each lane, w[0] · x[0] + w[1] · x[1] for pairs of 16 bits.
INLINE vi vi_dot_pairs(vi w, const int16_t *x)
{
	vi a;
	for (int l = 0; l < LANES; l++)
		a[l] = (int16_t)w[l] * x[0] + (w[l] >> 16) * x[1];
	return a;
}

// Not inlined and not unrolled, because the products of all formats would dominate the build time.
#undef UNROLL
#define UNROLL

// In each lane, start + Σ w[j] · x[first + j] over quads j = 0 … quads-1, w unsigned and below 2^bits, x
// the four bytes of a quad. The sum is exact. For 8 bits, start is -128 · Σ x.
static __attribute__((noinline)) vf vb_dot(const int bits, const int first, const int quads, const vb *w, const struct quant_block *x, vi start)
{
	(void)bits;
	vi sum = start;
	for (int j = 0; j < quads; j++)
		for (int l = 0; l < LANES; l++)
			for (int t = 0; t < 4; t++)
				sum[l] += w[j][4 * l + t] * x->q[4 * (first + j) + t];
	return (vf){(float)sum[0], (float)sum[1], (float)sum[2], (float)sum[3]};
}
