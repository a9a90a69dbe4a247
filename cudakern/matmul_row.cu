// Products of one row, or of up to N = 2 or 4 rows:
//
//	norm   up to three products of RMSNorm(x) · w, stored as by matmul.cu
//	glu    the products gate and up of RMSNorm(x) · w, and of a GLU of both the image for the next product
//	one    a product of the rows of an image, stored or added
//
// norm and glu need neither a launch nor memory for the image of their activations. The images of all inputs are in the block's
// shared memory. So that few blocks compute or copy them, a launch has no more blocks than run at the same time; each computes every
// gridDim.x-th group of 32 outputs, a warp 4 of them. The bits are those of separate launches: norm.cuh, image.cuh and
// matmul.cu define them. Launches may overlap (overlap.cuh): meanwhile a block requests its first weights.
//
// With two rows and more, where launches overlap, tiles of quantized weights go to a ring in shared memory (Ring), of stages tiles for each
// warp: so many are on their way without registers for them. Else stages is 0, and they go to registers.
//
// Grid: (at most the number of groups). Launch with blockDim.x = 256, the shared memory of RowMemory, and for norm and glu inputs
// that are a multiple of 4 and fill at most MOST_TILES tiles, MOST_TILES_OF_4 with more than two rows.
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

enum { GROUP_OUTPUTS = WARPS * BAND_OUTPUTS, MOST_TILES = 6, MOST_TILES_OF_4 = 4 };

static_assert(int(GROUP_OUTPUTS) == int(BLOCK_INPUTS), "a group's results are a block of an image");
static_assert(int(NORM_THREADS) == 32 * WARPS && 4 * NORM_THREADS == TILE_BLOCKS * BLOCK_INPUTS, "a thread has a float4 of each tile");

// ---------------------------------------------------------------------------------------
// The images of the rows

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

// The images of the rows.
struct Imaged {
	const uint4 *image;
	int inputs;
};

// stage_rows writes the images of the rows to shared memory, one behind another; without one row, of which there may be none, rows of
// N. What the images of other rows have is undefined.

// Copies them. Loads do not go through the read-only cache, because the launch before may have written the images.
template <int N> DEVICE void stage_rows(uint4 *image, float *, const Imaged &a, const int *rows)
{
	enum { AT_ONCE = 10 };
	const int units = (N == 1 ? 1 : *rows) * tiles_of(blocks_of(a.inputs)) * RowPath::UNITS;
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

// Computes them. The norm's weights are loaded before the launch before has ended, if there are enough registers.
template <int N> DEVICE void stage_rows(uint4 *image, float *partial, const Normalized &a, const int *rows)
{
	enum { MOST = N < 4 ? MOST_TILES : MOST_TILES_OF_4 };
	const bool early = N < 4;
	const int count = N == 1 ? 1 : *rows, fours = a.inputs / 4, tiles = tiles_of(blocks_of(a.inputs));
	const float4 *const x = reinterpret_cast<const float4 *>(a.x), *const w = reinterpret_cast<const float4 *>(a.w);
	float4 v[N][MOST] = {}, g[MOST];
	UNROLL for (int tile = 0; tile < MOST; tile++)
		if (early && tile * NORM_THREADS + int(threadIdx.x) < fours)
			g[tile] = w[tile * NORM_THREADS + threadIdx.x];
	wait_for_previous();
	UNROLL for (int row = 0; row < N; row++)
		UNROLL for (int tile = 0; tile < MOST; tile++)
			if (row < count && tile * NORM_THREADS + int(threadIdx.x) < fours)
				v[row][tile] = x[row * fours + tile * NORM_THREADS + threadIdx.x];
	float sums[N] = {};
	UNROLL for (int row = 0; row < N; row++)
		UNROLL for (int tile = 0; tile < MOST; tile++)
			sums[row] = add_squares(v[row][tile], sums[row]);
	block_sums(sums, partial);
	float scales[N];
	UNROLL for (int row = 0; row < N; row++)
		scales[row] = 1.0f / sqrtf(sums[row] / (float)a.inputs + a.eps);
	UNROLL for (int tile = 0; tile < MOST; tile++) {
		if (tile >= tiles)
			break;
		const int i = tile * NORM_THREADS + int(threadIdx.x);
		if (!early && i < fours)
			g[tile] = w[i];
		UNROLL for (int row = 0; row < N; row++) {
			if (row >= count)
				break;
			float4 n = {};
			if (i < fours)
				n = make_float4(v[row][tile].x * scales[row] * g[tile].x, v[row][tile].y * scales[row] * g[tile].y,
					v[row][tile].z * scales[row] * g[tile].z, v[row][tile].w * scales[row] * g[tile].w);
			write_fours(image + (row * tiles + tile) * RowPath::UNITS, warp_id() * (TILE_BLOCKS / WARPS), n);
		}
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

// Writes a block of the image of a row; v is the lane's activation.
DEVICE void write_block(const Gating &job, int row, int block, float v)
{
	write_one(job.image + (row * tiles_of(groups_of(job)) + block / TILE_BLOCKS) * RowPath::UNITS, block % TILE_BLOCKS, v);
}

// ---------------------------------------------------------------------------------------
// The products

// The shared memory of a block: rowMemory in matmul_row.go.
template <int N> struct RowMemory {
	float partial[N * NORM_FLOATS];
	float results[2][2][N][GROUP_OUTPUTS]; // of gate and up, of the group before and of this one in turn
	uint4 image[RowPath::UNITS];           // and those of the other tiles and rows
};

// Returns where the weights of the warp's band of a group begin. A warp without a band repeats the last one, and its results are
// discarded.
template <typename Job> DEVICE const uint8_t *band_at(const Job &job, int group, int pass, int blocks)
{
	int band;
	const Product p = product_of(job, group, pass, &band);
	return p.weights + min(band + warp_id(), (p.outputs - 1) / BAND_OUTPUTS) * band_bytes(blocks);
}

// Which row and output of a band a lane has the sum of, behind warp_sums.
template <int N> struct Place {
	enum { LANES = WARP / (N * BAND_OUTPUTS) }; // that have the same sum
	DEVICE bool first(void) { return lane_id() % LANES == 0; }
	DEVICE int row(void) { return lane_id() / LANES / BAND_OUTPUTS; }
	DEVICE int output(void) { return lane_id() / LANES % BAND_OUTPUTS; }
};

// Stores the results of a band, whose sums are in value order in the warp, and for the last pass of a GLU writes the
// blocks of its images. step counts passes, and begins again behind those of two groups. All threads of the block call it.
template <int N> DEVICE void finish(const Stored &job, RowMemory<N> *, int group, int, float sum, const int *rows)
{
	int band;
	const Product p = product_of(job, group, 0, &band); // again: fewer registers in the loop
	const int output = (band + warp_id()) * BAND_OUTPUTS + Place<N>::output(), row = Place<N>::row();
	if (!Place<N>::first() || output >= p.outputs || N > 1 && row >= *rows)
		return;
	float *const dst = p.dst + row * p.outputs + output;
	*dst = job.add ? *dst + sum : sum;
}

template <int N> DEVICE void finish(const Gating &job, RowMemory<N> *memory, int group, int step, float sum, const int *rows)
{
	const int lane = lane_id(), row = warp_id(), pass = step % Gating::PASSES, buffer = step / Gating::PASSES;
	if (Place<N>::first())
		memory->results[buffer][pass][Place<N>::row()][warp_id() * BAND_OUTPUTS + Place<N>::output()] = sum;
	if (pass == 0)
		return;
	syncthreads();
	if (row < N && (N == 1 || row < *rows)) {
		const float gate = memory->results[buffer][0][row][lane], up = memory->results[buffer][1][row][lane];
		write_block(job, row, group, group * GROUP_OUTPUTS + lane < job.outputs ? glu_of(job.kind, gate, up) : 0);
	}
}

// Writes what no group has: the blocks of the last tile of an image that are past the end.
DEVICE void pad(const Stored &, int) {}
DEVICE void pad(const Gating &job, int rows)
{
	const int groups = groups_of(job);
	for (int row = 0; row < rows; row++)
		for (int block = groups + warp_id(); block < tiles_of(groups) * TILE_BLOCKS; block += WARPS)
			write_block(job, row, block, 0);
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

// Products of one row.
template <typename Job, typename Source> DEVICE void multiply_row(const Job &job, const Source &a, const int *rows)
{
	SHARED(RowMemory<1>, memory);
	const int lane = lane_id(), blocks = blocks_of(a.inputs), full_tiles = blocks / TILE_BLOCKS, groups = groups_of(job);
	int group = blockIdx.x, step = 0;
	const uint8_t *tile_at = band_at(job, group, 0, blocks);

	// As in matmul; the first tile is on its way while the image is staged, the next band's while a band ends.
	const bool prefetch = SCALE_BYTES > 0;
	Block next = {};
	if (prefetch && full_tiles > 0)
		load_block(next, tile_at, TILE_BLOCKS, lane);
	if (prefetch)
		request_band(a, tile_at + tile_bytes(TILE_BLOCKS), full_tiles - 1);
	else
		request_band(a, tile_at, full_tiles);
	stage_rows<1>(memory->image, memory->partial, a, rows);
	if (*rows == 0)
		return; // checked this late so that no load above waits for rows
	for (;;) {
		const int next_step = (step + 1) % (2 * Job::PASSES), next_pass = next_step % Job::PASSES, next_group = next_pass == 0 ? group + gridDim.x : group;
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
		finish<1>(job, memory, group, step, warp_sums(acc), rows);
		if (next_group >= groups)
			break;
		group = next_group, step = next_step, tile_at = following_at;
	}
	if (blockIdx.x == gridDim.x - 1)
		pad(job, 1);
}

// RING: whether kernels for several rows have the ring; the emulation has both ways, and takes that for the device.
#if SCALE_BYTES > 0 && (defined(EMU) || __CUDA_ARCH__ >= 900)
#define RING
#ifdef EMU
DEVICE bool has_ring(int stages) { return stages > 0; }
#else
DEVICE bool has_ring(int) { return true; }
#endif

// Copies 16 bytes from global to shared memory; wait_for_copies waits for them.
DEVICE void copy_async(uint8_t *to, const uint8_t *from)
{
#ifdef EMU
	memcpy(to, from, 16);
#else
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from) : "memory");
#endif
}

DEVICE void commit_copies(void)
{
#ifndef EMU
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all copies but those before the last PENDING calls of commit_copies.
template <int PENDING> DEVICE void wait_for_copies(void)
{
#ifndef EMU
	asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Loads to from shared memory in one load: T has 4, 8 or 16 bytes. A copy by memcpy from there would be one of bytes.
template <typename T> DEVICE void load_shared(T &to, const uint8_t *p)
{
	if constexpr (sizeof(T) == 4) {
		const uint32_t v = *reinterpret_cast<const uint32_t *>(p);
		memcpy(&to, &v, sizeof v);
	} else if constexpr (sizeof(T) == 8) {
		const uint2 v = *reinterpret_cast<const uint2 *>(p);
		memcpy(&to, &v, sizeof v);
	} else {
		const uint4 v = *reinterpret_cast<const uint4 *>(p);
		memcpy(&to, &v, sizeof v);
	}
}

// Loads what load_block does from a tile in shared memory.
DEVICE void load_shared_block(Block &w, const uint8_t *tile, int blocks, int block)
{
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			const uint4 v = *reinterpret_cast<const uint4 *>(tile + quants_at(blocks, output, chunk, block));
			memcpy(&w.quants[output][4 * chunk], &v, sizeof v);
		}
	load_shared(w.scales, tile + scales_at(blocks, block));
#if HIGH_BYTES == 4
	load_shared(w.high, tile + high_at(blocks, 0, block));
#elif HIGH_BYTES == 8
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		load_shared(w.high[output], tile + high_at(blocks, output, block));
#endif
#if SUPER_BYTES > 0
	load_shared(w.super, tile + super_at(blocks, block));
#endif
}

enum { TILE_SIZE = ((64 * CHUNKS + 4 * HIGH_BYTES + 4 * SCALE_BYTES) * TILE_BLOCKS + TILE_BLOCKS / 8 * 4 * SUPER_BYTES + 15) / 16 * 16 }; // tile_bytes(TILE_BLOCKS)

// The tiles of a warp, in the order in which it multiplies them: those of its band of a group, then those of the next pass or group.
// The ring of shared memory has the next ones.
template <typename Job> struct Ring {
	uint8_t *slots;
	int stages, slot; // the slot of the next tile
	// The tile that is copied next:
	const uint8_t *at;
	int tile, group, pass; // group: past the last one if there is none

	// Begins to copy a tile to the slot of the one that was multiplied last.
	DEVICE void copy_next(Ring &r, const Job &job, int blocks, int slot)
	{
		if (r.group < groups_of(job)) {
			if (r.tile == 0)
				r.at = band_at(job, r.group, r.pass, blocks);
			const int in_tile = min(blocks - r.tile * TILE_BLOCKS, int(TILE_BLOCKS)), bytes = tile_bytes(in_tile);
			uint8_t *const to = r.slots + slot * TILE_SIZE;
			UNROLL for (int first = 0; first < TILE_SIZE; first += 16 * WARP)
				if (first + 16 * lane_id() < bytes)
					copy_async(to + first + 16 * lane_id(), r.at + first + 16 * lane_id());
			r.at += bytes;
			if (++r.tile == tiles_of(blocks)) {
				r.tile = 0, r.pass = (r.pass + 1) % Job::PASSES;
				r.group += r.pass == 0 ? gridDim.x : 0;
			}
		}
		commit_copies();
	}

	// Waits for the next tile.
	DEVICE void wait(const Ring &r)
	{
		switch (r.stages) {
		case 2: wait_for_copies<1>(); break;
		case 3: wait_for_copies<2>(); break;
		case 4: wait_for_copies<3>(); break;
		case 5: wait_for_copies<4>(); break;
		default: wait_for_copies<5>();
		}
		syncwarp();
	}
};

#endif

// Products of N rows.
template <int N, typename Job, typename Source> DEVICE void multiply_rows(const Job &job, const Source &a, const int *rows, [[maybe_unused]] int stages)
{
	SHARED(RowMemory<N>, memory);
	const int lane = lane_id(), blocks = blocks_of(a.inputs), tiles = tiles_of(blocks), groups = groups_of(job), stride = tiles * RowPath::UNITS;
#ifdef RING
	typedef Ring<Job> Tiles;
	Tiles ring = {reinterpret_cast<uint8_t *>(memory->image + N * stride) + warp_id() * stages * TILE_SIZE, stages, 0, 0, 0, int(blockIdx.x), 0};
	for (int i = 0; i < stages; i++)
		Tiles::copy_next(ring, job, blocks, i);
#endif
	request_band(a, band_at(job, blockIdx.x, 0, blocks), blocks / TILE_BLOCKS);
	stage_rows<N>(memory->image, memory->partial, a, rows);
	int step = 0;
	for (int group = *rows > 0 ? blockIdx.x : groups; group < groups; group += gridDim.x)
		for (int pass = 0; pass < Job::PASSES; pass++) {
			float acc[N * BAND_OUTPUTS] = {};
			const uint8_t *tile_at = band_at(job, group, pass, blocks);
			for (int tile = 0; tile < tiles; tile++) {
				const int in_tile = min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS));
				const uint4 *const image = memory->image + tile * RowPath::UNITS;
#ifdef RING
				if (has_ring(stages)) {
					Tiles::wait(ring);
					if (lane < in_tile) {
						Block w;
						load_shared_block(w, ring.slots + ring.slot * TILE_SIZE, in_tile, lane);
						RowPath::template multiply<N>(acc, w, image, stride);
					}
					syncwarp();
					Tiles::copy_next(ring, job, blocks, ring.slot);
					ring.slot = ring.slot + 1 == stages ? 0 : ring.slot + 1;
					continue;
				}
#endif
				if (lane < in_tile) {
					Block w;
					load_block(w, tile_at, in_tile, lane);
					RowPath::template multiply<N>(acc, w, image, stride);
				}
				tile_at += tile_bytes(TILE_BLOCKS);
			}
			if (group + int(gridDim.x) >= groups && pass == Job::PASSES - 1)
				begin_next(); // not before, as in multiply_row
			finish<N>(job, memory, group, step, warp_sums(acc), rows);
			step = (step + 1) % (2 * Job::PASSES);
		}
	if (blockIdx.x == gridDim.x - 1)
		pad(job, *rows);
}

template <int N, typename Job, typename Source> DEVICE void multiply(const Job &job, const Source &a, const int *rows, [[maybe_unused]] int stages)
{
	if constexpr (N == 1)
		multiply_row(job, a, rows);
	else
		multiply_rows<N>(job, a, rows, stages);
}

#define ROW_PRODUCT(weight, name, n, suffix) ROW_PRODUCT_NAMED(weight, name, n, suffix)
#define ROW_PRODUCT_NAMED(weight, name, n, suffix) \
	KERNEL(matmul_##weight##_##name##_norm##suffix, 32 * WARPS, 2) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const float *x, const float *w, float eps, int inputs, const int *rows, int stages) \
	{ \
		multiply<n>(Stored{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, false}, \
			Normalized{x, w, eps, inputs}, rows, stages); \
	} \
	KERNEL(matmul_##weight##_##name##_glu##suffix, 32 * WARPS, 2) \
	(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind_of_gate, const float *x, const float *w, float eps, int inputs, const int *rows, int stages) \
	{ \
		multiply<n>(Gating{image, gate, up, outputs, kind_of_gate}, Normalized{x, w, eps, inputs}, rows, stages); \
	} \
	KERNEL(matmul_##weight##_##name##_one##suffix, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const uint4 *image, int inputs, int add, const int *rows, int stages) \
	{ \
		multiply<n>(Stored{{dst, weights, outputs, 0}, {}, {}, add != 0}, Imaged{image, inputs}, rows, stages); \
	}

#if SCALE_BYTES == 0
ROW_PRODUCT(WEIGHT, float, 1, )
ROW_PRODUCT(WEIGHT, float, 2, _n2)
ROW_PRODUCT(WEIGHT, float, 4, _n4)
#elif defined(EXACT)
ROW_PRODUCT(WEIGHT, dp2a, 1, )
ROW_PRODUCT(WEIGHT, dp2a, 2, _n2)
ROW_PRODUCT(WEIGHT, dp2a, 4, _n4)
#else
ROW_PRODUCT(WEIGHT, i16, 1, ) // devices of these units gain nothing with more rows: arithmetic is the limit
#endif
