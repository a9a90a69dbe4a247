// Attention over a cache of float16 by matrix units, for heads of HEAD_DIMS elements and any number of rows (compute capability 9.0).
//
// The order of sums. As in attention.cu, positions are divided into units of 128, of which each has a maximum m of its own, and units are added in
// ascending order. Queries, of one sixteenth, and the weights e of a unit are each split into two halves, x = upper + lower, which is exact to 22 bits.
// An instruction multiplies 16 rows by 16 × 8 halves and adds to float32. Computed for a unit:
//
//	s[p] = U + L     U of the upper, L of the lower halves of a query, from 0: an instruction for each 16 dimensions. Step i of a
//	                 chunk of 32 has dimensions 8·j + 4·i … 8·j + 4·i + 3 for each j of four. The rows are the upper and the lower halves of eight queries.
//	m, e[p]          as in attention.cu
//	l    = Σ e[p]    from 0, for each 16 positions an instruction with the upper halves, then one with the lower ones
//	a    = Σ e[p]·v[p]  the same
//
// An instruction rounds as the GPU does, always in the same way, in whichever row, column or launch: see half.cuh. So a row has the same bits
// alone and in company on GPUs of one generation.
//
//	attention_mma_row     a block computes units of one row, for up to eight heads that share a kv head. Its 8 warps each have 16 positions of a
//	                      unit, then 16 dimensions. The blocks along gridDim.x divide the units among them, and the last one adds them.
//	attention_mma_rows    a block computes all units of 64 query vectors of consecutive rows, a warp those of 16 of them.
//
// Keys and values of a unit are copied to shared memory as they lie in the cache: keys of the next unit while the values of one are summed, and values
// while scores are computed. Positions that no query of the block attends to become 0; the others of its sequence are in the cache, whoever attends to them.
#include "kernel.cuh"

#pragma push_macro("KERNEL")
#pragma push_macro("SHARED")
#undef KERNEL
#undef SHARED
#define KERNEL(name, threads, blocks) DEVICE void name
#define SHARED(type, name) type *const name = nullptr
#include "attention_heads.cu" // its functions, of which nothing uses those that would be kernels
#pragma pop_macro("SHARED")
#pragma pop_macro("KERNEL")

#include "again.cuh"
#include "copies.cuh"
#include "mma_half.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 900

enum { EIGHT = 8, STEP = 16, STEPS = UNIT / STEP, PIECES = HEAD_DIMS / 8, CHUNK_DIMS = 32, CHUNKS = HEAD_DIMS / CHUNK_DIMS, HALF_DIMS = 64, HALVES = HEAD_DIMS / HALF_DIMS };
enum { PART_PIECES = UNIT * PIECES }; // pieces of 16 bytes in the keys or values of a unit

constexpr float QUERY_FACTOR = 16; // queries are divided by it, so that the largest half is not reached

// Returns where piece c, 16 bytes, of the key or value of position p of a unit is: lanes that load together use different banks.
DEVICE int key_at(int p, int c) { return p * PIECES + (c ^ (p & 1) << 2); }
DEVICE int value_at(int p, int c) { return p * PIECES + (c ^ (p & 7)); }

// Splits two floats into two halves each.
DEVICE void split(float first, float second, uint32_t &upper, uint32_t &lower)
{
	float rounded[2];
	upper = pair_of_halves(first, second);
	halves(upper, rounded);
	lower = pair_of_halves(first - rounded[0], second - rounded[1]);
}

// The queries of an eight as operands: of each chunk and step, two words of the upper and two of the lower halves.
struct Operands {
	uint4 of[CHUNKS][2][WARP];
};

// Returns where a pair of elements of a query is, d and d + 1: its upper halves, and behind them its lower ones.
DEVICE uint32_t *operand_at(Operands *to, int query, int d)
{
	return reinterpret_cast<uint32_t *>(&to->of[d / CHUNK_DIMS][d % 8 / 4][query * 4 + d % CHUNK_DIMS / 8]) + d % 4;
}

// Stores two neighbouring elements of a query, d even.
DEVICE void store_query(Operands *to, int query, int d, float first, float second)
{
	uint32_t *const at = operand_at(to, query, d);
	split(first / QUERY_FACTOR, second / QUERY_FACTOR, at[0], at[1]);
}

// d += eight queries by eight keys over a chunk: the two steps of it.
DEVICE void multiply_chunk(float (&d)[4], const uint4 &first, const uint4 &second, const uint4 &key)
{
	mma_halves(d, first.x, first.y, first.z, first.w, key.x, key.y);
	mma_halves(d, second.x, second.y, second.z, second.w, key.z, key.w);
}

// d += the weights of two eights of queries at 16 positions by the values of eight dimensions: the upper halves, then the lower ones.
DEVICE void multiply_values(float (&d)[4], const uint4 &one, const uint4 &other, uint32_t first, uint32_t last)
{
	mma_halves(d, one.x, other.x, one.z, other.z, first, last);
	mma_halves(d, one.y, other.y, one.w, other.w, first, last);
}

constexpr uint32_t ONES = 0x3c003c00;

// Where the keys or values (kind) of a unit are in the cache.
struct UnitSource {
	const int *table;        // blocks of the sequence
	const element *of_head;  // keys of the kv head in block 0
	size_t block, values;    // elements from a block to the next, and from keys to values
	int low, high;           // positions that are copied; the others become 0
	int without;             // and this one is left as it is

	// Copies keys or values of a unit; THREADS threads of the block do it together.
	template <int THREADS> DEVICE void copy(const UnitSource &s, Address to, int kind, int unit)
	{
		enum { AT_ONCE = THREADS / PIECES, LOADS = BLOCK_POSITIONS / AT_ONCE };
		const int thread = again(int(threadIdx.x)), row = thread / PIECES, piece = thread % PIECES;
		UNROLL_BY(THREADS == UNIT ? 1 : TILES) for (int tile = 0; tile < TILES; tile++) {
			const int start = unit * UNIT + tile * BLOCK_POSITIONS;
			const bool some = start <= s.high && start + BLOCK_POSITIONS > s.low;
			const element *const from = s.of_head + (some ? s.table[start / BLOCK_POSITIONS] : 0) * s.block + kind * s.values + row * HEAD_DIMS + piece * 8;
			UNROLL for (int i = 0; i < LOADS; i++) {
				const int at = row + i * AT_ONCE, p = start + at, in_unit = tile * BLOCK_POSITIONS + at;
				const bool copied = s.low <= p && p <= s.high;
				if (p != s.without)
					copy_or_clear(to + 16 * (kind == KEYS ? key_at(in_unit, piece) : value_at(in_unit, piece)), reinterpret_cast<const uint8_t *>(copied ? from + i * AT_ONCE * HEAD_DIMS : s.of_head), copied);
			}
		}
		copies_commit();
	}
};

DEVICE UnitSource source_of(const Params &a, const Queries &n, int sequence)
{
	const size_t kv = (size_t)a.kv_heads * (BLOCK_POSITIONS * HEAD_DIMS);
	return {a.tables + (size_t)sequence * a.stride, a.cache + cache_index(0, a.layer, a.layers, 2, KEYS, n.kv_head, a.kv_heads, HEAD_DIMS), kv * 2 * a.layers, kv, n.low, n.high, -1};
}

// Returns what is subtracted from scores whose maximum is max: not infinity, where there are no scores.
DEVICE float subtrahend_of(float max) { return max == MINUS_INFINITY ? 0.0f : max; }

// 2^x for x <= 0: exp2_of without branches.
DEVICE float weight_of(float x)
{
	const float magic = 12582912.0f, sum = x + magic, f = x - (sum - magic);
	float p = 0.000153533605f;
	p = fmaf(p, f, 0.0013398875f);
	p = fmaf(p, f, 0.00961843692f);
	p = fmaf(p, f, 0.0555033237f);
	p = fmaf(p, f, 0.240226477f);
	p = fmaf(p, f, 0.693147182f);
	p = fmaf(p, f, 1.0f);
	return x < -125.0f ? 0.0f : bits_to_float(float_to_bits(p) + (float_to_bits(sum) << 23));
}

// ---------------------------------------------------------------------------------------
// Units of one row

enum { ROW_THREADS = 32 * STEPS, VALUE_WARPS = HEAD_DIMS / STEP };

struct RowMemory {
	uint4 keys[PART_PIECES], values[PART_PIECES];
	Operands queries;
	uint4 weights[STEPS][WARP]; // operands
	float max[EIGHT][STEPS];    // of each step
	float total[2][EIGHT];      // m and l of all units, if the block has all
	element own[2][HEAD_DIMS];        // the row's key and value, if this launch stores them
	int flag[4];

	// The results of all units, if the block has all: in the place of keys.
	DEVICE float *results(RowMemory *m) { return reinterpret_cast<float *>(m->keys); }
};

// Sets an element of a query.
DEVICE void store_element(Operands *to, int query, int d, float x)
{
	x /= QUERY_FACTOR;
	const uint16_t upper = float_to_half(x);
	uint16_t *const at = reinterpret_cast<uint16_t *>(operand_at(to, query, d / 2 * 2)) + d % 2;
	at[0] = upper, at[2] = float_to_half(x - half_to_float(upper));
}

// Sets the operands of the queries, rotated if this launch does that. It then also rotates and stores the row's key and value: in the cache, in m->own,
// and in the unit in shared memory if that has position own. cos_sin: of the thread's pair.
DEVICE void load_row(RowMemory *m, const Params &a, const Queries &n, const UnitSource &s, int own, int unit, float2 cos_sin)
{
	enum { PAIRS = HEAD_DIMS / 2, AT_ONCE = ROW_THREADS / PAIRS };
	const int pair = threadIdx.x % PAIRS;
	const Pair p = pair_of(a, pair);
	UNROLL for (int i = 0; i < (EIGHT + 2 + AT_ONCE - 1) / AT_ONCE; i++) {
		const int head = threadIdx.x / PAIRS + i * AT_ONCE; // EIGHT: the key, EIGHT + 1: the value
		if (head >= EIGHT + (a.keys != nullptr ? 2 : 0))
			break;
		const size_t kv = ((size_t)n.row * a.kv_heads + n.kv_head) * HEAD_DIMS;
		const float *from = head < EIGHT ? a.q + ((size_t)n.row * a.heads + n.head + head) * HEAD_DIMS : (head == EIGHT ? a.keys : a.values) + kv;
		float2 v = make_float2(0.0f, 0.0f);
		if (head < n.count || head >= EIGHT)
			v = make_float2(__ldcg(from + p.first), __ldcg(from + p.second));
		if (pair < a.pairs && head <= EIGHT)
			v = rotate(v.x, v.y, cos_sin);
		if (head < EIGHT) {
			store_element(&m->queries, head, p.first, v.x);
			store_element(&m->queries, head, p.second, v.y);
			continue;
		}
		const int kind = head - EIGHT;
		const element x = to_element(v.x), y = to_element(v.y);
		m->own[kind][p.first] = x;
		m->own[kind][p.second] = y;
		if (own / UNIT == unit) {
			const auto place = [&](int d) -> element & {
				uint4 *const piece = kind == KEYS ? m->keys + key_at(own % UNIT, d / 8) : m->values + value_at(own % UNIT, d / 8);
				return reinterpret_cast<element *>(piece)[d % 8];
			};
			place(p.first) = x, place(p.second) = y;
		}
		if (is_first_part(a, n)) {
			element *const to = const_cast<element *>(s.of_head) + s.table[own / BLOCK_POSITIONS] * s.block + kind * s.values + own % BLOCK_POSITIONS * HEAD_DIMS;
			to[p.first] = x, to[p.second] = y;
		}
	}
}

// Adds a unit to the sums of those before it, of COUNT dimensions of a query.
template <int COUNT> DEVICE void add_unit(float &max, float &sum, float (&out)[COUNT], float unit_max, float unit_sum, const float (&unit_out)[COUNT])
{
	float scale, unit_scale;
	rescale(&max, unit_max, &scale, &unit_scale);
	sum = accumulate(sum, scale, unit_sum, unit_scale);
	UNROLL for (int i = 0; i < COUNT; i++)
		out[i] = accumulate(out[i], scale, unit_out[i], unit_scale);
}

DEVICE void attend_row(RowMemory *m, const Params &a)
{
	const int lane = lane_id(), warp = warp_id(), query = lane / 4, at = lane % 4;
	const int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads;
	const bool stores = a.keys != nullptr;
	const float scale = a.scale * QUERY_FACTOR;
	begin_next();
	Queries n;
	n.row = blockIdx.z;
	const int rows = *a.rows, pos = a.pos[n.row], end = a.last[n.row], sequence = a.seq[n.row]; // loads at once
	const int pair = threadIdx.x % (HEAD_DIMS / 2);
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
	UnitSource s = source_of(a, n, sequence);
	s.without = own;
	const Address keys = address_of(m->keys), values = address_of(m->values);
	const int last_unit = first_unit + units - 1;
	int unit = first_unit + blockIdx.x;
	UnitSource::copy<ROW_THREADS>(s, keys, KEYS, unit);
	UnitSource::copy<ROW_THREADS>(s, values, VALUES, unit);
	float sine, cosine;
	sincos_fixed((uint64_t)(uint32_t)pos * frequency, &sine, &cosine);
	const float2 cos_sin = make_float2(cosine * a.magnitude, sine * a.magnitude);
	wait_for_previous();
	load_row(m, a, n, s, own, unit, cos_sin);

	float all_max = MINUS_INFINITY, all_sum = 0.0f, all[4] = {};
	UNROLL_BY(1) for (;; unit += blocks) {
		const int next = unit + blocks;
		copies_wait<1>();
		syncthreads(); // keys and queries are there
		float product[2][4] = {};
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			const uint4 first = m->queries.of[chunk][0][lane], second = m->queries.of[chunk][1][lane];
			UNROLL for (int i = 0; i < 2; i++)
				multiply_chunk(product[i], first, second, m->keys[key_at(warp * STEP + i * 8 + query, chunk * 4 + at)]);
		}
		float score[2][2], max = MINUS_INFINITY;
		UNROLL for (int i = 0; i < 2; i++)
			UNROLL for (int j = 0; j < 2; j++) {
				const int p = unit * UNIT + warp * STEP + i * 8 + at * 2 + j;
				score[i][j] = product[i][j] + product[i][j + 2];
				score[i][j] = n.low <= p && p <= n.high ? score[i][j] * scale : MINUS_INFINITY;
				max = fmaxf(max, score[i][j]);
			}
		max = fmaxf(max, shfl_xor(max, 1));
		max = fmaxf(max, shfl_xor(max, 2));
		if (at == 0)
			m->max[query][warp] = max;
		syncthreads(); // and keys are no longer needed
		if (next <= last_unit) {
			UnitSource::copy<ROW_THREADS>(s, keys, KEYS, next);
			if (own / UNIT == next && threadIdx.x < PIECES)
				m->keys[key_at(own % UNIT, threadIdx.x)] = reinterpret_cast<const uint4 *>(m->own[KEYS])[threadIdx.x];
		} else
			copies_commit();
		max = MINUS_INFINITY;
		UNROLL for (int i = 0; i < STEPS; i += 4) {
			const float4 of_steps = *reinterpret_cast<const float4 *>(&m->max[query][i]);
			max = fmaxf(max, fmaxf(fmaxf(of_steps.x, of_steps.y), fmaxf(of_steps.z, of_steps.w)));
		}
		uint4 w;
		UNROLL for (int i = 0; i < 2; i++)
			UNROLL for (int j = 0; j < 2; j++)
				score[i][j] = weight_of(score[i][j] - subtrahend_of(max));
		split(score[0][0], score[0][1], w.x, w.y);
		split(score[1][0], score[1][1], w.z, w.w);
		m->weights[warp][lane] = w;
		copies_wait<1>();
		syncthreads(); // weights and values are there
		if (warp < VALUE_WARPS) {
			const uint4 none = make_uint4(0, 0, 0, 0);
			float sums[2][4] = {}, ones[4] = {};
			const auto pair_at = [&](int p) { return reinterpret_cast<const uint32_t *>(&m->values[value_at(p, warp * 2 + query / 4)])[query % 4]; };
			UNROLL for (int step = 0; step < STEPS; step++) {
				const uint4 w = m->weights[step][lane];
				const int p = step * STEP + at * 2;
				const uint32_t v[4] = {pair_at(p), pair_at(p + 1), pair_at(p + 8), pair_at(p + 9)};
				multiply_values(sums[0], w, none, __byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410));
				multiply_values(sums[1], w, none, __byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632));
				multiply_values(ones, w, none, ONES, ONES);
			}
			// Of dimensions d … d + 3.
			const float sum = ones[0], out[4] = {sums[0][0], sums[1][0], sums[0][1], sums[1][1]};
			const int d = warp * STEP + at * 4;
			if (blocks == 1)
				add_unit(all_max, all_sum, all, max, sum, out);
			else if (query < n.count) {
				float *const partial = partial_of(a, n, query, unit);
				*reinterpret_cast<float2 *>(partial + 2 + d) = make_float2(out[0], out[1]);
				*reinterpret_cast<float2 *>(partial + 4 + d) = make_float2(out[2], out[3]);
				if (d == 0)
					*reinterpret_cast<float2 *>(partial) = make_float2(max, sum);
			}
		}
		if (next > last_unit)
			break;
		syncthreads(); // values are no longer needed
		UnitSource::copy<ROW_THREADS>(s, values, VALUES, next);
		if (own / UNIT == next && threadIdx.x < PIECES)
			m->values[value_at(own % UNIT, threadIdx.x)] = reinterpret_cast<const uint4 *>(m->own[VALUES])[threadIdx.x];
	}
	if (blocks == 1) {
		if (warp < VALUE_WARPS) {
			*reinterpret_cast<float4 *>(RowMemory::results(m) + query * HEAD_DIMS + warp * STEP + at * 4) = make_float4(all[0], all[1], all[2], all[3]);
			if (warp == 0 && at == 0)
				m->total[0][query] = all_max, m->total[1][query] = all_sum;
		}
		syncthreads();
	} else if (!arrives_last(a.arrivals + n.row * gridDim.y + blockIdx.y, blocks, m->flag))
		return;
	enum { APART = ROW_THREADS / HEAD_DIMS };
	const int d = threadIdx.x % HEAD_DIMS;
	UNROLL_BY(1) for (int first = threadIdx.x / HEAD_DIMS; first < n.count; first += 2 * APART) {
		Sums sums[2];
		UNROLL for (int i = 0; i < 2; i++)
			sums[i] = {MINUS_INFINITY, 0.0f, 0.0f};
		if (blocks > 1)
			add_partials<APART>(a, n, first, d, sums);
		UNROLL for (int i = 0; i < 2; i++) {
			const int of = first + i * APART;
			if (of >= n.count)
				break;
			if (blocks == 1)
				sums[i] = {m->total[0][of], m->total[1][of], RowMemory::results(m)[of * HEAD_DIMS + d]};
			write_result(a, n, of, d, sums[i]);
		}
	}
}

// ---------------------------------------------------------------------------------------
// Rows of a prompt

enum { ROWS_WARPS = 4, ROWS_THREADS = 32 * ROWS_WARPS, EIGHTS = 2, ROWS_QUERIES = ROWS_WARPS * EIGHTS * EIGHT, TILES_OF_EIGHT = UNIT / 8, TOGETHER = 8 };

// Neighbouring dimensions of a value.
struct alignas(16) Dims {
	uint32_t pairs[4];
};

struct RowsMemory {
	uint4 keys[PART_PIECES], values[PART_PIECES];
	Operands queries[ROWS_WARPS * EIGHTS];
	float2 totals[ROWS_QUERIES]; // m and l
	UnitSource source;
	int at[ROWS_QUERIES]; // of a query in an array of (rows, all heads)
	int2 ranges[ROWS_QUERIES], common[ROWS_WARPS]; // the positions that a query attends to, and those that all of a warp do
};

DEVICE int warp_least(int v)
{
	UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2)
		v = min(v, shfl_xor(v, mask));
	return v;
}

DEVICE void attend_rows_queries(RowsMemory *m, const Params &a, Queries n)
{
	const int lane = lane_id(), warp = warp_id(), query = lane / 4, at = lane % 4;
	const int none = 0x7fffffff;
	const float scale = a.scale * QUERY_FACTOR;
	syncthreads(); // the previous queries may still be in use
	// The positions that each query attends to. What no query has does not matter.
	UNROLL_BY(1) for (int i = again(int(threadIdx.x)); i < ROWS_QUERIES; i += ROWS_THREADS) {
		m->totals[i] = make_float2(MINUS_INFINITY, 0.0f);
		m->at[i] = query_index(n, i, a.heads);
		const int row = n.row + min(i, n.count - 1) / n.heads, pos = a.pos[row];
		m->ranges[i] = make_int2(max(0, pos - a.before), min(a.last[row], pos + a.after));
	}
	syncthreads();
	UNROLL_BY(4) for (int i = again(int(threadIdx.x)); i < ROWS_QUERIES * HEAD_DIMS / 2; i += ROWS_THREADS) {
		const int of = i / (HEAD_DIMS / 2), d = i % (HEAD_DIMS / 2) * 2;
		float2 v = make_float2(0.0f, 0.0f);
		if (of < n.count)
			v = *reinterpret_cast<const float2 *>(a.q + size_t(m->at[of]) * HEAD_DIMS + d);
		store_query(m->queries + of / EIGHT, of % EIGHT, d, v.x, v.y);
	}
	int every_low = 0, every_high = none;
	UNROLL for (int e = 0; e < EIGHTS; e++) {
		const int2 range = m->ranges[(warp * EIGHTS + e) * EIGHT + query];
		every_low = max(every_low, range.x), every_high = min(every_high, range.y);
	}
	m->common[warp] = make_int2(-warp_least(-every_low), warp_least(every_high));
	n.low = none, n.high = -1;
	UNROLL_BY(1) for (int i = lane; i < ROWS_QUERIES; i += WARP) {
		const int2 range = m->ranges[i];
		n.low = min(n.low, range.x), n.high = max(n.high, range.y);
	}
	n.low = warp_least(n.low), n.high = -warp_least(-n.high);

	if (threadIdx.x == 0)
		m->source = source_of(a, n, a.seq[n.row]);
	syncthreads();
	const UnitSource &s = m->source;
	const Address keys = address_of(m->keys), values = address_of(m->values);
	const int last_unit = n.high / UNIT;
	UnitSource::copy<ROWS_THREADS>(s, keys, KEYS, n.low / UNIT);
	UnitSource::copy<ROWS_THREADS>(s, values, VALUES, n.low / UNIT);
	float all[EIGHTS][HALVES][2][8] = {}; // [.][half][column][dimension]
	float2 *const totals = m->totals + warp * EIGHTS * EIGHT;
	UNROLL_BY(1) for (int unit = n.low / UNIT; unit <= last_unit; unit++) {
		const int start = unit * UNIT;
		copies_wait<1>();
		syncthreads(); // keys and queries are there
		float score[EIGHTS][TILES_OF_EIGHT][2];
			UNROLL for (int group = 0; group < TILES_OF_EIGHT; group += TOGETHER) {
				float product[EIGHTS][TOGETHER][4] = {};
				UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
					uint4 first[EIGHTS], second[EIGHTS];
					UNROLL for (int e = 0; e < EIGHTS; e++)
						first[e] = m->queries[warp * EIGHTS + e].of[chunk][0][lane], second[e] = m->queries[warp * EIGHTS + e].of[chunk][1][lane];
					UNROLL for (int i = 0; i < TOGETHER; i++) {
						const uint4 key = m->keys[key_at((group + i) * 8 + query, chunk * 4 + at)];
						UNROLL for (int e = 0; e < EIGHTS; e++)
							multiply_chunk(product[e][i], first[e], second[e], key);
					}
				}
				UNROLL for (int e = 0; e < EIGHTS; e++)
					UNROLL for (int i = 0; i < TOGETHER; i++)
						UNROLL for (int j = 0; j < 2; j++)
							score[e][group + i][j] = product[e][i][j] + product[e][i][j + 2];
				syncwarp();
			}
		syncthreads(); // keys are no longer needed
		if (unit < last_unit)
			UnitSource::copy<ROWS_THREADS>(s, keys, KEYS, unit + 1);
		else
			copies_commit();
		uint4 weights[EIGHTS][STEPS];
		float max[EIGHTS];
			UNROLL for (int e = 0; e < EIGHTS; e++) {
				UNROLL for (int i = 0; i < TILES_OF_EIGHT; i++)
					UNROLL for (int j = 0; j < 2; j++)
						score[e][i][j] *= scale;
				const int2 common = m->common[warp];
				if (start < common.x || start + UNIT - 1 > common.y) {
					const int2 range = m->ranges[(warp * EIGHTS + e) * EIGHT + query];
					const int begin = range.x - start - at * 2, end = range.y - start - at * 2;
					UNROLL for (int i = 0; i < TILES_OF_EIGHT; i++)
						UNROLL for (int j = 0; j < 2; j++)
							score[e][i][j] = (begin <= i * 8 + j) & (i * 8 + j <= end) ? score[e][i][j] : MINUS_INFINITY;
				}
				max[e] = MINUS_INFINITY;
				UNROLL for (int i = 0; i < TILES_OF_EIGHT; i++)
					max[e] = fmaxf(max[e], fmaxf(score[e][i][0], score[e][i][1]));
				max[e] = fmaxf(max[e], shfl_xor(max[e], 1));
				max[e] = fmaxf(max[e], shfl_xor(max[e], 2));
				const float subtrahend = subtrahend_of(max[e]);
				UNROLL for (int i = 0; i < TILES_OF_EIGHT; i++)
					UNROLL for (int j = 0; j < 2; j++)
						score[e][i][j] = weight_of(score[e][i][j] - subtrahend);
				UNROLL for (int i = 0; i < STEPS; i++) {
					split(score[e][2 * i][0], score[e][2 * i][1], weights[e][i].x, weights[e][i].y);
					split(score[e][2 * i + 1][0], score[e][2 * i + 1][1], weights[e][i].z, weights[e][i].w);
				}
			}
		copies_wait<1>();
		syncthreads(); // values are there
		float all_scale[EIGHTS], unit_scale[EIGHTS];
		UNROLL for (int half = 0; half < HALVES; half++) {
			float sums[8][4] = {}, ones[4] = {};
			UNROLL for (int step = 0; step < STEPS; step++) {
				const auto value = [&](int p) { return *reinterpret_cast<const Dims *>(&m->values[value_at(step * STEP + at * 2 + p, half * 8 + query)]); };
				const Dims v[4] = {value(0), value(1), value(8), value(9)};
				UNROLL for (int i = 0; i < 8; i++) {
					const unsigned order = i % 2 == 0 ? 0x5410 : 0x7632;
					multiply_values(sums[i], weights[0][step], weights[1][step], __byte_perm(v[0].pairs[i / 2], v[1].pairs[i / 2], order), __byte_perm(v[2].pairs[i / 2], v[3].pairs[i / 2], order));
				}
				if (half == 0)
					multiply_values(ones, weights[0][step], weights[1][step], ONES, ONES);
			}
			UNROLL for (int e = 0; e < EIGHTS; e++) {
				if (half == 0) {
					float2 total = totals[e * EIGHT + query];
					rescale(&total.x, max[e], &all_scale[e], &unit_scale[e]);
					total.y = accumulate(total.y, all_scale[e], ones[2 * e], unit_scale[e]);
					syncwarp();
					if (at == 0)
						totals[e * EIGHT + query] = total;
				}
				UNROLL for (int i = 0; i < 8; i++)
					UNROLL for (int j = 0; j < 2; j++)
						all[e][half][j][i] = accumulate(all[e][half][j][i], all_scale[e], sums[i][2 * e + j], unit_scale[e]);
			}
			syncwarp(); // keeps the compiler from beginning the next half, for which registers do not suffice
		}
		syncthreads(); // values are no longer needed
		if (unit < last_unit)
			UnitSource::copy<ROWS_THREADS>(s, values, VALUES, unit + 1);
	}
	// The results go through shared memory, in the place of keys.
	float *const results = reinterpret_cast<float *>(m->keys) + warp * EIGHTS * EIGHT * HEAD_DIMS;
	UNROLL for (int e = 0; e < EIGHTS; e++)
		UNROLL for (int half = 0; half < HALVES; half++)
			UNROLL for (int j = 0; j < 2; j++)
				UNROLL for (int i = 0; i < 8; i += 4)
					*reinterpret_cast<float4 *>(results + (e * EIGHT + query) * HEAD_DIMS + half * HALF_DIMS + (at * 2 + j) * 8 + i) = make_float4(all[e][half][j][i], all[e][half][j][i + 1], all[e][half][j][i + 2], all[e][half][j][i + 3]);
	syncwarp();
	UNROLL_BY(1) for (int i = 0; i < EIGHTS * EIGHT; i++) {
		const int of = warp * EIGHTS * EIGHT + i;
		if (of >= n.count)
			break;
		float max = totals[i].x, sum = totals[i].y, factor = 1.0f;
		if (a.sinks != nullptr)
			add_sink(a.sinks[n.head + of % n.heads], &max, &sum, &factor);
		float *const dst = a.dst + size_t(m->at[of]) * HEAD_DIMS;
		UNROLL_BY(1) for (int d = lane; d < HEAD_DIMS; d += WARP)
			dst[d] = results[i * HEAD_DIMS + d] * factor / sum;
	}
}

DEVICE void attend_rows(RowsMemory *m, const Params &a)
{
	each_range(a, [&](const Queries &n) { attend_rows_queries(m, a, n); });
}

#define MMA_ATTENTION(dims, name, threads, blocks, Memory, compute) MMA_ATTENTION_NAMED(dims, name, threads, blocks, Memory, compute)
#define MMA_ATTENTION_NAMED(dims, name, threads, blocks, Memory, compute) \
	KERNEL(attention_mma_d##dims##_##name, threads, blocks)(float *dst, float *partials, unsigned *arrivals, const float *q, element *cache, \
		int layer, int layers, int heads, int kv_heads, int dim, [[maybe_unused]] int value_dim, const float *sinks, float scale, float inner, int before, int after, int block_rows, int block_heads, int units, \
		const int *pos, const int *last, const int *seq, const int *tables, int stride, const int *rows, \
		const float *keys, const float *values, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude, \
		uint4 *image, int image_kind) \
	{ \
		SHARED(Memory, memory); \
		compute(memory, {dst, partials, arrivals, q, CACHE_OF_PARAMS, layer, layers, 2, heads, kv_heads, dim, dim, sinks, \
			scale, inner, before, after, block_rows, block_heads, units, pos, last, seq, tables, stride, rows, \
			keys, values, pairs, distance, pair_stride, frequencies, magnitude, image, image_kind}); \
	}

MMA_ATTENTION(HEAD_DIMS, row, ROW_THREADS, 2, RowMemory, attend_row)
MMA_ATTENTION(HEAD_DIMS, rows, ROWS_THREADS, 2, RowsMemory, attend_rows)

#endif
