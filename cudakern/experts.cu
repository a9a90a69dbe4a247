// Mixture of experts: selects the experts of each row and sums their results. The matrix products of
// experts are in matmul.cu. The routes of a row are the indices of its experts, then their weights, all
// as float32.
#include "experts.cuh"
#include "math.cuh"

// Reports whether expert a with score x ranks before expert b with score y: the larger score, then the
// lower index. A negative index is no expert. For any two experts it is true in exactly one order, even
// if scores are NaN, so that all lanes agree.
DEVICE bool comes_before(float x, int a, float y, int b) { return a >= 0 && (b < 0 || x > y || (!(x < y) && a < b)); }

// Returns the score of a group of size experts: the sum of the best two with sigmoid, else the best.
DEVICE float group_score(const float *scores, int size, bool sigmoid)
{
	float first = scores[0], second = bits_to_float(0xff800000);
	for (int e = 1; e < size; e++)
		if (scores[e] > first)
			second = first, first = scores[e];
		else if (scores[e] > second)
			second = scores[e];
	return sigmoid && size > 1 ? first + second : first;
}

// Returns the number of groups that rank before group g.
DEVICE int rank_of(const float *group_scores, int groups, int g)
{
	int rank = 0;
	for (int other = 0; other < groups; other++)
		rank += group_scores[other] > group_scores[g] || (group_scores[other] == group_scores[g] && other < g);
	return rank;
}

// How scores follow from logits: cudakern.Score.
enum { SOFTMAX, SIGMOID, SPARSE_MIXER };

// Reports whether a logit x is near top, the largest: device.ScoreSparseMixer.
DEVICE bool is_near(float x, float top, float margin) { return !(top - x > margin * fmaxf(fabsf(x), top)); }

// routes[r] = the experts with the largest scores, then their weights; device.Routing defines both. bias
// and factors may be null. If groups_used is 0, experts of all groups are candidates. A warp computes one
// row; lane l has experts l, l + 32 …, up to 1024 in all.
KERNEL(route, 32, 16)(float *routes, const float *logits, const float *bias, const float *factors, int experts, int used, int score_of,
	float margin, int by_logits, int groups, int groups_used, int normalize, float scale, const int *rows)
{
	SHARED(float, ranking); // (experts) the scores to select by, then (groups) the scores of groups, then (2, used) what is chosen, as in routes
	const int row = blockIdx.x, lane = lane_id();
	if (row >= *rows)
		return;
	float *const chosen = ranking + experts + groups;
	logits += size_t(row) * experts;
	routes += size_t(row) * 2 * used;
	float max_logit = logits[0], total = 0, sum = 0;
	for (int e = lane; e < experts; e += WARP)
		max_logit = fmaxf(max_logit, logits[e]);
	max_logit = warp_max(max_logit);
	for (int e = lane; e < experts; e += WARP)
		total += exp_of(logits[e] - max_logit);
	total = warp_sum(total);
	const auto score = [&](float logit) { return score_of == SIGMOID ? 1.0f / (1.0f + exp_of(-logit)) : exp_of(logit - max_logit) / total; };
	for (int e = lane; e < experts; e += WARP)
		ranking[e] = by_logits ? logits[e] : score(logits[e]) + (bias ? bias[e] : 0.0f);
	syncwarp();

	uint32_t excluded = 0;
	if (groups_used > 0) {
		const int size = experts / groups;
		float *group_scores = ranking + experts;
		for (int g = lane; g < groups; g += WARP)
			group_scores[g] = group_score(ranking + g * size, size, score_of == SIGMOID);
		syncwarp();
		for (int e = lane, k = 0; e < experts; e += WARP, k++)
			excluded |= uint32_t(rank_of(group_scores, groups, e / size) >= groups_used) << k;
	}
	for (int i = 0; i < used; i++) {
		float best = 0;
		int expert = -1;
		for (int e = lane, k = 0; e < experts; e += WARP, k++)
			if (!(excluded >> k & 1) && comes_before(ranking[e], e, best, expert))
				best = ranking[e], expert = e;
		UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2) {
			const float other = shfl_xor(best, mask);
			const int other_expert = shfl_xor(expert, mask);
			if (comes_before(other, other_expert, best, expert))
				best = other, expert = other_expert;
		}
		float weight = score(logits[expert]);
		if (score_of == SPARSE_MIXER) {
			const float top = logits[expert];
			float near = 0;
			for (int e = lane, k = 0; e < experts; e += WARP, k++)
				if (!(excluded >> k & 1) && is_near(logits[e], top, margin))
					near += exp_of(logits[e] - top);
			weight = 1.0f / warp_sum(near);
		}
		if (expert % WARP == lane)
			excluded |= 1u << expert / WARP;
		sum += weight;
		if (lane == 0) {
			chosen[i] = float(expert);
			chosen[used + i] = weight;
		}
	}
	syncwarp();
	for (int i = lane; i < used; i += WARP) {
		const float weight = (normalize ? chosen[used + i] / sum : chosen[used + i]) * scale;
		routes[i] = chosen[i];
		routes[used + i] = factors ? weight * factors[int(chosen[i])] : weight;
	}
}

// x[r] += the biases of r's experts, of each values each. A thread computes one element. Invalid expert
// indices are treated as 0.
KERNEL(expert_bias, 256, 8)(float *x, const float *bias, const float *routes, int experts, int used, int each, const int *rows)
{
	const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= used * each)
		return;
	const int expert = expert_of_pair(routes, experts, used, row * used + col / each);
	x[size_t(row) * used * each + col] += bias[size_t(expert) * each + col % each];
}

// *pairs = *rows · used, the number of rows of the products of experts.
KERNEL(count_pairs, 32, 16)(int *pairs, int used, const int *rows)
{
	if (threadIdx.x == 0)
		*pairs = *rows * used;
}

// groups = the pairs of *rows rows and their used experts, in groups of up to each pairs: experts.cuh. A single
// block. The order of an expert's pairs is that in which threads arrive; no result depends on it.
KERNEL(group_pairs, 1024, 1)(int *groups, const float *routes, int experts, int used, int each, int most, const int *rows)
{
	SHARED(int, next); // (experts) the number of its pairs, then the slot of the next of them
	const int pairs = *rows * used;
	for (int e = threadIdx.x; e < experts; e += blockDim.x)
		next[e] = 0;
	syncthreads();
	for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x)
		atomicAdd(&next[expert_of_pair(routes, experts, used, pair)], 1);
	syncthreads();
	if (warp_id() == 0) {
		int total = 0; // groups of the experts before
		for (int first = 0; first < experts; first += WARP) {
			const int e = first + lane_id(), count = e < experts ? next[e] : 0, own = (count + each - 1) / each;
			int end = own;
			UNROLL for (int by = 1; by < WARP; by *= 2) {
				const int before = shfl_up(end, by);
				end += lane_id() >= by ? before : 0;
			}
			end += total;
			for (int slot = (end - own) * each + count; slot < end * each; slot++)
				pairs_of(groups, most)[slot] = -1;
			if (e < experts)
				next[e] = (end - own) * each;
			total = shfl(end, WARP - 1);
		}
		if (lane_id() == 0)
			*groups = total;
	}
	syncthreads();
	for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
		const int e = expert_of_pair(routes, experts, used, pair), slot = atomicAdd(&next[e], 1);
		pairs_of(groups, most)[slot] = pair;
		if (slot % each == 0)
			experts_of(groups)[slot / each] = e;
	}
}

// dst[r] = Σ over r's experts of their part of x[r] · their weight. A thread computes one element.
KERNEL(expert_sum, 256, 8)(float *dst, const float *x, const float *routes, int used, int cols, const int *rows)
{
	const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= cols)
		return;
	float sum = 0;
	for (int i = 0; i < used; i++)
		sum = fmaf(routes[(size_t(row) * 2 + 1) * used + i], x[(size_t(row) * used + i) * cols + col], sum);
	dst[size_t(row) * cols + col] = sum;
}
