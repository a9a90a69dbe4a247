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
// in shared memory. Blocks are copied to shared memory MMA_STAGES - 1 ahead.
//
// The image of activations has a unit of 16 rows and a block of inputs: activation.cuh.
#pragma once

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum {
	MMA_ROWS = 64, MMA_OUTPUTS = 128, MMA_THREADS = 256, MMA_STAGES = 4,
	ROW_TILES = MMA_ROWS / 16,
	X_PARTS = HAS_ADDEND ? 1 + HALVES : 1,   // arrays of 16 floats of a unit that products read
	X_FIRST = HAS_ADDEND && HALVES == 1 ? 0 : 1, // the first of them
	W_PARTS = HALVES * (1 + HAS_ADDEND),     // floats of an output and block
};

// The memory of a stage: a block of inputs of the rows and outputs.
enum {
	STAGE_VALUES = 0,                                             // [row tile] the fragments of a unit
	STAGE_QUANTS = STAGE_VALUES + ROW_TILES * S8_FRAGMENTS,       // [chunk][output] 16 bytes
	STAGE_HIGH = STAGE_QUANTS + MMA_OUTPUTS * 16 * CHUNKS,        // [output] HIGH_BYTES
	STAGE_ROWS = STAGE_HIGH + MMA_OUTPUTS * HIGH_BYTES,           // [row tile][part][row] float
	STAGE_OUTPUTS = STAGE_ROWS + ROW_TILES * X_PARTS * 64,        // [part][output] float: factors, then addends
	STAGE_BYTES = STAGE_OUTPUTS + MMA_OUTPUTS * W_PARTS * 4,
	MMA_SUMS = MMA_STAGES * STAGE_BYTES,                          // [level 3, 4][8][thread] 4 floats
	MMA_SHARED = 99 << 10,                                        // the maximum of all GPUs but data center ones
};

static_assert(MMA_SUMS + 2 * 8 * MMA_THREADS * 16 <= MMA_SHARED, "stages and sums need more shared memory than there is");

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

DEVICE uint32_t fragment(const uint8_t *stage, int output, int half)
{
	const int group = lane_id() % 4 / 2;
	const bool odd = lane_id() & 1;
#if CHUNKS == 2
	const uint8_t *at = stage + STAGE_QUANTS + (half * MMA_OUTPUTS + output) * 16 + group * 8;
	const uint2 words = *reinterpret_cast<const uint2 *>(at);
	return signed_bytes(__byte_perm(words.x, words.y, odd ? 0x7351 : 0x6240));
#else
	const uint32_t word = shared_word(stage + STAGE_QUANTS + output * 16 + half * 8 + group * 4);
#if defined(CODES)
	return __byte_perm(look_up(word, false, 0), look_up(word, true, 0), odd ? 0x7531 : 0x6420);
#else
	uint32_t q = word >> (odd ? 4 : 0) & 0x0f0f0f0f;
#if HIGH_BYTES == 4
	const int i = 2 * half + group; // byte_high of matmul.cu, without branches
	q |= rotate(shared_word(stage + STAGE_HIGH + output * 4), odd ? 4 - i : (32 - i) % 32) & 0x10101010;
#elif HIGH_BYTES == 8
	q |= rotate(shared_word(stage + STAGE_HIGH + output * 8 + half * 4), group ? (odd ? 4 : 2) : (odd ? 30 : 0)) & 0x30303030;
#endif
	return signed_bytes(q);
#endif
#endif
}

// ---------------------------------------------------------------------------------------
// Copying blocks to shared memory

// A block of inputs in the order in which they are added.
struct Position {
	int leaf, lane, tile;
};

// Returns leaf with its five bits reversed.
DEVICE int lane_of(int leaf) { return (leaf & 1) << 4 | (leaf & 2) << 2 | (leaf & 4) | (leaf & 8) >> 2 | leaf >> 4; }

// Goes on to the next of blocks blocks.
DEVICE void advance(Position &at, int blocks)
{
	at.tile++;
	while (at.tile * TILE_BLOCKS + at.lane >= blocks && at.leaf < 31)
		at.lane = lane_of(++at.leaf), at.tile = 0;
}

// What a thread copies of every block.
struct Source {
	const uint8_t *band, *quants_band, *high_band; // of the weights whose scales, quants and upper bits it copies
	const uint8_t *units;                          // the first of its row tile
	int blocks, padded;                            // of a row; of a row of the image
};

// Where the scales of a thread's output are in the registers until they are stored.
struct Scales {
	Scale scale;
	uint32_t super;
};

// Copies a block of inputs to a stage, except scales of weights, which it loads to scales.
DEVICE void copy_block(uint8_t *stage, const Source &from, const Position &at, Scales &scales)
{
	const int thread = threadIdx.x, in_tile = blocks_in_tile(from.blocks, at.tile);
	const size_t tile = size_t(at.tile) * tile_bytes(TILE_BLOCKS);
	const uint8_t *unit = from.units + size_t(at.tile * TILE_BLOCKS + at.lane) * S8_UNIT;
	copy_async<16>(stage + STAGE_VALUES + thread * 16, unit + thread % 64 * 16);
	if (thread % 64 < X_PARTS * 4)
		copy_async<16>(stage + STAGE_ROWS + (thread / 64 * X_PARTS * 4 + thread % 64) * 16, unit + S8_FRAGMENTS + X_FIRST * 64 + thread % 64 * 16);
	if (thread < MMA_OUTPUTS * CHUNKS) {
		const int output = thread % MMA_OUTPUTS, chunk = thread / MMA_OUTPUTS;
		copy_async<16>(stage + STAGE_QUANTS + thread * 16, from.quants_band + tile + quants_at(in_tile, output % BAND_OUTPUTS, chunk, at.lane));
	}
#if HIGH_BYTES == 4
	if (thread >= MMA_THREADS - MMA_OUTPUTS / 4)
		copy_async<16>(stage + STAGE_HIGH + (thread - MMA_THREADS + MMA_OUTPUTS / 4) * 16, from.high_band + tile + high_at(in_tile, 0, at.lane));
#elif HIGH_BYTES == 8
	if (thread >= MMA_OUTPUTS)
		copy_async<8>(stage + STAGE_HIGH + (thread - MMA_OUTPUTS) * 8, from.high_band + tile + high_at(in_tile, thread % BAND_OUTPUTS, at.lane));
#endif
	if (thread >= MMA_OUTPUTS) {
		const uint8_t *scale = from.band + tile + scales_at(in_tile, at.lane) + thread % BAND_OUTPUTS * SCALE_BYTES;
#if SCALE_BYTES == 1
		scales.scale = ldg8(scale);
#elif SCALE_BYTES == 2
		scales.scale = ldg16(scale);
#else
		scales.scale = ldg32(scale);
#endif
#if SUPER_BYTES == 4
		scales.super = ldg32(from.band + tile + super_at(in_tile, at.lane) + thread % BAND_OUTPUTS * SUPER_BYTES);
#elif SUPER_BYTES == 2
		scales.super = ldg16(from.band + tile + super_at(in_tile, at.lane) + thread % BAND_OUTPUTS * SUPER_BYTES);
#endif
	}
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
DEVICE void multiply_block(float (&acc)[32], const uint8_t *stage)
{
	const int lane = lane_id(), row_tile = warp_id() / 4 * 2, first = warp_id() % 4 * 32;
	uint32_t b[4][2];
	UNROLL for (int n = 0; n < 4; n++)
		UNROLL for (int half = 0; half < 2; half++)
			b[n][half] = fragment(stage, first + n * 8 + lane / 4, half);
	const float *const of_outputs = reinterpret_cast<const float *>(stage + STAGE_OUTPUTS) + first + lane % 4 * 2;
	UNROLL for (int m = 0; m < 2; m++) {
		const uint4 *values = reinterpret_cast<const uint4 *>(stage + STAGE_VALUES) + (row_tile + m) * (S8_FRAGMENTS / 16) + lane;
		const float *of_rows = reinterpret_cast<const float *>(stage + STAGE_ROWS) + (row_tile + m) * X_PARTS * 16 + lane / 4;
		uint32_t upper[4], lower[4];
		memcpy(upper, &values[0], 16), memcpy(lower, &values[32], 16);
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

// Adds sums of a finished leaf to those of the same level that wait, as long as there are any, and leaves the sum in
// acc if it is the whole tree's. Sums of levels 0 to 2 wait in registers, the others in shared memory.
template <int LEVEL> DEVICE void add_leaf(float (&sums)[32], float (&waiting)[3][32], float4 *shared, int leaf)
{
	if constexpr (LEVEL < 5) {
		const bool waits = !(leaf >> LEVEL & 1);
		if constexpr (LEVEL < 3) {
			UNROLL for (int i = 0; i < 32; i++)
				if (waits)
					waiting[LEVEL][i] = sums[i];
				else
					sums[i] = waiting[LEVEL][i] + sums[i];
		} else {
			float4 *at = shared + (LEVEL - 3) * 8 * MMA_THREADS + threadIdx.x;
			UNROLL for (int i = 0; i < 8; i++)
				if (waits) {
					at[i * MMA_THREADS] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
				} else {
					const float4 v = at[i * MMA_THREADS];
					sums[4 * i] += v.x, sums[4 * i + 1] += v.y, sums[4 * i + 2] += v.z, sums[4 * i + 3] += v.w;
				}
		}
		if (!waits)
			add_leaf<LEVEL + 1>(sums, waiting, shared, leaf);
	}
}

// Computes 64 rows from row on of 128 outputs from band on. x has the image s8.
DEVICE void matmul_mma(const Product &p, int band, const uint4 *x, int row, int inputs, bool add, int rows)
{
	SHARED(uint8_t, shared);
	Source from;
	from.blocks = blocks_of(inputs), from.padded = tiles_of(from.blocks) * TILE_BLOCKS;
	// Outputs past the last band repeat it, and rows past the last tile of 16; their results are discarded.
	const int last_band = (p.outputs - 1) / BAND_OUTPUTS;
	const auto band_at = [&](int output) { return p.weights + min(band + output / BAND_OUTPUTS, last_band) * band_bytes(from.blocks); };
	from.band = from.quants_band = band_at(threadIdx.x % MMA_OUTPUTS);
	from.high_band = HIGH_BYTES == 4 ? band_at(threadIdx.x % 32 * BAND_OUTPUTS) : from.band;
	from.units = reinterpret_cast<const uint8_t *>(x) + size_t(min(row / 16 + int(threadIdx.x) / 64, (rows - 1) / 16)) * from.padded * S8_UNIT;

	// Stage s % MMA_STAGES has block s of the order. The scales of a block are stored one block after they were loaded.
	Position ahead = {0, 0, -1};
	Scales scales = {};
	int copied = 0;
	const auto copy_next = [&]() {
		if (copied > 0 && copied <= from.blocks)
			store_scales(shared + (copied - 1) % MMA_STAGES * STAGE_BYTES, scales);
		if (copied < from.blocks) {
			advance(ahead, from.blocks);
			copy_block(shared + copied % MMA_STAGES * STAGE_BYTES, from, ahead, scales);
		}
		copied++;
		copies_commit();
	};
	for (int i = 0; i < MMA_STAGES - 1; i++)
		copy_next();

	float acc[32], waiting[3][32];
	int block = 0;
	for (int leaf = 0; leaf < 32; leaf++) {
		UNROLL for (int i = 0; i < 32; i++)
			acc[i] = 0;
		for (int at = lane_of(leaf); at < from.blocks; at += TILE_BLOCKS, block++) {
			copies_wait<MMA_STAGES - 2>();
			syncthreads();
			copy_next();
			multiply_block(acc, shared + block % MMA_STAGES * STAGE_BYTES);
		}
		add_leaf<0>(acc, waiting, reinterpret_cast<float4 *>(shared + MMA_SUMS), leaf);
	}

	UNROLL for (int m = 0; m < 2; m++)
		UNROLL for (int n = 0; n < 4; n++)
			UNROLL for (int i = 0; i < 4; i++) {
				const int to = row + warp_id() / 4 * 32 + m * 16 + i / 2 * 8 + lane_id() / 4;
				const int output = band * BAND_OUTPUTS + warp_id() % 4 * 32 + n * 8 + lane_id() % 4 * 2 + i % 2;
				if (to < rows && output < p.outputs) {
					float *at = p.dst + size_t(to) * p.outputs + output;
					*at = add ? *at + acc[(m * 4 + n) * 4 + i] : acc[(m * 4 + n) * 4 + i];
				}
			}
}

// Grid: (blocks of 64 rows, blocks of 128 outputs of all products). Launch with blockDim.x = 256 and MMA_SHARED bytes
// of shared memory.
#define MMA_PRODUCT(weight) MMA_PRODUCT_NAMED(weight)
#define MMA_PRODUCT_NAMED(weight) \
	KERNEL(matmul_##weight##_mma, MMA_THREADS, 1) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		const int row = blockIdx.x * MMA_ROWS; \
		if (row >= *rows) \
			return; \
		int band; \
		const Product p = product_of({dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, &band, MMA_OUTPUTS); \
		matmul_mma(p, band, x, row, inputs, add, *rows); \
	}

MMA_PRODUCT(WEIGHT)

#endif
