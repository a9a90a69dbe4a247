// Products of one row:
//
//	norm   up to three products of RMSNorm(x) · w, stored as by matmul.cu
//	glu    the products gate and up of RMSNorm(x) · w, and of a GLU of both the image for the next product
//	one    a product of the row of an image, stored or added
//
// norm and glu need neither a launch nor memory for the image of their activations. The image of all inputs is in the block's
// shared memory. So that few blocks compute or copy it, a launch has no more blocks than run at the same time; each computes every
// gridDim.x-th group of 32 outputs, a warp 4 of them. The bits are those of separate launches: norm.cuh, image.cuh and
// matmul.cu define them. Launches may overlap (overlap.cuh): meanwhile a block requests its first weights.
//
// Grid: (at most the number of groups). Launch with blockDim.x = 256, the shared memory of RowMemory, and for norm and glu inputs
// that are a multiple of 4 and fill at most MOST_TILES tiles.
#include "image.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "overlap.cuh"

// The products of matmul.cu, without its kernels: those are functions here, which nothing calls.
#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) DEVICE void name
#include "matmul.cu"
#pragma pop_macro("KERNEL")

enum { GROUP_OUTPUTS = WARPS * BAND_OUTPUTS, MOST_TILES = 6 };

static_assert(int(GROUP_OUTPUTS) == int(BLOCK_INPUTS), "a group's results are a block of an image");
static_assert(int(NORM_THREADS) == 32 * WARPS && 4 * NORM_THREADS == TILE_BLOCKS * BLOCK_INPUTS, "a thread has a float4 of each tile");

// ---------------------------------------------------------------------------------------
// The image of the normalized row

// write_fours writes four values of each lane to the image of a tile: those of inputs 4 · (lane % 8) … of block
// first + lane / 8. write_one writes one of each lane. The results are those of write_f32 and write_i16.
#if SCALE_BYTES == 0

typedef F32 RowPath;

DEVICE void write_fours(uint4 *image, int first, float4 v)
{
	memcpy(&image[lane_id() % 8 * TILE_BLOCKS + first + lane_id() / 8], &v, sizeof v);
}

DEVICE void write_one(uint4 *image, int block, float v) { write_f32(image, block, v); }

#else

typedef I16 RowPath;

DEVICE bool is_finite(float v) { return fabsf(v) <= 3.402823466e38f; }

DEVICE void write_fours(uint4 *image, int first, float4 v)
{
	const int lane = lane_id(), block = first + lane / 8;
	float max_abs = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
	UNROLL for (int mask = 4; mask > 0; mask /= 2)
		max_abs = fmaxf(max_abs, shfl_xor(max_abs, mask));
	const bool all_finite = is_finite(v.x) && is_finite(v.y) && is_finite(v.z) && is_finite(v.w);
	const bool finite = (warp_ballot(!all_finite) >> (lane & 24) & 255) == 0;
	const bool zero = !finite || !(max_abs > 1e-30f);
	const float inverse = 32512 / max_abs;
	const int q[4] = {
		zero ? 0 : __float2int_rn(v.x * inverse), zero ? 0 : __float2int_rn(v.y * inverse),
		zero ? 0 : __float2int_rn(v.z * inverse), zero ? 0 : __float2int_rn(v.w * inverse),
	};
	const uint2 words = {uint32_t(q[0] & 0xffff) | uint32_t(q[1]) << 16, uint32_t(q[2] & 0xffff) | uint32_t(q[3]) << 16};
	memcpy(reinterpret_cast<uint2 *>(&image[lane % 8 / 2 * TILE_BLOCKS + block]) + lane % 2, &words, sizeof words);
	int half = q[0] + q[1] + q[2] + q[3];
	half += shfl_xor(half, 1);
	half += shfl_xor(half, 2);
	const int sum = half + shfl_xor(half, 4);
	if (lane % 8 == 0) {
		float *const scales = reinterpret_cast<float *>(image + I16_SCALES);
		int *const sums = reinterpret_cast<int *>(scales + TILE_BLOCKS);
		scales[block] = finite ? zero ? 0 : max_abs / 32512 : __int_as_float(0x7fffffff);
		sums[block] = sum;
		sums[TILE_BLOCKS + block] = half;
	}
}

DEVICE void write_one(uint4 *image, int block, float v) { write_i16(image, block, v); }

#endif

// The activations of a launch: RMSNorm(x) · w.
struct Normalized {
	const float *x, *w;
	float eps;
	int inputs;
};

// The image of a row.
struct Imaged {
	const uint4 *image;
	int inputs;
};

// Copies the image to shared memory. Loads do not go through the read-only cache, because the launch before may have written it.
DEVICE void stage_row(uint4 *image, float *, const Imaged &a)
{
	enum { AT_ONCE = 10 };
	const int units = tiles_of(blocks_of(a.inputs)) * RowPath::UNITS;
	wait_for_previous();
	for (int first = threadIdx.x; first < units; first += AT_ONCE * 32 * WARPS) {
		uint4 v[AT_ONCE];
		UNROLL for (int i = 0; i < AT_ONCE; i++)
			v[i] = a.image[min(first + i * 32 * WARPS, units - 1)];
		UNROLL for (int i = 0; i < AT_ONCE; i++)
			if (first + i * 32 * WARPS < units)
				image[first + i * 32 * WARPS] = v[i];
	}
	syncthreads();
}

// Writes the image of the row to shared memory.
DEVICE void stage_row(uint4 *image, float *partial, const Normalized &a)
{
	const int fours = a.inputs / 4, tiles = tiles_of(blocks_of(a.inputs));
	const float4 *const x = reinterpret_cast<const float4 *>(a.x), *const w = reinterpret_cast<const float4 *>(a.w);
	float4 v[MOST_TILES] = {}, g[MOST_TILES];
	UNROLL for (int tile = 0; tile < MOST_TILES; tile++)
		if (tile * NORM_THREADS + int(threadIdx.x) < fours)
			g[tile] = w[tile * NORM_THREADS + threadIdx.x];
	wait_for_previous();
	UNROLL for (int tile = 0; tile < MOST_TILES; tile++)
		if (tile * NORM_THREADS + int(threadIdx.x) < fours)
			v[tile] = x[tile * NORM_THREADS + threadIdx.x];
	float sum = 0;
	UNROLL for (int tile = 0; tile < MOST_TILES; tile++)
		sum = add_squares(v[tile], sum);
	const float scale = 1.0f / sqrtf(block_sum(sum, partial) / (float)a.inputs + a.eps);
	UNROLL for (int tile = 0; tile < MOST_TILES; tile++) {
		if (tile >= tiles)
			break;
		float4 n = {};
		if (tile * NORM_THREADS + int(threadIdx.x) < fours)
			n = make_float4(v[tile].x * scale * g[tile].x, v[tile].y * scale * g[tile].y, v[tile].z * scale * g[tile].z, v[tile].w * scale * g[tile].w);
		write_fours(image + tile * RowPath::UNITS, warp_id() * (TILE_BLOCKS / WARPS), n);
	}
	syncthreads();
}

// ---------------------------------------------------------------------------------------
// What a launch computes

// Up to three products, whose results are stored.
struct Stored {
	enum { PASSES = 1 };
	Product a, b, c;
	bool add; // to what dst has
};

DEVICE int groups_of(const Product &p) { return (p.outputs + GROUP_OUTPUTS - 1) / GROUP_OUTPUTS; }
DEVICE int groups_of(const Stored &job) { return groups_of(job.a) + groups_of(job.b) + groups_of(job.c); }
DEVICE Product product_of(const Stored &job, int group, int, int *band) { return product_of(job.a, job.b, job.c, band, GROUP_OUTPUTS, group); }

// The image of glu_of(kind, gate, up): a group is computed in two passes.
struct Gating {
	enum { PASSES = 2 };
	uint4 *image;
	const uint8_t *gate, *up;
	int outputs, kind;
};

DEVICE int groups_of(const Gating &job) { return blocks_of(job.outputs); }
DEVICE Product product_of(const Gating &job, int group, int pass, int *band)
{
	*band = group * WARPS;
	return {0, pass == 0 ? job.gate : job.up, job.outputs, 0};
}

// Writes a block of the image; v is the lane's activation.
DEVICE void write_block(const Gating &job, int block, float v)
{
	write_one(job.image + block / TILE_BLOCKS * RowPath::UNITS, block % TILE_BLOCKS, v);
}

// ---------------------------------------------------------------------------------------
// The products

// The shared memory of a block: rowMemory in matmul_row.go.
struct RowMemory {
	float partial[NORM_FLOATS];
	float results[2][2][GROUP_OUTPUTS];        // of gate and up, of the group before and of this one in turn
	uint4 image[RowPath::UNITS];               // and those of the other tiles
};

// Returns where the weights of the warp's band of a group begin. A warp without a band repeats the last one, and its results are
// discarded.
template <typename Job> DEVICE const uint8_t *band_at(const Job &job, int group, int pass, int blocks)
{
	int band;
	const Product p = product_of(job, group, pass, &band);
	return p.weights + min(band + warp_id(), (p.outputs - 1) / BAND_OUTPUTS) * band_bytes(blocks);
}

// Stores the results of a band, whose sums are in value order in the warp, and for the last pass of a GLU writes the
// block of its image. All threads of the block call it.
DEVICE void finish(const Stored &job, RowMemory *, int group, int, int *, float sum)
{
	int band;
	const Product p = product_of(job, group, 0, &band); // again: fewer registers in the loop
	const int lanes = WARP / BAND_OUTPUTS, output = (band + warp_id()) * BAND_OUTPUTS + lane_id() / lanes; // lanes: how many have the same sum
	if (lane_id() % lanes == 0 && output < p.outputs)
		p.dst[output] = job.add ? p.dst[output] + sum : sum;
}

DEVICE void finish(const Gating &job, RowMemory *memory, int group, int pass, int *buffer, float sum)
{
	const int lanes = WARP / BAND_OUTPUTS, lane = lane_id();
	if (lane % lanes == 0)
		memory->results[*buffer][pass][warp_id() * BAND_OUTPUTS + lane / lanes] = sum;
	if (pass == 0)
		return;
	syncthreads();
	if (warp_id() == 0) {
		const float gate = memory->results[*buffer][0][lane], up = memory->results[*buffer][1][lane];
		write_block(job, group, group * GROUP_OUTPUTS + lane < job.outputs ? glu_of(job.kind, gate, up) : 0);
	}
	*buffer = 1 - *buffer;
}

// Writes what no group has: the blocks of an image's last tile that are past the end.
DEVICE void pad(const Stored &) {}
DEVICE void pad(const Gating &job)
{
	const int groups = groups_of(job);
	for (int block = groups + warp_id(); block < tiles_of(groups) * TILE_BLOCKS; block += WARPS)
		write_block(job, block, 0);
}

// Requests tiles of a band for the L2 cache, up to REQUESTED bytes, where there is time for it because launches overlap: a
// product of an image follows attention, which hardly reads memory.
DEVICE void request_band(const Normalized &, const uint8_t *, int) {}
DEVICE void request_band(const Imaged &, [[maybe_unused]] const uint8_t *tile_at, [[maybe_unused]] int tiles)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 900
	enum { REQUESTED = 12288, LINE = 128 };
	const int bytes = min(tiles * tile_bytes(TILE_BLOCKS), int(REQUESTED));
	for (int at = lane_id() * LINE; at < bytes; at += WARP * LINE)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(tile_at + at));
#endif
}

template <typename Job, typename Source> DEVICE void multiply_row(const Job &job, const Source &a, const int *rows)
{
	SHARED(RowMemory, memory);
	const int lane = lane_id(), blocks = blocks_of(a.inputs), full_tiles = blocks / TILE_BLOCKS, groups = groups_of(job);
	int group = blockIdx.x, pass = 0, buffer = 0;
	const uint8_t *tile_at = band_at(job, group, pass, blocks);

	// As in matmul; the first tile is on its way while the image is staged, the next band's while a band ends.
	const bool prefetch = SCALE_BYTES > 0;
	Block next = {};
	if (prefetch && full_tiles > 0)
		load_block(next, tile_at, TILE_BLOCKS, lane);
	if (prefetch)
		request_band(a, tile_at + tile_bytes(TILE_BLOCKS), full_tiles - 1);
	else
		request_band(a, tile_at, full_tiles);
	stage_row(memory->image, memory->partial, a);
	if (*rows == 0)
		return; // checked this late so that no load above waits for rows
	for (;;) {
		const int next_pass = (pass + 1) % Job::PASSES, next_group = next_pass == 0 ? group + gridDim.x : group;
		const uint8_t *const following_at = next_group < groups ? band_at(job, next_group, next_pass, blocks) : 0;
		float acc[BAND_OUTPUTS] = {};
		const uint4 *image = memory->image;
		for (int left = full_tiles; left > 0; left--) {
			Block w = next;
			if (!prefetch)
				load_block(w, tile_at, TILE_BLOCKS, lane);
			tile_at += tile_bytes(TILE_BLOCKS);
			const uint8_t *const from = left > 1 ? tile_at : following_at;
			if (prefetch && from)
				load_block(next, from, TILE_BLOCKS, lane);
			RowPath::template multiply<1>(acc, w, image, 0);
			image += RowPath::UNITS;
		}
		if (lane < blocks % TILE_BLOCKS) {
			Block w;
			load_block(w, tile_at, blocks % TILE_BLOCKS, lane);
			RowPath::template multiply<1>(acc, w, image, 0);
		}
		if (next_group >= groups)
			begin_next(); // not before: its blocks would be on few multiprocessors, those that have room
		finish(job, memory, group, pass, &buffer, warp_sums(acc));
		if (next_group >= groups)
			break;
		group = next_group, pass = next_pass, tile_at = following_at;
	}
	if (blockIdx.x == gridDim.x - 1)
		pad(job);
}

#define ROW_PRODUCT(weight, name) ROW_PRODUCT_NAMED(weight, name)
#define ROW_PRODUCT_NAMED(weight, name) \
	KERNEL(matmul_##weight##_##name##_norm, 32 * WARPS, 2) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		multiply_row(Stored{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, false}, \
			Normalized{x, w, eps, inputs}, rows); \
	} \
	KERNEL(matmul_##weight##_##name##_glu, 32 * WARPS, 2) \
	(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind_of_gate, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		multiply_row(Gating{image, gate, up, outputs, kind_of_gate}, Normalized{x, w, eps, inputs}, rows); \
	} \
	KERNEL(matmul_##weight##_##name##_one, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const uint4 *image, int inputs, int add, const int *rows) \
	{ \
		multiply_row(Stored{{dst, weights, outputs, 0}, {}, {}, add != 0}, Imaged{image, inputs}, rows); \
	}

#if SCALE_BYTES == 0
ROW_PRODUCT(WEIGHT, float)
#elif defined(EXACT)
ROW_PRODUCT(WEIGHT, dp2a)
#else
ROW_PRODUCT(WEIGHT, i16)
#endif
