// Products of up to 4 rows by matrix units, for matmul_row.cu: the weights of 16 outputs are the rows of a matrix product, and its 8
// columns are the upper and lower bytes of 4 rows of activations. So one instruction multiplies a block of 16 outputs.
//
// Activations are in shared memory as units, one for each block of inputs. A value is 256 · upper + lower, both signed: unlike in the image
// s8, where lower bytes are unsigned, because all columns of an instruction have the same type.
//
//	values  [column][lane % 4][word]  4 bytes: of row column / 2, upper bytes if column is even; in_unit says which
//	scale   [row]   float
//	sum     [half][row]  float: sum · scale of a part of a block that has its own addend
//
// Warp w of a thread block takes the blocks of lanes w, w + 8, w + 16 and w + 24 of every tile, with an accumulator for each lane, as in
// mma_few.cu, and the sums are added in the tree of matmul.cu.
#pragma once

#include "mma_tiles.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

enum { UNIT_ROWS = 4, UNIT_VALUES = 2 * UNIT_ROWS * BLOCK_INPUTS, UNIT_BYTES = UNIT_VALUES + 3 * 4 * UNIT_ROWS };

// Of eight inputs, number eighth in a block, the first word has {0, 4, 1, 5} and the second {2, 6, 3, 7}, as the quants in a word of weights
// are; with quants of 8 bits {0, 2, 1, 3} and {4, 6, 5, 7}. Returns where the upper bytes of a word of a row are in a unit; the lower
// ones are UNIT_LOWER behind. If both parts of a block have their own scale, or quants 8 bits, the first word of each lane is of inputs
// below 16, else both words are of the lane's eight.
enum { UNIT_LOWER = 32, SPLITS = HALVES == 2 || CHUNKS == 2 };
DEVICE int in_unit(int row, int eighth, int word)
{
	const int lane = SPLITS ? eighth % 2 * 2 + word : eighth, of_lane = SPLITS ? eighth / 2 : word;
	return row * 2 * UNIT_LOWER + lane * 8 + of_lane * 4;
}

// Stores the four values of two words, which are neighbours if quants have 8 bits.
DEVICE void store_word(uint8_t *unit, int row, int eighth, int word, uint32_t first, uint32_t second)
{
	// The lower byte as a signed one is 256 less where it is 128 or more, so the upper one is 1 more there. No value is over 32512.
	const auto upper = [](uint32_t pair) { return ((pair & 0x7fff7fff) + 0x00800080) ^ (pair & 0x80008000); };
	uint8_t *const at = unit + in_unit(row, eighth, word);
	*reinterpret_cast<uint32_t *>(at) = __byte_perm(upper(first), upper(second), 0x7351);
	*reinterpret_cast<uint32_t *>(at + UNIT_LOWER) = __byte_perm(first, second, 0x6240);
}

DEVICE void store_sums(uint8_t *unit, int row, float scale, int sum, int low)
{
	float *const of_rows = reinterpret_cast<float *>(unit + UNIT_VALUES) + row;
	of_rows[0] = scale;
	UNROLL for (int half = 0; half < HALVES; half++) {
		const int of_half = HALVES == 1 ? sum : half == 0 ? low : sum - low;
		if (HAS_ADDEND)
			of_rows[(1 + half) * UNIT_ROWS] = scale * float(of_half);
	}
}

// Stores four values of a row, those of inputs 4 · (lane % 8) … of a block.
DEVICE void store_four(uint8_t *unit, int row, uint2 pairs)
{
	const int eighth = lane_id() % 8 / 2;
	const bool odd = lane_id() & 1;
	if (CHUNKS == 2)
		store_word(unit, row, eighth, odd, pairs.x, pairs.y);
	else {
		const uint2 words = exchanged(pairs);
		store_word(unit, row, eighth, odd, words.x, words.y);
	}
}

// The orders of words in units, for products that other kernels write them for: that of quants of up to four bits with one scale in a block, with two of
// them, or of quants of 8 bits. The rest of a unit is the same, but for sums that are not read without an addend.
enum { NO_UNITS = -1, WHOLE_ORDER, HALVES_ORDER, BYTES_ORDER };

// Writes a row's block of a unit, for products with that order; v is the lane's activation.
DEVICE void write_unit(uint8_t *unit, int row, int order, float v)
{
	const int lane = lane_id(), eighth = lane / 4 % 4, word = lane / 2 % 2, apart = order == BYTES_ORDER ? 2 : 4;
	const bool lower = lane & 1;
	float scale;
	const int q = quantize(v, &scale);
	const int half = sum_of_half(q), low = shfl(half, 0), high = shfl(half, 16);
	// Lanes 0 to 15 each store a word.
	uint32_t bytes = 0;
	UNROLL for (int i = 0; i < 4; i++) {
		const int of = shfl(q, eighth * 8 + word * (8 / apart) + i % 2 * apart + i / 2);
		bytes |= (uint32_t(lower ? of : (of + 128) >> 8) & 255) << 8 * i;
	}
	const int of_lane = order == WHOLE_ORDER ? word : eighth / 2, to = order == WHOLE_ORDER ? eighth : eighth % 2 * 2 + word;
	if (lane < 16)
		*reinterpret_cast<uint32_t *>(unit + row * 2 * UNIT_LOWER + lower * UNIT_LOWER + to * 8 + of_lane * 4) = bytes;
	float *const of_rows = reinterpret_cast<float *>(unit + UNIT_VALUES) + row;
	if (lane == 0) {
		of_rows[0] = scale;
		of_rows[UNIT_ROWS] = scale * float(order == HALVES_ORDER ? low : low + high);
		of_rows[2 * UNIT_ROWS] = scale * float(high);
	}
}

// Sets first and second to a lane's two words of values of output lane / 4 of the eight of a pair of bands, in block i of the warp.
DEVICE void row_fragment(uint32_t &first, uint32_t &second, Address tile, const InTile &at, int pair, int i)
{
	[[maybe_unused]] const int lane = lane_id() % 4;
	[[maybe_unused]] const Address quants = quants_of(tile, at, pair, 0, i), high = high_of(tile, at, pair, i);
#if CHUNKS == 2
	first = load_shared<uint32_t>(quants + lane * 4) ^ at.offset;
	second = load_shared<uint32_t>(quants_of(tile, at, pair, 1, i) + lane * 4) ^ at.offset;
#else
	if (HALVES == 2) {
		first = fragment_of(quants + in_quants(), high, 0, at.offset), second = fragment_of(quants + in_quants(), high, 1, at.offset);
		return;
	}
	const uint32_t word = load_shared<uint32_t>(quants + lane * 4);
#if defined(CODES)
	const uint32_t low = look_up(word, false), upper = look_up(word, true);
	first = __byte_perm(low, upper, 0x6420), second = __byte_perm(low, upper, 0x7531);
#else
	const uint32_t bits = HIGH_BYTES == 4 ? load_shared<uint32_t>(high) : 0;
	first = values_of(word, 0, bits, -lane, at.offset), second = values_of(word, 4, bits, 4 - lane, at.offset);
#endif
#endif
}

// acc[output tile of 16][2] += the weights of block i of the warp · a unit: a lane has outputs lane / 4 and 8 more of row lane % 4.
DEVICE void multiply_unit(float (&acc)[FEW_OUTPUTS / 16][2], Address tile, const InTile &at, Address unit, int i)
{
	const int lane = lane_id();
	const uint2 values = load_shared<uint2>(unit + lane * 8);
	const uint32_t b[2] = {values.x, values.y};
	const Address of_rows = unit + UNIT_VALUES + lane % UNIT_ROWS * 4;
	const float scale = load_shared<float>(of_rows);
	const Formula own = formula_of_lane(tile, at, i);
	UNROLL for (int n = 0; n < FEW_OUTPUTS / 16; n++) {
		uint32_t a[4];
		UNROLL for (int eight = 0; eight < 2; eight++)
			row_fragment(a[eight], a[2 + eight], tile, at, n * 2 + eight, i);
		UNROLL for (int half = 0; half < HALVES; half++) {
			int dot[4];
			mma_signed(dot, a, b, half);
			UNROLL for (int eight = 0; eight < 2; eight++) {
				float &to = acc[n][eight];
				const float factor = of_output(own.factor[half], n * 2 + eight);
				if (HAS_ADDEND)
					to = fmaf(of_output(own.addend[half], n * 2 + eight), load_shared<float>(of_rows + (1 + half) * UNIT_ROWS * 4), to);
				to = fmaf(factor * scale, float(dot[2 * eight] * 256 + dot[2 * eight + 1]), to);
			}
		}
	}
}

#endif
