// Operations on single rows: a few thousand values that fit in the thread's cache.

// eˣ = 2ⁿ · eʳ with n = round(x / ln 2) and |r| ≤ ln(2)/2. eʳ is its series up to r⁷/7!, with a
// relative remainder below 2^-27: the error is below 2 ulp. ln 2 is split in two parts so that n · hi
// is exact. Results below the smallest float are 0, results above the largest infinity; NaN stays NaN.
INLINE vf vf_exp(vf x)
{
	x = vf_max(vf_set(-104.0f), vf_min(vf_set(89.0f), x));
	vf n = vf_round(vf_mul(x, vf_set(0x1.715476p0f)));
	vf r = vf_fma(n, vf_set(-0x1.62e4p-1f), x);
	r = vf_fma(n, vf_set(-0x1.7f7d1cp-20f), r);
	vf p = vf_set(1.0f / 5040);
	p = vf_fma(p, r, vf_set(1.0f / 720));
	p = vf_fma(p, r, vf_set(1.0f / 120));
	p = vf_fma(p, r, vf_set(1.0f / 24));
	p = vf_fma(p, r, vf_set(1.0f / 6));
	p = vf_fma(p, r, vf_set(0.5f));
	p = vf_fma(p, r, vf_set(1.0f));
	p = vf_fma(p, r, vf_set(1.0f));
	return vf_scale2(p, n);
}

// Loads a vector from value i of w on. w has n values and any alignment.
INLINE vf get_weight(const uint8_t *w, int i, int n)
{
	return n - i >= LANES ? vf_load(w + 4 * (size_t)i) : vf_load_n(w + 4 * (size_t)i, n - i);
}

// y = (x - mean(x)) / sqrt(variance(x) + eps) · w + bias, which may be NULL. x, y, w, bias: (n)
static void layer_norm(const float *x, const uint8_t *w, const float *bias, float eps, float *y, int n)
{
	vf sum = vf_zero(), squares = vf_zero();
	for (int i = 0; i < n; i += LANES)
		sum = vf_add(sum, get(x + i, n - i));
	const vf mean = vf_set(vf_sum(sum) / (float)n);
	for (int i = 0; i < n; i += LANES) {
		float off[LANES] = {0};
		put(off, n - i, vf_sub(get(x + i, n - i), mean));
		squares = vf_fma(vf_load(off), vf_load(off), squares);
	}
	const vf scale = vf_set(1.0f / sqrtf(vf_sum(squares) / (float)n + eps));
	for (int i = 0; i < n; i += LANES) {
		vf a = vf_mul(vf_mul(vf_sub(get(x + i, n - i), mean), scale), get_weight(w, i, n));
		put(y + i, n - i, bias ? vf_add(a, get(bias + i, n - i)) : a);
	}
}

// y = x / sqrt(mean(x²) + eps) · w. x, y, w: (n)
static void rms_norm(const float *x, const uint8_t *weights, float eps, float *y, int n)
{
	vf squares = vf_zero();
	for (int i = 0; i < n; i += LANES) {
		vf a = get(x + i, n - i);
		squares = vf_fma(a, a, squares);
	}
	vf scale = vf_set(1.0f / sqrtf(vf_sum(squares) / (float)n + eps));
	for (int i = 0; i < n; i += LANES)
		put(y + i, n - i, vf_mul(vf_mul(get(x + i, n - i), scale), get_weight(weights, i, n)));
}

// y += x; x may have any alignment. x, y: (n)
static void add(const uint8_t *x, float *y, int n)
{
	for (int i = 0; i < n; i += LANES) {
		vf a = n - i >= LANES ? vf_load(x + 4 * (size_t)i) : vf_load_n(x + 4 * (size_t)i, n - i);
		put(y + i, n - i, vf_add(get(y + i, n - i), a));
	}
}

// a / (1 + e⁻ᵘ)
INLINE vf vf_gated(vf a, vf u) { return vf_div(a, vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), u)))); }

// x · (1 + erf(x / sqrt(2))) / 2 = max(x, 0) - |x| · erfc(|x| / sqrt(2)) / 2, with erfc(a) = t · e^(p(t) - a²),
// where t = 1 / (1 + a / 2), by the Chebyshev polynomial of Numerical Recipes.
INLINE vf vf_exact_gelu(vf x)
{
	static const float factors[] = {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f, 0.09678418f, 0.37409196f, 1.00002368f, -1.26551223f};
	vf size = vf_max(x, vf_sub(vf_zero(), x)), half = vf_mul(size, vf_set(0.5f));
	vf t = vf_div(vf_set(1.0f), vf_fma(size, vf_set(0.353553391f), vf_set(1.0f)));
	vf p = vf_set(0.17087277f);
	for (int i = 0; i < (int)(sizeof factors / sizeof *factors); i++)
		p = vf_fma(p, t, vf_set(factors[i]));
	return vf_sub(vf_max(vf_zero(), x), vf_mul(vf_mul(half, t), vf_exp(vf_sub(p, vf_mul(half, size)))));
}

// y = x / (1 + e⁻ᵘ) · z, where u is x, or 2 · sqrt(2/π) · (x + 0.044715 · x³) for GELU; see
// device.ClampedSwiGLU for its clamps; y = max(x, 0)² · z for SQUARED_RELU, exact_gelu(x) · z for EXACT_GELU. x, y, z: (n); z may be
// NULL: ones
INLINE void glu(const int activation, const float *x, const float *z, float *y, int n)
{
	for (int i = 0; i < n; i += LANES) {
		vf a = get(x + i, n - i), u = a, b = z ? get(z + i, n - i) : vf_set(1.0f);
		if (activation == GELU)
			u = vf_mul(vf_mul(a, vf_set(0x1.988454p0f)), vf_fma(vf_mul(a, vf_set(0.044715f)), a, vf_set(1.0f)));
		if (activation == CLAMPED_SWIGLU) {
			a = vf_min(vf_set(7.0f), a);
			u = vf_mul(a, vf_set(1.702f));
			b = vf_add(vf_max(vf_set(-7.0f), vf_min(vf_set(7.0f), b)), vf_set(1.0f));
		}
		vf gate = vf_max(vf_zero(), a);
		if (activation == SQUARED_RELU)
			gate = vf_mul(gate, gate);
		else if (activation == EXACT_GELU)
			gate = vf_exact_gelu(a);
		else
			gate = vf_gated(a, u);
		put(y + i, n - i, vf_mul(gate, b));
	}
}

// y = x · z, or z / (1 + e⁻ˣ), z · ln(1 + eˣ), z · eˣ. x, y, z: (n); z may be NULL: ones
INLINE void function(const int activation, const float *x, const float *z, float *y, int n)
{
	for (int i = 0; i < n; i += LANES) {
		vf a = get(x + i, n - i);
		if (activation == SIGMOID)
			a = vf_gated(vf_set(1.0f), a);
		if (activation == EXP)
			a = vf_exp(a);
		if (activation == SOFTPLUS) {
			float logs[LANES];
			vf_store(logs, vf_exp(vf_min(a, vf_sub(vf_zero(), a)))); // of -|x|
			for (int l = 0; l < LANES; l++)
				logs[l] = log1pf(logs[l]);
			a = vf_add(vf_max(vf_zero(), a), vf_load(logs));
		}
		put(y + i, n - i, z ? vf_mul(a, get(z + i, n - i)) : a);
	}
}

// y = y · sigmoid(x). x: (gates), with gates n or 1; y: (n)
static void gate_row(const float *x, int gates, float *y, int n)
{
	for (int i = 0; i < n; i += LANES)
		put(y + i, n - i, vf_gated(get(y + i, n - i), gates == 1 ? vf_set(x[0]) : get(x + i, n - i)));
}

// y = y · w. w: (values), with values n or 1, of any alignment; y: (n)
static void multiply(const uint8_t *w, int values, float *y, int n)
{
	float one;
	memcpy(&one, w, sizeof one);
	for (int i = 0; i < n; i += LANES) {
		vf a = values == 1 ? vf_set(one) : n - i >= LANES ? vf_load(w + 4 * (size_t)i) : vf_load_n(w + 4 * (size_t)i, n - i);
		put(y + i, n - i, vf_mul(get(y + i, n - i), a));
	}
}

static void copy_columns(const struct op *op, const float *x, float *y)
{
	for (int part = 0; part < op->parts; part++)
		memcpy(y + part * (op->cols / op->parts) + op->to, x + part * (op->outs / op->parts) + op->from,
		       sizeof *y * (size_t)op->width);
}

// Part i of y from column to on += Σ factor[i · sources + j] · part j of x; factors may be NULL: ones.
// x: (sources, width), y: (cols), factors: (targets, sources)
static void mix(const struct op *op, const float *x, const float *factors, float *y)
{
	const int width = op->width, sources = op->outs / width, targets = (op->cols - op->to) / width;
	for (int t = 0; t < targets; t++) {
		float *part = y + op->to + t * width;
		for (int i = 0; i < width; i += LANES) {
			vf sum = get(part + i, width - i);
			for (int j = 0; j < sources; j++)
				sum = vf_fma(vf_set(factors ? factors[t * sources + j] : 1.0f), get(x + j * width + i, width - i), sum);
			put(part + i, width - i, sum);
		}
	}
}

// The mean of the squares of x - mean. x: (n)
static float mean_square(const float *x, float mean, int n)
{
	vf squares = vf_zero();
	for (int i = 0; i < n; i += LANES) {
		float off[LANES] = {0};
		put(off, n - i, vf_sub(get(x + i, n - i), vf_set(mean)));
		squares = vf_fma(vf_load(off), vf_load(off), squares);
	}
	return vf_sum(squares) / (float)n;
}

// y = y · sqrt(mean(x²) / max(mean(y²), least)). x, y: (n)
static void match_rms(const float *x, float least, float *y, int n)
{
	float own = mean_square(y, 0, n);
	vf scale = vf_set(sqrtf(mean_square(x, 0, n) / (own < least ? least : own)));
	for (int i = 0; i < n; i += LANES)
		put(y + i, n - i, vf_mul(get(y + i, n - i), scale));
}

// y = max(0, y - mean(y) - factor · sqrt(variance(y))). y: (n)
static void sparsify(float factor, float *y, int n)
{
	vf sum = vf_zero();
	for (int i = 0; i < n; i += LANES)
		sum = vf_add(sum, get(y + i, n - i));
	const float mean = vf_sum(sum) / (float)n;
	const vf cut = vf_set(mean + factor * sqrtf(mean_square(y, mean, n)));
	for (int i = 0; i < n; i += LANES)
		put(y + i, n - i, vf_max(vf_zero(), vf_sub(get(y + i, n - i), cut)));
}

// cap · tanh(x), with tanh(x) = 1 - 2 / (e²ˣ + 1).
INLINE vf vf_capped(vf x, float cap)
{
	vf e = vf_exp(vf_add(x, x));
	return vf_mul(vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(e, vf_set(1.0f)))), vf_set(cap));
}

// y = y · scale, and y = cap · tanh(y / cap) unless cap is 0. y: (n)
static void scale_row(float *y, int n, float scale, float cap)
{
	for (int i = 0; i < n; i += LANES) {
		vf a = vf_mul(get(y + i, n - i), vf_set(scale));
		put(y + i, n - i, cap > 0 ? vf_capped(vf_div(a, vf_set(cap)), cap) : a);
	}
}

// Cosines and sines of pos · freqs, times scale. angles: (2, dims/2)
static void fill_angles(const struct op *op, int32_t pos, float *angles)
{
	int pairs = op->dims / 2;
	for (int i = 0; i < pairs; i++) {
		double a = pos * op->freqs[i];
		angles[i] = (float)(cos(a) * op->scale);
		angles[pairs + i] = (float)(sin(a) * op->scale);
	}
}

// Rotates pair i of each head by angle i. y: (cols/head_dim, head_dim), angles: (2, dims/2)
static void rope(const struct op *op, const float *angles, float *y)
{
	int pairs = op->dims / 2;
	int step = op->neox ? 1 : 2, apart = op->neox ? pairs : 1;
	for (int h = 0; h < op->cols; h += op->head_dim) {
		for (int i = 0; i < pairs; i++) {
			float *a = y + h + i * step, *b = a + apart;
			float c = angles[i], s = angles[pairs + i];
			float rotated = *a * c - *b * s;
			*b = *a * s + *b * c;
			*a = rotated;
		}
	}
}

// The keys (part 0) or values (part 1) of head kv_head in layer op->layer and block block of the
// cache: (BLOCK, head_dim)
INLINE uint8_t *cache_at(const struct op *op, int32_t block, int part, int kv_head)
{
	const size_t layer = (size_t)block * (size_t)op->layers + (size_t)op->layer, heads = (size_t)op->kv_heads;
	const size_t before = layer * (op->kv_bytes[0] + op->kv_bytes[1]) + (part ? op->kv_bytes[0] : 0);
	return op->kv + before * heads + op->kv_bytes[part] * (size_t)kv_head;
}

// The codes of a block of a quantised cache and its scale: see device.CacheType. steps is the code of the largest magnitude.
// Codes of Q4_0 are those without the offset of 8.
static float cache_codes(const float *x, bool signs, float steps, int8_t *codes)
{
	const float max = block_max(x), factor = steps / max;
	if (!(factor > 0 && isfinite(factor))) { // max is zero or denormal, or not finite
		memset(codes, 0, BLOCK);
		return max < 1 ? 0 : NAN;
	}
	bool positive = false; // the largest magnitude is that of positive elements alone
	if (signs) {
		float least = x[0], most = x[0];
		for (int i = 1; i < BLOCK; i++) {
			least = x[i] < least ? x[i] : least;
			most = x[i] > most ? x[i] : most;
		}
		positive = most > -least;
	}
	block_round(x, positive ? -factor : factor, codes);
	return positive ? -(max / steps) : max / steps;
}

// Stores n elements in a type of a cache.
static void store_elements(int type, const float *x, int n, uint8_t *to)
{
	int8_t codes[BLOCK];
	switch (type) {
	case TYPE_F32:
		memcpy(to, x, sizeof(float) * (size_t)n);
		break;
	case TYPE_F16:
		for (int i = 0; i < n; i += LANES)
			vf_store_h_n(to + 2 * (size_t)i, get(x + i, n - i), n - i < LANES ? n - i : LANES);
		break;
	case TYPE_Q8_0:
		for (; n > 0; n -= BLOCK, x += BLOCK, to += 2 + BLOCK) {
			vf_store_h_n(to, vf_set(cache_codes(x, false, 127, codes)), 1);
			memcpy(to + 2, codes, BLOCK);
		}
		break;
	case TYPE_Q4_0:
		for (; n > 0; n -= BLOCK, x += BLOCK, to += 2 + BLOCK / 2) {
			vf_store_h_n(to, vf_set(cache_codes(x, true, 8, codes)), 1);
			for (int i = 0; i < BLOCK / 2; i++) {
				const int low = codes[i] + 8, high = codes[i + BLOCK / 2] + 8;
				to[2 + i] = (uint8_t)((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
			}
		}
	}
}

INLINE void rotate_step(const float *x, const int step, float *y)
{
	UNROLL for (int i = 0; i < BLOCK; i += 2 * step)
		UNROLL for (int j = i; j < i + step; j++) {
			const float a = x[j], b = x[j + step];
			y[j] = a + b;
			y[j + step] = a - b;
		}
}

// Multiplies a block by the Hadamard matrix: see device.KVLayout.RotatesKeys.
static void rotate_block(const float *x, float *y)
{
	float a[BLOCK], b[BLOCK];
	rotate_step(x, 1, a);
	rotate_step(a, 2, b);
	rotate_step(b, 4, a);
	rotate_step(a, 8, b);
	rotate_step(b, 16, y);
}

// x: (kv_heads, head_dim)
static void store_kv(const struct op *op, int32_t block, int slot, int part, const float *x)
{
	const int type = part ? op->value_type : op->type, n = op->head_dim;
	for (int h = 0; h < op->kv_heads; h++, x += n) {
		uint8_t *to = cache_at(op, block, part, h) + op->kv_bytes[part] / BLOCK * (size_t)slot;
		if (part || !op->rotates) {
			store_elements(type, x, n, to);
			continue;
		}
		float rotated[BLOCK];
		for (int i = 0; i < n; i += BLOCK) {
			rotate_block(x + i, rotated);
			store_elements(type, rotated, BLOCK, to + cache_row_bytes(type, i));
		}
	}
}

// Quantises each block of 32 values to int8 with the scale d = max|x| / 127. A block with a NaN or
// an infinity gets the scale NaN, so that the result is NaN too. x: (cols)
static void quantize(const float *x, int cols, struct quant_block *to)
{
	for (int b = 0; b < cols / BLOCK; b++, x += BLOCK, to++) {
		float max = block_max(x), scale = 127.0f / max;
		if (!(scale > 0 && isfinite(scale))) { // max is zero or denormal, or not finite
			memset(to, 0, sizeof *to);
			to->d = to->offset = max < 1 ? 0 : NAN;
			continue;
		}
		block_round(x, scale, to->q);
		for (int g = 0; g < 4; g++) {
			int sum = 0;
			for (int k = 0; k < BLOCK / 4; k++)
				sum += to->q[g * BLOCK / 4 + k];
			to->groups[g] = (int16_t)-sum;
		}
		for (int h = 0; h < 2; h++) {
			to->half[h] = (int16_t)(to->groups[2 * h] + to->groups[2 * h + 1]);
			to->half32[h] = to->half[h] * 32;
		}
		to->sum = to->half[0] + to->half[1];
		to->d = max / 127.0f;
		to->offset = to->d * (float)to->sum;
	}
}

INLINE float exp_of(float x)
{
	float e[LANES];
	vf_store(e, vf_exp(vf_set(x)));
	return e[0];
}

// The score of a group of size experts: the sum of its two best scores, or with softmax its best.
static float group_score(const struct op *op, const float *scores, int size)
{
	float first = -INFINITY, second = -INFINITY;
	for (int e = 0; e < size; e++)
		if (scores[e] > first) {
			second = first;
			first = scores[e];
		} else if (scores[e] > second)
			second = scores[e];
	return op->sigmoid && size > 1 ? first + second : first;
}

// Marks experts that are not in the best groups as taken. order: (experts) ranking values
static void close_groups(const struct op *op, const float *order, bool *taken)
{
	const int size = op->experts / op->groups;
	for (int g = 0; g < op->groups; g++) {
		int better = 0;
		float own = group_score(op, order + g * size, size);
		for (int other = 0; other < op->groups; other++) {
			float theirs = group_score(op, order + other * size, size);
			better += theirs > own || (theirs == own && other < g);
		}
		for (int e = 0; e < size; e++)
			taken[g * size + e] = better >= op->groups_used;
	}
}

// The largest softmax over the experts that are not taken and whose logits are near top, the largest logit of those. It is NaN if that is.
static float share_of_near(const struct op *op, const float *logits, const bool *taken, float top)
{
	float sum = 0;
	for (int e = 0; e < op->experts; e++) {
		float x = logits[e], size = fabsf(x) > top ? fabsf(x) : top;
		if (!taken[e] && !(top - x > op->margin * size))
			sum += exp_of(x - top);
	}
	return 1.0f / sum;
}

// y = the numbers of the experts with the largest scores, of equal scores the lowest numbers, then
// their weights. logits: (experts), y: (2, used)
static void route(const struct op *op, const float *logits, float *y)
{
	float scores[MAX_EXPERTS], biased[MAX_EXPERTS], top = -INFINITY, total = 0, sum = 0;
	bool taken[MAX_EXPERTS] = {false};
	for (int e = 0; e < op->experts; e++)
		top = logits[e] > top ? logits[e] : top;
	for (int e = 0; e < op->experts; e++) {
		scores[e] = op->sigmoid ? 1.0f / (1.0f + exp_of(-logits[e])) : exp_of(logits[e] - top);
		total += scores[e];
	}
	for (int e = 0; e < op->experts; e++) {
		if (!op->sigmoid)
			scores[e] /= total;
		biased[e] = scores[e] + (op->bias ? op->bias[e] : 0);
	}
	const float *order = op->by_logits ? logits : biased;
	if (op->groups_used > 0)
		close_groups(op, order, taken);
	for (int i = 0; i < op->used; i++) {
		int best = -1;
		for (int e = 0; e < op->experts; e++)
			if (!taken[e] && (best < 0 || order[e] > order[best]))
				best = e;
		if (op->margin > 0)
			scores[best] = share_of_near(op, logits, taken, logits[best]);
		taken[best] = true;
		y[i] = (float)best;
		y[op->used + i] = scores[best];
		sum += scores[best];
	}
	for (int i = op->used; i < 2 * op->used; i++) {
		y[i] = (op->normalize ? y[i] / sum : y[i]) * op->scale;
		if (op->factors)
			y[i] *= op->factors[(int)y[i - op->used]];
	}
}

// Part i of y += row routes[i] of w. y: (used, cols/used), routes: (2, used)
static void expert_bias(const struct op *op, const float *routes, float *y)
{
	const int n = op->cols / op->used;
	for (int i = 0; i < op->used; i++)
		if (routes[i] >= 0 && routes[i] < (float)op->experts)
			add(op->w + (size_t)routes[i] * op->w_stride, y + i * n, n);
}

// y = Σ weight[i] · part i of x. x: (used, cols), routes: (2, used), y: (cols)
static void expert_sum(const struct op *op, const float *x, const float *routes, float *y)
{
	int n = op->cols;
	for (int i = 0; i < n; i += LANES) {
		vf sum = vf_zero();
		for (int k = 0; k < op->used; k++)
			sum = vf_fma(vf_set(routes[op->used + k]), get(x + (size_t)k * (size_t)n + i, n - i), sum);
		put(y + i, n - i, sum);
	}
}

static uint64_t read_bytes(const uint8_t *p, size_t n)
{
	const uint64_t *words = (const uint64_t *)p;
	uint64_t sum = 0;
	for (size_t i = 0; i < n / sizeof *words; i++)
		sum ^= words[i];
	return sum;
}

static void run_row(const struct run *r, const struct phase *p, int row)
{
	const struct batch *batch = r->batch;
	for (int k = p->first; k < p->last; k++) {
		const struct op *op = &r->program->ops[k];
		int n = op->cols;
		float *y = op->y + (size_t)row * n;
		const float *x = op->x + (size_t)row * n, *z = op->z + (size_t)row * n, *up = op->z ? z : NULL;
		switch (op->kind) {
		case OP_EMBED:
			embed(op, op->by_position ? batch->pos[row] : batch->tokens[row], y);
			break;
		case OP_RMS_NORM:
		case OP_LAYER_NORM:
			for (int i = 0; i < n; i += op->head_dim) {
				const uint8_t *w = op->w + (size_t)(i / op->head_dim % op->outs) * op->w_stride;
				if (op->kind == OP_RMS_NORM)
					rms_norm(x + i, w, op->eps, y + i, op->head_dim);
				else
					layer_norm(x + i, w, op->bias ? op->bias + i : NULL, op->eps, y + i, op->head_dim);
			}
			break;
		case OP_SCALE_BY_POSITION:
			scale_row(y, n, (float)(1 + op->scale * log1p(batch->pos[row] / op->outs)), 0);
			break;
		case OP_ADD_BIAS:
			add(op->w, y, n);
			break;
		case OP_ADD:
			add((const uint8_t *)x, y, n);
			break;
		case OP_GLU:
			if (op->activation == SILU)
				glu(SILU, x, up, y, n);
			else if (op->activation == GELU)
				glu(GELU, x, up, y, n);
			else if (op->activation == SQUARED_RELU)
				glu(SQUARED_RELU, x, up, y, n);
			else if (op->activation == EXACT_GELU)
				glu(EXACT_GELU, x, up, y, n);
			else if (op->activation == CLAMPED_SWIGLU)
				glu(CLAMPED_SWIGLU, x, up, y, n);
			else if (op->activation == IDENTITY)
				function(IDENTITY, x, up, y, n);
			else if (op->activation == SIGMOID)
				function(SIGMOID, x, up, y, n);
			else if (op->activation == SOFTPLUS)
				function(SOFTPLUS, x, up, y, n);
			else
				function(EXP, x, up, y, n);
			break;
		case OP_GATE:
			gate_row(op->x + (size_t)row * (size_t)op->outs, op->outs, y, n);
			break;
		case OP_MULTIPLY:
			multiply(op->w, op->outs, y, n);
			break;
		case OP_COPY:
			copy_columns(op, op->x + (size_t)row * (size_t)op->outs, y);
			break;
		case OP_MIX: {
			const int factors = op->outs / op->width * ((n - op->to) / op->width);
			mix(op, op->x + (size_t)row * (size_t)op->outs, op->z ? op->z + (size_t)row * (size_t)factors : NULL, y);
			break;
		}
		case OP_MATCH_RMS:
			for (int i = 0; i < n; i += op->head_dim)
				match_rms(op->x + (size_t)row * (size_t)op->head_dim, op->eps, y + i, op->head_dim);
			break;
		case OP_SPARSIFY:
			sparsify(op->scale, y, n);
			break;
		case OP_SCALE:
			scale_row(y, n, op->scale, op->cap);
			break;
		case OP_ANGLES:
			fill_angles(op, op->axis ? batch->coordinates[(size_t)(op->axis - 1) * batch->rows + row] : batch->pos[row], op->angles + (size_t)row * op->dims);
			break;
		case OP_ROPE:
			rope(op, op->angles + (size_t)row * op->dims, y);
			break;
		case OP_STORE_KV: {
			int32_t pos = batch->pos[row];
			int32_t block = table_of(batch, op, row)[pos / BLOCK];
			store_kv(op, block, pos % BLOCK, 0, x);
			if (op->parts_kv > 1)
				store_kv(op, block, pos % BLOCK, 1, z);
			break;
		}
		case OP_GATHER_ROWS:
			memcpy(y, op->x + (size_t)batch->out[row] * n, sizeof(float) * (size_t)n);
			break;
		case OP_ROUTE:
			route(op, op->x + (size_t)row * (size_t)op->experts, y);
			break;
		case OP_EXPERT_BIAS:
			expert_bias(op, op->z + (size_t)row * 2 * (size_t)op->used, y);
			break;
		case OP_EXPERT_SUM:
			expert_sum(op, op->x + (size_t)row * (size_t)(op->used * n), op->z + (size_t)row * 2 * (size_t)op->used, y);
			break;
		case OP_QUANTIZE:
			quantize(x, n, quant_row(r, n, row));
			break;
		}
	}
}
