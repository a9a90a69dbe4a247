// F16: half precision.
#pragma once

DEVICE float weight_at(const uint8_t *p) { return half_at(p); }

DEVICE void widen(const Block &w, int output, int j, float v[4])
{
	uint4 chunk = ldg128(w.tile + quants_at(w.blocks, output, j / 2, w.block));
	uint32_t pairs[2] = {j % 2 ? chunk.z : chunk.x, j % 2 ? chunk.w : chunk.y};
	UNROLL for (int i = 0; i < 4; i++)
		v[i] = half_to_float(uint16_t(pairs[i / 2] >> 16 * (i % 2)));
}
