// The paged KV cache: [block][layer][K|V][kv head][32][dim], of float16 or float32. A latent one
// has no V, one part instead of two: its values are the first elements of its keys.
// Compiled for one of them, with -DCACHE_F16 or -DCACHE_F32.
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

// The number of the first element of a head's keys or values in a block.
DEVICE size_t cache_at(int block, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	return ((((size_t)block * layers + layer) * parts + kind) * heads + head) * (BLOCK_POSITIONS * dim);
}
