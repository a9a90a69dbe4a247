// Mixtures of experts: which experts a row uses, and the sum of what they give. The products
// with their weights are in matmul.cu. Routes of a row are the numbers of its experts, then
// their weights, all as float32.
#include "math.cuh"

// Whether expert a with the logit x comes before expert b with y: the larger logit, of equal
// ones the lower number. Numbers below 0 are no experts. It holds for one of two in any case,
// NaN or not, so that lanes agree.
DEVICE bool comes_before(float x, int a, float y, int b) { return a >= 0 && (b < 0 || x > y || (!(x < y) && a < b)); }

// routes[r] = the experts of the largest logits, and softmax of all logits at them, divided by
// their sum if normalize, times scale. A warp per row; lane l has experts l, l + 32 …, of which
// there are 1024 at most.
KERNEL(route, 32, 16)(float *routes, const float *logits, int experts, int used, int normalize, float scale, const int *rows)
{
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

	uint32_t taken = 0;
	for (int i = 0; i < used; i++) {
		float best = 0;
		int expert = -1;
		for (int e = lane, k = 0; e < experts; e += WARP, k++)
			if (!(taken >> k & 1) && comes_before(logits[e], e, best, expert))
				best = logits[e], expert = e;
		UNROLL for (int mask = WARP / 2; mask > 0; mask /= 2) {
			const float other = shfl_xor(best, mask);
			const int other_expert = shfl_xor(expert, mask);
			if (comes_before(other, other_expert, best, expert))
				best = other, expert = other_expert;
		}
		if (expert % WARP == lane)
			taken |= 1u << expert / WARP;
		const float weight = exp_of(best - top) / total;
		sum += weight;
		if (lane == 0) {
			routes[i] = float(expert);
			routes[used + i] = weight;
		}
	}
	if (lane == 0)
		for (int i = used; i < 2 * used; i++)
			routes[i] = (normalize ? routes[i] / sum : routes[i]) * scale;
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
