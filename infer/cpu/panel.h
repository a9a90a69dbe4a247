// Panels: how weights lie in memory. A panel holds PANEL rows of a weight, interleaved so
// that the lanes of a vector are outputs: a vector of int8 has four neighbouring values of
// each output, which is what a dot-product instruction adds up in a lane. A result is
// then one lane's own, and no lanes are ever added to each other. The order is the same
// for every instruction set; vectors shorter than PANEL lanes take their part of it.
//
// A panel is a row of groups, whose sizes formats.h has for each format:
//
//	units    (units, PANEL) halves
//	scales   (blocks of the group, scales, PANEL) bytes
//	values   (blocks of the group, bits, QUAD) bytes
//
// Quad j of a block is (PANEL, 4) bytes: of each output the values 4j … 4j+3. Values of fewer
// than eight bits begin with nibbles, four quads: byte t of quad j has value 4j+t in its low
// half and 16+4j+t in its high one. What a format has beside that its header says. The values
// of F16, which has no blocks, are its units.
//
// Outputs beyond the last are zeros.

enum { QUAD = 4 * PANEL, NIBBLES = 4 * QUAD };

// One vector of a block of weights.
struct panel_block {
	vb q[8];
	vf d[2]; // scales
	vf m;    // offset
};

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

// Value k of the nibbles of output o.
INLINE int nibble(const uint8_t *q, int o, int k) { return q[k / 4 % 4 * QUAD + 4 * o + k % 4] >> k / 16 * 4 & 15; }

INLINE void load_nibbles(struct panel_block *w, const uint8_t *q)
{
	UNROLL for (int j = 0; j < 4; j++) {
		vb both = vb_load(q + j * QUAD);
		w->q[j] = vb_low(both);
		w->q[4 + j] = vb_high(both);
	}
}

// Of a group of SUPER blocks with two units and two scales a block: writes the scales of block
// i of output o, and returns where the block's values lie.
INLINE void put_super_scales(uint8_t *group, int i, int o, uint8_t first, uint8_t second)
{
	uint8_t *scales = group + 4 * PANEL + i * 2 * PANEL;
	scales[o] = first;
	scales[PANEL + o] = second;
}

INLINE uint8_t *super_quads(const int bits, uint8_t *group, int i)
{
	return group + (4 + 2 * SUPER) * PANEL + (size_t)i * (size_t)bits * QUAD;
}

#define FORMAT_KERNELS
#include "formats.h"

// Writes a group of one row of a file as output o of a group of a panel.
INLINE void pack_group(const int type, const uint8_t *w, uint8_t *to, int o)
{
	switch (type) {
	case TYPE_F16:
		memcpy(to + 2 * o, w, 2);
		return;
#define FORMAT(name, ...) \
	case TYPE_##name: \
		pack_##name(w, to, o); \
		return;
		BLOCK_FORMATS(FORMAT)
#undef FORMAT
	}
	abort(); // never: type is a constant that the table has
}

// Packs rows rows, at most PANEL, of a file. w: (rows, cols) at stride bytes; groups: of a row
INLINE void pack_rows(const int type, const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)
{
	for (int g = 0; g < groups; g++)
		for (int o = 0; o < rows; o++)
			pack_group(type, w + (size_t)o * stride + (size_t)g * (size_t)format_of(type).bytes, panel + (size_t)g * panel_group_bytes(type), o);
}

INLINE void unpack_block(const int type, const uint8_t *units, const uint8_t *scales, const uint8_t *q, int o, float *y)
{
	switch (type) {
#define FORMAT(name, ...) \
	case TYPE_##name: \
		unpack_##name(units, scales, q, o, y); \
		return;
		BLOCK_FORMATS(FORMAT)
#undef FORMAT
	}
	abort(); // never: type is a constant that the table has
}

// y = output o of a panel as floats, with the bits that the file's format gives them.
INLINE void unpack_row(const int type, const uint8_t *panel, int o, int cols, float *y)
{
	const struct format f = format_of(type);
	if (type == TYPE_F16) {
		for (int i = 0; i < cols; i++)
			y[i] = load_half(panel + 2 * ((size_t)i * PANEL + o));
		return;
	}
	const int together = f.values / BLOCK;
	for (int b = 0; b < cols / BLOCK; panel += panel_group_bytes(type)) {
		const uint8_t *scales = panel + 2 * PANEL * f.units, *q = scales + f.scales * PANEL * together;
		for (int i = 0; i < together; i++, b++, y += BLOCK, scales += f.scales * PANEL, q += f.bits * QUAD)
			unpack_block(type, panel, scales, q, o, y);
	}
}
