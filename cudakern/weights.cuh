// The layout of weight matrices in device memory. repack.cu converts the bytes of a model file to it
// without loss; matmul.cu and embed.cu read it. weights.go computes its sizes.
//
// A matrix of outputs × inputs is divided into bands of 4 outputs, and a band into tiles of 32 blocks.
// A block is 32 consecutive inputs. A warp processes a tile at a time, lane l block l of each of the 4
// outputs. A tile is contiguous, so that a warp streams through a band and each of its 16-byte loads is
// coalesced to 512 consecutive bytes:
//
//	quants  [output][chunk][block]  16 bytes
//	high    [block][output]          4 bytes  the fifth bit of each quant, or
//	        [output][block]          8 bytes  the upper two of six
//	scales  [block][output]  1, 2 or 4 bytes  per block, quantized types
//	super   [block/8][output]   2 or 4 bytes  per 256 inputs, of types with super-blocks
//
// The last tile of a band has the remaining blocks and is padded to a multiple of 16 bytes. Bands and
// blocks are padded with zero outputs and inputs.
//
// Within a block, consecutive inputs are 16 bits apart, for products with pairs of int16:
//
//	4 bits  word i: inputs 8i … 8i+7; input 8i+2p at bit 4p, input 8i+2p+1 at bit 16+4p
//	8 bits  word i: inputs 4i, 4i+2, 4i+1, 4i+3 from the lowest byte up, each plus 128
//	high    one word: inputs 0 … 31; two words: inputs 0 … 15 and 16 … 31; pair p of a word at bit
//	        high_bit(p) and 16 above
//
// Compiled for one weight type, with the constants of modules.txt: RAW_INPUTS inputs have RAW_BYTES bytes
// in a model file; on the device a block has CHUNKS chunks of quants, HIGH_BYTES bytes of upper bits and
// SCALE_BYTES of scales for each output, and eight blocks have another SUPER_BYTES.
#pragma once

#include "tile.cuh"

#ifndef WEIGHT
#error "WEIGHT must name the weight type; see modules.txt"
#endif
#if CHUNKS != 1 && CHUNKS != 2 && CHUNKS != 4 && CHUNKS != 8
#error "there is no layout for so many CHUNKS"
#endif
#if HIGH_BYTES != 0 && (CHUNKS != 1 || HIGH_BYTES != 4 && HIGH_BYTES != 8)
#error "only quants of four bits can have 4 or 8 HIGH_BYTES more"
#endif
#if SCALE_BYTES == 0 ? CHUNKS < 4 || RAW_INPUTS != 1 : CHUNKS > 2 || RAW_INPUTS % 32 != 0
#error "float weights have 4 or 8 CHUNKS and no SCALE_BYTES, quantized weights have fewer CHUNKS and whole blocks"
#endif
#if (SUPER_BYTES > 0) != (RAW_INPUTS == 256)
#error "weights have SUPER_BYTES if and only if they have super-blocks"
#endif

enum { BAND_OUTPUTS = 4 };

// Offsets of the parts of a tile of blocks blocks, in bytes.
constexpr DEVICE int quants_at(int blocks, int output, int chunk, int block) { return ((output * CHUNKS + chunk) * blocks + block) * 16; }
constexpr DEVICE int high_at(int blocks, int output, int block)
{
	return 64 * CHUNKS * blocks + (HIGH_BYTES == 4 ? (block * 4 + output) * 4 : (output * blocks + block) * HIGH_BYTES);
}
constexpr DEVICE int scales_at(int blocks, int block) { return (64 * CHUNKS + 4 * HIGH_BYTES) * blocks + block * 4 * SCALE_BYTES; }
constexpr DEVICE int super_at(int blocks, int block) { return (64 * CHUNKS + 4 * HIGH_BYTES + 4 * SCALE_BYTES) * blocks + block / 8 * 4 * SUPER_BYTES; }
constexpr DEVICE int tile_bytes(int blocks) { return (super_at(blocks, blocks) + 15) / 16 * 16; }

enum { TILE_BYTES = tile_bytes(TILE_BLOCKS) };

// Returns the size of a band of 4 outputs with blocks blocks each, in bytes.
DEVICE size_t band_bytes(int blocks)
{
	return size_t(blocks / TILE_BLOCKS) * tile_bytes(TILE_BLOCKS) + tile_bytes(blocks % TILE_BLOCKS);
}

#if HIGH_BYTES > 0

enum { HIGH_PAIRS = 64 / HIGH_BYTES, HIGH_MASK = (1 << HIGH_BYTES / 4) - 1 }; // pairs of a word; bits of a quant

// Returns the bit position of the upper bits of pair p in its word. The order is chosen so that few
// instructions move them above the lower four bits: two bits by one shift and one byte swap, see pair_high
// in matmul.cu, and one bit by a shift, see byte_high.
DEVICE int high_bit(int p) { return HIGH_BYTES == 8 ? 0x8a02ec64u >> 4 * p & 15 : p / 2 % 2 * 8 + (p % 2 ? 0 : 4) + p / 4; }

#endif

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

// Returns nibble i of 16 bytes: those in the low halves come first.
DEVICE unsigned nibble_at(const uint8_t *p, int i) { return p[i % 16] >> i / 16 * 4 & 15; }

// ---------------------------------------------------------------------------------------
// weight_<name>.cuh defines a weight type. Float weights, which have no scales, have
//
//	weight_at         the weight at p
//	widen             inputs 4j … 4j + 3 of a block, as float
//
// quantized weights have
//
//	raw_quant         q of input i of a block in a model file
//	raw_scales        the SCALE_BYTES of a block in a model file
//	repack_super      copies the SUPER_BYTES
//	dequantize        the weight that q represents
//
// and, for matrix products,
//
//	HALVES            number of parts of a block that have their own scale
//	OFFSET            the value of a quant is q - OFFSET
//	CODES             if defined, quants are codes of four bits, and these are their values: int8
//
// and, where a weight is value · factor + addend,
//
//	factor            the factor of a part
//	HAS_ADDEND        whether the addend is not always 0
//	addend            the addend of a part, if HAS_ADDEND
//
// Types that compute a weight from q and scales in the same way share a formula_<name>.cuh.

// A block of a model file.
struct Raw {
	const uint8_t *p; // the RAW_BYTES that contain it
	int part;         // its index in them
};

// The weights of a lane: its block of each of the 4 outputs.
#if SCALE_BYTES == 0

// The weights would need too many registers, so they are loaded when they are used.
struct Block {
	const uint8_t *tile;
	int blocks, block;
};

#else

#if SCALE_BYTES == 1
typedef uint8_t Scale;
#elif SCALE_BYTES == 2
typedef uint16_t Scale;
#else
typedef uint32_t Scale;
#endif

struct Block {
	uint32_t quants[BAND_OUTPUTS][4 * CHUNKS];
	Scale scales[BAND_OUTPUTS];
#if HIGH_BYTES > 0
	uint32_t high[BAND_OUTPUTS][HIGH_BYTES / 4];
#endif
#if SUPER_BYTES == 4
	uint32_t super[BAND_OUTPUTS];
#elif SUPER_BYTES == 2
	uint16_t super[BAND_OUTPUTS];
#endif
};

DEVICE float value_of(int q); // of a quant

// Loads the scales of a block of one output, or of its super-block.
template <int BYTES> DEVICE uint32_t load_scales(const uint8_t *p)
{
	if constexpr (BYTES == 1)
		return ldg8(p);
	else if constexpr (BYTES == 2)
		return ldg16(p);
	else
		return ldg32(p);
}

#endif

#define WEIGHT_FILE(name) WEIGHT_FILE_NAMED(name)
#define WEIGHT_FILE_NAMED(name) WEIGHT_FILE_TEXT(weight_##name.cuh)
#define WEIGHT_FILE_TEXT(name) #name
#include WEIGHT_FILE(WEIGHT)

#if defined(CODES)

#if CHUNKS != 1 || HIGH_BYTES != 0
#error "codes have four bits"
#endif

// Returns the values of codes 4i … 4i + 3, from the lowest byte up.
constexpr uint32_t code_values(int i)
{
	constexpr int values[16] = {CODES};
	uint32_t word = 0;
	for (int j = 0; j < 4; j++)
		word |= uint32_t(values[4 * i + j] & 255) << 8 * j;
	return word;
}

enum : uint32_t { CODES_0 = code_values(0), CODES_4 = code_values(1), CODES_8 = code_values(2), CODES_12 = code_values(3) };

DEVICE float value_of(int q)
{
	const uint32_t word = q < 8 ? (q < 4 ? CODES_0 : CODES_4) : (q < 12 ? CODES_8 : CODES_12);
	return (float)(int8_t)(word >> q % 4 * 8);
}

#elif SCALE_BYTES > 0

DEVICE float value_of(int q) { return (float)(q - OFFSET); }

#endif

// add_scaled returns acc plus a part's dot · factor · scale, where dot is the sum of products of its values
// with activations and scale that of the activations; add_addend returns acc plus the addend times x, the sum of the
// activations. The roundings, and that add_addend comes first, are part of the contract of docs/gpu.md.
#if SCALE_BYTES > 0

DEVICE float add_scaled(const Block &w, int output, int half, float dot, float scale, float acc)
{
	return fmaf(factor(w, output, half) * scale, dot, acc);
}

template <typename B> DEVICE float addend_of(const B &w, int output, int half)
{
	if constexpr (HAS_ADDEND)
		return addend(w, output, half);
	else
		return 0;
}

DEVICE float add_addend(const Block &w, int output, int half, float x, float acc)
{
	return HAS_ADDEND ? fmaf(addend_of(w, output, half), x, acc) : acc;
}

#endif
