// Matrix units for int8 (compute capability 8.0): what products of some rows (mma_few.cu) and of many (mma.cu) have in common.
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
// mma.m16n8k16 and k32 in the order of their fragments.
template <int WORDS, typename A, typename B> DEVICE void mma_emulated(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int first)
{
	uint32_t rows[2][2][4] = {}, columns[2][2][4] = {}; // [k half][row or column][lane of the group]
	const int group = lane_id() / 4, at = lane_id() % 4;
	for (int half = 0; half < WORDS; half++) {
		for (int lower = 0; lower < 2; lower++) {
			const uint32_t *all = emu::exchange(a[2 * (first + half) + lower], __FILE__, __LINE__);
			memcpy(rows[half][lower], &all[group * 4], 16);
		}
		const uint32_t *all = emu::exchange(b[first + half], __FILE__, __LINE__);
		for (int i = 0; i < 2; i++)
			memcpy(columns[half][i], &all[(2 * at + i) * 4], 16);
	}
	for (int i = 0; i < 4; i++) {
		d[i] = 0;
		for (int half = 0; half < WORDS; half++) {
			A x[16];
			B y[16];
			memcpy(x, rows[half][i / 2], 16), memcpy(y, columns[half][i % 2], 16);
			for (int k = 0; k < 16; k++)
				d[i] += int(x[k]) * y[k];
		}
	}
}

#define MMA_ALL(types, A, B, d, a, b) mma_emulated<2, A, B>(d, a, b, 0)
#define MMA_HALF(types, A, B, d, a, b, half) mma_emulated<1, A, B>(d, a, b, half)

#else

#define MMA_ALL(types, A, B, d, a, b) \
	asm("mma.sync.aligned.m16n8k32.row.col.s32." types ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0))
#define MMA_HALF(types, A, B, d, a, b, half) \
	asm("mma.sync.aligned.m16n8k16.row.col.s32." types ".s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};" \
		: "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[2 * (half)]), "r"(a[2 * (half) + 1]), "r"(b[half]), "r"(0))

#endif

// Defines name, which sets d to the sums of products of 16 rows × 8 columns over one part of a block: of a's bytes as A with b's as B.
#define MMA(name, types, A, B) \
	DEVICE void name(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int half) \
	{ \
		if (HALVES == 1) \
			MMA_ALL(types, A, B, d, a, b); \
		else if (half == 0) \
			MMA_HALF(types, A, B, d, a, b, 0); \
		else \
			MMA_HALF(types, A, B, d, a, b, 1); \
	}

MMA(mma_signed, "s8.s8", int8_t, int8_t)
MMA(mma_unsigned_rows, "u8.s8", uint8_t, int8_t)
MMA(mma_unsigned_columns, "s8.u8", int8_t, uint8_t)

// Sets dot to 256 · dot + low.
DEVICE void add_lower(int (&dot)[4], const int (&low)[4])
{
	UNROLL for (int i = 0; i < 4; i++)
		dot[i] = dot[i] * 256 + low[i];
}

// ---------------------------------------------------------------------------------------
// Weights as fragments: a lane has the values of an output's inputs 16 · half + 8 · (lane % 4 / 2) + {0, 4, 1, 5} if
// lane is even, else + {2, 6, 3, 7}, as int8. The fragments of activations have the same order.

// Values in fragments are RAISED times those of weights, a power of two, and factors are divided by RAISED. So a quant with an offset is in
// the upper bits of its byte, and flipping the most significant bit subtracts the offset.
enum { RAISED = OFFSET == 0 ? 1 : 128 / OFFSET, RAISED_BITS = RAISED == 1 ? 0 : RAISED == 4 ? 2 : RAISED == 8 ? 3 : RAISED == 16 ? 4 : 5 };

static_assert(RAISED == 1 << RAISED_BITS && (OFFSET == 0 || RAISED * OFFSET == 128), "an offset is a power of two, 4 or more");

// The factors and addends of an output and a block, for values in fragments.
struct Formula {
	float factor[HALVES], addend[HALVES];
};

// Returns the formula of the first output of w.
DEVICE Formula formula_of(const Block &w)
{
	Formula f;
	UNROLL for (int half = 0; half < HALVES; half++)
		f.factor[half] = factor(w, 0, half) * (1.0f / RAISED), f.addend[half] = addend_of(w, 0, half);
	return f;
}

constexpr DEVICE uint32_t in_all_bytes(int b) { return (b & 255) * 0x01010101u; }

// Returns the bits of four raised quants that are flipped to subtract their offset. some is not negative, which the compiler does not know, so
// the result stays in a register: then one instruction takes bits by a constant and flips these, while it cannot have two constants.
DEVICE uint32_t bits_of_offset(int some) { return OFFSET == 0 ? 0 : 0x80808080u + (uint32_t(some) >> 31); }

// Returns v rotated left by so many bits, or right if by is negative.
DEVICE uint32_t rotate(uint32_t v, int by)
{
#ifdef EMU
	return v << (by & 31) | v >> (-by & 31);
#else
	return __funnelshift_l(v, v, by);
#endif
}

// Returns the bits of a in MASK, and those of b elsewhere, in one instruction.
template <uint32_t MASK> DEVICE uint32_t select(uint32_t a, uint32_t b)
{
#ifdef EMU
	return (a & MASK) | (b & ~MASK);
#else
	uint32_t v;
	asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(v) : "r"(a), "r"(b), "n"(MASK));
	return v;
#endif
}

// Returns where a lane's inputs are in the 16 bytes of quants of an output.
DEVICE int in_quants() { return lane_id() % 4 / 2 * (CHUNKS == 2 ? 8 : 4); }

#if CHUNKS == 1 && !defined(CODES)

// Returns the values of the four quants whose lower four bits begin at bit at, 0 or 4, of each byte of word. Rotating high left by up moves
// their upper bits, if there are any, to bit 4. offset: bits_of_offset.
DEVICE uint32_t values_of(uint32_t word, int at, [[maybe_unused]] uint32_t high, [[maybe_unused]] int up, uint32_t offset)
{
	constexpr uint32_t four = in_all_bytes(0x0f << RAISED_BITS);
	uint32_t bits = rotate(word, RAISED_BITS - at);
#if HIGH_BYTES > 0
	bits = select<four>(bits, rotate(high, RAISED_BITS + up));
	return (bits & in_all_bytes((HIGH_BYTES == 4 ? 0x1f : 0x3f) << RAISED_BITS)) ^ offset;
#else
	return (bits & four) ^ offset;
#endif
}

#endif

// Returns the fragment, from a lane's part of 16 bytes of quants (in_quants), at quants + 8 · half if CHUNKS is 1, and from the upper bits
// of the output's block. offset: bits_of_offset.
DEVICE uint32_t fragment_of(Address quants, [[maybe_unused]] Address high, [[maybe_unused]] int half, [[maybe_unused]] uint32_t offset)
{
	[[maybe_unused]] const int group = lane_id() % 4 / 2, odd = lane_id() & 1;
#if CHUNKS == 2
	const uint2 words = load_shared<uint2>(quants);
	return __byte_perm(words.x, words.y, odd ? 0x7351 : 0x6240) ^ offset;
#else
	const uint32_t word = load_shared<uint32_t>(quants + half * 8);
#if defined(CODES)
	return __byte_perm(look_up(word, false), look_up(word, true), odd ? 0x7531 : 0x6420);
#elif HIGH_BYTES == 4 // in the order of byte_high of matmul.cu
	return values_of(word, odd * 4, load_shared<uint32_t>(high), odd * 4 - (2 * half + group), offset);
#elif HIGH_BYTES == 8
	return values_of(word, odd * 4, load_shared<uint32_t>(high + half * 4), group ? 2 + odd * 2 : -odd * 2, offset);
#else
	return values_of(word, odd * 4, 0, 0, offset);
#endif
#endif
}

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
