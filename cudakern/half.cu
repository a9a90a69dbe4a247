// Products of any number of rows with F16 and BF16 weights by matrix units, with the sums of half.cuh:
//
//	half_n8, half_n16      a block computes 8 or 16 rows of 32 outputs; a warp 16 of the outputs in one part of the inputs. It loads
//	                       weights to registers, half a tile or less ahead, and waits for no other.
//	half_n32, half_n64     a block computes a tile of rows and outputs, two parts at a time. Weights and activations are copied to shared memory,
//	                       half of the steps of a chunk at a time: 128 bytes of each output and row.
//
// half_n8 and what has one row or groups of 4 rows read activations as float32, the others the image half.
//
// Grid: (blocks of rows, blocks of outputs of all products), of _grouped (groups, blocks of outputs of an expert), of _experts (pairs, blocks of
// outputs of an expert). Launch with the shared memory of few_sums or TileOf::BYTES, and their threads.
#include "kernel.cuh"
#include "products.cuh"

#include "again.cuh"
#include "copies.cuh"
#include "half.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

// ---------------------------------------------------------------------------------------
// What thread blocks compute: up to three products of all rows, or one of an expert's weights with a group of rows or with one row.

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

struct Alone {
	float *dst;
	const uint8_t *weights;
	int outputs; // of an expert
	int expert, pair;
};

// Returns the product of the thread block with index block along y, and sets its first band; each outputs in a block.
DEVICE Product product_of(const Together &work, int *band, int each, int block) { return product_of(work.a, work.b, work.c, band, each, block); }

DEVICE Product of_expert(float *dst, const uint8_t *weights, int outputs, int expert, int *band, int first)
{
	*band = (expert * outputs + first) / BAND_OUTPUTS;
	return {dst, weights, outputs, expert * outputs};
}

DEVICE Product product_of(const Grouped &work, int *band, int each, int block)
{
	return of_expert(work.dst, work.weights, work.outputs, experts_of(work.groups)[blockIdx.x], band, block * each);
}

DEVICE Product product_of(const Alone &work, int *band, int each, int block)
{
	return of_expert(work.dst, work.weights, work.outputs, work.expert, band, block * each);
}

DEVICE int last_band_of(const Product &p) { return (p.first + p.outputs - 1) / BAND_OUTPUTS; }

// Returns the row of dst of a row of the images, or -1.
DEVICE int to_row(const Together &work, int row) { return destination_of(work.rows, row); }
DEVICE int to_row(const Grouped &work, int row) { return destination_of(work.rows, row); }
DEVICE int to_row(const Alone &work, int) { return work.pair; }

// Stores or adds a product, if it is one. output counts from the first one of band.
template <typename Work> DEVICE void store(const Work &work, const Product &p, int band, int row, int output, float product, bool add)
{
	const int to = to_row(work, row), at = band * BAND_OUTPUTS - p.first + output;
	if (to < 0 || at < 0 || at >= p.outputs)
		return;
	float *const dst = p.dst + size_t(to) * p.outputs + at;
	*dst = add ? *dst + product : product;
}

// ---------------------------------------------------------------------------------------
// Few rows

enum { FEW_OUTPUTS = 32, FEW_STRIDE = FEW_OUTPUTS + 1 };

// The shared memory of a block in bytes: the sums of the parts.
template <int ROWS> constexpr int few_sums() { return PARTS * ROWS * FEW_STRIDE * 4; }

// The lane's eight activations of a chunk and block, in an image of float32 or in one of halves. tile is that of its row; 0: no row.
template <bool FLOATS> DEVICE uint4 load_values(const uint4 *tile, int chunk, int block)
{
	if (!tile)
		return make_uint4(0, 0, 0, 0);
	if constexpr (FLOATS) {
		const float *at = reinterpret_cast<const float *>(tile + chunk * 2 * TILE_BLOCKS + block);
		return values_of(ldg_float4(at), ldg_float4(at + 4 * TILE_BLOCKS));
	} else {
		return ldg128(tile + chunk * TILE_BLOCKS + block);
	}
}

// A lane's weights of some chunks of a tile in its warp's part: of output lane / 4 and of the one 8 further, in blocks lane % 4 and 4 more.
template <int CHUNKS_> struct Piece {
	uint4 weights[CHUNKS_][2][2]; // [chunk][block][output]
};

// Computes ROWS rows, of which count are in the image, from row on, of 32 outputs. x is the image of the rows of the work.
template <int ROWS, bool FLOATS, typename Work> DEVICE void few(const Work &work, const uint4 *x, int row, int count, int inputs, bool add)
{
	enum { EIGHTS = ROWS / 8, UNITS = FLOATS ? int(F32_UNITS) : CHUNKS * TILE_BLOCKS };
	enum { PIECE_CHUNKS = IS_BF16(WEIGHT) && EIGHTS > 1 ? 1 : 2, PIECES = CHUNKS / PIECE_CHUNKS }; // as many as there are registers for
	typedef Piece<PIECE_CHUNKS> Piece;
	SHARED(float, sums); // [part][row][output]
	const int lane = lane_id(), part = warp_id() % PARTS, side = warp_id() / PARTS * 16;
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks), block = lane % 4;
	const uint8_t *of_output[2];
	{
		int band;
		const Product p = product_of(work, &band, FEW_OUTPUTS, blockIdx.y);
		UNROLL for (int i = 0; i < 2; i++) // bands past the last one repeat it
			of_output[i] = p.weights + min(band + (side + i * 8 + lane / 4) / BAND_OUTPUTS, last_band_of(p)) * band_bytes(blocks);
	}
	const auto load = [&](Piece &to, int tile, int piece) {
		const int in_tile = blocks_in_tile(blocks, tile);
		UNROLL for (int chunk = 0; chunk < PIECE_CHUNKS; chunk++)
			UNROLL for (int i = 0; i < 2; i++)
				UNROLL for (int output = 0; output < 2; output++) {
					uint4 &w = to.weights[chunk][i][output];
					w = make_uint4(0, 0, 0, 0);
					if (in_tile == TILE_BLOCKS || first_block(part, i) + block < in_tile)
						w = ldg128(of_output[output] + size_t(tile) * TILE_BYTES + quants_at(in_tile, lane / 4 % BAND_OUTPUTS, piece * PIECE_CHUNKS + chunk, first_block(part, i) + block));
				}
	};
	Piece next;
	load(next, 0, 0);
	const uint4 *const image = x + size_t(row + lane / 4) * tiles * UNITS;
	float acc[EIGHTS][4] = {};
	for (int tile = 0; tile < tiles; tile++)
		UNROLL for (int piece = 0; piece < PIECES; piece++) {
			const Piece w = next;
			if (piece + 1 < PIECES)
				load(next, tile, piece + 1);
			else if (tile + 1 < tiles)
				load(next, tile + 1, 0);
			UNROLL for (int chunk = 0; chunk < PIECE_CHUNKS; chunk++)
				UNROLL for (int i = 0; i < 2; i++) {
					const uint4 upper = halves_of(w.weights[chunk][i][0]), lower = halves_of(w.weights[chunk][i][1]);
					UNROLL for (int eight = 0; eight < EIGHTS; eight++)
						multiply_steps(acc[eight], upper, lower,
							load_values<FLOATS>(row + eight * 8 + lane / 4 < count ? image + (eight * 8 * tiles + tile) * UNITS : 0, piece * PIECE_CHUNKS + chunk, first_block(part, i) + block));
				}
		}
	UNROLL for (int eight = 0; eight < EIGHTS; eight++)
		UNROLL for (int i = 0; i < 4; i++)
			sums[(part * ROWS + eight * 8 + lane % 4 * 2 + i % 2) * FEW_STRIDE + side + i / 2 * 8 + lane / 4] = acc[eight][i];
	syncthreads();
	int band;
	const Product p = product_of(work, &band, FEW_OUTPUTS, again(blockIdx.y));
	for (int i = threadIdx.x; i < ROWS * FEW_OUTPUTS; i += 32 * WARPS) {
		const int of_row = i / FEW_OUTPUTS, output = i % FEW_OUTPUTS;
		const auto of_part = [&](int part) { return sums[(part * ROWS + of_row) * FEW_STRIDE + output]; };
		const float sum = ((of_part(0) + of_part(1)) + of_part(2)) + of_part(3);
		if (row + of_row < count)
			store(work, p, band, row + of_row, output, sum * RESULT_FACTOR, add);
	}
}

// ---------------------------------------------------------------------------------------
// Tiles

// A tile of OUTPUTS × ROWS results, of which a warp has WARP_OUTPUTS × WARP_ROWS.
template <int OUTPUTS_, int ROWS_, int WARP_OUTPUTS_, int WARP_ROWS_, int STAGES_, int BLOCKS_> struct TileOf {
	enum {
		OUTPUTS = OUTPUTS_, ROWS = ROWS_, WARP_OUTPUTS = WARP_OUTPUTS_, WARP_ROWS = WARP_ROWS_, STAGES = STAGES_, BLOCKS = BLOCKS_,
		ACROSS = OUTPUTS / WARP_OUTPUTS, THREADS = WARP * ACROSS * (ROWS / WARP_ROWS),
		LINE = 128, // bytes of an output or of a row in a stage
		STAGE = (OUTPUTS + ROWS) * LINE, BYTES = STAGES * STAGE,
		PER_LINE = LINE / 16, AT_ONCE = THREADS / PER_LINE, // lines that the block copies at once
	};
	static_assert(OUTPUTS % AT_ONCE == 0 && ROWS % AT_ONCE == 0 && AT_ONCE % BAND_OUTPUTS == 0, "threads copy the same part of each line");
};

// Returns where 16 bytes of a line are in it: two neighbouring lines use different banks.
DEVICE int in_line(int line, int unit) { return (unit ^ line % 2 * 4) * 16; }

// Computes a tile. x has the image half; count rows of it are the work's.
template <typename T, typename Work> DEVICE void tile_of(const Work &work, const uint4 *x, int row, int count, int inputs, bool add)
{
	enum { OF_OUTPUTS = T::WARP_OUTPUTS / 16, OF_ROWS = T::WARP_ROWS / 8, IMAGE_TILE = CHUNKS * TILE_BLOCKS * 16, STEPS = 2 * CHUNKS };
	SHARED(uint8_t, shared);
	const Address stages = address_of(shared);
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks), lane = lane_id();
	// A thread copies 16 bytes of every AT_ONCE-th line.
	const int unit = threadIdx.x % T::PER_LINE, line = threadIdx.x / T::PER_LINE, to = line * T::LINE + in_line(line, unit);
	const uint8_t *weights[T::OUTPUTS / T::AT_ONCE], *values[T::ROWS / T::AT_ONCE];
	{
		int band;
		const Product p = product_of(work, &band, T::OUTPUTS, blockIdx.y);
		UNROLL for (int i = 0; i < T::OUTPUTS / T::AT_ONCE; i++) // bands past the last one repeat it, and rows the last one
			weights[i] = p.weights + min(band + (line + i * T::AT_ONCE) / BAND_OUTPUTS, last_band_of(p)) * band_bytes(blocks);
	}
	UNROLL for (int i = 0; i < T::ROWS / T::AT_ONCE; i++)
		values[i] = reinterpret_cast<const uint8_t *>(x) + size_t(min(row + line + i * T::AT_ONCE, count - 1)) * tiles * IMAGE_TILE;
	int pair = 0, tile = 0, step = 0; // of the next copy: of the pair of parts; half of the steps of a chunk
	const auto copy = [&](Address stage) {
		if (pair < PARTS / 2) {
			const int in_tile = blocks_in_tile(blocks, tile), chunk = step / 2, block = first_block(2 * pair, step % 2) + unit;
			const uint32_t of_weights = tile * TILE_BYTES + quants_at(in_tile, line % BAND_OUTPUTS, chunk, min(block, in_tile - 1)); // a band is smaller than 4 GB
			UNROLL for (int i = 0; i < T::OUTPUTS / T::AT_ONCE; i++)
				copy_or_clear(stage + to + i * T::AT_ONCE * T::LINE, weights[i] + of_weights, block < in_tile);
			const uint32_t of_values = tile * IMAGE_TILE + (chunk * TILE_BLOCKS + block) * 16;
			UNROLL for (int i = 0; i < T::ROWS / T::AT_ONCE; i++)
				copy_async<16>(stage + to + (T::OUTPUTS + i * T::AT_ONCE) * T::LINE, values[i] + of_values);
			if (++step == STEPS) {
				step = 0;
				if (++tile == tiles)
					tile = 0, pair++;
			}
		}
		copies_commit();
	};
	UNROLL for (int i = 0; i < T::STAGES - 1; i++)
		copy(stages + i * T::STAGE);

	const int first_output = warp_id() % T::ACROSS * T::WARP_OUTPUTS, first_row = warp_id() / T::ACROSS * T::WARP_ROWS;
	float acc[2][OF_OUTPUTS][OF_ROWS][4] = {}, total[OF_OUTPUTS][OF_ROWS][4]; // acc: of each part of a pair
	int stage = 0;
	for (int of_pair = 0; of_pair < PARTS / 2; of_pair++) {
		for (int left = tiles * STEPS; left > 0; left--) {
			copies_wait<T::STAGES - 2>();
			syncthreads(); // and all warps have multiplied the stage before
			copy(stages + (stage == 0 ? T::STAGES - 1 : stage - 1) * T::STAGE);
			const Address at = stages + stage * T::STAGE;
			UNROLL for (int part = 0; part < 2; part++) {
				const int of_lane = lane / 4 * T::LINE + in_line(lane / 4, part * 4 + lane % 4);
				uint4 w[OF_OUTPUTS][2];
				UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
					UNROLL for (int eight = 0; eight < 2; eight++) {
						load_shared(w[output][eight], at + of_lane + (first_output + output * 16 + eight * 8) * T::LINE);
						w[output][eight] = halves_of(w[output][eight]);
					}
				UNROLL for (int eight = 0; eight < OF_ROWS; eight++) {
					uint4 v;
					load_shared(v, at + of_lane + (T::OUTPUTS + first_row + eight * 8) * T::LINE);
					UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
						multiply_steps(acc[part][output][eight], w[output][0], w[output][1], v);
				}
			}
			stage = stage + 1 == T::STAGES ? 0 : stage + 1;
		}
		UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
			UNROLL for (int eight = 0; eight < OF_ROWS; eight++)
				UNROLL for (int i = 0; i < 4; i++) {
					float &sum = total[output][eight][i], &first = acc[0][output][eight][i], &second = acc[1][output][eight][i];
					sum = (of_pair == 0 ? first : sum + first) + second;
					first = 0, second = 0;
				}
	}
	int band;
	const Product p = product_of(work, &band, T::OUTPUTS, again(blockIdx.y));
	UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
		UNROLL for (int eight = 0; eight < OF_ROWS; eight++)
			UNROLL for (int i = 0; i < 4; i++) {
				const int of_row = row + first_row + eight * 8 + lane % 4 * 2 + i % 2;
				if (of_row < count)
					store(work, p, band, of_row, first_output + output * 16 + i / 2 * 8 + lane / 4, total[output][eight][i] * RESULT_FACTOR, add);
			}
}

typedef TileOf<32, 32, 16, 16, 6, 4> SmallTile;
typedef TileOf<64, 64, 32, 32, 4, 3> LargeTile;

#define TOGETHER(weight, name, row_count, threads, blocks, compute) TOGETHER_NAMED(weight, name, row_count, threads, blocks, compute)
#define TOGETHER_NAMED(weight, name, row_count, threads, blocks, compute) \
	KERNEL(matmul_##weight##_half_##name, threads, blocks) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		const int row = blockIdx.x * row_count, count = *rows; \
		if (row < count) \
			compute(Together{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, {rows}}, x, row, count, inputs, add); \
	}

#define GROUPED(weight, name, row_count, threads, blocks, compute) GROUPED_NAMED(weight, name, row_count, threads, blocks, compute)
#define GROUPED_NAMED(weight, name, row_count, threads, blocks, compute) \
	KERNEL(matmul_##weight##_half_##name##_grouped, threads, blocks) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		const int row = blockIdx.x * row_count; \
		if (int(blockIdx.x) < *groups) \
			compute(Grouped{dst, weights, outputs, groups, {pairs_of(groups, most)}}, x, row, row + row_count, inputs, false); \
	}

#define ALONE(weight) ALONE_NAMED(weight)
#define ALONE_NAMED(weight) \
	KERNEL(matmul_##weight##_half_experts, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const float *routes, int experts, int used, const uint4 *x, int inputs, \
		int own, const int *pairs) \
	{ \
		const int pair = blockIdx.x, row = own ? pair : pair / used; \
		if (pair < *pairs) \
			few<8, true>(Alone{dst, weights, outputs, expert_of_pair(routes, experts, used, pair), pair}, x, row, row + 1, inputs, false); \
	}

ALONE(WEIGHT)
GROUPED(WEIGHT, n4, 4, 32 * WARPS, 2, (few<8, true>))
TOGETHER(WEIGHT, n8, 8, 32 * WARPS, 2, (few<8, true>))
TOGETHER(WEIGHT, n16, 16, 32 * WARPS, 2, (few<16, false>))
GROUPED(WEIGHT, n16, 16, 32 * WARPS, 2, (few<16, false>))
TOGETHER(WEIGHT, n32, SmallTile::ROWS, SmallTile::THREADS, SmallTile::BLOCKS, tile_of<SmallTile>)
TOGETHER(WEIGHT, n64, LargeTile::ROWS, LargeTile::THREADS, LargeTile::BLOCKS, tile_of<LargeTile>)
GROUPED(WEIGHT, n64, LargeTile::ROWS, LargeTile::THREADS, 2, tile_of<LargeTile>)

#endif
