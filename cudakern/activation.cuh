// The layout of activations that matrix products read. activation.cu writes it once for all products
// with the same activations.
//
// Each tile of a row becomes an image, which products copy to shared memory unchanged: units of 16
// bytes, arranged so that 32 lanes, each reading its own block, cause no bank conflict.
//
//	values  [chunk][block]  16 bytes: 8 int16, input 2i in the low half of a word, or 4 float
//	scale   [block]         float, i16 only: a value q represents q · scale
//	sum     [block]         int, i16 only: sum of the block's values
//	low     [block]         int, i16 only: sum of its first 16 values
//
// Inputs past the end of a row are zero.
//
// Matrix units (mma.cuh) read the values of i16 in other orders, with a unit for each 16 rows and block, rows first, and with blocks padded to
// whole tiles. A word has the upper or lower bytes of inputs 8 · (lane % 4 / 2) + {0, 4, 1, 5} if lane is even, else + {2, 6, 3, 7}, or of
// the inputs 16 later. The image s8, for products that have rows of activations as rows:
//
//	upper   [lane]  16 bytes: words 0 and 1 of rows lane / 4 and 8 more, words 2 and 3 the inputs 16 later
//	lower   [lane]  16 bytes: the lower bytes
//	all     [row]   float: sum · scale
//	scale   [row]   float
//	low     [row]   float: low · scale
//	high    [row]   float: (sum - low) · scale
//
// The image s8_columns, for those that have them as columns, for the first eight rows and then for the others:
//
//	values  [lane]  16 bytes: the words of row lane / 4: upper bytes, those 16 inputs later, lower bytes, those 16 inputs later
//	scales  [pair]  4 floats, of two rows: all, all, scale, scale
//	halves  [pair]  4 floats: low, low, high, high
#pragma once

#include "tile.cuh"

enum { I16_CHUNKS = 4, F32_CHUNKS = 8 };
enum { I16_SCALES = I16_CHUNKS * TILE_BLOCKS }; // first unit after the values
enum { S8_FRAGMENTS = 1024, S8_UNIT = S8_FRAGMENTS + 4 * 16 * 4 }; // bytes: values of a unit; all of it
enum { S8_EIGHT_FRAGMENTS = S8_FRAGMENTS / 2, S8_EIGHT = S8_UNIT / 2 }; // of eight rows of s8_columns
enum { I16_UNITS = I16_SCALES + 3 * TILE_BLOCKS / 4, F32_UNITS = F32_CHUNKS * TILE_BLOCKS };
