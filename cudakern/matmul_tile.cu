// The product of matmul.cu for many rows, with the same bits: a block of threads multiplies
// 128 rows with 64 outputs, a thread 8 with 4.
//
// In matmul.cu lane l adds up block l of every tile, and the lanes' sums are added in a
// tree: neighbours first, then those 2, 4, 8 and 16 lanes apart. Here a thread computes the
// sum of one lane after the other of all its rows and outputs, and adds them up as a binary
// counter is counted up: sums of 1, 2, 4, 8 and 16 lanes wait for the next ones of as many.
// They wait in local memory; a model's width makes that 2 words for 128 products or more.
//
// 16 words of a block, float or pairs of int16, are multiplied at a time, from shared
// memory, while the threads load the next ones, which they unpack then into the other of
// two buffers: a weight is read and unpacked once for 128 rows. In shared memory a word's
// rows, and its outputs, follow each other; those of its quad q, 4 words, change places
// (at i lies i ^ 8q), so that 8 rows or outputs of 4 quads are stored to 32 banks.
//
// Images are flat (activation.cuh). Grid: (groups of 128 rows, outputs / 64 of all
// products). PRECOND: blockDim = 256, shared memory for SHARED_WORDS words.
#include "activation.cuh"
#include "format.cuh"
#include "product.cuh"

enum { ROWS = 128, OUTPUTS = 64, WORDS = 16, QUADS = WORDS / 4, MINE_ROWS = 8, MINE_OUTPUTS = 4 };
enum { LEVELS = 5 }; // of the tree: 2^5 lanes

// ---------------------------------------------------------------------------------------
// Number paths
//
//	Word     of weights and of activations in shared memory
//	Sum      of products
//	UNITS    of an image, NUMBERS the unit where the numbers of its blocks begin
//	STAGES   of a block, WORDS words each
//	SCALED   whether the activations have scales, which come before their sums
//	add      sum + the products of two words
//	start    what a sum begins with, for activations with the sum x: words of weights are
//	         OFFSET + BIAS too large
//	unpack   words 4q … 4q+3 of a stage

#if defined(WEIGHT_F32)
enum { RAW_WORDS = 4 };
#elif defined(WEIGHT_F16) || defined(WEIGHT_Q8_0)
enum { RAW_WORDS = 2 };
#else
enum { RAW_WORDS = 1 };
#endif

// What a thread unpacks of an output: a quad of a stage.
struct Raw {
	uint32_t quants[RAW_WORDS];
	Block<1> block; // its scales, and of Q6_K the upper bits
};

struct F32 {
	typedef float Word;
	typedef float Sum;
	enum { UNITS = F32_UNITS, CHUNK_UNITS = F32_CHUNKS, NUMBERS = F32_SUMS, STAGES = BLOCK_INPUTS / WORDS, SCALED = false };

	DEVICE void add(float &sum, float w, float x) { sum = fmaf(w, x, sum); }
	DEVICE float start(float x) { return OFFSET + BIAS == 0 ? 0 : -(OFFSET + BIAS) * x; }

	// Where a quad's quants begin.
	DEVICE int quants_of(int blocks, int output, int block, int stage, int quad)
	{
#if defined(WEIGHT_F32)
		return quants_at(blocks, output, stage * QUADS + quad, block);
#elif defined(WEIGHT_F16)
		return quants_at(blocks, output, stage * QUADS / 2 + quad / 2, block) + quad % 2 * 8;
#elif defined(WEIGHT_Q8_0)
		return quants_at(blocks, output, stage, block) + quad * 4;
#else
		return quants_at(blocks, output, 0, block) + (stage * QUADS + quad) / 2 * 4;
#endif
	}

	DEVICE void unpack(const Raw &w, [[maybe_unused]] int quad, float v[4])
	{
#if defined(WEIGHT_F32)
		memcpy(v, w.quants, 16);
#elif defined(WEIGHT_F16)
		UNROLL for (int i = 0; i < 4; i++)
			v[i] = half_to_float(uint16_t(w.quants[i / 2] >> 16 * (i % 2)));
#elif defined(WEIGHT_Q8_0)
		widen_bytes(w.quants[0], v);
#else
		uint32_t even = w.quants[0] & 0x0f0f0f0f, odd = w.quants[0] >> 4 & 0x0f0f0f0f;
#if defined(WEIGHT_Q6_K)
		const uint32_t high = w.block.high[0][0];
		even |= (quad < 2 ? high : high << 2) & 0x30303030;
		odd |= (quad < 2 ? high >> 2 : high << 4) & 0x30303030;
#endif
		widen_nibbles(even, odd, quad % 2, v);
#endif
	}
};

#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16)

struct I16 {
	typedef uint32_t Word;
	typedef int Sum;
	enum { UNITS = I16_UNITS, CHUNK_UNITS = I16_CHUNKS, NUMBERS = I16_SCALES, STAGES = 1, SCALED = true };

	DEVICE void add(int &sum, uint32_t w, uint32_t x) { add_products(sum, w, x); }
	DEVICE int start(int) { return 0; } // words are less OFFSET

	DEVICE int quants_of(int blocks, int output, int block, int, int quad)
	{
#if defined(WEIGHT_Q8_0)
		return quants_at(blocks, output, quad / 2, block) + quad % 2 * 8;
#else
		return quants_at(blocks, output, 0, block) + quad * 4;
#endif
	}

	DEVICE void unpack(const Raw &w, [[maybe_unused]] int quad, uint32_t v[4])
	{
		UNROLL for (int i = 0; i < 4; i++) {
#if defined(WEIGHT_Q8_0)
			v[i] = w.quants[i / 2] >> 8 * (i % 2) & 0x00ff00ff;
#else
			v[i] = w.quants[0] >> 4 * i & 0x000f000f;
#endif
#if defined(WEIGHT_Q6_K)
			v[i] |= (w.block.high[0][0] >> high_bit(quad % 2 * 4 + i) & 0x00030003) << 4;
#endif
			// Both halves less OFFSET: the upper bits keep the lower half from borrowing.
			if (OFFSET != 0)
				v[i] = ((v[i] | 0x80008000) - OFFSET * 0x00010001) ^ 0x80008000;
		}
	}
};

#endif

// Loads a quad of a stage of an output's block.
template <typename Path> DEVICE void load_raw(Raw &w, const uint8_t *tile, int blocks, int output, int block, int stage, int quad)
{
	const uint8_t *const quants = tile + Path::quants_of(blocks, output, block, stage, quad);
	if constexpr (RAW_WORDS == 4) {
		const uint4 v = ldg128(quants);
		memcpy(w.quants, &v, sizeof v);
	} else if constexpr (RAW_WORDS == 2 && (SCALE_BYTES == 0 || Path::STAGES == 1)) {
		const uint2 v = ldg64(quants);
		memcpy(w.quants, &v, sizeof v);
	} else {
		w.quants[0] = ldg32(quants);
	}
#if defined(WEIGHT_Q6_K)
	w.block.high[0][0] = ldg32(tile + high_at(blocks, output, block) + (Path::STAGES == 1 ? quad / 2 : stage) * 4);
#endif
#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16)
	load_scales(w.block, tile, blocks, output, block);
#endif
}

// ---------------------------------------------------------------------------------------
// Shared memory, in words

enum {
	X_AT = 0,                               // (2 buffers, WORDS, ROWS)
	WEIGHTS_AT = X_AT + 2 * WORDS * ROWS,   // (2 buffers, WORDS, OUTPUTS)
	NUMBERS_AT = WEIGHTS_AT + 2 * WORDS * OUTPUTS, // (2 blocks, 3, ROWS) as in an image
	SCALES_AT = NUMBERS_AT + 2 * 3 * ROWS,  // (2 blocks, 2 halves, OUTPUTS) part_scale
	MINIMA_AT = SCALES_AT + 2 * 2 * OUTPUTS, // (2 blocks, OUTPUTS) -minimum
	RESULT_AT = MINIMA_AT + 2 * OUTPUTS,    // a Result
	SHARED_WORDS = RESULT_AT + 4
};

// Where the block's result goes, which need not be in registers all the time.
struct Result {
	float *dst; // of the first row and output
	int outputs, left; // of all and from the first one on
};

DEVICE void load_quad(float v[4], const uint32_t *from)
{
	const uint4 words = *reinterpret_cast<const uint4 *>(from);
	memcpy(v, &words, sizeof words);
}

DEVICE void load_quad(uint32_t v[4], const uint32_t *from)
{
	const uint4 words = *reinterpret_cast<const uint4 *>(from);
	memcpy(v, &words, sizeof words);
}

DEVICE void load_quad(int v[4], const uint32_t *from)
{
	const uint4 words = *reinterpret_cast<const uint4 *>(from);
	memcpy(v, &words, sizeof words);
}

// A thread's rows: 4 from row on, and 4 that lie ROWS / 2 behind.
template <typename T> DEVICE void load_rows(T v[MINE_ROWS], const uint32_t *from)
{
	load_quad(v, from);
	load_quad(v + 4, from + ROWS / 2);
}

// ---------------------------------------------------------------------------------------
// The product

typedef float Sums[MINE_ROWS][MINE_OUTPUTS];

// threadIdx.x, of which the compiler does not know that it stays the same: so it computes
// addresses anew where they are needed, instead of keeping them in registers.
DEVICE int thread(void)
{
#ifdef EMU
	return threadIdx.x;
#else
	int id;
	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(id));
	return id;
#endif
}

#if defined(WEIGHT_Q4_K)

// acc -= what the minima take off.
template <typename Path> DEVICE void less_minima(Sums &acc, const uint32_t *numbers, const uint32_t *minima_at)
{
	float minima[MINE_OUTPUTS], x_scales[MINE_ROWS];
	typename Path::Sum sums[MINE_ROWS];
	load_quad(minima, minima_at);
	load_rows(sums, numbers + (Path::SCALED ? ROWS : 0));
	if (Path::SCALED)
		load_rows(x_scales, numbers);
	UNROLL for (int i = 0; i < MINE_ROWS; i++) {
		const float sum = Path::SCALED ? x_scales[i] * float(sums[i]) : float(sums[i]);
		UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
			acc[i][o] = fmaf(minima[o], sum, acc[i][o]);
	}
#ifndef EMU
	asm volatile("" ::: "memory"); // nothing is loaded meanwhile, for which there are no registers
#endif
}

#endif

// dot += the products of a stage. A sum begins and ends with a part of the block, and is
// then added to acc. block: 0 or 1, where the block's numbers are in shared memory.
template <typename Path>
DEVICE void multiply(Sums &acc, typename Path::Sum (&dot)[MINE_ROWS][MINE_OUTPUTS], const uint32_t *shared, int buffer, int block, int stage, int row, int output)
{
	const int PART = Path::STAGES * QUADS / HALVES, SPAN = PART < QUADS ? PART : QUADS; // quads of a part, and of it in a stage
	const uint32_t *const x = shared + X_AT + buffer * WORDS * ROWS, *const weights = shared + WEIGHTS_AT + buffer * WORDS * OUTPUTS;
	const uint32_t *const numbers = shared + NUMBERS_AT + block * 3 * ROWS + row;
	const uint32_t *const sums = numbers + (Path::SCALED ? ROWS : 0);
	_Pragma("unroll 1") for (int span = 0; span < QUADS / SPAN; span++) {
		const int half = HALVES == 1 ? 0 : Path::STAGES == 1 ? span : stage;
		if (PART <= QUADS || stage == 0) {
#if defined(WEIGHT_Q4_K)
			less_minima<Path>(acc, numbers, shared + MINIMA_AT + block * OUTPUTS + output);
#endif
			typename Path::Sum all[MINE_ROWS] = {};
			if (!Path::SCALED && OFFSET + BIAS != 0) {
				load_rows(all, sums);
				if (HALVES == 2) {
					typename Path::Sum low[MINE_ROWS];
					load_rows(low, sums + ROWS);
					UNROLL for (int i = 0; i < MINE_ROWS; i++)
						all[i] = half == 0 ? low[i] : all[i] - low[i];
				}
			}
			UNROLL for (int i = 0; i < MINE_ROWS; i++)
				UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
					dot[i][o] = Path::start(all[i]);
		}
		_Pragma("unroll 1") for (int quad = span * SPAN; quad < (span + 1) * SPAN; quad++) {
			const uint32_t *const x_at = x + quad * 4 * ROWS + (row ^ 8 * quad), *const weights_at = weights + quad * 4 * OUTPUTS + (output ^ 8 * quad);
			UNROLL for (int word = 0; word < 4; word++) {
				typename Path::Word a[MINE_ROWS], w[MINE_OUTPUTS];
				load_rows(a, x_at + word * ROWS);
				load_quad(w, weights_at + word * OUTPUTS);
				UNROLL for (int i = 0; i < MINE_ROWS; i++)
					UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
						Path::add(dot[i][o], w[o], a[i]);
			}
		}
		if (PART > QUADS && stage == 0)
			continue;
#if defined(WEIGHT_F32) || defined(WEIGHT_F16)
		UNROLL for (int i = 0; i < MINE_ROWS; i++)
			UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
				acc[i][o] += dot[i][o];
#else
		float scales[MINE_OUTPUTS], x_scales[MINE_ROWS];
		if (Path::SCALED)
			load_rows(x_scales, numbers);
		load_quad(scales, shared + SCALES_AT + (block * 2 + half) * OUTPUTS + output);
		UNROLL for (int i = 0; i < MINE_ROWS; i++)
			UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
				acc[i][o] = fmaf(Path::SCALED ? scales[o] * x_scales[i] : scales[o], float(dot[i][o]), acc[i][o]);
#endif
	}
}

template <typename Path>
DEVICE void matmul_tile(const Product &p, int first_output, const uint4 *x, int inputs, bool add, const int *row_count)
{
	SHARED(uint32_t, shared);
	const int first_row = blockIdx.x * ROWS, rows = *row_count;
	if (first_row >= rows)
		return;
	const int blocks = blocks_of(inputs);

	// What the thread loads: a quad of an output and of two rows. Outputs past the last band are
	// never loaded; rows past the last one compute with that one again.
	const int item = threadIdx.x / QUADS;
	const int band = (first_output + item) / BAND_OUTPUTS;
	const bool loads = band * BAND_OUTPUTS < p.outputs;
	const uint8_t *const weights = p.weights + band * band_bytes(blocks);
	const int row_units = tiles_of(blocks) * Path::UNITS;
	const int x0 = min(first_row + item, rows - 1) * row_units, x1 = min(first_row + item + ROWS / 2, rows - 1) * row_units;

	Raw w = {};
	uint4 x_units[2];
	uint32_t numbers[2];
	auto load = [&](int lane, int tile, int stage) {
		const int quad = thread() % QUADS, item = thread() / QUADS;
		if (loads)
			load_raw<Path>(w, weights + tile * tile_bytes(TILE_BLOCKS), blocks_in_tile(blocks, tile), item % BAND_OUTPUTS, lane, stage, quad);
		const int unit = tile * Path::UNITS + lane * Path::CHUNK_UNITS + stage * QUADS + quad;
		x_units[0] = ldg128(x + x0 + unit);
		x_units[1] = ldg128(x + x1 + unit);
		if (quad < (Path::SCALED ? 3 : 2)) {
			const int number = quad * TILE_BLOCKS + lane, at = tile * Path::UNITS + Path::NUMBERS;
			numbers[0] = ldg32(reinterpret_cast<const uint32_t *>(x + x0 + at) + number);
			numbers[1] = ldg32(reinterpret_cast<const uint32_t *>(x + x1 + at) + number);
		}
	};
	auto store = [&](int buffer, int block, int stage) {
		const int quad = thread() % QUADS, item = thread() / QUADS;
		typename Path::Word v[4];
		Path::unpack(w, quad, v);
		UNROLL for (int word = 0; word < 4; word++)
			memcpy(&shared[WEIGHTS_AT + (buffer * WORDS + quad * 4 + word) * OUTPUTS + (item ^ 8 * quad)], &v[word], 4);
		UNROLL for (int i = 0; i < 2; i++) {
			const uint32_t words[4] = {x_units[i].x, x_units[i].y, x_units[i].z, x_units[i].w};
			UNROLL for (int word = 0; word < 4; word++)
				shared[X_AT + (buffer * WORDS + quad * 4 + word) * ROWS + i * ROWS / 2 + (item ^ 8 * quad)] = words[word];
		}
		if (stage > 0)
			return;
		if (quad < 3)
			UNROLL for (int i = 0; i < 2; i++)
				shared[NUMBERS_AT + (block * 3 + quad) * ROWS + i * ROWS / 2 + item] = numbers[i];
#if !defined(WEIGHT_F32) && !defined(WEIGHT_F16)
		if (quad < HALVES) {
			const float scale = part_scale(w.block, 0, quad);
			memcpy(&shared[SCALES_AT + (block * 2 + quad) * OUTPUTS + item], &scale, 4);
		}
#endif
#if defined(WEIGHT_Q4_K)
		const float lowest = -minimum(w.block, 0);
		if (quad == 0)
			memcpy(&shared[MINIMA_AT + block * OUTPUTS + item], &lowest, 4);
#endif
	};

	// What the thread multiplies: lanes of a warp have 4 times 8 rows and 8 times 4 outputs.
	const int row = (warp_id() % 4 * 4 + lane_id() / 8) * 4, output = (warp_id() / 4 * 8 + lane_id() % 8) * MINE_OUTPUTS;
	Sums acc;
	typename Path::Sum dot[MINE_ROWS][MINE_OUTPUTS];
	float4 waiting[LEVELS][MINE_ROWS];
	if (threadIdx.x == 0)
		*reinterpret_cast<Result *>(shared + RESULT_AT) = {p.dst + size_t(first_row) * p.outputs + first_output, p.outputs, p.outputs - first_output};
	int turn = 0;
	load(0, 0, 0);
	store(0, 0, 0);
	syncthreads();
	_Pragma("unroll 1") for (int lane = 0; lane < WARP; lane++) {
		UNROLL for (int i = 0; i < MINE_ROWS; i++)
			UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
				acc[i][o] = 0;
		const int tiles = tiles_of(blocks - lane); // that have the lane's block
		int tile = 0, stage = 0;
		_Pragma("unroll 1") while (tile < tiles) {
			int next_lane = lane, next_tile = tile, next_stage = stage + 1;
			if (next_stage == Path::STAGES) {
				next_stage = 0;
				if (++next_tile == tiles)
					next_tile = 0, next_lane++;
			}
			const bool more = next_lane < WARP && next_tile < tiles_of(blocks - next_lane);
			if (more)
				load(next_lane, next_tile, next_stage);
			multiply<Path>(acc, dot, shared, turn % 2, turn / Path::STAGES % 2, stage, row, output);
			turn++;
			if (more)
				store(turn % 2, turn / Path::STAGES % 2, next_stage);
			syncthreads();
			if (next_lane > lane)
				break;
			tile = next_tile, stage = next_stage;
		}
		int level = 0;
		_Pragma("unroll 1") for (; lane >> level & 1; level++)
			UNROLL for (int i = 0; i < MINE_ROWS; i++) {
				const float4 before = waiting[level][i];
				acc[i][0] = before.x + acc[i][0];
				acc[i][1] = before.y + acc[i][1];
				acc[i][2] = before.z + acc[i][2];
				acc[i][3] = before.w + acc[i][3];
			}
		if (level < LEVELS)
			UNROLL for (int i = 0; i < MINE_ROWS; i++)
				waiting[level][i] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
	}

	const Result result = *reinterpret_cast<const Result *>(shared + RESULT_AT);
	const int left = *row_count - blockIdx.x * ROWS; // rows
	UNROLL for (int i = 0; i < MINE_ROWS; i++) {
		const int to = row + i % 4 + i / 4 * (ROWS / 2);
		UNROLL for (int o = 0; o < MINE_OUTPUTS; o++)
			if (to < left && output + o < result.left) {
				float *const dst = result.dst + size_t(to) * result.outputs + output + o;
				*dst = add ? *dst + acc[i][o] : acc[i][o];
			}
	}
}

#define PRODUCT(weight, name, path) PRODUCT_NAMED(weight, name, path)
#define PRODUCT_NAMED(weight, name, path) PRODUCT_KERNEL(matmul_##weight##_##name##_tile, 2, OUTPUTS, matmul_tile<path>)

#if defined(WEIGHT_F32) || defined(WEIGHT_F16)
PRODUCT(WEIGHT, float, F32)
#else
PRODUCT(WEIGHT, i16, I16)
PRODUCT(WEIGHT, magic, F32)
#endif
