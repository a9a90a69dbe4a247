// Attention: o = softmax(q·kᵀ·scale)·v for every row and query head, over the positions that the
// row attends to in its sequence.
//
// The bits of a row and head do not depend on the other rows and heads of the batch. Positions are
// divided into units of 128 (0-127, 128-255, …), and a unit into four tiles of 32, each one block of the
// KV cache. Computed for a unit, in float32:
//
//	s[p] = q·k[p] · scale·log2 e     fused multiply-adds over ascending dimensions; with a soft
//	                                 cap, tanh(q·k[p] · scale/cap) · cap·log2 e
//	m    = max s,  e[p] = 2^(s[p]-m)
//	l    = Σ e[p]                    a tree within a tile, then over ascending tiles
//	a    = Σ e[p]·v[p]               over ascending positions of a tile, then over ascending tiles
//
// Units are added in ascending order, rescaled to the larger m each time. The result for a unit has the
// same bits whichever block computes it, so decode and prefill share this code.
//
// A thread block computes up to QUERIES query vectors: the heads that share a kv head, in prefill those
// of several consecutive rows. It loads keys and values once for all of them. For the scores, each
// thread has one position and reads its whole key; for a, each lane has WIDTH dimensions and reads them
// from the values of its warp's tile.
//
// Fewer rows (attention_row.cuh): a block computes units of one row. Up to 16 rows share the device: the
// blocks along gridDim.x divide the units of a row among them and store (m, l, a) of each unit to memory;
// the last one combines them. Many rows of a prompt: a block computes all units of consecutive rows.
#include "arrivals.cuh"
#include "image.cuh"
#include "kvcache.cuh"
#include "math.cuh"
#include "overlap.cuh"
#include "rope.cuh"

#if defined(CACHE_F16) && defined(LATENT)
#define NAME(what) attention_f16_latent_##what
#elif defined(CACHE_F16)
#define NAME(what) attention_f16_##what
#elif defined(LATENT)
#define NAME(what) attention_any_latent_##what
#else
#define NAME(what) attention_any_##what
#endif

// Values of a latent cache are the first elements of its keys. In any other, keys and values have the same
// size, which bounds the size of queries: with that constant, their addresses need fewer registers.
#if defined(LATENT)
enum { IS_LATENT = 1 };
#else
enum { IS_LATENT = 0 };
#endif

#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) PRAGMA(unroll (n))

enum { TILES = 4, UNIT = TILES * BLOCK_POSITIONS };

#define MINUS_INFINITY bits_to_float(0xff800000) // the maximum of no scores

// Raises *max to m, the maximum of the next unit. *scale and *unit_scale become the factors for the sums
// of the units so far and of the next one.
DEVICE void rescale(float *max, float m, float *scale, float *unit_scale)
{
	float larger = fmaxf(*max, m);
	*scale = *max == larger ? 1.0f : exp2_of(*max - larger);
	*unit_scale = m == larger ? 1.0f : exp2_of(m - larger);
	*max = larger;
}

DEVICE float accumulate(float sum, float scale, float unit, float unit_scale) { return fmaf(unit, unit_scale, sum * scale); }

// Adds an attention sink to the sums of a query: a score whose value is zero. *scale becomes the factor
// for the values.
DEVICE void add_sink(float sink, float *max, float *sum, float *scale)
{
	float unit_scale;
	rescale(max, sink * LOG2_E, scale, &unit_scale);
	*sum = accumulate(*sum, *scale, 1.0f, unit_scale);
}

// Loads of cache elements, converted to float: those of any format are in kvcache.cuh.
#if defined(CACHE_F16)
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
#endif

template <int WIDTH> DEVICE void load(Elements p, float *v)
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

// Shared memory of a block, of each QUERIES times:
struct Shared {
	float *e;                   // (UNIT) of the unit
	float *tile_max, *tile_sum; // (TILES) the maximum and the sum of e of each tile
	float *max, *sum;           // m and l of the units so far
	float *scale, *unit_scale;  // set by rescale
	int *first, *last;          // positions that the query attends to; none: last < first
	int *common;                // of a prompt: (2) the first and last position that all queries attend to
	float *q;                   // (q_stride)
	float *out;                 // (WIDTH·32) a of the units so far
	float *unit_out;            // (WIDTH·32) a of the unit, and before that its keys: attention_row.cuh
};

template <int WIDTH, int QUERIES> DEVICE Shared shared_layout(float *memory, int q_stride)
{
	Shared s;
	s.e = memory;
	s.tile_max = s.e + QUERIES * UNIT;
	s.tile_sum = s.tile_max + QUERIES * TILES;
	s.max = s.tile_sum + QUERIES * TILES;
	s.sum = s.max + QUERIES;
	s.scale = s.sum + QUERIES;
	s.unit_scale = s.scale + QUERIES;
	s.first = reinterpret_cast<int *>(s.unit_scale + QUERIES);
	s.last = s.first + QUERIES;
	s.q = s.unit_scale + 5 * QUERIES; // after first, last and padding that aligns q to 16 bytes
	s.out = s.q + QUERIES * q_stride;
	s.unit_out = s.out + QUERIES * WIDTH * WARP;
	return s;
}

DEVICE bool attends(const Shared &s, int query, int p) { return s.first[query] <= p && p <= s.last[query]; }

// m and l of a query in the unit.
DEVICE float unit_max(const Shared &s, int query)
{
	const float *max = s.tile_max + query * TILES;
	return fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3]));
}

DEVICE float unit_sum(const Shared &s, int query)
{
	const float *sum = s.tile_sum + query * TILES;
	return ((sum[0] + sum[1]) + sum[2]) + sum[3];
}

struct Params {
	float *dst, *partials; // partials: (m, l, a) of each unit
	unsigned *arrivals;    // blocks of each row and group of heads that have stored theirs
	const float *q;
	element *cache;          // of float16
	uint8_t *any_cache;      // of any format
	int key_format, value_format;
	int layer, layers, parts, heads, kv_heads, dim, value_dim; // parts: see cache_index
	const float *sinks; // (heads) or null
	float scale, inner; // scale: the last factor of s above; inner: the factor inside tanh, 0 without a soft cap
	int before, after, block_rows, block_heads, units; // before, after: how far a row attends, in positions
	const int *pos, *last, *seq, *tables;
	int stride;
	const int *rows;

	// Of one row only: if keys is not null, the queries are not rotated yet, and the row's keys and values
	// are still to be rotated and stored in the cache.
	const float *keys, *values;
	int pairs, distance, pair_stride; // as in rope.cuh
	const uint64_t *frequencies;
	float magnitude;

	// Of up to 16 rows: if image_kind is not NO_IMAGE, the image of the result is written instead of dst.
	uint4 *image;
	int image_kind;
};

enum { NO_IMAGE, IMAGE_I16, IMAGE_F32 };

// The query vectors that a block computes together: heads of consecutive rows of one sequence.
struct Queries {
	int row, head, heads, count; // count: rows · heads
	int kv_head;
	int low, high; // range of positions that any of them attends to
};

// Returns the index of query i in an array of (rows, all heads).
DEVICE size_t query_index(const Queries &n, int i, int all_heads) { return (size_t)(n.row + i / n.heads) * all_heads + n.head + i % n.heads; }

// Returns the distance between queries in floats: a multiple of 16 bytes.
template <int WIDTH> DEVICE int stride_of(int dim) { return IS_LATENT ? (dim + 3) / 4 * 4 : WIDTH * WARP; }

// Returns the keys or values (kind) of a head in a block of the cache.
DEVICE Elements rows_of(const Params &a, int block, int kind, int kv_head)
{
#if defined(CACHE_F16)
	return a.cache + cache_index(block, a.layer, a.layers, a.parts, kind, kv_head, a.kv_heads, a.dim);
#else
	const uint8_t *const head = a.any_cache + head_offset(a.key_format, a.value_format, block, a.layer, a.layers, a.parts, kind, kv_head, a.kv_heads, a.dim);
	const int format = kind == KEYS ? a.key_format : a.value_format;
	return {head, head + code_bytes(format, BLOCK_POSITIONS * a.dim), format, 0};
#endif
}

// Reports whether keys are rotated, and so are the queries to be.
DEVICE bool rotates_queries([[maybe_unused]] const Params &a)
{
#if defined(CACHE_F16)
	return false;
#else
	return !IS_LATENT && is_quantized(a.key_format);
#endif
}

// *score += q·k over 8 elements
DEVICE void add_products(const float *q, const float *k, float *score)
{
	float4 a = *reinterpret_cast<const float4 *>(q), b = *reinterpret_cast<const float4 *>(q + 4);
	*score = fmaf(a.x, k[0], *score);
	*score = fmaf(a.y, k[1], *score);
	*score = fmaf(a.z, k[2], *score);
	*score = fmaf(a.w, k[3], *score);
	*score = fmaf(b.x, k[4], *score);
	*score = fmaf(b.y, k[5], *score);
	*score = fmaf(b.z, k[6], *score);
	*score = fmaf(b.w, k[7], *score);
}

// score[i] += q[i]·key
template <int WIDTH, int QUERIES> DEVICE void dot_products(const float *q, Elements key, int dim, float *score)
{
	const int stride = stride_of<WIDTH>(dim);
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
		UNROLL for (int i = 0; i < QUERIES; i++)
			add_products(q + i * stride + d, k, &score[i]);
	}
}

// sum[i] += Σ e[p]·value[p] over positions low to high of the tile that begins at position start; e and
// value point to that position.
template <int WIDTH, int QUERIES>
DEVICE void add_values(const Shared &s, const Queries &n, const float *e, Elements value, int dim, int start, int low, int high,
	float sum[QUERIES][WIDTH])
{
	bool all = low == start && high == start + BLOCK_POSITIONS - 1;
	UNROLL_BY(1) for (int i = 0; i < n.count; i++)
		all = all && attends(s, i, low) && attends(s, i, high);
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
	// A query must skip the positions that it does not attend to: a weight of 0 is not enough, because
	// the memory may be uninitialized and 0 · NaN is NaN.
	UNROLL_BY(1) for (int p = low; p <= high; p++) {
		float v[WIDTH];
		load<WIDTH>(value + (p - start) * dim, v);
		UNROLL for (int i = 0; i < QUERIES; i++)
			if (attends(s, i, p))
				UNROLL for (int c = 0; c < WIDTH; c++)
					sum[i][c] = fmaf(e[i * UNIT + p - start], v[c], sum[i][c]);
	}
}

// Computes one unit: s.tile_max, s.tile_sum and s.unit_out.
template <int WIDTH, int QUERIES> DEVICE void attend_unit(const Params &a, const Shared &s, const Queries &n, int unit)
{
	int lane = lane_id(), tile = warp_id(), start = unit * UNIT + tile * BLOCK_POSITIONS, p = start + lane;
	int low = max(n.low, start), high = min(n.high, start + BLOCK_POSITIONS - 1);
	const int block = low <= high ? a.tables[(size_t)a.seq[n.row] * a.stride + start / BLOCK_POSITIONS] : 0;
	const Elements keys = rows_of(a, block, KEYS, n.kv_head), values = rows_of(a, block, a.parts - 1, n.kv_head);

	float score[QUERIES] = {};
	if (low <= p && p <= high)
		dot_products<WIDTH, QUERIES>(s.q, keys + lane * a.dim, a.dim, score);
	if (a.inner > 0.0f)
		UNROLL for (int i = 0; i < QUERIES; i++)
			score[i] = tanh_of(score[i] * a.inner);
	UNROLL for (int i = 0; i < QUERIES; i++) {
		score[i] = attends(s, i, p) ? score[i] * a.scale : MINUS_INFINITY;
		float max = warp_max(score[i]);
		if (lane == 0)
			s.tile_max[i * TILES + tile] = max;
	}
	syncthreads();
	UNROLL for (int i = 0; i < QUERIES; i++) {
		float e = attends(s, i, p) ? exp2_of(score[i] - unit_max(s, i)) : 0.0f;
		s.e[i * UNIT + threadIdx.x] = e;
		float sum = warp_sum(e);
		if (lane == 0)
			s.tile_sum[i * TILES + tile] = sum;
	}
	syncwarp();

	int d = lane * WIDTH;
	float sum[QUERIES][WIDTH] = {};
	if (low <= high && d < a.value_dim)
		add_values<WIDTH, QUERIES>(s, n, s.e + tile * BLOCK_POSITIONS, values + d, a.dim, start, low, high, sum);
	UNROLL_BY(1) for (int t = 0; t < TILES; t++) {
		if (t == tile && d < a.value_dim)
			UNROLL for (int i = 0; i < QUERIES; i++)
				UNROLL for (int c = 0; c < WIDTH; c++)
					s.unit_out[i * WIDTH * WARP + d + c] = sum[i][c] + (t == 0 ? 0.0f : s.unit_out[i * WIDTH * WARP + d + c]);
		syncthreads();
	}
}

// Writes the image of the results of n, heads of one row, whose values have whole blocks; the row has whole tiles.
template <int WIDTH> DEVICE void write_image(const Params &a, const Shared &s, const Queries &n)
{
	const int first = n.head * a.value_dim / BLOCK_INPUTS, tiles = a.heads * a.value_dim / (BLOCK_INPUTS * TILE_BLOCKS);
	UNROLL_BY(1) for (int b = warp_id(); b < n.count * a.value_dim / BLOCK_INPUTS; b += TILES) {
		const int i = b * BLOCK_INPUTS / a.value_dim, d = b * BLOCK_INPUTS % a.value_dim + lane_id();
		const float v = s.out[i * WIDTH * WARP + d] * s.scale[i] / s.sum[i];
		const int block = (first + b) % TILE_BLOCKS;
		const size_t tile = size_t(n.row) * tiles + (first + b) / TILE_BLOCKS;
		if (a.image_kind == IMAGE_I16)
			write_i16(a.image + tile * I16_UNITS, block, v);
		else
			write_f32(a.image + tile * F32_UNITS, block, v);
	}
}

// Adds the sinks to the sums of n. The results are a · s.scale / s.sum.
DEVICE void finish_sums(const Params &a, const Shared &s, const Queries &n)
{
	const int t = threadIdx.x;
	syncthreads(); // s.scale may still be read
	if (t < n.count) {
		s.scale[t] = 1.0f;
		if (a.sinks != nullptr)
			add_sink(a.sinks[n.head + t % n.heads], &s.max[t], &s.sum[t], &s.scale[t]);
	}
	syncthreads();
}

// Stores the results of n: s.out, with the sinks, divided by s.sum.
template <int WIDTH> DEVICE void finish(const Params &a, const Shared &s, const Queries &n)
{
	const int t = threadIdx.x;
	finish_sums(a, s, n);
	if (a.image_kind != NO_IMAGE) {
		write_image<WIDTH>(a, s, n);
		return;
	}
	UNROLL_BY(1) for (int x = t; x < n.count * WIDTH * WARP; x += UNIT) {
		const int i = x / (WIDTH * WARP), d = x % (WIDTH * WARP);
		if (d < a.value_dim)
			a.dst[query_index(n, i, a.heads) * a.value_dim + d] = s.out[x] * s.scale[i] / s.sum[i];
	}
}

// Sets what s has of each of n's queries before the first unit.
template <int QUERIES> DEVICE void begin_queries(const Params &a, const Shared &s, const Queries &n)
{
	const int t = threadIdx.x;
	if (t < QUERIES) {
		int p = t < n.count ? a.pos[n.row + t / n.heads] : -1;
		s.last[t] = t < n.count ? min(a.last[n.row + t / n.heads], p + a.after) : -1;
		s.first[t] = max(0, p - a.before);
		s.max[t] = MINUS_INFINITY;
		s.sum[t] = 0.0f;
	}
}

DEVICE void set_range(const Shared &s, Queries &n)
{
	n.low = s.first[0], n.high = s.last[0];
	for (int i = 1; i < n.count; i++)
		n.low = min(n.low, s.first[i]), n.high = max(n.high, s.last[i]);
}

// Adds m and l of a unit to those of the units before, and sets the factors of their values.
template <int QUERIES> DEVICE void add_unit(const Shared &s)
{
	const int t = threadIdx.x;
	if (t < QUERIES) {
		rescale(&s.max[t], unit_max(s, t), &s.scale[t], &s.unit_scale[t]);
		s.sum[t] = accumulate(s.sum[t], s.scale[t], unit_sum(s, t), s.unit_scale[t]);
	}
}

// Computes the attention of n.
template <int WIDTH, int QUERIES> DEVICE void attend_queries(const Params &a, const Shared &s, Queries n)
{
	int t = threadIdx.x;
	syncthreads(); // the previous queries may still be in use
	begin_queries<QUERIES>(a, s, n);
	for (int i = 0; i < QUERIES; i++) {
		for (int d = t; d < a.dim; d += UNIT)
			s.q[i * stride_of<WIDTH>(a.dim) + d] = i < n.count ? a.q[query_index(n, i, a.heads) * a.dim + d] : 0.0f;
		for (int d = t; d < a.value_dim; d += UNIT)
			s.out[i * WIDTH * WARP + d] = 0.0f;
	}
	if (rotates_queries(a))
		rotate_queries(s.q, QUERIES, stride_of<WIDTH>(a.dim), a.dim);
	syncthreads();
	set_range(s, n);

	for (int unit = n.low / UNIT; unit <= n.high / UNIT; unit++) {
		attend_unit<WIDTH, QUERIES>(a, s, n, unit);
		add_unit<QUERIES>(s);
		syncthreads();
		for (int i = 0; i < n.count; i++)
			for (int d = t; d < a.value_dim; d += UNIT)
				s.out[i * WIDTH * WARP + d] = accumulate(s.out[i * WIDTH * WARP + d], s.scale[i], s.unit_out[i * WIDTH * WARP + d], s.unit_scale[i]);
	}
	finish<WIDTH>(a, s, n);
}

// Calls attend with the queries of the block: once for each range of rows of one sequence. The last rows of a prompt, which attend to
// most positions, come first.
template <typename Attend> DEVICE void each_range(const Params &a, const Attend &attend)
{
	int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads;
	Queries n;
	n.kv_head = blockIdx.y / parts;
	n.head = n.kv_head * group + blockIdx.y % parts * a.block_heads;
	n.heads = min(a.block_heads, (n.kv_head + 1) * group - n.head);
	int row = (gridDim.z - 1 - blockIdx.z) * a.block_rows, end = min(row + a.block_rows, *a.rows);
	while (row < end) {
		n.row = row++;
		while (row < end && a.seq[row] == a.seq[n.row])
			row++;
		n.count = (row - n.row) * n.heads;
		attend(n);
	}
}

template <int WIDTH, int QUERIES> DEVICE void attend(float *memory, const Params &a)
{
	const Shared s = shared_layout<WIDTH, QUERIES>(memory, stride_of<WIDTH>(a.dim));
	each_range(a, [&](const Queries &n) { attend_queries<WIDTH, QUERIES>(a, s, n); });
}

#if !defined(LATENT)
#include "attention_prompt.cuh"
#endif
#include "attention_row.cuh"

#if defined(CACHE_F16)
#define CACHE_OF_PARAMS cache, nullptr, FORMAT_F16, FORMAT_F16
#else
#define CACHE_OF_PARAMS nullptr, cache, key_format, value_format
#endif

#define ATTENTION(name, blocks, ...) \
	KERNEL(name, 128, blocks)(float *dst, float *partials, unsigned *arrivals, const float *q, CACHE, \
		int layer, int layers, int heads, int kv_heads, int dim, int value_dim, const float *sinks, float scale, float inner, int before, int after, int block_rows, int block_heads, int units, \
		const int *pos, const int *last, const int *seq, const int *tables, int stride, const int *rows, \
		const float *keys, const float *values, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude, \
		uint4 *image, int image_kind) \
	{ \
		SHARED(float, memory); \
		__VA_ARGS__(memory, {dst, partials, arrivals, q, CACHE_OF_PARAMS, layer, layers, IS_LATENT ? 1 : 2, heads, kv_heads, dim, IS_LATENT ? value_dim : dim, sinks, \
			scale, inner, before, after, block_rows, block_heads, units, pos, last, seq, tables, stride, rows, \
			keys, values, pairs, distance, pair_stride, frequencies, magnitude, image, image_kind}); \
	}

// Kernels for values of up to dims elements and up to queries query vectors per block: of one row, and of
// consecutive rows of a prompt.
#define ROW(dims, queries, blocks) ATTENTION(NAME(d##dims##_n##queries), blocks, attend_row<dims / 32, queries>)
#if defined(CACHE_F16)
#define ROW_F16(dims, queries, blocks) ROW(dims, queries, blocks)
#else
#define ROW_F16(dims, queries, blocks)
#endif
#define ROWS(dims, queries, blocks) ATTENTION(NAME(d##dims##_rows), blocks, attend<dims / 32, queries>)
#define PROMPT(dims, blocks) ATTENTION(NAME(d##dims##_rows), blocks, attend_prompt<dims>)

// A module has the kernels for values of up to VALUE_DIMS elements alone, because the driver of a newer device compiles all kernels of a module. Without
// VALUE_DIMS there is none: attention_heads.cu needs the functions.
#ifndef VALUE_DIMS
#elif VALUE_DIMS == 32
ROW(32, 1, 4)
ROW_F16(32, 2, 4)
ROW(32, 4, 4)
ROW_F16(32, 8, 3)
ROWS(32, 16, 4)
#elif VALUE_DIMS == 64
ROW(64, 1, 4)
ROW_F16(64, 2, 4)
ROW(64, 4, sizeof(element) == 4 ? 3 : 4)
ROW_F16(64, 8, 2)
PROMPT(64, 4)
#elif VALUE_DIMS == 128
ROW(128, 1, 4)
ROW_F16(128, 2, 4)
ROW(128, 4, 4)
ROW_F16(128, 8, 2)
#if defined(LATENT)
ROWS(128, 16, 3)
#else
PROMPT(128, sizeof(element) == 4 ? 3 : 4)
#endif
#elif VALUE_DIMS == 256
ROW(256, 1, 4)
ROW_F16(256, 2, 4)
ROW(256, 4, 3)
ROW_F16(256, 8, 2)
ROWS(256, 8, 3)
#elif VALUE_DIMS == 512
ROW(512, 1, 3)
ROW_F16(512, 2, 3)
ROW(512, 4, 2)
ROWS(512, 4, 3)
#else
#error VALUE_DIMS must be 32, 64, 128, 256 or 512
#endif
