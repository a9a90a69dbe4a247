// Vectors of 4 floats, and int8 products with SDOT. Every operation gives the bits of its twin in
// simd_portable.h as that is compiled for this processor.

#define LANES 4
#define TILE_ROWS 4
#define TILE_OUTS 4
#define WIDE 4 // vectors of V that share a load of its weights

typedef float32x4_t vf;

INLINE vf vf_zero(void) { return vdupq_n_f32(0); }
INLINE vf vf_set(float x) { return vdupq_n_f32(x); }
INLINE vf vf_load_n(const void *p, int n)
{
	vf a = vf_zero();
	memcpy(&a, p, sizeof(float) * (size_t)n);
	return a;
}
INLINE vf vf_load(const void *p) { return vreinterpretq_f32_u8(vld1q_u8(p)); } // any alignment
INLINE void vf_store_n(float *p, vf a, int n) { memcpy(p, &a, sizeof(float) * (size_t)n); }
INLINE void vf_store(float *p, vf a) { vst1q_f32(p, a); }

INLINE vf of_halves(uint8x8_t h) { return vcvt_f32_f16(vreinterpret_f16_u8(h)); }
INLINE vf vf_load_h(const uint8_t *p) { return of_halves(vld1_u8(p)); }
INLINE vf vf_load_h_n(const uint8_t *p, int n)
{
	uint8_t h[8] = {0};
	memcpy(h, p, 2 * (size_t)n);
	return vf_load_h(h);
}
INLINE float load_half(const uint8_t *p) { return vgetq_lane_f32(vf_load_h_n(p, 1), 0); }
INLINE vf vf_load_b(const uint8_t *p) // bfloat16
{
	return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
INLINE void vf_store_h_n(uint8_t *p, vf a, int n)
{
	float16x4_t h = vcvt_f16_f32(a);
	memcpy(p, &h, 2 * (size_t)n);
}

INLINE vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
INLINE vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
INLINE vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
INLINE vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }                   // a·b + c
INLINE vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }           // b if either is NaN
INLINE vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }           // b if either is NaN
INLINE vf vf_unless_below(vf a, vf b, vf c) { return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(b, c))); } // a, but 0 where b < c
INLINE vf vf_round(vf a) { return vrndnq_f32(a); }
INLINE vf power2(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }

// a · 2ⁿ for whole |n| ≤ 252: two factors, because one may exceed the range of exponents.
INLINE vf vf_scale2(vf a, vf n)
{
	int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1);
	return vmulq_f32(vmulq_f32(a, power2(half)), power2(vsubq_s32(whole, half)));
}

// Adds neighbours: (a0 + a1) + (a2 + a3).
INLINE float vf_sum(vf a)
{
	vf pairs = vpaddq_f32(a, a);
	return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
}

// The sums of a whole tile, y[r·ys + o] = vf_sum(a[r][o]), in the same order of additions.
INLINE void vf_sum_tile(const vf a[TILE_ROWS][TILE_OUTS], float *y, size_t ys)
{
	UNROLL for (int r = 0; r < TILE_ROWS; r++)
		vst1q_f32(y + r * ys, vpaddq_f32(vpaddq_f32(a[r][0], a[r][1]), vpaddq_f32(a[r][2], a[r][3])));
}

INLINE float vf_maximum(vf a) { return vmaxvq_f32(a); }

// The largest |x| of a block, compared as integers, so that NaN is larger than infinity.
INLINE float block_max(const float *x)
{
	uint32x4_t max = vdupq_n_u32(0);
	UNROLL for (int i = 0; i < BLOCK; i += LANES)
		max = vmaxq_u32(max, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
	return float_of(vmaxvq_u32(max));
}

INLINE int16x4_t load_rounded(const float *x, vf scale) { return vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x), scale))); }

// q = x · scale, rounded to the nearest integer, ties to even.
INLINE void block_round(const float *x, float scale, int8_t *q)
{
	vf k = vf_set(scale);
	UNROLL for (int i = 0; i < BLOCK; i += 2 * LANES)
		vst1_s8(q + i, vqmovn_s16(vcombine_s16(load_rounded(x + i, k), load_rounded(x + i + LANES, k))));
}

// Vectors of bytes, four for each lane.
#define PANEL_ROWS 4 // rows of activations that share a load of a panel
#define FLOAT_ROWS 2 // the same for float formats
#define FEW_REGISTERS false // see reloaded

typedef uint8x16_t vb;
typedef int32x4_t vi;

INLINE vb vb_load(const uint8_t *p) { return vld1q_u8(p); }
INLINE vb vb_low(vb a) { return vandq_u8(a, vdupq_n_u8(15)); }
INLINE vb vb_high(vb a) { return vshrq_n_u8(a, 4); }

// Each byte shifted left by shift, or right by -shift. The bits that this frees are unspecified.
INLINE vb vb_shift(vb a, const int shift) { return vshlq_u8(a, vdupq_n_s8((int8_t)shift)); }

// The same, masked with mask.
INLINE vb vb_bits(vb a, const int shift, int mask) { return vandq_u8(vb_shift(a, shift), vdupq_n_u8((uint8_t)mask)); }

// Bits of a where mask has ones, and of b where it has zeros.
INLINE vb vb_select(vb a, vb b, int mask) { return vbslq_u8(vdupq_n_u8((uint8_t)mask), a, b); }

// table[a] for each byte of a, below 16.
INLINE vb vb_lookup(const uint8_t *table, vb a) { return vqtbl1q_u8(vld1q_u8(table), a); }

INLINE vb four_bytes(const uint8_t *p) { return vreinterpretq_u8_u32(vdupq_n_u32((uint32_t)load_u16(p) | (uint32_t)load_u16(p + 2) << 16)); }

// Byte l at p, repeated four times, for each lane l.
INLINE vb vb_spread(const uint8_t *p)
{
	static const uint8_t lanes[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
	return vqtbl1q_u8(four_bytes(p), vld1q_u8(lanes));
}

INLINE vb vb_or(vb a, vb b) { return vorrq_u8(a, b); }

// Each byte shifted right by shift and masked with mask.
INLINE vf vf_bits(const uint8_t *p, const int shift, int mask)
{
	uint32x4_t a = vreinterpretq_u32_u8(vb_spread(p));
	return vcvtq_f32_u32(vandq_u32(vshlq_u32(a, vdupq_n_s32(-shift)), vdupq_n_u32((uint32_t)mask)));
}
INLINE vf vf_bytes(const uint8_t *p) { return vf_bits(p, 0, 255); }
INLINE vf vf_int8(const uint8_t *p) { return vcvtq_f32_s32(vshrq_n_s32(vreinterpretq_s32_u8(vb_spread(p)), 24)); }

// In each lane l, table[w >> shift & 15], 32 bits of any type, for word w of 32 bits at p + 4l.
INLINE vf vf_lookup(const void *table, const uint8_t *p, int shift)
{
	const uint32x4_t i = vandq_u32(vshlq_u32(vreinterpretq_u32_u8(vld1q_u8(p)), vdupq_n_s32(-shift)), vdupq_n_u32(15));
	const uint8x16_t bytes = vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), i, 0x04040404));
	return vreinterpretq_f32_u8(vqtbl4q_u8(vld1q_u8_x4((const uint8_t *)table), bytes));
}

INLINE vi vi_set(int32_t x) { return vdupq_n_s32(x); }

// In each lane, w[0] · x[0] + w[1] · x[1] for pairs of 16 bits.
INLINE vi vi_dot_pairs(vi w, const int16_t *x)
{
	int32_t two;
	memcpy(&two, x, sizeof two);
	const int16x8_t a = vreinterpretq_s16_s32(w), b = vreinterpretq_s16_s32(vdupq_n_s32(two));
	return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
}

// In each lane, start + Σ w[j] · x[first + j] over quads j = 0 … quads-1, w unsigned and below 2^bits, x
// the four bytes of a quad. The sum is exact.
//
// SDOT multiplies signed bytes. Eight-bit weights are replaced by w - 128; start must then be
// -128 · Σ x, which this computation already includes.
INLINE vf vb_dot(const int bits, const int first, const int quads, const vb *w, const struct quant_block *x, vi start)
{
	int32x4_t sum = bits == 8 ? vdupq_n_s32(0) : start;
	UNROLL for (int j = 0; j < quads; j += 4) {
		const int8x16_t a = vld1q_s8(x->q + 4 * (first + j));
		int8x16_t q[4];
		UNROLL for (int k = 0; k < 4; k++)
			q[k] = vreinterpretq_s8_u8(bits == 8 ? veorq_u8(w[j + k], vdupq_n_u8(0x80)) : w[j + k]);
		sum = vdotq_laneq_s32(sum, q[0], a, 0);
		sum = vdotq_laneq_s32(sum, q[1], a, 1);
		sum = vdotq_laneq_s32(sum, q[2], a, 2);
		sum = vdotq_laneq_s32(sum, q[3], a, 3);
	}
	return vcvtq_f32_s32(sum);
}
