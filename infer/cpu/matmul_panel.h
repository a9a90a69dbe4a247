// y[r][o] = Σ over blocks b of d_w[o][b] · d_x[r][b] · Σ q_w · q_x, with quantised weights and int8
// activations with a scale for each block. The inner sum is an exact integer; the outer one is F32,
// over blocks in ascending order. For weights with offsets, d_x · m_w · Σ q_x is subtracted after each
// block.
//
// Every lane is an output and every row has its own accumulators, so that a result does not depend on
// the other rows of the tile.

enum { VECTORS = PANEL / LANES };

// A loop over the vectors of a panel, unrolled so that their sums stay in registers. With ROLL_VECTORS there are more sums than registers.
#if defined(ROLL_VECTORS)
#define EACH_VECTOR for (int v = 0; v < VECTORS; v++)
#else
#define EACH_VECTOR UNROLL for (int v = 0; v < VECTORS; v++)
#endif

INLINE struct panel_block load_block(const int kind, struct block_at at, const int v)
{
	switch (kind) {
#define PANEL_KIND(name, ...) \
	case PANEL_##name: \
		return load_##name(at, v);
		BLOCK_PANELS(PANEL_KIND)
#undef PANEL_KIND
	}
	abort(); // unreachable: kind is a constant that the table has
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

// Writes outputs skip … outs-1 of a panel, outs ≤ PANEL. y: output 0
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

// Computes outputs skip … outs-1 of a panel for rows rows, a constant. x: blocks of each row, y: first
// output of the panel in each row
INLINE void panel_tile(const int kind, const int rows, const struct quant_block *const *x, const uint8_t *panel,
                       const struct codes *codes, int blocks, float *const *y, int skip, int outs)
{
	const int together = panel_of(kind).values / BLOCK;
	const size_t group = panel_group_bytes(kind), block = group / (size_t)together;
	vf acc[PANEL_ROWS][VECTORS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < VECTORS; v++)
			acc[r][v] = vf_zero();
	for (int b = 0; b < blocks; panel += group) {
		struct block_at at = group_at(kind, panel, codes);
#if defined(UNITS_AHEAD)
		float units[4 * PANEL];
		UNROLL for (int k = 0; k < panel_of(kind).units * PANEL; k += LANES)
			vf_store(units + k, vf_load_h(at.units + 2 * k));
		at.floats = units;
#endif
		const uint8_t *next = panel; // in the order of memory, unlike a block and its scales
		for (int i = 0; i < together; i++, b++, at = next_block(kind, at), next += block) {
			fetch_block(next, block);
			const struct quant_block *in[PANEL_ROWS];
#if defined(SPREAD)
			struct spread room[PANEL_ROWS];
			UNROLL for (int r = 0; r < rows; r++)
				in[r] = spread_block(&room[r], x[r] + b);
#else
			UNROLL for (int r = 0; r < rows; r++)
				in[r] = x[r] + b;
#endif
			EACH_VECTOR {
				const struct panel_block w = load_block(kind, at, v);
				UNROLL for (int r = 0; r < rows; r++)
					acc[r][v] = add_block(kind, acc[r][v], &w, FEW_REGISTERS ? reloaded(in[r]) : in[r]);
			}
		}
	}
	UNROLL for (int r = 0; r < rows; r++)
		put_outs(y[r], skip, outs, acc[r]);
}

INLINE vf load_floats(const int kind, const uint8_t *p) { return kind == PANEL_F16 ? vf_load_h(p) : vf_load_b(p); }

// The same for float formats, with float activations. Even and odd columns are summed separately, so
// that two chains of additions overlap.
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

// The rows of x and y that belong to row r of a share.
INLINE int input_of(const struct op *op, const struct share *s, int r)
{
	return !s->pairs ? r : op->own ? s->pairs[r] : s->pairs[r] / op->used;
}

INLINE int output_of(const struct share *s, int r) { return s->pairs ? s->pairs[r] : r; }

// Computes rows row … row+rows-1 of a share; rows is a constant.
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
	const int max = is_float(kind) ? FLOAT_ROWS : PANEL_ROWS;
	int r = 0;
	for (; r + max <= s->rows; r += max)
		panel_rows(kind, run, op, s, r, max);
	if (max > 4 && r + 4 <= s->rows) {
		panel_rows(kind, run, op, s, r, 4);
		r += 4;
	}
	if (max > 2 && r + 2 <= s->rows) {
		panel_rows(kind, run, op, s, r, 2);
		r += 2;
	}
	if (r < s->rows)
		panel_rows(kind, run, op, s, r, 1);
}

// One function for each format and each kind of panel, because the code inlined into them is large.
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
		dot_f32(op->x, op->cols, s->rows, w, op->w_stride, outs, op->cols, op->y + at, op->outs, w + AHEAD);
		return;
	}
	for (int r = 0; r < s->rows; r++)
		dot_f32(op->x + (size_t)input_of(op, s, r) * (size_t)op->cols, op->cols, 1, w, op->w_stride, outs, op->cols,
		        op->y + (size_t)output_of(s, r) * (size_t)op->outs + at, op->outs, w + AHEAD);
}

static const struct weight_kernels weight_kernels[] = {
	[TYPE_F32] = {NULL, embed_F32, matmul_F32},
#define FORMAT(name, type, values, bytes, panel) [TYPE_##name] = {pack_rows_##name, embed_panel_##panel, matmul_panel_##panel},
	PACKED_FORMATS(FORMAT)
#undef FORMAT
};

// Writes row token of an embedding table to y.
static void embed(const struct op *op, int32_t token, float *y)
{
	const struct weight_kernels *kernels = &weight_kernels[op->type];
	if (!op->in_file) {
		kernels->embed(op, token, y);
		return;
	}
	struct op one = *op;
	if (token < op->copied) {
		one.w = op->copy;
		one.w_stride = op->copy_stride;
		kernels->embed(&one, token, y);
		return;
	}
	const struct format format = format_of(op->type);
	const uint8_t *w = op->w + (size_t)token * op->w_stride;
	union group group;
	one.w = (uint8_t *)&group;
	one.cols = format.values;
	for (int i = 0; i < op->cols; i += format.values, w += format.bytes) {
		kernels->pack(w, 0, 1, 1, (uint8_t *)&group);
		kernels->embed(&one, 0, y + i);
	}
}
