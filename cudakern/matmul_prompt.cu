// Products of the rows of prompts with F16 weights by matrix units: those of a model file, or what halves.cu makes of others.
//
// A block computes a tile of rows and outputs, a warp a part of it. Weights and activations, the image half, are copied to shared memory in stages of
// 128 bytes of each output and row, of which the next ones are copied while the units multiply one. Tiles of all sizes have one order of sums, so that the
// bits of a row depend neither on their size nor on the other rows: a sum, from 0, becomes that of an instruction with 16 more inputs, tile of weights.cuh after
// tile, in a tile by chunk, in a chunk by block: an instruction has a chunk, eight inputs, of two blocks. half.cu, for rows of answers, has another order, with
// fewer sums one after another. Activations are rounded to halves of a sixteenth, as there.
//
// Grid: (blocks of rows, blocks of outputs of all products). Launch with the shared memory of Tile::BYTES and its threads.
#include "kernel.cuh"
#include "products.cuh"

#include "again.cuh"
#include "copies.cuh"
#include "image_half.cuh"
#include "mma_half.cuh"

#if defined(EMU) || __CUDA_ARCH__ >= 800

// A tile of OUTPUTS × ROWS results, of which a warp has WARP_OUTPUTS × WARP_ROWS.
template <int OUTPUTS_, int ROWS_, int WARP_OUTPUTS_, int WARP_ROWS_, int STAGES_, int BLOCKS_> struct Tile {
	enum {
		OUTPUTS = OUTPUTS_, ROWS = ROWS_, WARP_OUTPUTS = WARP_OUTPUTS_, WARP_ROWS = WARP_ROWS_, STAGES = STAGES_, BLOCKS = BLOCKS_,
		ACROSS = OUTPUTS / WARP_OUTPUTS, THREADS = WARP * ACROSS * (ROWS / WARP_ROWS),
		LINE = 128, // bytes of an output or a row in a stage
		STAGE = (OUTPUTS + ROWS) * LINE, BYTES = STAGES * STAGE,
		PER_LINE = LINE / 16, AT_ONCE = THREADS / PER_LINE, // lines that the block copies at once
		STEPS = CHUNKS * TILE_BLOCKS / PER_LINE,            // stages of a tile of weights.cuh
	};
	static_assert(OUTPUTS % AT_ONCE == 0 && ROWS % AT_ONCE == 0 && AT_ONCE % BAND_OUTPUTS == 0, "threads copy the same part of each line");
};

// What a product is multiplied by: halves of activations are of a sixteenth.
constexpr float RESULT_FACTOR = 16;

// Returns where 16 bytes of a line are in it: the same ones of eight neighbouring lines use different banks.
DEVICE int in_line(int line, int unit) { return (unit ^ line % 8) * 16; }

// Loads four matrices of 8 lines and 16 bytes: of two units from unit on, and of lines first … first + 7 and the next 8. first is a multiple of 8, unit
// of 2. A lane has 4 bytes of each, in the order of the operands of 16 outputs, or with BY_UNITS of those of 8 rows and 8 more.
template <bool BY_UNITS> DEVICE void load_matrices(uint32_t (&v)[4], Address stage, int first, int unit)
{
	const int lane = lane_id();
#ifdef EMU
	UNROLL for (int i = 0; i < 4; i++) {
		const int line = first + (BY_UNITS ? i / 2 : i % 2) * 8 + lane / 4;
		load_shared(v[i], stage + line * 128 + in_line(line, unit + (BY_UNITS ? i % 2 : i / 2)) + lane % 4 * 4);
	}
#else
	const int line = BY_UNITS ? lane / 16 * 8 + lane % 8 : lane % 16, second = BY_UNITS ? lane / 8 % 2 : lane / 16;
	const Address at = stage + (first + line) * 128 + (in_line(line, second) ^ unit * 16);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at) : "memory");
#endif
}

// Computes a tile of up to three products of the count rows in the image x, from row on.
template <typename T> DEVICE void tile_of(const Product &a, const Product &b, const Product &c, const uint4 *x, int row, int count, int inputs, bool add)
{
	enum { OF_OUTPUTS = T::WARP_OUTPUTS / 16, OF_ROWS = T::WARP_ROWS / 8, IMAGE_TILE = CHUNKS * TILE_BLOCKS * 16 };
	SHARED(uint8_t, shared);
	const Address stages = address_of(shared);
	const int blocks = blocks_of(inputs), tiles = tiles_of(blocks), lane = lane_id();
	// A thread copies 16 bytes of every AT_ONCE-th line. Bands past the last one repeat it, and rows the last one.
	const int unit = threadIdx.x % T::PER_LINE, line = threadIdx.x / T::PER_LINE, to = line * T::LINE + in_line(line, unit);
	const uint8_t *weights[T::OUTPUTS / T::AT_ONCE], *values[T::ROWS / T::AT_ONCE];
	{
		int band;
		const Product p = product_of(a, b, c, &band, T::OUTPUTS, blockIdx.y);
		const int last = (p.outputs - 1) / BAND_OUTPUTS;
		UNROLL for (int i = 0; i < T::OUTPUTS / T::AT_ONCE; i++)
			weights[i] = p.weights + min(band + (line + i * T::AT_ONCE) / BAND_OUTPUTS, last) * band_bytes(blocks);
		UNROLL for (int i = 0; i < T::ROWS / T::AT_ONCE; i++)
			values[i] = reinterpret_cast<const uint8_t *>(x) + size_t(min(row + line + i * T::AT_ONCE, count - 1)) * tiles * IMAGE_TILE;
	}
	int tile = 0, step = 0; // of the next copy
	const auto copy = [&](Address stage) {
		if (tile < tiles) {
			const int in_tile = blocks_in_tile(blocks, tile), chunk = step / (T::STEPS / CHUNKS), block = step % (T::STEPS / CHUNKS) * T::PER_LINE + unit;
			const size_t of_weights = size_t(tile) * TILE_BYTES + quants_at(in_tile, line % BAND_OUTPUTS, chunk, block);
			UNROLL for (int i = 0; i < T::OUTPUTS / T::AT_ONCE; i++)
				copy_or_clear(stage + to + i * T::AT_ONCE * T::LINE, weights[i] + of_weights, block < in_tile);
			const uint32_t of_values = tile * IMAGE_TILE + (chunk * TILE_BLOCKS + block) * 16;
			UNROLL for (int i = 0; i < T::ROWS / T::AT_ONCE; i++)
				copy_async<16>(stage + to + (T::OUTPUTS + i * T::AT_ONCE) * T::LINE, values[i] + of_values);
			if (++step == T::STEPS)
				step = 0, tile++;
		}
		copies_commit();
	};
	UNROLL for (int i = 0; i < T::STAGES - 1; i++)
		copy(stages + i * T::STAGE);

	const int first_output = warp_id() % T::ACROSS * T::WARP_OUTPUTS, first_row = warp_id() / T::ACROSS * T::WARP_ROWS;
	const bool multiplies = row + first_row < count; // else the warp only copies
	float acc[OF_OUTPUTS][OF_ROWS][4] = {};
	int stage = 0;
	for (int left = tiles * T::STEPS; left > 0; left--) {
		copies_wait<T::STAGES - 2>();
		syncthreads(); // and all warps have multiplied the stage before
		copy(stages + (stage == 0 ? T::STAGES - 1 : stage - 1) * T::STAGE);
		const Address at = stages + stage * T::STAGE;
		UNROLL for (int unit = 0; unit < T::PER_LINE && multiplies; unit += 2) {
			uint32_t w[OF_OUTPUTS][4], v[OF_ROWS / 2][4];
			UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
				load_matrices<false>(w[output], at, first_output + output * 16, unit);
			UNROLL for (int sixteen = 0; sixteen < OF_ROWS / 2; sixteen++)
				load_matrices<true>(v[sixteen], at, T::OUTPUTS + first_row + sixteen * 16, unit);
			UNROLL for (int eight = 0; eight < OF_ROWS; eight++)
				UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
					mma_halves(acc[output][eight], w[output][0], w[output][1], w[output][2], w[output][3], v[eight / 2][eight % 2 * 2], v[eight / 2][eight % 2 * 2 + 1]);
		}
		stage = stage + 1 == T::STAGES ? 0 : stage + 1;
	}
	int band;
	const Product p = product_of(a, b, c, &band, T::OUTPUTS, again(blockIdx.y));
	UNROLL for (int output = 0; output < OF_OUTPUTS; output++)
		UNROLL for (int eight = 0; eight < OF_ROWS; eight++)
			UNROLL for (int i = 0; i < 4; i++) {
				const int of_row = row + first_row + eight * 8 + lane % 4 * 2 + i % 2, at = band * BAND_OUTPUTS + first_output + output * 16 + i / 2 * 8 + lane / 4;
				if (of_row >= count || at >= p.outputs)
					continue;
				const float product = acc[output][eight][i] * RESULT_FACTOR;
				float *const dst = p.dst + size_t(of_row) * p.outputs + at;
				*dst = add ? *dst + product : product;
			}
}

#define PRODUCTS_OF_PROMPT(name, size) \
	KERNEL(matmul_prompt_##name, size::THREADS, size::BLOCKS) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		const int row = blockIdx.x * size::ROWS, count = *rows; \
		if (row < count) \
			tile_of<size>({dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, x, row, count, inputs, add); \
	}

typedef Tile<128, 64, 64, 32, 4, 2> LowTile;
typedef Tile<128, 128, 64, 64, 3, 2> SquareTile;
PRODUCTS_OF_PROMPT(n64, LowTile)
PRODUCTS_OF_PROMPT(n128, SquareTile)

#endif
