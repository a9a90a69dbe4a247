// Products of 8 or 16 rows by matrix units: a thread block computes them for 32 outputs and reads the weights of whole tiles, as they lie in
// memory. The weights of 16 outputs are the rows of a matrix product, and 8 rows of activations its columns. Warp w takes the blocks of
// lanes w, w + 8, w + 16 and w + 24 of every tile, with an accumulator for each lane. In the end the sums are added in the tree of
// matmul.cu: lanes 16 and 8 apart in a warp, then 4, 2 and 1 apart.
//
// Launch with 256 threads and FEW_STAGES · FEW_STAGE bytes of shared memory.
#define EXACT
#include "kernel.cuh"
#include "products.cuh"

#include "mma_tiles.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum {
	FEW_SHARED = 99 << 10, // the maximum of all GPUs but data center ones
	FEW_STAGES = 4 * FEW_STAGE <= FEW_SHARED ? 4 : FEW_SHARED / FEW_STAGE,
};

// The activations of a block, as a lane loads them: the values of row lane / 4 of each eight, and the scales, and sums for an addend, of rows
// lane % 4 · 2 and the next. Those of 16 rows would take too many registers: then a lane loads one of each, and passes it on.
template <int ROWS> struct RowsOfBlock {
	enum { EIGHTS = ROWS / 8, SPREAD = ROWS == 16 };
	uint4 values[EIGHTS];
	float4 scales[SPREAD ? 1 : EIGHTS], halves[SPREAD ? 1 : EIGHTS]; // as in the unit
	float own[2];                                                    // with SPREAD, of these
};

// Where a lane's scales are behind the first one of a unit: with SPREAD those of lanes 16 and more are scales, or of the second half.
template <int ROWS> DEVICE int scales_of_lane()
{
	const int lane = lane_id();
	return lane % 4 * 16 + (RowsOfBlock<ROWS>::SPREAD ? lane / 8 % 2 * S8_EIGHT + lane / 16 * 8 + lane / 4 % 2 * 4 : 0);
}

// values and scales: where the lane's are in a unit.
template <int ROWS> DEVICE void load_rows(RowsOfBlock<ROWS> &x, const uint8_t *values, const uint8_t *scales)
{
	enum { EIGHTS = RowsOfBlock<ROWS>::EIGHTS, HALVES_AT = 64 };
	UNROLL for (int r = 0; r < EIGHTS; r++)
		x.values[r] = ldg128(values + r * S8_EIGHT);
	const auto at = [&](int offset) { return reinterpret_cast<const float *>(scales + offset); };
	if constexpr (RowsOfBlock<ROWS>::SPREAD) {
		x.own[0] = ldg_float(at(0));
		if (HALVES == 2)
			x.own[1] = ldg_float(at(HALVES_AT));
	} else {
		UNROLL for (int r = 0; r < EIGHTS; r++) {
			if (HAS_ADDEND && HALVES == 1) {
				x.scales[r] = ldg_float4(at(r * S8_EIGHT));
			} else {
				const float2 scales = ldg_float2(at(r * S8_EIGHT + 8));
				x.scales[r].z = scales.x, x.scales[r].w = scales.y;
			}
			if (HAS_ADDEND && HALVES == 2)
				x.halves[r] = ldg_float4(at(r * S8_EIGHT + HALVES_AT));
		}
	}
}

// Returns the scale of row row of the lane's two of an eight.
template <int ROWS> DEVICE float scale_of(const RowsOfBlock<ROWS> &x, int eight, int row)
{
	if (RowsOfBlock<ROWS>::SPREAD)
		return shfl_among<3>(x.own[0], 16 + eight * 8 + row * 4);
	return row ? x.scales[eight].w : x.scales[eight].z;
}

// Returns its sum.
template <int ROWS> DEVICE float sum_of(const RowsOfBlock<ROWS> &x, int eight, int row, int half)
{
	if (RowsOfBlock<ROWS>::SPREAD)
		return shfl_among<3>(x.own[HALVES - 1], half * 16 + eight * 8 + row * 4);
	const float4 of_both = HALVES == 1 ? x.scales[eight] : x.halves[eight];
	return half == 0 ? row ? of_both.y : of_both.x : row ? of_both.w : of_both.z;
}

// Returns the fragment of output lane / 4 of the eight of a pair of bands, in block i of the warp.
DEVICE uint32_t few_fragment(Address tile, const InTile &at, int pair, int half, int i)
{
	return fragment_of(quants_of(tile, at, pair, CHUNKS == 2 ? half : 0, i) + in_quants(), high_of(tile, at, pair, i), half, at.offset);
}

// acc[output tile of 16][rows of 8][4] += the weights of block i of the warp · the activations: a lane has output lane / 4 of its rows, then
// output lane / 4 + 8. All lanes call it.
template <int ROWS> DEVICE void multiply_few(float (&acc)[FEW_OUTPUTS / 16][ROWS / 8][4], const RowsOfBlock<ROWS> &x, Address tile, const InTile &at, int i)
{
	enum { EIGHTS = ROWS / 8 };
	float scale[EIGHTS][2], sum[EIGHTS][2][HALVES];
	UNROLL for (int r = 0; r < EIGHTS; r++)
		UNROLL for (int row = 0; row < 2; row++) {
			scale[r][row] = scale_of(x, r, row);
			UNROLL for (int half = 0; half < HALVES; half++)
				sum[r][row][half] = HAS_ADDEND ? sum_of(x, r, row, half) : 0;
		}
	const Formula own = formula_of_lane(tile, at, i);
	UNROLL for (int n = 0; n < FEW_OUTPUTS / 16; n++) {
		uint32_t a[4];
		UNROLL for (int half = 0; half < 2; half++)
			UNROLL for (int eight = 0; eight < 2; eight++)
				a[2 * half + eight] = few_fragment(tile, at, n * 2 + eight, half, i);
		UNROLL for (int half = 0; half < HALVES; half++) {
			float factor[2], addend[2];
			UNROLL for (int eight = 0; eight < 2; eight++) {
				factor[eight] = of_output(own.factor[half], n * 2 + eight);
				addend[eight] = HAS_ADDEND ? of_output(own.addend[half], n * 2 + eight) : 0;
			}
			UNROLL for (int r = 0; r < EIGHTS; r++) {
				int dot[4], low[4];
				mma_signed(dot, a, {x.values[r].x, x.values[r].y}, half);
				mma_unsigned_columns(low, a, {x.values[r].z, x.values[r].w}, half);
				add_lower(dot, low);
				UNROLL for (int j = 0; j < 4; j++) {
					float &to = acc[n][r][j];
					if (HAS_ADDEND)
						to = fmaf(addend[j / 2], sum[r][j % 2][half], to);
					to = fmaf(factor[j / 2] * scale[r][j % 2], float(dot[j]), to);
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

// Computes ROWS rows of 32 outputs. x has the image s8_columns.
template <int ROWS, typename Work> DEVICE void matmul_few(const Work &work, const uint4 *x, int inputs, bool add)
{
	enum { RESULTS = ROWS * FEW_OUTPUTS };
	static_assert(FEW_STAGES >= 2 && FEW_STAGES * FEW_STAGE >= WARPS * RESULTS * 4, "stages are too large or too small");
	SHARED(uint8_t, shared);
	const int row = blockIdx.x * ROWS;
	int band;
	const Product p = product_of(work, &band, FEW_OUTPUTS, blockIdx.y);
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks), warp = warp_id(), lane = lane_id();
	const uint8_t *values = reinterpret_cast<const uint8_t *>(x) + (size_t(row / 16) * tiles * TILE_BLOCKS + warp) * S8_UNIT; // of the warp's next block
	const uint8_t *scales = values + S8_EIGHT_FRAGMENTS + scales_of_lane<ROWS>();
	values += lane * 16;
	const Address stages = again(address_of(shared));
	const InTile at = in_tile(inputs);
	// A warp copies the band of its number; bands past the last one repeat it.
	const uint8_t *own = p.weights + min(band + warp, last_band_of(p)) * band_bytes(blocks);
	const auto copy = [&](int tile) {
		const Address to = stages + tile % FEW_STAGES * FEW_STAGE + warp * FEW_BAND;
		const uint8_t *from = own + size_t(tile) * TILE_BYTES;
		const int in_tile = blocks - tile * TILE_BLOCKS;
		if (in_tile > 0)
			copy_tile(to, from, warp, in_tile, lane);
		copies_commit();
	};
	for (int i = 0; i < FEW_STAGES - 1; i++)
		copy(i);

	float acc[FEW_LANES][FEW_OUTPUTS / 16][ROWS / 8][4] = {};
	for (int tile = 0; tile < tiles; tile++) {
		const int in_tile = blocks_in_tile(blocks, tile);
		RowsOfBlock<ROWS> ahead[2];
		const auto load = [&](int i) { load_rows(ahead[i % 2], values + i * WARPS * S8_UNIT, scales + i * WARPS * S8_UNIT); };
		load(0), load(1);
		copies_wait<FEW_STAGES - 2>();
		syncthreads();
		copy(tile + FEW_STAGES - 1);
		const Address weights = again(stages + tile % FEW_STAGES * FEW_STAGE);
		UNROLL for (int i = 0; i < FEW_LANES; i++) {
			if (i * WARPS + warp < in_tile)
				multiply_few(acc[i], ahead[i % 2], weights, at, i);
			if (i + 2 < FEW_LANES)
				load(i + 2);
		}
		values += TILE_BLOCKS * S8_UNIT, scales += TILE_BLOCKS * S8_UNIT;
	}

	syncthreads();
	float *sums = reinterpret_cast<float *>(shared); // [warp][output tile][rows of 8][4][lane]
	UNROLL for (int n = 0; n < FEW_OUTPUTS / 16; n++)
		UNROLL for (int r = 0; r < ROWS / 8; r++)
			UNROLL for (int i = 0; i < 4; i++)
				sums[warp * RESULTS + ((n * (ROWS / 8) + r) * 4 + i) * WARP + lane] = (acc[0][n][r][i] + acc[2][n][r][i]) + (acc[1][n][r][i] + acc[3][n][r][i]);
	syncthreads();
	for (int at = threadIdx.x; at < RESULTS; at += 32 * WARPS) {
		const auto of = [&](int warp) { return sums[warp * RESULTS + at]; };
		const float sum = ((of(0) + of(4)) + (of(2) + of(6))) + ((of(1) + of(5)) + (of(3) + of(7)));
		const int l = at % WARP, i = at / WARP % 4, r = at / WARP / 4 % (ROWS / 8), n = at / (RESULTS / (FEW_OUTPUTS / 16));
		const int to = destination_of(work.rows, row + r * 8 + l % 4 * 2 + i % 2), output = first_output(work, p, band) + n * 16 + i / 2 * 8 + l / 4;
		if (to >= 0 && output >= 0 && output < p.outputs) {
			float *dst = p.dst + size_t(to) * p.outputs + output;
			*dst = add ? *dst + sum : sum;
		}
	}
}

// Grid: (blocks of rows, blocks of outputs of all products), of _grouped (groups, blocks of outputs of an expert).
#define FEW_KERNEL(weight, name, rows_) \
	KERNEL(matmul_##weight##_##name, 32 * WARPS, 2) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		if (int(blockIdx.x) * rows_ < *rows) \
			matmul_few<rows_>(Together{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, {rows}}, x, inputs, add); \
	}

#define FEW_KERNELS(weight) FEW_KERNELS_NAMED(weight)
#define FEW_KERNELS_NAMED(weight) \
	FEW_KERNEL(weight, few_n8, 8) \
	FEW_KERNEL(weight, few_n16, 16) \
	KERNEL(matmul_##weight##_few_grouped, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		if (int(blockIdx.x) < *groups) \
			matmul_few<16>(Grouped{dst, weights, outputs, groups, {pairs_of(groups, most)}}, x, inputs, false); \
	}

FEW_KERNELS(WEIGHT)

#endif
