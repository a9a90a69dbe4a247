// Attention of many rows of a prompt, over keys and values of up to 64 or 128 elements: the same bits as attention.cu, and as many
// operations, but fewer loads for each.
//
// A thread block computes PROMPT_QUERIES query vectors: the heads that share a kv head, of consecutive rows. Scores of a
// unit, and the sums of its values, are products of matrices: a thread has 8 queries × 4 positions of the first, then
// 8 queries × WIDTH dimensions of the second, in registers. Keys come to shared memory in slices of 8 dimensions of all positions,
// values in slices of SLICE / DIMS positions, as float32; a thread loads eight elements of the next slice while it
// computes with the one before.
//
// The positions of a thread are 8 apart, so that adding its own first, and then those of other lanes, is the tree of warp_sum.
// Lanes are arranged so that neighbours share queries or positions: then a load of 16 bytes by a warp takes two accesses
// of shared memory and not four.
#pragma once

#include "again.cuh"

enum { PROMPT_QUERIES = 32, SLICE = 8 * UNIT }; // SLICE: floats of a slice

DEVICE int lane_position() { return (lane_id() & 1) | (lane_id() >> 3 & 3) << 1; } // of 8
DEVICE int lane_queries() { return (lane_id() >> 1 & 3) * 8; }                     // the first of 8

// For the mask of each exchange between lanes that have the same queries: those with positions 4, 2 and 1 apart.
#define EACH_POSITION_MASK(mask) UNROLL for (int mask = 16; mask > 0; mask = mask == 8 ? 1 : mask / 2)

// Shared memory: see Shared, with q as (DIMS, PROMPT_QUERIES) and e as (UNIT, PROMPT_QUERIES); out is two slices.
template <int DIMS> DEVICE Shared prompt_layout(float *memory)
{
	Shared s = {};
	s.e = memory;
	s.q = s.e + PROMPT_QUERIES * UNIT;
	s.out = s.q + PROMPT_QUERIES * DIMS;
	s.tile_max = s.out + 2 * SLICE;
	s.tile_sum = s.tile_max + PROMPT_QUERIES * TILES;
	s.max = s.tile_sum + PROMPT_QUERIES * TILES;
	s.sum = s.max + PROMPT_QUERIES;
	s.scale = s.sum + PROMPT_QUERIES;
	s.unit_scale = s.scale + PROMPT_QUERIES;
	s.first = reinterpret_cast<int *>(s.unit_scale + PROMPT_QUERIES);
	s.last = s.first + PROMPT_QUERIES;
	s.common = s.last + PROMPT_QUERIES;
	return s;
}

// Eight elements of the cache, as they lie there.
struct Eight {
#if defined(CACHE_F16)
	uint4 v;
#else
	uint32_t v[8]; // as load_raw leaves them
#endif
};

// Loads the elements of a key or value from p on: eight, or count, and zeros. dim: of the vector
DEVICE Eight load_eight(Elements p, int count, int dim)
{
	Eight all = {};
	if (dim % 8 == 0) {
		if (count > 0)
#if defined(CACHE_F16)
			all.v = ldg128(p);
#else
			load_raw<8>(p, all.v);
#endif
		return all;
	}
	element each[8] = {};
	UNROLL for (int i = 0; i < 8; i++)
		if (i < count)
#if defined(CACHE_F16)
			each[i] = ldg16(p + i);
#else
			each[i] = load1(p + i);
#endif
	memcpy(&all, each, sizeof each);
	return all;
}

// format: of the elements, unless that is known
DEVICE void widen(const Eight &all, [[maybe_unused]] int format, float (&v)[8])
{
#if defined(CACHE_F16)
	halves(all.v.x, v);
	halves(all.v.y, v + 2);
	halves(all.v.z, v + 4);
	halves(all.v.w, v + 6);
#else
	widen_raw<8>(format, all.v, v);
#endif
}

// Vectors of float32 in memory.
template <int N> struct alignas(N == 2 ? 8 : 16) Floats {
	float v[N];
};

template <int N> DEVICE void load_floats(const float *from, float (&v)[N])
{
	const Floats<N> all = *reinterpret_cast<const Floats<N> *>(from);
	UNROLL for (int i = 0; i < N; i++)
		v[i] = all.v[i];
}

template <int N> DEVICE void store_floats(float *to, const float (&v)[N])
{
	Floats<N> all;
	UNROLL for (int i = 0; i < N; i++)
		all.v[i] = v[i];
	*reinterpret_cast<Floats<N> *>(to) = all;
}

// What a block reads.
struct PromptSource {
	const Params &a;
	const Queries &n;
};

// Returns the key or value of a position.
DEVICE Elements at_position(const PromptSource &from, int position, int kind)
{
	const Params &a = from.a;
	const int block = a.tables[size_t(a.seq[from.n.row]) * a.stride + position / BLOCK_POSITIONS];
	return rows_of(a, block, kind, from.n.kv_head) + position % BLOCK_POSITIONS * a.dim;
}

// Loads dimensions d … d+7 of a key, or zeros if it is null.
DEVICE Eight load_key(const PromptSource &from, Elements key, int d)
{
	return load_eight(key + d, key == nullptr ? 0 : from.a.dim - d, from.a.dim);
}

// Sets at to the thread's key in a unit, null if no query attends to its position, and loads its first dimensions.
DEVICE Eight first_keys(const PromptSource &from, int unit, Elements &at)
{
	const int position = unit * UNIT + threadIdx.x;
	at = from.n.low <= position && position <= from.n.high ? at_position(from, position, KEYS) : Elements{};
	return load_key(from, at, 0);
}

// Loads the thread's part of the slice of values that begins at position first: eight dimensions, or zeros. at becomes where
// they are; unless they are the first of a tile, or begins is set, it is where those of the slice before are.
template <int DIMS> DEVICE Eight load_values(const PromptSource &from, int first, bool begins, Elements &at)
{
	const int dim = from.a.dim, in_slice = threadIdx.x / (DIMS / 8), d = threadIdx.x % (DIMS / 8) * 8;
	if (begins || first % BLOCK_POSITIONS == 0)
		at = at_position(from, first, VALUES) + in_slice * dim + d;
	else
		at += SLICE / DIMS * dim;
	return load_eight(at, from.n.low <= first + in_slice && first + in_slice <= from.n.high ? dim - d : 0, dim);
}

// score[query][position] = q·k for the thread's queries and positions of a unit. ahead is the first slice of keys, those of the key at, and
// becomes that of the values from position first on. busy: whether any query attends to one of the warp's positions
template <int DIMS>
DEVICE void prompt_scores(const PromptSource &from, const Shared &s, Eight &ahead, Elements &at, int first, bool busy, float (&score)[8][4])
{
	const int tile = warp_id() * BLOCK_POSITIONS, dim = from.a.dim;
	float *to = s.out + tile + lane_id() % 8 * 4 + lane_id() / 8;
	const float *k = s.out + tile + lane_position() * 4, *q = s.q + lane_queries();
	UNROLL for (int i = 0; i < 8; i++)
		UNROLL for (int j = 0; j < 4; j++)
			score[i][j] = 0.0f;
	UNROLL_BY(1) for (int d = 0, other = 0; d < dim; d += 8, q += 8 * PROMPT_QUERIES, other = SLICE - other) {
		float v[8];
		widen(ahead, from.a.key_format, v);
		UNROLL for (int j = 0; j < 8; j++)
			to[other + j * UNIT] = v[j];
		ahead = d + 8 < dim ? load_key(from, at, d + 8) : load_values<DIMS>(from, first, true, at);
		syncthreads();
		if (busy)
			UNROLL for (int j = 0; j < 8; j++) {
				float keys[4], queries[8];
				load_floats(k + other + j * UNIT, keys);
				load_floats(q + j * PROMPT_QUERIES, queries);
				UNROLL for (int i = 0; i < 8; i++)
					UNROLL for (int c = 0; c < 4; c++)
						score[i][c] = fmaf(queries[i], keys[c], score[i][c]);
			}
	}
}

// Turns scores of a unit that begins at position start into s.e, s.tile_max and s.tile_sum.
DEVICE void prompt_weights(const Params &a, const Shared &s, int start, float (&score)[8][4])
{
	const int tile = warp_id(), at = tile * BLOCK_POSITIONS + lane_position(), first = lane_queries();
	UNROLL for (int i = 0; i < 8; i++) {
		float max = MINUS_INFINITY;
		UNROLL for (int j = 0; j < 4; j++) {
			if (a.inner > 0.0f)
				score[i][j] = tanh_of(score[i][j] * a.inner);
			score[i][j] = attends(s, first + i, start + at + 8 * j) ? score[i][j] * a.scale : MINUS_INFINITY;
			max = fmaxf(max, score[i][j]);
		}
		EACH_POSITION_MASK (mask)
			max = fmaxf(max, shfl_xor(max, mask));
		if (lane_position() == 0)
			s.tile_max[(first + i) * TILES + tile] = max;
	}
	syncthreads();
	UNROLL for (int i = 0; i < 8; i++) {
		const float max = unit_max(s, first + i);
		UNROLL for (int j = 0; j < 4; j++)
			score[i][j] = attends(s, first + i, start + at + 8 * j) ? exp2_of(score[i][j] - max) : 0.0f;
		float sum = (score[i][0] + score[i][2]) + (score[i][1] + score[i][3]);
		EACH_POSITION_MASK (mask)
			sum += shfl_xor(sum, mask);
		if (lane_position() == 0)
			s.tile_sum[(first + i) * TILES + tile] = sum;
	}
	UNROLL for (int j = 0; j < 4; j++)
		UNROLL for (int i = 0; i < 8; i += 4)
			*reinterpret_cast<float4 *>(s.e + (at + 8 * j) * PROMPT_QUERIES + first + i) = make_float4(score[i][j], score[i + 1][j], score[i + 2][j], score[i + 3][j]);
}

// unit[query][dimension] = Σ e·v over the unit's positions low to high, for the thread's queries and dimensions. ahead is the slice of low, at
// at, and becomes the first slice of keys of the unit next, unless that is past the last one.
template <int DIMS>
DEVICE void prompt_values(const PromptSource &from, const Shared &s, Eight &ahead, Elements &at, int low, int high, int next, float (&unit)[8][DIMS / 32])
{
	constexpr int WIDTH = DIMS / 32, POSITIONS = SLICE / DIMS;
	float *to = s.out + threadIdx.x * 8;
	const float *v = s.out + (warp_id() * 8 + lane_position()) * WIDTH, *weights = s.e + lane_queries();
	float tile[8][WIDTH];
	UNROLL for (int i = 0; i < 8; i++)
		UNROLL for (int c = 0; c < WIDTH; c++)
			unit[i][c] = tile[i][c] = 0.0f;
	UNROLL_BY(1) for (int p = low / POSITIONS * POSITIONS, other = 0; p <= high; p += POSITIONS, other = SLICE - other) {
		float all[8];
		widen(ahead, from.a.value_format, all);
		UNROLL for (int i = 0; i < 8; i += 4)
			*reinterpret_cast<float4 *>(to + other + i) = make_float4(all[i], all[i + 1], all[i + 2], all[i + 3]);
		if (p + POSITIONS <= high)
			ahead = load_values<DIMS>(from, p + POSITIONS, false, at);
		else if (next * UNIT <= from.n.high)
			ahead = first_keys(from, next, at);
		syncthreads();
		const bool every = s.common[0] <= p && p + POSITIONS - 1 <= s.common[1];
		UNROLL for (int j = 0; j < POSITIONS; j++) {
			float values[WIDTH], e[8];
			load_floats(v + other + j * DIMS, values);
			load_floats(weights + (p % UNIT + j) * PROMPT_QUERIES, e);
			// A query must skip the positions that it does not attend to: see add_values.
			UNROLL for (int i = 0; i < 8; i++)
				if (every || attends(s, lane_queries() + i, p + j))
					UNROLL for (int c = 0; c < WIDTH; c++)
						tile[i][c] = fmaf(e[i], values[c], tile[i][c]);
		}
		if (p + POSITIONS > high || (p + POSITIONS) % BLOCK_POSITIONS == 0)
			UNROLL for (int i = 0; i < 8; i++)
				UNROLL for (int c = 0; c < WIDTH; c++) {
					unit[i][c] = tile[i][c] + unit[i][c];
					tile[i][c] = 0.0f;
				}
	}
}

// Computes the attention of n.
template <int DIMS> DEVICE void attend_prompt_queries(const Params &a, const Shared &s, Queries n)
{
	constexpr int WIDTH = DIMS / 32;
	syncthreads(); // the previous queries may still be in use
	begin_queries<PROMPT_QUERIES>(a, s, n);
	const int lane = lane_id();
	if (rotates_queries(a)) {
		UNROLL_BY(1) for (int first = warp_id() * 32; first < DIMS; first += TILES * 32) {
			float x[32] = {};
			if (lane < n.count && first < a.dim)
				UNROLL for (int i = 0; i < 32; i++)
					x[i] = a.q[query_index(n, lane, a.heads) * a.dim + first + i];
			hadamard(x);
			UNROLL for (int i = 0; i < 32; i++)
				s.q[(first + i) * PROMPT_QUERIES + lane] = x[i] * (1.0f / 32);
		}
	} else
		UNROLL_BY(8) for (int d = warp_id(); d < DIMS; d += TILES)
			s.q[d * PROMPT_QUERIES + lane] = lane < n.count && d < a.dim ? a.q[query_index(n, lane, a.heads) * a.dim + d] : 0.0f;
	syncthreads();
	set_range(s, n);
	if (threadIdx.x == 0) {
		int low = s.first[0], high = s.last[0];
		for (int i = 1; i < n.count; i++)
			low = max(low, s.first[i]), high = min(high, s.last[i]);
		s.common[0] = low, s.common[1] = high; // read when threads have waited for each other
	}

	// A thread's part of the results, which waits in dst while a unit is computed: it would take a quarter of all registers.
	const auto each_result = [&](const auto &f) {
		const int first = again(lane_queries()), d = (warp_id() * 8 + lane_position()) * WIDTH;
		UNROLL for (int i = 0; i < 8; i++)
			if (first + i < n.count && d < a.value_dim)
				f(a.dst + query_index(n, first + i, a.heads) * a.value_dim + d, first + i, i);
	};

	const PromptSource from = {a, n};
	Elements at = {};
	Eight ahead = first_keys(from, n.low / UNIT, at);
	each_result([&](float *dst, int, int) {
		const float none[WIDTH] = {};
		store_floats(dst, none);
	});
	UNROLL_BY(1) for (int unit = n.low / UNIT; unit <= n.high / UNIT; unit++) {
		const int start = unit * UNIT, low = max(n.low, start), high = min(n.high, start + UNIT - 1), tile = start + warp_id() * BLOCK_POSITIONS;
		float score[8][4], sums[8][WIDTH];
		prompt_scores<DIMS>(from, s, ahead, at, low / (SLICE / DIMS) * (SLICE / DIMS), low < tile + BLOCK_POSITIONS && tile <= high, score);
		prompt_weights(a, s, start, score);
		prompt_values<DIMS>(from, s, ahead, at, low, high, unit + 1, sums);
		add_unit<PROMPT_QUERIES>(s);
		syncthreads();
		each_result([&](float *dst, int query, int i) {
			float result[WIDTH];
			load_floats(dst, result);
			UNROLL for (int c = 0; c < WIDTH; c++)
				result[c] = accumulate(result[c], s.scale[query], sums[i][c], s.unit_scale[query]);
			store_floats(dst, result);
		});
	}
	finish_sums(a, s, n);
	each_result([&](float *dst, int query, int) {
		float result[WIDTH];
		load_floats(dst, result);
		UNROLL for (int c = 0; c < WIDTH; c++)
			result[c] = result[c] * s.scale[query] / s.sum[query];
		store_floats(dst, result);
	});
}

template <int DIMS> DEVICE void attend_prompt(float *memory, const Params &a)
{
	const Shared s = prompt_layout<DIMS>(memory);
	each_range(a, [&](const Queries &n) { attend_prompt_queries<DIMS>(a, s, n); });
}
