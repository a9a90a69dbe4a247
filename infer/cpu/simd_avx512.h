// Vectors of 16 floats, and int8 products of two blocks at once with VPDPBUSD.

#define LANES 16
#define TILE_ROWS 4
#define TILE_OUTS 4

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

INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); } // a · 2ⁿ

INLINE __m128 fold(vf a)
{
	__m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	return _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
}

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

INLINE float vf_maximum(vf a) { return _mm512_reduce_max_ps(a); }

// Largest |x| of a block, by its bits: NaN counts as larger than infinity.
INLINE float block_max(const float *x)
{
	__m512i abs = _mm512_set1_epi32(0x7fffffff);
	__m512i a = _mm512_and_si512(_mm512_loadu_si512(x), abs);
	__m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), abs);
	return float_of((uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(a, b)));
}

// q = x · scale to the nearest integer, ties to even; s = minus the sums of four q.
INLINE void block_round(const float *x, float scale, int8_t *q, int32_t *s)
{
	__m512 k = _mm512_set1_ps(scale);
	__m128i a = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), k)));
	__m128i b = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), k)));
	__m256i v = _mm256_set_m128i(b, a);
	_mm256_store_si256((__m256i *)q, v);
	__m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), v);
	_mm256_store_si256((__m256i *)s, _mm256_sub_epi32(_mm256_setzero_si256(), sum));
}

// Products of quantised values go two blocks at a time. VPDPBUSD multiplies unsigned
// by signed, so weights are shifted to unsigned by 2^SHIFT, and the sum starts at
// -2^SHIFT · Σq: exact, as everything is an integer below 2^24.
#define STEP 2

typedef vf qacc; // lane i sums products of values 4i … 4i+3 of two blocks

struct qweight {
	__m512i q; // unsigned
	vf d;      // lanes 0-7 the first block's scale, 8-15 the second's
};

struct qvalue {
	__m512i q;
	__m512i s; // where the integer sum starts
	vf d;
};

INLINE vf spread_pair(__m128 d)
{
	const __m512i which = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
	return _mm512_permutexvar_ps(which, _mm512_castps128_ps512(d));
}

INLINE vf half_pair(uint32_t first, uint32_t second)
{
	return spread_pair(_mm_cvtph_ps(_mm_cvtsi32_si128((int)(first | second << 16))));
}

INLINE struct qweight load_q8(const uint8_t *w, int blocks)
{
	const __m512i shift = _mm512_set1_epi8((char)0x80);
	__m512i q = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(w + 2)));
	uint32_t second = 0;
	if (blocks == 2) {
		q = _mm512_inserti64x4(q, _mm256_loadu_si256((const __m256i *)(w + 36)), 1);
		second = load_u16(w + 34);
	} else {
		q = _mm512_inserti64x4(q, _mm256_setzero_si256(), 1);
	}
	return (struct qweight){_mm512_xor_si512(q, shift), half_pair(load_u16(w), second)};
}

INLINE struct qweight load_q4(const uint8_t *w, int blocks)
{
	const __m512i shift = _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0); // high halves take high nibbles
	__m256i lo = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 2))), hi = lo;
	uint32_t second = 0;
	if (blocks == 2) {
		hi = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(w + 20)));
		second = load_u16(w + 18);
	}
	__m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
	q = _mm512_and_si512(_mm512_srlv_epi64(q, shift), _mm512_set1_epi8(0x0f));
	return (struct qweight){q, half_pair(load_u16(w), second)};
}

// Values of blocks b and b+1; rows are padded with zeros to an even number.
INLINE struct qvalue load_value(struct quant_row x, int b, const int shift)
{
	return (struct qvalue){
		_mm512_load_si512(x.q + b * BLOCK),
		_mm512_slli_epi32(_mm512_load_si512(x.s + b * BLOCK / 4), shift),
		spread_pair(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(x.d + b)))),
	};
}

INLINE qacc qacc_zero(void) { return vf_zero(); }

INLINE qacc qacc_add(qacc acc, struct qweight w, struct qvalue x)
{
	vf dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(x.s, w.q, x.q));
	return _mm512_fmadd_ps(dot, _mm512_mul_ps(w.d, x.d), acc);
}

INLINE float qacc_sum(qacc a) { return vf_sum(a); }

// Blocks i and i+1 of a super-block.
struct kweight {
	__m512i q; // unsigned
	vf d, m;   // a value is d · q - m; without offsets d · (q - 2^5)
};

INLINE vf spread_four(const float *d)
{
	const __m512i which = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
	return _mm512_permutexvar_ps(which, _mm512_castps128_ps512(_mm_loadu_ps(d)));
}

INLINE vf spread_two(const float *d) { return spread_pair(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)d))); }

INLINE __m512i two_blocks(__m256i first, __m256i second)
{
	return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
}

INLINE struct kweight load_super(const int type, const uint8_t *w, const int i, const float *d, const float *m)
{
	const __m512i low_bits = _mm512_set1_epi8(0x0f), bit4 = _mm512_set1_epi8(0x10), bits45 = _mm512_set1_epi8(0x30);
	if (type == TYPE_Q6_K) {
		const int half = i / 4, run = i % 4;
		__m512i low = _mm512_loadu_si512(w + half * 2 * BLOCK);
		__m256i high = _mm256_loadu_si256((const __m256i *)(w + Q6K_HIGH + half * BLOCK));
		__m512i q = _mm512_and_si512(run ? _mm512_srli_epi16(low, 4) : low, low_bits);
		__m512i top = run ? two_blocks(high, _mm256_srli_epi16(high, 2))
		                  : two_blocks(_mm256_slli_epi16(high, 4), _mm256_slli_epi16(high, 2));
		return (struct kweight){.q = _mm512_or_si512(q, _mm512_and_si512(top, bits45)), .d = spread_four(d + 2 * i)};
	}
	const int at = type == TYPE_Q5_K ? Q5K_Q : Q4K_Q;
	__m256i both = _mm256_loadu_si256((const __m256i *)(w + at + i / 2 * BLOCK));
	__m512i q = _mm512_and_si512(two_blocks(both, _mm256_srli_epi16(both, 4)), low_bits);
	if (type == TYPE_Q5_K) {
		__m256i high = _mm256_loadu_si256((const __m256i *)(w + Q5K_HIGH));
		__m256i first = i < 4 ? _mm256_slli_epi16(high, 4 - i) : _mm256_srli_epi16(high, i - 4);
		__m256i second = i < 3 ? _mm256_slli_epi16(high, 3 - i) : _mm256_srli_epi16(high, i - 3);
		q = _mm512_or_si512(q, _mm512_and_si512(two_blocks(first, second), bit4));
	}
	return (struct kweight){q, spread_two(d + i), spread_two(m + i)};
}

INLINE qacc super_add(const int type, qacc acc, struct kweight w, struct qvalue x)
{
	if (type == TYPE_Q6_K)
		return qacc_add(acc, (struct qweight){w.q, w.d}, x);
	vf dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w.q, x.q));
	acc = _mm512_fmadd_ps(dot, _mm512_mul_ps(w.d, x.d), acc);
	return _mm512_fmadd_ps(_mm512_cvtepi32_ps(x.s), _mm512_mul_ps(w.m, x.d), acc); // s is minus Σq
}
