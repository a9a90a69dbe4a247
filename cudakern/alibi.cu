// Attention with linear biases, ALiBi: o = softmax(q·kᵀ·scale - slope·distance)·v for every row and query head, where distance is
// that of the positions, in either direction, and each head has a slope.
//
// A block computes one head of a row, so the bits of a row do not depend on the others. Positions are divided into units of
// 128, as in attention.cu; each thread computes the score of one position of a unit, then some elements of the result over ascending
// positions. Units are added in ascending order, rescaled to the larger maximum each time.
#include "kvcache.cuh"
#include "math.cuh"

enum { ALIBI_THREADS = 128, ALIBI_WARPS = ALIBI_THREADS / WARP, ALIBI_PARTS = 4 }; // PARTS: elements of a result that a thread has, at most

#define MINUS_INFINITY bits_to_float(0xff800000)

#if defined(CACHE_F16)
DEVICE float value_of(Elements p) { return half_to_float(*p); }
#else
DEVICE float value_of(Elements p) { return load1(p); }
#endif

// Returns the slope of a head: those of the first n heads, n the largest power of two, fall from 2^(-max_bias/n) to 2^-max_bias, and
// those of others lie between them.
DEVICE float slope_of(int head, int heads, float max_bias)
{
	int n = 1;
	while (2 * n <= heads)
		n *= 2;
	return head < n ? exp2_of(-max_bias / n * (head + 1)) : exp2_of(-max_bias / (2 * n) * (2 * (head - n) + 1));
}

// A row attends to positions from pos - before to pos + after, and to none behind last. dim is at most ALIBI_PARTS · ALIBI_THREADS.
KERNEL(CACHE_NAME(alibi), ALIBI_THREADS, 8)(float *dst, const float *q, CACHE, int layer, int layers, int heads, int kv_heads, int dim,
	float scale, float max_bias, int before, int after, const int *pos, const int *last, const int *seq, const int *tables, int stride, const int *rows)
{
	SHARED(float, shared); // (dim) the query, (threads) weights of a unit, (warps) maxima and (warps) sums of its warps
	const int row = blockIdx.y, head = blockIdx.x, kv_head = head / (heads / kv_heads), t = threadIdx.x;
	if (row >= *rows)
		return;
	float *query = shared, *weights = query + dim, *maxima = weights + ALIBI_THREADS, *sums = maxima + ALIBI_WARPS;
	const size_t first = ((size_t)row * heads + head) * dim;
	for (int d = t; d < dim; d += ALIBI_THREADS)
		query[d] = q[first + d];
	const int *table = tables + (size_t)seq[row] * stride;
	const auto element_of = [&](int p, int kind, int d) {
#if defined(CACHE_F16)
		const Elements rows = cache + cache_index(table[p / BLOCK_POSITIONS], layer, layers, 2, kind, kv_head, kv_heads, dim);
#else
		const int format = kind == KEYS ? key_format : value_format;
		const uint8_t *const head = cache + head_offset(key_format, value_format, table[p / BLOCK_POSITIONS], layer, layers, 2, kind, kv_head, kv_heads, dim);
		const Elements rows = {head, head + code_bytes(format, BLOCK_POSITIONS * dim), format, 0};
#endif
		return rows + (p % BLOCK_POSITIONS * dim + d);
	};
#if defined(CACHE_ANY)
	if (is_quantized(key_format))
		rotate_queries(query, 1, dim, dim);
#endif
	const int low = max(pos[row] - before, 0), high = min(pos[row] + after, last[row]);
	const float slope = slope_of(head, heads, max_bias) * LOG2_E;
	float max_score = MINUS_INFINITY, sum = 0, result[ALIBI_PARTS] = {};

	for (int start = low / ALIBI_THREADS * ALIBI_THREADS; start <= high; start += ALIBI_THREADS) {
		syncthreads(); // the query is stored, and weights of the unit before are read
		const int p = start + t;
		float score = MINUS_INFINITY;
		if (low <= p && p <= high) {
			const Elements key = element_of(p, KEYS, 0);
			float product = 0;
			for (int d = 0; d < dim; d++)
				product = fmaf(query[d], value_of(key + d), product);
			score = product * scale - slope * float(p < pos[row] ? pos[row] - p : p - pos[row]);
		}
		float m = warp_max(score);
		if (lane_id() == 0)
			maxima[warp_id()] = m;
		syncthreads();
		m = fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3]));
		const float larger = fmaxf(max_score, m), rescale = max_score > MINUS_INFINITY ? exp2_of(max_score - larger) : 0.0f;
		const float weight = low <= p && p <= high ? exp2_of(score - larger) : 0.0f;
		max_score = larger;
		weights[t] = weight;
		const float part = warp_sum(weight);
		if (lane_id() == 0)
			sums[warp_id()] = part;
		syncthreads();
		sum = sum * rescale + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
		UNROLL for (int i = 0; i < ALIBI_PARTS; i++) {
			const int d = t + i * ALIBI_THREADS;
			if (d >= dim)
				break;
			float added = 0;
			for (int at = max(low, start); at <= min(high, start + ALIBI_THREADS - 1); at++) {
				added = fmaf(weights[at - start], value_of(element_of(at, VALUES, d)), added);
			}
			result[i] = result[i] * rescale + added;
		}
	}
	UNROLL for (int i = 0; i < ALIBI_PARTS; i++)
		if (t + i * ALIBI_THREADS < dim)
			dst[first + t + i * ALIBI_THREADS] = result[i] / sum;
}
