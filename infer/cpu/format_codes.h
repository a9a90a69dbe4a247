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

INLINE vf unit_of(struct block_at at, const int v) { return vf_mul(vf_load_h(at.units + v * 2 * LANES), vf_set(at.codes->factor)); }

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

// Adds a block of codes that has one scale.
INLINE vf add_codes(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x, const int bias)
{
	return vf_fma(vb_dot(bits, 8, w->q, x->q, x->sum * bias), vf_mul(w->d[0], vf_set(x->d)), acc);
}

INLINE vf add_CODES_32(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_codes(8, acc, w, x, BIAS); }

INLINE void unpack_CODES_32(struct block_at at, int o, float *y)
{
	float d;
	memcpy(&d, at.units + 4 * o, 4);
	for (int k = 0; k < BLOCK; k++)
		y[k] = d * code_value(at.codes, value_at(4, at.q, o, k));
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
// scales s, each for 16 values: (2s + 1) eighths. CODES_3_ONE has a byte with one scale instead: eighths.

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
		column_scales(PANEL_CODES_3_ONE, to, i)[0] = (uint8_t)(2 * (rest >> 28) + 1);
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
	load_values(3, &w, at.q + v * 4 * LANES);
	look_up(&w, at);
	return w;
}

INLINE struct panel_block load_CODES_3_ONE(struct block_at at, const int v)
{
	struct panel_block w;
	w.d[0] = vf_mul(unit_of(at, v), vf_int8(at.scales + v * LANES));
	load_values(3, &w, at.q + v * 4 * LANES);
	look_up(&w, at);
	return w;
}

INLINE vf add_CODES_3_ONE(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_codes(7, acc, w, x, IQ2_BIAS); }

INLINE void unpack_CODES_3_ONE(struct block_at at, int o, float *y)
{
	const float d = load_half(at.units + 2 * o) * at.codes->factor * (float)at.scales[o];
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

// TERNARY: super-blocks with a unit (F16), and two bytes for every 32 values: two four-bit scales, each for
// 16 values, and four bits. Values t of 0, 1 or 2 mean t - 1, raised by an eighth if bit g is 1, for values
// 8g … 8g+7, or else lowered by one. TERNARY_ONE has one byte instead: a scale in its high nibble, and
// bit 1, for all 32 values. Products multiply eighths plus TERNARY_BIAS: 8 · t, and RAISED if the value is raised.

enum { TERNARY_BIAS = 9, TERNARY_BITS = 5, RAISED = 2 };

INLINE int ternary_scale(uint32_t three) { return (int)(2 * (three & 7) + 1); }

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
		column_scales(PANEL_TERNARY_ONE, to, i)[0] = (uint8_t)(ternary_scale(word >> 12) << 4 | !(word >> 15) << 1);
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
		int raised = 0;
		for (int g = 0; g < 4; g++)
			raised |= (int)(~upper >> (4 * g + 3) & 1) << g;
		put_scales(PANEL_TERNARY, to, i, ternary_scale(scales) | ternary_scale(scales >> 3) << 4, raised);
		put_values(2, column_values(PANEL_TERNARY, to, i), values);
	}
}

// Quad j of two-bit values t: 8 · t plus raised, which has no bits but RAISED.
INLINE vb ternary_quad(vb pairs, const int j, vb raised) { return vb_select(vb_shift(pairs, 3 - j % 4 * 2), raised, 0x18); }

INLINE vf ternary_unit(struct block_at at, const int v) { return vf_mul(vf_load_h(at.units + v * 2 * LANES), vf_set(0.125f)); }

INLINE float ternary_value(struct block_at at, int o, int k, int scale, int raised)
{
	const float d = load_half(at.units + 2 * o) * 0.125f * (float)scale;
	return d * (float)(8 * value_at(2, at.q, o, k) + raised * RAISED - TERNARY_BIAS);
}

INLINE struct panel_block load_TERNARY(struct block_at at, const int v)
{
	static const uint8_t raised[4][16] = {
		{0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2},
		{0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2},
		{0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2},
		{0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2},
	};
	struct panel_block w;
	const vb bits = vb_spread(at.scales + PANEL + v * LANES);
	UNROLL for (int h = 0; h < 2; h++) {
		const vb pairs = vb_load(at.q + v * 4 * LANES + h * QUAD);
		w.d[h] = vf_mul(ternary_unit(at, v), vf_bits(at.scales + v * LANES, 4 * h, 15));
		UNROLL for (int j = 4 * h; j < 4 * h + 4; j++)
			w.q[j] = ternary_quad(pairs, j, vb_lookup(raised[j / 2], bits));
	}
	return w;
}

INLINE vf add_TERNARY(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_halves(TERNARY_BITS, acc, w, x, TERNARY_BIAS); }

INLINE void unpack_TERNARY(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++)
		y[k] = ternary_value(at, o, k, at.scales[o] >> k / 16 * 4 & 15, at.scales[PANEL + o] >> k / 8 & 1);
}

INLINE struct panel_block load_TERNARY_ONE(struct block_at at, const int v)
{
	struct panel_block w;
	const uint8_t *scales = at.scales + v * LANES;
	const vb raised = vb_bits(vb_spread(scales), 0, RAISED);
	w.d[0] = vf_mul(ternary_unit(at, v), vf_bits(scales, 4, 15));
	UNROLL for (int j = 0; j < 8; j++)
		w.q[j] = ternary_quad(vb_load(at.q + v * 4 * LANES + j / 4 * QUAD), j, raised);
	return w;
}

INLINE vf add_TERNARY_ONE(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_codes(TERNARY_BITS, acc, w, x, TERNARY_BIAS); }

INLINE void unpack_TERNARY_ONE(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++)
		y[k] = ternary_value(at, o, k, at.scales[o] >> 4, at.scales[o] >> 1 & 1);
}
