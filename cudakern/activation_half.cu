// The image half (image_half.cuh), written as activation.cu writes the others.
#include "kernel.cuh"

#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name, threads, blocks) template <int> DEVICE void name // never compiled
#include "activation.cu"
#pragma pop_macro("KERNEL")

#include "image_half.cuh"

template <typename Source> DEVICE void image_half(uint4 *image, const Operands &row)
{
	image += (size_t(blockIdx.x) * gridDim.y + blockIdx.y) * HALF_UNITS;
	UNROLL for (int i = 0; i < BLOCKS_PER_WARP; i++)
		write_half(image, warp_id() * BLOCKS_PER_WARP + i, input<Source>(row, warp_id() * BLOCKS_PER_WARP + i));
}

IMAGES(half)
