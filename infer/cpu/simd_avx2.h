// Vectors of 8 floats, and int8 products with VPMADDUBSW, or with VPDPBUSD if DOT_VNNI is defined.

#define LANES 8
#define TILE_ROWS 4
#define TILE_OUTS 2
#define WIDE 2 // vectors of V that share a load of its weights

typedef __m256 vf;

// All bits set in the first n lanes.
INLINE __m256i first_lanes(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
INLINE vf vf_load(const void *p) { return _mm256_loadu_ps(p); }
INLINE vf vf_load_n(const void *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
INLINE void vf_store_n(float *p, vf a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a); }

INLINE float load_half(const uint8_t *p) { return _cvtsh_ss(load_u16(p)); }
INLINE vf vf_load_h(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
INLINE vf vf_load_b(const uint8_t *p) // bfloat16
{
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
INLINE vf vf_load_h_n(const uint8_t *p, int n)
{
	uint8_t h[16] = {0};
	memcpy(h, p, 2 * (size_t)n);
	return vf_load_h(h);
}
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	uint8_t h[16];
	_mm_storeu_si128((__m128i *)h, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
	memcpy(p, h, 2 * (size_t)n);
}

INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); } // a·b + c
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }             // b if either is NaN
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }             // b if either is NaN

INLINE vf vf_unless_below(vf a, vf b, vf c) { return _mm256_and_ps(_mm256_cmp_ps(b, c, _CMP_NLT_UQ), a); } // a, but 0 where b < c

INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

INLINE vf power2(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }

// a · 2ⁿ for whole |n| ≤ 252: two factors, because one may exceed the range of exponents.
INLINE vf vf_scale2(vf a, vf n)
{
	__m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
	return _mm256_mul_ps(_mm256_mul_ps(a, power2(half)), power2(_mm256_sub_epi32(whole, half)));
}

INLINE __m128 fold(vf a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }

INLINE float vf_sum(vf a)
{
	__m128 s = fold(a);
	s = _mm_hadd_ps(s, s);
	return _mm_cvtss_f32(_mm_hadd_ps(s, s));
}

// The sums of a whole tile, y[r·ys + o] = vf_sum(a[r][o]), in the same order of additions.
INLINE void vf_sum_tile(const vf a[TILE_ROWS][TILE_OUTS], float *y, size_t ys)
{
	vf row[TILE_ROWS]; // half o: four lanes of output o
	UNROLL for (int r = 0; r < TILE_ROWS; r++)
		row[r] = _mm256_add_ps(_mm256_permute2f128_ps(a[r][0], a[r][1], 0x20), _mm256_permute2f128_ps(a[r][0], a[r][1], 0x31));
	const vf sums = _mm256_hadd_ps(_mm256_hadd_ps(row[0], row[1]), _mm256_hadd_ps(row[2], row[3]));
	const __m128 first = _mm256_castps256_ps128(sums), second = _mm256_extractf128_ps(sums, 1);
	const __m128 lo = _mm_unpacklo_ps(first, second), hi = _mm_unpackhi_ps(first, second);
	_mm_storel_pi((__m64 *)y, lo);
	_mm_storeh_pi((__m64 *)(y + ys), lo);
	_mm_storel_pi((__m64 *)(y + 2 * ys), hi);
	_mm_storeh_pi((__m64 *)(y + 3 * ys), hi);
}

INLINE float vf_maximum(vf a)
{
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE __m256i load_abs(const float *x)
{
	return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}

// The largest |x| of a block, compared as integers, so that NaN is larger than infinity.
INLINE float block_max(const float *x)
{
	__m256i a = _mm256_max_epi32(_mm256_max_epi32(load_abs(x), load_abs(x + 8)),
	                             _mm256_max_epi32(load_abs(x + 16), load_abs(x + 24)));
	__m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
	m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
	return float_of((uint32_t)_mm_cvtsi128_si32(m));
}

INLINE __m256i load_rounded(const float *x, __m256 scale)
{
	return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), scale));
}

// q = x · scale, rounded to the nearest integer, ties to even.
INLINE void block_round(const float *x, float scale, int8_t *q)
{
	__m256 k = _mm256_set1_ps(scale);
	__m256i a = _mm256_packs_epi32(load_rounded(x, k), load_rounded(x + 8, k));
	__m256i b = _mm256_packs_epi32(load_rounded(x + 16, k), load_rounded(x + 24, k));
	const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
	_mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}

// Vectors of bytes, four for each lane.
#define PANEL_ROWS 4 // rows of activations that share a load of a panel
#define FLOAT_ROWS 2 // the same for float formats
#define FEW_REGISTERS true // they do not hold the weights of a block and x: see reloaded

typedef __m256i vb;
typedef __m256i vi;

INLINE vb vb_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
INLINE vb vb_low(vb a) { return _mm256_and_si256(a, _mm256_set1_epi8(0x0f)); }
INLINE vb vb_high(vb a) { return vb_low(_mm256_srli_epi16(a, 4)); }

// Each byte shifted left by shift, or right by -shift. The bits that this frees are unspecified.
INLINE vb vb_shift(vb a, const int shift)
{
	return shift == 0 ? a : shift > 0 ? _mm256_slli_epi16(a, shift) : _mm256_srli_epi16(a, -shift);
}

// The same, masked with mask.
INLINE vb vb_bits(vb a, const int shift, int mask) { return _mm256_and_si256(vb_shift(a, shift), _mm256_set1_epi8((char)mask)); }

// Bits of a where mask has ones, and of b where it has zeros.
INLINE vb vb_select(vb a, vb b, int mask)
{
	const vb ones = _mm256_set1_epi8((char)mask);
	return _mm256_or_si256(_mm256_and_si256(ones, a), _mm256_andnot_si256(ones, b));
}

// table[a] for each byte of a, below 16.
INLINE vb vb_lookup(const uint8_t *table, vb a)
{
	return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), a);
}

INLINE vb vb_or(vb a, vb b) { return _mm256_or_si256(a, b); }

// Each byte shifted right by shift and masked with mask.
INLINE vf vf_bits(const uint8_t *p, const int shift, int mask)
{
	__m256i a = _mm256_srli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)), shift);
	return _mm256_cvtepi32_ps(255 >> shift == mask ? a : _mm256_and_si256(a, _mm256_set1_epi32(mask)));
}
INLINE vf vf_bytes(const uint8_t *p) { return vf_bits(p, 0, 255); }
INLINE vf vf_int8(const uint8_t *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))); }

// In each lane l, table[w >> shift & 15], 32 bits of any type, for word w of 32 bits at p + 4l.
INLINE vf vf_lookup(const void *table, const uint8_t *p, int shift)
{
	const __m256i i = _mm256_srl_epi32(_mm256_loadu_si256((const __m256i *)p), _mm_cvtsi32_si128(shift));
	const vf low = _mm256_permutevar8x32_ps(vf_load(table), i), high = _mm256_permutevar8x32_ps(vf_load((const float *)table + 8), i);
	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28))); // by bit 3
}

INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }

// In each lane, w[0] · x[0] + w[1] · x[1] for pairs of 16 bits.
INLINE vi vi_dot_pairs(vi w, const int16_t *x)
{
	int32_t two;
	memcpy(&two, x, sizeof two);
	return _mm256_madd_epi16(w, _mm256_set1_epi32(two));
}

// Quad j of a block in each lane.
INLINE vi vi_quad(const struct quant_block *x, const int j)
{
	int32_t four;
	memcpy(&four, x->q + 4 * j, sizeof four);
	return _mm256_set1_epi32(four);
}

#if defined(DOT_VNNI)
// In each lane, start + Σ w[j] · x[first + j] over quads j = 0 … quads-1, w unsigned and below 2^bits, x
// the four bytes of a quad. The sum is exact. For 8 bits, start is -128 · Σ x.
INLINE vf vb_dot(const int bits, const int first, const int quads, const vb *w, const struct quant_block *x, vi start)
{
	(void)bits;
	__m256i sum = start;
	UNROLL for (int j = 0; j < quads; j++)
		sum = _mm256_dpbusd_avx_epi32(sum, w[j], vi_quad(x, first + j));
	return _mm256_cvtepi32_ps(sum);
}
#else
// For dot_pairs.h: products of bytes, added to pairs of 16 bits.
INLINE vi vi_multiply(vb w, vi x) { return _mm256_maddubs_epi16(w, x); }
INLINE vi vi_multiply_signed(vb w, vi x) // w - 128
{
	w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
	return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
INLINE vi vi_add_pairs(vi a, vi b) { return _mm256_add_epi16(a, b); }
INLINE vi vi_widen(vi pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
INLINE vf vf_of(vi a) { return _mm256_cvtepi32_ps(a); }

#include "dot_pairs.h"
#endif
