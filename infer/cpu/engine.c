#include "engine.h"
#include "fault.h"
#include "numa.h"
#include "pool.h"
#include "progress.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

// A phase with fewer multiplications than this is run by one thread, because waking the others
// would take longer.
enum { ALONE_BELOW = 1 << 15 };

// How long a thread waits for the items of others before it runs them too, in nanoseconds: twice the
// time of an item, between these. What most waits take is shorter.
enum { LEAST_PATIENCE = 20000, MOST_PATIENCE = 1000000 };

// Floats of results that a thread computes into memory of its own.
enum { OWN_FLOATS = 1 << 14 };

struct engine {
	const struct kernels *kernels;
	int threads;
	struct pool *pool;

	struct run run;
	atomic_int phase; // the phase that threads run; written only by the thread that reports its last item
	atomic_int done;  // items of that phase that have been reported
	int items;        // of that phase
	struct progress *progress; // (threads)
	float *own;       // (threads, OWN_FLOATS)
	atomic_int helped; // items that a thread completed for another, of all steps
	atomic_int lost;  // a weight could not be read, see fault.h

	uint8_t *masks; // (threads, mask_bytes) see numa.h; NULL: threads run anywhere
	size_t mask_bytes;
};

volatile bool engine_fetch_near;

uint8_t engine_codebooks[CODEBOOK_BYTES];

void engine_set_codebooks(const uint8_t *points) { memcpy(engine_codebooks, points, CODEBOOK_BYTES); }

// Paths in order of preference.
static const struct path {
	const char *name;
	const struct kernels *kernels;
} paths[] = {
#if defined(__x86_64__)
	{"avx512vbmi", &kernels_avx512vbmi},
	{"avx512vnni", &kernels_avx512},
	{"avx512bw", &kernels_avx512bw},
#if defined(HAVE_AVXVNNI)
	{"avxvnni", &kernels_avxvnni},
#endif
	{"avx2", &kernels_avx2},
	{"f16c", &kernels_f16c},
	{"avx", &kernels_avx},
	{"sse41", &kernels_sse41},
#elif defined(__aarch64__)
	{"neon", &kernels_neon},
#endif
	{"portable", &kernels_portable},
};

enum { N_PATHS = sizeof paths / sizeof paths[0] };

// Reports whether the processor has the instructions of a path and the system saves its registers:
// __builtin_cpu_supports checks XCR0 for AVX and AVX-512.
static bool usable(const char *name)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	__builtin_cpu_init();
	if (strcmp(name, "sse41") == 0)
		return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1");
	bool avx = __builtin_cpu_supports("avx");
	if (strcmp(name, "avx") == 0)
		return avx;
	bool f16c = avx && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
	if (strcmp(name, "f16c") == 0)
		return f16c;
	bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (strcmp(name, "avx2") == 0)
		return avx2;
	if (strcmp(name, "avxvnni") == 0)
		return avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a & 1 << 4;
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
	if (strcmp(name, "avx512bw") == 0)
		return avx512;
	bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
	if (strcmp(name, "avx512vnni") == 0)
		return vnni;
	if (strcmp(name, "avx512vbmi") == 0)
		return vnni && __builtin_cpu_supports("avx512vbmi");
#elif defined(__aarch64__)
	if (strcmp(name, "neon") == 0)
		return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
	return strcmp(name, "portable") == 0;
}

const char *engine_path(int i)
{
	for (int k = 0; k < N_PATHS; k++)
		if (usable(paths[k].name) && i-- == 0)
			return paths[k].name;
	return NULL;
}

static int phase_rows(const struct run *r, const struct phase *p)
{
	return p->gathered ? r->batch->outs : r->batch->rows;
}

// The number of experts whose weights a product reads in this step; 1 for a product without experts.
static int active_experts(const struct run *r, const struct op *op)
{
	return op->experts == 0 ? 1 : *groups_at(r->scratch.groups, op->experts).count;
}

// How many items the rows of an attention are, for each kv head.
static int rows_items(const struct op *op, int rows)
{
	const int each = attention_rows(op->heads / op->kv_heads, op->after > 0);
	return (rows + each - 1) / each;
}

static int phase_items(const struct run *r, const struct phase *p)
{
	int rows = phase_rows(r, p);
	if (rows == 0)
		return 0;
	switch (p->kind) {
	case PHASE_MATMUL:
		return p->items * active_experts(r, &r->program->ops[p->first]);
	case PHASE_ATTENTION:
		return rows_items(&r->program->ops[p->first], rows) * r->program->ops[p->first].kv_heads;
	case PHASE_GROUP:
		return 1;
	case PHASE_CONV:
	case PHASE_SCAN:
		return p->items;
	}
	return rows;
}

// The expert of pair p in routes op->x; without routes a row uses all experts in order. An invalid
// number counts as expert 0, so that nothing outside the weights is read.
static int route_at(const struct op *op, int p)
{
	if (!op->x)
		return p % op->used;
	float expert = op->x[(size_t)(p / op->used) * 2 * (size_t)op->used + (size_t)(p % op->used)];
	return expert >= 0 && expert < (float)op->experts ? (int)expert : 0;
}

// Groups rows by the experts in routes op->x: a counting sort.
static void group_rows(const struct run *r, const struct op *op, int rows)
{
	struct groups g = groups_at(r->scratch.groups, op->experts);
	const int pairs = rows * op->used;
	memset(g.starts, 0, sizeof *g.starts * (size_t)(op->experts + 1));
	for (int p = 0; p < pairs; p++)
		g.starts[route_at(op, p) + 1]++;
	*g.count = 0;
	for (int expert = 0; expert < op->experts; expert++) {
		if (g.starts[expert + 1] > 0)
			g.active[(*g.count)++] = expert;
		g.starts[expert + 1] += g.starts[expert];
	}
	for (int p = pairs - 1; p >= 0; p--) // starts[expert + 1] runs from the end of the expert's pairs down to their start
		g.pairs[--g.starts[route_at(op, p) + 1]] = p;
	memmove(g.starts, g.starts + 1, sizeof *g.starts * (size_t)op->experts);
	g.starts[op->experts] = pairs;
}

static int matmul_items(const struct run *r, const struct op *op)
{
	return (op->outs + op->chunk - 1) / op->chunk * active_experts(r, op);
}

// The share of product op that is its item i.
static struct share share_of(const struct run *r, const struct op *op, int rows, int i)
{
	const int chunks = (op->outs + op->chunk - 1) / op->chunk, out0 = i % chunks * op->chunk;
	const int out1 = op->outs - out0 < op->chunk ? op->outs : out0 + op->chunk;
	if (op->experts == 0)
		return (struct share){rows, NULL, 0, out0, out1};
	const struct groups g = groups_at(r->scratch.groups, op->experts);
	const int expert = g.active[i / chunks], first = expert * op->outs, start = g.starts[expert];
	return (struct share){g.starts[expert + 1] - start, g.pairs + start, first, first + out0, first + out1};
}

static int scan_parts(const struct op *op) { return (op->head_dim + SCAN_PART - 1) / SCAN_PART; }

static int conv_items(const struct op *op) { return (op->cols + CONV_PART - 1) / CONV_PART; }

// Computes a share of a product whose weight is in_file: packs one panel after another into the
// thread's, unless there is a copy of it, and multiplies with it. So the bits are those of packed weights.
static void matmul_in_file(const struct run *r, const struct weight_kernels *kernels, const struct op *op, const struct share *s, int thread)
{
	struct op packed = *op;
	uint8_t *panel = r->scratch.panels + (size_t)thread * r->scratch.panels_stride;
	packed.w_stride = 0;
	for (int o = s->out0 / PANEL * PANEL; o < s->out1; o += PANEL) {
		const int rows = op->w_rows - o < PANEL ? op->w_rows - o : PANEL;
		struct share part = *s;
		part.out0 = s->out0 > o ? s->out0 : o;
		part.out1 = s->out1 < o + PANEL ? s->out1 : o + PANEL;
		if (o < op->copied) {
			packed.w = op->copy + (size_t)(o / PANEL) * op->copy_stride;
		} else {
			packed.w = panel;
			kernels->pack(op->w + (size_t)o * op->w_stride, op->w_stride, rows, op->cols / format_of(op->type).values, panel);
		}
		kernels->matmul(r, &packed, &part);
	}
}

// Rows of an attention for the heads that share a kv head, and the first of their results, each of width values.
struct attention_item {
	int row, rows, kv_head, width;
	float *y;
};

// Returns item i of op for rows rows. One kv head comes for all rows before the next: rows of a prompt share its part of the cache.
static struct attention_item attention_item(const struct op *op, int rows, int i)
{
	const int group = op->heads / op->kv_heads, each = attention_rows(group, op->after > 0), items = rows_items(op, rows);
	struct attention_item a = {.row = i % items * each, .kv_head = i / items, .width = group * op->value_dim};
	a.rows = rows - a.row < each ? rows - a.row : each;
	a.y = op->y + (size_t)a.row * (size_t)op->cols + (size_t)a.kv_head * (size_t)a.width;
	return a;
}

// Where the outputs of an item are: rows rows of width values, stride floats apart.
struct outputs {
	float *at;
	int rows, width;
	size_t stride;
};

// The outputs of an item that several threads may compute, or none: such an item reads nothing that
// it or another item of its phase writes, and its results fit into a thread's own memory.
static struct outputs outputs_of(const struct run *r, const struct phase *p, int i)
{
	const struct op *op = &r->program->ops[p->first];
	struct outputs out = {0};
	if (p->kind == PHASE_ATTENTION) {
		const struct attention_item a = attention_item(op, phase_rows(r, p), i);
		out = (struct outputs){a.y, a.rows, a.width, (size_t)op->cols};
	} else if (p->kind == PHASE_MATMUL && op->experts == 0) {
		for (; i >= matmul_items(r, op); op++)
			i -= matmul_items(r, op);
		const struct share s = share_of(r, op, phase_rows(r, p), i);
		out = (struct outputs){op->y + s.out0, s.rows, s.out1 - s.out0, (size_t)op->outs};
	}
	if ((int64_t)out.rows * out.width > OWN_FLOATS)
		return (struct outputs){0};
	return out;
}

static void put_outputs(const struct outputs *out, const float *own)
{
	for (int r = 0; r < out->rows; r++)
		memcpy(out->at + (size_t)r * out->stride, own + (size_t)r * (size_t)out->width, sizeof *own * (size_t)out->width);
}

// Runs item i of a PHASE_MATMUL. own: as in run_item
static void run_matmul(struct engine *e, const struct phase *p, int i, int thread, float *own)
{
	const struct run *r = &e->run;
	const struct op *op = &r->program->ops[p->first];
	for (; i >= matmul_items(r, op); op++)
		i -= matmul_items(r, op);
	struct share s = share_of(r, op, phase_rows(r, p), i);
	struct op to;
	if (own) {
		to = *op;
		to.y = own;
		to.outs = s.out1 - s.out0;
		s.first = s.out0;
		op = &to;
	}
	const struct weight_kernels *kernels = &e->kernels->weights[op->type];
	if (op->in_file)
		matmul_in_file(r, kernels, op, &s, thread);
	else
		kernels->matmul(r, op, &s);
}

// Runs item i of phase p. Results do not depend on which thread runs which item: items write
// disjoint memory. own: where the outputs of outputs_of are written without gaps; NULL: in their place
static void run_item(struct engine *e, const struct phase *p, int i, int thread, float *own)
{
	const struct run *r = &e->run;
	const struct op *op = &r->program->ops[p->first];
	switch (p->kind) {
	case PHASE_ROWS:
		e->kernels->row(r, p, i);
		return;
	case PHASE_ATTENTION: {
		const struct attention_item a = attention_item(op, phase_rows(r, p), i);
		e->kernels->attention(r, op, a.row, a.rows, a.kv_head, own ? own : a.y, own ? (size_t)a.width : (size_t)op->cols,
		                      r->scratch.attention + (size_t)thread * r->scratch.attention_stride);
		return;
	}
	case PHASE_GROUP:
		group_rows(r, op, phase_rows(r, p));
		return;
	case PHASE_CONV:
		for (; i >= conv_items(op); op++)
			i -= conv_items(op);
		e->kernels->conv(r, op, i, phase_rows(r, p));
		return;
	case PHASE_SCAN:
		e->kernels->scan(r, op, i / scan_parts(op), i % scan_parts(op), phase_rows(r, p)); // in the order of memory
		return;
	case PHASE_MATMUL:
		run_matmul(e, p, i, thread, own);
	}
}

static bool alone(const struct engine *e, const struct phase *p)
{
	const int items = phase_items(&e->run, p);
	return e->threads == 1 || items <= 1 || items > MOST_ITEMS || e->run.program->n_phases > MOST_PHASES ||
	       (p->kind == PHASE_MATMUL && p->cost * phase_rows(&e->run, p) < ALONE_BELOW);
}

// Divides the n items of phase k among the threads, which may end the phase before this returns.
static void divide(struct engine *e, int k, int n)
{
	e->items = n;
	atomic_store_explicit(&e->done, 0, memory_order_relaxed);
	atomic_store_explicit(&e->phase, k, memory_order_release);
	for (int t = 0; t < e->threads; t++) {
		const int begin = (int)((int64_t)n * t / e->threads), end = (int)((int64_t)n * (t + 1) / e->threads);
		atomic_store_explicit(&e->progress[t].next, word_of(k, end, begin), memory_order_release);
	}
}

// Runs phases that need only one thread, up to the next one for all threads.
static void advance(struct engine *e, int thread)
{
	const struct program *program = e->run.program;
	int k = atomic_load_explicit(&e->phase, memory_order_relaxed);
	for (; k < program->n_phases; k++) {
		const struct phase *p = &program->phases[k];
		const int n = phase_items(&e->run, p);
		if (!alone(e, p)) {
			divide(e, k, n);
			return;
		}
		for (int i = 0; i < n; i++)
			run_item(e, p, i, thread, NULL);
	}
	atomic_store_explicit(&e->phase, k, memory_order_release);
}

// Reports n items of the running phase as done. The last ones end it.
static void report(struct engine *e, int n, int thread)
{
	const int items = e->items; // the phase cannot end before n is added, but it can right after that
	if (n == 0 || atomic_fetch_add(&e->done, n) + n < items)
		return;
	atomic_fetch_add_explicit(&e->phase, 1, memory_order_relaxed);
	advance(e, thread);
	pool_next(e->pool);
}

static void run_taken(struct engine *e, struct item item, int thread)
{
	const struct phase *p = &e->run.program->phases[item.phase];
	const struct outputs out = outputs_of(&e->run, p, item.index);
	struct progress *progress = &e->progress[thread];
	float *own = out.width > 0 ? e->own + (size_t)thread * OWN_FLOATS : NULL;
	const uint64_t at = progress_begin(progress, item.phase, own ? ITEM + item.index : STORING);
	run_item(e, p, item.index, thread, own);
	if (own) {
		if (!progress_store(progress, at))
			return;
		put_outputs(&out, own);
	}
	progress_end(progress, at);
}

// Completes what keeps phase k from ending, and reports it: an item that another thread runs, or what
// it has not reported. Returns false if there is nothing to do.
static bool help(struct engine *e, int k, int thread)
{
	const struct phase *p = &e->run.program->phases[k];
	float *own = e->own + (size_t)thread * OWN_FLOATS;
	for (int step = 1; step < e->threads; step++) {
		const int other = (thread + step) % e->threads;
		const uint64_t at = atomic_load_explicit(&e->progress[other].at, memory_order_acquire);
		if (at == 0 || word_phase(at) != k || word_low(at) == STORING)
			continue;
		const bool running = word_low(at) >= ITEM;
		const int i = word_low(at) - ITEM;
		if (running)
			run_item(e, p, i, thread, own);
		if (!progress_take_over(&e->progress[other], at))
			return true; // it has got on
		if (running) {
			const struct outputs out = outputs_of(&e->run, p, i);
			put_outputs(&out, own);
			atomic_fetch_add_explicit(&e->helped, 1, memory_order_relaxed);
		}
		report(e, word_middle(at) + running, thread);
		return true;
	}
	return false;
}

static void walk(void *arg, int thread)
{
	struct engine *e = arg;
	fault_watch(&e->lost);
	for (;;) {
		const unsigned turn = pool_turn(e->pool);
		const int k = atomic_load_explicit(&e->phase, memory_order_acquire);
		if (k == e->run.program->n_phases)
			break;
		const int64_t begin = pool_clock();
		int items = 0;
		struct item item;
		for (int other = 0; other < e->threads; other++)
			for (; progress_take(&e->progress[(thread + other) % e->threads], &item); items++)
				run_taken(e, item, thread);
		const int64_t took = items > 0 ? 2 * (pool_clock() - begin) / items : 0;
		report(e, progress_report(&e->progress[thread]), thread);
		const int64_t patience = took < LEAST_PATIENCE ? LEAST_PATIENCE : took < MOST_PATIENCE ? took : MOST_PATIENCE;
		while (!pool_spin(e->pool, turn, patience))
			if (!help(e, k, thread)) {
				pool_wait(e->pool, turn);
				break;
			}
	}
	fault_unwatch();
}

static void keep_thread(void *arg, int thread)
{
	const struct engine *e = arg;
	if (thread > 0)
		sched_setaffinity(0, e->mask_bytes, (const cpu_set_t *)(e->masks + (size_t)thread * e->mask_bytes));
}

int engine_keep_threads(struct engine *e, const uint8_t *masks, size_t bytes)
{
	e->masks = malloc(bytes * (size_t)e->threads);
	if (!e->masks)
		return 0;
	e->mask_bytes = bytes;
	memcpy(e->masks, masks, bytes * (size_t)e->threads);
	pool_run(e->pool, keep_thread, e);
	return 1;
}

// Runs walk on all threads; the caller is a thread of the program that may run anywhere before and after.
static void run_walk(struct engine *e)
{
	uint8_t anywhere[1024]; // as many processors as Linux can be built for
	const bool keep = e->masks && sched_getaffinity(0, sizeof anywhere, (cpu_set_t *)anywhere) == 0 &&
	                  sched_setaffinity(0, e->mask_bytes, (const cpu_set_t *)e->masks) == 0;
	pool_run(e->pool, walk, e);
	if (keep)
		sched_setaffinity(0, sizeof anywhere, (const cpu_set_t *)anywhere);
}

struct engine *engine_open(const char *path, int threads)
{
	const struct kernels *kernels = NULL;
	for (int k = 0; k < N_PATHS; k++)
		if (strcmp(paths[k].name, path) == 0 && usable(path))
			kernels = paths[k].kernels;
	if (!kernels)
		return NULL;
	struct engine *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	fault_install();
#if defined(__x86_64__)
	engine_fetch_near = __builtin_cpu_is("amd");
#endif
	e->kernels = kernels;
	e->threads = threads;
	e->progress = aligned_alloc(LINE, sizeof *e->progress * (size_t)threads);
	e->own = aligned_alloc(LINE, sizeof *e->own * OWN_FLOATS * (size_t)threads);
	e->pool = e->progress && e->own ? pool_open(threads) : NULL;
	if (!e->pool) {
		engine_close(e);
		return NULL;
	}
	for (int thread = 0; thread < threads; thread++) {
		atomic_init(&e->progress[thread].next, 0);
		atomic_init(&e->progress[thread].at, 0);
	}
	return e;
}

int engine_run(struct engine *e, const struct program *p, struct scratch s, int32_t rows, const int32_t *tokens,
               const int32_t *pos, const int32_t *seq, const int32_t *last, int32_t outs, const int32_t *out,
               int32_t sequences, const int32_t *tables, const int32_t *table_at, const int32_t *states,
               const int32_t *coordinates)
{
	struct batch batch = {rows, outs, tokens, pos, seq, last, out, sequences, tables, table_at, states, coordinates};
	e->run = (struct run){p, &batch, s};
	atomic_store(&e->phase, 0);
	atomic_store(&e->lost, 0);
	fault_watch(&e->lost);
	advance(e, 0);
	fault_unwatch();
	if (atomic_load(&e->phase) < p->n_phases)
		run_walk(e);
	return !atomic_load(&e->lost);
}

int engine_helped(const struct engine *e) { return atomic_load(&e->helped); }

struct packing {
	const struct kernels *kernels;
	int type, outs, cols;
	const uint8_t *w;
	uint8_t *panels;
	atomic_int next, lost;
};

static void pack_panels_of_thread(void *arg, int thread)
{
	struct packing *p = arg;
	fault_watch(&p->lost);
	const struct format format = format_of(p->type);
	const struct weight_kernels *kernels = &p->kernels->weights[p->type];
	const int groups = p->cols / format.values;
	const size_t stride = (size_t)groups * (size_t)format.bytes, bytes = panel_bytes(p->type, p->cols);
	if (!kernels->pack) { // not packed: an aligned copy
		if (thread == 0)
			memcpy(p->panels, p->w, (size_t)p->outs * stride);
		fault_unwatch();
		return;
	}
	for (;;) {
		int o = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed) * PANEL;
		if (o >= p->outs || atomic_load_explicit(&p->lost, memory_order_relaxed))
			break;
		int rows = p->outs - o < PANEL ? p->outs - o : PANEL;
		kernels->pack(p->w + (size_t)o * stride, stride, rows, groups, p->panels + (size_t)(o / PANEL) * bytes);
	}
	fault_unwatch();
}

int engine_pack(struct engine *e, int type, int outs, int cols, const uint8_t *w, uint8_t *panels)
{
	struct packing p = {e->kernels, type, outs, cols, w, panels, 0, 0};
	pool_run(e->pool, pack_panels_of_thread, &p);
	return !atomic_load(&p.lost);
}

struct reading {
	const struct engine *engine;
	const uint8_t *p;
	size_t bytes;
	atomic_uint_least64_t sum;
};

static void read_part(void *arg, int thread)
{
	struct reading *r = arg;
	size_t part = r->bytes / (size_t)r->engine->threads / LINE * LINE;
	atomic_fetch_add(&r->sum, r->engine->kernels->read(r->p + (size_t)thread * part, part));
}

void engine_read(struct engine *e, const uint8_t *p, size_t bytes)
{
	struct reading r = {e, p, bytes, 0};
	pool_run(e->pool, read_part, &r);
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	pool_close(e->pool);
	free(e->progress);
	free(e->own);
	free(e->masks);
	free(e);
}
