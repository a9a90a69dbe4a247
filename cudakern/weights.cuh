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
// Compiled for one type of weight: -DWEIGHT_Q4_0 and so on.
#pragma once

#include "tile.cuh"

enum { BAND_OUTPUTS = 4 };

// RAW_INPUTS inputs take RAW_BYTES in a model file.
#if defined(WEIGHT_F32)
#define WEIGHT f32
enum { RAW_INPUTS = 1, RAW_BYTES = 4, CHUNKS = 8, HIGH_BYTES = 0, SCALE_BYTES = 0, SUPER_BYTES = 0 };
#elif defined(WEIGHT_F16)
#define WEIGHT f16
enum { RAW_INPUTS = 1, RAW_BYTES = 2, CHUNKS = 4, HIGH_BYTES = 0, SCALE_BYTES = 0, SUPER_BYTES = 0 };
#elif defined(WEIGHT_Q8_0)
#define WEIGHT q8_0
enum { RAW_INPUTS = 32, RAW_BYTES = 34, CHUNKS = 2, HIGH_BYTES = 0, SCALE_BYTES = 2, SUPER_BYTES = 0 };
#elif defined(WEIGHT_Q4_0)
#define WEIGHT q4_0
enum { RAW_INPUTS = 32, RAW_BYTES = 18, CHUNKS = 1, HIGH_BYTES = 0, SCALE_BYTES = 2, SUPER_BYTES = 0 };
#elif defined(WEIGHT_Q4_K)
#define WEIGHT q4_k
enum { RAW_INPUTS = 256, RAW_BYTES = 144, CHUNKS = 1, HIGH_BYTES = 0, SCALE_BYTES = 2, SUPER_BYTES = 4 };
#elif defined(WEIGHT_Q6_K)
#define WEIGHT q6_k
enum { RAW_INPUTS = 256, RAW_BYTES = 210, CHUNKS = 1, HIGH_BYTES = 8, SCALE_BYTES = 2, SUPER_BYTES = 2 };
#else
#error "say for which weights: -DWEIGHT_F32, _F16, _Q8_0, _Q4_0, _Q4_K or _Q6_K"
#endif

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

