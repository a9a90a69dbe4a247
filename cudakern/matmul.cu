// dst[row][output] = Σ over inputs of x[row][input] · w[output][input], for x as
// activation.cu prepared it and w as repack.cu laid it out.
//
// A warp computes a band of 4 outputs for N rows: lane l takes block l of every tile, adds
// its blocks up in the order of the inputs, and the 32 lanes' sums are added in one fixed
// tree. So a result has the same bits for every N, and whichever rows share the launch.
//
// Number paths of quantised weights, whose values are (q - offset) · d:
//
//	i16    x is int16 with a scale a block. The products of a block add up exactly, as
//	       whole numbers, two a word: sm_52 multiplies halves of registers at full rate.
//	magic  x is float. A byte q put into the mantissa of 128.0 makes 128 + q without a
//	       conversion, which is slow. The 128 is taken off with the offset, once a block.
//
// F32 and F16 weights have one path, float.
//
// A block of threads is 8 warps with 8 bands and the same N rows, whose x is in shared
// memory, IMAGES tiles at a time. Grid: (groups of N rows, bands / 8 of all products), so that
// groups with the same weights run side by side and find them in the cache.
//
// PRECOND: blockDim = 256, shared memory for IMAGES images.
#include "activation.cuh"
#include "format.cuh"
#include "product.cuh"

enum { IMAGES = 8 };

// ---------------------------------------------------------------------------------------
// Number paths: acc[row][output] += the lane's block times the activations of N rows.
// x is the first row's image; the others follow at stride units.

// The sum of the activations of a part of the lane's block, from the sums of an image.
template <typename T> DEVICE T half_sum(const T *sums, int half)
{
	const T all = sums[lane_id()];
	if (HALVES == 1)
		return all;
	const T low = sums[TILE_BLOCKS + lane_id()];
	return half == 0 ? low : all - low;
}

// All loads of F32 weights at once would not fit in the registers.
#if defined(WEIGHT_F32)
#define UNROLL_CHUNKS _Pragma("unroll (N < 4 ? 4 : 2)")
#else
#define UNROLL_CHUNKS UNROLL
#endif

struct F32 {
	enum { UNITS = F32_UNITS };

	template <int N> DEVICE void multiply(float (&acc)[N * BAND_OUTPUTS], const Block<BAND_OUTPUTS> &w, const uint4 *x, int stride)
	{
		const int lane = lane_id();
		UNROLL for (int half = 0; half < HALVES; half++) {
			float dot[N][BAND_OUTPUTS];
			UNROLL for (int row = 0; row < N; row++) {
				const float sum = half_sum(reinterpret_cast<const float *>(x + row * stride + F32_SUMS), half);
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++) {
					dot[row][output] = OFFSET + BIAS == 0 ? 0 : -(OFFSET + BIAS) * sum;
					acc[row * BAND_OUTPUTS + output] = less_minimum(w, output, sum, acc[row * BAND_OUTPUTS + output]);
				}
			}
			UNROLL_CHUNKS for (int j = 0; j < F32_CHUNKS / HALVES; j++) {
				const int chunk = half * F32_CHUNKS / 2 + j;
				float v[BAND_OUTPUTS][4];
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
					widen(w, output, chunk, v[output]);
				UNROLL for (int row = 0; row < N; row++) {
					const uint4 values = x[row * stride + chunk * TILE_BLOCKS + lane];
					float a[4];
					memcpy(a, &values, sizeof a);
					UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
						UNROLL for (int i = 0; i < 4; i++)
							dot[row][output] = fmaf(v[output][i], a[i], dot[row][output]);
				}
			}
			UNROLL for (int row = 0; row < N; row++)
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
					acc[row * BAND_OUTPUTS + output] = fold(w, output, half, dot[row][output], 1, acc[row * BAND_OUTPUTS + output]);
		}
	}
};

#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16)

struct I16 {
	enum { UNITS = I16_UNITS };

	template <int N> DEVICE void multiply(float (&acc)[N * BAND_OUTPUTS], const Block<BAND_OUTPUTS> &w, const uint4 *x, int stride)
	{
		// In more parts where the pairs of all 32 inputs would not fit in the registers.
		const int PARTS = N >= 4 ? 2 * HALVES : HALVES, PAIRS = 16 / PARTS;
		const int lane = lane_id();
		int dot[N][BAND_OUTPUTS];
		UNROLL for (int part = 0; part < PARTS; part++) {
			const bool first = part % (PARTS / HALVES) == 0, last = part % (PARTS / HALVES) == PARTS / HALVES - 1;
			uint32_t q[BAND_OUTPUTS][PAIRS];
			UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
				UNROLL for (int p = 0; p < PAIRS; p++)
					q[output][p] = pair(w, output, part * PAIRS + p);
			UNROLL for (int row = 0; row < N; row++) {
				const uint4 *image = x + row * stride;
				uint32_t a[PAIRS];
				UNROLL for (int chunk = 0; chunk < PAIRS / 4; chunk++) {
					const uint4 values = image[(part * PAIRS / 4 + chunk) * TILE_BLOCKS + lane];
					memcpy(&a[4 * chunk], &values, sizeof values);
				}
				const float scale = reinterpret_cast<const float *>(image + I16_SCALES)[lane];
				const int sum = half_sum(reinterpret_cast<const int *>(image + I16_SCALES) + TILE_BLOCKS, part * HALVES / PARTS);
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++) {
					// None of these can pass 2³¹: |a| < 2¹⁵, 32 · 255 · 2¹⁵ < 2²⁹.
					int even = first ? -OFFSET * sum : dot[row][output], odd = 0;
					UNROLL for (int p = 0; p < PAIRS; p++)
						add_products(p % 2 ? odd : even, q[output][p], a[p]);
					dot[row][output] = even + (odd >> ODD_SHIFT);
					if (last) {
						float &to = acc[row * BAND_OUTPUTS + output];
						to = less_minimum(w, output, scale * float(sum), to);
						to = fold(w, output, part * HALVES / PARTS, float(dot[row][output]), scale, to);
					}
				}
			}
		}
	}
};

#endif

// ---------------------------------------------------------------------------------------
// The product

// Adds COUNT values of every lane over the warp, by a tree that is the same for every
// COUNT: neighbours first, then those 2, 4, 8 and 16 lanes apart. Lane l returns the sum of
// value l % COUNT: as long as a lane has several values it gives half of them away and keeps
// the others, so that far fewer values change lanes than in COUNT separate trees.
template <int COUNT, int MASK = 1> DEVICE float warp_sums(const float (&v)[COUNT])
{
	if constexpr (COUNT == 1) {
		float sum = v[0];
		UNROLL for (int mask = MASK; mask < WARP; mask *= 2)
			sum += shfl_xor(sum, mask);
		return sum;
	} else {
		const bool odd = lane_id() & MASK;
		float half[COUNT / 2];
		UNROLL for (int i = 0; i < COUNT / 2; i++) {
			float keep = odd ? v[2 * i + 1] : v[2 * i], give = odd ? v[2 * i] : v[2 * i + 1];
			half[i] = keep + shfl_xor(give, MASK);
		}
		return warp_sums<COUNT / 2, MASK * 2>(half);
	}
}

// Copies tiles first … of the rows from row on to shared memory. All loads are on their way
// before the first is stored.
template <typename Path, int N> DEVICE void stage(uint4 *shared, const uint4 *x, int row, int last_row, int first, int tiles)
{
	const int each = IMAGES / N; // images of a row
	const int units = min(each, tiles - first) * Path::UNITS;
	const int STEPS = (each * Path::UNITS + 32 * WARPS - 1) / (32 * WARPS);
	uint4 v[N][STEPS];
	UNROLL for (int r = 0; r < N; r++) {
		// A group's rows past the last one compute with that one again, to nobody's use.
		const uint4 *from = x + (size_t(N == 1 ? row : min(row + r, last_row)) * tiles + first) * Path::UNITS;
		UNROLL for (int step = 0; step < STEPS; step++)
			v[r][step] = ldg128(from + min(int(threadIdx.x) + 32 * WARPS * step, units - 1));
	}
	UNROLL for (int r = 0; r < N; r++)
		UNROLL for (int step = 0; step < STEPS; step++) {
			const int unit = threadIdx.x + 32 * WARPS * step;
			if (unit < units)
				shared[r * each * Path::UNITS + unit] = v[r][step];
		}
}

template <typename Path, int N>
DEVICE void matmul(const Product &p, int first_output, const uint4 *x, int inputs, bool add, const int *row_count)
{
	SHARED(uint4, shared);
	const int lane = lane_id(), blocks = blocks_of(inputs), tiles = tiles_of(blocks), whole = blocks / TILE_BLOCKS;
	const int band = first_output / BAND_OUTPUTS + warp_id();
	const bool active = band * BAND_OUTPUTS < p.outputs; // or a warp that only helps to copy
	const uint8_t *tile_at = p.weights + band * band_bytes(blocks);
	const uint8_t *const rest_at = tile_at + size_t(whole) * tile_bytes(TILE_BLOCKS); // after the whole tiles

	// With one row the warp mostly waits for weights. So those of the next tile are on their
	// way while this one is multiplied, where registers suffice for both.
	const bool early = N == 1 && SCALE_BYTES > 0;
	Block<BAND_OUTPUTS> next = {};
	if (early && active && whole > 0)
		load_block(next, tile_at, TILE_BLOCKS, lane);

	const int row = blockIdx.x * N, rows = *row_count;
	if (N > 1 && row >= rows)
		return;
	const int each = IMAGES / N; // images of a row
	float acc[N * BAND_OUTPUTS] = {};
	for (int first = 0; first < tiles; first += each) {
		if (first > 0)
			syncthreads();
		stage<Path, N>(shared, x, row, rows - 1, first, tiles);
		syncthreads();
		if (N == 1 && row >= rows)
			return; // only now, so that no load above had to wait for the answer
		if (!active)
			continue;
		const uint4 *image = shared;
		for (int left = min(whole - first, each); left > 0; left--) {
			Block<BAND_OUTPUTS> w = next;
			if (!early)
				load_block(w, tile_at, TILE_BLOCKS, lane);
			tile_at += tile_bytes(TILE_BLOCKS);
			if (early && tile_at < rest_at)
				load_block(next, tile_at, TILE_BLOCKS, lane);
			Path::template multiply<N>(acc, w, image, each * Path::UNITS);
			image += Path::UNITS;
		}
		if (whole < first + each && lane < blocks % TILE_BLOCKS) {
			Block<BAND_OUTPUTS> w;
			load_block(w, tile_at, blocks % TILE_BLOCKS, lane);
			Path::template multiply<N>(acc, w, image, each * Path::UNITS);
		}
	}

	const float sum = warp_sums(acc); // of value lane % (N · BAND_OUTPUTS)
	const int output = band * BAND_OUTPUTS + lane % BAND_OUTPUTS, to = row + lane / BAND_OUTPUTS;
	if (lane < N * BAND_OUTPUTS && output < p.outputs && to < rows) {
		float *const dst = p.dst + size_t(to) * p.outputs + output;
		*dst = add ? *dst + sum : sum;
	}
}

#define PRODUCT(weight, name, path, n, blocks) PRODUCT_NAMED(weight, name, path, n, blocks)
#define PRODUCT_NAMED(weight, name, path, n, blocks) PRODUCT_KERNEL(matmul_##weight##_##name##_n##n, blocks, WARPS * BAND_OUTPUTS, (matmul<path, n>))
#define PRODUCTS(name, path) \
	PRODUCT(WEIGHT, name, path, 1, 2) \
	PRODUCT(WEIGHT, name, path, 2, 2) \
	PRODUCT(WEIGHT, name, path, 4, 2)

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)
PRODUCTS(float, F32)
#else
PRODUCTS(i16, I16)
PRODUCTS(magic, F32)
#endif
