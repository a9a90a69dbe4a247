// Products of some rows by matrix units: a thread block computes 16 rows × 32 outputs and reads the weights of whole tiles, as they lie in
// memory. Warp w takes the blocks of lanes w, w + 8, w + 16 and w + 24 of every tile, with an accumulator for each lane. In
// the end the sums are added in the tree of matmul.cu: lanes 16 and 8 apart in a warp, then 4, 2 and 1 apart.
//
// Launch with 256 threads and FEW_STAGES · FEW_STAGE bytes of shared memory.
#pragma once

#include "mma_tiles.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum {
	FEW_ROWS = 16,
	FEW_SHARED = 99 << 10, // the maximum of all GPUs but data center ones
	FEW_STAGES = 4 * FEW_STAGE <= FEW_SHARED ? 4 : FEW_SHARED / FEW_STAGE,
};

static_assert(FEW_STAGES >= 2 && FEW_STAGES * FEW_STAGE >= WARPS * FEW_OUTPUTS * FEW_ROWS * 4, "stages are too large or too small");

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

// acc[output tile][4] += the activations · a block of 8 outputs of each tile. All lanes call it.
DEVICE void multiply_few(float (&acc)[FEW_BANDS / 2][4], const RowsOfBlock &x, const uint8_t *stage, int block)
{
	const int lane = lane_id();
	uint32_t upper[4], lower[4];
	memcpy(upper, &x.upper, 16), memcpy(lower, &x.lower, 16);
	// The eight lanes with the same lane % 4 need the factors of the same eight outputs, n · 8 + lane % 4 · 2 + j: each lane computes those of one.
	const Formula own = formula_of(stage + (lane / 8 * 2 + lane % 4 / 2) * FEW_BAND, block, lane % 2 * 2 + lane / 4 % 2);
	UNROLL for (int n = 0; n < FEW_BANDS / 2; n++) {
		const uint8_t *bands = stage + n * 2 * FEW_BAND;
		uint32_t b[2];
		UNROLL for (int half = 0; half < 2; half++)
			b[half] = few_fragment(bands, lane / 4, block, half);
		UNROLL for (int half = 0; half < HALVES; half++) {
			int dot[4];
			mma(dot, upper, lower, b, half);
			UNROLL for (int j = 0; j < 2; j++) {
				const int from = (n * 2 + j) * 4;
				const float factor = shfl_among<3>(own.factor[half], from), addend = HAS_ADDEND ? shfl_among<3>(own.addend[half], from) : 0;
				UNROLL for (int i = j; i < 4; i += 2) {
					acc[n][i] = HAS_ADDEND ? fmaf(addend, x.sum[i / 2][half], acc[n][i]) : acc[n][i];
					acc[n][i] = fmaf(factor * x.scale[i / 2], float(dot[i]), acc[n][i]);
				}
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
	const auto copy = [&](int tile) {
		const Address to = address_of(shared) + tile % FEW_STAGES * FEW_STAGE + warp * FEW_BAND;
		const uint8_t *from = own + size_t(tile) * TILE_BYTES;
		const int in_tile = blocks - tile * TILE_BLOCKS;
		if (in_tile > 0)
			copy_tile(to, from, warp, in_tile, lane);
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

// Grid: (blocks of rows, blocks of outputs of all products), of _grouped (groups, blocks of outputs of an expert).
#define FEW_KERNELS(weight) FEW_KERNELS_NAMED(weight)
#define FEW_KERNELS_NAMED(weight) \
	KERNEL(matmul_##weight##_few, 32 * WARPS, 2) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		if (int(blockIdx.x) * FEW_ROWS < *rows) \
			matmul_few(Together{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, {rows}}, x, inputs, add); \
	} \
	KERNEL(matmul_##weight##_few_grouped, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		if (int(blockIdx.x) < *groups) \
			matmul_few(Grouped{dst, weights, outputs, groups, {pairs_of(groups, most)}}, x, inputs, false); \
	}

FEW_KERNELS(WEIGHT)

#endif
