// dst[row][output] = Σ over inputs of x[row][input] · w[output][input], where x is an image written by
// activation.cu and w has the layout written by repack.cu.
//
// A warp computes a band of 4 outputs for N rows: lane l processes block l of every tile in ascending
// order, then the sums of the 32 lanes are added in one fixed tree. So the bits of a result depend
// neither on N nor on the other rows of the launch.
//
// With quantized weights, (q - offset) · d, x is int16 with a scale for each block. The sum of products of a
// block is an exact integer; two products per 32-bit word, because sm_52 multiplies 16-bit halves of registers
// (XMAD) at full rate. Compiled with EXACT, which needs compute capability 6.1, two products are one
// instruction, with the same bits. With F32, F16 and BF16 weights, x is float.
//
// A thread block has 8 warps, with 8 bands and the same N rows, whose images are staged in shared
// memory, IMAGES at a time. Grid: (groups of N rows, bands / 8 of all products), so that groups that read
// the same weights run at the same time and share them in the L2 cache.
//
// Launch with blockDim.x = 256 and shared memory for IMAGES images.
#include "activation.cuh"
#include "experts.cuh"
#include "weights.cuh"

enum { WARPS = 8, IMAGES = 8 };

// ---------------------------------------------------------------------------------------
// Loading the weights of a lane: its block of each of the 4 outputs

#if SCALE_BYTES == 0

DEVICE void load_block(Block &w, const uint8_t *tile, int blocks, int block) { w = {tile, blocks, block}; }

#else

// Loads to from p in one load of 4, 8 or 16 bytes.
template <typename T> DEVICE void load(T &to, const uint8_t *p)
{
	if constexpr (sizeof(T) == 4) {
		uint32_t v = ldg32(p);
		memcpy(&to, &v, sizeof v);
	} else if constexpr (sizeof(T) == 8) {
		uint2 v = ldg64(p);
		memcpy(&to, &v, sizeof v);
	} else {
		uint4 v = ldg128(p);
		memcpy(&to, &v, sizeof v);
	}
}

DEVICE void load_block(Block &w, const uint8_t *tile, int blocks, int block)
{
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			uint4 v = ldg128(tile + quants_at(blocks, output, chunk, block));
			memcpy(&w.quants[output][4 * chunk], &v, sizeof v);
		}
	load(w.scales, tile + scales_at(blocks, block));
#if HIGH_BYTES == 4
	load(w.high, tile + high_at(blocks, 0, block));
#elif HIGH_BYTES == 8
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		load(w.high[output], tile + high_at(blocks, output, block));
#endif
#if SUPER_BYTES > 0
	load(w.super, tile + super_at(blocks, block));
#endif
}

#endif

// ---------------------------------------------------------------------------------------
// Unpacking the quants of a block, by their number of bits:
//
//	pair           inputs 2p and 2p + 1 as two int16; for odd p times 2^ODD_SHIFT
//	quad           with EXACT: four inputs as bytes: word p, or for even p one half of the quants of word p / 2, for odd p the
//	               other, times 2^SHIFT, which is QUAD_SHIFT or 0

#if SCALE_BYTES == 0
#elif CHUNKS == 2 // 8 bits

enum { ODD_SHIFT = 0 };

DEVICE uint32_t pair(const Block &w, int output, int p)
{
	uint32_t word = w.quants[output][p / 2];
	return p % 2 ? __byte_perm(word, 0, 0x4341) : word & 0x00ff00ff;
}

template <int> DEVICE uint32_t quad(const Block &w, int output, int p) { return w.quants[output][p]; }

#elif defined(CODES)

enum { ODD_SHIFT = 0 };

// Like __byte_perm, but selectors from 8 on give 8 times the highest bit of byte selector - 8.
DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t selectors)
{
#ifdef EMU
	uint32_t bytes = __byte_perm(a, b, selectors), r = 0;
	for (int i = 0; i < 4; i++)
		r |= (selectors >> 4 * i & 8 ? (bytes >> 8 * i & 128) / 128 * 255 : bytes >> 8 * i & 255) << 8 * i;
	return r;
#else
	uint32_t r;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selectors));
	return r;
#endif
}

// Returns the values of the four codes in the lower or upper half of word, as bytes.
DEVICE uint32_t look_up(uint32_t word, bool upper)
{
	const uint32_t low_bits = word & 0x77777777, index = upper ? __byte_perm(low_bits, 0, 0x4432) : low_bits;
	const uint32_t from_8 = permute(word << 4, word, upper ? 0xfbea : 0xd9c8); // 255 for codes from 8 on
	const uint32_t below = permute(CODES_0, CODES_4, index), above = permute(CODES_8, CODES_12, index);
	return (above & from_8) | (below & ~from_8);
}

DEVICE uint32_t pair(const Block &w, int output, int p)
{
	const uint32_t word = w.quants[output][p / 4];
	return permute(look_up(word, false), look_up(word, true), 0xc480 + p % 4 * 0x1111);
}

template <int> DEVICE uint32_t quad(const Block &w, int output, int p) { return look_up(w.quants[output][p / 2], p % 2); }

#else // 4, 5 and 6 bits

// Returns the upper bits of the even or odd pairs of word i, above the lower four of each byte.
#if HIGH_BYTES == 8
DEVICE uint32_t byte_high(const Block &w, int output, int i, bool odd)
{
	uint32_t high = w.high[output][i / 2];
	return (i % 2 ? (odd ? high << 4 : high << 2) : (odd ? high >> 2 : high)) & 0x30303030;
}
#elif HIGH_BYTES == 4
DEVICE uint32_t byte_high(const Block &w, int output, int i, bool odd)
{
	uint32_t high = w.high[output][0];
	return (odd ? high << (4 - i) : high >> i) & 0x10101010;
}
#else
DEVICE uint32_t byte_high(const Block &, int, int, bool) { return 0; }
#endif

// Returns the quants of the even or odd pairs of word i as bytes.
DEVICE uint32_t quant_bytes(const Block &w, int output, int i, bool odd)
{
	uint32_t word = w.quants[output][i];
	return ((odd ? word >> 4 : word) & 0x0f0f0f0f) | byte_high(w, output, i, odd);
}

template <int SHIFT> DEVICE uint32_t quad(const Block &w, int output, int p)
{
	return SHIFT > 0 && p % 2 ? w.quants[output][p / 2] & 0xf0f0f0f0 : quant_bytes(w, output, p / 2, p % 2);
}

#if HIGH_BYTES == 4

enum { ODD_SHIFT = 0 };

DEVICE uint32_t pair(const Block &w, int output, int p)
{
	uint32_t bytes = quant_bytes(w, output, p / 4, p % 2);
	return p % 4 >= 2 ? __byte_perm(bytes, 0, 0x4341) : bytes & 0x00ff00ff;
}

#else

enum { ODD_SHIFT = 4 };

#if HIGH_BYTES == 8

// Returns the upper two bits of pair p, aligned to the lower four that pair returns.
DEVICE uint32_t pair_high(const Block &w, int output, int p)
{
	uint32_t high = w.high[output][p / 8], swapped = __byte_perm(high, 0, 0x2301);
	switch (p % 8) {
	case 0: return high & 0x00300030;
	case 1: return high << 2 & 0x03000300;
	case 2: return swapped & 0x00300030;
	case 3: return swapped << 2 & 0x03000300;
	case 4: return high << 2 & 0x00300030;
	case 5: return swapped & 0x03000300;
	case 6: return swapped << 2 & 0x00300030;
	default: return high & 0x03000300;
	}
}

#else

DEVICE uint32_t pair_high(const Block &, int, int) { return 0; }

#endif

DEVICE uint32_t pair(const Block &w, int output, int p)
{
	uint32_t word = w.quants[output][p / 4];
	if (p % 4 >= 2)
		word = __byte_perm(word, 0, 0x4321); // word >> 8, as one full-rate instruction
	return (word & (p % 2 ? 0x00f000f0 : 0x000f000f)) | pair_high(w, output, p);
}

#endif

#endif

// ---------------------------------------------------------------------------------------
// acc[row][output] += the lane's block · the activations of N rows. x is the image of the first row; consecutive
// rows are stride units apart.

#if SCALE_BYTES == 0

// Fully unrolled, the loads of F32 weights would need too many registers.
#if CHUNKS == 8
#define UNROLL_CHUNKS _Pragma("unroll (N < 4 ? 4 : 2)")
#else
#define UNROLL_CHUNKS UNROLL
#endif

struct F32 {
	enum { UNITS = F32_UNITS };

	DEVICE uint4 staged(uint4 v, int) { return v; }

	template <int N> DEVICE void multiply(float (&acc)[N * BAND_OUTPUTS], const Block &w, const uint4 *x, int stride)
	{
		const int lane = lane_id();
		float dot[N][BAND_OUTPUTS] = {};
		UNROLL_CHUNKS for (int chunk = 0; chunk < F32_CHUNKS; chunk++) {
			float v[BAND_OUTPUTS][4];
			UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
				widen(w, output, chunk, v[output]);
			UNROLL for (int row = 0; row < N; row++) {
				const uint4 values = x[row * stride + chunk * TILE_BLOCKS + lane];
				float a[4];
				memcpy(a, &values, sizeof a);
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
					UNROLL for (int i = 0; i < 4; i++)
						dot[row][output] = fmaf(v[output][i], a[i], dot[row][output]);
			}
		}
		UNROLL for (int row = 0; row < N; row++)
			UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
				acc[row * BAND_OUTPUTS + output] += dot[row][output];
	}
};

#else

#ifdef EXACT

// Adds the products of the lower or upper two bytes of q with a pair of int16 to sum. Quants are unsigned,
// values of codes are signed.
DEVICE void add_products(int &sum, uint32_t a, uint32_t q, bool upper)
{
#ifdef CODES
#define DP2A(half) asm("dp2a." half ".s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(q))
	typedef int8_t Byte;
#else
#define DP2A(half) asm("dp2a." half ".s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(q))
	typedef uint8_t Byte;
#endif
#ifdef EMU
	q >>= upper ? 16 : 0;
	sum += int(int16_t(a)) * Byte(q) + int(int16_t(a >> 16)) * Byte(q >> 8);
#else
	if (upper)
		DP2A("hi");
	else
		DP2A("lo");
#endif
}

// Quads have bytes of weights in the order in which they are stored, so that none is moved. So activations in shared memory have another order than
// those of images: of eight inputs of a block, their four words have {0, 2} {1, 3} {4, 6} {5, 7} if APART is 2, and {0, 4} {1, 5} {2, 6} {3, 7}
// if it is 4, instead of {0, 1} {2, 3} {4, 5} {6, 7}. in_order returns two of the words.
#if CHUNKS == 2 || defined(CODES)
enum { QUAD_SHIFT = 0, APART = 2 };
#else
enum { QUAD_SHIFT = HIGH_BYTES == 0 ? 4 : 0, APART = 4 };
#endif

DEVICE uint2 in_order(uint32_t a, uint32_t b) { return make_uint2(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632)); }

// Returns by how many bits the odd sums of N rows are shifted. With one row, shifting sums takes fewer instructions than shifting quants.
template <int N> constexpr DEVICE int sum_shift() { return N == 1 ? QUAD_SHIFT : 0; }

// The quants that a word has for products with the activations of a block.
enum { WORD_PAIRS = 2 };
template <int SHIFT> DEVICE uint32_t packed(const Block &w, int output, int i) { return quad<SHIFT>(w, output, i); }

// Adds the products of word i with activations a.
template <int SHIFT, int PAIRS> DEVICE void multiply_word(int &even, int &odd, uint32_t q, const uint32_t (&a)[PAIRS], int i)
{
	int &sum = SHIFT > 0 && i % 2 ? odd : even;
#ifdef CODES // of inputs 0, 2, 4 and 6 of eight, or 1, 3, 5 and 7
	add_products(sum, a[i / 2 * 4 + i % 2], q, false);
	add_products(sum, a[i / 2 * 4 + i % 2 + 2], q, true);
#else
	add_products(sum, a[2 * i], q, false);
	add_products(sum, a[2 * i + 1], q, true);
#endif
}

#else

// Adds both products of two pairs of int16 to sum.
DEVICE void add_products(int &sum, uint32_t a, uint32_t b)
{
#ifdef EMU
	sum += int(int16_t(a)) * int16_t(b) + int(int16_t(a >> 16)) * int16_t(b >> 16);
#else
	// Two XMAD that select the halves of their operands; for shifts and casts nvcc emits four
	// instructions.
	asm("{\n\t.reg .s16 al, ah, bl, bh;\n\t"
	    "mov.b32 {al, ah}, %1;\n\tmov.b32 {bl, bh}, %2;\n\t"
	    "mad.wide.s16 %0, al, bl, %0;\n\tmad.wide.s16 %0, ah, bh, %0;\n\t}"
	    : "+r"(sum) : "r"(a), "r"(b));
#endif
}

enum { WORD_PAIRS = 1 };
template <int> DEVICE uint32_t packed(const Block &w, int output, int p) { return pair(w, output, p); }

template <int, int PAIRS> DEVICE void multiply_word(int &even, int &odd, uint32_t q, const uint32_t (&a)[PAIRS], int p)
{
	add_products(p % 2 ? odd : even, q, a[p]);
}

template <int> constexpr DEVICE int sum_shift() { return ODD_SHIFT; }

#endif

// Returns the sum of the activations of one part of the lane's block, from the sums of an image.
DEVICE int half_sum(const int *sums, int half)
{
	const int all = sums[lane_id()];
	if (HALVES == 1)
		return all;
	const int low = sums[TILE_BLOCKS + lane_id()];
	return half == 0 ? low : all - low;
}

struct I16 {
	enum { UNITS = I16_UNITS };

	// Returns a unit of an image as it is in shared memory.
	DEVICE uint4 staged(uint4 v, [[maybe_unused]] int unit)
	{
#ifdef EXACT
		if (unit % UNITS < I16_SCALES) {
			const uint2 first = in_order(v.x, APART == 2 ? v.y : v.z), second = in_order(APART == 2 ? v.z : v.y, v.w);
			return make_uint4(first.x, first.y, second.x, second.y);
		}
#endif
		return v;
	}

	template <int N> DEVICE void multiply(float (&acc)[N * BAND_OUTPUTS], const Block &w, const uint4 *x, int stride)
	{
		// With more rows, the pairs of all 32 inputs at once would need too many registers.
		const int PARTS = N >= 4 ? 2 * HALVES : HALVES, PAIRS = 16 / PARTS, WORDS = PAIRS / WORD_PAIRS, SHIFT = sum_shift<N>();
		const int lane = lane_id();
		int dot[N][BAND_OUTPUTS];
		UNROLL for (int part = 0; part < PARTS; part++) {
			const bool first = part % (PARTS / HALVES) == 0, last = part % (PARTS / HALVES) == PARTS / HALVES - 1;
			uint32_t q[BAND_OUTPUTS][WORDS];
			UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
				UNROLL for (int i = 0; i < WORDS; i++)
					q[output][i] = packed<SHIFT>(w, output, part * WORDS + i);
			UNROLL for (int row = 0; row < N; row++) {
				const uint4 *image = x + row * stride;
				uint32_t a[PAIRS];
				UNROLL for (int chunk = 0; chunk < PAIRS / 4; chunk++) {
					const uint4 values = image[(part * PAIRS / 4 + chunk) * TILE_BLOCKS + lane];
					memcpy(&a[4 * chunk], &values, sizeof values);
				}
				const float scale = reinterpret_cast<const float *>(image + I16_SCALES)[lane];
				const int sum = half_sum(reinterpret_cast<const int *>(image + I16_SCALES) + TILE_BLOCKS, part * HALVES / PARTS);
				UNROLL for (int output = 0; output < BAND_OUTPUTS; output++) {
					// No sum can overflow: |a| < 2¹⁵ and 32 · 255 · 2¹⁵ < 2²⁹.
					int even = first ? -OFFSET * sum : dot[row][output], odd = 0;
					UNROLL for (int i = 0; i < WORDS; i++)
						multiply_word<SHIFT>(even, odd, q[output][i], a, i);
					dot[row][output] = even + (odd >> SHIFT);
					if (last) {
						float &to = acc[row * BAND_OUTPUTS + output];
						to = add_addend(w, output, part * HALVES / PARTS, scale * float(sum), to);
						to = add_scaled(w, output, part * HALVES / PARTS, float(dot[row][output]), scale, to);
					}
				}
			}
		}
	}
};

#endif

// ---------------------------------------------------------------------------------------
// The matrix product

// A launch computes up to three products with the same activations, such as the projections to queries,
// keys and values.
struct Product {
	float *dst; // the product is stored here, or added
	const uint8_t *weights;
	int outputs; // 0: no product
	int first;   // row of the weights that is output 0
};

// Returns the product that the thread block computes, and sets its first band: along blockIdx.y the
// products follow one another, each outputs in a block.
DEVICE Product product_of(const Product &a, const Product &b, const Product &c, int *band, int each = WARPS * BAND_OUTPUTS, int block = blockIdx.y)
{
	const int blocks_a = (a.outputs + each - 1) / each, blocks_b = (b.outputs + each - 1) / each;
	Product p = a;
	if (block >= blocks_a + blocks_b)
		p = c, block -= blocks_a + blocks_b;
	else if (block >= blocks_a)
		p = b, block -= blocks_a;
	*band = block * each / BAND_OUTPUTS;
	return p;
}

// The rows of a launch: those of the images, and where their products are stored.
struct CountedRows {
	const int *count; // row r of the images, of *count, is row r of dst
};

struct GroupedRows {
	const int *pairs; // row r of the images is row pairs[r] of dst; -1: no row, the image is undefined
};

DEVICE int end_of(const CountedRows &rows) { return *rows.count; }
DEVICE int end_of(const GroupedRows &) { return 0x7fffffff; }

// Returns the row of dst of a row of the images, or -1.
DEVICE int destination_of(const CountedRows &rows, int row) { return row < *rows.count ? row : -1; }
DEVICE int destination_of(const GroupedRows &rows, int row) { return rows.pairs[row]; }

// Sums each of COUNT values over the lanes of the warp, by a tree that is the same for every COUNT. Lane l
// returns the sum of value l / (32 / COUNT). While a lane has several values, it sends half of them to
// its partner and keeps the rest, which takes far fewer shuffles than COUNT separate trees.
template <int COUNT, int MASK = WARP / 2> DEVICE float warp_sums(const float (&v)[COUNT])
{
	if constexpr (COUNT == 1) {
		float sum = v[0];
		UNROLL for (int mask = MASK; mask > 0; mask /= 2)
			sum += shfl_xor(sum, mask);
		return sum;
	} else {
		const bool upper = lane_id() & MASK;
		float half[COUNT / 2];
		UNROLL for (int i = 0; i < COUNT / 2; i++) {
			float keep = upper ? v[i + COUNT / 2] : v[i], send = upper ? v[i] : v[i + COUNT / 2];
			half[i] = keep + shfl_xor(send, MASK);
		}
		if constexpr (MASK == 1)
			return half[0];
		else
			return warp_sums<COUNT / 2, MASK / 2>(half);
	}
}

// Copies the images of tiles first … of N rows, beginning with row, to shared memory. It issues all loads
// before the first store.
template <typename Path, int N> DEVICE void stage(uint4 *shared, const uint4 *x, int row, int last_row, int first, int tiles)
{
	const int each = IMAGES / N; // images of a row
	const int units = min(each, tiles - first) * Path::UNITS;
	const int STEPS = (each * Path::UNITS + 32 * WARPS - 1) / (32 * WARPS);
	uint4 v[N][STEPS];
	UNROLL for (int r = 0; r < N; r++) {
		// Rows past the last one repeat it; their results are discarded.
		const uint4 *from = x + (size_t(N == 1 ? row : min(row + r, last_row)) * tiles + first) * Path::UNITS;
		UNROLL for (int step = 0; step < STEPS; step++)
			v[r][step] = ldg128(from + min(int(threadIdx.x) + 32 * WARPS * step, units - 1));
	}
	UNROLL for (int r = 0; r < N; r++)
		UNROLL for (int step = 0; step < STEPS; step++) {
			const int unit = threadIdx.x + 32 * WARPS * step;
			if (unit < units)
				shared[r * each * Path::UNITS + unit] = Path::staged(v[r][step], unit);
		}
}

// Computes rows row … row + N - 1 of a product; their activations begin at row x_row, which may differ
// from row only if N is 1.
template <typename Path, int N, typename Rows>
DEVICE void matmul(const Product &p, int first_band, const uint4 *x, int row, int x_row, int inputs, bool add, const Rows &all)
{
	SHARED(uint4, shared);
	const int lane = lane_id(), blocks = blocks_of(inputs), tiles = tiles_of(blocks), full_tiles = blocks / TILE_BLOCKS;
	const int band = first_band + warp_id();
	const bool active = band * BAND_OUTPUTS < p.first + p.outputs; // an inactive warp only helps to stage
	const uint8_t *tile_at = p.weights + band * band_bytes(blocks);
	const uint8_t *const full_end = tile_at + size_t(full_tiles) * tile_bytes(TILE_BLOCKS); // end of the full tiles

	// With one row, latency of the loads of weights dominates. So the next tile is prefetched into
	// registers while this one is multiplied, if there are enough registers for both.
	const bool prefetch = N == 1 && SCALE_BYTES > 0;
	Block next = {};
	if (prefetch && active && full_tiles > 0)
		load_block(next, tile_at, TILE_BLOCKS, lane);

	const int rows = end_of(all);
	if (N > 1 && row >= rows)
		return;
	const int each = IMAGES / N; // images of a row
	float acc[N * BAND_OUTPUTS] = {};
	for (int first = 0; first < tiles; first += each) {
		if (first > 0)
			syncthreads();
		stage<Path, N>(shared, x, x_row, rows - 1, first, tiles);
		syncthreads();
		if (N == 1 && row >= rows)
			return; // checked this late so that no load above waits for rows
		if (!active)
			continue;
		const uint4 *image = shared;
		for (int left = min(full_tiles - first, each); left > 0; left--) {
			Block w = next;
			if (!prefetch)
				load_block(w, tile_at, TILE_BLOCKS, lane);
			tile_at += tile_bytes(TILE_BLOCKS);
			if (prefetch && tile_at < full_end)
				load_block(next, tile_at, TILE_BLOCKS, lane);
			Path::template multiply<N>(acc, w, image, each * Path::UNITS);
			image += Path::UNITS;
		}
		if (full_tiles < first + each && lane < blocks % TILE_BLOCKS) {
			Block w;
			load_block(w, tile_at, blocks % TILE_BLOCKS, lane);
			Path::template multiply<N>(acc, w, image, each * Path::UNITS);
		}
	}

	float sum = warp_sums(acc);
	const int lanes = WARP / (N * BAND_OUTPUTS), value = lane / lanes; // lanes: how many have the same sum
	const int output = band * BAND_OUTPUTS + value % BAND_OUTPUTS - p.first;
	if (lane % lanes != 0 || output < 0 || output >= p.outputs)
		return;
	// The number of rows is read again: one register less in the loop.
	const int to = destination_of(all, row + value / BAND_OUTPUTS);
	if (to >= 0) {
		float *const dst = p.dst + size_t(to) * p.outputs + output;
		*dst = add ? *dst + sum : sum;
	}
}

#define PRODUCT(weight, name, path, n, blocks) PRODUCT_NAMED(weight, name, path, n, blocks)
#define PRODUCT_NAMED(weight, name, path, n, blocks) \
	KERNEL(matmul_##weight##_##name##_n##n, 32 * WARPS, blocks) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const uint4 *x, int inputs, int add, const int *rows) \
	{ \
		int band; \
		const Product p = product_of({dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, &band); \
		matmul<path, n>(p, band, x, blockIdx.x * n, blockIdx.x * n, inputs, add, CountedRows{rows}); \
	}

// Products with the weights of experts. Row pair of dst is the product of row pair / used with its expert
// number pair % used. routes name the expert; if routes is null, every row uses all experts. own: x has a
// row for each pair instead of each row. Grid: (pairs, bands / 8 of an expert).
#define EXPERT_PRODUCT(weight, name, path) EXPERT_PRODUCT_NAMED(weight, name, path)
#define EXPERT_PRODUCT_NAMED(weight, name, path) \
	KERNEL(matmul_##weight##_##name##_experts, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const float *routes, int experts, int used, const uint4 *x, int inputs, \
		int own, const int *pairs) \
	{ \
		const int pair = blockIdx.x, row = pair / used; \
		if (pair >= *pairs) \
			return; \
		const int first = expert_of_pair(routes, experts, used, pair) * outputs; \
		matmul<path, 1>({dst, weights, outputs, first}, first / BAND_OUTPUTS + blockIdx.y * WARPS, x, pair, own ? pair : row, inputs, false, CountedRows{pairs}); \
	}

// The same for groups of 4 pairs with the same expert; the images are grouped, too. Grid: (groups, bands / 8 of an expert).
#define GROUPED_PRODUCT(weight, name, path) GROUPED_PRODUCT_NAMED(weight, name, path)
#define GROUPED_PRODUCT_NAMED(weight, name, path) \
	KERNEL(matmul_##weight##_##name##_grouped, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const int *groups, int most, const uint4 *x, int inputs) \
	{ \
		const int group = blockIdx.x; \
		if (group >= *groups) \
			return; \
		const int first = experts_of(groups)[group] * outputs; \
		matmul<path, 4>({dst, weights, outputs, first}, first / BAND_OUTPUTS + blockIdx.y * WARPS, x, group * 4, group * 4, inputs, false, \
			GroupedRows{pairs_of(groups, most)}); \
	}

#define PRODUCTS(name, path) \
	PRODUCT(WEIGHT, name, path, 1, 2) \
	PRODUCT(WEIGHT, name, path, 2, 2) \
	PRODUCT(WEIGHT, name, path, 4, 2) \
	EXPERT_PRODUCT(WEIGHT, name, path) \
	GROUPED_PRODUCT(WEIGHT, name, path)

#if SCALE_BYTES == 0
PRODUCTS(float, F32)
#elif defined(EXACT)
PRODUCTS(dp2a, I16)
#else
PRODUCTS(i16, I16)
#endif
