// Embed: dst[r] = row tokens[r] of a table, decoded to float32.
//
// A thread computes one element. The table has the layout of weights.cuh, so that a model with tied
// embeddings needs only one copy. A step reads few rows, so small loads do not matter. Compiled for one
// weight type.
#include "weights.cuh"

#if SCALE_BYTES > 0 && CHUNKS == 1

// Returns the 4 bits of input i of a block whose quants begin at p.
DEVICE int four_bits(const uint8_t *p, int i) { return word_at(p + i / 8 * 4) >> (i % 2 * 16 + i % 8 / 2 * 4) & 15; }

#endif

// Returns input i of a block of one output in a tile, dequantized.
DEVICE float input(const uint8_t *tile, int blocks, int output, int block, int i)
{
#if SCALE_BYTES == 0
	const int in_chunk = 16 / RAW_BYTES;
	return weight_at(tile + quants_at(blocks, output, i / in_chunk, block) + i % in_chunk * RAW_BYTES);
#else
	const uint8_t *scales = tile + scales_at(blocks, block) + output * SCALE_BYTES;
	const uint8_t *super = tile + super_at(blocks, block) + output * SUPER_BYTES;
#if CHUNKS == 2
	int q = word_at(tile + quants_at(blocks, output, i / 16, block) + i % 16 / 4 * 4) >> (i % 2 * 16 + i % 4 / 2 * 8) & 255;
#else
	int q = four_bits(tile + quants_at(blocks, output, 0, block), i);
#endif
#if HIGH_BYTES > 0
	const uint8_t *high = tile + high_at(blocks, output, block) + i / 2 / HIGH_PAIRS * 4;
	q |= (word_at(high) >> (i % 2 * 16 + high_bit(i / 2 % HIGH_PAIRS)) & HIGH_MASK) << 4;
#endif
	return dequantize(q, i / 16, scales, super);
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
	dst[(size_t)row * cols + col] = input(at, blocks_in_tile(blocks, tile), token % BAND_OUTPUTS, block % TILE_BLOCKS, col % BLOCK_INPUTS);
}
