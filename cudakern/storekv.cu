// StoreKV: the keys and values of every row go to the row's position in the cache.
#include "kvcache.cuh"
#include "rope.cuh"

// The number of the first element of a head's key or value at a position.
DEVICE size_t place(const int *table, int pos, int layer, int layers, int parts, int kind, int head, int heads, int dim)
{
	return cache_at(table[pos / BLOCK_POSITIONS], layer, layers, parts, kind, head, heads, dim) + pos % BLOCK_POSITIONS * dim;
}

// A thread per element of a key and of a value, if there are values.
KERNEL(CACHE_NAME(storekv), 256, 8)(element *cache, const float *keys, const float *values, int layer, int layers, int heads, int dim,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x, cols = heads * dim;
	if (row >= *rows || col >= cols)
		return;
	const int *table = tables + (size_t)seq[row] * stride;
	const int parts = values ? 2 : 1;
	cache[place(table, pos[row], layer, layers, parts, KEYS, col / dim, heads, dim) + col % dim] = to_element(keys[(size_t)row * cols + col]);
	if (values)
		cache[place(table, pos[row], layer, layers, parts, VALUES, col / dim, heads, dim) + col % dim] = to_element(values[(size_t)row * cols + col]);
}

// The same with RoPE before it, with the bits of rope.cu: queries are turned in place, keys
// on their way to the cache. A thread per two elements of a head, which are a pair where
// pairs are turned: heads of queries first, then of keys, then of values.
KERNEL(CACHE_NAME(storekv_rope), 256, 4)(element *cache, float *queries, int query_heads, const float *keys, const float *values,
	int layer, int layers, int heads, int dim, int pairs, int apart, int between, const uint64_t *turns, float magnitude,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	SHARED(float2, angles);
	int row = blockIdx.y;
	if (row >= *rows)
		return;
	turn_angles(angles, pairs, turns, magnitude, pos[row]);
	int i = blockIdx.x * blockDim.x + threadIdx.x, twos = dim / 2, head = i / twos, two = i % twos;
	if (head >= query_heads + 2 * heads)
		return;
	bool paired = two < pairs;
	int first = paired ? two * between : 2 * two, second = first + (paired ? apart : 1);
	if (head < query_heads) {
		float *q = queries + ((size_t)row * query_heads + head) * dim;
		if (!paired)
			return;
		float2 t = turned(q[first], q[second], angles[two]);
		q[first] = t.x;
		q[second] = t.y;
		return;
	}
	head -= query_heads;
	int kind = head < heads ? KEYS : VALUES;
	head %= heads;
	const float *x = (kind == KEYS ? keys : values) + ((size_t)row * heads + head) * dim;
	float2 v = make_float2(x[first], x[second]);
	if (paired && kind == KEYS)
		v = turned(v.x, v.y, angles[two]);
	cache += place(tables + (size_t)seq[row] * stride, pos[row], layer, layers, 2, kind, head, heads, dim);
	cache[first] = to_element(v.x);
	cache[second] = to_element(v.y);
}
