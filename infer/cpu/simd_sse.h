// Vectors of 4 floats, and int8 products with PMADDUBSW, for SSE4.1 and for AVX without AVX2. Every operation gives the
// bits of its twin in simd_portable.h as that is compiled for this processor. With USE_F16C, halves are converted by
// instructions.

#define LANES 4
#define TILE_ROWS 4
#define TILE_OUTS 2
#define WIDE 2 // vectors of V that share a load of its weights

#include "half.h"

typedef __m128 vf;

INLINE vf vf_zero(void) { return _mm_setzero_ps(); }
INLINE vf vf_set(float x) { return _mm_set1_ps(x); }
INLINE vf vf_load(const void *p) { return _mm_loadu_ps(p); }
INLINE vf vf_load_n(const void *p, int n)
{
	vf a = vf_zero();
	memcpy(&a, p, sizeof(float) * (size_t)n);
	return a;
}
INLINE void vf_store(float *p, vf a) { _mm_storeu_ps(p, a); }
INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, &a, sizeof(float) * (size_t)n); }

#if defined(USE_F16C)
INLINE float load_half(const uint8_t *p) { return _cvtsh_ss(load_u16(p)); }
INLINE vf vf_load_h(const uint8_t *p) { return _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p)); }
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	const __m128i h = _mm_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT);
	memcpy(p, &h, 2 * (size_t)n);
}
#else
#define UNITS_AHEAD // units of a group are converted before its blocks, see panel.h

INLINE float load_half(const uint8_t *p) { return half_to_float(load_u16(p)); }

// As half_to_float, without denormal operands, for which processors need a hundred cycles. With an exponent that is
// larger by 224, infinity and NaN have that of floats, and value f of a denormal half is 2f - 2^98, which is more than f
// for others.
INLINE vf vf_load_h(const uint8_t *p)
{
	const __m128i upper = _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)p));
	const vf f = _mm_castsi128_ps(_mm_add_epi32(_mm_srli_epi32(_mm_slli_epi32(upper, 1), 4), _mm_set1_epi32(224 << 23)));
	const vf size = _mm_mul_ps(_mm_min_ps(_mm_sub_ps(_mm_add_ps(f, f), vf_set(0x1p98f)), f), vf_set(0x1p-112f));
	return _mm_or_ps(size, _mm_and_ps(_mm_castsi128_ps(upper), vf_set(-0.0f)));
}
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	float values[LANES];
	vf_store(values, a);
	for (int i = 0; i < n; i++) {
		const uint16_t h = float_to_half(values[i]);
		memcpy(p + 2 * i, &h, sizeof h);
	}
}
#endif
INLINE vf vf_load_h_n(const uint8_t *p, int n)
{
	uint8_t h[8] = {0};
	memcpy(h, p, 2 * (size_t)n);
	return vf_load_h(h);
}
INLINE vf vf_load_b(const uint8_t *p) // bfloat16
{
	return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)p)));
}

INLINE vf vf_add(vf a, vf b) { return _mm_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm_add_ps(_mm_mul_ps(a, b), c); } // a·b + c, rounded twice
INLINE vf vf_max(vf a, vf b) { return _mm_max_ps(a, b); }                       // b if either is NaN
INLINE vf vf_min(vf a, vf b) { return _mm_min_ps(a, b); }                       // b if either is NaN

INLINE vf vf_unless_below(vf a, vf b, vf c) { return _mm_and_ps(_mm_cmpnlt_ps(b, c), a); } // a, but 0 where b < c

INLINE vf vf_round(vf a) { return _mm_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

INLINE vf power2(__m128i n) { return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23)); }

// a · 2ⁿ for whole |n| ≤ 252: two factors, because one may exceed the range of exponents.
INLINE vf vf_scale2(vf a, vf n)
{
	const __m128i whole = _mm_cvtps_epi32(n), half = _mm_srai_epi32(whole, 1);
	return _mm_mul_ps(_mm_mul_ps(a, power2(half)), power2(_mm_sub_epi32(whole, half)));
}

INLINE float vf_sum(vf a)
{
	a = _mm_hadd_ps(a, a);
	return _mm_cvtss_f32(_mm_hadd_ps(a, a));
}

// The sums of a whole tile, y[r·ys + o] = vf_sum(a[r][o]), in the same order of additions.
INLINE void vf_sum_tile(const vf a[TILE_ROWS][TILE_OUTS], float *y, size_t ys)
{
	UNROLL for (int r = 0; r < TILE_ROWS; r += 2) {
		const vf sums = _mm_hadd_ps(_mm_hadd_ps(a[r][0], a[r][1]), _mm_hadd_ps(a[r + 1][0], a[r + 1][1]));
		_mm_storel_pi((__m64 *)(y + r * ys), sums);
		_mm_storeh_pi((__m64 *)(y + (r + 1) * ys), sums);
	}
}

INLINE float vf_maximum(vf a)
{
	const vf m = _mm_max_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// The largest |x| of a block, compared as integers, so that NaN is larger than infinity.
INLINE float block_max(const float *x)
{
	__m128i m = _mm_setzero_si128();
	UNROLL for (int i = 0; i < BLOCK; i += LANES)
		m = _mm_max_epi32(m, _mm_and_si128(_mm_loadu_si128((const __m128i *)(x + i)), _mm_set1_epi32(0x7fffffff)));
	m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
	m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
	return float_of((uint32_t)_mm_cvtsi128_si32(m));
}

INLINE __m128i load_rounded(const float *x, vf scale) { return _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x), scale)); }

// q = x · scale, rounded to the nearest integer, ties to even.
INLINE void block_round(const float *x, float scale, int8_t *q)
{
	const vf k = vf_set(scale);
	UNROLL for (int i = 0; i < BLOCK; i += 16) {
		const __m128i a = _mm_packs_epi32(load_rounded(x + i, k), load_rounded(x + i + 4, k));
		const __m128i b = _mm_packs_epi32(load_rounded(x + i + 8, k), load_rounded(x + i + 12, k));
		_mm_store_si128((__m128i *)(q + i), _mm_packs_epi16(a, b));
	}
}

// Vectors of bytes, four for each lane.
#define PANEL_ROWS 4 // rows of activations that share a load of a panel
#define FLOAT_ROWS 2 // the same for float formats
#define ROLL_VECTORS // see EACH_VECTOR
#define FEW_REGISTERS true // they do not hold the weights of a block and x: see reloaded

typedef __m128i vb;
typedef __m128i vi;

INLINE vb vb_load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
INLINE vb vb_low(vb a) { return _mm_and_si128(a, _mm_set1_epi8(0x0f)); }
INLINE vb vb_high(vb a) { return vb_low(_mm_srli_epi16(a, 4)); }

// Each byte shifted left by shift, or right by -shift. The bits that this frees are unspecified.
INLINE vb vb_shift(vb a, const int shift)
{
	return shift == 0 ? a : shift > 0 ? _mm_slli_epi16(a, shift) : _mm_srli_epi16(a, -shift);
}

// The same, masked with mask.
INLINE vb vb_bits(vb a, const int shift, int mask) { return _mm_and_si128(vb_shift(a, shift), _mm_set1_epi8((char)mask)); }

// Bits of a where mask has ones, and of b where it has zeros.
INLINE vb vb_select(vb a, vb b, int mask)
{
	const vb ones = _mm_set1_epi8((char)mask);
	return _mm_or_si128(_mm_and_si128(ones, a), _mm_andnot_si128(ones, b));
}

// table[a] for each byte of a, below 16.
INLINE vb vb_lookup(const uint8_t *table, vb a) { return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)table), a); }

INLINE vb vb_or(vb a, vb b) { return _mm_or_si128(a, b); }

INLINE __m128i four_bytes(const void *p) { return _mm_cvtsi32_si128((int)load_u32(p)); }

// Each byte shifted right by shift and masked with mask.
INLINE vf vf_bits(const uint8_t *p, const int shift, int mask)
{
	const __m128i a = _mm_srli_epi32(_mm_cvtepu8_epi32(four_bytes(p)), shift);
	return _mm_cvtepi32_ps(255 >> shift == mask ? a : _mm_and_si128(a, _mm_set1_epi32(mask)));
}
INLINE vf vf_bytes(const uint8_t *p) { return vf_bits(p, 0, 255); }
INLINE vf vf_int8(const uint8_t *p) { return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(four_bytes(p))); }

// In each lane l, table[w >> shift & 15], 32 bits of any type, for word w of 32 bits at p + 4l.
INLINE vf vf_lookup(const void *table, const uint8_t *p, int shift)
{
	const float *t = table;
	const __m128i words = _mm_srl_epi32(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128(shift)), i = _mm_and_si128(words, _mm_set1_epi32(15));
	const uint64_t low = (uint64_t)_mm_cvtsi128_si64(i), high = (uint64_t)_mm_extract_epi64(i, 1);
	return _mm_setr_ps(t[(uint32_t)low], t[low >> 32], t[(uint32_t)high], t[high >> 32]);
}

INLINE vi vi_set(int32_t x) { return _mm_set1_epi32(x); }

// In each lane, w[0] · x[0] + w[1] · x[1] for pairs of 16 bits.
INLINE vi vi_dot_pairs(vi w, const int16_t *x) { return _mm_madd_epi16(w, _mm_shuffle_epi32(four_bytes(x), 0)); }

#if defined(__AVX__)
// Quad j of a block in each lane.
INLINE vi vi_quad(const struct quant_block *x, const int j) { return _mm_castps_si128(_mm_broadcast_ss((const float *)(x->q + 4 * j))); }
#else
#define SPREAD // a copy of each block has its quads in each lane, for all vectors of a panel

struct spread {
	struct quant_block block;
	vi quads[8];
};

INLINE const struct quant_block *spread_block(struct spread *to, const struct quant_block *x)
{
	to->block = *x;
	UNROLL for (int h = 0; h < 2; h++) {
		const __m128i quads = _mm_load_si128((const __m128i *)x->q + h);
		to->quads[4 * h] = _mm_shuffle_epi32(quads, 0x00);
		to->quads[4 * h + 1] = _mm_shuffle_epi32(quads, 0x55);
		to->quads[4 * h + 2] = _mm_shuffle_epi32(quads, 0xaa);
		to->quads[4 * h + 3] = _mm_shuffle_epi32(quads, 0xff);
	}
	return &to->block;
}

// Quad j of a block, which is spread, in each lane.
INLINE vi vi_quad(const struct quant_block *x, const int j) { return ((const struct spread *)x)->quads[j]; }
#endif

INLINE vi vi_multiply(vb w, vi x) { return _mm_maddubs_epi16(w, x); }
INLINE vi vi_multiply_signed(vb w, vi x) // w - 128
{
	w = _mm_xor_si128(w, _mm_set1_epi8((char)0x80));
	return _mm_maddubs_epi16(_mm_abs_epi8(w), _mm_sign_epi8(x, w));
}
INLINE vi vi_add_pairs(vi a, vi b) { return _mm_add_epi16(a, b); }
INLINE vi vi_widen(vi pairs) { return _mm_madd_epi16(pairs, _mm_set1_epi16(1)); }
INLINE vi vi_add(vi a, vi b) { return _mm_add_epi32(a, b); }
INLINE vf vf_of(vi a) { return _mm_cvtepi32_ps(a); }

#include "dot_pairs.h"
