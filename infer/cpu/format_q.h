// Blocks of 32 values with one scale: an F16, then the values.

// Q8_0: 32 int8. In a panel they are kept plus 128.
INLINE void pack_Q8_0(const uint8_t *w, uint8_t *to, int o)
{
	memcpy(to + 2 * o, w, 2);
	for (int j = 0; j < 8; j++)
		store_u32(to + 2 * PANEL + j * QUAD + 4 * o, load_u32(w + 2 + 4 * j) ^ 0x80808080);
}

INLINE struct panel_block load_Q8_0(const uint8_t *units, const uint8_t *scales, const uint8_t *q, const int v)
{
	struct panel_block w;
	(void)scales;
	w.d[0] = vf_load_h(units + v * 2 * LANES);
	UNROLL for (int j = 0; j < 8; j++)
		w.q[j] = vb_load(q + v * 4 * LANES + j * QUAD);
	return w;
}

INLINE vf add_Q8_0(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	return vf_fma(vb_dot(8, 8, w->q, x->q, x->sum * 128), vf_mul(w->d[0], vf_set(x->d)), acc);
}

INLINE void unpack_Q8_0(const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)
{
	(void)scales;
	for (int k = 0; k < BLOCK; k++)
		y[k] = load_half(units + 2 * o) * (float)(q[k / 4 * QUAD + 4 * o + k % 4] - 128);
}

// Q4_0: 16 bytes, of which byte i has value i in its low half and value i+16 in its high
// half, both plus 8.
INLINE void pack_Q4_0(const uint8_t *w, uint8_t *to, int o)
{
	uint32_t low[4], high[4];
	memcpy(to + 2 * o, w, 2);
	for (int j = 0; j < 4; j++) {
		low[j] = load_u32(w + 2 + 4 * j);
		high[j] = low[j] >> 4;
	}
	put_nibbles(to + 2 * PANEL, o, low, high);
}

INLINE struct panel_block load_Q4_0(const uint8_t *units, const uint8_t *scales, const uint8_t *q, const int v)
{
	struct panel_block w;
	(void)scales;
	w.d[0] = vf_load_h(units + v * 2 * LANES);
	load_nibbles(&w, q + v * 4 * LANES);
	return w;
}

INLINE vf add_Q4_0(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	return vf_fma(vb_dot(4, 8, w->q, x->q, x->sum * 8), vf_mul(w->d[0], vf_set(x->d)), acc);
}

INLINE void unpack_Q4_0(const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)
{
	(void)scales;
	for (int k = 0; k < BLOCK; k++)
		y[k] = load_half(units + 2 * o) * (float)(nibble(q, o, k) - 8);
}
