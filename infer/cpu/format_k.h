// Q4_K and Q5_K: super-blocks of eight blocks of 32 values. Two F16, the units of scales and of
// offsets; 12 bytes with eight scales and eight offsets of six bits; for Q5_K the fifth bits, bit i of
// byte k for value k of block i; then four times 32 bytes, with block 2i in the low nibbles and block
// 2i+1 in the high ones. A value is scale · q - offset.
//
// In a panel, each output of a block has a byte for the scale and one for the offset.

enum { K_SCALES = 4, K_INTEGERS = 16, K_FIFTHS = SUPER * BLOCK / 8 };

// Unpacks the six-bit scales and offsets. For blocks 0-3 they are the low six bits of bytes 0-3 and
// 4-7; for blocks 4-7 their low four bits are the nibbles of bytes 8-11, their upper two the top bits
// of bytes 0-7. scales: (2, SUPER)
INLINE void unpack_scales(const uint8_t *w, uint8_t *scales)
{
	uint32_t scale, offset, rest;
	memcpy(&scale, w, 4);
	memcpy(&offset, w + 4, 4);
	memcpy(&rest, w + 8, 4);
	const uint32_t parts[4] = {
		scale & 0x3f3f3f3f,
		(rest & 0x0f0f0f0f) | (scale >> 2 & 0x30303030),
		offset & 0x3f3f3f3f,
		(rest >> 4 & 0x0f0f0f0f) | (offset >> 2 & 0x30303030),
	};
	memcpy(scales, parts, sizeof parts);
}

// kind: PANEL_Q4_K or PANEL_Q5_K, a constant
INLINE void pack_k(const int kind, const uint8_t *w, uint8_t *to)
{
	const bool five = panel_of(kind).bits == 5;
	const uint8_t *integers = w + K_INTEGERS + (five ? K_FIFTHS : 0);
	uint8_t scales[2 * SUPER];
	memcpy(to, w, 4);
	unpack_scales(w + K_SCALES, scales);
	for (int i = 0; i < SUPER; i++) {
		column_scales(kind, to, i)[0] = scales[i];
		column_scales(kind, to, i)[1] = scales[SUPER + i];
		uint8_t *values = column_values(kind, to, i);
		const uint8_t *from = integers + i / 2 * BLOCK;
		put_nibbles(values, load_words(from) >> i % 2 * 4, load_words(from + 16) >> i % 2 * 4);
		if (five)
			put_singles(values + 16, w + K_INTEGERS, i);
	}
}

INLINE struct panel_block load_k(const int bits, struct block_at at, const int v)
{
	struct panel_block w;
	w.m[0] = vf_mul(unit(at, 1, v), vf_bytes(at.scales + PANEL + v * LANES));
	w.d[0] = vf_mul(unit(at, 0, v), vf_bytes(at.scales + v * LANES));
	load_values(bits, &w, at.q + v * 4 * LANES);
	return w;
}

INLINE vf add_k(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x)
{
	acc = vf_fma(vb_dot(bits, 0, 8, w->q, x, vi_set(0)), vf_mul(w->d[0], vf_set(x->d)), acc);
	return vf_fma(w->m[0], vf_set(x->offset), acc);
}

INLINE void unpack_k(const int bits, struct block_at at, int o, float *y)
{
	float d = load_half(at.units + 2 * o) * (float)at.scales[o];
	float m = load_half(at.units + 2 * (PANEL + o)) * (float)at.scales[PANEL + o];
	for (int k = 0; k < BLOCK; k++)
		y[k] = d * (float)value_at(bits, at.q, o, k) - m;
}

#define K_FORMAT(name, bits)                                                                                                  \
	INLINE void pack_##name(const uint8_t *w, uint8_t *to) { pack_k(PANEL_##name, w, to); }                            \
	INLINE struct panel_block load_##name(struct block_at at, const int v) { return load_k(bits, at, v); }                    \
	INLINE vf add_##name(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_k(bits, acc, w, x); } \
	INLINE void unpack_##name(struct block_at at, int o, float *y) { unpack_k(bits, at, o, y); }

K_FORMAT(Q4_K, 4)
K_FORMAT(Q5_K, 5)

// Q6_K and Q3_K have a scale for every 16 values, stored as int8 in panels. A value is scale · (q -
// half the range). Each half of a super-block is four blocks, which share 32 bytes with two bits for
// each: the upper bits of Q6_K, the lower bits of Q3_K, the values of Q2_K.

// Writes the two scales of block i to a column.
INLINE void put_scales(const int kind, uint8_t *to, int i, int first, int second)
{
	column_scales(kind, to, i)[0] = (uint8_t)first;
	column_scales(kind, to, i)[1] = (uint8_t)second;
}

// Writes two bits of each value of block i to a column. w: the bits of a super-block
INLINE void put_two_bits(uint8_t *to, const uint8_t *w, int i) { put_pairs(to, w + i / 4 * BLOCK, i % 4 * 2); }

// Q6_K: 128 bytes with the lower four bits, 64 bytes with the upper two, 16 int8 scales, and their
// unit (F16). The low bits of blocks 0 and 2 of a half share 32 bytes, as do those of blocks 1 and 3.
enum { Q6K_HIGH = 128, Q6K_SCALES = 192, Q6K_UNIT = 208 };

INLINE void pack_Q6_K(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w + Q6K_UNIT, 2);
	for (int i = 0; i < SUPER; i++) {
		const uint8_t *low = w + (i / 4 * 2 + i % 2) * BLOCK;
		uint8_t *values = column_values(PANEL_Q6_K, to, i);
		put_scales(PANEL_Q6_K, to, i, w[Q6K_SCALES + 2 * i], w[Q6K_SCALES + 2 * i + 1]);
		put_nibbles(values, load_words(low) >> i / 2 % 2 * 4, load_words(low + 16) >> i / 2 % 2 * 4);
		put_two_bits(values + 16, w + Q6K_HIGH, i);
	}
}

// Q3_K: 32 bytes with the third bits, bit i of byte k for value k of block i; 64 bytes with the lower
// two; 12 bytes with 16 six-bit scales, stored plus 32; and their unit (F16). The low four bits of
// scales 0-7 and 8-15 are the nibbles of the first eight bytes; the upper two of scale i are in byte
// 8 + i%4, from bit i/4·2.
enum { Q3K_LOW = 32, Q3K_SCALES = 96, Q3K_UNIT = 108 };

INLINE void pack_Q3_K(const uint8_t *w, uint8_t *to)
{
	const uint8_t *packed = w + Q3K_SCALES;
	int scales[2 * SUPER];
	memcpy(to, w + Q3K_UNIT, 2);
	for (int i = 0; i < 2 * SUPER; i++)
		scales[i] = ((packed[i % 8] >> i / 8 * 4 & 15) | (packed[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		for (int k = 0; k < BLOCK; k += 4)
			store_u32(values + k, (load_u32(w + Q3K_LOW + i / 4 * BLOCK + k) >> i % 4 * 2 & 0x03030303) | (load_u32(w + k) >> i & 0x01010101) << 2);
		put_scales(PANEL_Q3_K, to, i, scales[2 * i], scales[2 * i + 1]);
		put_values(3, column_values(PANEL_Q3_K, to, i), values);
	}
}

INLINE struct panel_block load_halves(const int bits, struct block_at at, const int v)
{
	struct panel_block w;
	const vf d = unit(at, 0, v);
	w.d[0] = vf_mul(d, vf_int8(at.scales + v * LANES));
	w.d[1] = vf_mul(d, vf_int8(at.scales + PANEL + v * LANES));
	load_values(bits, &w, at.q + v * 4 * LANES);
	return w;
}

// Adds the two halves of the block, then multiplies by x's scale. start: Σ -bias · q_x of each half
INLINE vf add_two(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x, const vi start[2])
{
	vf first = vb_dot(bits, 0, 4, w->q, x, start[0]);
	vf second = vb_dot(bits, 4, 4, w->q + 4, x, start[1]);
	return vf_fma(vf_fma(second, w->d[1], vf_mul(first, w->d[0])), vf_set(x->d), acc);
}

// The same for values with one bias, a constant.
INLINE vf add_halves(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x, const int bias)
{
	vi start[2];
	UNROLL for (int h = 0; h < 2; h++)
		start[h] = vi_set(bias == 32 ? x->half32[h] : x->half[h] * bias);
	return add_two(bits, acc, w, x, start);
}

INLINE void unpack_halves(const int bits, struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++) {
		float d = load_half(at.units + 2 * o) * (float)(int8_t)at.scales[k / 16 * PANEL + o];
		y[k] = d * (float)(value_at(bits, at.q, o, k) - (1 << (bits - 1)));
	}
}

#define HALVES_PANEL(name, bits)                                                                           \
	INLINE struct panel_block load_##name(struct block_at at, const int v) { return load_halves(bits, at, v); } \
	INLINE vf add_##name(vf acc, const struct panel_block *w, const struct quant_block *x)                 \
	{                                                                                                      \
		return add_halves(bits, acc, w, x, 1 << (bits - 1));                                               \
	}                                                                                                      \
	INLINE void unpack_##name(struct block_at at, int o, float *y) { unpack_halves(bits, at, o, y); }

HALVES_PANEL(Q3_K, 3)
HALVES_PANEL(Q6_K, 6)

// Q2_K: 16 bytes, one for every 16 values, with a four-bit scale in the low nibble and a four-bit
// offset in the high one; 64 bytes with two-bit values; and two F16, the units of scales and of
// offsets. A value is scale · q - offset. Panels store the same scale bytes.
enum { Q2K_INTEGERS = 16, Q2K_UNITS = 80 };

INLINE void pack_Q2_K(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w + Q2K_UNITS, 4);
	for (int i = 0; i < SUPER; i++) {
		put_scales(PANEL_Q2_K, to, i, w[2 * i], w[2 * i + 1]);
		put_two_bits(column_values(PANEL_Q2_K, to, i), w + Q2K_INTEGERS, i);
	}
}

// TQ2_0: 64 bytes with two-bit values t in the order of Q2_K, then a unit (F16). A value is unit · (t - 1):
// that of Q2_K with 1 as all scales and offsets.
enum { TERNARY_SCALE = 0x11 };

// Writes 256 values of two bits, in the order of Q2_K, and their unit to a column.
INLINE void put_ternary(uint8_t *to, const uint8_t *values, const uint8_t *unit)
{
	memcpy(to, unit, 2);
	memcpy(to + 2, unit, 2);
	for (int i = 0; i < SUPER; i++) {
		put_scales(PANEL_Q2_K, to, i, TERNARY_SCALE, TERNARY_SCALE);
		put_two_bits(column_values(PANEL_Q2_K, to, i), values, i);
	}
}

INLINE void pack_TQ2_0(const uint8_t *w, uint8_t *to) { put_ternary(to, w, w + 64); }

// TQ1_0: 52 bytes with digits of base 3, which are t, then the unit. Byte b stands for the fraction b/256; a
// digit is the whole part of three times what those before it leave. The first 32 bytes have five digits each,
// the next 16 too, the last four have four each; of each of these runs, the first digits come first.
INLINE void pack_TQ1_0(const uint8_t *w, uint8_t *to)
{
	static const uint8_t runs[3][2] = {{32, 5}, {16, 5}, {4, 4}}; // bytes, digits
	const uint8_t *bytes = w;
	uint8_t values[SUPER * BLOCK / 4] = {0};
	for (int r = 0, n = 0; r < 3; bytes += runs[r++][0])
		for (int digit = 0, power = 1; digit < runs[r][1]; digit++, power *= 3)
			for (int k = 0; k < runs[r][0]; k++, n++) {
				const int t = (uint8_t)(bytes[k] * power) * 3 >> 8;
				values[n / 128 * BLOCK + n % BLOCK] |= (uint8_t)(t << n / BLOCK % 4 * 2);
			}
	put_ternary(to, values, w + 52);
}

INLINE struct panel_block load_Q2_K(struct block_at at, const int v)
{
	struct panel_block w;
	const vf d = unit(at, 0, v), m = unit(at, 1, v);
	UNROLL for (int h = 0; h < 2; h++) {
		w.d[h] = vf_mul(d, vf_bits(at.scales + h * PANEL + v * LANES, 0, 15));
		w.m[h] = vf_mul(m, vf_bits(at.scales + h * PANEL + v * LANES, 4, 15));
	}
	load_values(2, &w, at.q + v * 4 * LANES);
	return w;
}

INLINE vf add_Q2_K(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	vf sum = vf_mul(w->m[0], vf_set((float)x->half[0]));
	sum = vf_fma(w->m[1], vf_set((float)x->half[1]), sum);
	sum = vf_fma(vb_dot(2, 0, 4, w->q, x, vi_set(0)), w->d[0], sum);
	sum = vf_fma(vb_dot(2, 4, 4, w->q + 4, x, vi_set(0)), w->d[1], sum);
	return vf_fma(sum, vf_set(x->d), acc);
}

INLINE void unpack_Q2_K(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++) {
		const uint8_t scale = at.scales[k / 16 * PANEL + o];
		float d = load_half(at.units + 2 * o) * (float)(scale & 15), m = load_half(at.units + 2 * (PANEL + o)) * (float)(scale >> 4);
		y[k] = d * (float)value_at(2, at.q, o, k) - m;
	}
}
