// y[r][o] = Σ over blocks b of d_w[o][b] · d_x[r][b] · Σ q_w · q_x, with quantised
// weights and activations of int8 with a scale for each block. The inner sum is an exact
// integer; the outer one is in F32, over blocks in ascending order. Where weights have
// offsets, d_x · m_w · Σ q_x goes off, after each block. A half of a block of Q6_K has a
// scale of its own; the two halves are added before d_x multiplies them.
//
// Every lane is an output and every row has its own sums, so that a result does not depend
// on the rows that are computed beside it.

enum { VECTORS = PANEL / LANES };

// One vector of a block of weights.
struct panel_block {
	vb q[8];
	vf d[2]; // scale; of Q6_K the scales of its halves
	vf m;    // offset of Q4_K and Q5_K
};

INLINE struct panel_block load_block(const int type, const uint8_t *units, const uint8_t *scales, const uint8_t *integers, const int v)
{
	struct panel_block w;
	const uint8_t *q = integers + v * 4 * LANES;
	w.d[0] = vf_load_h(units + v * 2 * LANES);
	switch (type) {
	case TYPE_Q8_0:
		UNROLL for (int j = 0; j < 8; j++)
			w.q[j] = vb_load(q + j * QUAD);
		return w;
	case TYPE_Q6_K:
		w.d[1] = vf_mul(w.d[0], vf_int8(scales + PANEL + v * LANES));
		w.d[0] = vf_mul(w.d[0], vf_int8(scales + v * LANES));
		break;
	case TYPE_Q4_K:
	case TYPE_Q5_K:
		w.m = vf_mul(vf_load_h(units + 2 * PANEL + v * 2 * LANES), vf_bytes(scales + PANEL + v * LANES));
		w.d[0] = vf_mul(w.d[0], vf_bytes(scales + v * LANES));
	}
	UNROLL for (int j = 0; j < 4; j++) {
		vb both = vb_load(q + j * QUAD);
		w.q[j] = vb_low(both);
		w.q[4 + j] = vb_high(both);
	}
	if (type == TYPE_Q5_K) {
		vb fifths = vb_load(q + NIBBLES);
		UNROLL for (int j = 0; j < 8; j++)
			w.q[j] = vb_or(w.q[j], vb_bits(fifths, 4 - j, 0x10));
	}
	if (type == TYPE_Q6_K)
		UNROLL for (int j = 0; j < 8; j++)
			w.q[j] = vb_or(w.q[j], vb_bits(vb_load(q + NIBBLES + j / 4 * QUAD), 4 - 2 * (j % 4), 0x30));
	return w;
}

INLINE vf add_block(const int type, vf acc, const struct panel_block *w, const struct quant_block *x)
{
	vf d = vf_set(x->d);
	switch (type) {
	case TYPE_Q8_0:
		return vf_fma(vb_dot(8, 8, w->q, x->q, x->sum * 128), vf_mul(w->d[0], d), acc);
	case TYPE_Q4_0:
		return vf_fma(vb_dot(4, 8, w->q, x->q, x->sum * 8), vf_mul(w->d[0], d), acc);
	case TYPE_Q6_K: {
		vf first = vb_dot(6, 4, w->q, x->q, x->half[0] * 32);
		vf second = vb_dot(6, 4, w->q + 4, x->q + BLOCK / 2, x->half[1] * 32);
		return vf_fma(vf_fma(second, w->d[1], vf_mul(first, w->d[0])), d, acc);
	}
	default: // Q4_K, Q5_K
		acc = vf_fma(vb_dot(type == TYPE_Q4_K ? 4 : 5, 8, w->q, x->q, 0), vf_mul(w->d[0], d), acc);
		return vf_fma(w->m, vf_set(x->offset), acc);
	}
}

// The outputs of one panel for rows rows, a constant. x: (rows) of blocks, y: (rows, outs) at
// ys floats, outs at most PANEL.
INLINE void panel_tile(const int type, const int rows, const struct quant_block *const *x, const uint8_t *panel,
                       int blocks, float *y, size_t ys, int outs)
{
	const int together = is_super(type) ? SUPER : 1;
	const size_t group = panel_group_bytes(type), quads = panel_quads(type);
	vf acc[PANEL_ROWS][VECTORS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			acc[r][v] = vf_zero();
	for (int b = 0; b < blocks; panel += group) {
		const uint8_t *scales = panel + PANEL_UNITS;
		const uint8_t *integers = is_super(type) ? scales + SUPER * PANEL_SCALES : panel + 2 * PANEL;
		for (int i = 0; i < together; i++, b++, scales += PANEL_SCALES, integers += quads) {
			fetch_ahead(integers + AHEAD, (int)(group / (size_t)together));
			UNROLL for (int v = 0; v < VECTORS; v++) {
				const struct panel_block w = load_block(type, panel, scales, integers, v);
				UNROLL for (int r = 0; r < rows; r++)
					acc[r][v] = add_block(type, acc[r][v], &w, x[r] + b);
			}
		}
	}
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			if (outs > v * LANES)
				put(y + r * ys + v * LANES, outs - v * LANES, acc[r][v]);
}

// The same of F16, whose activations are floats. Columns of even and of odd number are
// summed apart, so that one sum need not wait for the other.
INLINE void half_tile(const int rows, const float *x, size_t xs, const uint8_t *panel, int cols, float *y, size_t ys, int outs)
{
	vf acc[FLOAT_ROWS][VECTORS][2];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			acc[r][v][0] = acc[r][v][1] = vf_zero();
	int i = 0;
	for (; i + 2 <= cols; i += 2, panel += 4 * PANEL) {
		fetch_ahead(panel + AHEAD, 4 * PANEL);
		UNROLL for (int k = 0; k < 2; k++)
			UNROLL for (int v = 0; v < VECTORS; v++) {
				vf w = vf_load_h(panel + 2 * (k * PANEL + v * LANES));
				UNROLL for (int r = 0; r < rows; r++)
					acc[r][v][k] = vf_fma(vf_set(x[r * xs + i + k]), w, acc[r][v][k]);
			}
	}
	if (i < cols)
		UNROLL for (int v = 0; v < VECTORS; v++) {
			vf w = vf_load_h(panel + 2 * v * LANES);
			UNROLL for (int r = 0; r < rows; r++)
				acc[r][v][0] = vf_fma(vf_set(x[r * xs + i]), w, acc[r][v][0]);
		}
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			if (outs > v * LANES)
				put(y + r * ys + v * LANES, outs - v * LANES, vf_add(acc[r][v][0], acc[r][v][1]));
}

// Rows row … row+rows-1, a constant, of panels that hold outputs out0 … out1-1.
INLINE void panel_rows(const int type, const struct run *run, const struct op *op, int row, const int rows, int out0, int out1)
{
	const struct quant_block *x[PANEL_ROWS];
	if (type != TYPE_F16)
		for (int r = 0; r < rows; r++)
			x[r] = quant_row(run, op->cols, row + r);
	for (int o = out0; o < out1; o += PANEL) {
		const uint8_t *panel = op->w + (size_t)(o / PANEL) * op->w_stride;
		float *y = op->y + (size_t)row * op->outs + o;
		int outs = out1 - o < PANEL ? out1 - o : PANEL;
		if (type == TYPE_F16)
			half_tile(rows, op->x + (size_t)row * op->cols, (size_t)op->cols, panel, op->cols, y, (size_t)op->outs, outs);
		else
			panel_tile(type, rows, x, panel, op->cols / BLOCK, y, (size_t)op->outs, outs);
	}
}

// out0 is a multiple of PANEL.
INLINE void panel_all(const int type, const struct run *run, const struct op *op, int rows, int out0, int out1)
{
	const int most = type == TYPE_F16 ? FLOAT_ROWS : PANEL_ROWS;
	int r = 0;
	for (; r + most <= rows; r += most)
		panel_rows(type, run, op, r, most, out0, out1);
	if (most > 4 && r + 4 <= rows) {
		panel_rows(type, run, op, r, 4, out0, out1);
		r += 4;
	}
	if (most > 2 && r + 2 <= rows) {
		panel_rows(type, run, op, r, 2, out0, out1);
		r += 2;
	}
	if (r < rows)
		panel_rows(type, run, op, r, 1, out0, out1);
}

// One function for each format, as what is inlined into them is large.
#define MATMUL(name, type)                                                                                            \
	static void name(const struct run *run, const struct op *op, int rows, int out0, int out1)                        \
	{                                                                                                                 \
		panel_all(type, run, op, rows, out0, out1);                                                                   \
	}

MATMUL(matmul_f16, TYPE_F16)
MATMUL(matmul_q8, TYPE_Q8_0)
MATMUL(matmul_q4, TYPE_Q4_0)
MATMUL(matmul_q4k, TYPE_Q4_K)
MATMUL(matmul_q5k, TYPE_Q5_K)
MATMUL(matmul_q6k, TYPE_Q6_K)

static void run_matmul(const struct run *run, const struct op *op, int rows, int out0, int out1)
{
	switch (op->type) {
	case TYPE_F32:
		dot_f32(op->x, op->cols, rows, op->w + out0 * op->w_stride, op->w_stride, out1 - out0, op->cols, op->y + out0, op->outs);
		return;
	case TYPE_F16:
		matmul_f16(run, op, rows, out0, out1);
		return;
	case TYPE_Q8_0:
		matmul_q8(run, op, rows, out0, out1);
		return;
	case TYPE_Q4_0:
		matmul_q4(run, op, rows, out0, out1);
		return;
	case TYPE_Q4_K:
		matmul_q4k(run, op, rows, out0, out1);
		return;
	case TYPE_Q5_K:
		matmul_q5k(run, op, rows, out0, out1);
		return;
	case TYPE_Q6_K:
		matmul_q6k(run, op, rows, out0, out1);
	}
}
