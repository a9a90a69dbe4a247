// Q4_K and Q5_K, super-blocks of eight blocks of 32 values: two F16, the units of the scales
// and of the offsets; 12 bytes with six bits for each of eight scales and eight offsets; for
// Q5_K the fifth bits, bit i of byte k for value k of block i; then four times 32 bytes, each
// with block 2i in the low halves and block 2i+1 in the high ones. A value is scale · q - offset.
//
// In a panel a block's scales are a byte for the scale and one for the offset of each output.
// Fifth bits follow the nibbles as one quad: bit j of its byte t is that of value 4j+t.

enum { K_SCALES = 4, K_INTEGERS = 16, K_FIFTHS = SUPER * BLOCK / 8 };

// The six-bit scales. Scale, then offset, of blocks 0-3 lie in the low six bits of bytes 0-7;
// of blocks 4-7 in the halves of bytes 8-11, with their upper bits on top of bytes 0-7.
// scales: (2, SUPER)
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

// bits: 4 or 5, a constant
INLINE void pack_k(const int bits, const uint8_t *w, uint8_t *to, int o)
{
	const uint8_t *integers = w + K_INTEGERS + (bits == 5 ? K_FIFTHS : 0);
	uint8_t scales[2 * SUPER];
	memcpy(to + 2 * o, w, 2);
	memcpy(to + 2 * (PANEL + o), w + 2, 2);
	unpack_scales(w + K_SCALES, scales);
	for (int i = 0; i < SUPER; i++) {
		put_super_scales(to, i, o, scales[i], scales[SUPER + i]);
		uint8_t *quads = super_quads(bits, to, i);
		uint32_t word[8], fifths = 0;
		for (int j = 0; j < 8; j++) {
			word[j] = load_u32(integers + i / 2 * BLOCK + 4 * j) >> i % 2 * 4;
			if (bits == 5)
				fifths |= (load_u32(w + K_INTEGERS + 4 * j) >> i & 0x01010101) << j;
		}
		if (bits == 5)
			store_u32(quads + NIBBLES + 4 * o, fifths);
		put_nibbles(quads, o, word, word + 4);
	}
}

INLINE struct panel_block load_k(const int bits, const uint8_t *units, const uint8_t *scales, const uint8_t *q, const int v)
{
	struct panel_block w;
	q += v * 4 * LANES;
	w.m = vf_mul(vf_load_h(units + 2 * PANEL + v * 2 * LANES), vf_bytes(scales + PANEL + v * LANES));
	w.d[0] = vf_mul(vf_load_h(units + v * 2 * LANES), vf_bytes(scales + v * LANES));
	load_nibbles(&w, q);
	if (bits == 5) {
		vb fifths = vb_load(q + NIBBLES);
		UNROLL for (int j = 0; j < 8; j++)
			w.q[j] = vb_or(w.q[j], vb_bits(fifths, 4 - j, 0x10));
	}
	return w;
}

INLINE vf add_k(const int bits, vf acc, const struct panel_block *w, const struct quant_block *x)
{
	acc = vf_fma(vb_dot(bits, 8, w->q, x->q, 0), vf_mul(w->d[0], vf_set(x->d)), acc);
	return vf_fma(w->m, vf_set(x->offset), acc);
}

INLINE void unpack_k(const int bits, const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)
{
	float d = load_half(units + 2 * o) * (float)scales[o], m = load_half(units + 2 * (PANEL + o)) * (float)scales[PANEL + o];
	for (int k = 0; k < BLOCK; k++) {
		int fifth = bits == 5 ? q[NIBBLES + 4 * o + k % 4] >> k / 4 & 1 : 0;
		y[k] = d * (float)(nibble(q, o, k) | fifth << 4) - m;
	}
}

#define K_FORMAT(name, bits)                                                                                          \
	INLINE void pack_##name(const uint8_t *w, uint8_t *to, int o) { pack_k(bits, w, to, o); }                         \
	INLINE struct panel_block load_##name(const uint8_t *units, const uint8_t *scales, const uint8_t *q, const int v) \
	{                                                                                                                 \
		return load_k(bits, units, scales, q, v);                                                                     \
	}                                                                                                                 \
	INLINE vf add_##name(vf acc, const struct panel_block *w, const struct quant_block *x) { return add_k(bits, acc, w, x); } \
	INLINE void unpack_##name(const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)         \
	{                                                                                                                 \
		unpack_k(bits, units, scales, q, o, y);                                                                       \
	}

K_FORMAT(Q4_K, 4)
K_FORMAT(Q5_K, 5)
