// y[r][o] = Σ x[r][i] · w[o][i], with F32 weights, or keys of the cache in its types, accumulated in F32. Quantised keys are
// multiplied as the values that their codes stand for.
//
// Lane l of a vector sums the terms i ≡ l (mod LANES) in ascending order, and vf_sum adds the lanes in
// a fixed order. All tile shapes do the same, so that a result does not depend on its tile.

// Loads or stores a vector at p, where left values remain.
INLINE vf get(const float *p, int left) { return left >= LANES ? vf_load(p) : vf_load_n(p, left); }

INLINE void put(float *p, int left, vf a)
{
	if (left >= LANES)
		vf_store(p, a);
	else
		vf_store_n(p, a, left);
}

// Bytes of a block of 32 elements of a type of the cache.
INLINE int cache_block_bytes(const int type)
{
	return type == TYPE_Q4_0 ? 2 + BLOCK / 2 : type == TYPE_Q8_0 ? 2 + BLOCK : type == TYPE_F16 ? 2 * BLOCK : 4 * BLOCK;
}

INLINE size_t cache_row_bytes(const int type, int n)
{
	return type == TYPE_F32 ? 4 * (size_t)n : type == TYPE_F16 ? 2 * (size_t)n : (size_t)(n / BLOCK * cache_block_bytes(type));
}

INLINE bool is_quantized(const int type) { return type == TYPE_Q8_0 || type == TYPE_Q4_0; }

// The scale of a block of a quantised cache.
INLINE vf block_scale(const uint8_t *block) { return vf_set(load_half(block)); }

// Elements i … i+LANES-1 of a block, i a multiple of LANES.
INLINE vf block_values(const int type, const uint8_t *block, int i, vf scale)
{
	if (type == TYPE_Q8_0)
		return vf_mul(vf_int8(block + 2 + i), scale);
	const uint8_t *codes = block + 2 + i % (BLOCK / 2);
	return vf_mul(vf_sub(i < BLOCK / 2 ? vf_bits(codes, 0, 15) : vf_bits(codes, 4, 15), vf_set(8)), scale);
}

INLINE vf load_weight(const int type, const uint8_t *w, int i)
{
	if (is_quantized(type)) {
		const uint8_t *block = w + i / BLOCK * cache_block_bytes(type);
		return block_values(type, block, i % BLOCK, block_scale(block));
	}
	return type == TYPE_F16 ? vf_load_h(w + 2 * (size_t)i) : vf_load(w + 4 * (size_t)i);
}

INLINE vf load_weight_n(const int type, const uint8_t *w, int i, int n)
{
	if (is_quantized(type)) // the block is whole, also if fewer of its elements are values of a latent cache
		return load_weight(type, w, i);
	return type == TYPE_F16 ? vf_load_h_n(w + 2 * (size_t)i, n) : vf_load_n(w + 4 * (size_t)i, n);
}

// A tile of rows × outs results, both constants. x: (rows, n) with a stride of xs floats, w: (outs, n)
// of ws bytes, y: (rows, outs) of ys floats.
INLINE void dot_tile(const int type, const int rows, const int outs, const float *x, size_t xs, const uint8_t *w,
                     size_t ws, int n, float *y, size_t ys)
{
	vf acc[TILE_ROWS][TILE_OUTS], v[TILE_OUTS];
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			acc[r][o] = vf_zero();
	int i = 0;
	for (; is_quantized(type) && i < n; i += BLOCK, w += cache_block_bytes(type)) {
		vf scale[TILE_OUTS];
		UNROLL for (int o = 0; o < outs; o++)
			scale[o] = block_scale(w + o * ws);
		UNROLL for (int k = 0; k < BLOCK; k += LANES) {
			UNROLL for (int o = 0; o < outs; o++)
				v[o] = block_values(type, w + o * ws, k, scale[o]);
			UNROLL for (int r = 0; r < rows; r++) {
				vf a = vf_load(x + r * xs + i + k);
				UNROLL for (int o = 0; o < outs; o++)
					acc[r][o] = vf_fma(a, v[o], acc[r][o]);
			}
		}
	}
	for (; i + LANES <= n; i += LANES) {
		UNROLL for (int o = 0; o < outs; o++)
			v[o] = load_weight(type, w + o * ws, i);
		UNROLL for (int r = 0; r < rows; r++) {
			vf a = vf_load(x + r * xs + i);
			UNROLL for (int o = 0; o < outs; o++)
				acc[r][o] = vf_fma(a, v[o], acc[r][o]);
		}
	}
	if (i < n) {
		UNROLL for (int o = 0; o < outs; o++)
			v[o] = load_weight_n(type, w + o * ws, i, n - i);
		UNROLL for (int r = 0; r < rows; r++) {
			vf a = vf_load_n(x + r * xs + i, n - i);
			UNROLL for (int o = 0; o < outs; o++)
				acc[r][o] = vf_fma(a, v[o], acc[r][o]);
		}
	}
	if (rows == TILE_ROWS && outs == TILE_OUTS) {
		vf_sum_tile(acc, y, ys);
		return;
	}
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int o = 0; o < outs; o++)
			y[r * ys + o] = vf_sum(acc[r][o]);
}

// A row of tiles: rows is a constant, outs is not. Prefetches as many bytes at ahead, unless that is
// NULL.
INLINE void dot_tiles(const int type, const int rows, const float *x, size_t xs, const uint8_t *w, size_t ws, int outs,
                      int n, float *y, size_t ys, const uint8_t *ahead)
{
	int o = 0;
	for (; o + TILE_OUTS <= outs; o += TILE_OUTS) {
		if (ahead)
			for (size_t k = 0; k < TILE_OUTS * ws; k += LINE)
				__builtin_prefetch(ahead + o * ws + k, 0, 2);
		dot_tile(type, rows, TILE_OUTS, x, xs, w + o * ws, ws, n, y + o, ys);
	}
	for (; o < outs; o++)
		dot_tile(type, rows, 1, x, xs, w + o * ws, ws, n, y + o, ys);
}

INLINE void dot_all(const int type, const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n,
                    float *y, size_t ys, const uint8_t *ahead)
{
	for (; rows >= 4; rows -= 4, x += 4 * xs, y += 4 * ys, ahead = NULL)
		dot_tiles(type, 4, x, xs, w, ws, outs, n, y, ys, ahead);
	switch (rows) {
	case 3:
		dot_tiles(type, 3, x, xs, w, ws, outs, n, y, ys, ahead);
		break;
	case 2:
		dot_tiles(type, 2, x, xs, w, ws, outs, n, y, ys, ahead);
		break;
	case 1:
		dot_tiles(type, 1, x, xs, w, ws, outs, n, y, ys, ahead);
	}
}

typedef void dot_function(const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n, float *y, size_t ys,
                          const uint8_t *ahead);

// x: (rows, n) with a stride of xs floats, w: (outs, n) of ws bytes, y: (rows, outs) of ys floats,
// ahead: what is prefetched meanwhile, of the size of w.
static void dot_f32(const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n, float *y, size_t ys,
                    const uint8_t *ahead)
{
	dot_all(TYPE_F32, x, xs, rows, w, ws, outs, n, y, ys, ahead);
}

// For keys in the cache, of which n is a multiple of BLOCK if they are quantised; weights of these types are in panels.
static void dot_f16(const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n, float *y, size_t ys,
                    const uint8_t *ahead)
{
	dot_all(TYPE_F16, x, xs, rows, w, ws, outs, n, y, ys, ahead);
}

static void dot_q8_0(const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n, float *y, size_t ys,
                     const uint8_t *ahead)
{
	dot_all(TYPE_Q8_0, x, xs, rows, w, ws, outs, n, y, ys, ahead);
}

static void dot_q4_0(const float *x, size_t xs, int rows, const uint8_t *w, size_t ws, int outs, int n, float *y, size_t ys,
                     const uint8_t *ahead)
{
	dot_all(TYPE_Q4_0, x, xs, rows, w, ws, outs, n, y, ys, ahead);
}

// Returns the function above for a type of the cache.
static dot_function *dot_of(int type)
{
	switch (type) {
	case TYPE_F16:
		return dot_f16;
	case TYPE_Q8_0:
		return dot_q8_0;
	case TYPE_Q4_0:
		return dot_q4_0;
	}
	return dot_f32;
}
