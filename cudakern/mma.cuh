// Products of many rows by matrix units for int8 (compute capability 8.0), with the same bits as matmul.cu: the
// sum of products of a block is an exact integer, whoever computes it, and the sums of blocks are added in
// the same order.
//
// An activation of 16 bits is 256 · its upper byte, signed, plus its lower byte, unsigned, so that a block of 16
// rows × 8 outputs is two instructions of 16 × 8 × 32 products each.
//
// A thread block computes 64 rows × 128 outputs, a warp 32 × 32 of them. It takes the blocks of inputs in the
// order of the tree in which matmul.cu adds the sums of lanes: all blocks of lane 0, then 16, 8, 24, 4 … Then one
// accumulator suffices for the lane at hand, and one sum for each level of the tree: the first three in registers, two
// in shared memory. The loop over leaves has four of them, so that sums of the first two levels need not move from register
// to register. Blocks are copied to shared memory in pairs, one pair ahead.
//
// The image of activations has a unit of 16 rows and a block of inputs: activation.cuh. The rows of a block are those of
// a batch, or a group of pairs of a row and an expert: experts.cuh.
#pragma once

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum {
	MMA_ROWS = 64, MMA_OUTPUTS = 128, MMA_THREADS = 256, REGISTER_LEVELS = 3, MMA_SHARED = 99 << 10, MMA_BLOCKS = 1,
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

// Copies 8 or 16 bytes to shared memory while the thread continues, until copies_wait. commit ends a group of copies.
template <int BYTES> DEVICE void copy_async(uint8_t *to, const uint8_t *from)
{
#ifdef EMU
	emu::check_aligned(to, BYTES), emu::check_aligned(from, BYTES);
	memcpy(to, from, BYTES);
#else
	const uint32_t at = uint32_t(__cvta_generic_to_shared(to));
	if (BYTES == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(from) : "memory");
#endif
}

DEVICE void copies_commit()
{
#ifndef EMU
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the last LEFT groups are still being copied.
template <int LEFT> DEVICE void copies_wait()
{
#ifndef EMU
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

#ifdef EMU

// One lane's part of the product of 16 rows × 4 · WORDS inputs with as many inputs × 8 outputs, the operands of
// mma.m16n8k16 and k32 in the order of their fragments.
template <int WORDS, typename A> DEVICE void mma_emulated(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int first)
{
	uint32_t rows[2][2][4] = {}, outputs[2][2][4] = {}; // [k half][row or output][lane of the group]
	const int group = lane_id() / 4, at = lane_id() % 4;
	for (int half = 0; half < WORDS; half++) {
		for (int lower = 0; lower < 2; lower++) {
			const uint32_t *all = emu::exchange(a[2 * (first + half) + lower], __FILE__, __LINE__);
			memcpy(rows[half][lower], &all[group * 4], 16);
		}
		const uint32_t *all = emu::exchange(b[first + half], __FILE__, __LINE__);
		for (int i = 0; i < 2; i++)
			memcpy(outputs[half][i], &all[(2 * at + i) * 4], 16);
	}
	for (int i = 0; i < 4; i++) {
		d[i] = 0;
		for (int half = 0; half < WORDS; half++) {
			A x[16];
			int8_t w[16];
			memcpy(x, rows[half][i / 2], 16), memcpy(w, outputs[half][i % 2], 16);
			for (int k = 0; k < 16; k++)
				d[i] += int(x[k]) * w[k];
		}
	}
}

#define MMA_ALL(type, A, d, a, b) mma_emulated<2, A>(d, a, b, 0)
#define MMA_HALF(type, A, d, a, b, half) mma_emulated<1, A>(d, a, b, half)

#else

#define MMA_ALL(type, A, d, a, b) \
	asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0))
#define MMA_HALF(type, A, d, a, b, half) \
	asm("mma.sync.aligned.m16n8k16.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[2 * (half)]), "r"(a[2 * (half) + 1]), "r"(b[half]), "r"(0))

#endif

// Sets dot to the sums of products of 16 rows × 8 outputs over one part of a block.
DEVICE void mma(int (&dot)[4], const uint32_t (&upper)[4], const uint32_t (&lower)[4], const uint32_t (&b)[2], int half)
{
	int low[4];
	if (HALVES == 1) {
		MMA_ALL("s8", int8_t, dot, upper, b);
		MMA_ALL("u8", uint8_t, low, lower, b);
	} else if (half == 0) {
		MMA_HALF("s8", int8_t, dot, upper, b, 0);
		MMA_HALF("u8", uint8_t, low, lower, b, 0);
	} else {
		MMA_HALF("s8", int8_t, dot, upper, b, 1);
		MMA_HALF("u8", uint8_t, low, lower, b, 1);
	}
	UNROLL for (int i = 0; i < 4; i++)
		dot[i] = dot[i] * 256 + low[i];
}

// ---------------------------------------------------------------------------------------
// Weights as fragments: a lane has the values of an output's inputs 16 · half + 8 · (lane % 4 / 2) + {0, 4, 1, 5} if
// lane is even, else + {2, 6, 3, 7}, as int8. The fragments of activations have the same order.

// Returns the values of four unsigned quants of up to 7 bits, q - OFFSET, or of 8 bits if OFFSET is 128.
DEVICE uint32_t signed_bytes(uint32_t q)
{
	if (OFFSET == 0)
		return q;
	if (OFFSET == 128)
		return q ^ 0x80808080;
	return (q + (128 - OFFSET) * 0x01010101u) ^ 0x80808080; // no byte carries
}

DEVICE uint32_t rotate(uint32_t v, int by)
{
#ifdef EMU
	return by == 0 ? v : v << by | v >> (32 - by);
#else
	return __funnelshift_l(v, v, by);
#endif
}

DEVICE uint32_t shared_word(const uint8_t *p)
{
	return *reinterpret_cast<const uint32_t *>(p);
}

// Returns where a lane's inputs are in the 16 bytes of quants of an output.
DEVICE int in_quants() { return lane_id() % 4 / 2 * (CHUNKS == 2 ? 8 : 4); }

// Returns a fragment from a lane's part of 16 bytes of quants (in_quants), at quants + 8 · half if CHUNKS is 1, and from the
// upper bits of the output's block; both in shared memory.
DEVICE uint32_t fragment_of(const uint8_t *quants, [[maybe_unused]] const uint8_t *high, [[maybe_unused]] int half)
{
	[[maybe_unused]] const int group = lane_id() % 4 / 2;
	const bool odd = lane_id() & 1;
#if CHUNKS == 2
	const uint2 words = *reinterpret_cast<const uint2 *>(quants);
	return signed_bytes(__byte_perm(words.x, words.y, odd ? 0x7351 : 0x6240));
#else
	const uint32_t word = shared_word(quants + half * 8);
#if defined(CODES)
	return __byte_perm(look_up(word, false), look_up(word, true), odd ? 0x7531 : 0x6420);
#else
	uint32_t q = word >> (odd ? 4 : 0) & 0x0f0f0f0f;
#if HIGH_BYTES == 4
	const int i = 2 * half + group; // byte_high of matmul.cu, without branches
	q |= rotate(shared_word(high), odd ? 4 - i : (32 - i) % 32) & 0x10101010;
#elif HIGH_BYTES == 8
	q |= rotate(shared_word(high + half * 4), group ? (odd ? 4 : 2) : (odd ? 30 : 0)) & 0x30303030;
#endif
	return signed_bytes(q);
#endif
#endif
}

// Where a lane's parts of a block are in a stage, behind the beginning of each array: see multiply_block.
struct InStage {
	int quants, high, values, rows, outputs;
};

// Returns the fragment of output n · 8 + lane / 4 of a warp's 32.
DEVICE uint32_t fragment(const uint8_t *stage, const InStage &at, int n, int half)
{
	return fragment_of(stage + at.quants + STAGE_QUANTS + ((CHUNKS == 2 ? half * MMA_OUTPUTS : 0) + n * 8) * 16, stage + at.high + STAGE_HIGH + n * 8 * HIGH_BYTES, half);
}

// ---------------------------------------------------------------------------------------
// Copying blocks to shared memory

// A block of inputs in the order in which they are added: all those of a leaf, which are a multiple of TILE_BLOCKS apart.
struct Position {
	int leaf, block;
};

// Returns leaf with its five bits reversed: the first of its blocks.
DEVICE int lane_of(int leaf) { return __brev(leaf) >> 27; }

// Goes on to the next of blocks blocks.
DEVICE void advance(Position &at, int blocks)
{
	at.block += TILE_BLOCKS;
	while (at.block >= blocks && at.leaf < 31)
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
DEVICE void copy_block(uint8_t *stage, const Source &from, const Position &at, Scales &scales)
{
	const int thread = threadIdx.x, in_tile = blocks_in_tile(from.blocks, at.block / TILE_BLOCKS), lane = at.block % TILE_BLOCKS;
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
	const uint8_t *scale = from.band + (tile + scales_at(in_tile, lane) + thread % BAND_OUTPUTS * SCALE_BYTES);
#if SCALE_BYTES == 1
	scales.scale = ldg8(scale);
#elif SCALE_BYTES == 2
	scales.scale = ldg16(scale);
#else
	scales.scale = ldg32(scale);
#endif
#if SUPER_BYTES == 4
	scales.super = ldg32(from.band + (tile + super_at(in_tile, lane) + thread % BAND_OUTPUTS * SUPER_BYTES));
#elif SUPER_BYTES == 2
	scales.super = ldg16(from.band + (tile + super_at(in_tile, lane) + thread % BAND_OUTPUTS * SUPER_BYTES));
#endif
}

// Stores what copy_block has loaded to scales.
DEVICE void store_scales(uint8_t *stage, const Scales &scales)
{
	if (threadIdx.x < MMA_OUTPUTS)
		return;
	Block w;
	w.scales[0] = scales.scale;
#if SUPER_BYTES > 0
	w.super[0] = scales.super;
#endif
	float *to = reinterpret_cast<float *>(stage + STAGE_OUTPUTS) + threadIdx.x % MMA_OUTPUTS;
	UNROLL for (int half = 0; half < HALVES; half++) {
		to[half * MMA_OUTPUTS] = factor(w, 0, half);
		if (HAS_ADDEND)
			to[(HALVES + half) * MMA_OUTPUTS] = addend_of(w, 0, half);
	}
}

// ---------------------------------------------------------------------------------------
// The product

// acc[row tile of 2][output tile of 4][4] += the block of a stage, as fragments: a lane has rows lane / 4 and 8 more, and outputs
// 2 · (lane % 4) and the next.
DEVICE void multiply_block(float (&acc)[32], const uint8_t *stage, const InStage &at)
{
	uint32_t b[4][2];
	UNROLL for (int n = 0; n < 4; n++)
		UNROLL for (int half = 0; half < 2; half++)
			b[n][half] = fragment(stage, at, n, half);
	const float *const of_outputs = reinterpret_cast<const float *>(stage + at.outputs + STAGE_OUTPUTS);
	UNROLL for (int m = 0; m < 2; m++) {
		const uint4 *values = reinterpret_cast<const uint4 *>(stage + at.values + STAGE_VALUES) + m * (S8_FRAGMENTS / 16);
		const float *of_rows = reinterpret_cast<const float *>(stage + at.rows + STAGE_ROWS) + m * X_PARTS * 16;
		uint32_t upper[4], lower[4];
		const uint4 both[2] = {values[0], values[32]};
		memcpy(upper, &both[0], 16), memcpy(lower, &both[1], 16);
		float scale[2], sum[2][HALVES];
		UNROLL for (int r = 0; r < 2; r++) {
			scale[r] = of_rows[(1 - X_FIRST) * 16 + r * 8];
			if (HAS_ADDEND)
				UNROLL for (int half = 0; half < HALVES; half++)
					sum[r][half] = of_rows[(HALVES == 1 ? 0 : 1 + half) * 16 + r * 8];
		}
		UNROLL for (int n = 0; n < 4; n++)
			UNROLL for (int half = 0; half < HALVES; half++) {
				int dot[4];
				mma(dot, upper, lower, b[n], half);
				const float2 factors = *reinterpret_cast<const float2 *>(of_outputs + half * MMA_OUTPUTS + n * 8);
				UNROLL for (int i = 0; i < 4; i++) {
					float &to = acc[(m * 4 + n) * 4 + i];
					if (HAS_ADDEND) {
						const float2 addends = *reinterpret_cast<const float2 *>(of_outputs + (HALVES + half) * MMA_OUTPUTS + n * 8);
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

// Returns v, which the compiler takes for another value: it computes what depends on it again instead of keeping it in
// registers from before, and keeps the value itself instead of computing that again.
DEVICE int again(int v)
{
#ifndef EMU
	asm volatile("" : "+r"(v));
#endif
	return v;
}

// What the thread blocks of a launch compute: up to three products of all rows, or a product of an expert's weights with
// each group of rows.
struct Together {
	Product a, b, c;
	CountedRows rows;
};

struct Grouped {
	float *dst;
	const uint8_t *weights;
	int outputs; // of an expert
	const int *groups;
	GroupedRows rows;
};

// Returns the product of the thread block with index block along y, and sets its first band; each outputs in a block.
DEVICE Product product_of(const Together &work, int *band, int each, int block)
{
	return product_of(work.a, work.b, work.c, band, each, block);
}

DEVICE Product product_of(const Grouped &work, int *band, int each, int block)
{
	const int first = experts_of(work.groups)[blockIdx.x] * work.outputs;
	*band = (first + block * each) / BAND_OUTPUTS;
	return {work.dst, work.weights, work.outputs, first};
}

DEVICE int last_band_of(const Product &p) { return (p.first + p.outputs - 1) / BAND_OUTPUTS; }

// Computes 64 rows of 128 outputs. x has the image s8.
template <typename Work> DEVICE void matmul_mma(const Work &work, const uint4 *x, int inputs, bool add)
{
	SHARED(uint8_t, shared);
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
	Position ahead = {0, -TILE_BLOCKS};
	Scales scales[2] = {};
	const auto copy = [&](unsigned block) {
		UNROLL for (int i = 0; i < 2; i++)
			if (int(block) + i < from.blocks) {
				advance(ahead, from.blocks);
				copy_block(shared + (block + i) % MMA_STAGES * STAGE_BYTES, from, ahead, scales[i]);
			}
		copies_commit();
	};
	copy(0);

	const int lane = lane_id(), row_tile = warp_id() / WARPS_ACROSS * 2, first = warp_id() % WARPS_ACROSS * 32 + lane / 4;
	const InStage in_stage = {
		again(first * 16 + in_quants()), again(first * HIGH_BYTES), again(row_tile * S8_FRAGMENTS + lane * 16),
		again((row_tile * X_PARTS * 16 + lane / 4) * 4), again((warp_id() % WARPS_ACROSS * 32 + lane % 4 * 2) * 4),
	};
	float acc[32], second[32], odd[32], waiting[32];
	unsigned block = 0;
	const auto add_blocks = [&](float(&sums)[32], int leaf) {
		UNROLL for (int i = 0; i < 32; i++)
			sums[i] = 0;
		for (int at = lane_of(leaf); at < from.blocks; at += TILE_BLOCKS, block++) {
			if (block % 2 == 0) {
				UNROLL for (int i = 0; i < 2; i++)
					store_scales(shared + (block + i) % MMA_STAGES * STAGE_BYTES, scales[i]);
				copies_wait<0>();
				syncthreads();
				copy(block + 2);
			}
			multiply_block(sums, shared + block % MMA_STAGES * STAGE_BYTES, in_stage);
		}
	};
	const auto add_pair = [&](float(&sums)[32], int leaf) {
		add_blocks(sums, leaf);
		add_blocks(odd, leaf + 1);
		UNROLL for (int i = 0; i < 32; i++)
			sums[i] += odd[i];
	};
	for (int leaf = 0; leaf < 32; leaf += 4) {
		add_pair(acc, leaf);
		add_pair(second, leaf + 2);
		UNROLL for (int i = 0; i < 32; i++)
			acc[i] += second[i];
		add_leaves<2>(acc, waiting, reinterpret_cast<float4 *>(shared + MMA_SUMS), leaf);
	}

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

// ---------------------------------------------------------------------------------------
// Products of some rows: a thread block computes 16 rows × 32 outputs and reads the weights of whole tiles, as they lie in
// memory. Warp w takes the blocks of lanes w, w + 8, w + 16 and w + 24 of every tile, with an accumulator for each lane. In
// the end the sums are added in the tree of matmul.cu: lanes 16 and 8 apart in a warp, then 4, 2 and 1 apart.

enum {
	FEW_ROWS = 16, FEW_OUTPUTS = 32, FEW_BANDS = FEW_OUTPUTS / BAND_OUTPUTS, FEW_LANES = TILE_BLOCKS / WARPS,
	TILE_QUANTS = 64 * CHUNKS * TILE_BLOCKS, TILE_HIGH = 4 * HIGH_BYTES * TILE_BLOCKS, TILE_SCALES = 4 * SCALE_BYTES * TILE_BLOCKS,
	TILE_BYTES = (TILE_QUANTS + TILE_HIGH + TILE_SCALES + TILE_BLOCKS / 8 * 4 * SUPER_BYTES + 15) / 16 * 16,
	FEW_BAND = (TILE_BYTES + 127) / 128 * 128, // of a band in shared memory: a multiple of all banks
	FEW_STAGE = FEW_BANDS * FEW_BAND,
	FEW_BLOCKS = HIGH_BYTES == 4 && HAS_ADDEND ? 1 : 2, // on a multiprocessor; with two, these types have too few registers
	FEW_SHARED = 99 << 10, // the maximum of all GPUs but data center ones
	FEW_STAGES = 4 * FEW_STAGE <= FEW_SHARED ? 4 : FEW_SHARED / FEW_STAGE,
};

static_assert(FEW_STAGES >= 2 && FEW_STAGES * FEW_STAGE >= WARPS * FEW_OUTPUTS * FEW_ROWS * 4, "stages are too large or too small");

// Returns where the 16 bytes of quants of an output's chunk and block are in a band in shared memory. Blocks are exchanged so
// that lanes that read the same block of eight outputs use all banks. Output counts from 0 to 7 in an even band and the next.
DEVICE int few_quants_at(int output, int chunk, int block)
{
	return ((output % BAND_OUTPUTS * CHUNKS + chunk) * TILE_BLOCKS + (block ^ output)) * 16;
}

// The same for the 8 bytes of upper bits.
DEVICE int few_high_at(int output, int block)
{
	return TILE_QUANTS + (output % BAND_OUTPUTS * TILE_BLOCKS + (block ^ output * 2)) * 8;
}

// Copies a full tile of a band. Eight warps copy FEW_BANDS bands together: unit counts the 16 bytes of a tile.
DEVICE void copy_unit(uint8_t *band_shared, const uint8_t *tile, int band, int unit)
{
	int to = unit * 16;
	const int first = band % 2 * BAND_OUTPUTS; // output of the band among eight
	if (unit < TILE_QUANTS / 16)
		to = few_quants_at(unit / TILE_BLOCKS / CHUNKS + first, unit / TILE_BLOCKS % CHUNKS, unit % TILE_BLOCKS);
	else if (HIGH_BYTES == 8 && unit < (TILE_QUANTS + TILE_HIGH) / 16) {
		const int pair = unit - TILE_QUANTS / 16;
		to = few_high_at(pair / (TILE_BLOCKS / 2) + first, pair % (TILE_BLOCKS / 2) * 2);
	}
	copy_async<16>(band_shared + to, tile + unit * 16);
}

// Copies the last tile of a band, which has fewer blocks, to where they are in a full one.
DEVICE void copy_rest(uint8_t *band_shared, const uint8_t *tile, int band, int blocks, int lane)
{
	const int first = band % 2 * BAND_OUTPUTS;
	const auto word = [&](int to, int from) { *reinterpret_cast<uint32_t *>(band_shared + to) = ldg32(tile + from); };
	for (int i = lane; i < BAND_OUTPUTS * CHUNKS * blocks; i += WARP) {
		const int output = i / blocks / CHUNKS, chunk = i / blocks % CHUNKS, block = i % blocks;
		copy_async<16>(band_shared + few_quants_at(output + first, chunk, block), tile + quants_at(blocks, output, chunk, block));
	}
#if HIGH_BYTES == 4
	for (int i = lane; i < BAND_OUTPUTS * blocks; i += WARP)
		word(TILE_QUANTS + i * 4, high_at(blocks, 0, 0) + i * 4);
#elif HIGH_BYTES == 8
	for (int i = lane; i < BAND_OUTPUTS * blocks * 2; i += WARP)
		word(few_high_at(i / 2 / blocks + first, i / 2 % blocks) + i % 2 * 4, high_at(blocks, i / 2 / blocks, i / 2 % blocks) + i % 2 * 4);
#endif
	for (int i = lane; i < SCALE_BYTES * blocks; i += WARP)
		word(TILE_QUANTS + TILE_HIGH + i * 4, scales_at(blocks, 0) + i * 4);
	for (int i = lane; i < SUPER_BYTES * (blocks / 8); i += WARP)
		word(TILE_QUANTS + TILE_HIGH + TILE_SCALES + i * 4, super_at(blocks, 0) + i * 4);
}

// Returns the fragment of an output among eight of a pair of bands: see fragment.
DEVICE uint32_t few_fragment(const uint8_t *bands, int output, int block, int half)
{
	const uint8_t *band = bands + output / BAND_OUTPUTS * FEW_BAND;
	const uint8_t *quants = band + few_quants_at(output, CHUNKS == 2 ? half : 0, block) + in_quants();
#if HIGH_BYTES == 8
	return fragment_of(quants, band + few_high_at(output, block), half);
#else
	return fragment_of(quants, band + TILE_QUANTS + (block * BAND_OUTPUTS + output % BAND_OUTPUTS) * HIGH_BYTES, half);
#endif
}

// The activations of a block, as a lane needs them: see multiply_block.
struct RowsOfBlock {
	uint4 upper, lower;
	float scale[2], sum[2][HALVES];
};

DEVICE void load_rows(RowsOfBlock &x, const uint8_t *unit)
{
	const float *of_rows = reinterpret_cast<const float *>(unit + S8_FRAGMENTS) + lane_id() / 4;
	x.upper = ldg128(unit + lane_id() * 16), x.lower = ldg128(unit + S8_FRAGMENTS / 2 + lane_id() * 16);
	UNROLL for (int r = 0; r < 2; r++) {
		x.scale[r] = ldg_float(of_rows + 16 + r * 8);
		if (HAS_ADDEND)
			UNROLL for (int half = 0; half < HALVES; half++)
				x.sum[r][half] = ldg_float(of_rows + (HALVES == 1 ? 0 : 2 + half) * 16 + r * 8);
	}
}

// acc[output tile][4] += the activations · a block of 8 outputs of each tile.
DEVICE void multiply_few(float (&acc)[FEW_BANDS / 2][4], const RowsOfBlock &x, const uint8_t *stage, int block)
{
	const int lane = lane_id();
	uint32_t upper[4], lower[4];
	memcpy(upper, &x.upper, 16), memcpy(lower, &x.lower, 16);
	UNROLL for (int n = 0; n < FEW_BANDS / 2; n++) {
		const uint8_t *bands = stage + n * 2 * FEW_BAND;
		uint32_t b[2];
		UNROLL for (int half = 0; half < 2; half++)
			b[half] = few_fragment(bands, lane / 4, block, half);
		// The lane's two outputs of the result.
		const uint8_t *sides = bands + lane % 4 / 2 * FEW_BAND + TILE_QUANTS + TILE_HIGH;
		const int output = lane % 2 * 2;
		Block w;
		UNROLL for (int i = 0; i < 2; i++) {
			memcpy(&w.scales[i], __builtin_assume_aligned(sides + (block * BAND_OUTPUTS + output + i) * SCALE_BYTES, SCALE_BYTES), SCALE_BYTES);
#if SUPER_BYTES > 0
			memcpy(&w.super[i], __builtin_assume_aligned(sides + TILE_SCALES + (block / 8 * BAND_OUTPUTS + output + i) * SUPER_BYTES, SUPER_BYTES), SUPER_BYTES);
#endif
		}
		UNROLL for (int half = 0; half < HALVES; half++) {
			int dot[4];
			mma(dot, upper, lower, b, half);
			UNROLL for (int i = 0; i < 4; i++) {
				acc[n][i] = HAS_ADDEND ? fmaf(addend_of(w, i % 2, half), x.sum[i / 2][half], acc[n][i]) : acc[n][i];
				acc[n][i] = fmaf(factor(w, i % 2, half) * x.scale[i / 2], float(dot[i]), acc[n][i]);
			}
		}
	}
}

// Returns the first output of the thread block in its product p, which begins with band. Types with two upper bits have too few
// registers to keep it.
DEVICE int first_output(const Together &, const Product &, int band) { return band * BAND_OUTPUTS; }
DEVICE int first_output(const Grouped &work, const Product &p, int band)
{
	if (HIGH_BYTES != 8)
		return band * BAND_OUTPUTS - p.first;
	const Product q = product_of(work, &band, FEW_OUTPUTS, again(blockIdx.y));
	return band * BAND_OUTPUTS - q.first;
}

// Computes 16 rows of 32 outputs. x has the image s8.
template <typename Work> DEVICE void matmul_few(const Work &work, const uint4 *x, int inputs, bool add)
{
	SHARED(uint8_t, shared);
	const int row = blockIdx.x * FEW_ROWS;
	int band;
	const Product p = product_of(work, &band, FEW_OUTPUTS, blockIdx.y);
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks), warp = warp_id(), lane = lane_id();
	const uint8_t *units = reinterpret_cast<const uint8_t *>(x) + size_t(row / 16) * tiles * TILE_BLOCKS * S8_UNIT;
	// A warp copies the band of its number; bands past the last one repeat it.
	const uint8_t *own = p.weights + min(band + warp, last_band_of(p)) * band_bytes(blocks);
	static_assert(int(FEW_BANDS) == int(WARPS), "a warp copies a band");
	const auto copy = [&](int tile) {
		uint8_t *to = shared + tile % FEW_STAGES * FEW_STAGE + warp * FEW_BAND;
		const uint8_t *from = own + size_t(tile) * TILE_BYTES;
		const int in_tile = blocks - tile * TILE_BLOCKS;
		if (in_tile >= TILE_BLOCKS) {
			UNROLL for (int i = 0; i < (TILE_BYTES / 16 + WARP - 1) / WARP; i++)
				if (i * WARP + lane < TILE_BYTES / 16)
					copy_unit(to, from, warp, i * WARP + lane);
		} else if (in_tile > 0)
			copy_rest(to, from, warp, in_tile, lane);
		copies_commit();
	};
	for (int i = 0; i < FEW_STAGES - 1; i++)
		copy(i);

	float acc[FEW_LANES][FEW_BANDS / 2][4] = {};
	for (int tile = 0; tile < tiles; tile++) {
		const int in_tile = blocks_in_tile(blocks, tile);
		const auto unit = [&](int i) { return units + size_t(tile * TILE_BLOCKS + i * WARPS + warp) * S8_UNIT; };
		RowsOfBlock values[2];
		UNROLL for (int i = 0; i < 2; i++)
			load_rows(values[i], unit(i));
		copies_wait<FEW_STAGES - 2>();
		syncthreads();
		copy(tile + FEW_STAGES - 1);
		UNROLL for (int i = 0; i < FEW_LANES; i++) {
			if (i * WARPS + warp < in_tile)
				multiply_few(acc[i], values[i % 2], shared + tile % FEW_STAGES * FEW_STAGE, i * WARPS + warp);
			if (i + 2 < FEW_LANES)
				load_rows(values[i % 2], unit(i + 2));
		}
	}

	syncthreads();
	float *sums = reinterpret_cast<float *>(shared); // [warp][output tile][4][lane]
	UNROLL for (int n = 0; n < FEW_BANDS / 2; n++)
		UNROLL for (int i = 0; i < 4; i++)
			sums[((warp * FEW_BANDS / 2 + n) * 4 + i) * WARP + lane] = (acc[0][n][i] + acc[2][n][i]) + (acc[1][n][i] + acc[3][n][i]);
	syncthreads();
	for (int at = threadIdx.x; at < FEW_ROWS * FEW_OUTPUTS; at += 32 * WARPS) {
		const auto of = [&](int warp) { return sums[warp * FEW_ROWS * FEW_OUTPUTS + at]; };
		const float sum = ((of(0) + of(4)) + (of(2) + of(6))) + ((of(1) + of(5)) + (of(3) + of(7)));
		const int l = at % WARP, i = at / WARP % 4, n = at / WARP / 4;
		const int to = destination_of(work.rows, row + l / 4 + i / 2 * 8), output = first_output(work, p, band) + n * 8 + l % 4 * 2 + i % 2;
		if (to >= 0 && output >= 0 && output < p.outputs) {
			float *dst = p.dst + size_t(to) * p.outputs + output;
			*dst = add ? *dst + sum : sum;
		}
	}
}

// ---------------------------------------------------------------------------------------
// Kernels

// Grid: (blocks of rows, blocks of outputs of all products), of _grouped (groups, blocks of outputs of an expert). Launch
// _mma with MMA_THREADS threads and MMA_SHARED bytes of shared memory, _few with 256 and FEW_STAGES · FEW_STAGE.
#define MMA_PRODUCT(weight, name, function, each_rows, threads, blocks) MMA_PRODUCT_NAMED(weight, name, function, each_rows, threads, blocks)
#define MMA_PRODUCT_NAMED(weight, name, function, each_rows, threads, blocks) \
	KERNEL(matmul_##weight##_##name, threads, blocks) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		if (int(blockIdx.x) * each_rows < *rows) \
			function(Together{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, {rows}}, x, inputs, add); \
	} \
	KERNEL(matmul_##weight##_##name##_grouped, threads, blocks) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		if (int(blockIdx.x) < *groups) \
			function(Grouped{dst, weights, outputs, groups, {pairs_of(groups, most)}}, x, inputs, false); \
	}

MMA_PRODUCT(WEIGHT, mma, matmul_mma, MMA_ROWS, MMA_THREADS, MMA_BLOCKS)
MMA_PRODUCT(WEIGHT, few, matmul_few, FEW_ROWS, 32 * WARPS, FEW_BLOCKS)

#endif
