// Formats whose values are codes: indices in a table of values, struct codes.
//
// IQ1, IQ2 and IQ3 store points of a codebook, each the magnitudes of 8 values (IQ3: 4), and signs.
// Panels store a code for each value that includes the sign. The points of IQ1 have no signs, and what
// panels store are the values themselves.

// First point of each codebook.
enum { BOOK_IQ2_XXS = 0, BOOK_IQ2_XS = 256, BOOK_IQ2_S = 768, BOOK_IQ3_XXS = 1792, BOOK_IQ3_S = 2048, BOOK_IQ1 = 2560 };

INLINE uint32_t point_of(int book, uint32_t i) { return load_u16(engine_codebooks + 2 * ((uint32_t)book + i)); }

// The signs of eight values from seven bits; the eighth makes the number of negative values even.
INLINE uint32_t even_signs(uint32_t seven)
{
	uint32_t low = seven & 127, parity = low ^ low >> 4;
	parity ^= parity >> 2;
	return low | ((parity ^ parity >> 1) & 1) << 7;
}

// Writes the codes of eight values, of width bits, with a sign above each.
INLINE void put_group(uint8_t *to, const int width, uint32_t codes, uint32_t signs)
{
	const uint64_t bytes = 0x0101010101010101;
	uint64_t spread = codes; // one code in 8 bytes: halves, quarters and eighths move apart
	spread = (spread | spread << (32 - 4 * width)) & 0x0000000100000001 * ((1u << 4 * width) - 1);
	spread = (spread | spread << (16 - 2 * width)) & 0x0001000100010001 * ((1u << 2 * width) - 1);
	spread = (spread | spread << (8 - width)) & bytes * ((1u << width) - 1);
	uint64_t negative = (uint64_t)(signs & 255) * bytes & 0x8040201008040201; // bit k of byte k
	negative = (negative + 0x7f7f7f7f7f7f7f7f) >> 7 & bytes;
	spread |= negative << width;
	memcpy(to, &spread, sizeof spread);
}

// The biases of values: of products of eight bits (see vb_dot) it is 128.
enum { BIAS = 128, IQ2_BIAS = 43 };

// The codes of a type, NULL if it has none.
static const struct codes *codes_of(int type)
{
	static const struct codes
		iq4 = {{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}, BIAS, 1},
		mxfp4 = {{128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116}, BIAS, 1},
		iq3_xxs = {{132, 140, 148, 156, 164, 172, 180, 190, 124, 116, 108, 100, 92, 84, 76, 66}, BIAS, 0.25f},
		iq3_s = {{129, 131, 133, 135, 137, 139, 141, 143, 127, 125, 123, 121, 119, 117, 115, 113}, BIAS, 1},
		iq2 = {{51, 68, 86, 0, 35, 18, 0, 0}, IQ2_BIAS, 0.125f};
	switch (type) {
	case TYPE_IQ4_NL:
	case TYPE_IQ4_XS:
		return &iq4;
	case TYPE_MXFP4:
	case TYPE_NVFP4:
		return &mxfp4;
	case TYPE_IQ3_XXS:
		return &iq3_xxs;
	case TYPE_IQ3_S:
		return &iq3_s;
	case TYPE_IQ2_XXS:
	case TYPE_IQ2_XS:
	case TYPE_IQ2_S:
		return &iq2;
	}
	return NULL;
}

INLINE void look_up(struct panel_block *w, struct block_at at)
{
	UNROLL for (int j = 0; j < 8; j++)
		w->q[j] = vb_lookup(at.codes->values, w->q[j]);
}

// Loads codes of three bits and looks them up.
INLINE void look_up_sixes(struct panel_block *w, struct block_at at, const int v)
{
	vb sixes[4];
	load_sixes(sixes, at.q + v * 4 * LANES);
	UNROLL for (int j = 0; j < 8; j++)
		w->q[j] = vb_lookup_bits(at.codes->values, sixes[j / 2], -3 * (j % 2), 7);
}

INLINE vf unit_of(struct block_at at, const int v) { return vf_mul(unit(at, 0, v), vf_set(at.codes->factor)); }

INLINE float code_value(const struct codes *codes, int code) { return (float)(codes->values[code] - codes->bias); }

// CODES_32: blocks of 32 four-bit codes and a scale, which panels store as a float.

INLINE void pack_codes_32(float scale, const uint8_t *w, uint8_t *to)
{
	const four_words values = load_words(w);
	memcpy(to, &scale, 4);
	put_nibbles(to + 4, values, values >> 4);
}

// IQ4_NL: the scale (F16), then codes stored like the values of Q4_0.
INLINE void pack_IQ4_NL(const uint8_t *w, uint8_t *to) { pack_codes_32(load_half(w), w + 2, to); }

// MXFP4: the exponent e of the scale 2^(e-128), then codes stored like the values of Q4_0. Scales
// below 2^-126 are denormal floats.
INLINE void pack_MXFP4(const uint8_t *w, uint8_t *to)
{
	const uint32_t e = *w;
	pack_codes_32(float_of(e < 2 ? 0x200000u << e : (e - 1) << 23), w + 1, to);
}

INLINE struct panel_block load_CODES_32(struct block_at at, const int v)
{
	struct panel_block w;
	w.d[0] = vf_load(at.units + v * 4 * LANES);
	load_values(4, &w, at.q + v * 4 * LANES);
	look_up(&w, at);
	return w;
}

// Adds a block that has one scale. start: Σ -bias · q_x
INLINE vf add_one(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x, vi start)
{
	return vf_fma(vb_dot(bits, 0, 8, w->q, x, start), vf_mul(w->d[0], vf_set(x->d)), acc);
}

// The same for codes with a bias.
INLINE vf add_codes(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x, const int bias)
{
	return add_one(bits, acc, w, x, vi_set(x->sum * bias));
}

INLINE vf add_CODES_32(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_codes(8, acc, w, x, BIAS); }

INLINE void unpack_CODES_32(struct block_at at, int o, float *y)
{
	float d;
	memcpy(&d, at.units + 4 * o, 4);
	for (int k = 0; k < BLOCK; k++)
		y[k] = d * code_value(at.codes, value_at(4, at.q, o, k));
}

// CODES_16: pairs of blocks of 32 four-bit codes, with a scale (F16) for every 16.

// The scale of 16 values of NVFP4, as F16. Bits 0-2 are the fraction, bits 3-6 the exponent, which has a
// bias of 8 because codes mean twice their value; bit 7 is ignored, and 127 counts as 0.
INLINE uint16_t nvfp4_scale(uint8_t bits)
{
	static const uint16_t small[8] = {0, 0x1400, 0x1800, 0x1a00, 0x1c00, 0x1d00, 0x1e00, 0x1f00}; // fractions of 2^-7
	const int rest = bits & 127;
	if (rest < 8)
		return small[rest];
	return bits == 127 ? 0 : (uint16_t)((rest << 7) + (7 << 10));
}

// NVFP4: four scales, then for every 16 values 8 bytes of codes: byte k has value k in its low nibble and value
// k+8 in its high one.
INLINE void pack_NVFP4(const uint8_t *w, uint8_t *to)
{
	for (int i = 0; i < 4; i++) {
		const uint16_t scale = nvfp4_scale(w[i]);
		memcpy(to + 2 * i, &scale, 2);
	}
	for (int i = 0; i < 2; i++) {
		uint8_t values[BLOCK];
		for (int k = 0; k < BLOCK; k++)
			values[k] = w[4 + 16 * i + k / 16 * 8 + k % 8] >> k / 8 % 2 * 4 & 15;
		put_values(4, column_values(PANEL_CODES_16, to, i), values);
	}
}

INLINE struct panel_block load_CODES_16(struct block_at at, const int v)
{
	struct panel_block w;
	UNROLL for (int h = 0; h < 2; h++)
		w.d[h] = unit(at, h, v);
	load_values(4, &w, at.q + v * 4 * LANES);
	look_up(&w, at);
	return w;
}

INLINE vf add_CODES_16(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_halves(8, acc, w, x, BIAS); }

INLINE void unpack_CODES_16(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++)
		y[k] = load_half(at.units + 2 * (k / 16 * PANEL + o)) * code_value(at.codes, value_at(4, at.q, o, k));
}

// CODES_4: super-blocks with a unit (F16), and an int8 scale for every 32 four-bit codes.

// IQ4_XS: the unit; eight six-bit scales stored plus 32, their upper two bits in 16 bits and their
// lower four in 4 bytes; eight times 16 bytes of codes, stored like the values of Q4_0.
INLINE void pack_IQ4_XS(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		const four_words values = load_words(w + 8 + 16 * i);
		int scale = (w[4 + i / 2] >> i % 2 * 4 & 15) | (load_u16(w + 2) >> 2 * i & 3) << 4;
		column_scales(PANEL_CODES_4, to, i)[0] = (uint8_t)(scale - 32);
		put_nibbles(column_values(PANEL_CODES_4, to, i), values, values >> 4);
	}
}

// IQ3_XXS: the unit, 64 points, and for every 32 values 32 bits: four times seven bits of signs, and
// four bits s of the scale, (2s + 1) quarters.
INLINE void pack_IQ3_XXS(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		const uint32_t rest = load_u32(w + 66 + 4 * i);
		for (int g = 0; g < 4; g++) {
			const uint8_t *points = w + 2 + 8 * i + 2 * g;
			put_group(values + 8 * g, 3, point_of(BOOK_IQ3_XXS, points[0]) | point_of(BOOK_IQ3_XXS, points[1]) << 12, even_signs(rest >> 7 * g));
		}
		column_scales(PANEL_CODES_4, to, i)[0] = (uint8_t)(2 * (rest >> 28) + 1);
		put_values(4, column_values(PANEL_CODES_4, to, i), values);
	}
}

// IQ3_S: the unit, the low 8 bits of 64 points, their ninth bits, 32 bytes of signs, and for every 32
// values four bits s of the scale, 2s + 1.
INLINE void pack_IQ3_S(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		const uint32_t ninths = w[66 + i];
		for (int g = 0; g < 4; g++) {
			const uint8_t *low = w + 2 + 8 * i + 2 * g;
			const uint32_t first = point_of(BOOK_IQ3_S, low[0] | (ninths >> 2 * g & 1) << 8);
			const uint32_t second = point_of(BOOK_IQ3_S, low[1] | (ninths >> (2 * g + 1) & 1) << 8);
			put_group(values + 8 * g, 3, first | second << 12, w[74 + 4 * i + g]);
		}
		column_scales(PANEL_CODES_4, to, i)[0] = (uint8_t)(2 * (w[106 + i / 2] >> i % 2 * 4 & 15) + 1);
		put_values(4, column_values(PANEL_CODES_4, to, i), values);
	}
}

INLINE struct panel_block load_CODES_4(struct block_at at, const int v)
{
	struct panel_block w;
	w.d[0] = vf_mul(unit_of(at, v), vf_int8(at.scales + v * LANES));
	load_values(4, &w, at.q + v * 4 * LANES);
	look_up(&w, at);
	return w;
}

INLINE vf add_CODES_4(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_CODES_32(acc, w, x); }

INLINE void unpack_CODES_4(struct block_at at, int o, float *y)
{
	const float d = load_half(at.units + 2 * o) * at.codes->factor * (float)(int8_t)at.scales[o];
	for (int k = 0; k < BLOCK; k++)
		y[k] = d * code_value(at.codes, value_at(4, at.q, o, k));
}

// CODES_3: super-blocks with a unit (F16), and for every 32 three-bit codes a byte with two four-bit
// scales s, each for 16 values: (2s + 1) eighths. CODES_3_ONE has one of them instead, in four bits.

// IQ2_XXS: the unit, then for every 32 values four points and 32 bits as in IQ3_XXS.
INLINE void pack_IQ2_XXS(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		const uint8_t *points = w + 2 + 8 * i;
		const uint32_t rest = load_u32(points + 4);
		for (int g = 0; g < 4; g++)
			put_group(values + 8 * g, 2, point_of(BOOK_IQ2_XXS, points[g]), even_signs(rest >> 7 * g));
		put_four_bits(PANEL_CODES_3_ONE, to, 0, i, rest >> 28);
		put_values(3, column_values(PANEL_CODES_3_ONE, to, i), values);
	}
}

// IQ2_XS: the unit, 32 words of 16 bits with a point in the low nine and signs in the upper seven, and
// the scales as in a panel.
INLINE void pack_IQ2_XS(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		for (int g = 0; g < 4; g++) {
			const uint32_t word = load_u16(w + 2 + 8 * i + 2 * g);
			put_group(values + 8 * g, 2, point_of(BOOK_IQ2_XS, word & 511), even_signs(word >> 9));
		}
		column_scales(PANEL_CODES_3, to, i)[0] = w[66 + i];
		put_values(3, column_values(PANEL_CODES_3, to, i), values);
	}
}

// IQ2_S: the unit, the low 8 bits of 32 points, 32 bytes of signs, 8 bytes with the upper two bits of
// four points each, and the scales as in a panel.
INLINE void pack_IQ2_S(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		for (int g = 0; g < 4; g++) {
			const uint32_t point = w[2 + 4 * i + g] | ((uint32_t)w[66 + i] >> 2 * g & 3) << 8;
			put_group(values + 8 * g, 2, point_of(BOOK_IQ2_S, point), w[34 + 4 * i + g]);
		}
		column_scales(PANEL_CODES_3, to, i)[0] = w[74 + i];
		put_values(3, column_values(PANEL_CODES_3, to, i), values);
	}
}

INLINE struct panel_block load_CODES_3(struct block_at at, const int v)
{
	struct panel_block w;
	const vf one = unit_of(at, v), two = vf_add(one, one);
	UNROLL for (int h = 0; h < 2; h++)
		w.d[h] = vf_fma(vf_bits(at.scales + v * LANES, 4 * h, 15), two, one); // one · (2s + 1), which is exact
	look_up_sixes(&w, at, v);
	return w;
}

INLINE struct panel_block load_CODES_3_ONE(struct block_at at, const int v)
{
	static const float odd[16] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
	struct panel_block w;
	w.d[0] = vf_mul(unit_of(at, v), vf_lookup(odd, at.scales + v * 4 * LANES, at.shift));
	look_up_sixes(&w, at, v);
	return w;
}

INLINE vf add_CODES_3_ONE(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_codes(7, acc, w, x, IQ2_BIAS); }

INLINE void unpack_CODES_3_ONE(struct block_at at, int o, float *y)
{
	const float d = load_half(at.units + 2 * o) * at.codes->factor * (float)(2 * four_bits(at, 0, o) + 1);
	for (int k = 0; k < BLOCK; k++)
		y[k] = d * code_value(at.codes, value_at(3, at.q, o, k));
}

INLINE vf add_CODES_3(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_halves(7, acc, w, x, IQ2_BIAS); }

INLINE void unpack_CODES_3(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++) {
		const int scale = 2 * (at.scales[o] >> k / 16 * 4 & 15) + 1;
		const float d = load_half(at.units + 2 * o) * at.codes->factor * (float)scale;
		y[k] = d * code_value(at.codes, value_at(3, at.q, o, k));
	}
}

// TERNARY: super-blocks with a unit (F16), and for every 32 values three times four bits: two scales s of three bits, each
// for 16 values, 2s + 1; and bits that raise values. Values t of 0, 1 or 2 mean t - 1, raised by an eighth if bit g is 1,
// for values 8g … 8g+7, or else lowered by one. TERNARY_ONE has four bits instead: a scale, and bit 3, for all 32 values.
// Products multiply eighths plus TERNARY_BIAS: 8 · t, and RAISED if the value is raised.

enum { TERNARY_BIAS = 9, TERNARY_BITS = 5, RAISED = 2 };

// Biases of two parts of a block: both lowered, the first or the second raised, both raised.
enum { LOW = TERNARY_BIAS << 16 | TERNARY_BIAS, FIRST = LOW - RAISED, SECOND = LOW - (RAISED << 16), HIGH = FIRST - (RAISED << 16) };

INLINE vi bias_of(const int32_t *table, const uint8_t *p, int shift) { return (vi)vf_lookup(table, p, shift); }

// The scales of s, with bit 3 ignored.
static const float ternary_scales[16] = {1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15};

// IQ1_S: the unit, the low 8 bits of 32 points, and for every 32 values 16 bits: the upper three bits
// of four points, three bits of the scale, and the shift.
INLINE void pack_IQ1_S(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		const uint32_t word = load_u16(w + 34 + 2 * i);
		for (int g = 0; g < 4; g++)
			put_group(values + 8 * g, 2, point_of(BOOK_IQ1, w[2 + 4 * i + g] | (word >> 3 * g & 7) << 8), 0);
		put_four_bits(PANEL_TERNARY_ONE, to, 0, i, word >> 12 ^ 8);
		put_values(2, column_values(PANEL_TERNARY_ONE, to, i), values);
	}
}

// IQ1_M: the low 8 bits of 32 points; 16 bytes with four bits for each point, its upper three and a
// shift; and four words of 16 bits, each with four three-bit scales and four bits of the unit.
INLINE void pack_IQ1_M(const uint8_t *w, uint8_t *to)
{
	for (int i = 0; i < 2; i++)
		to[i] = (uint8_t)(w[49 + 4 * i] >> 4 | (w[51 + 4 * i] & 0xf0));
	for (int i = 0; i < SUPER; i++) {
		uint8_t values[BLOCK];
		const uint32_t upper = load_u16(w + 32 + 2 * i), scales = load_u16(w + 48 + i / 2 * 2) >> i % 2 * 6;
		for (int g = 0; g < 4; g++)
			put_group(values + 8 * g, 2, point_of(BOOK_IQ1, w[4 * i + g] | (upper >> 4 * g & 7) << 8), 0);
		uint32_t raised = 0;
		for (int g = 0; g < 4; g++)
			raised |= (~upper >> (4 * g + 3) & 1) << g;
		put_four_bits(PANEL_TERNARY, to, 0, i, scales & 7);
		put_four_bits(PANEL_TERNARY, to, 1, i, scales >> 3 & 7);
		put_four_bits(PANEL_TERNARY, to, 2, i, raised);
		put_values(2, column_values(PANEL_TERNARY, to, i), values);
	}
}

// Loads 8 · t.
INLINE void load_ternary(struct panel_block *w, struct block_at at, const int v)
{
	UNROLL for (int j = 0; j < 8; j++)
		w->q[j] = vb_bits(vb_load(at.q + v * 4 * LANES + j / 4 * QUAD), 3 - j % 4 * 2, 0x18);
}

INLINE vf ternary_unit(struct block_at at, const int v) { return vf_mul(unit(at, 0, v), vf_set(0.125f)); }

INLINE float ternary_value(struct block_at at, int o, int k, uint32_t s, uint32_t raised)
{
	const float d = load_half(at.units + 2 * o) * 0.125f * ternary_scales[s];
	return d * (float)(8 * value_at(2, at.q, o, k) + (int)(raised & 1) * RAISED - TERNARY_BIAS);
}

INLINE struct panel_block load_TERNARY(struct block_at at, const int v)
{
	static const int32_t bias[2][16] = { // by bits 0 and 1, and by bits 2 and 3
		{LOW, FIRST, SECOND, HIGH, LOW, FIRST, SECOND, HIGH, LOW, FIRST, SECOND, HIGH, LOW, FIRST, SECOND, HIGH},
		{LOW, LOW, LOW, LOW, FIRST, FIRST, FIRST, FIRST, SECOND, SECOND, SECOND, SECOND, HIGH, HIGH, HIGH, HIGH},
	};
	struct panel_block w;
	const uint8_t *scales = at.scales + v * 4 * LANES;
	UNROLL for (int h = 0; h < 2; h++) {
		w.d[h] = vf_mul(ternary_unit(at, v), vf_lookup(ternary_scales, scales + h * QUAD, at.shift));
		w.bias[h] = bias_of(bias[h], scales + 2 * QUAD, at.shift);
	}
	load_ternary(&w, at, v);
	return w;
}

INLINE vf add_TERNARY(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	const vi start[2] = {vi_dot_pairs(w->bias[0], x->groups), vi_dot_pairs(w->bias[1], x->groups + 2)};
	return add_two(TERNARY_BITS, acc, w, x, start);
}

INLINE void unpack_TERNARY(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++)
		y[k] = ternary_value(at, o, k, four_bits(at, k / 16, o), four_bits(at, 2, o) >> k / 8);
}

INLINE struct panel_block load_TERNARY_ONE(struct block_at at, const int v)
{
	static const int32_t bias[16] = {LOW, LOW, LOW, LOW, LOW, LOW, LOW, LOW, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH};
	struct panel_block w;
	const uint8_t *scales = at.scales + v * 4 * LANES;
	w.d[0] = vf_mul(ternary_unit(at, v), vf_lookup(ternary_scales, scales, at.shift));
	w.bias[0] = bias_of(bias, scales, at.shift);
	load_ternary(&w, at, v);
	return w;
}

INLINE vf add_TERNARY_ONE(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	return add_one(TERNARY_BITS, acc, w, x, vi_dot_pairs(w->bias[0], x->half));
}

INLINE void unpack_TERNARY_ONE(struct block_at at, int o, float *y)
{
	const uint32_t bits = four_bits(at, 0, o);
	for (int k = 0; k < BLOCK; k++)
		y[k] = ternary_value(at, o, k, bits, bits >> 3);
}
