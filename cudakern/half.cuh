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
// With F16 weights an activation is rounded to a half, of a sixteenth, so that it is below 2²⁰ rather than 2¹⁶; products are multiplied
// by 16. With BF16 weights it is rounded to a bfloat16 and its rest to another: two instructions in turn.
#pragma once

#include "address.cuh"
#include "image_half.cuh"

#if CHUNKS != 4 || SCALE_BYTES != 0
#error "half.cuh is for F16 and BF16 weights"
#endif

#if defined(EMU) || __CUDA_ARCH__ >= 800

#define IS_BF16(weight) IS_BF16_NAMED(weight)
#define IS_BF16_NAMED(weight) IS_BF16_##weight
#define IS_BF16_f16 0
#define IS_BF16_bf16 1

static_assert(int(HALF_CHUNKS) == CHUNKS, "images have the chunks of weights");

enum { PARTS = 4, BFLOATS = IS_BF16(WEIGHT), VALUES = 1 + BFLOATS }; // VALUES: of an activation

// What a product is multiplied by.
constexpr float RESULT_FACTOR = BFLOATS ? 1 : 16;

// Returns the first of the four blocks of a tile that half, 0 or 1, of the steps of a chunk has in a part.
DEVICE int first_block(int part, int half) { return part / 2 * 16 + part % 2 * 4 + half * 8; }

// Eight activations of a row as the operands of two steps: word 2 · s and the next are of step s.
struct Values {
	uint32_t word[VALUES][4];
};

#ifdef EMU

DEVICE float weight_of(uint32_t half) { return BFLOATS ? __uint_as_float(half << 16) : half_to_float(uint16_t(half)); }

// Returns two floats, the first one in the lower half, as the types of weights.
DEVICE uint32_t pair_of(float first, float second)
{
	return BFLOATS ? uint32_t(bfloat_of(first)) | uint32_t(bfloat_of(second)) << 16 : uint32_t(float_to_half(first)) | uint32_t(float_to_half(second)) << 16;
}

// d += the product of 16 outputs and 16 inputs with as many of 8 columns: mma.m16n8k16.
DEVICE void mma_half(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	const int group = lane_id() / 4, at = lane_id() % 4;
	uint32_t rows[2][8], columns[2][8]; // of a pair of inputs
	const auto collect = [&](uint32_t (&to)[8], int first, uint32_t lower, uint32_t upper) {
		memcpy(to, &emu::exchange(lower, __FILE__, __LINE__)[first], 16);
		memcpy(to + 4, &emu::exchange(upper, __FILE__, __LINE__)[first], 16);
	};
	collect(rows[0], group * 4, a0, a2), collect(rows[1], group * 4, a1, a3);
	const uint32_t *const all_lower = emu::exchange(b0, __FILE__, __LINE__);
	memcpy(columns[0], all_lower + 8 * at, 16), memcpy(columns[1], all_lower + 8 * at + 4, 16);
	const uint32_t *const all_upper = emu::exchange(b1, __FILE__, __LINE__);
	memcpy(columns[0] + 4, all_upper + 8 * at, 16), memcpy(columns[1] + 4, all_upper + 8 * at + 4, 16);
	for (int i = 0; i < 4; i++) {
		double sum = d[i];
		for (int k = 0; k < 8; k++) {
			const uint32_t x = rows[i / 2][k], y = columns[i % 2][k];
			sum += double(weight_of(x & 0xffff)) * weight_of(y & 0xffff) + double(weight_of(x >> 16)) * weight_of(y >> 16);
		}
		d[i] = float(sum);
	}
}

#else

DEVICE uint32_t pair_of(float first, float second)
{
	uint32_t pair;
#if IS_BF16(WEIGHT)
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
	return pair;
}

#if IS_BF16(WEIGHT)
#define MMA_TYPES "bf16.bf16"
#else
#define MMA_TYPES "f16.f16"
#endif

DEVICE void mma_half(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPES ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

// Returns two neighbouring activations as an operand, of the upper or the lower value: what the upper one lacks.
template <int VALUE> DEVICE uint32_t operand_of(float first, float second)
{
	if (!BFLOATS)
		return pair_of(first / 16, second / 16);
	const uint32_t upper = pair_of(first, second);
	if (VALUE == 0)
		return upper;
	return pair_of(rest_of(first, uint16_t(upper)), rest_of(second, uint16_t(upper >> 16)));
}

// Returns eight activations as operands.
DEVICE Values values_of(const float4 &first, const float4 &second)
{
	Values v;
	v.word[0][0] = operand_of<0>(first.x, first.y), v.word[0][1] = operand_of<0>(first.z, first.w);
	v.word[0][2] = operand_of<0>(second.x, second.y), v.word[0][3] = operand_of<0>(second.z, second.w);
	if (BFLOATS) {
		v.word[VALUES - 1][0] = operand_of<1>(first.x, first.y), v.word[VALUES - 1][1] = operand_of<1>(first.z, first.w);
		v.word[VALUES - 1][2] = operand_of<1>(second.x, second.y), v.word[VALUES - 1][3] = operand_of<1>(second.z, second.w);
	}
	return v;
}

// d += two steps: upper and lower are eight weights of the lane's output in the first and in the last eight of 16.
DEVICE void multiply_steps(float (&d)[4], const uint4 &upper, const uint4 &lower, const Values &x)
{
	UNROLL for (int value = 0; value < VALUES; value++)
		mma_half(d, upper.x, lower.x, upper.y, lower.y, x.word[value][0], x.word[value][1]);
	UNROLL for (int value = 0; value < VALUES; value++)
		mma_half(d, upper.z, lower.z, upper.w, lower.w, x.word[value][2], x.word[value][3]);
}

#endif
