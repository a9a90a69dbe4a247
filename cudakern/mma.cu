// Products of many rows by matrix units: mma.cuh.
//
// A thread block computes 64 rows × MMA_OUTPUTS outputs, a warp 32 × 32 of them. It takes the blocks of inputs in the
// order of leaves.cuh. The sums of the first levels of the tree wait in registers, the others
// in shared memory. The loop over leaves has four of them, so that sums of the first two levels need not move from register
// to register. Blocks are copied to shared memory in pairs, one pair ahead.
//
// With LARGE, for multiprocessors that have 228 KB of shared memory, three thread blocks are on one: a warp more for each scheduler,
// and blocks that do not wait at the same barriers. More of the sums wait in shared memory. A few of the 96 that are left for
// registers wait in local memory, once for four leaves.
//
// Grid: (blocks of rows, blocks of outputs of all products, parts), of _grouped (groups, blocks of outputs of an expert). Launch with
// MMA_THREADS threads and MMA_SHARED bytes of shared memory.
#define EXACT
#include "kernel.cuh"

#include "leaves.cuh"
#include "products.cuh"

#include "mma.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

#if defined(LARGE)
enum { MMA_OUTPUTS = 64, MMA_BLOCKS = 3, MMA_SHARED = 75 << 10, REGISTER_LEVELS = 2 };
#else
enum { MMA_OUTPUTS = 128, MMA_BLOCKS = 1, MMA_SHARED = 99 << 10, REGISTER_LEVELS = 3 };
#endif

enum {
	MMA_ROWS = 64, MMA_THREADS = 2 * MMA_OUTPUTS,
	ROW_TILES = MMA_ROWS / 16, WARPS_ACROSS = MMA_OUTPUTS / 32,
	X_PARTS = HAS_ADDEND ? 1 + HALVES : 1,       // arrays of 16 floats of a unit that products read
	X_FIRST = HAS_ADDEND && HALVES == 1 ? 0 : 1, // the first of them
	W_PARTS = HALVES * (1 + HAS_ADDEND),         // floats of an output and block
};

// The memory of a stage: a block of inputs of the rows and outputs.
enum {
	STAGE_VALUES = 0,                                       // [row tile] the fragments of a unit
	STAGE_QUANTS = STAGE_VALUES + ROW_TILES * S8_FRAGMENTS, // [chunk][output] 16 bytes
	STAGE_HIGH = STAGE_QUANTS + MMA_OUTPUTS * 16 * CHUNKS,  // [output] HIGH_BYTES
	STAGE_ROWS = STAGE_HIGH + MMA_OUTPUTS * HIGH_BYTES,     // [row tile][part][row] float
	STAGE_OUTPUTS = STAGE_ROWS + ROW_TILES * X_PARTS * 64,  // [part][output] float: factors, then addends
	STAGE_BYTES = STAGE_OUTPUTS + MMA_OUTPUTS * W_PARTS * 4,
};

enum {
	MMA_STAGES = 4,
	MMA_SUMS = MMA_STAGES * STAGE_BYTES, // [level][8][thread] 4 floats, of the levels after those in registers
};

static_assert(MMA_SUMS + (5 - REGISTER_LEVELS) * 32 * 4 * MMA_THREADS <= MMA_SHARED, "stages and sums need more shared memory than there is");

// Where a lane's parts of a block are in a stage, behind the beginning of each array: see multiply_block.
struct InStage {
	int quants, high, values, rows, outputs;
	uint32_t offset; // bits_of_offset
};

// Returns the fragment of output n · 8 + lane / 4 of a warp's 32.
DEVICE uint32_t fragment(Address stage, const InStage &at, int n, int half)
{
	return fragment_of(stage + at.quants + STAGE_QUANTS + ((CHUNKS == 2 ? half * MMA_OUTPUTS : 0) + n * 8) * 16, stage + at.high + STAGE_HIGH + n * 8 * HIGH_BYTES, half, at.offset);
}

// ---------------------------------------------------------------------------------------
// Copying blocks to shared memory

// A block of inputs in the order in which they are added: all those of a leaf, which are a multiple of TILE_BLOCKS apart.
struct Position {
	int leaf;
	unsigned block; // unsigned, so that dividing it is a shift
};

// Goes on to the next of blocks blocks, or to leaf 32, which has lane 0 and is past the last one.
DEVICE void advance(Position &at, unsigned blocks)
{
	at.block += TILE_BLOCKS;
	while (at.block >= blocks)
		at.block = lane_of(++at.leaf);
}

// What a thread copies of every block.
struct Source {
	const uint8_t *band, *high_band; // of the weights whose quants and scales, and whose upper bits it copies
	const uint8_t *units;            // of its row tile, from the first 16 bytes on that it copies
	int blocks;                      // of a row
};

// Where the scales of a thread's output are in the registers until they are stored.
struct Scales {
	Scale scale;
	uint32_t super;
};

// Copies a block of inputs to a stage, except scales of weights, which it loads to scales. The lower half of the threads
// copies quants, the upper half scales, each thread of one output.
DEVICE void copy_block(Address stage, const Source &from, const Position &at, Scales &scales)
{
	const int thread = threadIdx.x, in_tile = blocks_in_tile(from.blocks, at.block / TILE_BLOCKS);
	const unsigned lane = at.block % TILE_BLOCKS;
	const uint32_t tile = at.block / TILE_BLOCKS * tile_bytes(TILE_BLOCKS); // a band is smaller than 4 GB
	const int each = MMA_THREADS / ROW_TILES, part = thread % each;         // each: threads of a row tile
	const uint8_t *unit = from.units + uint32_t(at.block * S8_UNIT);
	UNROLL for (int i = 0; i < S8_FRAGMENTS / 16; i += each)
		copy_async<16>(stage + STAGE_VALUES + thread / each * S8_FRAGMENTS + part * 16 + i * 16, unit + i * 16);
	if (part < X_PARTS * 4)
		copy_async<16>(stage + STAGE_ROWS + (thread / each * X_PARTS * 4 + part) * 16, unit + S8_FRAGMENTS + X_FIRST * 64);
	if (thread < MMA_OUTPUTS) {
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
			copy_async<16>(stage + STAGE_QUANTS + (chunk * MMA_OUTPUTS + thread) * 16, from.band + (tile + quants_at(in_tile, thread % BAND_OUTPUTS, chunk, lane)));
		return;
	}
#if HIGH_BYTES == 4
	if (thread < MMA_OUTPUTS + MMA_OUTPUTS / BAND_OUTPUTS)
		copy_async<16>(stage + STAGE_HIGH + (thread - MMA_OUTPUTS) * 16, from.high_band + (tile + high_at(in_tile, 0, lane)));
#elif HIGH_BYTES == 8
	copy_async<8>(stage + STAGE_HIGH + (thread - MMA_OUTPUTS) * 8, from.band + (tile + high_at(in_tile, thread % BAND_OUTPUTS, lane)));
#endif
	scales.scale = load_scales<SCALE_BYTES>(from.band + (tile + scales_at(in_tile, lane) + thread % BAND_OUTPUTS * SCALE_BYTES));
#if SUPER_BYTES > 0
	scales.super = load_scales<SUPER_BYTES>(from.band + (tile + super_at(in_tile, lane) + thread % BAND_OUTPUTS * SUPER_BYTES));
#endif
}

// Stores what copy_block has loaded to scales.
DEVICE void store_scales(Address stage, const Scales &scales)
{
	if (threadIdx.x < MMA_OUTPUTS)
		return;
	Block w;
	w.scales[0] = scales.scale;
#if SUPER_BYTES > 0
	w.super[0] = scales.super;
#endif
	const Address to = stage + STAGE_OUTPUTS + threadIdx.x % MMA_OUTPUTS * 4;
	const Formula f = formula_of(w);
	UNROLL for (int half = 0; half < HALVES; half++) {
		store_shared(to + half * MMA_OUTPUTS * 4, f.factor[half]);
		if (HAS_ADDEND)
			store_shared(to + (HALVES + half) * MMA_OUTPUTS * 4, f.addend[half]);
	}
}

// ---------------------------------------------------------------------------------------
// The product

// acc[row tile of 2][output tile of 4][4] += the block of a stage, as fragments: a lane has rows lane / 4 and 8 more, and outputs
// 2 · (lane % 4) and the next.
DEVICE void multiply_block(float (&acc)[32], Address stage, const InStage &at)
{
	uint32_t b[4][2];
	UNROLL for (int n = 0; n < 4; n++)
		UNROLL for (int half = 0; half < 2; half++)
			b[n][half] = fragment(stage, at, n, half);
	const Address of_outputs = stage + at.outputs + STAGE_OUTPUTS;
	UNROLL for (int m = 0; m < 2; m++) {
		const Address values = stage + at.values + STAGE_VALUES + m * S8_FRAGMENTS, of_rows = stage + at.rows + STAGE_ROWS + m * X_PARTS * 64;
		uint32_t upper[4], lower[4];
		const uint4 both[2] = {load_shared<uint4>(values), load_shared<uint4>(values + S8_FRAGMENTS / 2)};
		memcpy(upper, &both[0], 16), memcpy(lower, &both[1], 16);
		float scale[2], sum[2][HALVES];
		UNROLL for (int r = 0; r < 2; r++) {
			scale[r] = load_shared<float>(of_rows + (1 - X_FIRST) * 64 + r * 32);
			if (HAS_ADDEND)
				UNROLL for (int half = 0; half < HALVES; half++)
					sum[r][half] = load_shared<float>(of_rows + (HALVES == 1 ? 0 : 1 + half) * 64 + r * 32);
		}
		UNROLL for (int n = 0; n < 4; n++)
			UNROLL for (int half = 0; half < HALVES; half++) {
				int dot[4], low[4];
				mma_signed(dot, upper, b[n], half);
				mma_unsigned_rows(low, lower, b[n], half);
				add_lower(dot, low);
				const float2 factors = load_shared<float2>(of_outputs + (half * MMA_OUTPUTS + n * 8) * 4);
				UNROLL for (int i = 0; i < 4; i++) {
					float &to = acc[(m * 4 + n) * 4 + i];
					if (HAS_ADDEND) {
						const float2 addends = load_shared<float2>(of_outputs + ((HALVES + half) * MMA_OUTPUTS + n * 8) * 4);
						to = fmaf(i % 2 ? addends.y : addends.x, sum[i / 2][half], to);
					}
					to = fmaf((i % 2 ? factors.y : factors.x) * scale[i / 2], float(dot[i]), to);
				}
			}
	}
}

// Adds sums of four finished leaves, of which leaf is the first, or of more, to those of the same level that wait, as long as
// there are any, and leaves the sum in sums if it is the whole tree's. Those of level 2 wait in registers, the others in shared memory.
template <int LEVEL> DEVICE void add_leaves(float (&sums)[32], float (&waiting)[32], float4 *shared, int leaf)
{
	if constexpr (LEVEL < 5) {
		const bool waits = !(leaf >> LEVEL & 1);
		if constexpr (LEVEL < REGISTER_LEVELS) {
			UNROLL for (int i = 0; i < 32; i++)
				if (waits)
					waiting[i] = sums[i];
				else
					sums[i] = waiting[i] + sums[i];
		} else {
			float4 *at = shared + (LEVEL - REGISTER_LEVELS) * 8 * MMA_THREADS + threadIdx.x;
			UNROLL for (int i = 0; i < 8; i++)
				if (waits) {
					at[i * MMA_THREADS] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
				} else {
					const float4 v = at[i * MMA_THREADS];
					sums[4 * i] += v.x, sums[4 * i + 1] += v.y, sums[4 * i + 2] += v.z, sums[4 * i + 3] += v.w;
				}
		}
		if (!waits)
			add_leaves<LEVEL + 1>(sums, waiting, shared, leaf);
	}
}

// Computes MMA_ROWS rows of MMA_OUTPUTS outputs, or the part of the sums. x has the image s8.
template <typename Work> DEVICE void matmul_mma(const Work &work, const uint4 *x, int inputs, bool add, const Parts &parts)
{
	SHARED(uint8_t, shared);
	const Address stages = again(address_of(shared));
	Source from;
	from.blocks = blocks_of(inputs);
	{
		// Outputs past the last band repeat it, and rows past the last tile of 16; their results are discarded.
		int band;
		const Product p = product_of(work, &band, MMA_OUTPUTS, blockIdx.y);
		const auto band_at = [&](int output) {
			return p.weights + min(band + output / BAND_OUTPUTS, last_band_of(p)) * band_bytes(from.blocks);
		};
		from.band = band_at(threadIdx.x % MMA_OUTPUTS);
		from.high_band = HIGH_BYTES == 4 ? band_at(threadIdx.x % (MMA_OUTPUTS / BAND_OUTPUTS) * BAND_OUTPUTS) : from.band;
		const int row_tile = min(blockIdx.x * ROW_TILES + threadIdx.x / (MMA_THREADS / ROW_TILES), unsigned(end_of(work.rows) - 1) / 16);
		from.units = reinterpret_cast<const uint8_t *>(x) + row_tile * (size_t(tiles_of(from.blocks)) * TILE_BLOCKS * S8_UNIT) + threadIdx.x % (MMA_THREADS / ROW_TILES) * 16;
	}

	// Stage s % MMA_STAGES has block s of the order. Scales are stored when the pair before theirs has been multiplied.
	Position ahead = {first_leaf(), unsigned(lane_of(first_leaf()) - TILE_BLOCKS)};
	Scales scales[2] = {};
	const auto copy = [&](unsigned block) {
		UNROLL for (int i = 0; i < 2; i++) {
			advance(ahead, from.blocks);
			if (ahead.leaf < first_leaf() + leaves_of_part())
				copy_block(stages + (block + i) % MMA_STAGES * STAGE_BYTES, from, ahead, scales[i]);
		}
		copies_commit();
	};
	copy(0);

	const int lane = lane_id(), row_tile = warp_id() / WARPS_ACROSS * 2, first = warp_id() % WARPS_ACROSS * 32 + lane / 4;
	const InStage in_stage = {
		again(first * 16 + in_quants()), again(first * HIGH_BYTES), again(row_tile * S8_FRAGMENTS + lane * 16),
		again((row_tile * X_PARTS * 16 + lane / 4) * 4), again((warp_id() % WARPS_ACROSS * 32 + lane % 4 * 2) * 4), bits_of_offset(inputs),
	};
	float acc[32], second[32], odd[32], waiting[32];
	unsigned block = 0;
	const auto add_blocks = [&](float(&sums)[32], int leaf) {
		UNROLL for (int i = 0; i < 32; i++)
			sums[i] = 0;
		for (int at = lane_of(leaf); at < from.blocks; at += TILE_BLOCKS, block++) {
			if (block % 2 == 0) {
				UNROLL for (int i = 0; i < 2; i++)
					store_scales(stages + (block + i) % MMA_STAGES * STAGE_BYTES, scales[i]);
				copies_wait<0>();
				syncthreads();
				copy(block + 2);
			}
			multiply_block(sums, stages + block % MMA_STAGES * STAGE_BYTES, in_stage);
		}
	};
	const auto add_pair = [&](float(&sums)[32], int leaf) {
		add_blocks(sums, leaf);
		add_blocks(odd, leaf + 1);
		UNROLL for (int i = 0; i < 32; i++)
			sums[i] += odd[i];
	};
	for (int leaf = 0; leaf < leaves_of_part(); leaf += 4) {
		add_pair(acc, first_leaf() + leaf);
		add_pair(second, first_leaf() + leaf + 2);
		UNROLL for (int i = 0; i < 32; i++)
			acc[i] += second[i];
		add_leaves<2>(acc, waiting, reinterpret_cast<float4 *>(shared + MMA_SUMS), leaf);
	}
	if (gridDim.z > 1 && !add_parts<MMA_THREADS>(acc, parts, shared))
		return;

	int band;
	const Product p = product_of(work, &band, MMA_OUTPUTS, again(blockIdx.y));
	UNROLL for (int m = 0; m < 2; m++)
		UNROLL for (int n = 0; n < 4; n++)
			UNROLL for (int i = 0; i < 4; i++) {
				const int to = destination_of(work.rows, blockIdx.x * MMA_ROWS + warp_id() / WARPS_ACROSS * 32 + m * 16 + i / 2 * 8 + lane_id() / 4);
				const int output = band * BAND_OUTPUTS - p.first + warp_id() % WARPS_ACROSS * 32 + n * 8 + lane_id() % 4 * 2 + i % 2;
				if (to >= 0 && output >= 0 && output < p.outputs) {
					float *at = p.dst + size_t(to) * p.outputs + output;
					*at = add ? *at + acc[(m * 4 + n) * 4 + i] : acc[(m * 4 + n) * 4 + i];
				}
			}
}

#if defined(LARGE)
#define NAME mma_large
#else
#define NAME mma
#endif

#define MMA_KERNELS(weight, name) MMA_KERNELS_NAMED(weight, name)
#define MMA_KERNELS_NAMED(weight, name) \
	KERNEL(matmul_##weight##_##name, MMA_THREADS, MMA_BLOCKS) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows, float4 *sums, unsigned *arrivals) \
	{ \
		if (int(blockIdx.x) * MMA_ROWS < *rows) \
			matmul_mma(Together{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, {rows}}, x, inputs, add, {sums, arrivals}); \
	} \
	KERNEL(matmul_##weight##_##name##_grouped, MMA_THREADS, MMA_BLOCKS) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		if (int(blockIdx.x) < *groups) \
			matmul_mma(Grouped{dst, weights, outputs, groups, {pairs_of(groups, most)}}, x, inputs, false, {}); \
	}

MMA_KERNELS(WEIGHT, NAME)

#endif
