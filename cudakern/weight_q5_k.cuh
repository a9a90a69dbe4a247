// Q5_K: like Q4_K, with 32 bytes between scales and nibbles: bit j of byte i is the fifth bit of input i of
// block j.
#pragma once

#include "formula_minimum.cuh"

DEVICE unsigned raw_quant(Raw r, int i)
{
	return (r.p[48 + r.part / 2 * 32 + i] >> 4 * (r.part % 2) & 15) | (r.p[16 + i] >> r.part & 1) << 4;
}
