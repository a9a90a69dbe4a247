// Products of many rows on GPUs whose fastest units are those of sm_52, with the bits of matmul.cu.
//
// A thread block computes 64 rows × 128 outputs, a thread 8 × 8 of them. It takes the blocks of inputs in the order of leaves.cuh and unpacks each to
// shared memory, while other thread blocks of the multiprocessor multiply. So a weight is unpacked once for 64 rows, and four loads from shared
// memory suffice for 64 products. The sums of all levels of the tree wait in local memory: for a leaf, about 64 are stored and 64 loaded.
//
// A word of shared memory is an input as float where all sums of products of a part of a block are exact so, because they have 24 bits at most. Else
// it is two inputs as int16. XMAD and FFMA have the same rate on sm_52, but sums that are float need not be converted, and on later GPUs only FFMA has that rate.
//
// Grid: (blocks of rows, blocks of outputs of all products, parts). Launch with MANY_THREADS threads and MANY_SHARED bytes of shared memory.
#include "leaves.cuh"
#include "math.cuh"
#include "products.cuh"

enum { MANY_ROWS = 64, MANY_OUTPUTS = 128, MANY_THREADS = 128, MANY_BLOCKS = 3, MANY_SHARED = 27 << 10 };

// ---------------------------------------------------------------------------------------
// Words of shared memory: inputs 2p and 2p + 1 of a row, and of output 0 of w, are EACH words. multiply returns onto plus the product of a row's word
// with an output's.

struct Floats {
	typedef float Dot;
	enum { EACH = 2 };

	DEVICE void activations(uint32_t (&words)[EACH], uint32_t pair)
	{
		words[0] = float_to_bits(float(int16_t(pair))), words[1] = float_to_bits(float(int16_t(pair >> 16)));
	}

	// The bits of 2²³ + i, for i < 2¹⁶, are those of 2²³ and i.
	DEVICE void weights(uint32_t (&words)[EACH], const Block &w, int p)
	{
		const uint32_t both = pair(w, 0, p), bits = 0x4b000000;
		const float factor = p % 2 ? 1.0f / (1 << ODD_SHIFT) : 1.0f, offset = 8388608.0f * factor + OFFSET;
		words[0] = float_to_bits(fmaf(bits_to_float(__byte_perm(both, bits, 0x7410)), factor, -offset));
		words[1] = float_to_bits(fmaf(bits_to_float(__byte_perm(both, bits, 0x7432)), factor, -offset));
	}

	DEVICE Dot multiply(uint32_t a, uint32_t b, Dot onto) { return fmaf(bits_to_float(a), bits_to_float(b), onto); }
};

struct Pairs {
	typedef int Dot;
	enum { EACH = 1 };

	DEVICE void activations(uint32_t (&words)[EACH], uint32_t pair) { words[0] = pair; }
	DEVICE void weights(uint32_t (&words)[EACH], const Block &w, int p) { words[0] = pair(w, 0, p) >> (p % 2 ? ODD_SHIFT : 0); }

	DEVICE Dot multiply(uint32_t a, uint32_t b, Dot onto)
	{
		add_products(onto, a, b);
		return onto;
	}
};

template <bool> struct WordsOf { typedef Pairs Type; };
template <> struct WordsOf<true> { typedef Floats Type; };

#if CHUNKS == 1 && !defined(CODES)
enum { MOST = (16 << HIGH_BYTES / 4) - 1 - OFFSET, MOST_VALUE = MOST > OFFSET ? MOST : OFFSET };
typedef WordsOf<MOST_VALUE * 32512 * (BLOCK_INPUTS / HALVES) <= 1 << 24> Chosen; // 32512: activation.cuh
#else
typedef WordsOf<false> Chosen;
#endif

typedef Chosen::Type Words;
enum { IS_FLOAT = Words::EACH == 2, BLOCK_WORDS = BLOCK_INPUTS / 2 * Words::EACH, HAS_START = !IS_FLOAT && OFFSET != 0, HAS_SUMS = HAS_ADDEND || HAS_START };

// ---------------------------------------------------------------------------------------
// A block of inputs of the rows and outputs in shared memory, in 4-byte words

enum {
	AT_X = 0,                                      // [word][row]
	AT_W = AT_X + BLOCK_WORDS * MANY_ROWS,         // [word][output]
	AT_SCALES = AT_W + BLOCK_WORDS * MANY_OUTPUTS, // [row] float
	AT_SUMS = AT_SCALES + MANY_ROWS,               // [half][row] scale · sum of the activations, as float; with HAS_START int: what dots begin with
	AT_FACTORS = AT_SUMS + (HAS_SUMS ? HALVES * MANY_ROWS : 0), // [half][output] float
	AT_ADDENDS = AT_FACTORS + HALVES * MANY_OUTPUTS,                           // the same
	AT_END = AT_ADDENDS + (HAS_ADDEND ? HALVES * MANY_OUTPUTS : 0),
};

static_assert(AT_END * 4 <= MANY_SHARED, "a block of inputs needs more shared memory than there is");
static_assert(!(HAS_ADDEND && HAS_START), "sums are needed twice");

// What a thread copies of every block: an output of the weights, and half of a row of activations.
struct Source {
	const uint8_t *band;
	const uint4 *image; // of the first tile of its row
	int blocks;         // of a row
};

// Copies block number block of a row of blocks to a stage.
DEVICE void copy_block(uint32_t *stage, const Source &from, unsigned block)
{
	const int thread = threadIdx.x, row = thread % MANY_ROWS, output = thread % BAND_OUTPUTS;
	const int tile = block / TILE_BLOCKS, lane = block % TILE_BLOCKS, in_tile = blocks_in_tile(from.blocks, tile);
	const uint8_t *const at = from.band + uint32_t(tile) * tile_bytes(TILE_BLOCKS); // a band is smaller than 4 GB
	Block w;                                                                        // of output 0 of the 4
	UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
		const uint4 v = ldg128(at + quants_at(in_tile, output, chunk, lane));
		memcpy(&w.quants[0][4 * chunk], &v, sizeof v);
	}
#if HIGH_BYTES == 4
	w.high[0][0] = ldg32(at + high_at(in_tile, 0, lane) + output * 4);
#elif HIGH_BYTES == 8
	const uint2 high = ldg64(at + high_at(in_tile, output, lane));
	memcpy(w.high[0], &high, sizeof high);
#endif
	w.scales[0] = load_scales<SCALE_BYTES>(at + scales_at(in_tile, lane) + output * SCALE_BYTES);
#if SUPER_BYTES > 0
	w.super[0] = load_scales<SUPER_BYTES>(at + super_at(in_tile, lane) + output * SUPER_BYTES);
#endif
	const uint4 *const image = from.image + tile * I16_UNITS;
	uint32_t pairs[8];
	UNROLL for (int i = 0; i < 2; i++) {
		const uint4 v = ldg128(image + (thread / MANY_ROWS * 2 + i) * TILE_BLOCKS + lane);
		memcpy(&pairs[4 * i], &v, sizeof v);
	}

	UNROLL for (int p = 0; p < BLOCK_INPUTS / 2; p++) {
		uint32_t words[Words::EACH];
		Words::weights(words, w, p);
		UNROLL for (int i = 0; i < Words::EACH; i++)
			stage[AT_W + (p * Words::EACH + i) * MANY_OUTPUTS + thread] = words[i];
	}
	UNROLL for (int half = 0; half < HALVES; half++) {
		stage[AT_FACTORS + half * MANY_OUTPUTS + thread] = float_to_bits(factor(w, 0, half));
		if (HAS_ADDEND)
			stage[AT_ADDENDS + half * MANY_OUTPUTS + thread] = float_to_bits(addend_of(w, 0, half));
	}
	UNROLL for (int p = 0; p < 8; p++) {
		uint32_t words[Words::EACH];
		Words::activations(words, pairs[p]);
		UNROLL for (int i = 0; i < Words::EACH; i++)
			stage[AT_X + ((thread / MANY_ROWS * 8 + p) * Words::EACH + i) * MANY_ROWS + row] = words[i];
	}
	if (thread >= MANY_ROWS)
		return;
	const float *const scales = reinterpret_cast<const float *>(image + I16_SCALES) + lane;
	const int *const sums = reinterpret_cast<const int *>(scales) + TILE_BLOCKS;
	const float x_scale = scales[0];
	stage[AT_SCALES + row] = float_to_bits(x_scale);
	UNROLL for (int half = 0; half < (HAS_SUMS ? HALVES : 0); half++) {
		const int sum = HALVES == 1 ? sums[0] : half == 0 ? sums[TILE_BLOCKS] : sums[0] - sums[TILE_BLOCKS];
		stage[AT_SUMS + half * MANY_ROWS + row] = HAS_START ? uint32_t(-OFFSET * sum) : float_to_bits(x_scale * float(sum));
	}
}

// ---------------------------------------------------------------------------------------
// The product

// Where a thread's rows and outputs are among those of the block: the first of four, which are followed by four more APART further on.
enum { ROWS_APART = MANY_ROWS / 2, OUTPUTS_APART = 16 };

DEVICE int row_of_thread(int i) { return (threadIdx.x / 2 % 8) * 4 + i / 4 * ROWS_APART + i % 4; }

DEVICE int output_of_thread(int i)
{
	return warp_id() * 2 * OUTPUTS_APART + (threadIdx.x % 2 + lane_id() / 16 * 2) * 4 + i / 4 * OUTPUTS_APART + i % 4;
}

// Loads the 8 words of the thread's rows or outputs; first is the word of the first of them.
template <typename T> DEVICE void load_eight(T (&v)[8], const uint32_t *first, int apart)
{
	const uint4 both[2] = {*reinterpret_cast<const uint4 *>(first), *reinterpret_cast<const uint4 *>(first + apart)};
	memcpy(v, both, sizeof v);
}

// acc[row][output] += the block of inputs.
DEVICE void multiply_block(float (&acc)[64], const uint32_t *stage, int row, int output)
{
	UNROLL for (int half = 0; half < HALVES; half++) {
		Words::Dot dot[8][8] = {};
		if (HAS_START) {
			int start[8];
			load_eight(start, stage + AT_SUMS + half * MANY_ROWS + row, ROWS_APART);
			UNROLL for (int r = 0; r < 8; r++)
				UNROLL for (int o = 0; o < 8; o++)
					dot[r][o] = start[r];
		}
		const uint32_t *x = stage + AT_X + half * BLOCK_WORDS / 2 * MANY_ROWS + row, *w = stage + AT_W + half * BLOCK_WORDS / 2 * MANY_OUTPUTS + output;
		// All words at once would need more than the instruction cache has.
		for (const uint32_t *const end = x + BLOCK_WORDS / HALVES * MANY_ROWS; x < end; x += 4 * MANY_ROWS, w += 4 * MANY_OUTPUTS)
			UNROLL for (int word = 0; word < 4; word++) {
				uint32_t a[8], b[8];
				load_eight(a, x + word * MANY_ROWS, ROWS_APART);
				load_eight(b, w + word * MANY_OUTPUTS, OUTPUTS_APART);
				UNROLL for (int r = 0; r < 8; r++)
					UNROLL for (int o = 0; o < 8; o++)
						dot[r][o] = Words::multiply(a[r], b[o], dot[r][o]);
			}
		float scales[8], sums[8], factors[8], addends[8];
		load_eight(scales, stage + AT_SCALES + row, ROWS_APART);
		load_eight(factors, stage + AT_FACTORS + half * MANY_OUTPUTS + output, OUTPUTS_APART);
		if (HAS_ADDEND) {
			load_eight(sums, stage + AT_SUMS + half * MANY_ROWS + row, ROWS_APART);
			load_eight(addends, stage + AT_ADDENDS + half * MANY_OUTPUTS + output, OUTPUTS_APART);
		}
		UNROLL for (int r = 0; r < 8; r++)
			UNROLL for (int o = 0; o < 8; o++) {
				float &to = acc[r * 8 + o];
				if (HAS_ADDEND)
					to = fmaf(addends[o], sums[r], to);
				to = fmaf(factors[o] * scales[r], float(dot[r][o]), to);
			}
	}
}

DEVICE void matmul_many(const Product &a, const Product &b, const Product &c, const uint4 *x, int inputs, bool add, const CountedRows &rows, const Parts &parts)
{
	SHARED(uint32_t, stage);
	Source from;
	from.blocks = blocks_of(inputs);
	{
		// Outputs past the last band repeat it, and rows past the last one repeat that; their results are discarded.
		int band;
		const Product p = product_of(a, b, c, &band, MANY_OUTPUTS);
		from.band = p.weights + min(band + int(threadIdx.x) / BAND_OUTPUTS, (p.outputs - 1) / BAND_OUTPUTS) * band_bytes(from.blocks);
		const int row = min(int(blockIdx.x * MANY_ROWS + threadIdx.x % MANY_ROWS), end_of(rows) - 1);
		from.image = x + size_t(row) * tiles_of(from.blocks) * I16_UNITS;
	}

	const int row = row_of_thread(0), output = output_of_thread(0);
	float acc[64], waiting[5][64]; // by level
	for (int leaf = 0; leaf < leaves_of_part(); leaf++) {
		UNROLL for (int i = 0; i < 64; i++)
			acc[i] = 0;
		for (int block = lane_of(first_leaf() + leaf); block < from.blocks; block += TILE_BLOCKS) {
			syncthreads();
			copy_block(stage, from, block);
			syncthreads();
			multiply_block(acc, stage, row, output);
		}
		int level = 0;
		for (; leaf >> level & 1; level++)
			UNROLL for (int i = 0; i < 64; i++)
				acc[i] = waiting[level][i] + acc[i];
		if (level < 5)
			UNROLL for (int i = 0; i < 64; i++)
				waiting[level][i] = acc[i];
	}
	if (gridDim.z > 1 && !add_parts<MANY_THREADS>(acc, parts, reinterpret_cast<uint8_t *>(stage)))
		return;

	int band;
	const Product p = product_of(a, b, c, &band, MANY_OUTPUTS);
	UNROLL for (int r = 0; r < 8; r++) {
		const int to = destination_of(rows, blockIdx.x * MANY_ROWS + row_of_thread(r));
		UNROLL for (int o = 0; o < 8; o++) {
			const int output = band * BAND_OUTPUTS + output_of_thread(o);
			if (to >= 0 && output < p.outputs) {
				float *const dst = p.dst + size_t(to) * p.outputs + output;
				*dst = add ? *dst + acc[r * 8 + o] : acc[r * 8 + o];
			}
		}
	}
}

#define MANY_KERNEL(weight) MANY_KERNEL_NAMED(weight)
#define MANY_KERNEL_NAMED(weight) \
	KERNEL(matmul_##weight##_many, MANY_THREADS, MANY_BLOCKS) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows, float4 *sums, unsigned *arrivals) \
	{ \
		if (int(blockIdx.x) * MANY_ROWS < *rows) \
			matmul_many({dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, x, inputs, add, {rows}, {sums, arrivals}); \
	}

MANY_KERNEL(WEIGHT)
