// Attention of one row, included by attention.cu: the work of few rows is to wait for memory, for code as
// much as for data, since the weights of a layer displace both from the caches. So the code is short:
// loops are unrolled only to have loads on their way. A warp requests the keys of its tile in one
// coalesced trip, and the values for the L2 cache; keys go to their lanes through shared memory. The
// blocks along gridDim.x divide the units of the row among them, and the last one that is done adds the
// units up.

// Requests the memory at p for the L2 cache.
DEVICE void prefetch(const void *p)
{
#ifdef EMU
	(void)p;
#else
	asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// The same for positions first to last of a tile of keys or values; none: last < first.
DEVICE void prefetch_rows(const Params &a, Elements rows, int first, int last)
{
#if defined(CACHE_F16)
	const char *line = reinterpret_cast<const char *>(rows + first * a.dim), *const end = reinterpret_cast<const char *>(rows + (last + 1) * a.dim);
#else // without scales
	const uint8_t *line = codes_at(rows + first * a.dim), *const end = codes_at(rows + (last + 1) * a.dim);
#endif
	UNROLL_BY(1) for (line += 128 * lane_id(); line < end; line += 128 * WARP)
		prefetch(line);
}

// Loads N pieces of 16 bytes of elements, those of keys that are step elements apart from p on: the j-th if first <= j * each <= last, else zero.
template <int N> DEVICE void load_pieces(uint4 (&pieces)[N], Elements p, int step, int first, int last, int each)
{
#if defined(CACHE_F16)
	UNROLL for (int j = 0; j < N; j++, p += step) {
		pieces[j] = make_uint4(0, 0, 0, 0);
		if (first <= j * each && j * each <= last)
			pieces[j] = ldg128(p);
	}
#else
	load_each<N>(p, step, first, last, each, [&](int j, const float *v) { memcpy(&pieces[j], v, sizeof pieces[j]); });
#endif
}

#if defined(CACHE_ANY)
// The same for values of WIDTH elements.
template <int WIDTH, typename Values, int N> DEVICE void load_values(Values (&to)[N], Elements p, int dim)
{
	if constexpr (WIDTH < 4) {
		UNROLL for (int j = 0; j < N; j++)
			UNROLL for (int c = 0; c < WIDTH; c++)
				to[j].words[c] = float_to_bits(load1(p + j * dim + c));
	} else {
		UNROLL for (int c = 0; c < WIDTH; c += 4)
			load_each<N>(p + c, dim, 0, N - 1, 1, [&](int j, const float *v) { memcpy(&to[j].words[c], v, 16); });
	}
}
#endif

// Keys of a tile in shared memory: of each position a chunk of PIECES times 16 bytes, and 16 bytes that
// keep lanes from each other's banks.
template <int WIDTH, int QUERIES> struct Keys {
	enum {
		SIZE = sizeof(element),
		WHOLE = WIDTH * WARP * SIZE / 16, // pieces of the widest key, unless it is latent
		PIECES = QUERIES * WIDTH > 32 ? 8 : IS_LATENT || WHOLE > 16 ? 16 : WHOLE,
		STRIDE = 16 * (PIECES + 1),
		CHUNK = 16 * PIECES / SIZE, // elements
		ONE_CHUNK = !IS_LATENT && WHOLE <= PIECES,
		EACH = WARP / PIECES, // positions that the lanes load at once
	};

	// Copies chunk c of the keys of positions first to last of the tile; other places become zero.
	DEVICE void copy(char *chunks, Elements keys, int dim, int c, int first, int last)
	{
		if (dim % 8 != 0) { // keys are not aligned
			UNROLL_BY(1) for (int i = lane_id(); i < CHUNK * WARP; i += WARP) {
				const int p = i / CHUNK, d = i % CHUNK;
				reinterpret_cast<element *>(chunks + p * STRIDE)[d] = first <= p && p <= last && d < dim ? load_element(keys + p * dim + d) : element(0);
			}
			return;
		}
		const int at = c * CHUNK + lane_id() % PIECES * (16 / SIZE), p = lane_id() / PIECES;
		keys += p * dim + at;
		chunks += p * STRIDE + lane_id() % PIECES * 16;
		if (at >= dim)
			last = -1;
		uint4 pieces[PIECES];
		load_pieces<PIECES>(pieces, keys, EACH * dim, first - p, last - p, EACH);
		UNROLL for (int j = 0; j < PIECES; j++)
			*reinterpret_cast<uint4 *>(chunks + j * EACH * STRIDE) = pieces[j];
	}

	// score[i] += q[i]·key over count elements of the lane's chunk.
	DEVICE void multiply(const char *chunks, const float *q, int stride, int count, float *score)
	{
		const char *key = chunks + lane_id() * STRIDE;
		UNROLL_BY(QUERIES <= 2 ? 2 : 1) for (int d = 0; d < count; d += 8) {
			float k[8];
			elements(reinterpret_cast<const uint4 *>(key + d * SIZE), k);
			UNROLL for (int i = 0; i < QUERIES; i++)
				add_products(q + i * stride + d, k, &score[i]);
		}
	}

	DEVICE void elements(const uint4 *from, float *k)
	{
		uint4 v = from[0];
#if defined(CACHE_F16)
		halves(v.x, k);
		halves(v.y, k + 2);
		halves(v.z, k + 4);
		halves(v.w, k + 6);
#else
		memcpy(k, &v, sizeof v);
		v = from[1];
		memcpy(k + 4, &v, sizeof v);
#endif
	}
};

// Elements of a value as they are in the cache, or float32.
template <int WIDTH> struct Words {
	enum { BYTES = WIDTH * sizeof(element), COUNT = (BYTES + 3) / 4 };
	uint32_t words[COUNT];

	// The values of BATCH positions from p on, dim elements apart.
	template <int BATCH> DEVICE void load_all(Words (&to)[BATCH], Elements p, int dim)
	{
#if defined(CACHE_F16)
		UNROLL for (int j = 0; j < BATCH; j++)
			load(to[j], p + j * dim);
#else
		load_values<WIDTH>(to, p, dim);
#endif
	}

	DEVICE void load([[maybe_unused]] Words &to, [[maybe_unused]] Elements p)
	{
#if defined(CACHE_F16)
		if constexpr (BYTES == 2)
			to.words[0] = ldg16(p);
		else if constexpr (BYTES == 4)
			to.words[0] = ldg32(p);
		else if constexpr (BYTES == 8) {
			const uint2 v = ldg64(p);
			memcpy(to.words, &v, sizeof v);
		} else {
			UNROLL for (int i = 0; i < COUNT; i += 4) {
				const uint4 v = ldg128(reinterpret_cast<const char *>(p) + 4 * i);
				memcpy(&to.words[i], &v, sizeof v);
			}
		}
#endif
	}

	DEVICE float at(const Words &w, int c)
	{
#if defined(CACHE_F16)
		return half_to_float(uint16_t(w.words[c / 2] >> 16 * (c % 2)));
#else
		return __uint_as_float(w.words[c]);
#endif
	}
};

// The row's own key and value, if this launch stores them: their position in the warp's tile, or -1, and
// the lane's elements of the value.
template <int WIDTH> struct Own {
	int at;
	Words<WIDTH> value;
};

// sum[i] += Σ e[p]·value[p] over positions first to last of the tile. e is 0 at the others, and their values
// count as 0, because their memory may be uninitialized.
template <int WIDTH, int QUERIES>
DEVICE void add_row_values(const float *e, Elements values, int dim, int first, int last, const Own<WIDTH> &own, float (&sum)[QUERIES][WIDTH])
{
	typedef Words<WIDTH> V;
	enum { BATCH = V::COUNT <= 2 ? 8 : 4 }; // loads on their way
	UNROLL_BY(1) for (int begin = first / BATCH * BATCH; begin <= last; begin += BATCH) {
		V v[BATCH];
		V::load_all(v, values + begin * dim, dim);
		UNROLL for (int j = 0; j < BATCH; j++) {
			const int p = begin + j;
			UNROLL for (int i = 0; i < V::COUNT; i++)
				v[j].words[i] = p == own.at ? own.value.words[i] : first <= p && p <= last ? v[j].words[i] : 0;
		}
		UNROLL for (int j = 0; j < BATCH; j += 4)
			UNROLL for (int i = 0; i < QUERIES; i++) {
				const float4 w = *reinterpret_cast<const float4 *>(e + i * UNIT + begin + j);
				UNROLL for (int c = 0; c < WIDTH; c++) {
					sum[i][c] = fmaf(w.x, V::at(v[j], c), sum[i][c]);
					sum[i][c] = fmaf(w.y, V::at(v[j + 1], c), sum[i][c]);
					sum[i][c] = fmaf(w.z, V::at(v[j + 2], c), sum[i][c]);
					sum[i][c] = fmaf(w.w, V::at(v[j + 3], c), sum[i][c]);
				}
			}
	}
}

// The two elements that a rotation changes together, as in storekv.cu: pair of pairs, or others that are
// only copied.
struct Pair { int first, second; };
DEVICE Pair pair_of(const Params &a, int pair)
{
	const int first = pair < a.pairs ? pair * a.pair_stride : 2 * pair;
	return {first, first + (pair < a.pairs ? a.distance : 1)};
}

#if defined(CACHE_F16)
// Reports whether the block is the one that stores its key and value: the first of those with them.
DEVICE bool is_first_part(const Params &a, const Queries &n) { return n.head % (a.heads / a.kv_heads) == 0; }

// Sets own.value to the lane's elements of the row's value, as the cache rounds them, and stores them at to.
template <int WIDTH> DEVICE void own_value(const Params &a, const Queries &n, element *to, Own<WIDTH> &own)
{
	const float *value = a.values + ((size_t)n.row * a.kv_heads + n.kv_head) * a.dim + lane_id() * WIDTH;
	const bool store = is_first_part(a, n);
	element elements[Words<WIDTH>::COUNT * 4 / sizeof(element)] = {};
	UNROLL for (int c = 0; c < WIDTH; c++) {
		elements[c] = to_element(value[c]);
		if (store)
			to[c] = elements[c];
	}
	memcpy(own.value.words, elements, sizeof elements);
}

// Copies the row's key, rotated, to shared memory, and to the cache at to. All lanes of the warp call it.
DEVICE void own_key(const Params &a, const Queries &n, const float2 *cos_sin, element *to, element *shared)
{
	const float *key = a.keys + ((size_t)n.row * a.kv_heads + n.kv_head) * a.dim;
	const bool store = is_first_part(a, n);
	syncwarp(); // other lanes have cleared the place
	UNROLL_BY(1) for (int pair = lane_id(); pair < a.dim / 2; pair += WARP) {
		const Pair p = pair_of(a, pair);
		float2 v = make_float2(key[p.first], key[p.second]);
		if (pair < a.pairs)
			v = rotate(v.x, v.y, cos_sin[pair]);
		const element x = to_element(v.x), y = to_element(v.y);
		shared[p.first] = x;
		shared[p.second] = y;
		if (store)
			to[p.first] = x, to[p.second] = y;
	}
}

#endif

// Computes one unit of the row: s.tile_max, s.tile_sum and s.unit_out.
template <int WIDTH, int QUERIES>
DEVICE void attend_row_unit(const Params &a, const Shared &s, const Queries &n, [[maybe_unused]] const float2 *cos_sin, int sequence, int unit)
{
	typedef Keys<WIDTH, QUERIES> Tile;
	const int lane = lane_id(), tile = warp_id(), start = unit * UNIT + tile * BLOCK_POSITIONS, stride = stride_of<WIDTH>(a.dim), d = lane * WIDTH;
	const int first = max(n.low - start, 0), last = min(n.high - start, BLOCK_POSITIONS - 1); // none: last < first
	const int block = first <= last ? a.tables[(size_t)sequence * a.stride + start / BLOCK_POSITIONS] : 0;
	const Elements keys = rows_of(a, block, KEYS, n.kv_head), values = rows_of(a, block, a.parts - 1, n.kv_head);
	if (!IS_LATENT) // the values of a latent cache are in its keys
		prefetch_rows(a, values, first, last);
	Own<WIDTH> own = {-1, {}};
#if defined(CACHE_F16)
	if (Tile::ONE_CHUNK && a.keys != nullptr && n.high - start == last && first <= last) {
		own.at = last;
		if (d < a.value_dim)
			own_value<WIDTH>(a, n, const_cast<element *>(values) + last * a.dim + d, own);
	}
#endif
	char *const chunks = reinterpret_cast<char *>(s.unit_out) + tile * BLOCK_POSITIONS * Tile::STRIDE;
	float score[QUERIES] = {};
	if (first <= last)
		UNROLL_BY(1) for (int c = 0; c * Tile::CHUNK < a.dim; c++) {
			syncwarp();
			Tile::copy(chunks, keys, a.dim, c, first, own.at >= 0 ? last - 1 : last);
#if defined(CACHE_F16)
			if (Tile::ONE_CHUNK && own.at >= 0)
				own_key(a, n, cos_sin, const_cast<element *>(keys) + last * a.dim, reinterpret_cast<element *>(chunks + last * Tile::STRIDE));
#endif
			syncwarp();
			Tile::multiply(chunks, s.q + c * Tile::CHUNK, stride, min(a.dim - c * Tile::CHUNK, int(Tile::CHUNK)), score);
		}

	const bool attended = first <= lane && lane <= last;
	if (a.inner > 0.0f)
		UNROLL for (int i = 0; i < QUERIES; i++)
			score[i] = tanh_of(score[i] * a.inner);
	UNROLL for (int i = 0; i < QUERIES; i++) {
		score[i] = attended ? score[i] * a.scale : MINUS_INFINITY;
		const float max = warp_max(score[i]);
		if (lane == 0)
			s.tile_max[i * TILES + tile] = max;
	}
	syncthreads(); // the keys are no longer needed either
	UNROLL for (int i = 0; i < QUERIES; i++) {
		const float e = attended ? exp2_of(score[i] - unit_max(s, i)) : 0.0f, sum = warp_sum(e);
		s.e[i * UNIT + threadIdx.x] = e;
		if (lane == 0)
			s.tile_sum[i * TILES + tile] = sum;
	}
	syncwarp();

	float sum[QUERIES][WIDTH] = {};
	if (d < a.value_dim)
		add_row_values<WIDTH, QUERIES>(s.e + tile * BLOCK_POSITIONS, values + d, a.dim, first, last, own, sum);
	UNROLL_BY(1) for (int t = 0; t < TILES; t++) {
		if (t == tile && d < a.value_dim)
			UNROLL for (int i = 0; i < QUERIES; i++)
				UNROLL for (int c = 0; c < WIDTH; c++)
					s.unit_out[i * WIDTH * WARP + d + c] = sum[i][c] + (t == 0 ? 0.0f : s.unit_out[i * WIDTH * WARP + d + c]);
		syncthreads();
	}
}

// Returns the partial (m, l, a) of a unit of query i.
DEVICE float *partial_of(const Params &a, const Queries &n, int i, int unit)
{
	return a.partials + (((size_t)n.row * a.heads + n.head + i) * a.units + unit) * (a.value_dim + 2);
}

// Adds all units of the row up in ascending order, from their partials: s.sum, s.max and s.out.
template <int WIDTH, int QUERIES> DEVICE void merge_units(const Params &a, const Shared &s, const Queries &n)
{
	enum { AT_ONCE = QUERIES >= 8 ? 4 : 8, DIMS = WIDTH * WARP };
	const int t = threadIdx.x, lane = lane_id(), end = n.high / UNIT + 1, size = a.value_dim + 2, next = a.units * size;
	float *const scale = s.e, *const unit_scale = s.e + WARP, *const unit_sum = s.e + 2 * WARP; // of query i: UNIT · i after these
	UNROLL_BY(1) for (int begin = n.low / UNIT; begin < end; begin += WARP) {
		const int count = min(end - begin, int(WARP));
		UNROLL_BY(1) for (int i = warp_id(); i < n.count; i += TILES) {
			const float *partial = partial_of(a, n, i, begin + min(lane, count - 1));
			const float m = lane < count ? __ldcg(partial) : MINUS_INFINITY;
			unit_sum[i * UNIT + lane] = __ldcg(partial + 1);
			float prefix = m; // maximum of the units up to the lane's
			UNROLL_BY(1) for (int distance = 1; distance < WARP; distance *= 2) {
				const float earlier = shfl_up(prefix, distance);
				prefix = fmaxf(prefix, lane >= distance ? earlier : MINUS_INFINITY);
			}
			const float before = shfl_up(prefix, 1), max = s.max[i];
			float previous = lane == 0 ? max : fmaxf(max, before);
			rescale(&previous, m, &scale[i * UNIT + lane], &unit_scale[i * UNIT + lane]);
			const float all = fmaxf(max, shfl(prefix, WARP - 1));
			syncwarp();
			if (lane == 0) {
				s.max[i] = all;
				float sum = s.sum[i];
				UNROLL_BY(1) for (int u = 0; u < count; u++)
					sum = accumulate(sum, scale[i * UNIT + u], unit_sum[i * UNIT + u], unit_scale[i * UNIT + u]);
				s.sum[i] = sum;
			}
		}
		syncthreads();
		UNROLL_BY(1) for (int d = t; d < a.value_dim; d += UNIT) {
			const float *partial = partial_of(a, n, 0, begin) + 2 + d;
			float out[QUERIES];
			UNROLL for (int i = 0; i < QUERIES; i++)
				out[i] = s.out[i * DIMS + d];
			UNROLL_BY(1) for (int u = 0; u < count; u += AT_ONCE) {
				float v[AT_ONCE][QUERIES];
				UNROLL for (int j = 0; j < AT_ONCE; j++)
					UNROLL for (int i = 0; i < QUERIES; i++)
						v[j][i] = u + j < count && i < n.count ? __ldcg(partial + (u + j) * size + i * next) : 0.0f;
				UNROLL for (int j = 0; j < AT_ONCE; j++)
					if (u + j < count)
						UNROLL for (int i = 0; i < QUERIES; i++)
							out[i] = accumulate(out[i], scale[i * UNIT + u + j], v[j][i], unit_scale[i * UNIT + u + j]);
			}
			UNROLL for (int i = 0; i < QUERIES; i++)
				s.out[i * DIMS + d] = out[i];
		}
		syncthreads();
	}
}

// Copies the queries to shared memory, rotated if cos_sin is not null; what no query has becomes zero.
template <int WIDTH, int QUERIES> DEVICE void load_queries(const Params &a, const Shared &s, const Queries &n, const float2 *cos_sin)
{
	const int stride = stride_of<WIDTH>(a.dim);
	const float *const q = a.q + ((size_t)n.row * a.heads + n.head) * a.dim;
	if (cos_sin == nullptr) {
		UNROLL_BY(4) for (int x = threadIdx.x; x < QUERIES * stride; x += UNIT) {
			const int i = x / stride, d = x % stride;
			s.q[x] = i < n.count && d < a.dim ? q[i * a.dim + d] : 0.0f;
		}
		return;
	}
	UNROLL_BY(2) for (int x = threadIdx.x; x < QUERIES * stride / 2; x += UNIT) {
		const int i = x / (stride / 2), pair = x % (stride / 2);
		if (pair >= a.dim / 2)
			continue;
		const Pair p = pair_of(a, pair);
		float2 v = make_float2(0.0f, 0.0f);
		if (i < n.count)
			v = make_float2(q[i * a.dim + p.first], q[i * a.dim + p.second]);
		if (pair < a.pairs)
			v = rotate(v.x, v.y, cos_sin[pair]);
		s.q[i * stride + p.first] = v.x;
		s.q[i * stride + p.second] = v.y;
	}
}

// Requests keys and values of the warp's tile of a unit for the L2 cache, where there is time for that because launches overlap.
DEVICE void request_tile([[maybe_unused]] const Params &a, [[maybe_unused]] const Queries &n, [[maybe_unused]] int sequence, [[maybe_unused]] int unit)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 900
	const int start = unit * UNIT + warp_id() * BLOCK_POSITIONS, first = max(n.low - start, 0), last = min(n.high - start, BLOCK_POSITIONS - 1);
	if (first > last)
		return;
	const int block = a.tables[(size_t)sequence * a.stride + start / BLOCK_POSITIONS];
	UNROLL_BY(1) for (int part = 0; part < a.parts; part++)
		prefetch_rows(a, rows_of(a, block, part, n.kv_head), first, last);
#endif
}

// Grid: (blocks of a row, kv heads and parts of their query heads, rows).
template <int WIDTH, int QUERIES> DEVICE void attend_row(float *memory, const Params &a)
{
	enum { DIMS = WIDTH * WARP };
	float2 *cos_sin = nullptr;
	if (Keys<WIDTH, QUERIES>::ONE_CHUNK && a.keys != nullptr) {
		cos_sin = reinterpret_cast<float2 *>(memory);
		memory += DIMS; // for factors of half the elements
	}
	const Shared s = shared_layout<WIDTH, QUERIES>(memory, stride_of<WIDTH>(a.dim));
	const int group = a.heads / a.kv_heads, parts = (group + a.block_heads - 1) / a.block_heads, t = threadIdx.x;
	Queries n;
	n.row = blockIdx.z;
	begin_next();
	const int rows = *a.rows, pos = a.pos[n.row], last = a.last[n.row], sequence = a.seq[n.row]; // four loads at once
	if (cos_sin != nullptr)
		rope_factors(cos_sin, a.pairs, a.frequencies, a.magnitude, pos);
	n.kv_head = blockIdx.y / parts;
	n.head = n.kv_head * group + blockIdx.y % parts * a.block_heads;
	n.count = n.heads = min(a.block_heads, (n.kv_head + 1) * group - n.head);
	n.high = min(last, pos + a.after), n.low = max(0, pos - a.before);
	const int first_unit = n.low / UNIT, units = n.high / UNIT - first_unit + 1, blocks = min(int(gridDim.x), units);
	const bool works = n.row < rows && int(blockIdx.x) < blocks;
	if (works)
		request_tile(a, n, sequence, first_unit + blockIdx.x);
	wait_for_previous();
	if (!works)
		return;

	load_queries<WIDTH, QUERIES>(a, s, n, cos_sin);
	if (rotates_queries(a))
		rotate_queries(s.q, QUERIES, stride_of<WIDTH>(a.dim), a.dim);
	if (t < QUERIES)
		s.max[t] = MINUS_INFINITY, s.sum[t] = 0.0f;
	UNROLL_BY(1) for (int x = t; x < QUERIES * DIMS; x += UNIT)
		s.out[x] = 0.0f;
	syncthreads();

	UNROLL_BY(1) for (int unit = blockIdx.x; unit < units; unit += blocks) {
		attend_row_unit<WIDTH, QUERIES>(a, s, n, cos_sin, sequence, first_unit + unit);
		float *const partials = partial_of(a, n, 0, first_unit + unit);
		if (blocks == 1 && t < QUERIES) {
			rescale(&s.max[t], unit_max(s, t), &s.scale[t], &s.unit_scale[t]);
			s.sum[t] = accumulate(s.sum[t], s.scale[t], unit_sum(s, t), s.unit_scale[t]);
		}
		if (blocks > 1 && t < n.count) {
			partials[t * a.units * (a.value_dim + 2)] = unit_max(s, t);
			partials[t * a.units * (a.value_dim + 2) + 1] = unit_sum(s, t);
		}
		syncthreads();
		UNROLL_BY(1) for (int x = t; x < n.count * DIMS; x += UNIT) {
			const int i = x / DIMS, d = x % DIMS;
			if (d >= a.value_dim)
				continue;
			if (blocks > 1)
				partials[i * a.units * (a.value_dim + 2) + 2 + d] = s.unit_out[x];
			else
				s.out[x] = accumulate(s.out[x], s.scale[i], s.unit_out[x], s.unit_scale[i]);
		}
		syncthreads(); // the next unit's keys replace s.unit_out
	}
	if (blocks > 1) {
		if (!is_last(a.arrivals + n.row * gridDim.y + blockIdx.y, blocks, s.first))
			return;
		merge_units<WIDTH, QUERIES>(a, s, n);
	}
	finish<WIDTH>(a, s, n);
}
