// Products of one row, or of up to N = 2 or 4 rows, with F16 and BF16 weights by matrix units: the kernels norm, glu and one of matmul_row.cu, with
// its shared memory, which has activations as float32, and the sums of half.cuh.
//
// A warp computes a band of 4 outputs. Of the 16 rows of an instruction, row r has output r % 4 in part 0, 1, 2 or 3 of the inputs for r / 4 = 0, 2, 1 or 3,
// hence lane / 16 or 2 more; of its 8 columns column c has row c % 2 of activations in part c / 2. So a quarter of the sums are those of the band, a
// warp reads whole lines of its weights as they lie in memory, and waits for no other.
//
// The weights of half a tile are on their way to registers while the half before is multiplied.
//
// Grid and launch: as those of matmul_row.cu.
#include "kernel.cuh"

#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) DEVICE void name
#include "matmul_row.cu"
#pragma pop_macro("KERNEL")

#include "half.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum { PIECE_CHUNKS = 2, PIECES = CHUNKS / PIECE_CHUNKS };

// A lane's weights of half a tile: of output lane / 4 % 4 of the band, in blocks lane / 16 · 4 + lane % 4 + 8 · i.
struct Piece {
	uint4 weights[PIECE_CHUNKS][4];
};

// Loads piece of a tile of in_tile blocks.
DEVICE void load_piece(Piece &to, const uint8_t *tile, int in_tile, int piece)
{
	const int lane = lane_id(), output = lane / 4 % 4;
	UNROLL for (int chunk = 0; chunk < PIECE_CHUNKS; chunk++)
		UNROLL for (int i = 0; i < 4; i++) {
			const int block = lane / 16 * 4 + lane % 4 + 8 * i;
			to.weights[chunk][i] = make_uint4(0, 0, 0, 0);
			if (in_tile == TILE_BLOCKS || block < in_tile)
				to.weights[chunk][i] = ldg128(tile + quants_at(in_tile, output, piece * PIECE_CHUNKS + chunk, block));
		}
}

// Two rows share the columns of an instruction.
template <int N> struct Sums {
	enum { COUNT = (N + 1) / 2 };
	float of[COUNT][4];
};

// Returns where the operands of a block are among those of 32 blocks: two neighbouring rows use different banks.
DEVICE int in_operands(int row, int block) { return block ^ row % 2 * 4; }

// Makes operands of the images of N rows, in the same place: in the order of image_half.cuh, but for in_operands. All threads of the block call it.
template <int N> DEVICE void make_operands(uint4 *images, int tiles)
{
	const int lane = lane_id();
	for (int i = warp_id(); i < N * tiles; i += WARPS) {
		uint4 *const image = images + i * RowPath::UNITS;
		uint4 v[CHUNKS];
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			float4 floats[2];
			memcpy(&floats[0], &image[2 * chunk * TILE_BLOCKS + lane], sizeof floats[0]), memcpy(&floats[1], &image[(2 * chunk + 1) * TILE_BLOCKS + lane], sizeof floats[1]);
			v[chunk] = values_of(floats[0], floats[1]);
		}
		syncwarp();
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
			image[chunk * TILE_BLOCKS + in_operands(i / tiles, lane)] = v[chunk];
	}
	syncthreads();
}

// Returns the operands of a chunk and block of row, of N: image is that of the tile. Those of one row are made for each use: that is faster than a barrier.
template <int N> DEVICE uint4 operands_of(const uint4 *image, int row, int chunk, int block)
{
	if constexpr (N == 1) {
		const float4 *const x = reinterpret_cast<const float4 *>(image) + 2 * chunk * TILE_BLOCKS + block;
		return values_of(x[0], x[TILE_BLOCKS]);
	} else {
		return image[chunk * TILE_BLOCKS + in_operands(row, block)];
	}
}

// sums += a piece · the activations of N rows: image is where those of the tile and of the first row begin, each row stride units further.
template <int N> DEVICE void multiply_piece(Sums<N> &sums, const Piece &w, const uint4 *image, int stride, int piece)
{
	const int lane = lane_id(), row = N == 1 ? 0 : lane / 4 % 2, part = lane / 8; // of its column
	UNROLL for (int chunk = 0; chunk < PIECE_CHUNKS; chunk++)
		UNROLL for (int i = 0; i < 2; i++) {
			const uint4 upper = halves_of(w.weights[chunk][i]), lower = halves_of(w.weights[chunk][2 + i]);
			UNROLL for (int pair = 0; pair < Sums<N>::COUNT; pair++)
				multiply_steps(sums.of[pair], upper, lower,
					operands_of<N>(image + (pair * 2 + row) * stride, row, piece * PIECE_CHUNKS + chunk, first_block(part, i) + lane % 4));
		}
}

// Returns the product of the row and output of the lane's place.
template <int N> DEVICE float product_of(const Sums<N> &sums)
{
	const int lane = lane_id(), output = lane / 4 % 4;
	float product = 0;
	UNROLL for (int row = 0; row < N; row++) {
		const float *const d = sums.of[row / 2];
		const float own = lane % 4 < 2 ? d[row % 2] : d[2 + row % 2];
		const auto of_part = [&](int part) { return shfl(own, part + 4 * output + part % 2 * 16); };
		const float sum = ((of_part(0) + of_part(1)) + of_part(2)) + of_part(3);
		product = lane % 4 == row ? sum * RESULT_FACTOR : product;
	}
	return product;
}

template <int N> DEVICE Place half_place(void)
{
	const int lane = lane_id();
	return {lane < 4 * BAND_OUTPUTS && lane % 4 < N, lane % 4, warp_id() * BAND_OUTPUTS + lane / 4};
}

// Products of N rows.
template <int N, typename Job, typename Source> DEVICE void multiply_halves(const Job &job, const Source &a, const int *rows)
{
	typedef RowMemory<N, 1> Memory;
	SHARED(Memory, memory);
	const int blocks = blocks_of(a.inputs), tiles = tiles_of(blocks), groups = groups_of(job), stride = tiles * RowPath::UNITS;
	int group = blockIdx.x, step = 0;
	const uint8_t *tile_at = band_at<1>(job, group, 0, blocks);
	const bool early = N == 1 || Source::WEIGHTS_FIRST; // else norms take the registers
	Piece next;
	if (early)
		load_piece(next, tile_at, blocks_in_tile(blocks, 0), 0);
	const auto request_rest = [&] { request_tiles(tile_at, blocks / TILE_BLOCKS); };
	if (Source::WEIGHTS_FIRST)
		request_rest();
	stage_rows<N>(memory->image, memory->partial, a, rows, request_rest);
	if (N > 1)
		make_operands<N>(memory->image, tiles);
	if (!early)
		load_piece(next, tile_at, blocks_in_tile(blocks, 0), 0);
	if (*rows == 0)
		return; // checked this late so that no load above waits for rows
	for (;;) {
		const int next_step = (step + 1) % (2 * Job::PASSES), next_pass = next_step % Job::PASSES, next_group = next_pass == 0 ? group + gridDim.x : group;
		const uint8_t *const following_at = next_group < groups ? band_at<1>(job, next_group, next_pass, blocks) : 0;
		Sums<N> sums = {};
		for (int tile = 0; tile < tiles; tile++) {
			const int in_tile = blocks_in_tile(blocks, tile);
			UNROLL for (int piece = 0; piece < PIECES; piece++) {
				const Piece w = next;
				if (piece + 1 < PIECES) {
					load_piece(next, tile_at, in_tile, piece + 1);
				} else if (tile + 1 < tiles) {
					tile_at += tile_bytes(TILE_BLOCKS);
					load_piece(next, tile_at, blocks_in_tile(blocks, tile + 1), 0);
				} else if (following_at) {
					load_piece(next, following_at, blocks_in_tile(blocks, 0), 0);
				}
				multiply_piece<N>(sums, w, memory->image + tile * RowPath::UNITS, stride, piece);
			}
		}
		if (next_group >= groups)
			begin_next(); // not before, as in multiply_row
		finish<N>(job, memory, group, step, half_place<N>(), product_of<N>(sums), rows);
		if (next_group >= groups)
			break;
		group = next_group, step = next_step, tile_at = following_at;
	}
	if (blockIdx.x == gridDim.x - 1)
		pad<1>(job, N == 1 ? 1 : *rows);
}

#define HALF_ROW_PRODUCT(weight, n, suffix) HALF_ROW_PRODUCT_NAMED(weight, n, suffix)
#define HALF_ROW_PRODUCT_NAMED(weight, n, suffix) \
	KERNEL(matmul_##weight##_half_norm##suffix, 32 * WARPS, 2) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const float *x, const float *w, float eps, int inputs, const int *rows, int) \
	{ \
		multiply_halves<n>(Stored{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, false}, \
			Normalized{x, w, eps, inputs}, rows); \
	} \
	KERNEL(matmul_##weight##_half_glu##suffix, 32 * WARPS, 2) \
	(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind_of_gate, const float *x, const float *w, float eps, int inputs, const int *rows, int) \
	{ \
		multiply_halves<n>(Gating{image, gate, up, outputs, kind_of_gate}, Normalized{x, w, eps, inputs}, rows); \
	} \
	KERNEL(matmul_##weight##_half_one##suffix, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const uint4 *image, int inputs, int add, const int *rows, int) \
	{ \
		multiply_halves<n>(Stored{{dst, weights, outputs, 0}, {}, {}, add != 0}, Imaged{image, inputs}, rows); \
	}

HALF_ROW_PRODUCT(WEIGHT, 1, )
HALF_ROW_PRODUCT(WEIGHT, 2, _n2)
HALF_ROW_PRODUCT(WEIGHT, 4, _n4)

#endif
