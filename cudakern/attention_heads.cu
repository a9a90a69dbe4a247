// Attention of up to four rows over a cache of float16, with the bits of attention.cu. At short and middle contexts such a launch
// takes as long as the chain of instructions of a warp. So a block has 8 warps for a unit, each of them EACH query heads of a tile,
// and the code is short.
//
// The warps of a tile load its keys and values together, all of them into registers at once. Where the row's own key and value come
// from this launch, that is before the launch before has ended (overlap.cuh): the others are of earlier steps, between which
// there are launches that do not overlap. Keys go to shared memory, then, when the scores are computed, values in their place.
// For the scores, a lane has one position; for values, WIDTH dimensions. After that a thread has a dimension of a query, of which it
// adds tiles, then units, and writes the result.
//
// Grid: (blocks of a row, kv heads and parts of their query heads, rows), as for attention of one row in attention.cu. Launch with
// blockDim.x = QUERIES / EACH · 128, the shared memory of HeadsMemory, and heads of WIDTH · 32 elements.

#include "attention.cu" // its functions; without VALUE_DIMS it has no kernels

// How the keys or values of a tile are divided among its warps.
template <int WIDTH, int QUERIES, int EACH> struct Division {
	enum {
		DIM = WIDTH * WARP,
		PIECES = DIM * sizeof(element) / 16,     // of 16 bytes, in a row
		AT_ONCE = WARP / PIECES,                 // rows that a warp loads at once
		THREADS = QUERIES / EACH * UNIT,
		ROWS = BLOCK_POSITIONS * EACH / QUERIES, // rows that a warp loads
		LOADS = ROWS / AT_ONCE,
		KEY_STRIDE = PIECES + 1, // keeps lanes from each other's banks
	};
};

// The shared memory of a block: headsMemory in attention_heads.go.
template <int WIDTH, int QUERIES, int EACH> struct HeadsMemory {
	typedef Division<WIDTH, QUERIES, EACH> D;
	uint4 rows[UNIT * D::KEY_STRIDE]; // keys, then values
	element own[2][D::DIM];           // the row's key and value, if this launch stores them
	float q[QUERIES][D::DIM];
	float e[QUERIES][UNIT];
	float out[TILES][QUERIES][D::DIM]; // a of each tile
	float tile_max[QUERIES][TILES], tile_sum[QUERIES][TILES];
	int flag[4];
};

#ifndef READ_ONLY
#define READ_ONLY "ld.global.nc"
#endif

// Loads through the read-only cache, not later than where it is called.
DEVICE uint4 request(const uint4 *p)
{
#ifdef EMU
	return ldg128(p);
#else
	uint4 v;
	asm volatile(READ_ONLY ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
#endif
}

// The warp's part of the keys and values of its tile of a unit: zero for positions that the row does not attend to, and its own.
template <int WIDTH, int QUERIES, int EACH> struct Requested {
	typedef Division<WIDTH, QUERIES, EACH> D;
	uint4 keys[D::LOADS], values[D::LOADS];

	// table: the blocks of the sequence; cache: the keys of the kv head in block 0.
	DEVICE void load(Requested &r, const Params &a, const Queries &n, const int *table, const uint4 *cache, int unit, int own)
	{
		const int start = unit * UNIT + warp_id() % TILES * BLOCK_POSITIONS, p = place(), first = n.low - start, last = n.high - start;
		const uint4 *keys = cache + p * D::PIECES + piece();
		if (first < BLOCK_POSITIONS && last >= 0)
			keys += (size_t)table[start / BLOCK_POSITIONS] * (unsigned(a.layers * 2 * a.kv_heads) * (BLOCK_POSITIONS * D::PIECES));
		const uint4 *const values = keys + (size_t)a.kv_heads * (BLOCK_POSITIONS * D::PIECES);
		UNROLL for (int j = 0; j < D::LOADS; j++) {
			const int at = p + j * D::AT_ONCE;
			r.keys[j] = r.values[j] = make_uint4(0, 0, 0, 0);
			if (first <= at && at <= last && start + at != own) {
				r.keys[j] = request(keys + j * (D::AT_ONCE * D::PIECES));
				r.values[j] = request(values + j * (D::AT_ONCE * D::PIECES));
			}
		}
	}

	// The lane's first position in the tile, and its piece of each row.
	DEVICE int place(void) { return warp_id() / TILES * D::ROWS + lane_id() / D::PIECES; }
	DEVICE int piece(void) { return lane_id() % D::PIECES; }

	DEVICE void store_keys(const Requested &r, uint4 *rows)
	{
		rows += (warp_id() % TILES * BLOCK_POSITIONS + place()) * D::KEY_STRIDE + piece();
		UNROLL for (int j = 0; j < D::LOADS; j++)
			rows[j * D::AT_ONCE * D::KEY_STRIDE] = r.keys[j];
	}

	// own: the row's position in the unit, or another number; value: its value.
	DEVICE void store_values(const Requested &r, uint4 *rows, int own, const element *value)
	{
		const int p = warp_id() % TILES * BLOCK_POSITIONS + place();
		UNROLL for (int j = 0; j < D::LOADS; j++) {
			const int at = p + j * D::AT_ONCE;
			rows[at * D::PIECES + piece()] = at == own ? reinterpret_cast<const uint4 *>(value)[piece()] : r.values[j];
		}
	}
};

// Copies the queries to shared memory, rotated if this launch does that; what no query has becomes zero. It then also copies the
// row's key, rotated, and value, and stores them in the cache, at position own. cos_sin: of the thread's pair.
template <int WIDTH, int QUERIES, int EACH>
DEVICE void load_heads(const Params &a, HeadsMemory<WIDTH, QUERIES, EACH> *m, const Queries &n, const int *table, int own, float2 cos_sin)
{
	enum { DIM = WIDTH * WARP, HALF = DIM / 2, THREADS = Division<WIDTH, QUERIES, EACH>::THREADS };
	static_assert(THREADS % HALF == 0, "a thread has the same pair of each head");
	const int pair = threadIdx.x % HALF;
	const Pair p = pair_of(a, pair);
	UNROLL for (int i = 0; i * THREADS < (QUERIES + 2) * HALF; i++) {
		const int head = (threadIdx.x + i * THREADS) / HALF; // QUERIES: the key, QUERIES + 1: the value
		if (head >= QUERIES + (a.keys != nullptr ? 2 : 0))
			break;
		const size_t kv = ((size_t)n.row * a.kv_heads + n.kv_head) * DIM;
		const float *from = head < QUERIES ? a.q + ((size_t)n.row * a.heads + n.head + head) * DIM : (head == QUERIES ? a.keys : a.values) + kv;
		float2 v = make_float2(0.0f, 0.0f);
		if (head < n.count || head >= QUERIES)
			v = make_float2(__ldcg(from + p.first), __ldcg(from + p.second));
		if (pair < a.pairs && head <= QUERIES)
			v = rotate(v.x, v.y, cos_sin);
		if (head < QUERIES) {
			m->q[head][p.first] = v.x;
			m->q[head][p.second] = v.y;
			continue;
		}
		const int kind = head - QUERIES;
		const element x = to_element(v.x), y = to_element(v.y);
		m->own[kind][p.first] = x;
		m->own[kind][p.second] = y;
		if (is_first_part(a, n)) {
			element *const to = const_cast<element *>(a.cache) + cache_index(table[own / BLOCK_POSITIONS], a.layer, a.layers, 2, kind, n.kv_head, a.kv_heads, DIM) + own % BLOCK_POSITIONS * DIM;
			to[p.first] = x, to[p.second] = y;
		}
	}
}

// score[i] = q[i]·key
template <int DIM, int EACH> DEVICE void dot_products(const float (*q)[DIM], const uint4 *key, float (&score)[EACH])
{
	UNROLL_BY(2) for (int d = 0; d < DIM; d += 8) {
		const uint4 v = key[d / 8];
		float k[8];
		halves(v.x, k);
		halves(v.y, k + 2);
		halves(v.z, k + 4);
		halves(v.w, k + 6);
		UNROLL for (int i = 0; i < EACH; i++)
			add_products(q[i] + d, k, &score[i]);
	}
}

template <int WIDTH> DEVICE void value_of(const element *p, float *v)
{
	if constexpr (WIDTH == 4) {
		const uint2 x = *reinterpret_cast<const uint2 *>(p);
		halves(x.x, v);
		halves(x.y, v + 2);
	} else
		halves(*reinterpret_cast<const uint32_t *>(p), v);
}

// Stores Σ e[i][p]·value[p] over positions first to last of a tile for the lane's dimensions; none: last < first. Batches are those
// of add_row_values, because the sum with a value that counts as 0 is rounded too.
template <int WIDTH, int EACH>
DEVICE void sum_values(const float *e, const element *values, int first, int last, float (*out)[WIDTH * WARP])
{
	enum { DIM = WIDTH * WARP, BATCH = 8 };
	float sum[EACH][WIDTH] = {};
	values += lane_id() * WIDTH;
	UNROLL_BY(1) for (int begin = first / BATCH * BATCH; begin <= last; begin += BATCH)
		UNROLL for (int j = 0; j < BATCH; j += 4) {
			float v[4][WIDTH];
			UNROLL for (int k = 0; k < 4; k++)
				value_of<WIDTH>(values + (begin + j + k) * DIM, v[k]);
			UNROLL for (int i = 0; i < EACH; i++) {
				const float4 w = *reinterpret_cast<const float4 *>(e + i * UNIT + begin + j);
				UNROLL for (int c = 0; c < WIDTH; c++) {
					sum[i][c] = fmaf(w.x, v[0][c], sum[i][c]);
					sum[i][c] = fmaf(w.y, v[1][c], sum[i][c]);
					sum[i][c] = fmaf(w.z, v[2][c], sum[i][c]);
					sum[i][c] = fmaf(w.w, v[3][c], sum[i][c]);
				}
			}
		}
	UNROLL for (int i = 0; i < EACH; i++)
		UNROLL for (int c = 0; c < WIDTH; c++)
			out[i][lane_id() * WIDTH + c] = sum[i][c];
}

// The sums of a query: of one of its dimensions.
struct Sums { float max, sum, out; };

// Returns the sums over one unit, from those of its tiles: outs are apart floats apart. All tiles of it are computed.
DEVICE Sums tile_sums(const float *tile_max, const float *tile_sum, const float *outs, int apart)
{
	const float4 max = *reinterpret_cast<const float4 *>(tile_max), sum = *reinterpret_cast<const float4 *>(tile_sum);
	float out = *outs + 0.0f;
	UNROLL for (int tile = 1; tile < TILES; tile++)
		out = outs[tile * apart] + out;
	return {fmaxf(fmaxf(max.x, max.y), fmaxf(max.z, max.w)), ((sum.x + sum.y) + sum.z) + sum.w, out};
}

template <int WIDTH, int QUERIES, int EACH> DEVICE Sums unit_sums(const HeadsMemory<WIDTH, QUERIES, EACH> *m, int query, int d)
{
	return tile_sums(m->tile_max[query], m->tile_sum[query], &m->out[0][query][d], QUERIES * WIDTH * WARP);
}

// Adds a unit to the sums of those before it.
DEVICE void add_unit(Sums *all, const Sums &unit)
{
	float scale, unit_scale;
	rescale(&all->max, unit.max, &scale, &unit_scale);
	all->sum = accumulate(all->sum, scale, unit.sum, unit_scale);
	all->out = accumulate(all->out, scale, unit.out, unit_scale);
}

// Adds all units up in ascending order, from their partials: for dimension d of query and of the queries APART behind it. All lanes of a warp have the
// same queries. While units are added, the partials of the next ones are on their way.
template <int APART, int COUNT> DEVICE void add_partials(const Params &a, const Queries &n, int query, int d, Sums (&all)[COUNT])
{
	enum { AT_ONCE = 8 };
	const int lane = lane_id(), end = n.high / UNIT + 1, size = a.value_dim + 2;
	UNROLL_BY(1) for (int begin = n.low / UNIT; begin < end; begin += WARP) {
		const int count = min(end - begin, int(WARP));
		const float *partials[COUNT];
		float m[COUNT], sum[COUNT], next[COUNT][AT_ONCE];
		const auto load = [&](int first) {
			UNROLL for (int j = 0; j < AT_ONCE; j++)
				UNROLL for (int i = 0; i < COUNT; i++)
					next[i][j] = __ldcg(partials[i] + min(first + j, count - 1) * size + 2 + d);
		};
		UNROLL for (int i = 0; i < COUNT; i++) {
			partials[i] = partial_of(a, n, min(query + i * APART, n.count - 1), begin);
			const float *const partial = partials[i] + min(lane, count - 1) * size;
			m[i] = lane < count ? __ldcg(partial) : MINUS_INFINITY, sum[i] = __ldcg(partial + 1);
		}
		load(0);
		float scale[COUNT], unit_scale[COUNT];
		UNROLL for (int i = 0; i < COUNT; i++) {
			float prefix = m[i]; // maximum of the units up to the lane's
			UNROLL_BY(1) for (int distance = 1; distance < WARP; distance *= 2) {
				const float earlier = shfl_up(prefix, distance);
				prefix = fmaxf(prefix, lane >= distance ? earlier : MINUS_INFINITY);
			}
			const float before = shfl_up(prefix, 1);
			float previous = lane == 0 ? all[i].max : fmaxf(all[i].max, before);
			rescale(&previous, m[i], &scale[i], &unit_scale[i]);
			all[i].max = fmaxf(all[i].max, shfl(prefix, WARP - 1));
		}
		UNROLL_BY(1) for (int u = 0; u < count; u += AT_ONCE) {
			float v[COUNT][AT_ONCE];
			memcpy(v, next, sizeof v);
			if (u + AT_ONCE < count)
				load(u + AT_ONCE);
			UNROLL_BY(AT_ONCE) for (int j = 0; j < AT_ONCE; j++)
				UNROLL for (int i = 0; i < COUNT; i++) {
					const float s = shfl(scale[i], u + j), us = shfl(unit_scale[i], u + j), l = shfl(sum[i], u + j);
					if (u + j < count) {
						all[i].sum = accumulate(all[i].sum, s, l, us);
						all[i].out = accumulate(all[i].out, s, v[i][j], us);
					}
				}
		}
	}
}

// atomicInc that orders what the block has stored before it, and reads after it. Before it, and after it, are barriers.
DEVICE unsigned increment_ordered(unsigned *p, unsigned last)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 700
	unsigned v;
	asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(v) : "l"(p), "r"(last) : "memory");
	return v;
#else
	__threadfence();
	const unsigned v = atomicInc(p, last);
	__threadfence();
	return v;
#endif
}

// Reports to all threads whether the block is the last of blocks that have stored their partials; *arrivals returns to 0.
DEVICE bool arrives_last(unsigned *arrivals, int blocks, int *flag)
{
	syncthreads();
	if (threadIdx.x == 0)
		*flag = increment_ordered(arrivals, blocks - 1) == unsigned(blocks - 1);
	syncthreads();
	return *flag;
}

// Writes one dimension of the result of a query; a warp writes 32 of one query, a block of the image.
DEVICE void write_result(const Params &a, const Queries &n, int query, int d, Sums all)
{
	float scale = 1.0f;
	if (a.sinks != nullptr)
		add_sink(a.sinks[n.head + query], &all.max, &all.sum, &scale);
	const float v = all.out * scale / all.sum;
	const int at = (n.head + query) * a.value_dim + d, block = at / BLOCK_INPUTS % TILE_BLOCKS;
	const size_t width = (size_t)a.heads * a.value_dim, tile = (n.row * width + at) / (BLOCK_INPUTS * TILE_BLOCKS);
	if (a.image_kind == NO_IMAGE)
		a.dst[n.row * width + at] = v;
	else if (a.image_kind == IMAGE_I16)
		write_i16(a.image + tile * I16_UNITS, block, v);
	else
		write_f32(a.image + tile * F32_UNITS, block, v);
}

// Adds up all units of n, whose partials blocks blocks store, or the only one, which sums_of(query, dimension) returns, and writes the results.
template <int DIM, int QUERIES, int THREADS, typename F>
DEVICE void finish_heads(const Params &a, const Queries &n, int units, int blocks, int *flag, const F &sums_of)
{
	if (units > 1 && !arrives_last(a.arrivals + n.row * gridDim.y + blockIdx.y, blocks, flag))
		return;
	enum { APART = THREADS / DIM, COUNT = QUERIES > APART ? QUERIES / APART : 1 };
	const int query = threadIdx.x / DIM, d = threadIdx.x % DIM;
	if (query >= n.count)
		return;
	static_assert(COUNT <= 2, "below, a thread has two results");
	Sums all[COUNT];
	UNROLL for (int i = 0; i < COUNT; i++)
		all[i] = {MINUS_INFINITY, 0.0f, 0.0f};
	if (units > 1)
		add_partials<APART>(a, n, query, d, all);
	UNROLL_BY(1) for (int i = 0; query + i * APART < n.count && i < COUNT; i++) {
		Sums own = {MINUS_INFINITY, 0.0f, 0.0f};
		if (units > 1)
			own = i == 0 ? all[0] : all[COUNT - 1];
		else
			add_unit(&own, sums_of(query + i * APART, d));
		write_result(a, n, query + i * APART, d, own);
	}
}

template <int WIDTH, int QUERIES, int EACH> DEVICE void attend_heads(HeadsMemory<WIDTH, QUERIES, EACH> *m, const Params &a)
{
	typedef Requested<WIDTH, QUERIES, EACH> Rows;
	typedef Division<WIDTH, QUERIES, EACH> D;
	const int t = threadIdx.x, lane = lane_id(), tile = warp_id() % TILES, head = warp_id() / TILES * EACH;
	const int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads;
	const bool stores = a.keys != nullptr;
	begin_next();
	Queries n;
	n.row = blockIdx.z;
	const int rows = *a.rows, pos = a.pos[n.row], end = a.last[n.row], sequence = a.seq[n.row]; // loads at once
	const int pair = t % (D::DIM / 2);
	const uint64_t frequency = pair < a.pairs ? a.frequencies[pair] : 0;
	n.kv_head = blockIdx.y / parts;
	n.head = n.kv_head * group + blockIdx.y % parts * a.block_heads;
	n.count = n.heads = min(a.block_heads, (n.kv_head + 1) * group - n.head);
	n.high = min(end, pos + a.after), n.low = max(0, pos - a.before);
	const int first_unit = n.low / UNIT, units = n.high / UNIT - first_unit + 1, blocks = min(int(gridDim.x), units), own = stores ? n.high : -1;
	if (n.row >= rows || int(blockIdx.x) >= blocks) {
		wait_for_previous();
		return;
	}
	if (!stores)
		wait_for_previous(); // it may have stored keys and values
	const int *const table = a.tables + (size_t)sequence * a.stride;
	const uint4 *const cache = reinterpret_cast<const uint4 *>(a.cache + cache_index(0, a.layer, a.layers, 2, KEYS, n.kv_head, a.kv_heads, D::DIM));
	Rows r;
	Rows::load(r, a, n, table, cache, first_unit + blockIdx.x, own);
	float sine, cosine;
	sincos_fixed((uint64_t)(uint32_t)pos * frequency, &sine, &cosine);
	const float2 cos_sin = make_float2(cosine * a.magnitude, sine * a.magnitude);
	wait_for_previous();
	load_heads<WIDTH, QUERIES, EACH>(a, m, n, table, own, cos_sin);

	UNROLL_BY(1) for (int unit = first_unit + blockIdx.x; unit < first_unit + units; unit += blocks) {
		const int start = unit * UNIT + tile * BLOCK_POSITIONS;
		const int first = max(n.low - start, 0), last = min(n.high - start, BLOCK_POSITIONS - 1); // none: last < first
		const bool attended = first <= lane && lane <= last;
		Rows::store_keys(r, m->rows);
		syncthreads();
		const int p = tile * BLOCK_POSITIONS + lane;
		float score[EACH] = {};
		dot_products<D::DIM, EACH>(m->q + head, start + lane == own ? reinterpret_cast<const uint4 *>(m->own[KEYS]) : m->rows + p * D::KEY_STRIDE, score);
		if (a.inner > 0.0f)
			UNROLL for (int i = 0; i < EACH; i++)
				score[i] = tanh_of(score[i] * a.inner);
		UNROLL for (int i = 0; i < EACH; i++) {
			score[i] = attended ? score[i] * a.scale : MINUS_INFINITY;
			const float max = warp_max(score[i]);
			if (lane == 0)
				m->tile_max[head + i][tile] = max;
		}
		syncthreads(); // the keys are no longer needed either
		Rows::store_values(r, m->rows, own - unit * UNIT, m->own[VALUES]);
		if (unit + blocks < first_unit + units)
			Rows::load(r, a, n, table, cache, unit + blocks, own);
		UNROLL for (int i = 0; i < EACH; i++) {
			const float4 max = *reinterpret_cast<const float4 *>(m->tile_max[head + i]);
			const float e = attended ? exp2_of(score[i] - fmaxf(fmaxf(max.x, max.y), fmaxf(max.z, max.w))) : 0.0f, sum = warp_sum(e);
			m->e[head + i][p] = e;
			if (lane == 0)
				m->tile_sum[head + i][tile] = sum;
		}
		syncthreads();
		sum_values<WIDTH, EACH>(m->e[head] + tile * BLOCK_POSITIONS, reinterpret_cast<const element *>(m->rows) + tile * BLOCK_POSITIONS * D::DIM, first, last, m->out[tile] + head);
		syncthreads();
		if (units > 1)
			UNROLL_BY(1) for (int x = t; x < n.count * D::DIM; x += D::THREADS) {
				const int query = x / D::DIM, d = x % D::DIM;
				const Sums sums = unit_sums(m, query, d);
				float *const partial = partial_of(a, n, query, unit);
				partial[2 + d] = sums.out;
				if (d == 0)
					partial[0] = sums.max, partial[1] = sums.sum;
			}
	}
	finish_heads<D::DIM, QUERIES, D::THREADS>(a, n, units, blocks, m->flag, [&](int query, int d) { return unit_sums(m, query, d); });
}

// Kernels for up to queries query heads of dims elements; a warp computes each of them.
#define HEADS(dims, queries, each) \
	KERNEL(attention_heads_d##dims##_n##queries, 128 * queries / each, 2)(float *dst, float *partials, unsigned *arrivals, const float *q, element *cache, \
		int layer, int layers, int heads, int kv_heads, int dim, [[maybe_unused]] int value_dim, const float *sinks, float scale, float inner, int before, int after, int block_rows, int block_heads, int units, \
		const int *pos, const int *last, const int *seq, const int *tables, int stride, const int *rows, \
		const float *keys, const float *values, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude, \
		uint4 *image, int image_kind) \
	{ \
		typedef HeadsMemory<dims / 32, queries, each> Memory; \
		SHARED(Memory, memory); \
		attend_heads<dims / 32, queries, each>(memory, {dst, partials, arrivals, q, CACHE_OF_PARAMS, layer, layers, 2, heads, kv_heads, dim, dim, sinks, \
			scale, inner, before, after, block_rows, block_heads, units, pos, last, seq, tables, stride, rows, \
			keys, values, pairs, distance, pair_stride, frequencies, magnitude, image, image_kind}); \
	}

#if !defined(QUANTIZED)
HEADS(64, 2, 1)
HEADS(64, 4, 2)
HEADS(128, 2, 1)
HEADS(128, 4, 2)
#endif
#if defined(QUANTIZED) || defined(ALL_HEADS)
#include "attention_heads_quantized.cuh"
#endif
