// Runs steps of a small model on every path with changing numbers of threads and
// rows, and checks that bits never change. Go's tests see results; this is for what a
// sanitizer sees. Run by hand, in this directory's parent:
//
//	gcc -std=c11 -D_GNU_SOURCE -O2 -g -fsanitize=address,undefined -I. -o /tmp/stress testdata/stress.c *.c -lm -lpthread && /tmp/stress
//	gcc -std=c11 -D_GNU_SOURCE -O2 -g -fsanitize=thread -I. -o /tmp/stress testdata/stress.c *.c -lm -lpthread && /tmp/stress
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	ROWS = 9,
	HEADS = 16,
	KV_HEADS = 2,
	DIM = 16,
	WIDTH = HEADS * DIM, // a super-block
	KV_WIDTH = KV_HEADS * DIM,
	OUTS = 77,
	LENGTH = 300, // more than one split of attention
	BLOCKS = LENGTH / BLOCK + 1,
	VOCAB = 50,
	TYPES = 5,
};

static uint32_t state = 1;

static uint32_t draw(void)
{
	state = state * 1664525 + 1013904223;
	return state >> 8;
}

static float *floats(int n)
{
	float *p = malloc(sizeof(float) * (size_t)n);
	for (int i = 0; i < n; i++)
		p[i] = (float)(draw() % 2001) / 1000 - 1;
	return p;
}

static void *lines(size_t bytes)
{
	void *p = NULL;
	if (posix_memalign(&p, LINE, bytes) != 0)
		abort();
	memset(p, 0, bytes);
	return p;
}

// Packs random weights, which in the file are exactly as long as they must be, and not
// aligned. Their scales are small, so that nothing overflows.
static uint8_t *packed(struct engine *e, int type, int outs, int cols)
{
	size_t bytes = (size_t)format_of(type).bytes, n = (size_t)outs * (size_t)(cols / format_of(type).values) * bytes;
	uint8_t *file = malloc(n);
	for (size_t i = 0; i < n; i++)
		file[i] = (uint8_t)draw();
	const uint8_t scale[4] = {0x66, 0x1c, 0x66, 0x1c}; // 0.0044
	for (uint8_t *w = file; w < file + n; w += bytes)
		memcpy(w + (type == TYPE_Q6_K ? 208 : 0), scale, type == TYPE_Q4_K || type == TYPE_Q5_K ? 4 : 2);
	uint8_t *panels = lines((size_t)(outs + PANEL - 1) / PANEL * panel_bytes(type, cols));
	if (!engine_pack(e, type, outs, cols, file, panels))
		abort();
	free(file);
	return panels;
}

static struct op ops[32];
static struct phase phases[32];
static struct program program = {ops, phases, 0};

static void add(int kind, struct op op)
{
	int k = program.n_phases++;
	ops[k] = op;
	phases[k] = (struct phase){kind, k, k + 1, 0, 0, 0};
	if (kind == PHASE_MATMUL) {
		ops[k].kind = OP_MATMUL;
		ops[k].chunk = PANEL;
		phases[k].items = (op.outs + PANEL - 1) / PANEL;
		phases[k].cost = 1 << 20;
	}
}

int main(void)
{
	float *x = lines(sizeof(float) * ROWS * WIDTH), *k = lines(sizeof(float) * ROWS * KV_WIDTH);
	float *v = lines(sizeof(float) * ROWS * KV_WIDTH), *q = lines(sizeof(float) * ROWS * WIDTH);
	float *att = lines(sizeof(float) * ROWS * WIDTH), *y = lines(sizeof(float) * TYPES * ROWS * OUTS);
	float *angles = lines(sizeof(float) * ROWS * DIM);
	uint8_t *kv = malloc((size_t)BLOCKS * 2 * KV_HEADS * BLOCK * DIM * 2);
	double freqs[DIM / 2];
	for (int i = 0; i < DIM / 2; i++)
		freqs[i] = 1.0 / (1 + i * i);
	const uint8_t *table = (uint8_t *)floats(VOCAB * WIDTH), *norm = (uint8_t *)floats(WIDTH);
	struct engine *packer = engine_open("portable", 3);
	const uint8_t *wq = packed(packer, TYPE_Q8_0, WIDTH, WIDTH), *wk = packed(packer, TYPE_Q4_0, KV_WIDTH, WIDTH);
	const uint8_t *wv = (uint8_t *)floats(KV_WIDTH * WIDTH);
	static const int types[] = {TYPE_F16, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_Q8_0};
	struct op cache = {.type = TYPE_F16, .kv = kv, .layers = 1, .kv_heads = KV_HEADS, .heads = HEADS, .head_dim = DIM, .scale = 0.25f};

	add(PHASE_ROWS, (struct op){.kind = OP_ANGLES, .scale = 1, .dims = DIM, .freqs = freqs, .angles = angles});
	add(PHASE_ROWS, (struct op){.kind = OP_EMBED, .type = TYPE_F32, .cols = WIDTH, .w = table, .w_stride = sizeof(float) * WIDTH, .y = x});
	add(PHASE_ROWS, (struct op){.kind = OP_RMS_NORM, .head_dim = WIDTH, .cols = WIDTH, .x = x, .y = x, .w = norm, .eps = 1e-5f});
	add(PHASE_ROWS, (struct op){.kind = OP_QUANTIZE, .cols = WIDTH, .x = x});
	add(PHASE_MATMUL, (struct op){.type = TYPE_Q8_0, .cols = WIDTH, .outs = WIDTH, .x = x, .y = q, .w = wq, .w_stride = panel_bytes(TYPE_Q8_0, WIDTH)});
	add(PHASE_MATMUL, (struct op){.type = TYPE_Q4_0, .cols = WIDTH, .outs = KV_WIDTH, .x = x, .y = k, .w = wk, .w_stride = panel_bytes(TYPE_Q4_0, WIDTH)});
	add(PHASE_MATMUL, (struct op){.type = TYPE_F32, .cols = WIDTH, .outs = KV_WIDTH, .x = x, .y = v, .w = wv, .w_stride = sizeof(float) * WIDTH});
	add(PHASE_ROWS, (struct op){.kind = OP_ROPE, .cols = WIDTH, .head_dim = DIM, .dims = DIM, .angles = angles, .y = q});
	cache.kind = OP_STORE_KV, cache.cols = KV_WIDTH, cache.x = k, cache.z = v;
	add(PHASE_ROWS, cache);
	cache.kind = OP_ATTENTION, cache.cols = WIDTH, cache.x = q, cache.y = att;
	add(PHASE_ATTENTION, cache);
	add(PHASE_ROWS, (struct op){.kind = OP_GLU, .cols = WIDTH, .x = att, .z = x, .y = att});
	add(PHASE_ROWS, (struct op){.kind = OP_QUANTIZE, .cols = WIDTH, .x = att});
	for (int i = 0; i < TYPES; i++)
		add(PHASE_MATMUL, (struct op){.type = types[i], .cols = WIDTH, .outs = OUTS, .x = att, .y = y + i * ROWS * OUTS,
		                              .w = packed(packer, types[i], OUTS, WIDTH), .w_stride = panel_bytes(types[i], WIDTH)});
	engine_close(packer);

	int32_t blocks[BLOCKS], table_at[1] = {0}, seq[ROWS] = {0};
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = BLOCKS - 1 - i;
	static const int threads[] = {1, 2, 3, 7, 16};
	const char *path;
	for (int i = 0; (path = engine_path(i)) != NULL; i++) {
		static float want[LENGTH][TYPES][OUTS];
		for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
			size_t stride = attention_floats(HEADS / KV_HEADS, DIM);
			struct scratch scratch = {lines(ROWS * quant_bytes(WIDTH)), lines(sizeof(float) * stride * (size_t)threads[t]), stride};
			struct engine *e = engine_open(path, threads[t]);
			if (!e)
				abort();
			for (int pos = 0, step = 0; pos < LENGTH; step++) {
				int rows = 1 + (int)draw() % ROWS;
				rows = rows < LENGTH - pos ? rows : LENGTH - pos;
				int32_t tokens[ROWS], at[ROWS];
				for (int r = 0; r < rows; r++) {
					at[r] = pos + r;
					tokens[r] = (pos + r) * 7 % VOCAB;
				}
				engine_run(e, &program, scratch, rows, tokens, at, seq, 0, NULL, blocks, table_at);
				for (int i = 0; i < TYPES; i++)
					for (int r = 0; r < rows; r++) {
						float *expected = want[pos + r][i], *got = y + (i * ROWS + r) * OUTS;
						if (t == 0)
							memcpy(expected, got, sizeof(float) * OUTS);
						else if (memcmp(expected, got, sizeof(float) * OUTS) != 0) {
							printf("%s, %d threads, position %d, type %d: other bits\n", path, threads[t], pos + r, types[i]);
							return 1;
						}
					}
				pos += rows;
				if (step % 8 == 0) // long enough for the workers to sleep
					nanosleep(&(struct timespec){0, 300000}, NULL);
			}
			engine_close(e);
			free(scratch.quant);
			free(scratch.attention);
		}
		printf("%s: same bits\n", path);
	}
	return 0;
}
