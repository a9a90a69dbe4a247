// Candidates: selects the 256 largest logits of every row in descending order, and computes what is needed
// to convert them to probabilities: the maximum and Σ e^(x-max) over the whole vocabulary.
//
// A token is sorted by a 64-bit key. The upper half is the bits of its logit, mapped to an unsigned integer
// with the same order; the lower half is the complement of its id, so that of equal logits the lowest id
// wins. In the first kernel, a block sorts the 4096 logits of its part of a row as 16 lists of 256 keys
// and merges them to the best 256. In the second, one block per row merges the lists of all parts. Both
// use bitonic networks, whose steps do not depend on the data.
//
// Exponentials are float32 with an error of up to 1e-7. Sums are float64, added in an order that depends
// only on the size of the vocabulary.
//
// The second kernel also draws a token from the list, for the rows that have settings for that (draw.cuh).
#include "draw.cuh"

enum { BEST = 256, LISTS = 16, PART = LISTS * BEST, THREADS = 256 };

typedef unsigned long long key; // 0: no token or a masked one

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

// Compare-exchange: puts a and b in descending or ascending order.
DEVICE void compare_exchange(key *a, key *b, bool descending)
{
	key x = *a, y = *b;
	if ((x < y) == descending)
		*a = y, *b = x;
}

// Sorts the lists, each in descending order.
DEVICE void sort_lists(key *keys)
{
	for (int size = 2; size <= BEST; size *= 2)
		for (int distance = size / 2; distance > 0; distance /= 2) {
			for (int t = threadIdx.x; t < PART / 2; t += THREADS) {
				int i = 2 * t - (t & (distance - 1)); // in binary, bit distance of i is 0
				compare_exchange(&keys[i], &keys[i + distance], (i & size & (BEST - 1)) == 0);
			}
			syncthreads();
		}
}

// Merges the lists: the first one becomes the best 256 keys of all, in descending order. Of two sorted
// lists a and b, the larger of a[i] and b[255-i] for each i are the best 256, as a bitonic sequence.
DEVICE void merge_lists(key *keys)
{
	int i = threadIdx.x;
	for (int distance = 1; distance < LISTS; distance *= 2) {
		for (int list = 0; list < LISTS; list += 2 * distance) {
			key a = keys[list * BEST + i], b = keys[(list + distance) * BEST + BEST - 1 - i];
			keys[list * BEST + i] = a > b ? a : b;
		}
		syncthreads();
		for (int step = BEST / 2; step > 0; step /= 2) {
			int pairs = LISTS / (2 * distance) * (BEST / 2);
			for (int t = i; t < pairs; t += THREADS) {
				int within = t % (BEST / 2), first = t / (BEST / 2) * 2 * distance * BEST + 2 * within - (within & (step - 1));
				compare_exchange(&keys[first], &keys[first + step], true);
			}
			syncthreads();
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
	SHARED(key, keys);
	void *rest = keys + PART;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;

	Extremes mine = {-INFINITE, 0, NONE};
	for (int i = t; i < PART; i += THREADS) {
		int id = blockIdx.x * PART + i;
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
	for (int i = t; i < PART; i += THREADS) {
		if (keys[i] == 0)
			continue;
		float x = logit_of(keys[i]) - all.max, weight = exp_of(x);
		terms.mass += (double)weight;
		terms.dot += (double)weight * (double)x;
	}
	terms = reduce(static_cast<Terms *>(rest), terms);

	sort_lists(keys);
	merge_lists(keys);
	Part *part = parts + (size_t)row * gridDim.x + blockIdx.x;
	part->best[t] = keys[t];
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
	SHARED(key, keys);
	void *rest = keys + PART;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;
	parts += (size_t)row * count;

	// In every round but the first, the first list is the best so far.
	for (int next = 0; next < count;) {
		int first = next == 0 ? 0 : 1;
		for (int list = first; list < LISTS; list++, next++)
			keys[list * BEST + t] = next < count ? parts[next].best[t] : 0;
		syncthreads();
		merge_lists(keys);
	}

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
