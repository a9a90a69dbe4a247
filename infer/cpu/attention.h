// Attention of rows over their own sequences, for the query heads that share a
// kv head: score[j] = scale · q·k[j], or cap · tanh(scale · q·k[j] / cap), minus slope · |position - j| with ALiBi, y = Σ softmax(score)[j] · v[j].
//
// Positions are processed in splits of SPLIT positions, each aligned to a multiple of SPLIT. A split
// has its own maximum m, weight l = Σ e^(score-m) and sum Σ e^(score-m) · v, accumulated in ascending
// order of position. Splits are merged in ascending order. So the result of a row depends on its
// position and reach, but not on the rest of the batch.
//
// Rows that attend to the same positions, such as the patches of a picture, are computed together: their heads are as many
// heads that share a kv head, so that each key and value is loaded once for several of them.
//
// The values of a quantised cache are those that its codes stand for: results have the bits of a cache of F32 with these values.
//
// e^x is 0 below x = LEAST instead of a denormal number: processors take a hundred cycles for a
// product with one.

enum {
	HEAD_TILE = 4, // query heads that share a load of V
	LEAST = -80,   // e^LEAST is the smallest weight
};

// e^x for a score x below the largest, or 0.
INLINE vf vf_weight(vf x)
{
	const vf least = vf_set(LEAST);
	return vf_unless_below(vf_exp(vf_max(least, x)), x, least);
}

// Adds Σ p[h][j] · v[j] over n positions j to the vectors of y[h] that begin at value d. heads and
// vectors are constants; with a single vector, only lanes lanes are computed. p: (heads, SPLIT), y:
// (heads, dim) from value d on, v: (n) rows of stride bytes, of which the first dim values are used. Returns the end of what was
// prefetched from ahead on.
INLINE const uint8_t *weigh_tile(const int type, const int heads, const int vectors, int lanes, const float *p, const uint8_t *v,
                                 size_t stride, int n, int dim, int d, float *y, const uint8_t *ahead)
{
	const int bytes = vectors * LANES * cache_block_bytes(type) / BLOCK; // of the values of a row
	vf acc[HEAD_TILE][WIDE], a[WIDE];
	UNROLL for (int h = 0; h < heads; h++)
		UNROLL for (int k = 0; k < vectors; k++)
			acc[h][k] = get(y + h * dim + k * LANES, lanes);
	for (int j = 0; j < n; j++, v += stride) {
		if (ahead) {
			fetch_ahead(ahead, bytes);
			ahead += bytes;
		}
		UNROLL for (int k = 0; k < vectors; k++)
			a[k] = lanes < LANES ? load_weight_n(type, v, d, lanes) : load_weight(type, v, d + k * LANES);
		UNROLL for (int h = 0; h < heads; h++) {
			vf w = vf_set(p[h * SPLIT + j]);
			UNROLL for (int k = 0; k < vectors; k++)
				acc[h][k] = vf_fma(w, a[k], acc[h][k]);
		}
	}
	UNROLL for (int h = 0; h < heads; h++)
		UNROLL for (int k = 0; k < vectors; k++)
			put(y + h * dim + k * LANES, lanes, acc[h][k]);
	return ahead;
}

INLINE void weigh_heads(const int type, const int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim,
                        float *y, const uint8_t *ahead)
{
	int d = 0;
	for (; d + WIDE * LANES <= dim; d += WIDE * LANES)
		ahead = weigh_tile(type, heads, WIDE, LANES, p, v, stride, n, dim, d, y + d, ahead);
	for (; d + LANES <= dim; d += LANES)
		ahead = weigh_tile(type, heads, 1, LANES, p, v, stride, n, dim, d, y + d, ahead);
	if (d < dim)
		weigh_tile(type, heads, 1, dim - d, p, v, stride, n, dim, d, y + d, ahead);
}

// Adds Σ p[h][j] · v[j] over the n positions j of a block to y[h], while it prefetches as many bytes at
// ahead.
INLINE void weigh(const int type, int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y,
                  const uint8_t *ahead)
{
	for (; heads >= HEAD_TILE; heads -= HEAD_TILE, p += HEAD_TILE * SPLIT, y += HEAD_TILE * dim, ahead = NULL)
		weigh_heads(type, HEAD_TILE, p, v, stride, n, dim, y, ahead);
	switch (heads) {
	case 3:
		weigh_heads(type, 3, p, v, stride, n, dim, y, ahead);
		break;
	case 2:
		weigh_heads(type, 2, p, v, stride, n, dim, y, ahead);
		break;
	case 1:
		weigh_heads(type, 1, p, v, stride, n, dim, y, ahead);
	}
}

typedef void weigh_function(int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y, const uint8_t *ahead);

static void weigh_f32(int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y, const uint8_t *ahead)
{
	weigh(TYPE_F32, heads, p, v, stride, n, dim, y, ahead);
}

static void weigh_f16(int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y, const uint8_t *ahead)
{
	weigh(TYPE_F16, heads, p, v, stride, n, dim, y, ahead);
}

static void weigh_q8_0(int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y, const uint8_t *ahead)
{
	weigh(TYPE_Q8_0, heads, p, v, stride, n, dim, y, ahead);
}

static void weigh_q4_0(int heads, const float *p, const uint8_t *v, size_t stride, int n, int dim, float *y, const uint8_t *ahead)
{
	weigh(TYPE_Q4_0, heads, p, v, stride, n, dim, y, ahead);
}

// Returns weigh for a type of the cache.
static weigh_function *weigh_of(int type)
{
	switch (type) {
	case TYPE_F16:
		return weigh_f16;
	case TYPE_Q8_0:
		return weigh_q8_0;
	case TYPE_Q4_0:
		return weigh_q4_0;
	}
	return weigh_f32;
}

// The slope of a head with ALiBi: see device.Attention.Slope.
static float slope_of(const struct op *op, int head)
{
	int n = 1;
	while (2 * n <= op->heads)
		n *= 2;
	return head < n ? exp2f(-op->max_bias / (float)n * (float)(head + 1)) : exp2f(-op->max_bias / (float)(2 * n) * (float)(2 * (head - n) + 1));
}

// score[j] -= slope · |distance|, where distance - j is that of the row's position to the position of score[j]. score: (n)
static void add_biases(float *score, int n, float slope, int distance)
{
	for (int j = 0; j < n; j++)
		score[j] -= slope * (float)(distance < j ? j - distance : distance - j);
}

// Replaces the products q·k first … last-1 of one head by weights e^(score - m), where m is the
// largest score; l is the sum of the weights. Other lanes of the same vectors become 0. With ALiBi, slope is not 0 and distance is that
// from the first position of the split to the row's. p: (SPLIT)
static void soften(float *p, int first, int last, float scale, float cap, float slope, int distance, float *m, float *l)
{
	int begin = first / LANES * LANES, end = (last + LANES - 1) / LANES * LANES;
	scale_row(p + begin, end - begin, scale, cap);
	if (slope > 0)
		add_biases(p + first, last - first, slope, distance - first);
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

// What a row's attention reads of the cache for one kv head.
struct attended {
	const struct op *op;
	const int32_t *table;
	int kv_head, pos, low, high; // pos: the row's own; it attends to low … high
};

enum {
	SPLIT_BLOCKS = SPLIT / BLOCK,
	FETCHED = 2, // how many pieces are prefetched ahead of the one that is read
};

// The head's pieces of the blocks of a split, in the order in which they are read: keys, values, and
// FETCHED pieces that are read next.
struct pieces {
	const uint8_t *at[2 * SPLIT_BLOCKS + FETCHED];
	int values; // index of the first piece of values
};

static struct pieces pieces_of(const struct attended *a, int block, int blocks)
{
	const struct op *op = a->op;
	struct pieces p;
	int n = 0;
	for (int b = 0; b < blocks; b++)
		p.at[n++] = cache_at(op, a->table[block + b], 0, a->kv_head);
	p.values = op->parts_kv > 1 ? n : 0;
	for (int b = 0; b < blocks && op->parts_kv > 1; b++)
		p.at[n++] = cache_at(op, a->table[block + b], 1, a->kv_head);
	for (int b = 0; b < FETCHED; b++, n++)
		p.at[n] = (block + blocks + b) * BLOCK <= a->high ? cache_at(op, a->table[block + blocks + b], 0, a->kv_head) : p.at[n - 1];
	return p;
}

// Computes the partial result of the split that begins at position split. q: (group, head_dim), p:
// scratch (group, SPLIT)
static void attend_split(const struct attended *a, const float *q, int group, int split, float *p, struct partial part)
{
	const struct op *op = a->op;
	const int dim = op->head_dim, values = op->value_dim, value_type = op->parts_kv > 1 ? op->value_type : op->type;
	const size_t key_stride = cache_row_bytes(op->type, dim), value_stride = cache_row_bytes(value_type, dim);
	const int first = a->low > split ? a->low - split : 0, last = a->high + 1 - split < SPLIT ? a->high + 1 - split : SPLIT;
	const int begin = first / BLOCK, blocks = (last - 1) / BLOCK + 1 - begin;
	const struct pieces pieces = pieces_of(a, split / BLOCK + begin, blocks);

	dot_function *const dot = dot_of(op->type);
	for (int b = 0, j = first; b < blocks; b++) {
		const int end = (begin + b + 1) * BLOCK < last ? (begin + b + 1) * BLOCK : last;
		dot(q, dim, group, pieces.at[b] + (size_t)(j % BLOCK) * key_stride, key_stride, end - j, dim, p + j, SPLIT, pieces.at[b + FETCHED]);
		j = end;
	}
	for (int h = 0; h < group; h++)
		soften(p + h * SPLIT, first, last, op->scale, op->cap, op->max_bias > 0 ? slope_of(op, a->kv_head * group + h) : 0, a->pos - split,
		       part.max + h, part.weight + h);
	memset(part.sum, 0, sizeof(float) * (size_t)(group * values));
	weigh_function *const add = weigh_of(value_type);
	for (int b = 0, j = first; b < blocks; b++) {
		const int end = (begin + b + 1) * BLOCK < last ? (begin + b + 1) * BLOCK : last;
		const uint8_t *const *at = pieces.at + pieces.values + b;
		add(group, p + j, at[0] + (size_t)(j % BLOCK) * value_stride, value_stride, end - j, values, part.sum, at[FETCHED]);
		j = end;
	}
}

// Returns what a row reads.
static struct attended attended_by(const struct run *r, const struct op *op, int row, int kv_head)
{
	const int pos = r->batch->pos[row], end = r->batch->last[row];
	return (struct attended){
		.op = op, .table = table_of(r->batch, op, row), .kv_head = kv_head, .pos = pos,
		.low = pos > op->before ? pos - op->before : 0,
		.high = end - pos > op->after ? pos + op->after : end,
	};
}

// Computes rows that attend to the positions of a. y: rows of (heads that share the kv head, value_dim), stride floats apart; mem: see
// attention_floats
static void attend_rows(const struct attended *a, int row, int rows, float *y, size_t stride, float *mem)
{
	const struct op *op = a->op;
	const int dim = op->head_dim, values = op->value_dim, shared = op->heads / op->kv_heads, group = rows * shared;
	float *p = mem;
	struct partial part = partials(p + group * SPLIT, group, values);
	struct partial all = partials(part.weight + group, group, values);
	for (int h = 0; h < group; h++) {
		all.max[h] = -INFINITY;
		all.weight[h] = 0;
	}
	memset(all.sum, 0, sizeof(float) * (size_t)(group * values));

	const float *q = op->x + ((size_t)row * op->heads + (size_t)a->kv_head * shared) * dim;
	float *own = all.weight + group;
	if (rows > 1) {
		for (int i = 0; i < rows; i++)
			memcpy(own + (size_t)i * shared * dim, q + (size_t)i * op->heads * dim, sizeof *own * (size_t)(shared * dim));
		q = own;
	}
	if (op->rotates) {
		for (int i = 0; i < group * dim; i += BLOCK) {
			rotate_block(q + i, own + i);
			for (int k = i; k < i + BLOCK; k++)
				own[k] *= 1.0f / BLOCK;
		}
		q = own;
	}

	for (int split = a->low / SPLIT * SPLIT; split <= a->high; split += SPLIT) {
		attend_split(a, q, group, split, p, part);
		for (int h = 0; h < group; h++)
			merge((struct partial){all.sum + h * values, all.max + h, all.weight + h},
			      (struct partial){part.sum + h * values, part.max + h, part.weight + h}, values);
	}
	for (int h = 0; op->sinks && h < group; h++) {
		float sink = op->sinks[a->kv_head * shared + h % shared], one = 1;
		memset(part.sum, 0, sizeof(float) * (size_t)values);
		merge((struct partial){all.sum + h * values, all.max + h, all.weight + h}, (struct partial){part.sum, &sink, &one}, values);
	}

	for (int h = 0; h < group; h++)
		for (int d = 0; d < values; d += LANES) {
			vf result = vf_div(get(all.sum + h * values + d, values - d), vf_set(all.weight[h]));
			put(y + (size_t)(h / shared) * stride + h % shared * values + d, values - d, result);
		}
}

// y: rows of (heads that share the kv head, value_dim), stride floats apart; mem: see attention_floats
static void run_attention(const struct run *r, const struct op *op, int row, int rows, int kv_head, float *y, size_t stride, float *mem)
{
	for (const int end = row + rows; row < end; row += rows, y += (size_t)rows * stride) {
		const struct attended a = attended_by(r, op, row, kv_head);
		for (rows = 1; row + rows < end && op->max_bias == 0; rows++) { // biases depend on the position of a row
			const struct attended next = attended_by(r, op, row + rows, kv_head);
			if (next.table != a.table || next.low != a.low || next.high != a.high)
				break;
		}
		attend_rows(&a, row, rows, y, stride, mem);
	}
}
