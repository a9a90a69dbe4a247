// The interface between Go and C: a program lowered to operations and phases, the batch that it is
// replayed for, and the table of kernels of each instruction set.
//
// Go has checked all lengths.
#ifndef M40_CPU_ENGINE_H
#define M40_CPU_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BLOCK = 32,  // values in a quantised block, and positions in a block of the KV cache
	SUPER = 8,   // quantised blocks in a super-block
	SPLIT = 256, // positions that attention processes at once: fixed, because results depend on it
	LINE = 64,   // alignment of all allocations, in bytes
	MAX_EXPERTS = 4096, // of OP_ROUTE
	CONV_PART = 64, // columns of a convolution that a thread takes at a time
	SCAN_PART = 32, // values of a head that a thread takes at a time
	MAX_KERNEL = 64, // positions that a convolution spans
	PANEL = 16,  // outputs that are stored interleaved, see panel.h
};

#include "formats.h"

// Bytes of a group of PANEL rows in a panel of a kind.
static inline size_t panel_group_bytes(int kind)
{
	const struct panel p = panel_of(kind);
	return PANEL * ((size_t)p.units * 2 + (size_t)(p.values / BLOCK) * (size_t)(p.scales + BLOCK * p.bits) / 8);
}

// Bytes of a panel of a weight with cols columns. 0: weights of the type are not packed.
static inline size_t panel_bytes(int type, int cols)
{
	const int kind = format_of(type).panel;
	return (size_t)(cols / panel_of(kind).values) * panel_group_bytes(kind);
}

enum op_kind {
	OP_EMBED = 1,   // y[cols] = w[token], or w[position]
	OP_RMS_NORM,    // y = x / sqrt(mean(x²) + eps) · w, for each head_dim values
	OP_LAYER_NORM,  // y = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias, for each head_dim values
	OP_MATMUL,      // y[outs] = x[cols] · wᵀ
	OP_ADD_BIAS,    // y += w
	OP_ROPE,        // heads of y rotated by the row's angles
	OP_STORE_KV,    // cache[layer][K|V][kv head][position] = x, z
	OP_ATTENTION,   // y = attention of x over the cache
	OP_GLU,         // y = a(x) · z, or a(x) if z is NULL
	OP_ADD,         // y += x
	OP_SCALE,       // y = y · scale, then the soft cap
	OP_GATHER_ROWS, // y[i] = x[out[i]]
	OP_ANGLES,      // cosines and sines of the row's angles, for OP_ROPE
	OP_QUANTIZE,    // x quantised to int8, for OP_MATMUL with quantised weights
	OP_ROUTE,       // y = numbers of the used experts chosen by logits x, then their weights
	OP_GROUP,       // rows grouped by the experts in routes x, for OP_MATMUL of experts
	OP_EXPERT_BIAS, // part i of y += row routes z[i] of w
	OP_EXPERT_SUM,  // y = Σ weight[i] of routes z · part i of x
	OP_GATE,        // y = y · sigmoid(x), with outs values of x per row
	OP_MULTIPLY,    // y = y · w, with outs values of w
	OP_COPY,        // columns of y = columns of x
	OP_SCALE_BY_POSITION, // y = y · (1 + scale · ln(1 + position / outs))
	OP_MIX,         // parts of y from column to on += Σ factors z · parts of x, of width values
	OP_MATCH_RMS,   // y = y · rms(x) / rms(y), for each head_dim values
	OP_SPARSIFY,    // y = max(0, y - mean(y) - scale · deviation(y))
	OP_CONV,        // y = bias + convolution of x with w (cols, outs), see recurrent.h
	OP_SCAN,        // y = recurrence with queries x and keys z, see recurrent.h
};

// Activation functions of OP_GLU.
enum { SILU, GELU, CLAMPED_SWIGLU, SQUARED_RELU, EXACT_GELU, IDENTITY, SIGMOID, SOFTPLUS, EXP };

struct op {
	int32_t kind;
	int32_t type; // of w; of the keys for OP_STORE_KV and OP_ATTENTION

	int32_t cols;  // values in a row of y; of x for OP_MATMUL and OP_QUANTIZE
	int32_t outs;  // OP_MATMUL: rows of w; OP_GATE, OP_MULTIPLY: see there; OP_COPY, OP_MIX: values in a row of x;
	               // norms: rows of w, one for each head or 1; OP_SCALE_BY_POSITION: period in positions
	int32_t chunk; // OP_MATMUL: rows of w that one thread takes at a time

	int32_t by_position; // OP_EMBED: look up the position instead of the token
	int32_t experts;   // number of experts; OP_MATMUL: w has outs rows for each, 0: no experts
	int32_t used;      // experts of a row
	int32_t own;       // OP_MATMUL: a row of x has cols values for each of its experts
	int32_t normalize; // OP_ROUTE: divide the weights by their sum
	int32_t sigmoid;   // OP_ROUTE: scores are sigmoids of logits instead of their softmax
	float max_bias;    // OP_ATTENTION: device.Attention.MaxBias
	float margin;      // OP_ROUTE: device.SparseMixerMargin if scores are those of device.ScoreSparseMixer, else 0
	int32_t by_logits; // OP_ROUTE: rank experts by logits, which gives the same order as scores
	int32_t groups, groups_used;  // OP_ROUTE: choose only from the groups_used best of groups; 0: from all
	const float *bias, *factors; // OP_ROUTE: (experts) added to the scores for the choice; factors of the weights;
	                             // or NULL. OP_LAYER_NORM: bias (cols), or NULL
	int32_t parts, from, to, width; // OP_COPY: device.Columns; OP_MIX: to and width

	float *y;
	const float *x, *z;
	const uint8_t *w; // F32, or in_file: (rows, cols) or (cols), at w_stride bytes a row; else panels
	size_t w_stride;  // bytes from row to row, or from panel to panel
	int32_t in_file;  // w is in the layout of the model file, not packed
	int32_t w_rows;   // rows of w

	const uint8_t *copy; // in_file: panels of the first copied rows of w, at copy_stride bytes a panel
	size_t copy_stride;
	int32_t copied; // a multiple of PANEL
	float eps;

	float *angles;       // OP_ANGLES, OP_ROPE: (rows, 2, dims/2) cosines, sines
	const double *freqs; // OP_ANGLES: (dims/2) radians for one position
	int32_t axis;        // OP_ANGLES: 0: angles of the row's position, else of its coordinate on this axis
	int32_t dims;        // leading values of a head that are rotated
	int32_t neox;        // pairs are (i, i+dims/2) instead of (2i, 2i+1)

	uint8_t *kv; // [block][layer][K|V][kv head][BLOCK][head_dim]
	int32_t value_type;     // of the values
	int32_t rotates;        // keys are rotated: see device.KVLayout.RotatesKeys
	size_t kv_bytes[2];     // of the keys and of the values of a head in a block; 0 values if the cache is latent
	int32_t layers, layer;
	int32_t group; // cache group
	int32_t kv_heads, heads, head_dim;
	int32_t parts_kv, value_dim; // OP_STORE_KV, OP_ATTENTION: 1 and less than head_dim if the cache is latent, or 2
	const float *sinks;          // OP_ATTENTION: (heads) attention sinks, or NULL
	int32_t before, after; // OP_ATTENTION: how far a row attends, in positions
	float scale;    // factor of scores, of cosines and sines, of y (OP_SCALE), of weights (OP_ROUTE)
	float cap;      // soft cap of scores or values; 0: none
	int32_t activation; // OP_GLU
	int32_t silu;       // OP_CONV: y = SiLU(y) follows

	float *state; // OP_CONV, OP_SCAN: recurrent state, state_values for each slot; that of op begins at state_at
	size_t state_values, state_at;
	const float *v, *decay, *step; // OP_SCAN: (rows, cols), (rows, heads, decays), (rows, heads); factors: (heads) of v, or NULL
	int32_t keys, decays;          // OP_SCAN: kv_heads keys of keys values; heads of head_dim values; 1 decay, or one for each value of a key
	int32_t tiled, delta;          // OP_SCAN: see device.Scan
};

enum phase_kind {
	PHASE_ROWS = 1,  // operations on single rows; an item is a row: one thread runs all operations on it
	PHASE_MATMUL,    // products with the same input; an item is a chunk of outputs
	PHASE_ATTENTION, // one operation; an item is a row and a kv head
	PHASE_GROUP,     // one operation, OP_GROUP; one item
	PHASE_CONV,      // operations that do not read each other's results; an item is CONV_PART columns of one
	PHASE_SCAN,      // one operation; an item is SCAN_PART values of a head
};

// A phase is work that is divided among threads, and ends before the next begins: operations first … last-1, divided into items.
struct phase {
	int32_t kind;
	int32_t first, last;
	int32_t gathered; // its rows are the batch's out rows
	int32_t items;    // PHASE_MATMUL: items of all its products, for one expert; PHASE_CONV, PHASE_SCAN: of all its operations
	int64_t cost;     // PHASE_MATMUL: multiplications for one row
};

struct program {
	struct op *ops;
	struct phase *phases;
	int32_t n_phases;
};

struct batch {
	int32_t rows, outs;
	const int32_t *tokens, *pos, *seq; // (rows)
	const int32_t *last;               // (rows) last position of the row's sequence
	const int32_t *out;                // (outs) rows that are gathered
	int32_t sequences;
	const int32_t *tables;   // block tables of all cache groups and sequences, concatenated
	const int32_t *table_at; // (groups, sequences) where each begins
	const int32_t *states;   // (sequences) slots of the recurrent state
	const int32_t *coordinates; // (axes, rows)
};

// Scratch memory of a device. Its programs share it, because only one runs at a time.
struct scratch {
	uint8_t *quant;          // (rows) activations quantised to int8, see quant_row
	float *attention;        // (threads) see attention_floats
	size_t attention_stride; // floats from thread to thread
	int32_t *groups;         // see struct groups
	uint8_t *panels;         // (threads) a panel of any weight that is in_file
	size_t panels_stride;    // bytes from thread to thread
};

// Rows grouped by the experts that they use. Pair row · used + i stands for a row and the i-th of
// its experts.
struct groups {
	int32_t *count;  // (1) number of experts that any row uses
	int32_t *active; // (count) these experts, ascending
	int32_t *starts; // (experts + 1) index of the first pair of each expert
	int32_t *pairs;  // (rows · used) pairs by expert, ascending for each
};

static inline size_t groups_ints(int rows, int used, int experts) { return 2 + 2 * (size_t)experts + (size_t)rows * (size_t)used; }

static inline struct groups groups_at(int32_t *at, int experts)
{
	return (struct groups){at, at + 1, at + 1 + experts, at + 2 + 2 * experts};
}

// The state of a run of a program that kernels read.
struct run {
	const struct program *program;
	const struct batch *batch;
	struct scratch scratch;
};

// Returns the block table of the row's sequence in the cache group of op.
static inline const int32_t *table_of(const struct batch *b, const struct op *op, int row)
{
	return b->tables + b->table_at[op->group * b->sequences + b->seq[row]];
}

// The part of a product that a thread computes at once: rows out0 … out1-1 of w for rows rows of x.
struct share {
	int rows;
	const int32_t *pairs; // of an expert, see struct groups; NULL: rows 0 … rows-1
	int first;            // row of w that computes output 0
	int out0, out1;
};

// The kernels of one weight type.
struct weight_kernels {
	// Packs rows rows of a weight, at most PANEL, into a panel; other rows of the panel keep their
	// content. w: (rows, groups), stride bytes from row to row. NULL: the type is not packed.
	void (*pack)(const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel);
	// Writes row token of an embedding table to y.
	void (*embed)(const struct op *op, int32_t token, float *y);
	void (*matmul)(const struct run *r, const struct op *op, const struct share *s);
};

// Whether fetch_block prefetches into L1. Volatile, so that the compiler does not make two copies of each loop.
extern volatile bool engine_fetch_near;

enum { CODEBOOK_BYTES = 2 * 4608 };

// Points of 16 bits.
extern uint8_t engine_codebooks[CODEBOOK_BYTES];

// The kernels of one instruction set.
struct kernels {
	// Runs all operations of a PHASE_ROWS on row row.
	void (*row)(const struct run *r, const struct phase *p, int row);
	// Reads n bytes at p, a multiple of LINE. The result depends on all of them, so that the reads
	// are not optimised away.
	uint64_t (*read)(const uint8_t *p, size_t n);
	// The kernels of each weight type, indexed by type.
	const struct weight_kernels *weights;
	// Computes attention of rows rows from row row on, at most attention_rows, for the query heads that share kv head kv_head. y: rows of
	// (these heads, value_dim), stride floats apart;
	// mem is the thread's scratch.
	void (*attention)(const struct run *r, const struct op *op, int row, int rows, int kv_head, float *y, size_t stride, float *mem);
	// Compute a part of the columns of an operation with recurrent state, for rows rows.
	void (*conv)(const struct run *r, const struct op *op, int part, int rows);
	void (*scan)(const struct run *r, const struct op *op, int head, int part, int rows);
};

extern const struct kernels kernels_portable;
#if defined(__x86_64__)
extern const struct kernels kernels_sse41, kernels_avx, kernels_f16c, kernels_avx2, kernels_avx512bw, kernels_avx512, kernels_avx512vbmi;
#if __has_include(<avxvnniintrin.h>) // GCC 11, Clang 12
#define HAVE_AVXVNNI
extern const struct kernels kernels_avxvnni;
#endif
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#endif

// A block of activations quantised to int8, with the sums of its values. Products with weights that
// are stored with a bias or an offset are corrected by these sums. The size is a cache line.
struct quant_block {
	int8_t q[BLOCK];
	float d;      // a value is d · q
	float offset; // -d · Σ q
	int32_t sum;       // -Σ q
	int16_t half[2];   // -Σ q of each half
	int16_t groups[4]; // -Σ q of each eight values
	int32_t half32[2]; // 32 times that, what weights with six bits are corrected by
};

static inline size_t quant_bytes(int cols) { return (size_t)cols / BLOCK * sizeof(struct quant_block); }

static inline struct quant_block *quant_row(const struct run *r, int cols, int row)
{
	return (struct quant_block *)(r->scratch.quant + (size_t)row * quant_bytes(cols));
}

// How many rows an item of attention has, if group query heads share a kv head and rows attend to positions behind theirs. Rows that do
// not are items of their own.
static inline int attention_rows(int group, bool behind)
{
	enum { HEADS = 16 }; // that are computed together
	return behind && group < HEADS ? HEADS / group : 1;
}

// Floats of scratch that a thread needs for rows of group query heads of head_dim values: scores
// (rows, group, SPLIT); for the current split and for all splits, the sums (rows, group, head_dim), maxima and
// weights (rows, group); copied or rotated queries (rows, group, head_dim).
static inline size_t attention_floats(int rows, int group, int head_dim)
{
	size_t n = (size_t)rows * (size_t)group * (SPLIT + 3 * (size_t)head_dim + 4);
	return (n + 15) / 16 * 16;
}

// Returns the name of the i-th path that this processor supports, fastest first; NULL after the last.
const char *engine_path(int i);

// Copies the codebooks that are used to pack IQ formats, see package gguf.
void engine_set_codebooks(const uint8_t *points);

struct engine;

// Starts threads-1 workers. NULL if path is unknown or a thread cannot be started.
struct engine *engine_open(const char *path, int threads);

// Packs a weight (outs, cols) into panels, which must be zeroed: panel_bytes(type, cols) for each
// PANEL outs. w has the layout of the model file and any alignment; the type must have a format.
// Returns 0 if w could not be read, because the mapped file was truncated or its disk failed.
int engine_pack(struct engine *e, int type, int outs, int cols, const uint8_t *w, uint8_t *panels);

// Reads bytes bytes at p, which is aligned to LINE, divided among the threads.
void engine_read(struct engine *e, const uint8_t *p, size_t bytes);

// Replays program p for one batch; the arrays are those of struct batch. Returns 0 if a weight that
// is in_file could not be read, as engine_pack does.
int engine_run(struct engine *e, const struct program *p, struct scratch s, int32_t rows, const int32_t *tokens,
               const int32_t *pos, const int32_t *seq, const int32_t *last, int32_t outs, const int32_t *out,
               int32_t sequences, const int32_t *tables, const int32_t *table_at, const int32_t *states,
               const int32_t *coordinates);

// Returns how many items threads have completed for others that were late.
int engine_helped(const struct engine *e);

// Ends and joins the workers.
void engine_close(struct engine *e);

#endif
