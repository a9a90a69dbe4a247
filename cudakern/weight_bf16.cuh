// BF16: the upper half of a float.
#pragma once

DEVICE float weight_at(const uint8_t *p) { return __uint_as_float((p[0] | p[1] << 8) << 16); }

DEVICE void widen(const Block &w, int output, int j, float v[4])
{
	uint4 chunk = ldg128(w.tile + quants_at(w.blocks, output, j / 2, w.block));
	uint32_t pairs[2] = {j % 2 ? chunk.z : chunk.x, j % 2 ? chunk.w : chunk.y};
	UNROLL for (int i = 0; i < 4; i++)
		v[i] = __uint_as_float(i % 2 ? pairs[i / 2] & 0xffff0000 : pairs[i / 2] << 16);
}
