// How rows are cut up, weights and activations alike: blocks of 32 inputs, a lane's share,
// and tiles of 32 blocks, a warp's.
#pragma once

#include "kernel.cuh"

enum { BLOCK_INPUTS = 32, TILE_BLOCKS = 32 };

DEVICE int blocks_of(int inputs) { return (inputs + BLOCK_INPUTS - 1) / BLOCK_INPUTS; }
DEVICE int tiles_of(int blocks) { return (blocks + TILE_BLOCKS - 1) / TILE_BLOCKS; }

// Blocks of tile tile of a row of blocks blocks: fewer than 32 in the last one.
DEVICE int blocks_in_tile(int blocks, int tile) { return min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS)); }
