// Operations with recurrent state. A thread computes some columns for all rows of the batch, in their
// order, so that the state of a column is read and written by one thread. Each column is accumulated
// by itself: results do not depend on the width of vectors.

// The values of op's state for a row's sequence, from op->state_at on.
INLINE float *state_of(const struct run *r, const struct op *op, int row)
{
	return op->state + (size_t)r->batch->states[r->batch->seq[row]] * op->state_values + op->state_at;
}

// Computes columns part · CONV_PART … of a convolution for rows rows. The state holds the inputs of the
// positions before, (before, cols), oldest first.
static void run_conv(const struct run *r, const struct op *op, int part, int rows)
{
	const int cols = op->cols, before = op->outs - 1, first = part * CONV_PART;
	const int n = cols - first < CONV_PART ? cols - first : CONV_PART;
	float w[MAX_KERNEL][CONV_PART] = {{0}};
	for (int c = 0; c < n; c++)
		for (int i = 0; i <= before; i++)
			memcpy(&w[i][c], op->w + (size_t)(first + c) * op->w_stride + sizeof(float) * (size_t)i, sizeof(float));
	for (int row = 0; row < rows; row++) {
		const float *x = op->x + (size_t)row * cols + first;
		float *y = op->y + (size_t)row * cols + first, *inputs = state_of(r, op, row) + first;
		for (int i = 0; r->batch->pos[row] == 0 && i < before; i++)
			memset(inputs + (size_t)i * cols, 0, sizeof(float) * (size_t)n);
		for (int c = 0; c < n; c += LANES) {
			vf sum = op->bias ? get(op->bias + first + c, n - c) : vf_zero();
			for (int i = 0; i < before; i++)
				sum = vf_fma(vf_load(&w[i][c]), get(inputs + (size_t)i * cols + c, n - c), sum);
			sum = vf_fma(vf_load(&w[before][c]), get(x + c, n - c), sum);
			put(y + c, n - c, op->silu ? vf_gated(sum, sum) : sum);
		}
		for (int i = 0; i < before; i++)
			memcpy(inputs + (size_t)i * cols, i + 1 < before ? inputs + (size_t)(i + 1) * cols : x, sizeof(float) * (size_t)n);
	}
}

enum { SCAN_VECTORS = SCAN_PART / LANES };

// One step of n columns of a head, at most SCAN_PART: see device.Scan. state: (keys, n); q, k: (keys);
// decay: (keys), or one value at a stride of 0; v, y: (n). ahead: state that is read next, prefetched with that; its
// address may be invalid
INLINE void scan_step(const int n, const bool delta, int keys, float *state, const float *q, const float *k, const float *decay,
                      size_t decay_stride, const float *v, float step, float skip, float *y, const float *ahead)
{
	vf e[SCAN_VECTORS], sum[SCAN_VECTORS];
	UNROLL for (int j = 0; j < SCAN_VECTORS; j++) {
		e[j] = j * LANES < n ? get(v + j * LANES, n - j * LANES) : vf_zero();
		sum[j] = vf_zero();
	}
	for (int i = 0; delta && i < keys; i++) {
		fetch_ahead((const uint8_t *)(ahead + i * n), SCAN_PART * (int)sizeof *ahead);
		const vf g = vf_set(decay[(size_t)i * decay_stride]), key = vf_set(k[i]);
		UNROLL for (int j = 0; j < SCAN_VECTORS; j++)
			if (j * LANES < n)
				sum[j] = vf_fma(vf_mul(g, get(state + i * n + j * LANES, n - j * LANES)), key, sum[j]);
	}
	UNROLL for (int j = 0; j < SCAN_VECTORS; j++) {
		e[j] = vf_mul(vf_sub(e[j], sum[j]), vf_set(step));
		sum[j] = vf_zero();
	}
	for (int i = 0; i < keys; i++) {
		if (!delta)
			fetch_ahead((const uint8_t *)(ahead + i * n), SCAN_PART * (int)sizeof *ahead);
		const vf g = vf_set(decay[(size_t)i * decay_stride]), key = vf_set(k[i]), query = vf_set(q[i]);
		UNROLL for (int j = 0; j < SCAN_VECTORS; j++)
			if (j * LANES < n) {
				const vf s = vf_fma(key, e[j], vf_mul(g, get(state + i * n + j * LANES, n - j * LANES)));
				put(state + i * n + j * LANES, n - j * LANES, s);
				sum[j] = vf_fma(s, query, sum[j]);
			}
	}
	UNROLL for (int j = 0; j < SCAN_VECTORS; j++)
		if (j * LANES < n)
			put(y + j * LANES, n - j * LANES, vf_fma(vf_set(skip), get(v + j * LANES, n - j * LANES), sum[j]));
}

// Computes part part of head head for rows rows: values part · SCAN_PART …. The state of a head is
// divided into parts too: (parts, keys, values of the part).
static void run_scan(const struct run *r, const struct op *op, int head, int part, int rows)
{
	const int keys = op->keys, first = part * SCAN_PART;
	const int n = op->head_dim - first < SCAN_PART ? op->head_dim - first : SCAN_PART;
	const int key_head = op->tiled ? head % op->kv_heads : head / (op->heads / op->kv_heads);
	const size_t at = ((size_t)head * op->head_dim + first) * keys, queries = (size_t)op->kv_heads * keys;
	const float skip = op->factors ? op->factors[head] : 0;
	for (int row = 0; row < rows; row++) {
		float *state = state_of(r, op, row) + at;
		const float *ahead = state + (row + 1 < rows ? 0 : (size_t)keys * n); // the next part, after the last row of this one
		if (r->batch->pos[row] == 0)
			memset(state, 0, sizeof(float) * (size_t)keys * n);
		const float *q = op->x + row * queries + (size_t)key_head * keys, *k = op->z + row * queries + (size_t)key_head * keys;
		const float *decay = op->decay + ((size_t)row * op->heads + head) * op->decays;
		const size_t values = (size_t)row * op->cols + (size_t)head * op->head_dim + first, stride = op->decays > 1;
		const float step = op->step[(size_t)row * op->heads + head];
		if (n == SCAN_PART && op->delta)
			scan_step(SCAN_PART, true, keys, state, q, k, decay, stride, op->v + values, step, skip, op->y + values, ahead);
		else if (n == SCAN_PART)
			scan_step(SCAN_PART, false, keys, state, q, k, decay, stride, op->v + values, step, skip, op->y + values, ahead);
		else
			scan_step(n, op->delta, keys, state, q, k, decay, stride, op->v + values, step, skip, op->y + values, ahead);
	}
}
