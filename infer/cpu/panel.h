// Panels: the memory layout of packed weights. A panel holds PANEL rows of a weight, interleaved so
// that the lanes of a vector are outputs: a vector of int8 has four consecutive values of each output,
// which a dot-product instruction adds up in the output's lane. So lanes are never added to each other.
// The layout is the same for every instruction set; with shorter vectors, a panel is several vectors.
//
// A panel is a sequence of groups. formats.h has their sizes for each kind of panel:
//
//	units    (units, PANEL) F16
//	scales   (blocks of the group, scales, PANEL) bytes
//	values   (blocks of the group, bits, QUAD) bytes
//
// Quad j of a block is (PANEL, 4) bytes: values 4j … 4j+3 of each output. Values of fewer than eight
// bits are divided into parts of four, two and one bits, as needed, lowest bits first:
//
//	nibbles  four quads: byte t of quad j has value 4j+t in its low nibble and 16+4j+t in its high one
//	pairs    two quads: bits 2j and 2j+1 of byte t of quad h belong to value 16h+4j+t
//	singles  one quad: bit j of byte t belongs to value 4j+t
//
// Float formats have no blocks: their values are the units.
//
// Outputs beyond the last row of the weight are zeros.

enum { QUAD = 4 * PANEL, NIBBLES = 4 * QUAD, PAIRS = 2 * QUAD };

// The location of a block, and the meaning of its codes.
struct block_at {
	const uint8_t *units, *scales, *q;
	const struct codes *codes;
};

// A table of codes: code c means (values[c] - bias) · factor.
struct codes {
	uint8_t values[16];
	int32_t bias;
	float factor;
};

// One vector of a block of weights.
struct panel_block {
	vb q[8];
	vf d[2];      // scales, of the block or of its halves
	vf m[2];      // offsets
	int32_t bias; // values are stored plus this
};

INLINE uint32_t load_u32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

INLINE void store_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

// Writes the values of a block, each below 16, as nibbles of output o. low and high have a value in
// the low nibble of each byte.
INLINE void put_nibbles(uint8_t *to, int o, const uint32_t low[4], const uint32_t high[4])
{
	for (int j = 0; j < 4; j++)
		store_u32(to + j * QUAD + 4 * o, (low[j] & 0x0f0f0f0f) | (high[j] & 0x0f0f0f0f) << 4);
}

// Writes the values of a block, of bits bits (a constant below 8), as output o.
INLINE void put_values(const int bits, uint8_t *to, int o, const uint8_t *values)
{
	const int low = bits & 4, upper = bits & 6;
	for (int t = 0; t < 4; t++) {
		uint8_t *q = to + 4 * o + t;
		if (bits & 4) {
			for (int j = 0; j < 4; j++, q += QUAD)
				*q = (uint8_t)((values[4 * j + t] & 15) | values[16 + 4 * j + t] << 4);
		}
		if (bits & 2) {
			for (int h = 0; h < 2; h++, q += QUAD) {
				int byte = 0;
				for (int j = 0; j < 4; j++)
					byte |= (values[16 * h + 4 * j + t] >> low & 3) << 2 * j;
				*q = (uint8_t)byte;
			}
		}
		if (bits & 1) {
			int byte = 0;
			for (int j = 0; j < 8; j++)
				byte |= (values[4 * j + t] >> upper & 1) << j;
			*q = (uint8_t)byte;
		}
	}
}

// Value k of output o.
INLINE int value_at(const int bits, const uint8_t *q, int o, int k)
{
	int value = 0;
	q += 4 * o + k % 4;
	if (bits & 4) {
		value = q[k / 4 % 4 * QUAD] >> k / 16 * 4 & 15;
		q += NIBBLES;
	}
	if (bits & 2) {
		value |= (q[k / 16 * QUAD] >> k / 4 % 4 * 2 & 3) << (bits & 4);
		q += PAIRS;
	}
	if (bits & 1)
		value |= (*q >> k / 4 & 1) << (bits & 6);
	return value;
}

INLINE void load_values(const int bits, struct panel_block *w, const uint8_t *q)
{
	if (bits & 4) {
		UNROLL for (int j = 0; j < 4; j++) {
			vb both = vb_load(q + j * QUAD);
			w->q[j] = vb_low(both);
			w->q[4 + j] = vb_high(both);
		}
		q += NIBBLES;
	}
	if (bits & 2) {
		UNROLL for (int j = 0; j < 8; j++) {
			vb pairs = vb_bits(vb_load(q + j / 4 * QUAD), (bits & 4) - j % 4 * 2, 3 << (bits & 4));
			w->q[j] = bits & 4 ? vb_or(w->q[j], pairs) : pairs;
		}
		q += PAIRS;
	}
	if (bits & 1) {
		vb singles = vb_load(q);
		UNROLL for (int j = 0; j < 8; j++)
			w->q[j] = vb_or(w->q[j], vb_bits(singles, (bits & 6) - j, 1 << (bits & 6)));
	}
}

// The scales, and the values, of block i of a group.
INLINE uint8_t *group_scales(const int kind, uint8_t *group, int i)
{
	const struct panel p = panel_of(kind);
	return group + (p.units * 2 + i * p.scales) * PANEL;
}

INLINE uint8_t *group_values(const int kind, uint8_t *group, int i)
{
	const struct panel p = panel_of(kind);
	return group_scales(kind, group, p.values / BLOCK) + i * p.bits * QUAD;
}

#define FORMAT_KERNELS
#include "formats.h"

// Writes a group of one row of a file as output o of a group of a panel.
INLINE void pack_group(const int type, const uint8_t *w, uint8_t *to, int o)
{
	switch (type) {
	case TYPE_F16:
	case TYPE_BF16:
		memcpy(to + 2 * o, w, 2);
		return;
#define FORMAT(name, ...) \
	case TYPE_##name: \
		pack_##name(w, to, o); \
		return;
		BLOCK_FORMATS(FORMAT)
#undef FORMAT
	}
	abort(); // unreachable: type is a constant that the table has
}

// Packs rows rows of a file, at most PANEL. w: (rows, groups), stride bytes from row to row
INLINE void pack_rows(const int type, const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)
{
	for (int g = 0; g < groups; g++)
		for (int o = 0; o < rows; o++)
			pack_group(type, w + (size_t)o * stride + (size_t)g * (size_t)format_of(type).bytes, panel + (size_t)g * panel_group_bytes(format_of(type).panel), o);
}

INLINE bool is_float(const int kind) { return kind == PANEL_F16 || kind == PANEL_BF16; }

INLINE float load_float(const int kind, const uint8_t *p)
{
	return kind == PANEL_F16 ? load_half(p) : float_of((uint32_t)load_u16(p) << 16);
}

INLINE void unpack_block(const int kind, struct block_at at, int o, float *y)
{
	switch (kind) {
#define PANEL_KIND(name, ...) \
	case PANEL_##name: \
		unpack_##name(at, o, y); \
		return;
		BLOCK_PANELS(PANEL_KIND)
#undef PANEL_KIND
	}
	abort(); // never: kind is a constant that the table has
}

// The location of the first block of a group.
INLINE struct block_at group_at(const int kind, const uint8_t *group, const struct codes *codes)
{
	const struct panel p = panel_of(kind);
	const uint8_t *scales = group + 2 * PANEL * p.units;
	return (struct block_at){group, scales, scales + p.scales * PANEL * (p.values / BLOCK), codes};
}

INLINE struct block_at next_block(const int kind, struct block_at at)
{
	at.scales += panel_of(kind).scales * PANEL;
	at.q += panel_of(kind).bits * QUAD;
	return at;
}

// Dequantises output o of a panel to y, bit-identical to dequantising the row in the file.
INLINE void unpack_row(const int kind, int type, const uint8_t *panel, int o, int cols, float *y)
{
	if (is_float(kind)) {
		for (int i = 0; i < cols; i++)
			y[i] = load_float(kind, panel + 2 * ((size_t)i * PANEL + o));
		return;
	}
	const int together = panel_of(kind).values / BLOCK;
	for (int b = 0; b < cols / BLOCK; panel += panel_group_bytes(kind)) {
		struct block_at at = group_at(kind, panel, codes_of(type));
		for (int i = 0; i < together; i++, b++, y += BLOCK, at = next_block(kind, at))
			unpack_block(kind, at, o, y);
	}
}
