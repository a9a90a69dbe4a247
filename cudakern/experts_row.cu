// A mixture of experts of few rows, of which each pair of a row and one of its experts is computed by itself, in two launches:
//
//	experts_glu   of each pair the image of the GLU of the products gate and up of RMSNorm(x) · w: the kernel glu of matmul_row.cu with the weights of an
//	              expert. Grid: (at most the number of groups of 32 outputs, pairs), with its launch
//	experts_sum   of each row the sum of its pairs' products of these images, each times the pair's weight, stored or added to dst. A warp computes
//	              the product of a pair and a band of 4 outputs, so that the loads of all its experts are on their way at the same time; a block has
//	              all pairs of a band, and with few experts several bands. Grid: (at most the number of groups of bands, rows). Launch with blockDim.x = 256
//	              and the shared memory of RowMemory, with the images of all pairs
//
// The bits are those of separate launches: of the norm, of its image, of the products of matmul.cu, of the GLU and of expert_sum. An expert has a whole number of
// bands. Rows of routes are those of experts.cuh.
#include "kernel.cuh"

#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) DEVICE void name
#include "matmul_row.cu"
#pragma pop_macro("KERNEL")

// Returns how many bytes the weights of an expert take.
DEVICE size_t expert_bytes(int outputs, int inputs) { return size_t(outputs / BAND_OUTPUTS) * band_bytes(blocks_of(inputs)); }

DEVICE void gate_experts(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind, const float *x, const float *w, float eps, int inputs,
	const float *routes, int experts, int used, const int *rows)
{
	const int pair = blockIdx.y, row = pair / used;
	wait_for_previous(); // for the routes
	if (row >= *rows)
		return;
	const size_t first = expert_of_pair(routes, experts, used, pair) * expert_bytes(outputs, inputs);
	multiply_row(Gating{image + size_t(pair) * tiles_of(blocks_of(outputs)) * RowPath::UNITS, gate + first, up + first, outputs, kind},
		Normalized{x + size_t(row) * inputs, w, eps, inputs}, rows);
}

// A group is so many bands. A warp has every WARPS-th pair of its band, or with fewer pairs than warps one pair of one of several bands.
DEVICE int bands_of_group(int used) { return used < WARPS ? WARPS / used : 1; }
DEVICE int own_pair(int used) { return used < WARPS ? warp_id() % used : warp_id(); }
DEVICE int own_band(int used) { return used < WARPS ? warp_id() / used : 0; }

DEVICE void sum_experts(float *dst, const uint8_t *weights, int outputs, const float *routes, int experts, int used, const uint4 *image, int inputs, int add, const int *rows)
{
	typedef RowMemory<1, 1> Memory;
	SHARED(Memory, memory);
	const int row = blockIdx.y, lane = lane_id(), blocks = blocks_of(inputs), tiles = tiles_of(blocks), bands = outputs / BAND_OUTPUTS;
	const int together = bands_of_group(used), groups = (bands + together - 1) / together, stride = tiles * RowPath::UNITS;
	const bool has = row < *rows, computes = has && own_band(used) < together; // some warps may be left over
	routes += size_t(row) * 2 * used; // two launches before this one have written them, so they are complete: see overlap.cuh
	// A band past the last one repeats it, and its results are discarded.
	const auto band_of = [&](int group) { return min(group * together + own_band(used), bands - 1); };
	const auto weights_of = [&](int group, int pair) {
		return weights + expert_of(routes[pair], experts) * expert_bytes(outputs, inputs) + size_t(band_of(group)) * band_bytes(blocks);
	};
	for (int group = blockIdx.x; computes && group < groups; group += gridDim.x)
		for (int pair = own_pair(used); pair < used; pair += WARPS)
			request(weights_of(group, pair), min(int(band_bytes(blocks)), 12288));
	if (has)
		stage_rows<1>(memory->image, memory->partial, Imaged{image + size_t(row) * used * stride, used * tiles * TILE_BLOCKS * int(BLOCK_INPUTS)}, rows, [] {});
	else
		wait_for_previous();
	float *results = &memory->results[0][0][0][0][0]; // [band][pair][output], of the group before and of this one in turn
	const int half = together * used * BAND_OUTPUTS;
	for (int group = has ? blockIdx.x : groups, buffer = 0; group < groups; group += gridDim.x, buffer ^= 1) {
		for (int pair = own_pair(used); computes && pair < used; pair += WARPS) {
			const uint8_t *tile_at = weights_of(group, pair);
			float acc[BAND_OUTPUTS] = {};
			for (int tile = 0; tile < tiles; tile++, tile_at += tile_bytes(TILE_BLOCKS)) {
				const int in_tile = min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS));
				if (lane < in_tile) {
					Block w;
					load_block(w, tile_at, in_tile, lane);
					RowPath::template multiply<1>(acc, w, memory->image + pair * stride + tile * RowPath::UNITS, 0);
				}
			}
			const float sum = warp_sums(acc);
			const Place place = place_of_band<1>();
			if (place.has)
				results[buffer * half + (own_band(used) * used + pair) * BAND_OUTPUTS + place.output % BAND_OUTPUTS] = sum;
		}
		if (group + int(gridDim.x) >= groups)
			begin_next();
		syncthreads();
		const int band = threadIdx.x / BAND_OUTPUTS, output = (group * together + band) * BAND_OUTPUTS + threadIdx.x % BAND_OUTPUTS;
		if (band < together && output < outputs) {
			float sum = 0;
			for (int pair = 0; pair < used; pair++)
				sum = fmaf(routes[used + pair], results[buffer * half + (band * used + pair) * BAND_OUTPUTS + threadIdx.x % BAND_OUTPUTS], sum);
			float *const to = dst + size_t(row) * outputs + output;
			*to = add ? *to + sum : sum;
		}
	}
}

#define EXPERTS(weight, name) EXPERTS_NAMED(weight, name)
#define EXPERTS_NAMED(weight, name) \
	KERNEL(matmul_##weight##_##name##_experts_glu, 32 * WARPS, 2) \
	(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind_of_gate, const float *x, const float *w, float eps, int inputs, \
		const float *routes, int experts, int used, const int *rows) \
	{ \
		gate_experts(image, gate, up, outputs, kind_of_gate, x, w, eps, inputs, routes, experts, used, rows); \
	} \
	KERNEL(matmul_##weight##_##name##_experts_sum, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const float *routes, int experts, int used, const uint4 *image, int inputs, int add, const int *rows) \
	{ \
		sum_experts(dst, weights, outputs, routes, experts, used, image, inputs, add, rows); \
	}

#ifdef EXACT
EXPERTS(WEIGHT, dp2a)
#else
EXPERTS(WEIGHT, i16)
#endif
