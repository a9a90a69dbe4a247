// Q4_K: the super-blocks of formula_minimum.cuh; after their scales follow four times 32 bytes, each with
// one block in the low nibbles and the next in the high ones.
#pragma once

#include "formula_minimum.cuh"

DEVICE unsigned raw_quant(Raw r, int i) { return r.p[16 + r.part / 2 * 32 + i] >> 4 * (r.part % 2) & 15; }
