// F32: single precision.
#pragma once

DEVICE float weight_at(const uint8_t *p)
{
	float v;
	memcpy(&v, p, sizeof v);
	return v;
}

DEVICE void widen(const Block &w, int output, int j, float v[4])
{
	uint4 chunk = ldg128(w.tile + quants_at(w.blocks, output, j, w.block));
	memcpy(v, &chunk, sizeof chunk);
}
