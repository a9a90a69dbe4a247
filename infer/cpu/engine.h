// What Go and C share: a program lowered to operations and phases, the batch it
// is replayed for, and the table of kernels that each instruction set fills in.
//
// Every length has been checked in Go before it gets here.
#ifndef M40_CPU_ENGINE_H
#define M40_CPU_ENGINE_H

#include <stddef.h>
#include <stdint.h>

enum {
	BLOCK = 32,  // values in a quantised block, and positions in a block of the KV cache
	SPLIT = 256, // positions that attention takes at once: fixed, so that a row's result is
	LINE = 64,   // alignment of everything allocated here
};

// Element types, numbered as in a GGUF file.
enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q8_0 = 8, TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14 };

// A quantised block is a scale in F16, then 32 int8, or 16 bytes of which byte i has
// value i in its low half and value i+16 in its high half, both plus 8.
enum { Q8_BYTES = 34, Q4_BYTES = 18 };

// A super-block is eight blocks of 32 values. Q4_K and Q5_K: two F16, the units of the
// scales and of the offsets; 12 bytes with six bits for each of eight scales and eight
// offsets; for Q5_K the fifth bits, bit i of byte k for value k of block i; then four
// times 32 bytes, each with block 2i in the low halves and block 2i+1 in the high ones.
// A value is scale · q - offset.
//
// Q6_K: 128 bytes of lower four bits, 64 bytes of upper two, 16 int8 scales and an F16,
// their unit. Each half of a super-block is four blocks: the low bits of blocks 0 and 2
// share 32 bytes, as do those of 1 and 3, the upper bits of all four share 32 bytes. A
// value is scale · (q - 32), with a scale for every 16.
enum {
	SUPER = 8, // blocks
	Q4K_BYTES = 144,
	Q4K_Q = 16,
	Q5K_BYTES = 176,
	Q5K_HIGH = 16,
	Q5K_Q = 48,
	Q6K_BYTES = 210,
	Q6K_HIGH = 128,
	Q6K_SCALES = 192,
	Q6K_UNIT = 208,
};

enum op_kind {
	OP_EMBED = 1,   // y[cols] = row of w picked by the row's token
	OP_RMS_NORM,    // y = x / sqrt(mean(x²) + eps) · w
	OP_MATMUL,      // y[outs] = x[cols] · wᵀ
	OP_ADD_BIAS,    // y += w
	OP_ROPE,        // heads of y turned by the row's angles
	OP_STORE_KV,    // cache[layer][K|V][kv head][position] = x, z
	OP_ATTENTION,   // y = attention of x over the cache
	OP_SWIGLU,      // y = silu(x) · z
	OP_ADD,         // y += x
	OP_GATHER_ROWS, // y[i] = x[out[i]]
	OP_ANGLES,      // cos and sin of the row's angles, for OP_ROPE
	OP_QUANTIZE,    // x rounded to int8, for OP_MATMUL of quantised weights
};

struct op {
	int32_t kind;
	int32_t type; // of w; of the cache for OP_STORE_KV and OP_ATTENTION

	int32_t cols;  // values in a row of y; of x for OP_MATMUL and OP_QUANTIZE
	int32_t outs;  // OP_MATMUL: rows of w
	int32_t chunk; // OP_MATMUL: rows of w that one thread takes at a time
	float *y;
	const float *x, *z;
	const uint8_t *w; // (outs, cols), or (cols); as it lies in the model file, of any alignment
	size_t w_stride;  // bytes from row to row of w
	float eps;

	float *angles;       // OP_ANGLES, OP_ROPE: (rows, 2, dims/2) cosines, sines
	const double *freqs; // OP_ANGLES: (dims/2) radians for one position
	int32_t dims;        // leading values of a head that are turned
	int32_t neox;        // pairs are (i, i+dims/2) instead of (2i, 2i+1)

	uint8_t *kv; // [block][layer][K|V][kv head][BLOCK][head_dim]
	int32_t layers, layer;
	int32_t kv_heads, heads, head_dim;
	int32_t window; // positions a row sees, itself included; 0: all
	float scale;    // of the scores
};

enum phase_kind {
	PHASE_ROWS = 1,  // operations on single rows, all of them done to one row by one thread
	PHASE_MATMUL,    // products that share x, cut into chunks of outputs
	PHASE_ATTENTION, // one operation, cut into (row, kv head)
};

// A phase is what threads do between two barriers: operations first … last-1.
struct phase {
	int32_t kind;
	int32_t first, last;
	int32_t gathered; // its rows are the batch's out rows
	int32_t items;    // PHASE_MATMUL: chunks of all its products
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
	const int32_t *out;                // (outs) rows that are gathered
	const int32_t *tables;             // block tables of all sequences, one after the other
	const int32_t *table_at;           // (sequences) where each begins
};

// Scratch memory of a device. Programs of one device share it, as one runs at a time.
struct scratch {
	uint8_t *quant;          // (rows) activations as int8, see quant_row
	float *attention;        // (threads) see attention_floats
	size_t attention_stride; // floats from thread to thread
};

// What a kernel can read while a program runs.
struct run {
	const struct program *program;
	const struct batch *batch;
	struct scratch scratch;
};

// The kernels of one instruction set.
struct kernels {
	// Does every operation of a PHASE_ROWS to row row.
	void (*row)(const struct run *r, const struct phase *p, int row);
	// Computes outputs out0 … out1-1 of rows 0 … rows-1.
	void (*matmul)(const struct run *r, const struct op *op, int rows, int out0, int out1);
	// Computes the query heads that share kv head kv_head. mem is the thread's scratch.
	void (*attention)(const struct run *r, const struct op *op, int row, int kv_head, float *mem);
};

extern const struct kernels kernels_portable;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avx512;
#endif

// A row of activations as int8: block b has values q[32b … 32b+31], the scale d[b]
// and, for kernels that shift weights to unsigned, s[8b … 8b+7], minus the sums of
// four neighbouring q. Both arrays are padded with zeros to an even number of blocks.
struct quant_row {
	int8_t *q;
	int32_t *s;
	float *d;
};

static inline size_t quant_padded(int cols) { return ((size_t)cols + LINE - 1) / LINE * LINE; }

static inline size_t quant_bytes(int cols)
{
	size_t n = quant_padded(cols), d = n / BLOCK * sizeof(float);
	return n + n + (d + LINE - 1) / LINE * LINE;
}

static inline struct quant_row quant_row(const struct run *r, int cols, int row)
{
	uint8_t *p = r->scratch.quant + (size_t)row * quant_bytes(cols);
	size_t n = quant_padded(cols);
	return (struct quant_row){(int8_t *)p, (int32_t *)(p + n), (float *)(p + 2 * n)};
}

// Floats that a thread needs for group query heads of head_dim values: scores
// (group, SPLIT), sums of a split and of all splits (group, head_dim), and for both of
// them maximum and weight (group).
static inline size_t attention_floats(int group, int head_dim)
{
	size_t n = (size_t)group * (SPLIT + 2 * (size_t)head_dim + 4);
	return (n + 15) / 16 * 16;
}

// Path names: the best that this processor can run comes first. NULL after the last.
const char *engine_path(int i);

struct engine;

// Starts threads-1 workers. NULL if path is unknown or a thread cannot be started.
struct engine *engine_open(const char *path, int threads);

// Replays program p for one batch; the arrays are those of struct batch. 0: memory of
// the program is gone, see fault.h, and nothing that the run wrote can be used.
int engine_run(struct engine *e, const struct program *p, struct scratch s, int32_t rows, const int32_t *tokens,
                const int32_t *pos, const int32_t *seq, int32_t outs, const int32_t *out, const int32_t *tables,
                const int32_t *table_at);

// Ends and joins the workers.
void engine_close(struct engine *e);

#endif
