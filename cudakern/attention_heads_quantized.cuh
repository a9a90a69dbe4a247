// attention_heads.cu for keys and values of Q8_0 or Q4_0, included by it: the bits are those of attention.cu with CACHE_ANY.
//
// Codes take less time to load than to convert. So a block computes two units at a time, a warp one tile of them for all its query heads: each code is
// converted once. Codes come to shared memory as they lie in the cache, keys first, then values, then the sums of the tile in their place; that memory
// is the warp's own. The launch before stores the row's key and value.

enum { AT_A_TIME = 2, CODE_TILES = AT_A_TIME * TILES, CODE_THREADS = CODE_TILES * WARP };

// The shared memory of a block: quantizedHeadsMemory in attention_heads.go.
template <int DIM, int QUERIES> struct CodesMemory {
	enum { STRIDE = DIM / 16 + 1 }; // units of a row of the longest codes, and one that keeps lanes from each other's banks
	float q[QUERIES][DIM];
	float e[CODE_TILES][QUERIES][WARP];
	float tile_max[AT_A_TIME][QUERIES][TILES], tile_sum[AT_A_TIME][QUERIES][TILES];
	int flag[4];
	uint4 codes[CODE_TILES][WARP * STRIDE];
	uint16_t scales[CODE_TILES][WARP * (DIM / SCALE_ELEMENTS)];

	DEVICE float *sums_of(CodesMemory *m, int tile) { return reinterpret_cast<float *>(m->codes[tile]); } // (QUERIES, DIM)
};

// The lane's part of the keys or values of a tile.
template <int DIM> struct Codes {
	enum { MOST = DIM / 16 }; // units of a row of Q8_0
	uint4 codes[MOST], scales;

	// head: where those of the head begin in the block
	DEVICE void load(Codes &c, const uint8_t *head, int format)
	{
		const uint4 *const from = reinterpret_cast<const uint4 *>(head) + lane_id();
		const int units = format == FORMAT_Q8_0 ? MOST : MOST / 2;
		UNROLL for (int i = 0; i < MOST; i++)
			if (i < units)
				c.codes[i] = request(from + i * WARP);
		if (lane_id() < DIM / 8)
			c.scales = request(from + units * WARP);
	}

	// Positions first to last are attended to: scales of the others become zero, because their memory may be uninitialized.
	template <int QUERIES> DEVICE void store(Codes &c, CodesMemory<DIM, QUERIES> *m, int tile, int format, int first, int last)
	{
		typedef CodesMemory<DIM, QUERIES> Memory;
		enum { SCALES = DIM / SCALE_ELEMENTS };
		const bool bytes = format == FORMAT_Q8_0;
		const int units = bytes ? MOST : MOST / 2, rows = bytes ? WARP / MOST : 2 * WARP / MOST; // rows: that the warp stores at once
		uint4 *to = m->codes[tile] + (bytes ? lane_id() / MOST : lane_id() / (MOST / 2)) * Memory::STRIDE + (lane_id() & (units - 1));
		UNROLL for (int i = 0; i < MOST; i++, to += rows * Memory::STRIDE)
			if (i < units)
				*to = c.codes[i];
		if (lane_id() < DIM / 8) {
			uint16_t scales[8];
			memcpy(scales, &c.scales, sizeof scales);
			UNROLL for (int i = 0; i < 8; i++) {
				const int p = (lane_id() * 8 + i) / SCALES;
				if (p < first || last < p)
					scales[i] = 0;
			}
			memcpy(&m->scales[tile][lane_id() * 8], scales, sizeof scales);
		}
		syncwarp();
	}
};

// score[i] = q[i]·key of the lane's position in the tile.
template <bool BYTES, int DIM, int QUERIES> DEVICE void multiply_codes(const CodesMemory<DIM, QUERIES> *m, int tile, float (&score)[QUERIES])
{
	enum { SCALES = DIM / SCALE_ELEMENTS, OFFSET = BYTES ? Q8_0_OFFSET : Q4_0_OFFSET };
	const uint4 *row = m->codes[tile] + lane_id() * CodesMemory<DIM, QUERIES>::STRIDE;
	UNROLL_BY(1) for (int block = 0; block < SCALES; block++) {
		const float scale = half_to_float(m->scales[tile][lane_id() * SCALES + block]);
		UNROLL_BY(1) for (int d = 0; d < SCALE_ELEMENTS; d += BYTES ? 16 : 32, row++) {
			const uint4 v = *row;
			const uint32_t words[4] = {v.x, v.y, v.z, v.w};
			UNROLL for (int w = 0; w < 4; w += BYTES ? 2 : 1) {
				float k[8];
				decode<4>(BYTES ? words[w] : four_codes(words[w], false), OFFSET, scale, k);
				decode<4>(BYTES ? words[w | 1] : four_codes(words[w], true), OFFSET, scale, k + 4);
				UNROLL for (int i = 0; i < QUERIES; i++)
					add_products(m->q[i] + block * SCALE_ELEMENTS + d + w * (BYTES ? 4 : 8), k, &score[i]);
			}
		}
	}
}

// sum[i] = Σ e[i][p]·value[p] over positions first to last of the tile for the lane's dimensions, in the batches of add_row_values.
template <bool BYTES, int DIM, int QUERIES>
DEVICE void sum_codes(const CodesMemory<DIM, QUERIES> *m, int tile, int first, int last, float (&sum)[QUERIES][DIM / WARP])
{
	enum { WIDTH = DIM / WARP, SCALES = DIM / SCALE_ELEMENTS, BATCH = 8, OFFSET = BYTES ? Q8_0_OFFSET : Q4_0_OFFSET };
	const int d = lane_id() * WIDTH, stride = CodesMemory<DIM, QUERIES>::STRIDE * 16;
	const uint8_t *const codes = reinterpret_cast<const uint8_t *>(m->codes[tile]) + (BYTES ? d : d / 8 * 4 + d % 4);
	const uint16_t *const scales = m->scales[tile] + d / SCALE_ELEMENTS;
	UNROLL_BY(1) for (int begin = first / BATCH * BATCH; begin <= last; begin += BATCH)
		UNROLL_BY(1) for (int j = begin; j < begin + BATCH; j += 4) {
			float v[4][WIDTH];
			UNROLL for (int k = 0; k < 4; k++) {
				uint32_t word = 0;
				if (WIDTH == 4)
					word = *reinterpret_cast<const uint32_t *>(codes + (j + k) * stride);
				else
					word = *reinterpret_cast<const uint16_t *>(codes + (j + k) * stride);
				decode<WIDTH>(BYTES ? word : four_codes(word, d & 4), OFFSET, half_to_float(scales[(j + k) * SCALES]), v[k]);
			}
			UNROLL for (int i = 0; i < QUERIES; i++) {
				const float4 w = *reinterpret_cast<const float4 *>(m->e[tile][i] + j);
				UNROLL for (int c = 0; c < WIDTH; c++) {
					sum[i][c] = fmaf(w.x, v[0][c], sum[i][c]);
					sum[i][c] = fmaf(w.y, v[1][c], sum[i][c]);
					sum[i][c] = fmaf(w.z, v[2][c], sum[i][c]);
					sum[i][c] = fmaf(w.w, v[3][c], sum[i][c]);
				}
			}
		}
}

// Returns the sums over one of the units.
template <int DIM, int QUERIES> DEVICE Sums codes_sums(CodesMemory<DIM, QUERIES> *m, int unit, int query, int d)
{
	typedef CodesMemory<DIM, QUERIES> Memory;
	enum { APART = 4 * Memory::STRIDE * WARP };
	return tile_sums(m->tile_max[unit][query], m->tile_sum[unit][query], Memory::sums_of(m, unit * TILES) + query * DIM + d, APART);
}

template <int DIM, int QUERIES> DEVICE void attend_codes(CodesMemory<DIM, QUERIES> *m, const Params &a)
{
	enum { WIDTH = DIM / WARP };
	const int t = threadIdx.x, lane = lane_id(), tile = warp_id(), of = tile / TILES; // of: of the units
	const int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads;
	begin_next();
	Queries n;
	n.row = blockIdx.z;
	const int rows = *a.rows, pos = a.pos[n.row], end = a.last[n.row], sequence = a.seq[n.row]; // loads at once
	n.kv_head = blockIdx.y / parts;
	n.head = n.kv_head * group + blockIdx.y % parts * a.block_heads;
	n.count = n.heads = min(a.block_heads, (n.kv_head + 1) * group - n.head);
	n.high = min(end, pos + a.after), n.low = max(0, pos - a.before);
	const int first_unit = n.low / UNIT, units = n.high / UNIT - first_unit + 1, blocks = min(int(gridDim.x), (units + 1) / AT_A_TIME);
	wait_for_previous(); // it has stored keys and values
	if (n.row >= rows || int(blockIdx.x) >= blocks)
		return;
	const int *const table = a.tables + (size_t)sequence * a.stride;
	const int key_bytes = head_bytes(a.key_format, DIM), value_bytes = head_bytes(a.value_format, DIM);
	const uint8_t *const of_layer = a.any_cache + a.layer * size_t(a.kv_heads * (key_bytes + value_bytes));
	const auto load = [&](Codes<DIM> &c, int unit, int kind) {
		const int start = unit * UNIT + tile * BLOCK_POSITIONS; // the second unit is the next one
		if (n.high < start || start + BLOCK_POSITIONS <= n.low)
			return;
		const uint8_t *at = of_layer + (size_t)table[start / BLOCK_POSITIONS] * a.layers * size_t(a.kv_heads * (key_bytes + value_bytes));
		at += kind == KEYS ? n.kv_head * key_bytes : a.kv_heads * key_bytes + n.kv_head * value_bytes;
		Codes<DIM>::load(c, at, kind == KEYS ? a.key_format : a.value_format);
	};
	Codes<DIM> keys = {}, values = {};
	load(keys, first_unit + AT_A_TIME * blockIdx.x, KEYS);
	load(values, first_unit + AT_A_TIME * blockIdx.x, VALUES);
	UNROLL_BY(1) for (int x = t; x < QUERIES * DIM; x += CODE_THREADS)
		m->q[x / DIM][x % DIM] = x / DIM < n.count ? __ldcg(a.q + ((size_t)n.row * a.heads + n.head) * DIM + x) : 0.0f;
	rotate_queries(m->q[0], QUERIES, DIM, DIM);
	syncthreads();

	UNROLL_BY(1) for (int unit = first_unit + AT_A_TIME * blockIdx.x; unit < first_unit + units; unit += AT_A_TIME * blocks) {
		const int start = unit * UNIT + tile * BLOCK_POSITIONS;
		const int first = max(n.low - start, 0), last = min(n.high - start, BLOCK_POSITIONS - 1); // none: last < first
		const bool attended = first <= lane && lane <= last;
		float score[QUERIES] = {};
		if (first <= last) {
			Codes<DIM>::store(keys, m, tile, a.key_format, first, last);
			if (a.key_format == FORMAT_Q8_0)
				multiply_codes<true>(m, tile, score);
			else
				multiply_codes<false>(m, tile, score);
			syncwarp();
			Codes<DIM>::store(values, m, tile, a.value_format, first, last);
		}
		load(keys, unit + AT_A_TIME * blocks, KEYS); // and the values when there are registers for them
		if (a.inner > 0.0f)
			UNROLL for (int i = 0; i < QUERIES; i++)
				score[i] = tanh_of(score[i] * a.inner);
		UNROLL for (int i = 0; i < QUERIES; i++) {
			score[i] = attended ? score[i] * a.scale : MINUS_INFINITY;
			const float max = warp_max(score[i]);
			if (lane == 0)
				m->tile_max[of][i][tile % TILES] = max;
		}
		syncthreads();
		UNROLL for (int i = 0; i < QUERIES; i++) {
			const float4 max = *reinterpret_cast<const float4 *>(m->tile_max[of][i]);
			const float e = attended ? exp2_of(score[i] - fmaxf(fmaxf(max.x, max.y), fmaxf(max.z, max.w))) : 0.0f, sum = warp_sum(e);
			m->e[tile][i][lane] = e;
			if (lane == 0)
				m->tile_sum[of][i][tile % TILES] = sum;
		}
		syncwarp();
		float sum[QUERIES][WIDTH] = {};
		if (a.value_format == FORMAT_Q8_0)
			sum_codes<true>(m, tile, first, last, sum);
		else
			sum_codes<false>(m, tile, first, last, sum);
		load(values, unit + AT_A_TIME * blocks, VALUES);
		syncwarp(); // the values are no longer needed
		UNROLL for (int i = 0; i < QUERIES; i++)
			UNROLL for (int c = 0; c < WIDTH; c++)
				CodesMemory<DIM, QUERIES>::sums_of(m, tile)[i * DIM + lane * WIDTH + c] = sum[i][c];
		syncthreads();
		if (units == 1)
			break;
		UNROLL_BY(1) for (int x = t; x < AT_A_TIME * n.count * DIM; x += CODE_THREADS) {
			const int other = x / (n.count * DIM), query = x / DIM % n.count, d = x % DIM;
			if (unit + other >= first_unit + units)
				break;
			const Sums sums = codes_sums(m, other, query, d);
			float *const partial = partial_of(a, n, query, unit + other);
			partial[2 + d] = sums.out;
			if (d == 0)
				partial[0] = sums.max, partial[1] = sums.sum;
		}
		syncthreads(); // keys replace the sums
	}
	finish_heads<DIM, QUERIES, CODE_THREADS>(a, n, units, blocks, m->flag, [&](int query, int d) { return codes_sums(m, 0, query, d); });
}

// Kernels for up to queries query heads of dims elements.
#define CODES(dims, queries) \
	KERNEL(attention_heads_quantized_d##dims##_n##queries, 256, 2)(float *dst, float *partials, unsigned *arrivals, const float *q, ANY_CACHE, \
		int layer, int layers, int heads, int kv_heads, int dim, [[maybe_unused]] int value_dim, const float *sinks, float scale, float inner, int before, int after, int block_rows, int block_heads, int units, \
		const int *pos, const int *last, const int *seq, const int *tables, int stride, const int *rows, \
		const float *keys, const float *values, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude, \
		uint4 *image, int image_kind) \
	{ \
		typedef CodesMemory<dims, queries> Memory; \
		SHARED(Memory, memory); \
		attend_codes<dims, queries>(memory, {dst, partials, arrivals, q, nullptr, cache, key_format, value_format, layer, layers, 2, heads, kv_heads, dim, dim, sinks, \
			scale, inner, before, after, block_rows, block_heads, units, pos, last, seq, tables, stride, rows, \
			keys, values, pairs, distance, pair_stride, frequencies, magnitude, image, image_kind}); \
	}

CODES(64, 2)
CODES(64, 4)
CODES(128, 2)
CODES(128, 4)
