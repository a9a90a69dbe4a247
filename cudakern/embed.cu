// Embed: dst[r] = row tokens[r] of a table, decoded to float32.
//
// A thread per element. The table lies as weights.cuh has it, so that one copy of it
// serves a model that computes its logits with the same table too. A row or a few are read
// per step, so small loads do not matter. Compiled for one type of weight.
#include "weights.cuh"

DEVICE uint32_t word_at(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

DEVICE uint16_t half_bits_at(const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

DEVICE float half_at(const uint8_t *p) { return half_to_float(half_bits_at(p)); }

// The 4 bits of input i of a block whose quants begin at p.
DEVICE int four_bits(const uint8_t *p, int i) { return word_at(p + i / 8 * 4) >> (i % 2 * 16 + i % 8 / 2 * 4) & 15; }

// Input i of block block of an output of a tile.
DEVICE float value(const uint8_t *tile, int blocks, int output, int block, int i)
{
	const uint8_t *scales = tile + scales_at(blocks, block) + output * SCALE_BYTES;
	const uint8_t *super = tile + super_at(blocks, block) + output * SUPER_BYTES;
#if defined(WEIGHT_F32)
	uint32_t bits = word_at(tile + quants_at(blocks, output, i / 4, block) + i % 4 * 4);
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
#elif defined(WEIGHT_F16)
	return half_at(tile + quants_at(blocks, output, i / 8, block) + i % 8 * 2);
#elif defined(WEIGHT_Q8_0)
	uint32_t word = word_at(tile + quants_at(blocks, output, i / 16, block) + i % 16 / 4 * 4);
	return (float)((int)(word >> (i % 2 * 16 + i % 4 / 2 * 8) & 255) - 128) * half_at(scales);
#elif defined(WEIGHT_Q4_0)
	return (float)(four_bits(tile + quants_at(blocks, output, 0, block), i) - 8) * half_at(scales);
#elif defined(WEIGHT_Q4_K)
	float q = (float)four_bits(tile + quants_at(blocks, output, 0, block), i);
	return q * (half_at(super) * (float)scales[0]) - half_at(super + 2) * (float)scales[1];
#elif defined(WEIGHT_Q6_K)
	int low = four_bits(tile + quants_at(blocks, output, 0, block), i);
	int high = word_at(tile + high_at(blocks, output, block) + i / 16 * 4) >> (i % 2 * 16 + high_bit(i % 16 / 2)) & 3;
	return half_at(super) * (float)(int8_t)scales[i / 16] * (float)((low | high << 4) - 32);
#endif
}

#define EMBED(weight) EMBED_NAMED(weight)
#define EMBED_NAMED(weight) KERNEL(embed_##weight, 256, 8)

EMBED(WEIGHT)(float *dst, const uint8_t *table, int cols, const int *tokens, const int *rows)
{
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= *rows || col >= cols)
		return;
	int token = tokens[row], blocks = blocks_of(cols), block = col / BLOCK_INPUTS, tile = block / TILE_BLOCKS;
	const uint8_t *at = table + token / BAND_OUTPUTS * band_bytes(blocks) + size_t(tile) * tile_bytes(TILE_BLOCKS);
	dst[(size_t)row * cols + col] = value(at, blocks_in_tile(blocks, tile), token % BAND_OUTPUTS, block % TILE_BLOCKS, col % BLOCK_INPUTS);
}
