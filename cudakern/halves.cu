// Rounds weights to halves, in the layout that weights.cuh has for F16: what matmul_prompt.cu multiplies. A weight is what embed.cu decodes, rounded
// to the nearest half.
//
// A warp rounds a tile of one output, a lane one block of it. Its loads and stores of 16 bytes are coalesced, as those of products.
//
// Grid: a warp for each tile of each output of whole bands.
#include "weights.cuh"

enum { HALF_CHUNKS = 4 }; // CHUNKS of F16

DEVICE uint32_t halves_of(float first, float second)
{
	return uint32_t(float_to_half(first)) | uint32_t(float_to_half(second)) << 16;
}

#if SCALE_BYTES == 0

// Sets v to inputs 8 · chunk … 8 · chunk + 7 of a block.
DEVICE void weights_of(float (&v)[8], const uint8_t *tile, int blocks, int output, int block, int chunk)
{
	const Block w = {tile, blocks, block};
	float four[4];
	UNROLL for (int j = 0; j < 2; j++) {
		widen(w, output, chunk * 2 + j, four);
		UNROLL for (int i = 0; i < 4; i++)
			v[j * 4 + i] = four[i];
	}
}

DEVICE void round_block(uint4 *to, const uint8_t *tile, int blocks, int output, int block)
{
	UNROLL for (int chunk = 0; chunk < HALF_CHUNKS; chunk++) {
		float v[8];
		weights_of(v, tile, blocks, output, block, chunk);
		to[chunk * blocks] = make_uint4(halves_of(v[0], v[1]), halves_of(v[2], v[3]), halves_of(v[4], v[5]), halves_of(v[6], v[7]));
	}
}

#else

DEVICE void round_block(uint4 *to, const uint8_t *tile, int blocks, int output, int block)
{
	const uint8_t *const scales = tile + scales_at(blocks, block) + output * SCALE_BYTES;
	const uint8_t *const super = tile + super_at(blocks, block) + output * SUPER_BYTES;
	uint4 quants[CHUNKS];
	UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++)
		quants[chunk] = ldg128(tile + quants_at(blocks, output, chunk, block));
	uint32_t words[4 * CHUNKS];
	memcpy(words, quants, sizeof words);
#if HIGH_BYTES > 0
	uint32_t high[HIGH_BYTES / 4];
	UNROLL for (int i = 0; i < HIGH_BYTES / 4; i++)
		high[i] = ldg32(tile + high_at(blocks, output, block) + 4 * i);
#endif
	UNROLL for (int chunk = 0; chunk < HALF_CHUNKS; chunk++) {
		float v[8];
		UNROLL for (int j = 0; j < 8; j++) {
			const int i = chunk * 8 + j;
#if CHUNKS == 2
			int q = words[i / 4] >> (i % 2 * 16 + i % 4 / 2 * 8) & 255;
#else
			int q = words[i / 8] >> (i % 2 * 16 + i % 8 / 2 * 4) & 15;
#endif
#if HIGH_BYTES > 0
			q |= (high[i / 2 / HIGH_PAIRS] >> (i % 2 * 16 + high_bit(i / 2 % HIGH_PAIRS)) & HIGH_MASK) << 4;
#endif
			v[j] = dequantize(q, i / 16, scales, super);
		}
		to[chunk * blocks] = make_uint4(halves_of(v[0], v[1]), halves_of(v[2], v[3]), halves_of(v[4], v[5]), halves_of(v[6], v[7]));
	}
}

#endif

#define HALVES_OF(weight) HALVES_OF_NAMED(weight)
#define HALVES_OF_NAMED(weight) KERNEL(halves_##weight, 256, 4)

// dst: bands of F16 weights. src: bands of weights.
HALVES_OF(WEIGHT)(uint8_t *dst, const uint8_t *src, int outputs, int inputs)
{
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks);
	const int i = blockIdx.x * (blockDim.x / WARP) + warp_id(), tile = i % tiles, output = i / tiles, block = lane_id();
	const int in_tile = blocks_in_tile(blocks, tile);
	if (output >= (outputs + BAND_OUTPUTS - 1) / BAND_OUTPUTS * BAND_OUTPUTS || block >= in_tile)
		return;
	const size_t half_tile = BAND_OUTPUTS * HALF_CHUNKS * 16; // bytes of a block of the outputs of a band
	uint8_t *const to = dst + (size_t(output / BAND_OUTPUTS) * blocks + size_t(tile) * TILE_BLOCKS) * half_tile;
	const uint8_t *const from = src + size_t(output / BAND_OUTPUTS) * band_bytes(blocks) + size_t(tile) * tile_bytes(TILE_BLOCKS);
	round_block(reinterpret_cast<uint4 *>(to) + output % BAND_OUTPUTS * HALF_CHUNKS * in_tile + block, from, in_tile, output % BAND_OUTPUTS, block);
}
