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
// mma_few.cuh, and the sums are added in the tree of matmul.cu.
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
		const uint32_t other = shfl_xor(odd ? pairs.x : pairs.y, 1);
		store_word(unit, row, eighth, odd, odd ? other : pairs.x, odd ? pairs.y : other);
	}
}

// Sets first and second to a lane's two words of values of an output among eight of a pair of bands.
DEVICE void row_fragment(uint32_t &first, uint32_t &second, Address bands, int output, int block)
{
	const Address band = bands + output / BAND_OUTPUTS * FEW_BAND;
	[[maybe_unused]] const int lane = lane_id() % 4;
#if CHUNKS == 2
	first = without_offset(load_shared<uint32_t>(band + few_quants_at(output, 0, block) + lane * 4));
	second = without_offset(load_shared<uint32_t>(band + few_quants_at(output, 1, block) + lane * 4));
#else
	if (HALVES == 2) {
		const Address quants = band + few_quants_at(output, 0, block) + in_quants(), high = band + few_high_at(output, block);
		first = fragment_of(quants, high, 0), second = fragment_of(quants, high, 1);
		return;
	}
	const uint32_t word = load_shared<uint32_t>(band + few_quants_at(output, 0, block) + lane * 4);
#if defined(CODES)
	const uint32_t low = look_up(word, false), high = look_up(word, true);
	first = __byte_perm(low, high, 0x6420), second = __byte_perm(low, high, 0x7531);
#else
	[[maybe_unused]] const uint32_t high = HIGH_BYTES == 4 ? load_shared<uint32_t>(band + TILE_HIGH + (block * BAND_OUTPUTS + output % BAND_OUTPUTS) * HIGH_BYTES) : 0;
	first = values_of(word, 0, high, -lane), second = values_of(word, 4, high, 4 - lane);
#endif
#endif
}

// acc[output tile of 16][2] += the weights of a block · a unit: a lane has outputs lane / 4 and 8 more of row lane % 4.
DEVICE void multiply_unit(float (&acc)[FEW_OUTPUTS / 16][2], Address stage, Address unit, int block)
{
	const int lane = lane_id();
	const uint2 values = load_shared<uint2>(unit + lane * 8);
	const uint32_t b[2] = {values.x, values.y};
	const Address of_rows = unit + UNIT_VALUES + lane % UNIT_ROWS * 4;
	const float scale = load_shared<float>(of_rows);
	// The four lanes with the same lane / 4 need the factors of the same four outputs: each lane computes those of one.
	const Formula own = formula_of(stage + (lane % 4 * 2 + lane / 16) * FEW_BAND, block, lane / 4 % BAND_OUTPUTS);
	UNROLL for (int n = 0; n < FEW_OUTPUTS / 16; n++) {
		uint32_t a[4];
		UNROLL for (int i = 0; i < 2; i++)
			row_fragment(a[i], a[2 + i], stage + (n * 4 + i * 2) * FEW_BAND, lane / 4, block);
		UNROLL for (int half = 0; half < HALVES; half++) {
			int dot[4];
			if (HALVES == 1)
				MMA_ALL("s8", int8_t, dot, a, b);
			else if (half == 0)
				MMA_HALF("s8", int8_t, dot, a, b, 0);
			else
				MMA_HALF("s8", int8_t, dot, a, b, 1);
			UNROLL for (int i = 0; i < 2; i++) {
				const float factor = shfl_among<28>(own.factor[half], n * 2 + i);
				if (HAS_ADDEND)
					acc[n][i] = fmaf(shfl_among<28>(own.addend[half], n * 2 + i), load_shared<float>(of_rows + (1 + half) * UNIT_ROWS * 4), acc[n][i]);
				acc[n][i] = fmaf(factor * scale, float(dot[2 * i] * 256 + dot[2 * i + 1]), acc[n][i]);
			}
		}
	}
}

#endif
