// Vectors of 8 floats, and int8 products of one block at a time with VPMADDUBSW.

#define LANES 8
#define TILE_ROWS 4
#define TILE_OUTS 2

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

INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

INLINE vf power2(__m256i n) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)); }

// a · 2ⁿ for whole |n| ≤ 252: two factors, as one may leave the range of exponents.
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

// The sums of four vectors, each with the bits of vf_sum.
INLINE void vf_sum4(const vf a[4], float *y)
{
	__m128 lo = _mm_hadd_ps(fold(a[0]), fold(a[1])), hi = _mm_hadd_ps(fold(a[2]), fold(a[3]));
	_mm_storeu_ps(y, _mm_hadd_ps(lo, hi));
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

// Largest |x| of a block, by its bits: NaN counts as larger than infinity.
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

// q = x · scale to the nearest integer, ties to even. This path needs no sums.
INLINE void block_round(const float *x, float scale, int8_t *q, int32_t *s)
{
	(void)s;
	__m256 k = _mm256_set1_ps(scale);
	__m256i a = _mm256_packs_epi32(load_rounded(x, k), load_rounded(x + 8, k));
	__m256i b = _mm256_packs_epi32(load_rounded(x + 16, k), load_rounded(x + 24, k));
	const __m256i order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
	_mm256_store_si256((__m256i *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}

// VPMADDUBSW multiplies unsigned by signed and adds pairs with saturation at 2^15. It
// gets |w| and x with the sign of w: pairs stay below 2 · 128 · 127 < 2^15, so that the
// sum is exact.
#define STEP 1

typedef vf qacc; // lane i sums products of values 4i … 4i+3 of a block

struct qweight {
	__m256i q;
	vf d;
};

struct qvalue {
	__m256i q;
	vf d;
};

INLINE struct qweight load_q8(const uint8_t *w, int blocks)
{
	(void)blocks;
	return (struct qweight){_mm256_loadu_si256((const __m256i *)(w + 2)), vf_set(load_half(w))};
}

INLINE struct qweight load_q4(const uint8_t *w, int blocks)
{
	(void)blocks;
	__m128i v = _mm_loadu_si128((const __m128i *)(w + 2));
	__m256i q = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(0x0f));
	return (struct qweight){_mm256_sub_epi8(q, _mm256_set1_epi8(8)), vf_set(load_half(w))};
}

INLINE struct qvalue load_value(struct quant_row x, int b, const int shift)
{
	(void)shift;
	return (struct qvalue){_mm256_load_si256((const __m256i *)(x.q + b * BLOCK)), _mm256_set1_ps(x.d[b])};
}

INLINE qacc qacc_zero(void) { return vf_zero(); }

INLINE qacc qacc_add(qacc acc, struct qweight w, struct qvalue x)
{
	__m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.q), _mm256_sign_epi8(x.q, w.q));
	vf dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
	return _mm256_fmadd_ps(dot, _mm256_mul_ps(w.d, x.d), acc);
}

INLINE float qacc_sum(qacc a) { return vf_sum(a); }

// Block i of a super-block.
struct kweight {
	__m256i q; // with an offset: unsigned
	vf d, m;   // a value is d · q - m
};

INLINE struct kweight load_super(const int type, const uint8_t *w, const int i, const float *d, const float *m)
{
	const __m256i low_bits = _mm256_set1_epi8(0x0f);
	if (type == TYPE_Q6_K) {
		const int half = i / 4, run = i % 4;
		__m256i low = _mm256_loadu_si256((const __m256i *)(w + (half * 2 + run % 2) * BLOCK));
		__m256i high = _mm256_loadu_si256((const __m256i *)(w + Q6K_HIGH + half * BLOCK));
		__m256i q = _mm256_and_si256(_mm256_srli_epi16(low, run / 2 * 4), low_bits);
		__m256i top = _mm256_and_si256(_mm256_srli_epi16(high, 2 * run), _mm256_set1_epi8(3));
		q = _mm256_or_si256(q, _mm256_slli_epi16(top, 4));
		return (struct kweight){
			.q = _mm256_sub_epi8(q, _mm256_set1_epi8(32)),
			.d = _mm256_set_m128(_mm_set1_ps(d[2 * i + 1]), _mm_set1_ps(d[2 * i])),
		};
	}
	const int at = type == TYPE_Q5_K ? Q5K_Q : Q4K_Q;
	__m256i both = _mm256_loadu_si256((const __m256i *)(w + at + i / 2 * BLOCK));
	__m256i q = _mm256_and_si256(_mm256_srli_epi16(both, i % 2 * 4), low_bits);
	if (type == TYPE_Q5_K) {
		__m256i high = _mm256_loadu_si256((const __m256i *)(w + Q5K_HIGH));
		high = _mm256_and_si256(_mm256_srli_epi16(high, i), _mm256_set1_epi8(1));
		q = _mm256_or_si256(q, _mm256_slli_epi16(high, 4));
	}
	return (struct kweight){q, vf_set(d[i]), vf_set(m[i])};
}

INLINE qacc super_add(const int type, qacc acc, struct kweight w, struct qvalue x)
{
	if (type == TYPE_Q6_K)
		return qacc_add(acc, (struct qweight){w.q, w.d}, x);
	const __m256i ones = _mm256_set1_epi16(1);
	__m256i pairs = _mm256_maddubs_epi16(w.q, x.q), sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), x.q);
	vf dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
	vf sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(sums, ones));
	acc = _mm256_fmadd_ps(dot, _mm256_mul_ps(w.d, x.d), acc);
	return _mm256_fnmadd_ps(sum, _mm256_mul_ps(w.m, x.d), acc);
}
