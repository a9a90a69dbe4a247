// How a weight matrix lies on the device. repack.cu makes this of a model file's bytes,
// bit for bit; matmul.cu and embed.cu read it. weights.go has the sizes.
//
// A matrix of outputs × inputs is cut into bands of 4 outputs and a band into tiles of
// 32 blocks. A block is 32 consecutive inputs: a warp works on a tile, lane l on block l
// of each of the 4 outputs. A tile is one run of bytes, so that a warp streams through a
// band, and each of its loads takes 512 bytes in a row:
//
//	quants  [output][chunk][block]  16 bytes
//	high    [output][block]          8 bytes  upper bits, Q6_K
//	scales  [block][output]          2 bytes  of a block, quantised types
//	super   [block/8][output]      2, 4 bytes of 256 inputs, Q6_K and Q4_K
//
// The last tile of a band has as many blocks as are left and ends at a multiple of 16
// bytes. Outputs and inputs that fill up a band or a block are zero.
//
// Inside a block neighbours lie 16 bits apart, as pairs for a product with pairs of int16:
//
//	4 bits  word i: inputs 8i … 8i+7; input 8i+2p at bit 4p, input 8i+2p+1 at bit 16+4p
//	8 bits  word i: inputs 4i, 4i+2, 4i+1, 4i+3 from the lowest byte up, each plus 128
//	high    word i: inputs 16i … 16i+15; pair p at bit high_bit(p) and 16 above
//
// Compiled for one format of weights, with its numbers of modules.txt: RAW_INPUTS inputs take
// RAW_BYTES in a model file; on the device a block has CHUNKS chunks of quants, HIGH_BYTES of
// upper bits and SCALE_BYTES of scales for each output, and eight blocks have SUPER_BYTES more.
#pragma once

#include "tile.cuh"

enum { BAND_OUTPUTS = 4 };

// Where the parts of a tile of blocks blocks begin.
DEVICE int quants_at(int blocks, int output, int chunk, int block) { return ((output * CHUNKS + chunk) * blocks + block) * 16; }
DEVICE int high_at(int blocks, int output, int block) { return (64 * CHUNKS + output * HIGH_BYTES) * blocks + block * HIGH_BYTES; }
DEVICE int scales_at(int blocks, int block) { return (64 * CHUNKS + 4 * HIGH_BYTES) * blocks + block * 4 * SCALE_BYTES; }
DEVICE int super_at(int blocks, int block) { return (64 * CHUNKS + 4 * HIGH_BYTES + 4 * SCALE_BYTES) * blocks + block / 8 * 4 * SUPER_BYTES; }
DEVICE int tile_bytes(int blocks) { return (super_at(blocks, blocks) + 15) / 16 * 16; }

// Bytes of the 4 outputs of a band with so many blocks.
DEVICE size_t band_bytes(int blocks)
{
	return size_t(blocks / TILE_BLOCKS) * tile_bytes(TILE_BLOCKS) + tile_bytes(blocks % TILE_BLOCKS);
}

// The bit of the upper two bits of pair p in its word. Chosen so that one shift and one
// swap of bytes bring each pair above its lower four bits: pair_high in matmul.cu.
DEVICE int high_bit(int p) { return 0x8a02ec64u >> 4 * p & 15; }

DEVICE uint32_t word_at(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof v);
	return v;
}

DEVICE float half_at(const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof v);
	return half_to_float(v);
}

// ---------------------------------------------------------------------------------------
// What a format means, in weight_<name>.cuh. Of float weights, which have no scales:
//
//	number_at      the weight at p
//	widen          inputs 4j … 4j + 3 of a block
//
// of quantised ones
//
//	number         the q of input i in a model file
//	scales         SCALE_BYTES of a block, and repack_super its SUPER_BYTES
//	value          the weight that q is
//
// and of both, for products:
//
//	HALVES         parts of a block with a scale of their own
//	OFFSET         of a q, so that a weight is (q - OFFSET) · scale
//	fold           acc + the part's scale · dot, the sum of its products, times scale
//	less_minimum   acc - what is taken off every weight · x, the sum of activations

// A block of a model file.
struct Raw {
	const uint8_t *p; // the RAW_BYTES that hold it
	int part;         // its place among their blocks
};

// The weights of a lane: its block of all 4 outputs.
#if SCALE_BYTES == 0

// Too many registers; the block stays in memory until its numbers are needed.
struct Block {
	const uint8_t *tile;
	int blocks, block;
};

#else

struct Block {
	uint32_t quants[BAND_OUTPUTS][4 * CHUNKS];
	uint16_t scales[BAND_OUTPUTS];
#if HIGH_BYTES > 0
	uint32_t high[BAND_OUTPUTS][HIGH_BYTES / 4];
#endif
#if SUPER_BYTES == 4
	uint32_t super[BAND_OUTPUTS];
#elif SUPER_BYTES == 2
	uint16_t super[BAND_OUTPUTS];
#endif
};

#endif

#define WEIGHT_FILE(name) WEIGHT_FILE_NAMED(name)
#define WEIGHT_FILE_NAMED(name) WEIGHT_FILE_TEXT(weight_##name.cuh)
#define WEIGHT_FILE_TEXT(name) #name
#include WEIGHT_FILE(WEIGHT)
