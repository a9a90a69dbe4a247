// image[row][tile] = the activations of a row in the layout that matrix products read: activation.cuh.
//
//	i16   q = round(v / scale), scale = max |v| of the block / 32512
//	f32   v itself
//	s8    as i16, arranged for matrix units; s8_columns as well
//
// The activations v are x, RMSNorm(x) · w or a GLU; the fused forms have the same bits as rmsnorm.cu and
// rows.cu. A thread block writes one image, a warp 4 of its blocks, a lane one input of each. The
// largest q is 32512 = 127 · 256, not 32767, so that a block of integers up to 127 has the scale
// 1/256 and no error. A NaN or an infinity makes the scale of its block NaN, so that every result
// that depends on it is NaN.
//
// The rows of grouped images are the slots of groups of pairs (experts.cuh), each with the activations of its pair;
// those of empty slots are zero.
//
// Grid: (rows, tiles). Launches may overlap (overlap.cuh), but not those of grouped images.
#include "experts.cuh"
#include "image.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "overlap.cuh"

enum { WARPS = 8, BLOCKS_PER_WARP = TILE_BLOCKS / WARPS };

// The operands of one row's activations.
struct Operands {
	const float *x, *w;
	float scale;
	int inputs;
	int gate;
};

struct Plain {
	DEVICE float value(const Operands &row, int i) { return row.x[i]; }
};

struct Normed {
	DEVICE float value(const Operands &row, int i) { return row.x[i] * row.scale * row.w[i]; }
};

struct Gated {
	DEVICE float value(const Operands &row, int i) { return glu_of(row.gate, row.x[i], row.w ? row.w[i] : 1.0f); }
};

// Returns the lane's activation in a block of the tile; Source computes it.
template <typename Source> DEVICE float input(const Operands &row, int block)
{
	int i = (blockIdx.y * TILE_BLOCKS + block) * BLOCK_INPUTS + lane_id();
	return i < row.inputs ? Source::value(row, i) : 0;
}

template <typename Source> DEVICE void image_f32(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * F32_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++)
		write_f32(image, warp_id() * BLOCKS_PER_WARP + i, input<Source>(row, warp_id() * BLOCKS_PER_WARP + i));
}

template <typename Source> DEVICE void image_i16(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * I16_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++)
		write_i16(image, warp_id() * BLOCKS_PER_WARP + i, input<Source>(row, warp_id() * BLOCKS_PER_WARP + i));
}

template <typename Source> DEVICE void image_of_units(uint4 *image, const Operands &row, const InS8 &at)
{
	uint8_t *units = reinterpret_cast<uint8_t *>(image) + (size_t(blockIdx.x / 16) * gridDim.y + blockIdx.y) * TILE_BLOCKS * S8_UNIT;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++)
		write_s8(units, at, warp_id() * BLOCKS_PER_WARP + i, input<Source>(row, warp_id() * BLOCKS_PER_WARP + i));
}

template <typename Source> DEVICE void image_s8(uint4 *image, const Operands &row) { image_of_units<Source>(image, row, in_s8(blockIdx.x % 16)); }

template <typename Source> DEVICE void image_s8_columns(uint4 *image, const Operands &row) { image_of_units<Source>(image, row, in_s8_columns(blockIdx.x % 16)); }

#define IMAGES(kind) \
	KERNEL(activation_##kind, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, const int *rows) \
	{ \
		begin_next(); \
		wait_for_previous(); \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Plain>(image, Operands{x + size_t(blockIdx.x) * inputs, 0, 0, inputs, SILU}); \
	} \
	KERNEL(activation_##kind##_glu, 32 * WARPS, 1)(uint4 *image, const float *gate, const float *up, int kind_of_gate, int inputs, const int *rows) \
	{ \
		begin_next(); \
		wait_for_previous(); \
		size_t first = size_t(blockIdx.x) * inputs; \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Gated>(image, Operands{gate + first, up ? up + first : 0, 0, inputs, kind_of_gate}); \
	} \
	KERNEL(activation_##kind##_rmsnorm, 32 * WARPS, 1)(uint4 *image, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		SHARED(float, partial); \
		begin_next(); \
		wait_for_previous(); \
		if (int(blockIdx.x) >= *rows) \
			return; \
		x += size_t(blockIdx.x) * inputs; \
		image_##kind<Normed>(image, Operands{x, w, norm_scale(x, inputs, eps, partial), inputs, SILU}); \
	} \
	KERNEL(activation_##kind##_grouped, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, int pairs_of_x, const int *groups, int most, int each) \
	{ \
		if (int(blockIdx.x) >= *groups * each) \
			return; \
		const int pair = pairs_of(groups, most)[blockIdx.x]; /* pairs_of_x: how many pairs have the same row of x */ \
		/* an empty slot has no inputs, and so zeros */ \
		image_##kind<Plain>(image, Operands{x + size_t(max(pair, 0) / pairs_of_x) * inputs, 0, 0, pair < 0 ? 0 : inputs, SILU}); \
	}

IMAGES(f32)
IMAGES(i16)
IMAGES(s8)
IMAGES(s8_columns)
