// Weights with one F16 scale d for each block, its first 2 bytes: a weight is value · d.
#pragma once

DEVICE Scale raw_scales(Raw r) { return r.p[0] | r.p[1] << 8; }
DEVICE float dequantize(int q, int, const uint8_t *scales, const uint8_t *) { return value_of(q) * half_at(scales); }

enum { HAS_ADDEND = 0 };

DEVICE float factor(const Block &w, int output, int) { return half_to_float(w.scales[output]); }
