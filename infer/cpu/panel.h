// Panels: the memory layout of packed weights. A panel holds PANEL rows of a weight, interleaved so
// that the lanes of a vector are outputs: a vector of int8 has four consecutive values of each output,
// which a dot-product instruction adds up in the output's lane. So lanes are never added to each other.
// The layout is the same for every instruction set; with shorter vectors, a panel is several vectors.
//
// A panel is a sequence of groups. formats.h has their sizes for each kind of panel:
//
//	units    (units, PANEL) F16; if blocks have no scales, (blocks of the group, units of a block, PANEL) F16
//	scales   (blocks of the group, scales / 8, PANEL) bytes; of 4 or 12 bits: (scales / 4, PANEL) words of
//	         32 bits, each with four bits of block i from bit 4i on
//	values   (blocks of the group, bits, QUAD) bytes
//
// Quad j of a block is (PANEL, 4) bytes: values 4j … 4j+3 of each output. Values of fewer than eight
// bits are divided into parts of four, two and one bits, as needed, lowest bits first:
//
//	nibbles  four quads: byte t of quad j has value 4j+t in its low nibble and 16+4j+t in its high one
//	pairs    two quads: bits 2j and 2j+1 of byte t of quad h belong to value 16h+4j+t
//	singles  one quad: bit j of byte t belongs to value 4j+t
//
// Values of three bits are sixes instead:
//
//	sixes    three quads: byte t of quad h has value 8h+t in bits 0-2 and 8h+4+t in bits 3-5; bits 6-7 of
//	         the three bytes t, from the first on, are six bits with values 24+t and 28+t
//
// Float formats have no blocks: their values are the units.
//
// Outputs beyond the last row of the weight are zeros.

enum { QUAD = 4 * PANEL, NIBBLES = 4 * QUAD, PAIRS = 2 * QUAD };

// The location of a block, and the meaning of its codes.
struct block_at {
	const uint8_t *units, *scales, *q;
	const float *floats; // UNITS_AHEAD: the units, converted
	int shift; // first bit of the block in words of scales
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
	vf d[2]; // scales, of the block or of its halves
	vf m[2]; // offsets
	vi bias[2]; // pairs of 16 bits: biases of halves, or of each eight values
};

// Vector v of unit u of a block.
INLINE vf unit(struct block_at at, const int u, const int v)
{
#if defined(UNITS_AHEAD)
	return vf_load(at.floats + u * PANEL + v * LANES);
#else
	return vf_load_h(at.units + 2 * (u * PANEL + v * LANES));
#endif
}

INLINE void store_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

// Packing has two steps: a group of each output becomes a column, which has the units, scales and
// values of that output in the order of a panel; then the columns of PANEL outputs are interleaved.

typedef uint32_t four_words __attribute__((vector_size(16)));

INLINE four_words load_words(const uint8_t *p)
{
	four_words words;
	memcpy(&words, p, sizeof words);
	return words;
}

// Writes the values of a block to a column as nibbles. low and high have a value in the low nibble of
// each byte.
INLINE void put_nibbles(uint8_t *to, four_words low, four_words high)
{
	low = (low & 0x0f0f0f0f) | (high & 0x0f0f0f0f) << 4;
	memcpy(to, &low, sizeof low);
}

// Writes two bits of each value of a block to a column as pairs: those of 32 bytes from bit shift on.
INLINE void put_pairs(uint8_t *to, const uint8_t *from, int shift)
{
	UNROLL for (int h = 0; h < 2; h++) {
		uint32_t pairs = 0;
		UNROLL for (int j = 0; j < 4; j++)
			pairs |= (load_u32(from + 16 * h + 4 * j) >> shift & 0x03030303) << 2 * j;
		store_u32(to + 4 * h, pairs);
	}
}

// Writes one bit of each value of a block to a column as singles: bit shift of 32 bytes.
INLINE void put_singles(uint8_t *to, const uint8_t *from, int shift)
{
	uint32_t singles = 0;
	UNROLL for (int j = 0; j < 8; j++)
		singles |= (load_u32(from + 4 * j) >> shift & 0x01010101) << j;
	store_u32(to, singles);
}

// Writes the values of a block, of three bits, to a column as sixes.
INLINE void put_sixes(uint8_t *to, const uint8_t *values)
{
	uint32_t sixes[4];
	UNROLL for (int h = 0; h < 4; h++)
		sixes[h] = load_u32(values + 8 * h) | load_u32(values + 8 * h + 4) << 3;
	UNROLL for (int h = 0; h < 3; h++)
		store_u32(to + 4 * h, sixes[h] | (sixes[3] >> 2 * h & 0x03030303) << 6);
}

// Writes the values of a block, of bits bits (a constant below 8), to a column.
INLINE void put_values(const int bits, uint8_t *to, const uint8_t *values)
{
	if (bits == 3) {
		put_sixes(to, values);
		return;
	}
	if (bits & 4) {
		put_nibbles(to, load_words(values), load_words(values + 16));
		to += 16;
	}
	if (bits & 2) {
		put_pairs(to, values, bits & 4);
		to += 8;
	}
	if (bits & 1)
		put_singles(to, values, bits & 6);
}

// The four bits of a word of scales of output o.
INLINE uint32_t four_bits(struct block_at at, int word, int o) { return load_u32(at.scales + word * QUAD + 4 * o) >> at.shift & 15; }

// Value k of output o.
INLINE int value_at(const int bits, const uint8_t *q, int o, int k)
{
	int value = 0;
	q += 4 * o + k % 4;
	if (bits == 3) {
		const int last = q[0] >> 6 | q[QUAD] >> 6 << 2 | q[2 * QUAD] >> 6 << 4;
		return (k < 24 ? q[k / 8 * QUAD] : last) >> k / 4 % 2 * 3 & 7;
	}
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

#if !defined(LOOKUP_VBMI)
// table[b] for each byte b of vb_bits(a, shift, mask), bits 0-5 of a.
INLINE vb vb_lookup_bits(const uint8_t *table, vb a, const int shift, int mask) { return vb_lookup(table, vb_bits(a, shift, mask)); }
#endif

// Loads vectors of bytes with two values each, in bits 0-5.
INLINE void load_sixes(vb sixes[4], const uint8_t *q)
{
	UNROLL for (int h = 0; h < 3; h++)
		sixes[h] = vb_load(q + h * QUAD);
	sixes[3] = vb_select(vb_select(vb_shift(sixes[0], -6), vb_shift(sixes[1], -4), 3), vb_shift(sixes[2], -2), 15);
}

INLINE void load_values(const int bits, struct panel_block *w, const uint8_t *q)
{
	if (bits == 3) {
		vb sixes[4];
		load_sixes(sixes, q);
		UNROLL for (int j = 0; j < 8; j++)
			w->q[j] = vb_bits(sixes[j / 2], -3 * (j % 2), 7);
		return;
	}
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

// The scales, and the values, of block i of a column.
INLINE uint8_t *column_scales(const int kind, uint8_t *column, int i)
{
	const struct panel p = panel_of(kind);
	return column + p.units * 2 + i * p.scales / 8;
}

INLINE uint8_t *column_values(const int kind, uint8_t *column, int i)
{
	const struct panel p = panel_of(kind);
	return column_scales(kind, column, p.values / BLOCK) + i * p.bits * 4;
}

// Reports whether the scales of a kind of panel are in words.
INLINE bool has_words(const struct panel p) { return p.scales % 8 != 0; }

// Writes four bits of block i to a word of scales of a column.
INLINE void put_four_bits(const int kind, uint8_t *column, int word, int i, uint32_t bits)
{
	uint8_t *two = column_scales(kind, column, 0) + 4 * word + i / 2;
	*two = (uint8_t)(i % 2 ? *two | bits << 4 : bits);
}

#if __has_builtin(__builtin_shufflevector)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (four_words){__VA_ARGS__})
#endif

// Interleaves four words of each of PANEL columns. from: words of the first column, stride bytes from
// column to column; to: (4, PANEL) words
INLINE void interleave_words(const uint8_t *from, const size_t stride, uint8_t *to)
{
	UNROLL for (int o = 0; o < PANEL; o += 4, to += 16) {
		four_words in[4], pair[4];
		UNROLL for (int k = 0; k < 4; k++, from += stride)
			in[k] = load_words(from);
		UNROLL for (int k = 0; k < 2; k++) {
			pair[k] = PICK(in[2 * k], in[2 * k + 1], 0, 4, 1, 5);     // words 0 and 1 of two columns
			pair[2 + k] = PICK(in[2 * k], in[2 * k + 1], 2, 6, 3, 7); // words 2 and 3
		}
		UNROLL for (int k = 0; k < 2; k++) {
			const four_words first = PICK(pair[2 * k], pair[2 * k + 1], 0, 1, 4, 5);
			const four_words second = PICK(pair[2 * k], pair[2 * k + 1], 2, 3, 6, 7);
			memcpy(to + 2 * k * QUAD, &first, sizeof first);
			memcpy(to + (2 * k + 1) * QUAD, &second, sizeof second);
		}
	}
}

// Interleaves PANEL columns to a group of a panel. columns: (PANEL, bytes of a column)
INLINE void interleave(const int kind, const uint8_t *columns, uint8_t *to)
{
	const struct panel p = panel_of(kind);
	const size_t stride = panel_group_bytes(kind) / PANEL;
	const int units = kind == PANEL_CODES_32 ? 0 : p.units; // its unit is a float: a word
	const size_t scales = has_words(p) ? 0 : (size_t)(p.values / BLOCK * p.scales / 8), words = (stride - 2 * (size_t)units - scales) / 4;
	for (int u = 0; u < units; u++, to += 2 * PANEL)
		UNROLL for (int o = 0; o < PANEL; o++)
			memcpy(to + 2 * o, columns + (size_t)o * stride + 2 * u, 2);
	columns += 2 * units;
	for (size_t s = 0; s < scales; s += 4) { // a multiple of 4
		uint32_t words[PANEL];
		UNROLL for (int o = 0; o < PANEL; o++)
			words[o] = load_u32(columns + (size_t)o * stride + s);
		UNROLL for (int t = 0; t < 4; t++, to += PANEL)
			for (int o = 0; o < PANEL; o++)
				to[o] = (uint8_t)(words[o] >> 8 * t);
	}
	columns += scales;
	for (size_t k = 0; k < words / 4; k++, columns += 16, to += 4 * QUAD)
		interleave_words(columns, stride, to);
	for (size_t k = 0; k < words % 4; k++, columns += 4, to += QUAD)
		UNROLL for (int o = 0; o < PANEL; o++)
			memcpy(to + 4 * o, columns + (size_t)o * stride, 4);
}

#define FORMAT_KERNELS
#include "formats.h"

INLINE bool is_float(const int kind) { return kind == PANEL_F16 || kind == PANEL_BF16; }

// Writes a group of one row of a file to a column.
INLINE void pack_group(const int type, const uint8_t *w, uint8_t *to)
{
	switch (type) {
	case TYPE_F16:
	case TYPE_BF16:
		memcpy(to, w, 2);
		return;
#define FORMAT(name, ...) \
	case TYPE_##name: \
		pack_##name(w, to); \
		return;
		BLOCK_FORMATS(FORMAT)
#undef FORMAT
	}
	abort(); // unreachable: type is a constant that the table has
}

// The largest group of a panel.
union group {
#define PANEL_KIND(name, values, units, scales, bits) uint8_t name[PANEL * (2 * (units) + ((values) + BLOCK - 1) / BLOCK * ((scales) + BLOCK * (bits)) / 8)];
	PANELS(PANEL_KIND)
#undef PANEL_KIND
};

// Packs PANEL rows of eight values of 16 bits. w: (PANEL, 8), stride bytes from row to row
INLINE void pack_halves(const uint8_t *w, size_t stride, uint8_t *panel)
{
	uint32_t pairs[4][PANEL];
	interleave_words(w, stride, (uint8_t *)pairs);
	for (int k = 0; k < 4; k++, panel += 4 * PANEL) {
		uint16_t values[2][PANEL];
		for (int o = 0; o < PANEL; o++) {
			values[0][o] = (uint16_t)pairs[k][o];
			values[1][o] = (uint16_t)(pairs[k][o] >> 16);
		}
		memcpy(panel, values, sizeof values);
	}
}

// Distance of prefetches of rows that are packed, in bytes. The prefetcher of the processor follows
// fewer rows than are read in turn.
enum { PACK_AHEAD = 1024 };

// Packs rows rows of a file, at most PANEL. w: (rows, groups), stride bytes from row to row
INLINE void pack_rows(const int type, const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)
{
	const int kind = format_of(type).panel;
	const size_t bytes = (size_t)format_of(type).bytes, group = panel_group_bytes(kind), column = group / PANEL;
	_Alignas(LINE) uint8_t columns[sizeof(union group)] = {0};
	if (is_float(kind) && rows == PANEL)
		for (; groups >= 8; groups -= 8, w += 16, panel += 8 * group) {
			for (int o = 0; o < PANEL; o++)
				fetch_ahead(w + (size_t)o * stride + PACK_AHEAD, 16);
			pack_halves(w, stride, panel);
		}
	for (int g = 0; g < groups; g++, w += bytes, panel += group) {
		for (int o = 0; o < rows; o++) {
			fetch_ahead(w + (size_t)o * stride + PACK_AHEAD, (int)bytes);
			pack_group(type, w + (size_t)o * stride, columns + (size_t)o * column);
		}
		interleave(kind, columns, panel);
	}
}

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
	return (struct block_at){group, scales, scales + p.values / BLOCK * p.scales / 8 * PANEL, NULL, 0, codes};
}

INLINE struct block_at next_block(const int kind, struct block_at at)
{
	const struct panel p = panel_of(kind);
	if (has_words(p))
		at.shift += 4;
	else
		at.scales += p.scales / 8 * PANEL;
	if (p.scales == 0) {
		const int units = PANEL * (p.units * BLOCK / p.values);
		at.units += 2 * units;
		at.floats += units;
	}
	at.q += p.bits * QUAD;
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
