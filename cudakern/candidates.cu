// Candidates: of every row of logits the 256 largest, in order, with what makes
// probabilities of them: the largest logit and Σ e^(x-max) over the whole vocabulary.
//
// A token is a key: its logit's bits, turned so that they order like the number, over
// the complement of its id, so that of equal logits the lowest id is the largest. In a
// first kernel a block sorts 16 lists of 256 keys, the 4096 logits of its part of a row,
// and merges them to the best 256; in a second a block per row merges those of all parts.
// Both sort in bitonic networks, which take the same steps whatever the numbers.
//
// Powers are float32, to 1e-7. Sums are float64, in an order that the number of tokens
// fixes.
#include "math.cuh"

enum { BEST = 256, LISTS = 16, PART = LISTS * BEST, THREADS = 256 };

typedef unsigned long long key; // 0: no token

// Sums over the tokens of a part, those whose logit is not -Inf.
struct Sums {
	double mass, dot; // of e^(x-max) and of e^(x-max)·(x-max)
	float max;
	int count;
	int bad; // lowest token whose logit is NaN or +Inf; NONE
	int unused;
};

enum { NONE = 0x7fffffff };

struct Part {
	key best[BEST];
	Sums sums;
};

// What a row comes to.
struct Result {
	Sums sums; // bad: or -1
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

// Puts the pair in descending order, or in ascending order.
DEVICE void order(key *a, key *b, bool descending)
{
	key x = *a, y = *b;
	if ((x < y) == descending)
		*a = y, *b = x;
}

// Sorts the lists, each in descending order.
DEVICE void sort_lists(key *keys)
{
	for (int size = 2; size <= BEST; size *= 2)
		for (int apart = size / 2; apart > 0; apart /= 2) {
			for (int t = threadIdx.x; t < PART / 2; t += THREADS) {
				int i = 2 * t - (t & (apart - 1)); // bit "apart" of i is 0
				order(&keys[i], &keys[i + apart], (i & size & (BEST - 1)) == 0);
			}
			syncthreads();
		}
}

// Leaves the best of all lists in the first, in descending order. Of two sorted lists
// the larger of a[i] and b[255-i] are the best 256, in an order that a bitonic network
// can sort.
DEVICE void merge_lists(key *keys)
{
	int i = threadIdx.x;
	for (int apart = 1; apart < LISTS; apart *= 2) {
		for (int list = 0; list < LISTS; list += 2 * apart) {
			key a = keys[list * BEST + i], b = keys[(list + apart) * BEST + BEST - 1 - i];
			keys[list * BEST + i] = a > b ? a : b;
		}
		syncthreads();
		for (int step = BEST / 2; step > 0; step /= 2) {
			int pairs = LISTS / (2 * apart) * (BEST / 2);
			for (int t = i; t < pairs; t += THREADS) {
				int within = t % (BEST / 2), first = t / (BEST / 2) * 2 * apart * BEST + 2 * within - (within & (step - 1));
				order(&keys[first], &keys[first + step], true);
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

// Combines what every thread brings, in a tree.
template <typename T> DEVICE T combine_all(T *shared, T mine)
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

// The sums of a row or a part of it from what the threads bring.
DEVICE Sums sums_of(const Extremes &e, const Terms &terms)
{
	Sums s = {terms.mass, terms.dot, e.max, e.count, e.bad, 0};
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
	Extremes all = combine_all(static_cast<Extremes *>(rest), mine);

	Terms terms = {};
	for (int i = t; i < PART; i += THREADS) {
		if (keys[i] == 0)
			continue;
		float x = logit_of(keys[i]) - all.max, weight = exp_of(x);
		terms.mass += (double)weight;
		terms.dot += (double)weight * (double)x;
	}
	terms = combine_all(static_cast<Terms *>(rest), terms);

	sort_lists(keys);
	merge_lists(keys);
	Part *part = parts + (size_t)row * gridDim.x + blockIdx.x;
	part->best[t] = keys[t];
	if (t == 0)
		part->sums = sums_of(all, terms);
}

KERNEL(candidates_merge, 256, 2)(Result *results, const Part *parts, int count, const int *rows)
{
	SHARED(key, keys);
	void *rest = keys + PART;
	int row = blockIdx.y, t = threadIdx.x;
	if (row >= *rows)
		return;
	parts += (size_t)row * count;

	// The best so far are the first list of every round but the first.
	for (int next = 0; next < count;) {
		int first = next == 0 ? 0 : 1;
		for (int list = first; list < LISTS; list++, next++)
			keys[list * BEST + t] = next < count ? parts[next].best[t] : 0;
		syncthreads();
		merge_lists(keys);
	}

	Sums own = {0.0, 0.0, -INFINITE, 0, NONE, 0};
	if (t < count)
		own = parts[t].sums;
	Extremes mine = {own.max, own.count, own.bad};
	Extremes all = combine_all(static_cast<Extremes *>(rest), mine);
	Terms terms = {};
	if (own.count > 0) {
		float x = own.max - all.max;
		double weight = exp_of(x);
		terms.mass = own.mass * weight;
		terms.dot = (own.dot + own.mass * x) * weight;
	}
	terms = combine_all(static_cast<Terms *>(rest), terms);

	Result *result = results + row;
	result->id[t] = keys[t] == 0 ? -1 : (int)~(uint32_t)keys[t];
	result->logit[t] = keys[t] == 0 ? 0.0f : logit_of(keys[t]);
	if (t == 0) {
		if (all.bad == NONE)
			all.bad = -1;
		result->sums = sums_of(all, terms);
	}
}
