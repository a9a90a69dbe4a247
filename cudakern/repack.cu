// Converts weights from rows of a model file to the layout of weights.cuh, without loss.
//
// A thread converts one block: 32 inputs of one output. Consecutive threads have consecutive blocks, so
// that their stores are coalesced. This runs once, when a model is loaded.
#include "weights.cuh"

// Stores 16 bytes at once; memcpy through a uint8_t pointer would store single bytes.
DEVICE void store128(uint8_t *to, const uint32_t words[4])
{
	*reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

#if SCALE_BYTES == 0

// Converts block block of a row. The last block may have fewer than 32 inputs.
DEVICE void repack(uint8_t *tile, int blocks, int output, int slot, const uint8_t *row, int block, int inputs)
{
	const int first = block * BLOCK_INPUTS, in_chunk = 16 / RAW_BYTES;
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		uint32_t words[4] = {};
		UNROLL for (int i = 0; i < in_chunk; i++) {
			const int input = first + chunk * in_chunk + i;
			if (input >= inputs)
				continue;
#if RAW_BYTES == 4
			words[i] = ldg32(row + size_t(input) * RAW_BYTES);
#else
			words[i / 2] |= uint32_t(ldg16(row + size_t(input) * RAW_BYTES)) << 16 * (i % 2);
#endif
		}
		store128(tile + quants_at(blocks, output, chunk, slot), words);
	}
}

#else

DEVICE Raw raw_block(const uint8_t *row, int block)
{
	const int parts = RAW_INPUTS / BLOCK_INPUTS;
	return {row + size_t(block / parts) * RAW_BYTES, block % parts};
}

DEVICE void repack(uint8_t *tile, int blocks, int output, int slot, const uint8_t *row, int block, int)
{
	const Raw raw = raw_block(row, block);
	uint32_t words[4 * CHUNKS] = {};
#if CHUNKS == 2
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		words[i / 4] |= raw_quant(raw, i) << (i % 2 * 16 + i % 4 / 2 * 8);
#else
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		words[i / 8] |= (raw_quant(raw, i) & 15) << (i % 2 * 16 + i % 8 / 2 * 4);
#endif
	UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
		store128(tile + quants_at(blocks, output, chunk, slot), &words[4 * chunk]);
#if HIGH_BYTES > 0
	uint32_t high[HIGH_BYTES / 4] = {};
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		high[i / 2 / HIGH_PAIRS] |= (raw_quant(raw, i) >> 4) << (i % 2 * 16 + high_bit(i / 2 % HIGH_PAIRS));
	UNROLL for (int i = 0; i < HIGH_BYTES / 4; i++)
		reinterpret_cast<uint32_t *>(tile + high_at(blocks, output, slot))[i] = high[i];
#endif
	*reinterpret_cast<Scale *>(tile + scales_at(blocks, slot) + output * SCALE_BYTES) = raw_scales(raw);
#if SUPER_BYTES > 0
	if (raw.part == 0)
		repack_super(tile + super_at(blocks, slot) + output * SUPER_BYTES, raw);
#endif
}

#endif

// dst: bands of weights, zeroed by the caller. src: (outputs, inputs) as in the file.
// Grid: a thread for each block of each output.
#define REPACK(weight) REPACK_NAMED(weight)
#define REPACK_NAMED(weight) KERNEL(repack_##weight, 256, 1)
REPACK(WEIGHT)(uint8_t *dst, const uint8_t *src, int outputs, int inputs)
{
	const int blocks = blocks_of(inputs), i = blockIdx.x * blockDim.x + threadIdx.x;
	const int block = i % blocks, tile = block / TILE_BLOCKS, output = i / blocks;
	if (output >= outputs)
		return;
	uint8_t *at = dst + output / BAND_OUTPUTS * band_bytes(blocks) + size_t(tile) * tile_bytes(TILE_BLOCKS);
	const uint8_t *row = src + output * (size_t(inputs / RAW_INPUTS) * RAW_BYTES);
	repack(at, blocks_in_tile(blocks, tile), output % BAND_OUTPUTS, block % TILE_BLOCKS, row, block, inputs);
}
