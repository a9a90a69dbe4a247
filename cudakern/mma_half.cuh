// Products of halves by matrix units, with sums in float32 (compute capability 8.0).
#pragma once

#include "address.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

#ifdef EMU

// d += the product of 16 rows and 16 inputs with as many of 8 columns: mma.m16n8k16.
DEVICE void mma_halves(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	const int group = lane_id() / 4, at = lane_id() % 4;
	uint32_t rows[2][8], columns[2][8]; // of a pair of inputs
	const auto collect = [&](uint32_t (&to)[8], int first, uint32_t lower, uint32_t upper) {
		memcpy(to, &emu::exchange(lower, __FILE__, __LINE__)[first], 16);
		memcpy(to + 4, &emu::exchange(upper, __FILE__, __LINE__)[first], 16);
	};
	collect(rows[0], group * 4, a0, a2), collect(rows[1], group * 4, a1, a3);
	const uint32_t *const all_lower = emu::exchange(b0, __FILE__, __LINE__);
	memcpy(columns[0], all_lower + 8 * at, 16), memcpy(columns[1], all_lower + 8 * at + 4, 16);
	const uint32_t *const all_upper = emu::exchange(b1, __FILE__, __LINE__);
	memcpy(columns[0] + 4, all_upper + 8 * at, 16), memcpy(columns[1] + 4, all_upper + 8 * at + 4, 16);
	for (int i = 0; i < 4; i++) {
		double sum = d[i];
		for (int k = 0; k < 8; k++) {
			const uint32_t x = rows[i / 2][k], y = columns[i % 2][k];
			sum += double(half_to_float(x & 0xffff)) * half_to_float(y & 0xffff) + double(half_to_float(x >> 16)) * half_to_float(y >> 16);
		}
		d[i] = float(sum);
	}
}

#else

DEVICE void mma_halves(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

// Returns two floats as halves, the first one in the lower half of the word.
DEVICE uint32_t pair_of_halves(float first, float second)
{
#ifdef EMU
	return uint32_t(float_to_half(first)) | uint32_t(float_to_half(second)) << 16;
#else
	uint32_t pair;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
	return pair;
#endif
}

// Copies 16 bytes to shared memory while the thread continues (copies.cuh), or sets them to 0.
DEVICE void copy_or_clear(Address at, const uint8_t *from, bool copied)
{
#ifdef EMU
	emu::check_aligned(at, 16);
	memset(at, 0, 16);
	if (copied)
		memcpy(at, from, 16);
#else
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(copied ? 16 : 0) : "memory");
#endif
}

#endif
