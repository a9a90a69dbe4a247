// Matrix units for int8 (compute capability 8.0): what products of some rows (mma_few.cuh) and of many (mma.cu) have in common.
// The bits are those of matmul.cu: the sum of products of a block is an exact integer, whoever computes it, and the sums of blocks
// are added in the same order.
//
// An activation of 16 bits is 256 · its upper byte, signed, plus its lower byte, unsigned, so that a block of 16
// rows × 8 outputs is two instructions of 16 × 8 × 32 products each.
//
// The image of activations has a unit of 16 rows and a block of inputs: activation.cuh. The rows of a block are those of
// a batch, or a group of pairs of a row and an expert: experts.cuh.
#pragma once

#include "again.cuh"
#include "copies.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

#ifdef EMU

// One lane's part of the product of 16 rows × 4 · WORDS inputs with as many inputs × 8 columns, the operands of
// mma.m16n8k16 and k32 in the order of their fragments. c has what is added in an even and in an odd column.
template <int WORDS, typename A> DEVICE void mma_emulated(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const int (&c)[2], int first)
{
	uint32_t rows[2][2][4] = {}, outputs[2][2][4] = {}; // [k half][row or output][lane of the group]
	const int group = lane_id() / 4, at = lane_id() % 4;
	for (int half = 0; half < WORDS; half++) {
		for (int lower = 0; lower < 2; lower++) {
			const uint32_t *all = emu::exchange(a[2 * (first + half) + lower], __FILE__, __LINE__);
			memcpy(rows[half][lower], &all[group * 4], 16);
		}
		const uint32_t *all = emu::exchange(b[first + half], __FILE__, __LINE__);
		for (int i = 0; i < 2; i++)
			memcpy(outputs[half][i], &all[(2 * at + i) * 4], 16);
	}
	for (int i = 0; i < 4; i++) {
		d[i] = c[i % 2];
		for (int half = 0; half < WORDS; half++) {
			A x[16];
			int8_t w[16];
			memcpy(x, rows[half][i / 2], 16), memcpy(w, outputs[half][i % 2], 16);
			for (int k = 0; k < 16; k++)
				d[i] += int(x[k]) * w[k];
		}
	}
}

#define MMA_ALL(type, A, d, a, b, c) mma_emulated<2, A>(d, a, b, c, 0)
#define MMA_HALF(type, A, d, a, b, c, half) mma_emulated<1, A>(d, a, b, c, half)

#else

#define MMA_ALL(type, A, d, a, b, c) \
	asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %10, %11};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]))
#define MMA_HALF(type, A, d, a, b, c, half) \
	asm("mma.sync.aligned.m16n8k16.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %7, %8};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[2 * (half)]), "r"(a[2 * (half) + 1]), "r"(b[half]), "r"(c[0]), "r"(c[1]))

#endif

// Sets dot to the sums of products of 16 rows × 8 outputs over one part of a block.
DEVICE void mma(int (&dot)[4], const uint32_t (&upper)[4], const uint32_t (&lower)[4], const uint32_t (&b)[2], int half)
{
	const int none[2] = {};
	int low[4];
	if (HALVES == 1) {
		MMA_ALL("s8", int8_t, dot, upper, b, none);
		MMA_ALL("u8", uint8_t, low, lower, b, none);
	} else if (half == 0) {
		MMA_HALF("s8", int8_t, dot, upper, b, none, 0);
		MMA_HALF("u8", uint8_t, low, lower, b, none, 0);
	} else {
		MMA_HALF("s8", int8_t, dot, upper, b, none, 1);
		MMA_HALF("u8", uint8_t, low, lower, b, none, 1);
	}
	UNROLL for (int i = 0; i < 4; i++)
		dot[i] = dot[i] * 256 + low[i];
}

// ---------------------------------------------------------------------------------------
// Weights as fragments: a lane has the values of an output's inputs 16 · half + 8 · (lane % 4 / 2) + {0, 4, 1, 5} if
// lane is even, else + {2, 6, 3, 7}, as int8. The fragments of activations have the same order.

// Returns the values of four unsigned quants of up to 7 bits, q - OFFSET, or of 8 bits if OFFSET is 128.
DEVICE uint32_t signed_bytes(uint32_t q)
{
	if (OFFSET == 0)
		return q;
	if (OFFSET == 128)
		return q ^ 0x80808080;
	return (q + (128 - OFFSET) * 0x01010101u) ^ 0x80808080; // no byte carries
}

DEVICE uint32_t rotate(uint32_t v, int by)
{
#ifdef EMU
	return by == 0 ? v : v << by | v >> (32 - by);
#else
	return __funnelshift_l(v, v, by);
#endif
}

DEVICE uint32_t shared_word(const uint8_t *p)
{
	return *reinterpret_cast<const uint32_t *>(p);
}

// Returns where a lane's inputs are in the 16 bytes of quants of an output.
DEVICE int in_quants() { return lane_id() % 4 / 2 * (CHUNKS == 2 ? 8 : 4); }

// Returns the quants of a fragment, or the values of codes, from a lane's part of 16 bytes of quants (in_quants), at quants + 8 · half if
// CHUNKS is 1, and from the upper bits of the output's block; both in shared memory.
DEVICE uint32_t quants_of(const uint8_t *quants, [[maybe_unused]] const uint8_t *high, [[maybe_unused]] int half)
{
	[[maybe_unused]] const int group = lane_id() % 4 / 2;
	const bool odd = lane_id() & 1;
#if CHUNKS == 2
	const uint2 words = *reinterpret_cast<const uint2 *>(quants);
	return __byte_perm(words.x, words.y, odd ? 0x7351 : 0x6240);
#else
	const uint32_t word = shared_word(quants + half * 8);
#if defined(CODES)
	return __byte_perm(look_up(word, false), look_up(word, true), odd ? 0x7531 : 0x6420);
#else
	uint32_t q = word >> (odd ? 4 : 0) & 0x0f0f0f0f;
#if HIGH_BYTES == 4
	const int i = 2 * half + group; // byte_high of matmul.cu, without branches
	q |= rotate(shared_word(high), odd ? 4 - i : (32 - i) % 32) & 0x10101010;
#elif HIGH_BYTES == 8
	q |= rotate(shared_word(high + half * 4), group ? (odd ? 4 : 2) : (odd ? 30 : 0)) & 0x30303030;
#endif
	return q;
#endif
#endif
}

// Returns the fragment.
DEVICE uint32_t fragment_of(const uint8_t *quants, const uint8_t *high, int half) { return signed_bytes(quants_of(quants, high, half)); }

// What the thread blocks of a launch compute: up to three products of all rows, or a product of an expert's weights with
// each group of rows.
struct Together {
	Product a, b, c;
	CountedRows rows;
};

struct Grouped {
	float *dst;
	const uint8_t *weights;
	int outputs; // of an expert
	const int *groups;
	GroupedRows rows;
};

// Returns the product of the thread block with index block along y, and sets its first band; each outputs in a block.
DEVICE Product product_of(const Together &work, int *band, int each, int block)
{
	return product_of(work.a, work.b, work.c, band, each, block);
}

DEVICE Product product_of(const Grouped &work, int *band, int each, int block)
{
	const int first = experts_of(work.groups)[blockIdx.x] * work.outputs;
	*band = (first + block * each) / BAND_OUTPUTS;
	return {work.dst, work.weights, work.outputs, first};
}

DEVICE int last_band_of(const Product &p) { return (p.first + p.outputs - 1) / BAND_OUTPUTS; }

#endif
