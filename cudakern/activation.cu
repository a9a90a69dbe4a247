// image[row][tile] = the activations of a row in the layout that matrix products read: activation.cuh.
//
// The activations v are x, RMSNorm(x) · w or a GLU; the fused forms have the same bits as rmsnorm.cu and
// rows.cu. A thread block writes one image, a warp 4 of its blocks, a lane one input of each.
//
// Grid: (rows, tiles).
#include "image.cuh"
#include "math.cuh"
#include "norm.cuh"

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

#define IMAGE(kind, units) \
	template <typename Source> DEVICE void image_##kind(uint4 *image, const Operands &row) \
	{ \
		image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * units; \
		UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++) { \
			int block = warp_id() * BLOCKS_PER_WARP + i; \
			write_##kind(image, block, input<Source>(row, block)); \
		} \
	}

IMAGE(f32, F32_UNITS)
IMAGE(i16, I16_UNITS)

#define IMAGES(kind) \
	KERNEL(activation_##kind, 32 * WARPS, 1)(uint4 *image, const float *x, int inputs, const int *rows) \
	{ \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Plain>(image, Operands{x + size_t(blockIdx.x) * inputs, 0, 0, inputs, SILU}); \
	} \
	KERNEL(activation_##kind##_glu, 32 * WARPS, 1)(uint4 *image, const float *gate, const float *up, int kind_of_gate, int inputs, const int *rows) \
	{ \
		size_t first = size_t(blockIdx.x) * inputs; \
		if (int(blockIdx.x) < *rows) \
			image_##kind<Gated>(image, Operands{gate + first, up ? up + first : 0, 0, inputs, kind_of_gate}); \
	} \
	KERNEL(activation_##kind##_rmsnorm, 32 * WARPS, 1)(uint4 *image, const float *x, const float *w, float eps, int inputs, const int *rows) \
	{ \
		SHARED(float, partial); \
		if (int(blockIdx.x) >= *rows) \
			return; \
		x += size_t(blockIdx.x) * inputs; \
		image_##kind<Normed>(image, Operands{x, w, norm_scale(x, inputs, eps, partial), inputs, SILU}); \
	}

IMAGES(f32)
IMAGES(i16)
