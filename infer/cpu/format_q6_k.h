// Q6_K, super-blocks of eight blocks of 32 values: 128 bytes of lower four bits, 64 bytes of
// upper two, 16 int8 scales and an F16, their unit. Each half of a super-block is four blocks:
// the low bits of blocks 0 and 2 share 32 bytes, as do those of 1 and 3, the upper bits of all
// four share 32 bytes. A value is scale · (q - 32), with a scale for every 16.
//
// In a panel the unit is there twice, and a block's scales are those of its halves. Upper bits
// follow the nibbles as two quads: bits 2j and 2j+1 of byte t of the first are the upper bits of
// value 4j+t, of the second those of value 16+4j+t.

enum { Q6K_HIGH = 128, Q6K_SCALES = 192, Q6K_UNIT = 208 };

INLINE void pack_Q6_K(const uint8_t *w, uint8_t *to, int o)
{
	memcpy(to + 2 * o, w + Q6K_UNIT, 2);
	memcpy(to + 2 * (PANEL + o), w + Q6K_UNIT, 2);
	for (int i = 0; i < SUPER; i++) {
		const int half = i / 4, run = i % 4;
		uint32_t word[8], top[2][4];
		put_super_scales(to, i, o, w[Q6K_SCALES + 2 * i], w[Q6K_SCALES + 2 * i + 1]);
		uint8_t *quads = super_quads(6, to, i);
		for (int j = 0; j < 8; j++) {
			word[j] = load_u32(w + (half * 2 + run % 2) * BLOCK + 4 * j) >> run / 2 * 4;
			top[j / 4][j % 4] = (load_u32(w + Q6K_HIGH + half * BLOCK + 4 * j) >> 2 * run & 0x03030303) << 2 * (j % 4);
		}
		for (int h = 0; h < 2; h++)
			store_u32(quads + NIBBLES + h * QUAD + 4 * o, top[h][0] | top[h][1] | top[h][2] | top[h][3]);
		put_nibbles(quads, o, word, word + 4);
	}
}

INLINE struct panel_block load_Q6_K(const uint8_t *units, const uint8_t *scales, const uint8_t *q, const int v)
{
	struct panel_block w;
	vf unit = vf_load_h(units + v * 2 * LANES);
	q += v * 4 * LANES;
	w.d[0] = vf_mul(unit, vf_int8(scales + v * LANES));
	w.d[1] = vf_mul(unit, vf_int8(scales + PANEL + v * LANES));
	load_nibbles(&w, q);
	UNROLL for (int j = 0; j < 8; j++)
		w.q[j] = vb_or(w.q[j], vb_bits(vb_load(q + NIBBLES + j / 4 * QUAD), 4 - 2 * (j % 4), 0x30));
	return w;
}

// The two halves are added before x's scale multiplies them.
INLINE vf add_Q6_K(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	vf first = vb_dot(6, 4, w->q, x->q, x->half[0] * 32);
	vf second = vb_dot(6, 4, w->q + 4, x->q + BLOCK / 2, x->half[1] * 32);
	return vf_fma(vf_fma(second, w->d[1], vf_mul(first, w->d[0])), vf_set(x->d), acc);
}

INLINE void unpack_Q6_K(const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++) {
		float d = load_half(units + 2 * o) * (float)(int8_t)scales[k / 16 * PANEL + o];
		int upper = q[NIBBLES + k / 16 * QUAD + 4 * o + k % 4] >> 2 * (k / 4 % 4) & 3;
		y[k] = d * (float)((nibble(q, o, k) | upper << 4) - 32);
	}
}
