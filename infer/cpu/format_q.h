// Formats with blocks of 32 values, a scale (F16) and, for some, an offset (F16).

// Q8_0: 32 int8. Panels store the values plus 128.
INLINE void pack_Q8_0(const uint8_t *w, uint8_t *to)
{
	memcpy(to, w, 2);
	for (int j = 0; j < 8; j++)
		store_u32(to + 2 + 4 * j, load_u32(w + 2 + 4 * j) ^ 0x80808080);
}

INLINE struct panel_block load_Q8_0(struct block_at at, const int v)
{
	struct panel_block w;
	w.d[0] = unit(at, 0, v);
	UNROLL for (int j = 0; j < 8; j++)
		w.q[j] = vb_load(at.q + v * 4 * LANES + j * QUAD);
	return w;
}

INLINE vf add_Q8_0(vf acc, const struct panel_block *w, const struct quant_block *x)
{
	return vf_fma(vb_dot(8, 0, 8, w->q, x, vi_set(x->sum * 128)), vf_mul(w->d[0], vf_set(x->d)), acc);
}

INLINE void unpack_Q8_0(struct block_at at, int o, float *y)
{
	for (int k = 0; k < BLOCK; k++)
		y[k] = load_half(at.units + 2 * o) * (float)(at.q[k / 4 * QUAD + 4 * o + k % 4] - 128);
}

// Q4 and Q5: the scale; for Q4_1 and Q5_1 the offset; for Q5 the fifth bits of 32 values; then 16
// bytes, in which byte i has value i in its low nibble and value i+16 in its high nibble. Formats
// without an offset store the values plus half their range.

// bits: 4 or 5; units: 1, or 2 with an offset; both are constants
INLINE void pack_q(const int bits, const int units, const uint8_t *w, uint8_t *to)
{
	uint32_t fifths = 0;
	memcpy(to, w, 2 * (size_t)units);
	if (bits == 5) {
		fifths = load_u32(w + 2 * units);
		w += 4;
	}
	to += 2 * units;
	const four_words values = load_words(w + 2 * units);
	put_nibbles(to, values, values >> 4);
	if (bits == 5)
		for (int t = 0; t < 4; t++) {
			int byte = 0;
			for (int j = 0; j < 8; j++)
				byte |= (int)(fifths >> (4 * j + t) & 1) << j;
			to[16 + t] = (uint8_t)byte;
		}
}

INLINE struct panel_block load_q(const int bits, const int units, struct block_at at, const int v)
{
	struct panel_block w;
	w.d[0] = unit(at, 0, v);
	if (units == 2)
		w.m[0] = unit(at, 1, v);
	load_values(bits, &w, at.q + v * 4 * LANES);
	return w;
}

INLINE vf add_q(const int bits, const int units, vf acc, const struct panel_block *w, const struct quant_block *x)
{
	vf dot = vb_dot(bits, 0, 8, w->q, x, vi_set(units == 2 ? 0 : x->sum << (bits - 1)));
	acc = vf_fma(dot, vf_mul(w->d[0], vf_set(x->d)), acc);
	return units == 2 ? vf_fma(w->m[0], vf_set(-x->offset), acc) : acc;
}

INLINE void unpack_q(const int bits, const int units, struct block_at at, int o, float *y)
{
	const float d = load_half(at.units + 2 * o);
	for (int k = 0; k < BLOCK; k++) {
		const int q = value_at(bits, at.q, o, k);
		y[k] = units == 2 ? d * (float)q + load_half(at.units + 2 * (PANEL + o)) : d * (float)(q - (1 << (bits - 1)));
	}
}

#define Q_FORMAT(name, bits, units)                                                                                             \
	INLINE void pack_##name(const uint8_t *w, uint8_t *to) { pack_q(bits, units, w, to); }                                      \
	INLINE struct panel_block load_##name(struct block_at at, const int v) { return load_q(bits, units, at, v); }               \
	INLINE vf add_##name(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_q(bits, units, acc, w, x); } \
	INLINE void unpack_##name(struct block_at at, int o, float *y) { unpack_q(bits, units, at, o, y); }

Q_FORMAT(Q4_0, 4, 1)
Q_FORMAT(Q4_1, 4, 2)
Q_FORMAT(Q5_0, 5, 1)
Q_FORMAT(Q5_1, 5, 2)
