// y[r][o] = Σ over blocks b of d_w[o][b] · d_x[r][b] · Σ q_w · q_x, with quantised
// weights and activations of int8 with a scale for each block. The inner sum is an exact
// integer; the outer one is in F32, over blocks in ascending order. Where weights have
// offsets, d_x · m_w · Σ q_x goes off, after each block.
//
// Every lane is an output and every row has its own sums, so that a result does not depend
// on the rows that are computed beside it.

enum { VECTORS = PANEL / LANES };

INLINE struct panel_block load_block(const int kind, struct block_at at, const int v)
{
	switch (kind) {
#define PANEL_KIND(name, ...) \
	case PANEL_##name: \
		return load_##name(at, v);
		BLOCK_PANELS(PANEL_KIND)
#undef PANEL_KIND
	}
	abort(); // never: kind is a constant that the table has
}

INLINE vf add_block(const int kind, vf acc, const struct panel_block *w, const struct quant_block *x)
{
	switch (kind) {
#define PANEL_KIND(name, ...) \
	case PANEL_##name: \
		return add_##name(acc, w, x);
		BLOCK_PANELS(PANEL_KIND)
#undef PANEL_KIND
	}
	abort();
}

// Writes outputs skip … outs-1 of a panel, at most PANEL. y: output 0
INLINE void put_outs(float *y, int skip, int outs, const vf acc[VECTORS])
{
	float all[PANEL];
	if (skip == 0) {
		UNROLL for (int v = 0; v < VECTORS; v++)
			if (outs > v * LANES)
				put(y + v * LANES, outs - v * LANES, acc[v]);
		return;
	}
	UNROLL for (int v = 0; v < VECTORS; v++)
		vf_store(all + v * LANES, acc[v]);
	memcpy(y + skip, all + skip, sizeof *all * (size_t)(outs - skip));
}

// Outputs skip … outs-1 of one panel for rows rows, a constant. x: (rows) of blocks, y: (rows)
// where the panel's outputs begin
INLINE void panel_tile(const int kind, const int rows, const struct quant_block *const *x, const uint8_t *panel,
                       const struct codes *codes, int blocks, float *const *y, int skip, int outs)
{
	const int together = panel_of(kind).values / BLOCK;
	const size_t group = panel_group_bytes(kind);
	vf acc[PANEL_ROWS][VECTORS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			acc[r][v] = vf_zero();
	for (int b = 0; b < blocks; panel += group) {
		struct block_at at = group_at(kind, panel, codes);
		for (int i = 0; i < together; i++, b++, at = next_block(kind, at)) {
			fetch_ahead(at.q + AHEAD, (int)(group / (size_t)together));
			UNROLL for (int v = 0; v < VECTORS; v++) {
				const struct panel_block w = load_block(kind, at, v);
				UNROLL for (int r = 0; r < rows; r++)
					acc[r][v] = add_block(kind, acc[r][v], &w, x[r] + b);
			}
		}
	}
	UNROLL for (int r = 0; r < rows; r++)
		put_outs(y[r], skip, outs, acc[r]);
}

INLINE vf load_floats(const int kind, const uint8_t *p) { return kind == PANEL_F16 ? vf_load_h(p) : vf_load_b(p); }

// The same of floats, whose activations are floats. Columns of even and of odd number are
// summed apart, so that one sum need not wait for the other.
INLINE void float_tile(const int kind, const int rows, const float *const *x, const uint8_t *panel, int cols, float *const *y, int skip, int outs)
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
				vf w = load_floats(kind, panel + 2 * (k * PANEL + v * LANES));
				UNROLL for (int r = 0; r < rows; r++)
					acc[r][v][k] = vf_fma(vf_set(x[r][i + k]), w, acc[r][v][k]);
			}
	}
	if (i < cols)
		UNROLL for (int v = 0; v < VECTORS; v++) {
			vf w = load_floats(kind, panel + 2 * v * LANES);
			UNROLL for (int r = 0; r < rows; r++)
				acc[r][v][0] = vf_fma(vf_set(x[r][i]), w, acc[r][v][0]);
		}
	UNROLL for (int r = 0; r < rows; r++) {
		vf sums[VECTORS];
		UNROLL for (int v = 0; v < VECTORS; v++)
			sums[v] = vf_add(acc[r][v][0], acc[r][v][1]);
		put_outs(y[r], skip, outs, sums);
	}
}

// The rows of x and y that row r of a share is.
INLINE int input_of(const struct op *op, const struct share *s, int r)
{
	return !s->pairs ? r : op->own ? s->pairs[r] : s->pairs[r] / op->used;
}

INLINE int output_of(const struct share *s, int r) { return s->pairs ? s->pairs[r] : r; }

// Rows row … row+rows-1, a constant, of a share.
INLINE void panel_rows(const int kind, const struct run *run, const struct op *op, const struct share *s, int row, const int rows)
{
	const struct quant_block *x[PANEL_ROWS];
	const float *floats[PANEL_ROWS];
	float *y[PANEL_ROWS];
	for (int r = 0; r < rows; r++) {
		const int input = input_of(op, s, row + r);
		if (is_float(kind))
			floats[r] = op->x + (size_t)input * (size_t)op->cols;
		else
			x[r] = quant_row(run, op->cols, input);
		y[r] = op->y + (size_t)output_of(s, row + r) * (size_t)op->outs;
	}
	for (int o = s->out0 / PANEL * PANEL; o < s->out1; o += PANEL) {
		const uint8_t *panel = op->w + (size_t)(o / PANEL) * op->w_stride;
		int skip = s->out0 > o ? s->out0 - o : 0, outs = s->out1 - o < PANEL ? s->out1 - o : PANEL;
		float *to[PANEL_ROWS];
		for (int r = 0; r < rows; r++)
			to[r] = y[r] + (o - s->first);
		if (is_float(kind))
			float_tile(kind, rows, floats, panel, op->cols, to, skip, outs);
		else
			panel_tile(kind, rows, x, panel, codes_of(op->type), op->cols / BLOCK, to, skip, outs);
	}
}

INLINE void panel_all(const int kind, const struct run *run, const struct op *op, const struct share *s)
{
	const int most = is_float(kind) ? FLOAT_ROWS : PANEL_ROWS;
	int r = 0;
	for (; r + most <= s->rows; r += most)
		panel_rows(kind, run, op, s, r, most);
	if (most > 4 && r + 4 <= s->rows) {
		panel_rows(kind, run, op, s, r, 4);
		r += 4;
	}
	if (most > 2 && r + 2 <= s->rows) {
		panel_rows(kind, run, op, s, r, 2);
		r += 2;
	}
	if (r < s->rows)
		panel_rows(kind, run, op, s, r, 1);
}

// Functions of each format and of each kind of panel, as what is inlined into them is large.
#define FORMAT(name, ...)                                                                                            \
	static void pack_rows_##name(const uint8_t *w, size_t stride, int rows, int groups, uint8_t *panel)              \
	{                                                                                                                \
		pack_rows(TYPE_##name, w, stride, rows, groups, panel);                                                      \
	}
PACKED_FORMATS(FORMAT)
#undef FORMAT

#define PANEL_KIND(name, ...)                                                                                        \
	static void embed_panel_##name(const struct op *op, int32_t token, float *y)                                     \
	{                                                                                                                \
		const uint8_t *panel = op->w + (size_t)(token / PANEL) * op->w_stride;                                       \
		unpack_row(PANEL_##name, op->type, panel, token % PANEL, op->cols, y);                                       \
	}                                                                                                                \
	static void matmul_panel_##name(const struct run *run, const struct op *op, const struct share *s)               \
	{                                                                                                                \
		panel_all(PANEL_##name, run, op, s);                                                                         \
	}
PANELS(PANEL_KIND)
#undef PANEL_KIND

static void embed_F32(const struct op *op, int32_t token, float *y)
{
	memcpy(y, op->w + (size_t)token * op->w_stride, sizeof(float) * (size_t)op->cols);
}

static void matmul_F32(const struct run *run, const struct op *op, const struct share *s)
{
	const uint8_t *w = op->w + (size_t)s->out0 * op->w_stride;
	const int outs = s->out1 - s->out0, at = s->out0 - s->first;
	(void)run;
	if (!s->pairs) {
		dot_f32(op->x, op->cols, s->rows, w, op->w_stride, outs, op->cols, op->y + at, op->outs);
		return;
	}
	for (int r = 0; r < s->rows; r++)
		dot_f32(op->x + (size_t)input_of(op, s, r) * (size_t)op->cols, op->cols, 1, w, op->w_stride, outs, op->cols,
		        op->y + (size_t)output_of(s, r) * (size_t)op->outs + at, op->outs);
}

static const struct weight_kernels weight_kernels[] = {
	[TYPE_F32] = {NULL, embed_F32, matmul_F32},
#define FORMAT(name, type, values, bytes, panel) [TYPE_##name] = {pack_rows_##name, embed_panel_##panel, matmul_panel_##panel},
	PACKED_FORMATS(FORMAT)
#undef FORMAT
};
