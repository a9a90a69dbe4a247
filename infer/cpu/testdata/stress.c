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
	HEADS = 6,
	KV_HEADS = 2,
	DIM = 16,
	WIDTH = HEADS * DIM, // three blocks: AVX-512 takes two and then one
	KV_WIDTH = KV_HEADS * DIM,
	OUTS = 77,
	LENGTH = 300, // more than one split of attention
	BLOCKS = LENGTH / BLOCK + 1,
	VOCAB = 50,
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

// Weights are exactly as long as they must be, and not aligned.
static uint8_t *quantised(int outs, int cols, size_t bytes)
{
	size_t n = (size_t)outs * (cols / BLOCK) * bytes;
	uint8_t *p = malloc(n);
	for (size_t i = 0; i < n; i++)
		p[i] = i % bytes == 0 ? 0x66 : i % bytes == 1 ? 0x1c : (uint8_t)draw(); // scale 0.0044
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
		ops[k].chunk = 8;
		phases[k].items = (op.outs + 7) / 8;
		phases[k].cost = 1 << 20;
	}
}

int main(void)
{
	float *x = lines(sizeof(float) * ROWS * WIDTH), *k = lines(sizeof(float) * ROWS * KV_WIDTH);
	float *v = lines(sizeof(float) * ROWS * KV_WIDTH), *q = lines(sizeof(float) * ROWS * WIDTH);
	float *att = lines(sizeof(float) * ROWS * WIDTH), *y = lines(sizeof(float) * ROWS * OUTS);
	float *angles = lines(sizeof(float) * ROWS * DIM);
	uint8_t *kv = malloc((size_t)BLOCKS * 2 * KV_HEADS * BLOCK * DIM * 2);
	double freqs[DIM / 2];
	for (int i = 0; i < DIM / 2; i++)
		freqs[i] = 1.0 / (1 + i * i);
	const uint8_t *table = (uint8_t *)floats(VOCAB * WIDTH), *norm = (uint8_t *)floats(WIDTH);
	const uint8_t *wq = quantised(WIDTH, WIDTH, Q8_BYTES), *wk = quantised(KV_WIDTH, WIDTH, Q4_BYTES);
	const uint8_t *wv = (uint8_t *)floats(KV_WIDTH * WIDTH), *wy = quantised(OUTS, WIDTH, Q8_BYTES);
	size_t f32 = sizeof(float) * WIDTH, q8 = WIDTH / BLOCK * Q8_BYTES, q4 = WIDTH / BLOCK * Q4_BYTES;
	struct op cache = {.type = TYPE_F16, .kv = kv, .layers = 1, .kv_heads = KV_HEADS, .heads = HEADS, .head_dim = DIM, .scale = 0.25f};

	add(PHASE_ROWS, (struct op){.kind = OP_ANGLES, .dims = DIM, .freqs = freqs, .angles = angles});
	add(PHASE_ROWS, (struct op){.kind = OP_EMBED, .type = TYPE_F32, .cols = WIDTH, .w = table, .w_stride = f32, .y = x});
	add(PHASE_ROWS, (struct op){.kind = OP_RMS_NORM, .cols = WIDTH, .x = x, .y = x, .w = norm, .eps = 1e-5f});
	add(PHASE_ROWS, (struct op){.kind = OP_QUANTIZE, .cols = WIDTH, .x = x});
	add(PHASE_MATMUL, (struct op){.type = TYPE_Q8_0, .cols = WIDTH, .outs = WIDTH, .x = x, .y = q, .w = wq, .w_stride = q8});
	add(PHASE_MATMUL, (struct op){.type = TYPE_Q4_0, .cols = WIDTH, .outs = KV_WIDTH, .x = x, .y = k, .w = wk, .w_stride = q4});
	add(PHASE_MATMUL, (struct op){.type = TYPE_F32, .cols = WIDTH, .outs = KV_WIDTH, .x = x, .y = v, .w = wv, .w_stride = f32});
	add(PHASE_ROWS, (struct op){.kind = OP_ROPE, .cols = WIDTH, .head_dim = DIM, .dims = DIM, .angles = angles, .y = q});
	cache.kind = OP_STORE_KV, cache.cols = KV_WIDTH, cache.x = k, cache.z = v;
	add(PHASE_ROWS, cache);
	cache.kind = OP_ATTENTION, cache.cols = WIDTH, cache.x = q, cache.y = att;
	add(PHASE_ATTENTION, cache);
	add(PHASE_ROWS, (struct op){.kind = OP_SWIGLU, .cols = WIDTH, .x = att, .z = x, .y = att});
	add(PHASE_ROWS, (struct op){.kind = OP_QUANTIZE, .cols = WIDTH, .x = att});
	add(PHASE_MATMUL, (struct op){.type = TYPE_Q8_0, .cols = WIDTH, .outs = OUTS, .x = att, .y = y, .w = wy, .w_stride = q8});

	int32_t blocks[BLOCKS], table_at[1] = {0}, seq[ROWS] = {0};
	for (int i = 0; i < BLOCKS; i++)
		blocks[i] = BLOCKS - 1 - i;
	static const int threads[] = {1, 2, 3, 7, 16};
	const char *path;
	for (int i = 0; (path = engine_path(i)) != NULL; i++) {
		static float want[LENGTH][OUTS];
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
				for (int r = 0; r < rows; r++) {
					if (t == 0)
						memcpy(want[pos + r], y + r * OUTS, sizeof want[0]);
					else if (memcmp(want[pos + r], y + r * OUTS, sizeof want[0]) != 0) {
						printf("%s, %d threads, position %d: other bits\n", path, threads[t], pos + r);
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
