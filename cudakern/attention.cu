// Attention: o = softmax(q·kᵀ·scale)·v for every row and query head, over the positions of
// the row's sequence that the row sees.
//
// What a row and head compute never depends on their neighbours. Positions fall into
// units of 128 (0-127, 128-255, …) and these into four tiles of 32, each one block of
// the cache. In a unit, in float32:
//
//	s[p] = q·k[p] · scale·log2 e     dimensions in ascending order, fused multiply-adds; with a
//	                                 cap, tanh(q·k[p] · scale/cap) · cap·log2 e
//	m    = max s,  e[p] = 2^(s[p]-m)
//	l    = Σ e[p]                    a tile's in a tree, then tile after tile
//	a    = Σ e[p]·v[p]               a tile's positions in ascending order, then tile after tile
//
// and units are added up in ascending order, each time brought to the larger m. Where and
// by whom a unit is computed changes no bit of it, so decode and prefill share the code:
//
// A block takes up to QUERIES query vectors: the heads that share a kv head, and in
// prefill of neighbouring rows too. It loads keys and values once for all of them. For the
// scores a thread is a position and reads its whole key; for the sums a lane is WIDTH
// dimensions and reads its piece of the values of its warp's tile.
//
// Few rows (decode): the units of a row are dealt out to the blocks of gridDim.x, which
// leave (m, l, a) of each unit in memory for a second kernel to add up. Many rows: a block
// goes through all units of its rows and adds them up itself.
#include "kvcache.cuh"
#include "math.cuh"

#if defined(CACHE_F16)
#define NAME(dims, queries) attention_f16_d##dims##_n##queries
#define MERGE attention_f16_merge
#else
#define NAME(dims, queries) attention_f32_d##dims##_n##queries
#define MERGE attention_f32_merge
#endif

#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) PRAGMA(unroll n)

enum { TILES = 4, UNIT = TILES * BLOCK_POSITIONS };

#define NEVER bits_to_float(0xff800000) // -Inf: the maximum of no scores

// What of a unit with maximum m, and of the units before it with maximum *top, counts
// once they are brought to the larger of the two, which becomes *top.
DEVICE void rescale(float *top, float m, float *before, float *unit)
{
	float larger = fmaxf(*top, m);
	*before = *top == larger ? 1.0f : exp2_of(*top - larger);
	*unit = m == larger ? 1.0f : exp2_of(m - larger);
	*top = larger;
}

DEVICE float accumulate(float sum, float before, float v, float unit) { return fmaf(v, unit, sum * before); }

// Adds a sink to the units of a query, as a unit of weight 1 and no values: sums count *before
// times after it.
DEVICE void add_sink(float sink, float *top, float *total, float *before)
{
	float unit;
	rescale(top, sink * LOG2_E, before, &unit);
	*total = accumulate(*total, *before, 1.0f, unit);
}

// Elements of the cache as float.
#if defined(CACHE_F16)
DEVICE void halves(uint32_t pair, float *v)
{
	v[0] = half_to_float((uint16_t)(pair & 0xffff));
	v[1] = half_to_float((uint16_t)(pair >> 16));
}

DEVICE void load4(const element *p, float *v)
{
	uint2 x = ldg64(p);
	halves(x.x, v);
	halves(x.y, v + 2);
}

DEVICE void load8(const element *p, float *v)
{
	uint4 x = ldg128(p);
	halves(x.x, v);
	halves(x.y, v + 2);
	halves(x.z, v + 4);
	halves(x.w, v + 6);
}

DEVICE float load1(const element *p) { return half_to_float(ldg16(p)); }
#else
DEVICE void load4(const element *p, float *v)
{
	float4 x = ldg_float4(p);
	v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
}

DEVICE void load8(const element *p, float *v)
{
	load4(p, v);
	load4(p + 4, v + 4);
}

DEVICE float load1(const element *p) { return ldg_float(p); }
#endif

template <int WIDTH> DEVICE void load(const element *p, float *v)
{
	if (WIDTH == 16) {
		load8(p, v);
		load8(p + 8, v + 8);
	} else if (WIDTH == 8)
		load8(p, v);
	else if (WIDTH == 4)
		load4(p, v);
	else
		UNROLL for (int c = 0; c < WIDTH; c++)
			v[c] = load1(p + c);
}

// What a block shares: QUERIES of each.
struct Shared {
	float *e;          // (UNIT) weights
	float *top, *mass; // (TILES) of the tiles: largest score, sum of weights
	float *most;       // m and l of the units so far
	float *total;
	float *before; // what rescale said
	float *unit;
	int *first, *last; // positions that the query sees; none: last < first
	float *q;          // (q_stride)
	float *sum;        // (WIDTH·32) a of the unit
	float *out;        // (WIDTH·32) and of the units so far
};

template <int WIDTH, int QUERIES> DEVICE Shared share(float *memory, int q_stride)
{
	Shared s;
	s.e = memory;
	s.top = s.e + QUERIES * UNIT;
	s.mass = s.top + QUERIES * TILES;
	s.most = s.mass + QUERIES * TILES;
	s.total = s.most + QUERIES;
	s.before = s.total + QUERIES;
	s.unit = s.before + QUERIES;
	s.first = reinterpret_cast<int *>(s.unit + QUERIES);
	s.last = s.first + QUERIES;
	s.q = s.unit + 5 * QUERIES; // of which two are for its alignment to 16 bytes
	s.sum = s.q + QUERIES * q_stride;
	s.out = s.sum + QUERIES * WIDTH * WARP;
	return s;
}

DEVICE bool sees(const Shared &s, int query, int p) { return s.first[query] <= p && p <= s.last[query]; }

// The largest score and the sum of weights of a query in the unit.
DEVICE float unit_top(const Shared &s, int query)
{
	const float *top = s.top + query * TILES;
	return fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
}

DEVICE float unit_mass(const Shared &s, int query)
{
	const float *mass = s.mass + query * TILES;
	return ((mass[0] + mass[1]) + mass[2]) + mass[3];
}

struct Problem {
	float *dst, *partials; // partials: memory for what units leave, or none
	const float *q;
	const element *cache;
	int layer, layers, parts, heads, kv_heads, dim, value_dim; // parts: of the cache
	const float *sinks; // (heads) scores of a position more, whose value is zero; or none
	float scale, inner; // of the scores: the last factor above; what is in tanh, 0 without a cap
	int window, block_rows, block_heads, units;
	const int *pos, *seq, *tables;
	int stride;
	const int *rows;
};

// The queries of a block: heads of neighbouring rows of one sequence.
struct Queries {
	int row, head, heads, count; // count: rows · heads
	int kv_head;
	int low, high; // positions that any of them sees
};

// The place of query i in an array of (rows, all heads).
DEVICE size_t query_at(const Queries &n, int i, int all_heads) { return (size_t)(n.row + i / n.heads) * all_heads + n.head + i % n.heads; }

// Floats from query to query: a multiple of 16 bytes.
DEVICE int stride_of(int dim) { return (dim + 3) / 4 * 4; }

// score[i] += q[i]·key
template <int WIDTH, int QUERIES> DEVICE void dots(const float *q, const element *key, int dim, float *score)
{
	const int stride = stride_of(dim);
	if (dim % 8 != 0) {
		UNROLL_BY(1) for (int d = 0; d < dim; d++) {
			float k = load1(key + d);
			UNROLL for (int i = 0; i < QUERIES; i++)
				score[i] = fmaf(q[i * stride + d], k, score[i]);
		}
		return;
	}
	UNROLL_BY(2) for (int d = 0; d < dim; d += 8) {
		float k[8];
		load8(key + d, k);
		UNROLL for (int i = 0; i < QUERIES; i++) {
			float4 a = *reinterpret_cast<const float4 *>(q + i * stride + d);
			float4 b = *reinterpret_cast<const float4 *>(q + i * stride + d + 4);
			score[i] = fmaf(a.x, k[0], score[i]);
			score[i] = fmaf(a.y, k[1], score[i]);
			score[i] = fmaf(a.z, k[2], score[i]);
			score[i] = fmaf(a.w, k[3], score[i]);
			score[i] = fmaf(b.x, k[4], score[i]);
			score[i] = fmaf(b.y, k[5], score[i]);
			score[i] = fmaf(b.z, k[6], score[i]);
			score[i] = fmaf(b.w, k[7], score[i]);
		}
	}
}

// sum[i] += Σ e[p]·value[p] over the positions from low to high of the tile that begins at
// position start; e and value begin there too.
template <int WIDTH, int QUERIES>
DEVICE void weigh(const Shared &s, const Queries &n, const float *e, const element *value, int dim, int start, int low, int high,
	float sum[QUERIES][WIDTH])
{
	bool all = low == start && high == start + BLOCK_POSITIONS - 1;
	UNROLL_BY(1) for (int i = 0; i < n.count; i++)
		all = all && sees(s, i, low) && sees(s, i, high);
	if (all) {
		UNROLL_BY(1) for (int p = 0; p < BLOCK_POSITIONS; p += 4) {
			float v[4][WIDTH];
			UNROLL for (int j = 0; j < 4; j++)
				load<WIDTH>(value + (p + j) * dim, v[j]);
			UNROLL for (int i = 0; i < QUERIES; i++) {
				float4 w = *reinterpret_cast<const float4 *>(e + i * UNIT + p);
				UNROLL for (int c = 0; c < WIDTH; c++) {
					sum[i][c] = fmaf(w.x, v[0][c], sum[i][c]);
					sum[i][c] = fmaf(w.y, v[1][c], sum[i][c]);
					sum[i][c] = fmaf(w.z, v[2][c], sum[i][c]);
					sum[i][c] = fmaf(w.w, v[3][c], sum[i][c]);
				}
			}
		}
		return;
	}
	// A position that a query does not see must not touch it, not even with weight 0: it
	// may hold no number.
	UNROLL_BY(1) for (int p = low; p <= high; p++) {
		float v[WIDTH];
		load<WIDTH>(value + (p - start) * dim, v);
		UNROLL for (int i = 0; i < QUERIES; i++)
			if (sees(s, i, p))
				UNROLL for (int c = 0; c < WIDTH; c++)
					sum[i][c] = fmaf(e[i * UNIT + p - start], v[c], sum[i][c]);
	}
}

// One unit: fills s.top, s.mass and s.sum.
template <int WIDTH, int QUERIES> DEVICE void attend_unit(const Problem &a, const Shared &s, const Queries &n, int unit)
{
	int lane = lane_id(), tile = warp_id(), start = unit * UNIT + tile * BLOCK_POSITIONS, p = start + lane;
	int low = max(n.low, start), high = min(n.high, start + BLOCK_POSITIONS - 1);
	const element *keys = a.cache, *values = a.cache;
	if (low <= high) {
		int block = a.tables[(size_t)a.seq[n.row] * a.stride + start / BLOCK_POSITIONS];
		keys += cache_at(block, a.layer, a.layers, a.parts, KEYS, n.kv_head, a.kv_heads, a.dim);
		values += cache_at(block, a.layer, a.layers, a.parts, a.parts - 1, n.kv_head, a.kv_heads, a.dim);
	}

	float score[QUERIES] = {};
	if (low <= p && p <= high)
		dots<WIDTH, QUERIES>(s.q, keys + lane * a.dim, a.dim, score);
	if (a.inner > 0.0f)
		UNROLL for (int i = 0; i < QUERIES; i++)
			score[i] = tanh_of(score[i] * a.inner);
	UNROLL for (int i = 0; i < QUERIES; i++) {
		score[i] = sees(s, i, p) ? score[i] * a.scale : NEVER;
		float top = warp_max(score[i]);
		if (lane == 0)
			s.top[i * TILES + tile] = top;
	}
	syncthreads();
	UNROLL for (int i = 0; i < QUERIES; i++) {
		float e = sees(s, i, p) ? exp2_of(score[i] - unit_top(s, i)) : 0.0f;
		s.e[i * UNIT + threadIdx.x] = e;
		float mass = warp_sum(e);
		if (lane == 0)
			s.mass[i * TILES + tile] = mass;
	}
	syncwarp();

	int d = lane * WIDTH;
	float sum[QUERIES][WIDTH] = {};
	if (low <= high && d < a.value_dim)
		weigh<WIDTH, QUERIES>(s, n, s.e + tile * BLOCK_POSITIONS, values + d, a.dim, start, low, high, sum);
	UNROLL_BY(1) for (int turn = 0; turn < TILES; turn++) {
		if (turn == tile && d < a.value_dim)
			UNROLL for (int i = 0; i < QUERIES; i++)
				UNROLL for (int c = 0; c < WIDTH; c++)
					s.sum[i * WIDTH * WARP + d + c] = sum[i][c] + (turn == 0 ? 0.0f : s.sum[i * WIDTH * WARP + d + c]);
		syncthreads();
	}
}

// Attention of one block's queries.
template <int WIDTH, int QUERIES> DEVICE void attend_queries(const Problem &a, const Shared &s, Queries n)
{
	int t = threadIdx.x;
	syncthreads(); // the queries before may still be in use
	if (t < QUERIES) {
		int p = t < n.count ? a.pos[n.row + t / n.heads] : -1;
		s.last[t] = p;
		s.first[t] = max(0, p - a.window + 1);
		s.most[t] = NEVER;
		s.total[t] = 0.0f;
	}
	for (int i = 0; i < QUERIES; i++) {
		for (int d = t; d < a.dim; d += UNIT)
			s.q[i * stride_of(a.dim) + d] = i < n.count ? a.q[query_at(n, i, a.heads) * a.dim + d] : 0.0f;
		for (int d = t; d < a.value_dim; d += UNIT)
			s.out[i * WIDTH * WARP + d] = 0.0f;
	}
	syncthreads();
	n.low = s.first[0], n.high = s.last[0];
	for (int i = 1; i < n.count; i++)
		n.low = min(n.low, s.first[i]), n.high = max(n.high, s.last[i]);

	for (int unit = n.low / UNIT + blockIdx.x; unit <= n.high / UNIT; unit += gridDim.x) {
		attend_unit<WIDTH, QUERIES>(a, s, n, unit);
		if (a.partials != nullptr) {
			for (int i = 0; i < n.count; i++) {
				float *partial = a.partials + (query_at(n, i, a.heads) * a.units + unit) * (a.value_dim + 2);
				if (t == 0) {
					partial[0] = unit_top(s, i);
					partial[1] = unit_mass(s, i);
				}
				for (int d = t; d < a.value_dim; d += UNIT)
					partial[2 + d] = s.sum[i * WIDTH * WARP + d];
			}
			syncthreads();
			continue;
		}
		if (t < QUERIES) {
			rescale(&s.most[t], unit_top(s, t), &s.before[t], &s.unit[t]);
			s.total[t] = accumulate(s.total[t], s.before[t], unit_mass(s, t), s.unit[t]);
		}
		syncthreads();
		for (int i = 0; i < n.count; i++)
			for (int d = t; d < a.value_dim; d += UNIT)
				s.out[i * WIDTH * WARP + d] = accumulate(s.out[i * WIDTH * WARP + d], s.before[i], s.sum[i * WIDTH * WARP + d], s.unit[i]);
	}
	if (a.partials != nullptr)
		return;
	syncthreads(); // before may still be read
	if (t < n.count) {
		s.before[t] = 1.0f;
		if (a.sinks != nullptr)
			add_sink(a.sinks[n.head + t % n.heads], &s.most[t], &s.total[t], &s.before[t]);
	}
	syncthreads();
	for (int i = 0; i < n.count; i++)
		for (int d = t; d < a.value_dim; d += UNIT)
			a.dst[query_at(n, i, a.heads) * a.value_dim + d] = s.out[i * WIDTH * WARP + d] * s.before[i] / s.total[i];
}

template <int WIDTH, int QUERIES> DEVICE void attend(float *memory, const Problem &a)
{
	Shared s = share<WIDTH, QUERIES>(memory, stride_of(a.dim));
	int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads;
	Queries n;
	n.kv_head = blockIdx.y / parts;
	n.head = n.kv_head * group + blockIdx.y % parts * a.block_heads;
	n.heads = min(a.block_heads, (n.kv_head + 1) * group - n.head);
	int row = blockIdx.z * a.block_rows, end = min(row + a.block_rows, *a.rows);
	while (row < end) { // each run of rows of one sequence
		n.row = row++;
		while (row < end && a.seq[row] == a.seq[n.row])
			row++;
		n.count = (row - n.row) * n.heads;
		attend_queries<WIDTH, QUERIES>(a, s, n);
	}
}

// For values of up to dims elements.
#define ATTENTION(dims, queries, blocks) \
	KERNEL(NAME(dims, queries), 128, blocks)(float *dst, float *partials, const float *q, const element *cache, \
		int layer, int layers, int parts, int heads, int kv_heads, int dim, int value_dim, const float *sinks, float scale, float inner, int window, int block_rows, int block_heads, int units, \
		const int *pos, const int *seq, const int *tables, int stride, const int *rows) \
	{ \
		SHARED(float, memory); \
		attend<dims / 32, queries>(memory, {dst, partials, q, cache, layer, layers, parts, heads, kv_heads, dim, value_dim, sinks, scale, inner, window, block_rows, \
			block_heads, units, pos, seq, tables, stride, rows}); \
	}

ATTENTION(32, 1, 8)
ATTENTION(32, 2, 7)
ATTENTION(32, 4, 5)
ATTENTION(32, 8, 4)
ATTENTION(32, 16, 4)
ATTENTION(64, 1, 8)
ATTENTION(64, 2, 7)
ATTENTION(64, 4, 5)
ATTENTION(64, 8, 4)
ATTENTION(64, 16, 4)
ATTENTION(128, 1, 8)
ATTENTION(128, 2, 8)
ATTENTION(128, 4, 5)
ATTENTION(128, 8, 4)
ATTENTION(128, 16, 3)
ATTENTION(256, 1, 8)
ATTENTION(256, 2, 6)
ATTENTION(256, 4, 4)
ATTENTION(256, 8, 3)
ATTENTION(512, 1, 4)
ATTENTION(512, 2, 4)
ATTENTION(512, 4, 3)

// Adds up what the units of a row and head left: a block for each, a thread for up to four
// dimensions.
KERNEL(MERGE, 128, 8)(float *dst, const float *partials, const float *sinks, int heads, int dim, int window, int units, const int *pos, const int *rows)
{
	SHARED(float, tops); // of the units before
	float *before = tops + UNIT, *unit = before + UNIT;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;
	size_t of = (size_t)row * heads + blockIdx.x;
	int last = pos[row] / UNIT, first = max(0, pos[row] - window + 1) / UNIT;
	partials += of * units * (dim + 2);
	float top = NEVER, total = 0.0f, sum[4] = {}, left = 1.0f;
	for (int begin = first; begin <= last; begin += UNIT) {
		int count = min(UNIT, last - begin + 1);
		const float *partial = partials + (size_t)begin * (dim + 2);
		float m = t < count ? partial[t * (dim + 2)] : NEVER;
		// The maximum over all before: each step doubles how far back it reaches.
		tops[t] = m;
		for (int reach = 1; reach < UNIT; reach *= 2) {
			syncthreads();
			float further = t >= reach ? tops[t - reach] : NEVER;
			syncthreads();
			tops[t] = fmaxf(tops[t], further);
		}
		syncthreads();
		float upto = t == 0 ? top : fmaxf(top, tops[t - 1]);
		rescale(&upto, m, &before[t], &unit[t]);
		top = fmaxf(top, tops[UNIT - 1]);
		syncthreads();
		UNROLL_BY(4) for (int u = 0; u < count; u++, partial += dim + 2) {
			total = accumulate(total, before[u], partial[1], unit[u]);
			UNROLL for (int k = 0; k < 4; k++)
				if (t + k * UNIT < dim)
					sum[k] = accumulate(sum[k], before[u], partial[2 + t + k * UNIT], unit[u]);
		}
		syncthreads();
	}
	if (sinks != nullptr)
		add_sink(sinks[blockIdx.x], &top, &total, &left);
	UNROLL for (int k = 0; k < 4; k++)
		if (t + k * UNIT < dim)
			dst[of * dim + t + k * UNIT] = sum[k] * left / total;
}
