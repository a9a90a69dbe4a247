// Vectors of 16 floats, and int8 products with VPDPBUSD, or with VPMADDUBSW if DOT_PAIRS is defined.

#define LANES 16
#define TILE_ROWS 4
#define TILE_OUTS 4
#define WIDE 4 // vectors of V that share a load of its weights

typedef __m512 vf;

INLINE __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }

INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
INLINE vf vf_load(const void *p) { return _mm512_loadu_ps(p); }
INLINE vf vf_load_n(const void *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
INLINE void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }

INLINE float load_half(const uint8_t *p) { return _cvtsh_ss(load_u16(p)); }
INLINE vf vf_load_h(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
INLINE vf vf_load_b(const uint8_t *p) // bfloat16
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
INLINE vf vf_load_h_n(const uint8_t *p, int n)
{
	return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	_mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); } // a·b + c
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }             // b if either is NaN
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }             // b if either is NaN

// a, but 0 where b is below c
INLINE vf vf_unless_below(vf a, vf b, vf c) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(b, c, _CMP_NLT_UQ), a); }

INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); } // a · 2ⁿ

INLINE __m128 fold(vf a)
{
	__m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	return _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
}

// As _mm_hadd_ps in each quarter.
INLINE vf add_neighbours(vf a, vf b) { return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd)); }

INLINE float vf_sum(vf a)
{
	__m128 s = fold(a);
	s = _mm_hadd_ps(s, s);
	return _mm_cvtss_f32(_mm_hadd_ps(s, s));
}

// The sums of a whole tile, y[r·ys + o] = vf_sum(a[r][o]), in the same order of additions: quarters 0
// and 2, 1 and 3, both; neighbours; pairs of neighbours.
INLINE void vf_sum_tile(const vf a[TILE_ROWS][TILE_OUTS], float *y, size_t ys)
{
	vf row[TILE_ROWS]; // quarter o: four lanes of output o
	UNROLL for (int r = 0; r < TILE_ROWS; r++) {
		vf half[2];
		UNROLL for (int k = 0; k < 2; k++) {
			const vf b = a[r][2 * k], c = a[r][2 * k + 1];
			half[k] = _mm512_add_ps(_mm512_shuffle_f32x4(b, c, 0x44), _mm512_shuffle_f32x4(b, c, 0xee));
		}
		row[r] = _mm512_add_ps(_mm512_shuffle_f32x4(half[0], half[1], 0x88), _mm512_shuffle_f32x4(half[0], half[1], 0xdd));
	}
	const vf first = add_neighbours(row[0], row[1]), last = add_neighbours(row[2], row[3]);
	const __m512i by_row = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const vf sums = _mm512_permutexvar_ps(by_row, add_neighbours(first, last));
	_mm_storeu_ps(y, _mm512_castps512_ps128(sums));
	_mm_storeu_ps(y + ys, _mm512_extractf32x4_ps(sums, 1));
	_mm_storeu_ps(y + 2 * ys, _mm512_extractf32x4_ps(sums, 2));
	_mm_storeu_ps(y + 3 * ys, _mm512_extractf32x4_ps(sums, 3));
}

INLINE float vf_maximum(vf a) { return _mm512_reduce_max_ps(a); }

// The largest |x| of a block, compared as integers, so that NaN is larger than infinity.
INLINE float block_max(const float *x)
{
	__m512i abs = _mm512_set1_epi32(0x7fffffff);
	__m512i a = _mm512_and_si512(_mm512_loadu_si512(x), abs);
	__m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), abs);
	return float_of((uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)));
}

// q = x · scale, rounded to the nearest integer, ties to even.
INLINE void block_round(const float *x, float scale, int8_t *q)
{
	__m512 k = _mm512_set1_ps(scale);
	__m128i a = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), k)));
	__m128i b = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), k)));
	_mm_store_si128((__m128i *)q, a);
	_mm_store_si128((__m128i *)(q + 16), b);
}

// Vectors of bytes, four for each lane.
#define PANEL_ROWS 8 // rows of activations that share a load of a panel
#define FLOAT_ROWS 8 // the same for float formats
#define FEW_REGISTERS false // see reloaded

typedef __m512i vb;
typedef __m512i vi;

INLINE vb vb_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
INLINE vb vb_low(vb a) { return _mm512_and_si512(a, _mm512_set1_epi8(0x0f)); }
INLINE vb vb_high(vb a) { return vb_low(_mm512_srli_epi16(a, 4)); }

// Each byte shifted left by shift, or right by -shift. The bits that this frees are unspecified.
INLINE vb vb_shift(vb a, const int shift)
{
	return shift == 0 ? a : shift > 0 ? _mm512_slli_epi16(a, shift) : _mm512_srli_epi16(a, -shift);
}

// The same, masked with mask.
INLINE vb shift_and_mask(vb a, const int shift, int mask) { return _mm512_and_si512(vb_shift(a, shift), _mm512_set1_epi8((char)mask)); }

#if defined(LOOKUP_VBMI)
// The same of 0 … 63: a table for VPERMB, which looks up the lower six bits of a byte.
INLINE vb six_bits(const int shift, int mask)
{
	const vb all = _mm512_set_epi64(0x3f3e3d3c3b3a3938, 0x3736353433323130, 0x2f2e2d2c2b2a2928, 0x2726252423222120,
	                                0x1f1e1d1c1b1a1918, 0x1716151413121110, 0x0f0e0d0c0b0a0908, 0x0706050403020100);
	return shift_and_mask(all, shift, mask);
}

INLINE vb vb_bits(vb a, const int shift, int mask)
{
	const int from = shift > 0 ? mask >> shift : mask << -shift;
	return shift == 0 || from > 63 ? shift_and_mask(a, shift, mask) : _mm512_permutexvar_epi8(a, six_bits(shift, mask));
}
#else
INLINE vb vb_bits(vb a, const int shift, int mask) { return shift_and_mask(a, shift, mask); }
#endif

// Bits of a where mask has ones, and of b where it has zeros.
INLINE vb vb_select(vb a, vb b, int mask) { return _mm512_ternarylogic_epi64(a, b, _mm512_set1_epi8((char)mask), 0xe4); }

// table[a] for each byte of a, below 16.
INLINE vb vb_lookup(const uint8_t *table, vb a)
{
	return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), a);
}

#if defined(LOOKUP_VBMI)
INLINE vb vb_lookup_bits(const uint8_t *table, vb a, const int shift, int mask) // see panel.h
{
	return _mm512_permutexvar_epi8(a, vb_lookup(table, six_bits(shift, mask)));
}
#endif

INLINE vb vb_or(vb a, vb b) { return _mm512_or_si512(a, b); }

// Each byte shifted right by shift and masked with mask.
INLINE vf vf_bits(const uint8_t *p, const int shift, int mask)
{
	__m512i a = _mm512_srli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)), shift);
	return _mm512_cvtepi32_ps(255 >> shift == mask ? a : _mm512_and_si512(a, _mm512_set1_epi32(mask)));
}
INLINE vf vf_bytes(const uint8_t *p) { return vf_bits(p, 0, 255); }
INLINE vf vf_int8(const uint8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }

// In each lane l, table[w >> shift & 15], 32 bits of any type, for word w of 32 bits at p + 4l.
INLINE vf vf_lookup(const void *table, const uint8_t *p, int shift)
{
	return _mm512_permutexvar_ps(_mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift)), vf_load(table));
}

INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }

// In each lane, w[0] · x[0] + w[1] · x[1] for pairs of 16 bits.
INLINE vi vi_dot_pairs(vi w, const int16_t *x)
{
	int32_t two;
	memcpy(&two, x, sizeof two);
	return _mm512_madd_epi16(w, _mm512_set1_epi32(two));
}

// Quad j of a block in each lane.
INLINE vi vi_quad(const struct quant_block *x, const int j)
{
	int32_t four;
	memcpy(&four, x->q + 4 * j, sizeof four);
	return _mm512_set1_epi32(four);
}

#if defined(DOT_PAIRS)
// For dot_pairs.h: products of bytes, added to pairs of 16 bits.
INLINE vi vi_multiply(vb w, vi x) { return _mm512_maddubs_epi16(w, x); }
INLINE vi vi_multiply_signed(vb w, vi x) // w - 128
{
	w = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
	return _mm512_maddubs_epi16(_mm512_abs_epi8(w), _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x));
}
INLINE vi vi_add_pairs(vi a, vi b) { return _mm512_add_epi16(a, b); }
INLINE vi vi_widen(vi pairs) { return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)); }
INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
INLINE vf vf_of(vi a) { return _mm512_cvtepi32_ps(a); }

#include "dot_pairs.h"
#else
// In each lane, start + Σ w[j] · x[first + j] over quads j = 0 … quads-1, w unsigned and below 2^bits, x
// the four bytes of a quad. The sum is exact. For 8 bits, start is -128 · Σ x. Quads 4 to 7 are
// added separately, so that two chains of additions overlap.
INLINE vf vb_dot(const int bits, const int first, const int quads, const vb *w, const struct quant_block *x, vi start)
{
	(void)bits;
	__m512i sums[2] = {start, _mm512_setzero_si512()};
	UNROLL for (int j = 0; j < quads; j++)
		sums[j / 4] = _mm512_dpbusd_epi32(sums[j / 4], w[j], vi_quad(x, first + j));
	return _mm512_cvtepi32_ps(quads > 4 ? _mm512_add_epi32(sums[0], sums[1]) : sums[0]);
}
#endif
