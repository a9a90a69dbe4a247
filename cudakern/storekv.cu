// Stores the keys and values of every row in the cache, at the row's position. Launches may overlap (overlap.cuh).
#include "kvcache.cuh"
#include "overlap.cuh"
#include "rope.cuh"

// Returns the index of the first element of a head's key or value at a position.
DEVICE size_t position_index(const int *table, int pos, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	return cache_index(table[pos / BLOCK_POSITIONS], layer, layers, parts, kind, head, heads, dim) + pos % BLOCK_POSITIONS * dim;
}

// A thread stores one element of a key, and of a value unless values is null.
KERNEL(CACHE_NAME(storekv), 256, 8)(element *cache, const float *keys, const float *values, int layer, int layers, int heads, int dim,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	begin_next();
	wait_for_previous();
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x, cols = heads * dim;
	if (row >= *rows || col >= cols)
		return;
	const int *table = tables + (size_t)seq[row] * stride;
	const int parts = values ? 2 : 1;
	cache[position_index(table, pos[row], layer, layers, parts, KEYS, col / dim, heads, dim) + col % dim] = to_element(keys[(size_t)row * cols + col]);
	if (values)
		cache[position_index(table, pos[row], layer, layers, parts, VALUES, col / dim, heads, dim) + col % dim] = to_element(values[(size_t)row * cols + col]);
}

// storekv fused with RoPE, with the same bits as rope.cu: rotates queries in place, and keys as it
// stores them. A thread handles two elements of a head: a pair if it is rotated, else two consecutive
// elements. Heads of queries come first, then those of keys, then those of values.
KERNEL(CACHE_NAME(storekv_rope), 256, 4)(element *cache, float *queries, int query_heads, const float *keys, const float *values,
	int layer, int layers, int heads, int dim, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	SHARED(float2, cos_sin);
	begin_next();
	int row = blockIdx.y;
	if (row < *rows)
		rope_factors(cos_sin, pairs, frequencies, magnitude, pos[row]);
	wait_for_previous();
	if (row >= *rows)
		return;
	int i = blockIdx.x * blockDim.x + threadIdx.x, head_threads = dim / 2, head = i / head_threads, pair = i % head_threads;
	if (head >= query_heads + 2 * heads)
		return;
	bool rotated = pair < pairs;
	int first = rotated ? pair * pair_stride : 2 * pair, second = first + (rotated ? distance : 1);
	if (head < query_heads) {
		float *q = queries + ((size_t)row * query_heads + head) * dim;
		if (!rotated)
			return;
		float2 t = rotate(q[first], q[second], cos_sin[pair]);
		q[first] = t.x;
		q[second] = t.y;
		return;
	}
	head -= query_heads;
	int kind = head < heads ? KEYS : VALUES;
	head %= heads;
	const float *x = (kind == KEYS ? keys : values) + ((size_t)row * heads + head) * dim;
	float2 v = make_float2(x[first], x[second]);
	if (rotated && kind == KEYS)
		v = rotate(v.x, v.y, cos_sin[pair]);
	cache += position_index(tables + (size_t)seq[row] * stride, pos[row], layer, layers, 2, kind, head, heads, dim);
	cache[first] = to_element(v.x);
	cache[second] = to_element(v.y);
}
