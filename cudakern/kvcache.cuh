// The paged KV cache: [block][layer][K|V][kv head][32][dim], float16 (CACHE_F16 is defined) or float32
// (CACHE_F32). A latent cache has one part, the keys, instead of two: its values are the first elements
// of the keys.
#pragma once

#include "kernel.cuh"

enum { BLOCK_POSITIONS = 32, KEYS = 0, VALUES = 1 };

#if defined(CACHE_F16)
typedef uint16_t element;
#define CACHE_NAME(name) name##_f16
DEVICE element to_element(float v) { return float_to_half(v); }
#elif defined(CACHE_F32)
typedef float element;
#define CACHE_NAME(name) name##_f32
DEVICE element to_element(float v) { return v; }
#endif

// Returns the index of the first element of a head's keys or values in a block.
DEVICE size_t cache_index(int block, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	return ((((size_t)block * layers + layer) * parts + kind) * heads + head) * (BLOCK_POSITIONS * dim);
}
