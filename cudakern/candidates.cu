// Candidates: selects the 256 largest logits of every row in descending order, and computes what is needed
// to convert them to probabilities: the maximum and Σ e^(x-max) over the whole vocabulary.
//
// A token is sorted by a 64-bit key. The upper half is the bits of its logit, mapped to an unsigned integer
// with the same order; the lower half is the complement of its id, so that of equal logits the lowest id
// wins. In the first kernel, each warp of a block sorts two lists of 256 keys of its part of a row, 4096 logits,
// and the block merges them to the best 256. In the second, one block per row merges the lists of all parts.
// Both use bitonic networks, whose steps do not depend on the data, in registers.
//
// Exponentials are float32 with an error of up to 1e-7. Sums are float64, added in an order that depends
// only on the size of the vocabulary.
//
// The second kernel also draws a token from the list, for the rows that have settings for that (draw.cuh).
#include "draw.cuh"

enum { BEST = 256, THREADS = 256, WARPS = THREADS / WARP, LANE_KEYS = BEST / WARP };
enum { PART = 2 * WARPS * BEST, EACH = PART / THREADS }; // logits of a block, and of each thread

typedef unsigned long long key; // 0: no token or a masked one

// Compare-exchange: puts a and b in descending or ascending order.
DEVICE void compare_exchange(key &a, key &b, bool descending)
{
	const key x = a, y = b;
	if ((x < y) == descending)
		a = y, b = x;
}

// Sums over the unmasked tokens (logit > -Inf) of a part.
struct Sums {
	double mass, dot; // of e^(x-max) and of e^(x-max)·(x-max)
	float max;
	int count;
	int bad; // lowest token whose logit is NaN or +Inf, or NONE
	int drawn; // of a Result: the token that was drawn, -1 if none was
};

enum { NONE = 0x7fffffff };

struct Part {
	key best[BEST];
	Sums sums;
};

// The result for a row; Candidates.Decode in Go reads it.
struct Result {
	Sums sums; // bad is -1 if there is none
	int id[BEST];
	float logit[BEST];
};

DEVICE key key_of(float logit, int id)
{
	uint32_t bits = float_to_bits(logit + 0.0f); // -0 and +0 are equal
	bits = bits >> 31 ? ~bits : bits | 0x80000000u;
	return (key)bits << 32 | (uint32_t)~id;
}

DEVICE float logit_of(key k)
{
	uint32_t bits = (uint32_t)(k >> 32);
	return bits_to_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

// A list in the registers of a warp: lane l has keys 8l … 8l + 7.
struct List {
	key keys[LANE_KEYS];
};

DEVICE key shfl_xor_key(key v, int mask)
{
	return (key)shfl_xor((uint32_t)(v >> 32), mask) << 32 | shfl_xor((uint32_t)v, mask);
}

// Puts keys whose positions differ in one bit, that of lanes in mask, in descending or ascending order.
DEVICE void step_over_lanes(List &list, int mask, bool descending)
{
	const bool larger = descending == ((lane_id() & mask) == 0);
	UNROLL for (int i = 0; i < LANE_KEYS; i++) {
		const key own = list.keys[i], other = shfl_xor_key(own, mask);
		if ((own < other) == larger)
			list.keys[i] = other;
	}
}

// Merges the lane's keys, a bitonic sequence: the last three steps of every merge.
DEVICE void merge_lane(List &list, bool descending)
{
	UNROLL for (int distance = LANE_KEYS / 2; distance > 0; distance /= 2)
		UNROLL for (int i = 0; i < LANE_KEYS; i++)
			if ((i & distance) == 0)
				compare_exchange(list.keys[i], list.keys[i + distance], descending);
}

// Sorts two lists at once, the first in descending, the second in ascending order.
DEVICE void sort(List &down, List &up)
{
	const int lane = lane_id();
	UNROLL for (int size = 2; size < LANE_KEYS; size *= 2)
		UNROLL for (int distance = size / 2; distance > 0; distance /= 2)
			UNROLL for (int i = 0; i < LANE_KEYS; i++)
				if ((i & distance) == 0) {
					compare_exchange(down.keys[i], down.keys[i + distance], (i & size) == 0);
					compare_exchange(up.keys[i], up.keys[i + distance], (i & size) != 0);
				}
	for (int lanes = 1; lanes <= WARP; lanes *= 2) { // in which sorted sequences lie
		const bool descending = (lane & lanes) == 0 || lanes == WARP;
		for (int mask = lanes / 2; mask > 0; mask /= 2) {
			step_over_lanes(down, mask, descending);
			step_over_lanes(up, mask, !descending);
		}
		merge_lane(down, descending);
		merge_lane(up, !descending);
	}
}

// best becomes the best 256 keys of two lists, best in descending and other in ascending order: the larger ones
// of each position are these, as a bitonic sequence, which is then sorted.
DEVICE void merge(List &best, const List &other)
{
	UNROLL for (int i = 0; i < LANE_KEYS; i++)
		if (best.keys[i] < other.keys[i])
			best.keys[i] = other.keys[i];
	for (int mask = WARP / 2; mask > 0; mask /= 2)
		step_over_lanes(best, mask, true);
	merge_lane(best, true);
}

// Merges the lists of all warps: that of warp 0 becomes the best of all. shared has room for WARPS lists.
DEVICE void merge_warps(List &best, key *shared)
{
	const int warp = warp_id(), lane = lane_id();
	for (int half = WARPS / 2; half > 0; half /= 2) {
		key *const lists = shared + half * BEST; // of the upper half, in ascending order
		if (half <= warp && warp < 2 * half)
			UNROLL for (int i = 0; i < LANE_KEYS; i++)
				lists[((warp - half) * LANE_KEYS + LANE_KEYS - 1 - i) * WARP + WARP - 1 - lane] = best.keys[i];
		syncthreads();
		if (warp < half) {
			List other;
			UNROLL for (int i = 0; i < LANE_KEYS; i++)
				other.keys[i] = lists[(warp * LANE_KEYS + i) * WARP + lane];
			merge(best, other);
		}
	}
}

struct Extremes {
	float max;
	int count, bad;
};

struct Terms {
	double mass, dot;
};

DEVICE void combine(Extremes *a, const Extremes &b)
{
	a->max = fmaxf(a->max, b.max);
	a->count += b.count;
	a->bad = min(a->bad, b.bad);
}

DEVICE void combine(Terms *a, const Terms &b)
{
	a->mass += b.mass;
	a->dot += b.dot;
}

// Reduces the values of all threads in a tree. Every thread gets the result.
template <typename T> DEVICE T reduce(T *shared, T mine)
{
	int t = threadIdx.x;
	shared[t] = mine;
	for (int half = THREADS / 2; half > 0; half /= 2) {
		syncthreads();
		if (t < half)
			combine(&shared[t], shared[t + half]);
	}
	syncthreads();
	T all = shared[0];
	syncthreads();
	return all;
}

// Returns the sums of a row or part from the reduced values.
DEVICE Sums sums_of(const Extremes &e, const Terms &terms)
{
	Sums s = {terms.mass, terms.dot, e.max, e.count, e.bad, -1};
	return s;
}

#define INFINITE bits_to_float(0x7f800000)

KERNEL(candidates_part, 256, 2)(Part *parts, const float *logits, int vocab, const int *rows)
{
	SHARED(key, shared);
	void *rest = shared + WARPS * BEST;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;

	key keys[EACH];
	Extremes mine = {-INFINITE, 0, NONE};
	UNROLL for (int i = 0; i < EACH; i++) {
		int id = blockIdx.x * PART + i * THREADS + t;
		float x = id < vocab ? logits[(size_t)row * vocab + id] : -INFINITE;
		keys[i] = 0;
		if (!(x < INFINITE)) {
			mine.bad = min(mine.bad, id);
		} else if (x > -INFINITE) {
			mine.max = fmaxf(mine.max, x);
			mine.count++;
			keys[i] = key_of(x, id);
		}
	}
	Extremes all = reduce(static_cast<Extremes *>(rest), mine);

	Terms terms = {};
	UNROLL for (int i = 0; i < EACH; i++) {
		if (keys[i] == 0)
			continue;
		float x = logit_of(keys[i]) - all.max, weight = exp_of(x);
		terms.mass += (double)weight;
		terms.dot += (double)weight * (double)x;
	}
	terms = reduce(static_cast<Terms *>(rest), terms);

	List best, other; // any keys, as long as each is in one of them
	UNROLL for (int i = 0; i < LANE_KEYS; i++)
		best.keys[i] = keys[i], other.keys[i] = keys[LANE_KEYS + i];
	sort(best, other);
	merge(best, other);
	merge_warps(best, shared);
	Part *part = parts + (size_t)row * gridDim.x + blockIdx.x;
	if (t < WARP)
		UNROLL for (int i = 0; i < LANE_KEYS; i++)
			part->best[t * LANE_KEYS + i] = best.keys[i];
	if (t == 0)
		part->sums = sums_of(all, terms);
}

// Returns the token that is drawn from a row with the given list and sums; 0 if there is none. weights has 2 · BEST
// elements. Only the first thread gets the token.
DEVICE int draw_from(const Draw &d, const key *keys, const Sums &sums, double *weights)
{
	int t = threadIdx.x;
	double *tempered = weights + BEST;
	double x = keys[t] == 0 ? -INFINITE : (double)logit_of(keys[t]) - (double)logit_of(keys[0]);
	weights[t] = exp_neg(x);
	tempered[t] = exp_neg(x * d.inverse);
	syncthreads();
	if (t != 0 || keys[0] == 0)
		return 0;
	int i = 0;
	if (d.inverse > 0.0) {
		Left left = {sums.count, min(sums.count, (int)BEST), sums.mass > 1.0 ? sums.mass : 1.0};
		truncate(&left, d, weights);
		if (d.inverse != 1.0)
			weights = tempered, left.mass = sum_of(tempered, left.known);
		i = pick(left, weights, uniform_of(d.seed, d.pos));
	}
	return (int)~(uint32_t)keys[i];
}

// The first *drawing rows, with settings draws, draw a token each, which is written to drawn too.
KERNEL(candidates_merge, 256, 2)(Result *results, const Part *parts, int count, const int *rows, const int *drawing, const Draw *draws, int *drawn)
{
	SHARED(key, shared);
	void *rest = shared + WARPS * BEST;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;
	parts += (size_t)row * count;

	List best = {};
	const int first = lane_id() * LANE_KEYS; // key of the lane
	for (int p = warp_id(); p < count; p += WARPS) {
		List other;
		UNROLL for (int i = 0; i < LANE_KEYS; i++)
			other.keys[i] = parts[p].best[BEST - 1 - first - i];
		merge(best, other);
	}
	merge_warps(best, shared);
	if (warp_id() == 0)
		UNROLL for (int i = 0; i < LANE_KEYS; i++)
			shared[first + i] = best.keys[i];
	const key *const keys = shared; // the list, behind the barriers of reduce

	Sums own = {0.0, 0.0, -INFINITE, 0, NONE, -1};
	if (t < count)
		own = parts[t].sums;
	Extremes mine = {own.max, own.count, own.bad};
	Extremes all = reduce(static_cast<Extremes *>(rest), mine);
	Terms terms = {};
	if (own.count > 0) {
		float x = own.max - all.max;
		double weight = exp_of(x);
		terms.mass = own.mass * weight;
		terms.dot = (own.dot + own.mass * x) * weight;
	}
	terms = reduce(static_cast<Terms *>(rest), terms);

	Result *result = results + row;
	result->id[t] = keys[t] == 0 ? -1 : (int)~(uint32_t)keys[t];
	result->logit[t] = keys[t] == 0 ? 0.0f : logit_of(keys[t]);
	Sums sums = sums_of(all, terms);
	if (sums.bad == NONE)
		sums.bad = -1;
	if (drawing && row < *drawing) {
		sums.drawn = draw_from(draws[row], keys, sums, static_cast<double *>(rest));
		if (t == 0)
			drawn[row] = sums.drawn;
	}
	if (t == 0)
		result->sums = sums;
}
