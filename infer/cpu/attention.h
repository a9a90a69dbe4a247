// Attention of one row over its own sequence, for the query heads that share a
// kv head: score[j] = scale · q·k[j], or cap · tanh(scale · q·k[j] / cap), y = Σ softmax(score)[j] · v[j].
//
// Positions are processed in splits of SPLIT positions, each aligned to a multiple of SPLIT. A split
// has its own maximum m, weight l = Σ e^(score-m) and sum Σ e^(score-m) · v, accumulated in ascending
// order of position. Splits are merged in ascending order. So the result of a row depends on its
// position and reach, but not on the rest of the batch.
//
// e^x is 0 below x = LEAST instead of a denormal number: processors take a hundred cycles for a
// product with one.

enum {
	HEAD_TILE = 4, // query heads that share a load of V
	WIDE = 2,      // vectors of V that share a load of the weights
	LEAST = -80,   // e^LEAST is the smallest weight
};

// e^x for a score x below the largest, or 0.
INLINE vf vf_weight(vf x)
{
	const vf least = vf_set(LEAST);
	return vf_unless_below(vf_exp(vf_max(least, x)), x, least);
}

// Computes the vectors of y[h] = Σ p[h][j] · v[j] that begin at value d, over positions j = first …
// last-1 of the split. heads and vectors are constants; with a single vector, only lanes lanes are
// computed. p: (heads, SPLIT), y: (heads, dim), v: the blocks of the split, each (BLOCK, stride), of
// which the first dim values are used.
INLINE void weigh_tile(const int type, const int heads, const int vectors, int lanes, const float *p,
                       const uint8_t *const *v, int stride, int first, int last, int dim, int d, float *y)
{
	const size_t size = type == TYPE_F16 ? 2 : 4;
	vf acc[HEAD_TILE][WIDE], a[WIDE];
	UNROLL for (int h = 0; h < heads; h++)
		UNROLL for (int k = 0; k < vectors; k++)
			acc[h][k] = vf_zero();
	for (int j = first; j < last;) {
		int end = j / BLOCK * BLOCK + BLOCK < last ? j / BLOCK * BLOCK + BLOCK : last;
		const uint8_t *at = v[j / BLOCK] + ((size_t)(j % BLOCK) * stride + d) * size;
		for (; j < end; j++, at += stride * size) {
			UNROLL for (int k = 0; k < vectors; k++)
				a[k] = lanes < LANES ? load_weight_n(type, at, 0, lanes) : load_weight(type, at, k * LANES);
			UNROLL for (int h = 0; h < heads; h++) {
				vf w = vf_set(p[h * SPLIT + j]);
				UNROLL for (int k = 0; k < vectors; k++)
					acc[h][k] = vf_fma(w, a[k], acc[h][k]);
			}
		}
	}
	UNROLL for (int h = 0; h < heads; h++)
		UNROLL for (int k = 0; k < vectors; k++)
			put(y + h * dim + d + k * LANES, lanes, acc[h][k]);
}

INLINE void weigh_heads(const int type, const int heads, const float *p, const uint8_t *const *v, int stride,
                        int first, int last, int dim, float *y)
{
	int d = 0;
	for (; d + WIDE * LANES <= dim; d += WIDE * LANES)
		weigh_tile(type, heads, WIDE, LANES, p, v, stride, first, last, dim, d, y);
	for (; d + LANES <= dim; d += LANES)
		weigh_tile(type, heads, 1, LANES, p, v, stride, first, last, dim, d, y);
	if (d < dim)
		weigh_tile(type, heads, 1, dim - d, p, v, stride, first, last, dim, d, y);
}

INLINE void weigh(const int type, int heads, const float *p, const uint8_t *const *v, int stride, int first, int last,
                  int dim, float *y)
{
	for (; heads >= HEAD_TILE; heads -= HEAD_TILE, p += HEAD_TILE * SPLIT, y += HEAD_TILE * dim)
		weigh_heads(type, HEAD_TILE, p, v, stride, first, last, dim, y);
	for (; heads > 0; heads--, p += SPLIT, y += dim)
		weigh_heads(type, 1, p, v, stride, first, last, dim, y);
}

// Replaces the products q·k first … last-1 of one head by weights e^(score - m), where m is the
// largest score; l is the sum of the weights. Other lanes of the same vectors become 0. p: (SPLIT)
static void soften(float *p, int first, int last, float scale, float cap, float *m, float *l)
{
	int begin = first / LANES * LANES, end = (last + LANES - 1) / LANES * LANES;
	scale_row(p + begin, end - begin, scale, cap);
	for (int j = begin; j < first; j++)
		p[j] = -INFINITY;
	for (int j = last; j < end; j++)
		p[j] = -INFINITY;

	vf max = vf_set(-INFINITY);
	for (int j = begin; j < end; j += LANES)
		max = vf_max(vf_load(p + j), max);
	*m = vf_maximum(max);

	vf sum = vf_zero();
	for (int j = begin; j < end; j += LANES) {
		vf e = vf_weight(vf_sub(vf_load(p + j), vf_set(*m)));
		vf_store(p + j, e);
		sum = vf_add(sum, e);
	}
	*l = vf_sum(sum);
}

// Partial results of heads over some positions: Σ e^(score-max) · v and Σ e^(score-max).
struct partial {
	float *sum; // (heads, dim)
	float *max, *weight; // (heads)
};

// Returns partial results of group heads, stored at mem.
INLINE struct partial partials(float *mem, int group, int dim)
{
	return (struct partial){mem, mem + group * dim, mem + group * dim + group};
}

// Adds the partial result b of one head to a, after scaling both to their common maximum. If a is
// empty, with maximum -∞, this copies b.
static void merge(struct partial a, struct partial b, int dim)
{
	float max = *a.max > *b.max ? *a.max : *b.max;
	vf of_a = vf_weight(vf_set(*a.max - max)), of_b = vf_weight(vf_set(*b.max - max));
	for (int d = 0; d < dim; d += LANES)
		put(a.sum + d, dim - d, vf_fma(get(b.sum + d, dim - d), of_b, vf_mul(get(a.sum + d, dim - d), of_a)));
	float scale_a[LANES], scale_b[LANES];
	vf_store(scale_a, of_a);
	vf_store(scale_b, of_b);
	*a.weight = *a.weight * scale_a[0] + *b.weight * scale_b[0];
	*a.max = max;
}

// Prefetches a head's part of a block.
INLINE void fetch_block(const uint8_t *p, size_t bytes)
{
	for (size_t k = 0; k < bytes; k += LINE)
		__builtin_prefetch(p + k, 0, 2);
}

// mem: see attention_floats
static void run_attention(const struct run *r, const struct op *op, int row, int kv_head, float *mem)
{
	const int dim = op->head_dim, values = op->value_dim, group = op->heads / op->kv_heads;
	const size_t stride = (size_t)dim * (op->type == TYPE_F16 ? 2 : 4);
	float *p = mem;
	struct partial part = partials(p + group * SPLIT, group, values);
	struct partial all = partials(part.weight + group, group, values);
	for (int h = 0; h < group; h++) {
		all.max[h] = -INFINITY;
		all.weight[h] = 0;
	}
	memset(all.sum, 0, sizeof(float) * (size_t)(group * values));

	const float *q = op->x + ((size_t)row * op->heads + (size_t)kv_head * group) * dim;
	float *y = op->y + (size_t)row * op->cols + (size_t)kv_head * group * values;
	const int pos = r->batch->pos[row], end = r->batch->last[row];
	const int32_t *table = table_of(r->batch, op, row);
	const int low = pos > op->before ? pos - op->before : 0, high = end - pos > op->after ? pos + op->after : end;

	for (int split = low / SPLIT * SPLIT; split <= high; split += SPLIT) {
		int first = low > split ? low - split : 0;
		int last = high + 1 - split < SPLIT ? high + 1 - split : SPLIT;
		const uint8_t *v[SPLIT / BLOCK];
		for (int b = first / BLOCK; b * BLOCK < last; b++) {
			int32_t block = table[split / BLOCK + b];
			int j0 = b * BLOCK > first ? b * BLOCK : first;
			int j1 = b * BLOCK + BLOCK < last ? b * BLOCK + BLOCK : last;
			const uint8_t *k = cache_at(op, block, 0, kv_head) + (size_t)(j0 % BLOCK) * stride;
			v[b] = cache_at(op, block, op->parts_kv - 1, kv_head);
			if (split + b * BLOCK + BLOCK <= high) // the next block is elsewhere in memory
				fetch_block(cache_at(op, table[split / BLOCK + b + 1], 0, kv_head), BLOCK * stride);
			if (op->parts_kv > 1)
				fetch_block(v[b], BLOCK * stride);
			if (op->type == TYPE_F16)
				dot_f16(q, dim, group, k, stride, j1 - j0, dim, p + j0, SPLIT);
			else
				dot_f32(q, dim, group, k, stride, j1 - j0, dim, p + j0, SPLIT);
		}
		for (int h = 0; h < group; h++)
			soften(p + h * SPLIT, first, last, op->scale, op->cap, part.max + h, part.weight + h);
		if (op->type == TYPE_F16)
			weigh(TYPE_F16, group, p, v, dim, first, last, values, part.sum);
		else
			weigh(TYPE_F32, group, p, v, dim, first, last, values, part.sum);
		for (int h = 0; h < group; h++)
			merge((struct partial){all.sum + h * values, all.max + h, all.weight + h},
			      (struct partial){part.sum + h * values, part.max + h, part.weight + h}, values);
	}
	for (int h = 0; op->sinks && h < group; h++) {
		float sink = op->sinks[kv_head * group + h], one = 1;
		memset(part.sum, 0, sizeof(float) * (size_t)values);
		merge((struct partial){all.sum + h * values, all.max + h, all.weight + h}, (struct partial){part.sum, &sink, &one}, values);
	}

	for (int h = 0; h < group; h++)
		for (int d = 0; d < values; d += LANES) {
			vf a = vf_div(get(all.sum + h * values + d, values - d), vf_set(all.weight[h]));
			put(y + h * values + d, values - d, a);
		}
}
