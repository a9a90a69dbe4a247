// Matrix units for F16 and BF16 weights (compute capability 8.0), with sums in float32: what products of one row (half_row.cu) and of
// more (half.cu) have in common. The weights of 16 outputs are the rows of a matrix product, and activations its 8 columns.
//
// The order of sums: part p of four has, of every tile, the four blocks from 16 · (p / 2) + 4 · (p % 2) on, and those 8 further. Its sum, from 0,
// becomes that of an instruction with 16 more inputs, tile after tile, in a tile by chunk, in a chunk by step. A chunk is eight inputs of each
// block; step s of its four has inputs 4 · (s % 2) … 4 · (s % 2) + 3 of it in the first four blocks, or from step 2 on in the others. Those of blocks
// past the end are 0. The product is ((part 0 + part 1) + part 2) + part 3. So two parts have whole lines of 128 bytes of a chunk.
//
// An instruction rounds as the GPU does, always in the same way, in whichever row, column or launch. So a row has the same bits in any company on
// GPUs of one generation, and other bits on others and in the emulation, which adds exactly and rounds once.
//
// BF16 weights become halves on their way to the unit. That changes no weight of 2⁻¹⁴ to 65504; smaller ones keep an error of at most 2⁻²⁵, larger
// ones are infinite. An activation is rounded to a half, of a sixteenth, so that it is below 2²⁰ rather than 2¹⁶; products are multiplied by 16.
#pragma once

#include "image_half.cuh"
#include "mma_half.cuh"

#if CHUNKS != 4 || SCALE_BYTES != 0
#error "half.cuh is for F16 and BF16 weights"
#endif

#if defined(EMU) || __CUDA_ARCH__ >= 800

#define IS_BF16(weight) IS_BF16_NAMED(weight)
#define IS_BF16_NAMED(weight) IS_BF16_##weight
#define IS_BF16_f16 0
#define IS_BF16_bf16 1

static_assert(int(HALF_CHUNKS) == CHUNKS, "images have the chunks of weights");

enum { PARTS = 4 };

// What a product is multiplied by.
constexpr float RESULT_FACTOR = 16;

// Returns the first of the four blocks of a tile that half, 0 or 1, of the steps of a chunk has in a part.
DEVICE int first_block(int part, int half) { return part / 2 * 16 + part % 2 * 4 + half * 8; }

// Returns eight weights, as they lie in memory, as halves.
DEVICE uint4 halves_of(const uint4 &weights)
{
#if IS_BF16(WEIGHT)
	const auto pair = [](uint32_t two) { return pair_of_halves(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000)); };
	return make_uint4(pair(weights.x), pair(weights.y), pair(weights.z), pair(weights.w));
#else
	return weights;
#endif
}

// Returns eight activations of a row as the operands of two steps: x and y are of the first one.
DEVICE uint4 values_of(const float4 &first, const float4 &second)
{
	const auto pair = [](float x, float y) { return pair_of_halves(x / 16, y / 16); };
	return make_uint4(pair(first.x, first.y), pair(first.z, first.w), pair(second.x, second.y), pair(second.z, second.w));
}

// d += two steps: upper and lower are eight weights, as halves, of the lane's output in the first and in the last eight of 16; x has as many activations.
DEVICE void multiply_steps(float (&d)[4], const uint4 &upper, const uint4 &lower, const uint4 &x)
{
	mma_halves(d, upper.x, lower.x, upper.y, lower.y, x.x, x.y);
	mma_halves(d, upper.z, lower.z, upper.w, lower.w, x.z, x.w);
}

#endif
