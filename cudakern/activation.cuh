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
// What lies past the end of a row is zero.
#pragma once

#include "tile.cuh"

enum { I16_CHUNKS = 4, F32_CHUNKS = 8 };
enum { I16_SCALES = I16_CHUNKS * TILE_BLOCKS, F32_SUMS = F32_CHUNKS * TILE_BLOCKS }; // first unit after the values
enum { I16_UNITS = I16_SCALES + 3 * TILE_BLOCKS / 4, F32_UNITS = F32_SUMS + 2 * TILE_BLOCKS / 4 };
