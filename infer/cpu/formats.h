// The formats of weights that there are kernels for.
//
//	FORMAT(name, type, values, bytes, units, scales, bits)
//
//	type     number in a GGUF file
//	values   columns of a group, which lies together in a file and in a panel
//	bytes    of a group of one row in a file
//
// and of each output in a panel, see panel.h:
//
//	units    halves that a group begins with; 0: weights are not packed
//	scales   bytes of a block's scales
//	bits     of a value
//
// The kernels of float formats are in matmul_float.h and matmul_panel.h. A format NAME of blocks
// has its own in one of the headers at the end:
//
//	pack_NAME(w, to, o)                          writes a group of a file, w, as output o of the group to
//	load_NAME(units, scales, q, v)               returns vector v of a block: struct panel_block
//	add_NAME(acc, w, x)                          returns acc + w · x for a block of weights and one of activations
//	unpack_NAME(units, scales, q, o, y)          writes the block of output o as floats to y
//
// where units, scales and q are where a block has them in a panel. A weight type that is not
// here has no kernel on any path, and format_of says so.
#ifndef M40_CPU_FORMATS_H
#define M40_CPU_FORMATS_H

#define FLOAT_FORMATS(FORMAT) \
	FORMAT(F32, 0, 1, 4, 0, 0, 0) \
	FORMAT(F16, 1, 1, 2, 1, 0, 0)

#define BLOCK_FORMATS(FORMAT) \
	FORMAT(Q4_0, 2, 32, 18, 1, 0, 4) \
	FORMAT(Q8_0, 8, 32, 34, 1, 0, 8) \
	FORMAT(Q4_K, 12, 256, 144, 2, 2, 4) \
	FORMAT(Q5_K, 13, 256, 176, 2, 2, 5) \
	FORMAT(Q6_K, 14, 256, 210, 2, 2, 6)

#define FORMATS(FORMAT) FLOAT_FORMATS(FORMAT) BLOCK_FORMATS(FORMAT)

#define FORMAT(name, type, ...) TYPE_##name = type,
enum { FORMATS(FORMAT) };
#undef FORMAT

struct format {
	int values, bytes;
	int units, scales, bits;
};

// Returns the format of a type of weight. Without values: there are no kernels for the type.
static inline struct format format_of(int type)
{
	switch (type) {
#define FORMAT(name, type, values, bytes, units, scales, bits) \
	case type: \
		return (struct format){values, bytes, units, scales, bits};
		FORMATS(FORMAT)
#undef FORMAT
	}
	return (struct format){0, 0, 0, 0, 0};
}

#endif

// The kernels, once a path has what they are written with.
#ifdef FORMAT_KERNELS
#include "format_q.h"
#include "format_k.h"
#include "format_q6_k.h"
#endif
