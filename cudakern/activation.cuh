// The layout of activations that matrix products read. activation.cu writes it once for all products
// with the same activations.
//
// Each tile of a row becomes an image, which products copy to shared memory unchanged: units of 16
// bytes, arranged so that 32 lanes, each reading its own block, cause no bank conflict.
//
//	values  [chunk][block]  16 bytes: 8 int16, input 2i in the low half of a word, or 4 float
//	scale   [block]         float, i16 only: a value q represents q · scale
//	sum     [block]         sum of the block's values, int or float
//	low     [block]         sum of its first 16 values
//
// Inputs past the end of a row are zero.
#pragma once

#include "tile.cuh"

enum { I16_CHUNKS = 4, F32_CHUNKS = 8 };
enum { I16_SCALES = I16_CHUNKS * TILE_BLOCKS, F32_SUMS = F32_CHUNKS * TILE_BLOCKS }; // first unit after the values
enum { I16_UNITS = I16_SCALES + 3 * TILE_BLOCKS / 4, F32_UNITS = F32_SUMS + 2 * TILE_BLOCKS / 4 };
