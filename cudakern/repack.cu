// Lays weights out for the products (weights.cuh), bit for bit, from rows of a model file.
//
// One thread moves one block: 32 inputs of one output. Neighbouring threads have
// neighbouring blocks, so that what they write lies together. This runs once a load.
#include "weights.cuh"

// Stores of whole words; a memcpy through a pointer to bytes would store them one by one.
DEVICE void store128(uint8_t *to, const uint32_t words[4])
{
	*reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)

// Block block of the row, of which the last one may have fewer than 32 inputs.
DEVICE void repack(uint8_t *tile, int blocks, int output, int slot, const uint8_t *row, int block, int inputs)
{
	const int first = block * BLOCK_INPUTS, in_chunk = 16 / RAW_BYTES;
	for (int chunk = 0; chunk < CHUNKS; chunk++) {
		uint32_t words[4] = {};
		UNROLL for (int i = 0; i < in_chunk; i++) {
			const int input = first + chunk * in_chunk + i;
			if (input >= inputs)
				continue;
#if defined(WEIGHT_F32)
			words[i] = ldg32(row + size_t(input) * RAW_BYTES);
#else
			words[i / 2] |= uint32_t(ldg16(row + size_t(input) * RAW_BYTES)) << 16 * (i % 2);
#endif
		}
		store128(tile + quants_at(blocks, output, chunk, slot), words);
	}
}

#else

// The number of input i of a block, without its offset, and the block's scales.
struct Raw {
	const uint8_t *p; // what of the row holds the block
	int part;         // the block's place in it
};

DEVICE Raw raw_block(const uint8_t *row, int block)
{
	const int parts = RAW_INPUTS / BLOCK_INPUTS;
	return {row + size_t(block / parts) * RAW_BYTES, block % parts};
}

#if defined(WEIGHT_Q8_0)

DEVICE unsigned number(Raw r, int i) { return r.p[2 + i] ^ 0x80; }
DEVICE uint16_t scales(Raw r) { return r.p[0] | r.p[1] << 8; }

#elif defined(WEIGHT_Q4_0)

DEVICE unsigned number(Raw r, int i) { return i < 16 ? r.p[2 + i] & 15 : r.p[2 + i - 16] >> 4; }
DEVICE uint16_t scales(Raw r) { return r.p[0] | r.p[1] << 8; }

#elif defined(WEIGHT_Q4_K)

DEVICE unsigned number(Raw r, int i) { return r.p[16 + r.part / 2 * 32 + i] >> 4 * (r.part % 2) & 15; }

// Scale and offset of six bits, which share 12 bytes with those of the other parts.
DEVICE uint16_t scales(Raw r)
{
	const uint8_t *s = r.p + 4 + r.part % 4;
	if (r.part < 4)
		return (s[0] & 63) | (s[4] & 63) << 8;
	return (s[8] & 15) | s[0] >> 6 << 4 | (s[8] >> 4 | s[4] >> 6 << 4) << 8;
}

DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p, 4); }

#elif defined(WEIGHT_Q6_K)

DEVICE unsigned number(Raw r, int i)
{
	const int half = r.part / 4, run = r.part % 4;
	return (r.p[64 * half + run % 2 * 32 + i] >> run / 2 * 4 & 15) | (r.p[128 + 32 * half + i] >> 2 * run & 3) << 4;
}

DEVICE uint16_t scales(Raw r) { return r.p[192 + 2 * r.part] | r.p[193 + 2 * r.part] << 8; }

DEVICE void repack_super(uint8_t *at, Raw r) { memcpy(at, r.p + 208, 2); }

#endif

DEVICE void repack(uint8_t *tile, int blocks, int output, int slot, const uint8_t *row, int block, int)
{
	const Raw raw = raw_block(row, block);
	uint32_t words[4 * CHUNKS] = {};
#if defined(WEIGHT_Q8_0)
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		words[i / 4] |= number(raw, i) << (i % 2 * 16 + i % 4 / 2 * 8);
#else
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		words[i / 8] |= (number(raw, i) & 15) << (i % 2 * 16 + i % 8 / 2 * 4);
#endif
	UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
		store128(tile + quants_at(blocks, output, chunk, slot), &words[4 * chunk]);
#if defined(WEIGHT_Q6_K)
	uint32_t high[2] = {};
	UNROLL for (int i = 0; i < BLOCK_INPUTS; i++)
		high[i / 16] |= (number(raw, i) >> 4) << (i % 2 * 16 + high_bit(i % 16 / 2));
	*reinterpret_cast<uint2 *>(tile + high_at(blocks, output, slot)) = make_uint2(high[0], high[1]);
#endif
	*reinterpret_cast<uint16_t *>(tile + scales_at(blocks, slot) + output * SCALE_BYTES) = scales(raw);
#if defined(WEIGHT_Q4_K) || defined(WEIGHT_Q6_K)
	if (raw.part == 0)
		repack_super(tile + super_at(blocks, slot) + output * SUPER_BYTES, raw);
#endif
}

#endif

// dst: bands of weights, zero before. src: (outputs, inputs) as in the file.
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
