// Stores the keys and values of every row in a cache whose formats are known at run time, at the row's position: each is rounded or quantized, as
// device.CacheType says, keys after they were rotated. Launches may overlap (overlap.cuh).
#include "formats.cuh"
#include "overlap.cuh"
#include "rope.cuh"

// Stores element index of a head's keys or values, a lane each: those of a block of 32 are in one warp if the format is quantized.
DEVICE void store_element(uint8_t *head, int format, int dim, int index, float x)
{
	if (format == FORMAT_F32) {
		reinterpret_cast<float *>(head)[index] = x;
		return;
	}
	if (format == FORMAT_F16) {
		reinterpret_cast<uint16_t *>(head)[index] = float_to_half(x);
		return;
	}
	const int offset = format == FORMAT_Q8_0 ? Q8_0_OFFSET : Q4_0_OFFSET;
	const float steps = format == FORMAT_Q8_0 ? 127.0f : 8.0f, infinity = bits_to_float(0x7f800000);
	const bool bad = warp_ballot(!(fabsf(x) < infinity)) != 0;
	const float positive = warp_max(x), negative = warp_max(-x), largest = fmaxf(positive, negative);
	float factor = steps / largest;
	const bool zero = bad || !(factor < infinity); // or the largest is denormal
	uint16_t scale = bad ? 0x7e00 : zero ? 0 : float_to_half(largest / steps);
	if (!zero && format == FORMAT_Q4_0 && positive > negative) { // the code of the largest is -8
		factor = -factor;
		scale ^= 0x8000;
	}
	int code = offset + (zero ? 0 : __float2int_rn(x * factor));
	uint8_t *const scales = head + code_bytes(format, 32 * dim);
	if (lane_id() == 0)
		reinterpret_cast<uint16_t *>(scales)[index / SCALE_ELEMENTS] = scale;
	if (format == FORMAT_Q8_0) {
		head[index] = uint8_t(code);
		return;
	}
	code = min(code, 15);
	const int behind = shfl_xor(code, 4);
	if (!(index & 4))
		head[index / 8 * 4 + index % 4] = uint8_t(code | behind << 4);
}

// A thread stores one element of a key or a value; without values, latent is set. With queries, it also rotates these in place as rope.cu does, and
// keys as it stores them: the first query_threads threads of a row have a pair of the queries each.
KERNEL(storekv_any, 256, 4)(ANY_CACHE, float *queries, int query_threads, int query_heads, const float *keys, const float *values,
	int layer, int layers, int heads, int dim, int pairs, int distance, int pair_stride, const uint64_t *frequencies, float magnitude,
	const int *pos, const int *seq, const int *tables, int stride, const int *rows)
{
	SHARED(float2, cos_sin);
	begin_next();
	const int row = blockIdx.y;
	if (row < *rows && pairs > 0)
		rope_factors(cos_sin, pairs, frequencies, magnitude, pos[row]);
	wait_for_previous();
	if (row >= *rows)
		return;
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < query_threads) {
		const int head = i / (dim / 2), pair = i % (dim / 2);
		if (head >= query_heads || pair >= pairs)
			return;
		float *const q = queries + ((size_t)row * query_heads + head) * dim + pair * pair_stride;
		const float2 t = rotate(q[0], q[distance], cos_sin[pair]);
		q[0] = t.x;
		q[distance] = t.y;
		return;
	}
	i -= query_threads;
	const int cols = heads * dim, padded = (cols + WARP - 1) / WARP * WARP, kind = i / padded, col = i % padded;
	if (kind > (values ? 1 : 0) || col >= cols)
		return;
	const int head = col / dim, d = col % dim, pair = d < pairs * pair_stride ? d / pair_stride : d - distance;
	const bool rotated = kind == 0 && d < 2 * pairs;
	const float *const x = (kind == 0 ? keys : values) + (size_t)row * cols + head * dim;
	float v = x[d];
	if (rotated) {
		const int first = pair * pair_stride;
		const float2 t = rotate(x[first], x[first + distance], cos_sin[pair]);
		v = d == first ? t.x : t.y;
	}
	const int p = pos[row], block = tables[(size_t)seq[row] * stride + p / 32], format = kind == 0 ? key_format : value_format;
	if (kind == 0 && values && is_quantized(format))
		v = hadamard(v);
	cache += head_offset(key_format, value_format, block, layer, layers, values ? 2 : 1, kind, head, heads, dim);
	store_element(cache, format, dim, p % 32 * dim + d, v);
}
