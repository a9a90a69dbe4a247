// Products of one row, or of up to N = 2 or 4 rows:
//
//	norm   up to three products of RMSNorm(x) · w, stored as by matmul.cu
//	glu    the products gate and up of RMSNorm(x) · w, and of a GLU of both the image for the next product
//	one    a product of the rows of an image, stored or added
//
// norm and glu need neither a launch nor memory for the image of their activations. The images of all inputs are in the block's
// shared memory. So that few blocks compute or copy them, a launch has no more blocks than run at the same time; each computes every
// gridDim.x-th group of 32 outputs, a warp 4 of them. The bits are those of separate launches: norm.cuh, image.cuh and
// matmul.cu define them. Launches may overlap (overlap.cuh): meanwhile a block requests its first weights.
//
// With two rows and more, where launches overlap, tiles of quantized weights go to a ring in shared memory (Ring), of stages tiles for each
// warp: so many are on their way without registers for them. Else stages is 0, and they go to registers.
//
// With MATRIX, up to 4 rows are computed by matrix units (mma_row.cuh), with the same bits. A block of norm and glu is two teams of 8 warps,
// which normalize half of the rows each, and compute groups of their own with the image of all: two blocks would both normalize all rows. glu can
// write the units of the next product instead of its image, which one copies as they are.
//
// Grid: (at most the number of groups). Launch with blockDim.x = 256 for each team, the shared memory of RowMemory, and for norm and glu inputs
// that are a multiple of 4 and fill at most MOST_TILES tiles, MOST_TILES_OF_4 with more than two rows.
#include "again.cuh"
#include "copies.cuh"
#include "image.cuh"
#include "math.cuh"
#include "norm.cuh"
#include "overlap.cuh"
#include "products.cuh"

// The team of the thread among TEAMS of a block, its warp in it, and a barrier for the team.
template <int TEAMS> DEVICE int team_id() { return TEAMS == 1 ? 0 : warp_id() / WARPS; }
template <int TEAMS> DEVICE int team_warp() { return TEAMS == 1 ? warp_id() : warp_id() % WARPS; }
template <int TEAMS> DEVICE void sync_team()
{
	if (TEAMS == 1)
		syncthreads();
	else
		sync_part(team_id<TEAMS>(), 32 * WARPS);
}

enum { GROUP_OUTPUTS = WARPS * BAND_OUTPUTS, MOST_TILES = 6, MOST_TILES_OF_4 = 4 };

static_assert(int(GROUP_OUTPUTS) == int(BLOCK_INPUTS), "a group's results are a block of an image");
static_assert(int(NORM_THREADS) == 32 * WARPS && 4 * NORM_THREADS == TILE_BLOCKS * BLOCK_INPUTS, "a thread has a float4 of each tile");

// ---------------------------------------------------------------------------------------
// The images of the rows

// write_fours writes four values of each lane, of each of TILES tiles from tile on, and of N rows, to the images of count rows, each of tiles
// tiles: those of inputs 4 · (lane % 8) … of block first + lane / 8 of the tile. write_one writes one of each lane to the image of a
// tile. The results are those of write_f32 and write_i16.
#if SCALE_BYTES == 0

typedef F32 RowPath;
typedef uint4 Staged; // of what images in shared memory are

template <int N, int TILES> DEVICE void write_fours(uint4 *images, int first_row, int count, int tile, int tiles, int first, const float4 (&v)[N * TILES])
{
	UNROLL for (int i = 0; i < N * TILES; i++)
		if (i / TILES < count && tile + i % TILES < tiles)
			memcpy(&images[((first_row + i / TILES) * tiles + tile + i % TILES) * F32_UNITS + lane_id() % 8 * TILE_BLOCKS + first + lane_id() / 8], &v[i], sizeof v[i]);
}

DEVICE void write_one(uint4 *image, int block, float v) { write_f32(image, block, v); }

#else

typedef I16 RowPath;

// Returns the larger of |a| and |b|, or infinity or NaN if one of them is infinite or NaN.
DEVICE float largest(float a, float b)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 800
	float largest;
	asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(fabsf(a)), "f"(fabsf(b)));
	return largest;
#else
	return __int_as_float(max(__float_as_int(fabsf(a)), __float_as_int(fabsf(b))));
#endif
}

// What the eight lanes of a block have in common: of rows, of which lane_of gives those lanes that have them.
struct OfBlock {
	float scale;
	int sum, low; // of the block, and of its first 16 values in lanes with lane % 8 < 4
};

// The lanes of eight that have what is of a row, of N, are lane_of and 4 more; row_of is the row of a lane.
template <int N> DEVICE int lane_of(int row) { return N == 4 ? row % 2 * 2 + row / 2 : row; }
template <int N> DEVICE int row_of(int lane) { return N == 4 ? lane % 2 * 2 + lane / 2 % 2 : lane % N; }

// Returns the sum, by add, of four lanes: of the row that the lane has.
template <int MASK = 1, typename T, int N, typename F> DEVICE T sum_of_four(const T (&v)[N], const F &add)
{
	if constexpr (N == 1) {
		T sum = v[0];
		UNROLL for (int mask = MASK; mask < 4; mask *= 2)
			sum = add(sum, shfl_xor(sum, mask));
		return sum;
	} else {
		const bool upper = lane_id() & MASK;
		T half[N / 2];
		UNROLL for (int i = 0; i < N / 2; i++)
			half[i] = add(upper ? v[i + N / 2] : v[i], shfl_xor(upper ? v[i] : v[i + N / 2], MASK));
		return sum_of_four<2 * MASK>(half, add);
	}
}

// Quantizes four values of each lane and row to pairs of int16, as quantize in image.cuh does. Lanes share the divisions among the rows.
template <int N> DEVICE OfBlock quantize_fours(uint2 (&pairs)[N], const float4 (&v)[N])
{
	float maxima[N];
	UNROLL for (int row = 0; row < N; row++)
		maxima[row] = largest(largest(v[row].x, v[row].y), largest(v[row].z, v[row].w));
	float max_abs = sum_of_four(maxima, largest);
	max_abs = largest(max_abs, shfl_xor(max_abs, 4));
	const bool finite = max_abs <= 3.402823466e38f, zero = !finite || !(max_abs > 1e-30f);
	const float inverse = zero ? 0 : 32512 / max_abs;
	int sums[N];
	UNROLL for (int row = 0; row < N; row++) {
		const float factor = N == 1 ? inverse : shfl(inverse, (lane_id() & 24) + lane_of<N>(row));
		// Adding 1.5 · 2²³, whose bits are MAGIC, rounds to an integer, ties to even, and the bits of the sum are MAGIC plus the integer.
		// The lower half of MAGIC is 0, so pairs need no subtraction.
		const int MAGIC = 0x4b400000;
		const auto rounded = [&](float x) { return factor == 0 ? MAGIC : __float_as_int(x * factor + 12582912.0f); };
		const int q[4] = {rounded(v[row].x), rounded(v[row].y), rounded(v[row].z), rounded(v[row].w)};
		pairs[row] = make_uint2(__byte_perm(q[0], q[1], 0x5410), __byte_perm(q[2], q[3], 0x5410));
		sums[row] = int(unsigned(q[0]) + unsigned(q[1]) + unsigned(q[2]) + unsigned(q[3]) - 4 * unsigned(MAGIC));
	}
	const int low = sum_of_four(sums, [](int a, int b) { return a + b; });
	return {finite ? zero ? 0 : max_abs / 32512 : __int_as_float(0x7fffffff), low + shfl_xor(low, 4), low};
}

// Two neighbouring lanes exchange words: the even one gets the first words of both, the odd one the second words.
DEVICE uint2 exchanged(uint2 pairs)
{
	const bool odd = lane_id() & 1;
	const uint32_t other = shfl_xor(odd ? pairs.x : pairs.y, 1);
	return odd ? make_uint2(other, pairs.y) : make_uint2(pairs.x, other);
}

#ifdef MATRIX

#include "mma_row.cuh"

typedef uint8_t Staged;

template <int N, int TILES> DEVICE void write_fours(uint8_t *units, int first_row, int, int tile, int tiles, int first, const float4 (&v)[N * TILES])
{
	uint2 pairs[N * TILES];
	const OfBlock all = quantize_fours(pairs, v);
	const auto unit = [&](int i) { return units + ((tile + i % TILES) * TILE_BLOCKS + first + lane_id() / 8) * UNIT_BYTES; };
	UNROLL for (int i = 0; i < N * TILES; i++)
		if (tile + i % TILES < tiles)
			store_four(unit(i), first_row + i / TILES, pairs[i]);
	const int own = row_of<N * TILES>(lane_id());
	if (lane_id() % 8 < N * TILES && tile + own % TILES < tiles)
		store_sums(unit(own), first_row + own / TILES, all.scale, all.sum, all.low);
}

#else

typedef uint4 Staged;

template <int N, int TILES> DEVICE void write_fours(uint4 *images, int first_row, int count, int tile, int tiles, int first, const float4 (&v)[N * TILES])
{
	const int lane = lane_id(), block = first + lane / 8;
	uint2 pairs[N * TILES];
	const OfBlock all = quantize_fours(pairs, v);
	const auto image = [&](int i) { return images + ((first_row + i / TILES) * tiles + tile + i % TILES) * I16_UNITS; };
	const auto has = [&](int i) { return i / TILES < count && tile + i % TILES < tiles; };
#ifdef EXACT
	UNROLL for (int i = 0; i < N * TILES; i++) {
		const uint2 words = APART == 2 ? pairs[i] : exchanged(pairs[i]);
		pairs[i] = in_order(words.x, words.y);
	}
#endif
	UNROLL for (int i = 0; i < N * TILES; i++)
		if (has(i))
			memcpy(reinterpret_cast<uint2 *>(image(i) + lane % 8 / 2 * TILE_BLOCKS + block) + lane % 2, &pairs[i], sizeof pairs[i]);
	const int own = row_of<N * TILES>(lane);
	if (lane % 8 < N * TILES && has(own)) {
		float *const scales = reinterpret_cast<float *>(image(own) + I16_SCALES);
		int *const sums = reinterpret_cast<int *>(scales + TILE_BLOCKS);
		scales[block] = all.scale;
		sums[block] = all.sum;
		sums[TILE_BLOCKS + block] = all.low;
	}
}

#endif

DEVICE void write_one(uint4 *image, int block, float v) { write_i16(image, block, v); }

#endif

// The activations of a launch, and the TEAMS of its blocks: RMSNorm(x) · w. WEIGHTS_FIRST says whether many weights may be requested before them, so that
// they arrive behind those. A norm needs its rows at once. The launch before an image is attention, or at its end, and leaves the memory idle.
struct Normalized {
#ifdef MATRIX
	enum { TEAMS = 2 };
#else
	enum { TEAMS = 1 };
#endif
	enum { WEIGHTS_FIRST = false };
	const float *x, *w;
	float eps;
	int inputs;
};

// The images of the rows; with MATRIX their units.
struct Imaged {
	enum { TEAMS = 1, WEIGHTS_FIRST = true };
	const uint4 *image;
	int inputs;
};

// stage_rows writes the images of the rows to shared memory, one behind another; without one row, of which there may be none, rows of
// N. What the images of other rows have is undefined. It calls meanwhile, if they are not WEIGHTS_FIRST, when it has requested
// them.

#ifdef MATRIX

// Begins to copy the units of all rows, in two groups: those of the first FIRST_TILES tiles, and the others. multiply waits for the first one. The other has
// arrived when a tile needs it: before tile t it waits for all copies but stages - 2, of which t are of later tiles, and there are at most FIRST_TILES + 2 stages.
enum { FIRST_TILES = 4 };
template <int N, typename F> DEVICE void stage_rows(uint8_t *units, float *, const Imaged &a, const int *, const F &)
{
	const int tiles = tiles_of(blocks_of(a.inputs)), tile_bytes = TILE_BLOCKS * UNIT_BYTES;
	const uint8_t *const from = reinterpret_cast<const uint8_t *>(a.image);
	const Address to = address_of(units);
	int at = threadIdx.x * 16;
	const auto copy = [&](int until) {
		for (; at < until * tile_bytes; at += 32 * WARPS * 16)
			copy_async<16>(to + at, from + at);
		copies_commit();
	};
	wait_for_previous();
	copy(min(tiles, int(FIRST_TILES)));
	copy(tiles);
}

#else

// Copies them. Loads do not go through the read-only cache, because the launch before may have written the images.
template <int N, typename F> DEVICE void stage_rows(uint4 *image, float *, const Imaged &a, const int *rows, const F &)
{
	enum { AT_ONCE = 10 };
	const int units = (N == 1 ? 1 : *rows) * tiles_of(blocks_of(a.inputs)) * RowPath::UNITS;
	wait_for_previous();
	for (int first = threadIdx.x; first < units; first += AT_ONCE * 32 * WARPS) {
		uint4 v[AT_ONCE];
		UNROLL for (int i = 0; i < AT_ONCE; i++)
			v[i] = a.image[min(first + i * 32 * WARPS, units - 1)];
		UNROLL for (int i = 0; i < AT_ONCE; i++)
			if (first + i * 32 * WARPS < units)
				image[first + i * 32 * WARPS] = RowPath::staged(v[i], first + i * 32 * WARPS);
	}
	syncthreads();
}

#endif

// Computes them; each team some of the rows. The norm's weights are loaded before the launch before has ended, if there are enough registers for
// all of them, else a tile ahead.
template <int N, typename F> DEVICE void stage_rows(Staged *image, float *partial, const Normalized &a, const int *rows, const F &meanwhile)
{
	enum { TEAMS = Normalized::TEAMS, OWN = N / TEAMS, MOST = N < 4 ? MOST_TILES : MOST_TILES_OF_4, AT_ONCE = 4 / OWN }; // AT_ONCE: tiles, so that lanes share the divisions of all
	const bool early = OWN < 4;
	const int first_row = team_id<TEAMS>() * OWN, count = N == 1 ? 1 : *rows - first_row, thread = threadIdx.x % NORM_THREADS;
	const int fours = a.inputs / 4, tiles = tiles_of(blocks_of(a.inputs));
	const float4 *const x = reinterpret_cast<const float4 *>(a.x) + first_row * fours, *const w = reinterpret_cast<const float4 *>(a.w);
	float4 v[OWN][MOST] = {}, g[MOST];
	const auto load_weights = [&](int tile) {
		if (tile * NORM_THREADS + thread < fours)
			g[tile] = w[tile * NORM_THREADS + thread];
	};
	UNROLL for (int tile = 0; tile < MOST; tile++)
		if (early)
			load_weights(tile);
	wait_for_previous();
	UNROLL for (int row = 0; row < OWN; row++)
		UNROLL for (int tile = 0; tile < MOST; tile++)
			if (row < count && tile * NORM_THREADS + thread < fours)
				v[row][tile] = x[row * fours + tile * NORM_THREADS + thread];
	meanwhile();
	float sums[OWN] = {};
	UNROLL for (int row = 0; row < OWN; row++)
		UNROLL for (int tile = 0; tile < MOST; tile++)
			sums[row] = add_squares(v[row][tile], sums[row]);
	block_sums(sums, partial + first_row * NORM_FLOATS);
	if (!early)
		load_weights(0);
	float scales[OWN];
	UNROLL for (int row = 0; row < OWN; row++)
		scales[row] = 1.0f / sqrtf(sums[row] / (float)a.inputs + a.eps);
	UNROLL for (int first = 0; first < MOST; first += AT_ONCE) {
		if (first >= tiles)
			break;
		float4 n[OWN * AT_ONCE] = {};
		UNROLL for (int tile = first; tile < min(first + AT_ONCE, int(MOST)); tile++) {
			if (!early && tile + 1 < MOST)
				load_weights(tile + 1);
			UNROLL for (int row = 0; row < OWN; row++) {
				const float4 of = v[row][tile], by = g[tile];
				if (tile * NORM_THREADS + thread < fours)
					n[row * AT_ONCE + tile - first] = make_float4(of.x * scales[row] * by.x, of.y * scales[row] * by.y, of.z * scales[row] * by.z, of.w * scales[row] * by.w);
			}
		}
		write_fours<OWN, AT_ONCE>(image, first_row, count, first, tiles, team_warp<TEAMS>() * (TILE_BLOCKS / WARPS), n);
	}
	syncthreads();
}

// ---------------------------------------------------------------------------------------
// What a launch computes

// Up to three products, whose results are stored.
struct Stored {
	enum { PASSES = 1 };
	Product a, b, c;
	bool add; // to what dst has
};

DEVICE int groups_of(const Product &p) { return (p.outputs + GROUP_OUTPUTS - 1) / GROUP_OUTPUTS; }
DEVICE int groups_of(const Stored &job) { return groups_of(job.a) + groups_of(job.b) + groups_of(job.c); }
DEVICE Product product_of(const Stored &job, int group, int, int *band) { return product_of(job.a, job.b, job.c, band, GROUP_OUTPUTS, group); }

// The image of glu_of(kind, gate, up): a group is computed in two passes. With MATRIX and an order, its units in that order.
struct Gating {
	enum { PASSES = 2 };
	uint4 *image;
	const uint8_t *gate, *up;
	int outputs, kind;
#ifdef MATRIX
	int order;
#endif
};

DEVICE int groups_of(const Gating &job) { return blocks_of(job.outputs); }
DEVICE Product product_of(const Gating &job, int group, int pass, int *band)
{
	*band = group * WARPS;
	return {0, pass == 0 ? job.gate : job.up, job.outputs, 0};
}

// Writes a block of the image of a row; v is the lane's activation.
DEVICE void write_block(const Gating &job, int row, int block, float v)
{
#ifdef MATRIX
	if (job.order != NO_UNITS) {
		write_unit(reinterpret_cast<uint8_t *>(job.image) + block * UNIT_BYTES, row, job.order, v);
		return;
	}
#endif
	write_one(job.image + (row * tiles_of(groups_of(job)) + block / TILE_BLOCKS) * RowPath::UNITS, block % TILE_BLOCKS, v);
}

// ---------------------------------------------------------------------------------------
// The products

// The shared memory of a block: rowMemory in matmul_row.go.
template <int N, int TEAMS> struct RowMemory {
	float partial[N * NORM_FLOATS];
	float results[TEAMS][2][2][N][GROUP_OUTPUTS]; // of gate and up, of the group before and of this one in turn
#ifdef MATRIX
	float sums[TEAMS][WARPS][N * GROUP_OUTPUTS];
	uint8_t image[]; // the units
#else
	uint4 image[RowPath::UNITS]; // and those of the other tiles and rows
#endif
};

// Returns where the weights of the warp's band of a group begin. A warp without a band repeats the last one, and its results are
// discarded.
template <int TEAMS, typename Job> DEVICE const uint8_t *band_at(const Job &job, int group, int pass, int blocks)
{
	int band;
	const Product p = product_of(job, group, pass, &band);
	return p.weights + min(band + team_warp<TEAMS>(), (p.outputs - 1) / BAND_OUTPUTS) * band_bytes(blocks);
}

// Which row and output of a group a thread has the sum of, if it has one.
struct Place {
	bool has;
	int row, output;
};

// Returns the place of what warp_sums returns for N rows of the warp's band.
template <int N> DEVICE Place place_of_band(void)
{
	enum { LANES = WARP / (N * BAND_OUTPUTS) }; // that have the same sum
	const int at = lane_id() / LANES;
	return {lane_id() % LANES == 0, at / BAND_OUTPUTS, warp_id() * BAND_OUTPUTS + at % BAND_OUTPUTS};
}

// Stores the results of a group, and for the last pass of a GLU writes the blocks of its images. step counts passes, and begins again behind
// those of two groups. All threads of the block call it.
template <int N, int TEAMS> DEVICE void finish(const Stored &job, RowMemory<N, TEAMS> *, int group, int, Place place, float sum, const int *rows)
{
	int band;
	const Product p = product_of(job, group, 0, &band); // again: fewer registers in the loop
	const int output = band * BAND_OUTPUTS + place.output;
	if (!place.has || output >= p.outputs || (N > 1 && place.row >= *rows))
		return;
	float *const dst = p.dst + place.row * p.outputs + output;
	*dst = job.add ? *dst + sum : sum;
}

template <int N, int TEAMS> DEVICE void finish(const Gating &job, RowMemory<N, TEAMS> *memory, int group, int step, Place place, float sum, const int *rows)
{
	const int lane = lane_id(), team = team_id<TEAMS>(), row = team_warp<TEAMS>(), pass = step % Gating::PASSES, buffer = step / Gating::PASSES;
	if (place.has)
		memory->results[team][buffer][pass][place.row][place.output] = sum;
	if (pass == 0)
		return;
	sync_team<TEAMS>();
	if (row < N && (N == 1 || row < *rows)) {
		const float gate = memory->results[team][buffer][0][row][lane], up = memory->results[team][buffer][1][row][lane];
		write_block(job, row, group, group * GROUP_OUTPUTS + lane < job.outputs ? glu_of(job.kind, gate, up) : 0);
	}
}

// Writes what no group has: the blocks of the last tile of an image that are past the end.
template <int TEAMS> DEVICE void pad(const Stored &, int) {}
template <int TEAMS> DEVICE void pad(const Gating &job, int rows)
{
	const int groups = groups_of(job);
	for (int row = 0; row < rows; row++)
		for (int block = groups + warp_id(); block < tiles_of(groups) * TILE_BLOCKS; block += TEAMS * WARPS)
			write_block(job, row, block, 0);
}

// Requests bytes for the L2 cache.
DEVICE void request([[maybe_unused]] const uint8_t *at, [[maybe_unused]] int bytes)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 900
	enum { LINE = 128 };
	for (int i = lane_id() * LINE; i < bytes; i += WARP * LINE)
		asm volatile("prefetch.global.L2 [%0];" ::"l"(at + i));
#endif
}

// Requests the first of so many tiles, up to REQUESTED bytes.
DEVICE void request_tiles(const uint8_t *tile_at, int tiles)
{
	enum { REQUESTED = 12288 };
	request(tile_at, min(tiles * tile_bytes(TILE_BLOCKS), int(REQUESTED)));
}

// Requests the tile that is AHEAD tiles behind tile_at, the first of left ones, in bands so long that these bytes are on their way for some
// time. With more than four bits for a quant, enough bytes are on their way without it.
DEVICE void request_ahead(const uint8_t *tile_at, int left, int tiles)
{
	enum { AHEAD = 4 };
	if (SCALE_BYTES > 0 && CHUNKS == 1 && HIGH_BYTES == 0 && tiles > 2 * AHEAD && left > AHEAD)
		request(tile_at + AHEAD * tile_bytes(TILE_BLOCKS), tile_bytes(TILE_BLOCKS));
}

// RING: whether kernels for several rows have the ring; the emulation has both ways, and takes that for the device.
#if SCALE_BYTES > 0 && (defined(EMU) || __CUDA_ARCH__ >= 900)
#define RING
#ifdef EMU
DEVICE bool has_ring(int stages) { return stages > 0; }
#else
DEVICE bool has_ring(int) { return true; }
#endif

// SLOT: from a slot of a warp in the ring to the next. copy_to_slot copies a tile of the warp's band, of in_tile blocks.
#ifdef MATRIX

enum { SLOT = FEW_STAGE };
DEVICE void copy_to_slot(Address to, const uint8_t *from, int in_tile) { copy_tile(to, from, warp_id() % WARPS, in_tile, lane_id()); }

#else

// Loads what load_block does from a tile in shared memory.
DEVICE void load_shared_block(Block &w, Address tile, int blocks, int block)
{
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
			const uint4 v = load_shared<uint4>(tile + quants_at(blocks, output, chunk, block));
			memcpy(&w.quants[output][4 * chunk], &v, sizeof v);
		}
	load_shared(w.scales, tile + scales_at(blocks, block));
#if HIGH_BYTES == 4
	load_shared(w.high, tile + high_at(blocks, 0, block));
#elif HIGH_BYTES == 8
	UNROLL for (int output = 0; output < BAND_OUTPUTS; output++)
		load_shared(w.high[output], tile + high_at(blocks, output, block));
#endif
#if SUPER_BYTES > 0
	load_shared(w.super, tile + super_at(blocks, block));
#endif
}

enum { SLOT = TILE_BYTES };

DEVICE void copy_to_slot(Address to, const uint8_t *from, int in_tile)
{
	UNROLL for (int first = 0; first < SLOT; first += 16 * WARP)
		if (first + 16 * lane_id() < tile_bytes(in_tile))
			copy_async<16>(to + first + 16 * lane_id(), from + first + 16 * lane_id());
}

#endif

// The tiles of a warp, in the order in which it multiplies them: those of its band of a group, then those of the next pass or group.
// The ring of shared memory has the next ones.
template <typename Job, int TEAMS> struct Ring {
	enum { EARLY = 1 }; // with so many tiles for each warp on their way, rows that are requested behind them arrive soon

	Address slots;    // of the warp
	int stages, slot; // the slot of the next tile
	// The tile that is copied next:
	const uint8_t *at;
	int tile, group, pass; // group: past the last one if there is none

	// Begins to copy a tile to the slot of the one that was multiplied last.
	DEVICE void copy_next(Ring &r, const Job &job, int blocks, int slot)
	{
		if (r.group < groups_of(job)) {
			if (r.tile == 0)
				r.at = band_at<TEAMS>(job, r.group, r.pass, blocks);
			const int in_tile = min(blocks - r.tile * TILE_BLOCKS, int(TILE_BLOCKS));
			copy_to_slot(r.slots + slot * SLOT, r.at, in_tile);
			r.at += tile_bytes(in_tile);
			if (++r.tile == tiles_of(blocks)) {
				r.tile = 0, r.pass = (r.pass + 1) % Job::PASSES;
				r.group += r.pass == 0 ? TEAMS * gridDim.x : 0;
			}
		}
		copies_commit();
	}
};

// Waits for all copies but those of the last so many tiles: comparisons are faster than the jump of a switch.
DEVICE void wait_for_all_but(int tiles)
{
	if (tiles <= 1) {
		if (tiles == 1)
			copies_wait<1>();
		else
			copies_wait<0>();
	} else if (tiles <= 3) {
		if (tiles == 3)
			copies_wait<3>();
		else
			copies_wait<2>();
	} else if (tiles == 4)
		copies_wait<4>();
	else
		copies_wait<5>();
}

#endif

#ifdef MATRIX

// Products of N rows: see mma_row.cuh.
template <int N, typename Job, typename Source> DEVICE void multiply(const Job &job, const Source &a, const int *rows, int stages)
{
	enum { TEAMS = Source::TEAMS };
	typedef RowMemory<N, TEAMS> Memory;
	SHARED(Memory, memory);
	const int lane = lane_id(), team = team_id<TEAMS>(), warp = team_warp<TEAMS>(), blocks = blocks_of(a.inputs), tiles = tiles_of(blocks), groups = groups_of(job);
	const int first_group = blockIdx.x + team * gridDim.x;
	const Address image = again(address_of(memory->image)), slots = image + tiles * TILE_BLOCKS * UNIT_BYTES + team * stages * FEW_STAGE;
	const InTile at = in_tile(a.inputs);
	typedef Ring<Job, TEAMS> Tiles;
	Tiles ring = {slots + warp * FEW_BAND, stages, 0, 0, 0, first_group, 0};
	int copied = 0;
	const auto copy = [&](int until) {
		for (; copied < until; copied++)
			Tiles::copy_next(ring, job, blocks, copied);
	};
	copy(Source::WEIGHTS_FIRST ? stages - 1 : min(stages - 1, int(Tiles::EARLY)));
	if (Source::WEIGHTS_FIRST)
		request_tiles(band_at<TEAMS>(job, first_group, 0, blocks), blocks / TILE_BLOCKS);
	stage_rows<N>(memory->image, memory->partial, a, rows, [&] { copy(stages - 1); });
	// How many copies, the latest ones, the next tile does not need: it needs the first of the two groups of units.
	int unneeded = Source::WEIGHTS_FIRST ? min(stages - 2, 1) : stages - 2;
	int step = 0;
	for (int group = *rows > 0 ? first_group : groups; group < groups; group += TEAMS * gridDim.x)
		for (int pass = 0; pass < Job::PASSES; pass++) {
			float acc[FEW_LANES][FEW_OUTPUTS / 16][2] = {};
			for (int tile = 0; tile < tiles; tile++) {
				const int in_tile = min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS));
				wait_for_all_but(unneeded);
				unneeded = stages - 2;
				sync_team<TEAMS>(); // and all warps have multiplied the tile before
				Tiles::copy_next(ring, job, blocks, (ring.slot == 0 ? stages : ring.slot) - 1);
				const Address weights = slots + ring.slot * FEW_STAGE, units = image + (tile * TILE_BLOCKS + warp) * UNIT_BYTES;
				const auto multiply = [&](int i) { multiply_unit(acc[i], weights, at, units + i * WARPS * UNIT_BYTES, i); };
				if (in_tile == TILE_BLOCKS) { // without branches, so that a block's loads do not wait for the products of the one before
					UNROLL for (int i = 0; i < FEW_LANES; i++)
						multiply(i);
				} else {
					UNROLL for (int i = 0; i < FEW_LANES; i++)
						if (i * WARPS + warp < in_tile)
							multiply(i);
				}
				ring.slot = ring.slot + 1 == stages ? 0 : ring.slot + 1;
			}
			UNROLL for (int n = 0; n < FEW_OUTPUTS / 16; n++)
				UNROLL for (int i = 0; i < 2; i++)
					memory->sums[team][warp][(n * 2 + i) * WARP + lane] = (acc[0][n][i] + acc[2][n][i]) + (acc[1][n][i] + acc[3][n][i]);
			sync_team<TEAMS>();
			if (group + TEAMS * int(gridDim.x) >= groups && pass == Job::PASSES - 1)
				begin_next(); // not before, as in multiply_row
			const auto of = [&](int from) { return memory->sums[team][from][threadIdx.x % (N * GROUP_OUTPUTS)]; };
			const float sum = ((of(0) + of(4)) + (of(2) + of(6))) + ((of(1) + of(5)) + (of(3) + of(7)));
			finish<N>(job, memory, group, step, {warp * WARP < N * GROUP_OUTPUTS, lane % N, warp * 8 + lane / N}, sum, rows);
			step = (step + 1) % (2 * Job::PASSES);
		}
	if (blockIdx.x == gridDim.x - 1)
		pad<TEAMS>(job, *rows);
}

#else

// Products of one row.
template <typename Job, typename Source> DEVICE void multiply_row(const Job &job, const Source &a, const int *rows)
{
	typedef RowMemory<1, 1> Memory;
	SHARED(Memory, memory);
	const int lane = lane_id(), blocks = blocks_of(a.inputs), full_tiles = blocks / TILE_BLOCKS, groups = groups_of(job);
	int group = blockIdx.x, step = 0;
	const uint8_t *tile_at = band_at<1>(job, group, 0, blocks);

	// As in matmul; the first tile is on its way while the image is staged, the next band's while a band ends.
	const bool prefetch = SCALE_BYTES > 0;
	Block next = {};
	if (prefetch && full_tiles > 0)
		load_block(next, tile_at, TILE_BLOCKS, lane);
	const auto request_rest = [&] { request_tiles(tile_at + prefetch * tile_bytes(TILE_BLOCKS), full_tiles - prefetch); };
	if (Source::WEIGHTS_FIRST)
		request_rest();
	stage_rows<1>(memory->image, memory->partial, a, rows, request_rest);
	if (*rows == 0)
		return; // checked this late so that no load above waits for rows
	for (;;) {
		const int next_step = (step + 1) % (2 * Job::PASSES), next_pass = next_step % Job::PASSES, next_group = next_pass == 0 ? group + gridDim.x : group;
		const uint8_t *const following_at = next_group < groups ? band_at<1>(job, next_group, next_pass, blocks) : 0;
		float acc[BAND_OUTPUTS] = {};
		const uint4 *image = memory->image;
		for (int left = full_tiles; left > 0; left--) {
			Block w = next;
			if (!prefetch)
				load_block(w, tile_at, TILE_BLOCKS, lane);
			tile_at += tile_bytes(TILE_BLOCKS);
			const uint8_t *const from = left > 1 ? tile_at : following_at;
			if (prefetch && from)
				load_block(next, from, TILE_BLOCKS, lane);
			if (Source::WEIGHTS_FIRST)
				request_ahead(tile_at, left - 1, full_tiles);
			RowPath::template multiply<1>(acc, w, image, 0);
			image += RowPath::UNITS;
		}
		if (lane < blocks % TILE_BLOCKS) {
			Block w;
			load_block(w, tile_at, blocks % TILE_BLOCKS, lane);
			RowPath::template multiply<1>(acc, w, image, 0);
		}
		if (next_group >= groups)
			begin_next(); // not before: its blocks would be on few multiprocessors, those that have room
		finish<1>(job, memory, group, step, place_of_band<1>(), warp_sums(acc), rows);
		if (next_group >= groups)
			break;
		group = next_group, step = next_step, tile_at = following_at;
	}
	if (blockIdx.x == gridDim.x - 1)
		pad<1>(job, 1);
}

// Products of N rows.
template <int N, typename Job, typename Source> DEVICE void multiply_rows(const Job &job, const Source &a, const int *rows, [[maybe_unused]] int stages)
{
	typedef RowMemory<N, 1> Memory;
	SHARED(Memory, memory);
	const int lane = lane_id(), blocks = blocks_of(a.inputs), tiles = tiles_of(blocks), groups = groups_of(job), stride = tiles * RowPath::UNITS;
#ifdef RING
	typedef Ring<Job, 1> Tiles;
	Tiles ring = {again(address_of(memory->image + N * stride)) + warp_id() * stages * SLOT, stages, 0, 0, 0, int(blockIdx.x), 0};
	int copied = 0;
	const auto copy = [&](int until) {
		for (; copied < until; copied++)
			Tiles::copy_next(ring, job, blocks, copied);
	};
	copy(Source::WEIGHTS_FIRST ? stages : min(stages, int(Tiles::EARLY)));
#else
	const auto copy = [&](int) {};
#endif
	if (Source::WEIGHTS_FIRST)
		request_tiles(band_at<1>(job, blockIdx.x, 0, blocks), blocks / TILE_BLOCKS);
	stage_rows<N>(memory->image, memory->partial, a, rows, [&] { copy(stages); });
	int step = 0;
	for (int group = *rows > 0 ? blockIdx.x : groups; group < groups; group += gridDim.x)
		for (int pass = 0; pass < Job::PASSES; pass++) {
			float acc[N * BAND_OUTPUTS] = {};
			const uint8_t *tile_at = band_at<1>(job, group, pass, blocks);
			for (int tile = 0; tile < tiles; tile++) {
				const int in_tile = min(blocks - tile * TILE_BLOCKS, int(TILE_BLOCKS));
				const uint4 *const image = memory->image + tile * RowPath::UNITS;
#ifdef RING
				if (has_ring(stages)) {
					wait_for_all_but(stages - 1);
					syncwarp();
					if (lane < in_tile) {
						Block w;
						load_shared_block(w, ring.slots + ring.slot * SLOT, in_tile, lane);
						RowPath::template multiply<N>(acc, w, image, stride);
					}
					syncwarp();
					Tiles::copy_next(ring, job, blocks, ring.slot);
					ring.slot = ring.slot + 1 == stages ? 0 : ring.slot + 1;
					continue;
				}
#endif
				if (lane < in_tile) {
					Block w;
					load_block(w, tile_at, in_tile, lane);
					RowPath::template multiply<N>(acc, w, image, stride);
				}
				tile_at += tile_bytes(TILE_BLOCKS);
			}
			if (group + int(gridDim.x) >= groups && pass == Job::PASSES - 1)
				begin_next(); // not before, as in multiply_row
			finish<N>(job, memory, group, step, place_of_band<N>(), warp_sums(acc), rows);
			step = (step + 1) % (2 * Job::PASSES);
		}
	if (blockIdx.x == gridDim.x - 1)
		pad<1>(job, *rows);
}

template <int N, typename Job, typename Source> DEVICE void multiply(const Job &job, const Source &a, const int *rows, [[maybe_unused]] int stages)
{
	if constexpr (N == 1)
		multiply_row(job, a, rows);
	else
		multiply_rows<N>(job, a, rows, stages);
}

#endif

#ifdef MATRIX
#define WITH_ORDER(...) __VA_ARGS__
#else
#define WITH_ORDER(...)
#endif

#define NORM_PRODUCT(weight, name, n, suffix) \
	KERNEL(matmul_##weight##_##name##_norm##suffix, Normalized::TEAMS * 32 * WARPS, 2 / Normalized::TEAMS) \
	(float *dst0, const uint8_t *weights0, int outputs0, float *dst1, const uint8_t *weights1, int outputs1, \
		float *dst2, const uint8_t *weights2, int outputs2, const float *x, const float *w, float eps, int inputs, const int *rows, int stages) \
	{ \
		multiply<n>(Stored{{dst0, weights0, outputs0, 0}, {dst1, weights1, outputs1, 0}, {dst2, weights2, outputs2, 0}, false}, \
			Normalized{x, w, eps, inputs}, rows, stages); \
	} \
	KERNEL(matmul_##weight##_##name##_glu##suffix, Normalized::TEAMS * 32 * WARPS, 2 / Normalized::TEAMS) \
	(uint4 *image, const uint8_t *gate, const uint8_t *up, int outputs, int kind_of_gate, const float *x, const float *w, float eps, int inputs, const int *rows, \
		WITH_ORDER(int order, ) int stages) \
	{ \
		multiply<n>(Gating{image, gate, up, outputs, kind_of_gate, WITH_ORDER(order)}, Normalized{x, w, eps, inputs}, rows, stages); \
	}

#define ONE_PRODUCT(weight, name, n, suffix) \
	KERNEL(matmul_##weight##_##name##_one##suffix, 32 * WARPS, 2) \
	(float *dst, const uint8_t *weights, int outputs, const uint4 *image, int inputs, int add, const int *rows, int stages) \
	{ \
		multiply<n>(Stored{{dst, weights, outputs, 0}, {}, {}, add != 0}, Imaged{image, inputs}, rows, stages); \
	}

#define ROW_PRODUCT(weight, name, n, suffix) ROW_PRODUCT_NAMED(weight, name, n, suffix)
#define ROW_PRODUCT_NAMED(weight, name, n, suffix) NORM_PRODUCT(weight, name, n, suffix) ONE_PRODUCT(weight, name, n, suffix)

#if SCALE_BYTES == 0
ROW_PRODUCT(WEIGHT, float, 1, )
ROW_PRODUCT(WEIGHT, float, 2, _n2)
ROW_PRODUCT(WEIGHT, float, 4, _n4)
#elif defined(MATRIX)
ROW_PRODUCT(WEIGHT, mma, 4, _n4)
#elif defined(EXACT)
ROW_PRODUCT(WEIGHT, dp2a, 1, )
ROW_PRODUCT(WEIGHT, dp2a, 2, _n2)
ROW_PRODUCT(WEIGHT, dp2a, 4, _n4)
#else
ROW_PRODUCT(WEIGHT, i16, 1, ) // devices of these units gain nothing with more rows: arithmetic is the limit
#endif
