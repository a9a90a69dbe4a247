// StoreKV: the keys and values of every row go to the row's position in the cache.
//
// A thread per element of a key and of a value.
#include "kvcache.cuh"

KERNEL(CACHE_NAME(storekv), 256, 8)(element *cache, const float *keys, const float *values, int layer, int layers, int heads, int dim,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x, cols = heads * dim;
	if (row >= *rows || col >= cols)
		return;
	int p = pos[row];
	int block = tables[(size_t)seq[row] * stride + p / BLOCK_POSITIONS];
	size_t within = p % BLOCK_POSITIONS * dim + col % dim;
	cache[cache_at(block, layer, layers, KEYS, col / dim, heads, dim) + within] = to_element(keys[(size_t)row * cols + col]);
	cache[cache_at(block, layer, layers, VALUES, col / dim, heads, dim) + within] = to_element(values[(size_t)row * cols + col]);
}
