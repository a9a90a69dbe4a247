// Panels: how weights lie in memory. A panel holds PANEL rows of a weight, interleaved so
// that the lanes of a vector are outputs: a vector of int8 has four neighbouring values of
// each output, which is what a dot-product instruction adds up in a lane. A result is
// then one lane's own, and no lanes are ever added to each other. The order is the same
// for every instruction set; vectors shorter than PANEL lanes take their part of it.
//
// A panel is a row of groups, each of GROUP_VALUES(type) columns:
//
//	F16    (PANEL) halves
//	Q8_0   (PANEL) halves, the scales; 8 quads of bytes, values + 128
//	Q4_0   (PANEL) halves, the scales; nibbles, values + 8
//	Q4_K   (2, PANEL) halves, the units of scales and offsets; for each of 8 blocks (2,
//	Q5_K   PANEL) bytes, its scales and offsets; for each block nibbles, and of Q5_K fifths
//	Q6_K   (2, PANEL) halves, the units, twice; for each block (2, PANEL) int8, the scales of its
//	       halves; for each block nibbles and sixths; values + 32
//
// Quad j of a block is (PANEL, 4) bytes: of each output the values 4j … 4j+3. Nibbles are
// four quads: byte t of quad j has value 4j+t in its low half and 16+4j+t in its high one.
// Fifths are one quad: bit j of its byte t is the fifth bit of value 4j+t. Sixths are two
// quads: bits 2j and 2j+1 of byte t of the first are the upper bits of value 4j+t, of the
// second those of value 16+4j+t.
//
// Outputs beyond the last are zeros.

enum { QUAD = 4 * PANEL, NIBBLES = 4 * QUAD };

INLINE bool is_super(const int type) { return type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_Q6_K; }

// Bytes of a block's integers in a panel.
INLINE size_t panel_quads(const int type)
{
	switch (type) {
	case TYPE_Q8_0:
		return 8 * QUAD;
	case TYPE_Q5_K:
		return NIBBLES + QUAD;
	case TYPE_Q6_K:
		return NIBBLES + 2 * QUAD;
	default:
		return NIBBLES;
	}
}

// Where block b of a panel has its integers and, of super-blocks, its scales.
INLINE const uint8_t *panel_integers(const int type, const uint8_t *panel, int b)
{
	if (is_super(type))
		return panel + (size_t)(b / SUPER) * panel_group_bytes(type) + PANEL_UNITS + SUPER * PANEL_SCALES +
		       (size_t)(b % SUPER) * panel_quads(type);
	return panel + (size_t)b * panel_group_bytes(type) + 2 * PANEL;
}

INLINE const uint8_t *panel_units(const int type, const uint8_t *panel, int b)
{
	return panel + (size_t)(is_super(type) ? b / SUPER : b) * panel_group_bytes(type);
}

INLINE const uint8_t *panel_scales(const int type, const uint8_t *panel, int b)
{
	return panel_units(type, panel, b) + PANEL_UNITS + b % SUPER * PANEL_SCALES;
}

INLINE uint32_t load_u32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE void store_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

// Writes the values of a block, each below 16 and two to a byte of words, as nibbles of output o.
INLINE void put_nibbles(uint8_t *to, int o, const uint32_t low[4], const uint32_t high[4])
{
	for (int j = 0; j < 4; j++)
		store_u32(to + j * QUAD + 4 * o, (low[j] & 0x0f0f0f0f) | (high[j] & 0x0f0f0f0f) << 4);
}

// Writes a super-block of a file as output o of the group to.
INLINE void pack_super(const int type, const uint8_t *w, uint8_t *to, int o)
{
	const int nibbles = type == TYPE_Q6_K ? 0 : type == TYPE_Q5_K ? Q5K_Q : Q4K_Q;
	uint8_t scales[2 * SUPER];
	if (type == TYPE_Q6_K) {
		memcpy(to + 2 * o, w + Q6K_UNIT, 2);
		memcpy(to + 2 * (PANEL + o), w + Q6K_UNIT, 2);
		for (int i = 0; i < SUPER; i++) {
			scales[i] = w[Q6K_SCALES + 2 * i];
			scales[SUPER + i] = w[Q6K_SCALES + 2 * i + 1];
		}
	} else {
		memcpy(to + 2 * o, w, 2);
		memcpy(to + 2 * (PANEL + o), w + 2, 2);
		unpack_scales(w + 4, scales);
	}
	for (int i = 0; i < SUPER; i++) {
		to[PANEL_UNITS + i * PANEL_SCALES + o] = scales[i];
		to[PANEL_UNITS + i * PANEL_SCALES + PANEL + o] = scales[SUPER + i];
		uint8_t *quads = to + PANEL_UNITS + SUPER * PANEL_SCALES + i * panel_quads(type);
		uint32_t word[8];
		if (type == TYPE_Q6_K) {
			const int half = i / 4, run = i % 4;
			uint32_t top[2][4];
			for (int j = 0; j < 8; j++) {
				word[j] = load_u32(w + (half * 2 + run % 2) * BLOCK + 4 * j) >> run / 2 * 4;
				top[j / 4][j % 4] = (load_u32(w + Q6K_HIGH + half * BLOCK + 4 * j) >> 2 * run & 0x03030303) << 2 * (j % 4);
			}
			for (int h = 0; h < 2; h++)
				store_u32(quads + NIBBLES + h * QUAD + 4 * o, top[h][0] | top[h][1] | top[h][2] | top[h][3]);
		} else {
			uint32_t fifths = 0;
			for (int j = 0; j < 8; j++) {
				word[j] = load_u32(w + nibbles + i / 2 * BLOCK + 4 * j) >> i % 2 * 4;
				if (type == TYPE_Q5_K)
					fifths |= (load_u32(w + Q5K_HIGH + 4 * j) >> i & 0x01010101) << j;
			}
			if (type == TYPE_Q5_K)
				store_u32(quads + NIBBLES + 4 * o, fifths);
		}
		put_nibbles(quads, o, word, word + 4);
	}
}

// Writes group g of a row of a file as output o of a panel.
INLINE void pack_group(const int type, const uint8_t *row, int g, uint8_t *panel, int o)
{
	uint8_t *to = panel + (size_t)g * panel_group_bytes(type);
	const uint8_t *w = row + (size_t)g * file_group_bytes(type);
	switch (type) {
	case TYPE_F16:
		memcpy(to + 2 * o, w, 2);
		return;
	case TYPE_Q8_0:
		memcpy(to + 2 * o, w, 2);
		for (int j = 0; j < 8; j++)
			store_u32(to + 2 * PANEL + j * QUAD + 4 * o, load_u32(w + 2 + 4 * j) ^ 0x80808080);
		return;
	case TYPE_Q4_0: {
		uint32_t low[4], high[4];
		memcpy(to + 2 * o, w, 2);
		for (int j = 0; j < 4; j++) {
			low[j] = load_u32(w + 2 + 4 * j);
			high[j] = low[j] >> 4;
		}
		put_nibbles(to + 2 * PANEL, o, low, high);
		return;
	}
	case TYPE_Q4_K:
	case TYPE_Q5_K:
	case TYPE_Q6_K:
		pack_super(type, w, to, o);
	}
}

// Packs rows rows, at most PANEL, of a file. w: (rows, cols) at stride bytes; groups: of a row
INLINE void pack_rows(const int type, const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)
{
	for (int g = 0; g < groups; g++)
		for (int o = 0; o < rows; o++)
			pack_group(type, w + (size_t)o * stride, g, panel, o);
}

static void pack(int type, const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)
{
	switch (type) {
	case TYPE_F16:
		pack_rows(TYPE_F16, w, stride, rows, groups, panel);
		return;
	case TYPE_Q8_0:
		pack_rows(TYPE_Q8_0, w, stride, rows, groups, panel);
		return;
	case TYPE_Q4_0:
		pack_rows(TYPE_Q4_0, w, stride, rows, groups, panel);
		return;
	case TYPE_Q4_K:
		pack_rows(TYPE_Q4_K, w, stride, rows, groups, panel);
		return;
	case TYPE_Q5_K:
		pack_rows(TYPE_Q5_K, w, stride, rows, groups, panel);
		return;
	case TYPE_Q6_K:
		pack_rows(TYPE_Q6_K, w, stride, rows, groups, panel);
	}
}

// Value k of block b of output o, as the integer that is in the file.
INLINE int panel_value(const int type, const uint8_t *panel, int b, int o, int k)
{
	const uint8_t *q = panel_integers(type, panel, b);
	const int j = k / 4, t = k % 4;
	if (type == TYPE_Q8_0)
		return q[j * QUAD + 4 * o + t] - 128;
	int v = q[j % 4 * QUAD + 4 * o + t] >> j / 4 * 4 & 15;
	switch (type) {
	case TYPE_Q4_0:
		return v - 8;
	case TYPE_Q5_K:
		return v | (q[NIBBLES + 4 * o + t] >> j & 1) << 4;
	case TYPE_Q6_K:
		return (v | (q[NIBBLES + j / 4 * QUAD + 4 * o + t] >> 2 * (j % 4) & 3) << 4) - 32;
	}
	return v;
}

// y = output o of a panel as floats, with the bits that the file's format gives them.
INLINE void unpack_row(const int type, const uint8_t *panel, int o, int cols, float *y)
{
	for (int b = 0; b < cols / BLOCK; b++, y += BLOCK) {
		const uint8_t *units = panel_units(type, panel, b);
		float d[2] = {load_half(units + 2 * o), 0}, m = 0;
		d[1] = d[0];
		if (is_super(type)) {
			const uint8_t *scales = panel_scales(type, panel, b);
			if (type == TYPE_Q6_K) {
				d[0] *= (float)(int8_t)scales[o];
				d[1] *= (float)(int8_t)scales[PANEL + o];
			} else {
				d[1] = d[0] *= (float)scales[o];
				m = load_half(units + 2 * (PANEL + o)) * (float)scales[PANEL + o];
			}
		}
		for (int k = 0; k < BLOCK; k++)
			y[k] = d[k / 16] * (float)panel_value(type, panel, b, o, k) - m;
	}
}
