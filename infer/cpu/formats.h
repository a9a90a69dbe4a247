// The table of weight formats that have kernels.
//
//	FORMAT(name, type, values, bytes, panel)
//
//	type     type number in GGUF files
//	values   columns of a group, the unit of storage: a super-block, a block or one value
//	bytes    size of a group of one row in a file
//	panel    kind of panel that weights are packed in; NONE: they are not packed
//
// Several formats share a kind of panel. Each format NAME that has blocks has one function, in one of
// the headers at the end:
//
//	pack_NAME(w, to, o)      packs group w of a file as output o of group to
//
// The kinds of panels, with sizes for each output (see panel.h):
//
//	PANEL(name, values, units, scales, bits)
//
//	values   columns of a group
//	units    F16 numbers at the beginning of a group; if its blocks have no scales, those of one block after the other
//	scales   bits of the scales of a block
//	bits     bits of a value
//
// Each kind NAME that has blocks has the kernels, where at locates a block:
//
//	load_NAME(at, v)         returns vector v of a block: struct panel_block
//	add_NAME(acc, w, x)      returns acc + w · x for a block of weights and one of activations
//	unpack_NAME(at, o, y)    dequantises the block of output o to y
//
// The kernels of float formats are in matmul_float.h and matmul_panel.h. Weight types that are not in
// the table have no kernels on any path.
#ifndef M40_CPU_FORMATS_H
#define M40_CPU_FORMATS_H

#define FLOAT_FORMATS(FORMAT) \
	FORMAT(F16, 1, 1, 2, F16) \
	FORMAT(BF16, 30, 1, 2, BF16)

#define BLOCK_FORMATS(FORMAT) \
	FORMAT(Q4_0, 2, 32, 18, Q4_0) \
	FORMAT(Q4_1, 3, 32, 20, Q4_1) \
	FORMAT(Q5_0, 6, 32, 22, Q5_0) \
	FORMAT(Q5_1, 7, 32, 24, Q5_1) \
	FORMAT(Q8_0, 8, 32, 34, Q8_0) \
	FORMAT(Q2_K, 10, 256, 84, Q2_K) \
	FORMAT(Q3_K, 11, 256, 110, Q3_K) \
	FORMAT(Q4_K, 12, 256, 144, Q4_K) \
	FORMAT(Q5_K, 13, 256, 176, Q5_K) \
	FORMAT(Q6_K, 14, 256, 210, Q6_K) \
	FORMAT(IQ2_XXS, 16, 256, 66, CODES_3_ONE) \
	FORMAT(IQ2_XS, 17, 256, 74, CODES_3) \
	FORMAT(IQ3_XXS, 18, 256, 98, CODES_4) \
	FORMAT(IQ1_S, 19, 256, 50, TERNARY_ONE) \
	FORMAT(IQ4_NL, 20, 32, 18, CODES_32) \
	FORMAT(IQ3_S, 21, 256, 110, CODES_4) \
	FORMAT(IQ2_S, 22, 256, 82, CODES_3) \
	FORMAT(IQ4_XS, 23, 256, 136, CODES_4) \
	FORMAT(IQ1_M, 29, 256, 56, TERNARY) \
	FORMAT(TQ1_0, 34, 256, 54, Q2_K) \
	FORMAT(TQ2_0, 35, 256, 66, Q2_K) \
	FORMAT(MXFP4, 39, 32, 17, CODES_32) \
	FORMAT(NVFP4, 40, 64, 36, CODES_16)

#define PACKED_FORMATS(FORMAT) FLOAT_FORMATS(FORMAT) BLOCK_FORMATS(FORMAT)
#define FORMATS(FORMAT) FORMAT(F32, 0, 1, 4, NONE) PACKED_FORMATS(FORMAT)

#define FLOAT_PANELS(PANEL) \
	PANEL(F16, 1, 1, 0, 0) \
	PANEL(BF16, 1, 1, 0, 0)

#define BLOCK_PANELS(PANEL) \
	PANEL(Q4_0, 32, 1, 0, 4) \
	PANEL(Q4_1, 32, 2, 0, 4) \
	PANEL(Q5_0, 32, 1, 0, 5) \
	PANEL(Q5_1, 32, 2, 0, 5) \
	PANEL(Q8_0, 32, 1, 0, 8) \
	PANEL(Q2_K, 256, 2, 16, 2) \
	PANEL(Q3_K, 256, 1, 16, 3) \
	PANEL(Q4_K, 256, 2, 16, 4) \
	PANEL(Q5_K, 256, 2, 16, 5) \
	PANEL(Q6_K, 256, 1, 16, 6) \
	PANEL(CODES_32, 32, 2, 0, 4) \
	PANEL(CODES_16, 64, 4, 0, 4) \
	PANEL(CODES_4, 256, 1, 8, 4) \
	PANEL(CODES_3, 256, 1, 8, 3) \
	PANEL(CODES_3_ONE, 256, 1, 4, 3) \
	PANEL(TERNARY, 256, 1, 12, 2) \
	PANEL(TERNARY_ONE, 256, 1, 4, 2)

#define PANELS(PANEL) FLOAT_PANELS(PANEL) BLOCK_PANELS(PANEL)

#define FORMAT(name, type, ...) TYPE_##name = type,
enum { FORMATS(FORMAT) };
#undef FORMAT

#define PANEL_KIND(name, ...) PANEL_##name,
enum { PANEL_NONE, PANELS(PANEL_KIND) };
#undef PANEL_KIND

struct format {
	int values, bytes;
	int panel;
};

struct panel {
	int values, units, scales, bits;
};

// Returns the format of a weight type. values is 0 if the type has no kernels.
static inline struct format format_of(int type)
{
	switch (type) {
#define FORMAT(name, type, values, bytes, panel) \
	case type: \
		return (struct format){values, bytes, PANEL_##panel};
		FORMATS(FORMAT)
#undef FORMAT
	}
	return (struct format){0, 0, PANEL_NONE};
}

// Returns the sizes of a kind of panel.
static inline struct panel panel_of(int kind)
{
	switch (kind) {
#define PANEL_KIND(name, values, units, scales, bits) \
	case PANEL_##name: \
		return (struct panel){values, units, scales, bits};
		PANELS(PANEL_KIND)
#undef PANEL_KIND
	}
	return (struct panel){1, 0, 0, 0};
}

#endif

// The kernels, if a path has included the vector operations that they are written with.
#ifdef FORMAT_KERNELS
#include "format_q.h"
#include "format_k.h"
#include "format_codes.h"
#endif
