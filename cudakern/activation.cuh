// Activations as the products read them. activation.cu makes this of an x, once for all
// products with it.
//
// Each tile of a row becomes an image, which a product copies to shared memory as it is:
// units of 16 bytes that 32 lanes, each at its own block, read without a bank conflict.
//
//	values  [chunk][block]  16 bytes: 8 int16, input 2i in the low half of a word, or 4 float
//	scale   [block]         float, i16 only: a value q stands for q · scale
//	sum     [block]         of the block's values, int or float
//	low     [block]         of its first 16 values
//
// In a flat image, for products of many rows, the values lie as [block][chunk]: those of a
// block next to each other.
//
// What lies past the end of a row is zero.
#pragma once

#include "tile.cuh"

enum { I16_CHUNKS = 4, F32_CHUNKS = 8 };
enum { I16_SCALES = I16_CHUNKS * TILE_BLOCKS, F32_SUMS = F32_CHUNKS * TILE_BLOCKS }; // first unit after the values
// The unit of a chunk of a block.
DEVICE int chunk_at(bool flat, int chunks, int chunk, int block) { return flat ? block * chunks + chunk : chunk * TILE_BLOCKS + block; }
enum { I16_UNITS = I16_SCALES + 3 * TILE_BLOCKS / 4, F32_UNITS = F32_SUMS + 2 * TILE_BLOCKS / 4 };
