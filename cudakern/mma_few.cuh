// Products of some rows by matrix units: a thread block computes 16 rows × 32 outputs and reads the weights of whole tiles, as they lie in
// memory. Warp w takes the blocks of lanes w, w + 8, w + 16 and w + 24 of every tile, with an accumulator for each lane. In
// the end the sums are added in the tree of matmul.cu: lanes 16 and 8 apart in a warp, then 4, 2 and 1 apart.
//
// Launch with 256 threads and FEW_STAGES · FEW_STAGE bytes of shared memory.
#pragma once

#include "mma.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

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

MMA_PRODUCT(WEIGHT, few, matmul_few, FEW_ROWS, 32 * WARPS, FEW_BLOCKS)

#endif
