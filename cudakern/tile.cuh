// How rows of weights and of activations are divided: a block is 32 inputs, for one lane; a tile is 32
// blocks, for one warp.
#pragma once

#include "kernel.cuh"

enum { BLOCK_INPUTS = 32, TILE_BLOCKS = 32 };

DEVICE int blocks_of(int inputs) { return (inputs + BLOCK_INPUTS - 1) / BLOCK_INPUTS; }
DEVICE int tiles_of(int blocks) { return (blocks + TILE_BLOCKS - 1) / TILE_BLOCKS; }

// Returns the number of blocks in a tile of a row of blocks blocks; the last tile may have fewer than 32.
DEVICE int blocks_in_tile(int blocks, int tile) { return min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS)); }
