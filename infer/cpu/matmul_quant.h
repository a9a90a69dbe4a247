// y[r][o] = Σ over blocks b of d_w[o][b] · d_x[r][b] · Σ q_w · q_x, with quantised
// weights and activations of int8 with a scale for each block. The inner sum is an exact
// integer; the outer one is in F32. Where weights have offsets, d_x · m_w · Σ q_x goes
// off, from the same exact sums.
//
// Blocks are summed in ascending order, STEP at a time, by the same instructions in
// every tile shape, so that a result does not depend on which tile computed it.

// One tile of rows × outs results, both constants. x: (rows) of blocks, w: (outs,
// blocks) at ws bytes, y: (rows, outs) at ys floats.
INLINE void quant_tile(const int type, const int rows, const int outs, const struct quant_row *x, const uint8_t *w,
                       size_t ws, int blocks, float *y, size_t ys)
{
	const size_t bytes = (size_t)block_bytes(type);
	const int shift = type == TYPE_Q8_0 ? 7 : 3;
	qacc acc[TILE_ROWS][TILE_OUTS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			acc[r][o] = qacc_zero();
	int b = 0;
	for (; b + STEP <= blocks; b += STEP) {
		struct qweight v[TILE_OUTS];
		fetch_ahead(w + 2 * outs * ws + b * outs * bytes, STEP * outs * (int)bytes);
		UNROLL for (int o = 0; o < outs; o++)
			v[o] = type == TYPE_Q8_0 ? load_q8(w + o * ws + b * bytes, STEP) : load_q4(w + o * ws + b * bytes, STEP);
		UNROLL for (int r = 0; r < rows; r++) {
			struct qvalue a = load_value(x[r], b, shift);
			UNROLL for (int o = 0; o < outs; o++)
				acc[r][o] = qacc_add(acc[r][o], v[o], a);
		}
	}
	if (b < blocks) {
		UNROLL for (int o = 0; o < outs; o++) {
			const uint8_t *last = w + o * ws + b * bytes;
			struct qweight v = type == TYPE_Q8_0 ? load_q8(last, 1) : load_q4(last, 1);
			UNROLL for (int r = 0; r < rows; r++)
				acc[r][o] = qacc_add(acc[r][o], v, load_value(x[r], b, shift));
		}
	}
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			y[r * ys + o] = qacc_sum(acc[r][o]);
}

// The same of super-blocks.
INLINE void super_tile(const int type, const int rows, const int outs, const struct quant_row *x, const uint8_t *w,
                       size_t ws, int blocks, float *y, size_t ys)
{
	const int bytes = block_bytes(type), shift = type == TYPE_Q6_K ? 5 : 0;
	qacc acc[TILE_ROWS][TILE_OUTS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			acc[r][o] = qacc_zero();
	const uint8_t *ahead = w + 2 * outs * ws;
	for (int b = 0; b < blocks; b += SUPER, w += bytes, ahead += outs * bytes) {
		struct super_scales s[TILE_OUTS];
		fetch_ahead(ahead, outs * bytes);
		UNROLL for (int o = 0; o < outs; o++)
			unpack_scales(type, w + o * ws, &s[o]);
		UNROLL for (int i = 0; i < SUPER; i += STEP) {
			struct kweight v[TILE_OUTS];
			UNROLL for (int o = 0; o < outs; o++)
				v[o] = load_super(type, w + o * ws, i, s[o].d, s[o].m);
			UNROLL for (int r = 0; r < rows; r++) {
				struct qvalue a = load_value(x[r], b + i, shift);
				UNROLL for (int o = 0; o < outs; o++)
					acc[r][o] = super_add(type, acc[r][o], v[o], a);
			}
		}
	}
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			y[r * ys + o] = qacc_sum(acc[r][o]);
}

INLINE void tile(const int type, const int rows, const int outs, const struct quant_row *x, const uint8_t *w, size_t ws,
                 int blocks, float *y, size_t ys)
{
	if (type == TYPE_Q8_0 || type == TYPE_Q4_0)
		quant_tile(type, rows, outs, x, w, ws, blocks, y, ys);
	else
		super_tile(type, rows, outs, x, w, ws, blocks, y, ys);
}

// A column of tiles: rows is a constant, outs is not.
INLINE void quant_tiles(const int type, const int rows, const struct quant_row *x, const uint8_t *w, size_t ws, int outs,
                        int blocks, float *y, size_t ys)
{
	int o = 0;
	for (; o + TILE_OUTS <= outs; o += TILE_OUTS)
		tile(type, rows, TILE_OUTS, x, w + o * ws, ws, blocks, y + o, ys);
	for (; o < outs; o++)
		tile(type, rows, 1, x, w + o * ws, ws, blocks, y + o, ys);
}

INLINE void quant_all(const int type, const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	const uint8_t *w = op->w + out0 * op->w_stride;
	int blocks = op->cols / BLOCK;
	for (int r = 0; r < rows; r += TILE_ROWS) {
		int n = rows - r < TILE_ROWS ? rows - r : TILE_ROWS;
		struct quant_row x[TILE_ROWS];
		for (int k = 0; k < n; k++)
			x[k] = quant_row(run, op->cols, r + k);
		float *y = op->y + (size_t)r * op->outs + out0;
		switch (n) {
		case 4:
			quant_tiles(type, 4, x, w, op->w_stride, outs, blocks, y, op->outs);
			break;
		case 3:
			quant_tiles(type, 3, x, w, op->w_stride, outs, blocks, y, op->outs);
			break;
		case 2:
			quant_tiles(type, 2, x, w, op->w_stride, outs, blocks, y, op->outs);
			break;
		case 1:
			quant_tiles(type, 1, x, w, op->w_stride, outs, blocks, y, op->outs);
		}
	}
}

static void matmul_q8(const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	quant_all(TYPE_Q8_0, run, op, rows, out0, outs);
}

static void matmul_q4(const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	quant_all(TYPE_Q4_0, run, op, rows, out0, outs);
}

static void matmul_q4k(const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	quant_all(TYPE_Q4_K, run, op, rows, out0, outs);
}

static void matmul_q5k(const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	quant_all(TYPE_Q5_K, run, op, rows, out0, outs);
}

static void matmul_q6k(const struct run *run, const struct op *op, int rows, int out0, int outs)
{
	quant_all(TYPE_Q6_K, run, op, rows, out0, outs);
}

static void run_matmul(const struct run *run, const struct op *op, int rows, int out0, int out1)
{
	const uint8_t *w = op->w + out0 * op->w_stride;
	switch (op->type) {
	case TYPE_F32:
		dot_f32(op->x, op->cols, rows, w, op->w_stride, out1 - out0, op->cols, op->y + out0, op->outs);
		return;
	case TYPE_F16:
		dot_f16(op->x, op->cols, rows, w, op->w_stride, out1 - out0, op->cols, op->y + out0, op->outs);
		return;
	case TYPE_Q8_0:
		matmul_q8(run, op, rows, out0, out1 - out0);
		return;
	case TYPE_Q4_0:
		matmul_q4(run, op, rows, out0, out1 - out0);
		return;
	case TYPE_Q4_K:
		matmul_q4k(run, op, rows, out0, out1 - out0);
		return;
	case TYPE_Q5_K:
		matmul_q5k(run, op, rows, out0, out1 - out0);
		return;
	case TYPE_Q6_K:
		matmul_q6k(run, op, rows, out0, out1 - out0);
	}
}
