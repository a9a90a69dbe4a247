// Mixtures of experts: which experts a row uses, and the sum of what they give. The products
// with their weights are in matmul.cu. Routes of a row are the numbers of its experts, then
// their weights, all as float32.
#include "math.cuh"

// Whether expert a with the logit x comes before expert b with y: the larger logit, of equal
// ones the lower number. Numbers below 0 are no experts. It holds for one of two in any case,
// NaN or not, so that lanes agree.
DEVICE bool comes_before(float x, int a, float y, int b) { return a >= 0 && (b < 0 || x > y || (!(x < y) && a < b)); }

// How good the size scores of a group are together: the two best, or by softmax the best.
DEVICE float goodness_of(const float *scores, int size, bool sigmoid)
{
	float first = scores[0], second = bits_to_float(0xff800000);
	for (int e = 1; e < size; e++)
		if (scores[e] > first)
			second = first, first = scores[e];
		else if (scores[e] > second)
			second = scores[e];
	return sigmoid && size > 1 ? first + second : first;
}

// How many groups are better than group g, or as good and before it.
DEVICE int rank_of(const float *goodness, int groups, int g)
{
	int rank = 0;
	for (int other = 0; other < groups; other++)
		rank += goodness[other] > goodness[g] || (goodness[other] == goodness[g] && other < g);
	return rank;
}

// routes[r] = the experts of the largest scores, then their weights: device.Routing. bias and
// factors may be null; groups_used 0: experts are chosen from all groups. A warp per row; lane l
// has experts l, l + 32 …, of which there are 1024 at most.
KERNEL(route, 32, 16)(float *routes, const float *logits, const float *bias, const float *factors, int experts, int used, int sigmoid,
	int by_logits, int groups, int groups_used, int normalize, float scale, const int *rows)
{
	SHARED(float, order); // (experts) what they are chosen by; (groups) how good they are
	const int row = blockIdx.x, lane = lane_id();
	if (row >= *rows)
		return;
	logits += size_t(row) * experts;
	routes += size_t(row) * 2 * used;
	float top = logits[0], total = 0, sum = 0;
	for (int e = lane; e < experts; e += WARP)
		top = fmaxf(top, logits[e]);
	top = warp_max(top);
	for (int e = lane; e < experts; e += WARP)
		total += exp_of(logits[e] - top);
	total = warp_sum(total);
	const auto score = [&](float logit) { return sigmoid ? 1.0f / (1.0f + exp_of(-logit)) : exp_of(logit - top) / total; };
	for (int e = lane; e < experts; e += WARP)
		order[e] = by_logits ? logits[e] : score(logits[e]) + (bias ? bias[e] : 0.0f);
	syncwarp();

	uint32_t taken = 0;
	if (groups_used > 0) {
		const int size = experts / groups;
		float *goodness = order + experts;
		for (int g = lane; g < groups; g += WARP)
			goodness[g] = goodness_of(order + g * size, size, sigmoid);
		syncwarp();
		for (int e = lane, k = 0; e < experts; e += WARP, k++)
			taken |= uint32_t(rank_of(goodness, groups, e / size) >= groups_used) << k;
	}
	for (int i = 0; i < used; i++) {
		float best = 0;
		int expert = -1;
		for (int e = lane, k = 0; e < experts; e += WARP, k++)
			if (!(taken >> k & 1) && comes_before(order[e], e, best, expert))
				best = order[e], expert = e;
		UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2) {
			const float other = shfl_xor(best, mask);
			const int other_expert = shfl_xor(expert, mask);
			if (comes_before(other, other_expert, best, expert))
				best = other, expert = other_expert;
		}
		if (expert % WARP == lane)
			taken |= 1u << expert / WARP;
		const float weight = score(logits[expert]);
		sum += weight;
		if (lane == 0) {
			routes[i] = float(expert);
			routes[used + i] = weight;
		}
	}
	if (lane == 0)
		for (int i = 0; i < used; i++) {
			const float weight = (normalize ? routes[used + i] / sum : routes[used + i]) * scale;
			routes[used + i] = factors ? weight * factors[int(routes[i])] : weight;
		}
}

// x[r] += the biases of r's experts, one of each next to each other. A thread per element; a
// number that is no expert's counts as the first.
KERNEL(expert_bias, 256, 8)(float *x, const float *bias, const float *routes, int experts, int used, int each, const int *rows)
{
	const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= used * each)
		return;
	const float expert = routes[size_t(row) * 2 * used + col / each];
	x[size_t(row) * used * each + col] += bias[size_t(expert >= 0 && expert < experts ? int(expert) : 0) * each + col % each];
}

// pairs = rows · used: the products of experts have as many rows.
KERNEL(count_pairs, 32, 16)(int *pairs, int used, const int *rows)
{
	if (threadIdx.x == 0)
		*pairs = *rows * used;
}

// dst[r] = Σ over r's experts of their part of x[r] times their weight. A thread per element.
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
