// Operations with recurrent state: a slot of values for each sequence, of which an operation has a part.
// states is the part of slot 0; slots are slot_values values apart. The rows of sequence s of the batch
// are order[begin[s]] … order[begin[s + 1] - 1], at consecutive positions; slots[s] is its slot. At
// position 0 the state is zeros, whatever the slot holds.
//
// One step follows the other, and what a thread computes of a row depends on the positions before it
// alone. So results do not depend on how rows are divided into batches. Grid: (…, sequences).
#include "math.cuh"

// The rows of the block's sequence.
struct Rows {
	const int *order;
	int count, first; // first: position of the first row
	float *state;
};

DEVICE Rows rows_of(float *states, long long slot_values, const int *pos, const int *order, const int *begin, const int *slots)
{
	const int s = blockIdx.y;
	order += begin[s];
	return {order, begin[s + 1] - begin[s], pos[order[0]], states + slots[s] * slot_values};
}

enum { CONV_THREADS = 256 };

// Returns the input of a column at row n of the sequence, counted from its first one in the batch. Those
// before are in the state, (before, cols). x and state are at the column.
DEVICE float conv_input(const Rows &rows, const float *x, const float *state, int cols, int before, int n)
{
	if (n >= 0)
		return x[(size_t)rows.order[n] * cols];
	return rows.first + n < 0 ? 0.0f : state[(size_t)(before + n) * cols];
}

// Convolves the rows of a column that are the warp's. SPAN is span, or 0 for any. w is at the column's weights.
template <int SPAN> DEVICE void conv_rows(float *dst, const Rows &rows, const float *x, const float *state, const float *w, float bias, int cols, int span, bool silu)
{
	if (SPAN)
		span = SPAN;
	float kept[SPAN ? SPAN : 1];
	UNROLL for (int i = 0; i < SPAN; i++)
		kept[i] = ldg_float(w + i);
	for (int n = warp_id(); n < rows.count; n += CONV_THREADS / WARP) {
		float sum = bias;
		if (SPAN) {
			UNROLL for (int i = 0; i < SPAN; i++)
				sum = fmaf(kept[i], conv_input(rows, x, state, cols, SPAN - 1, n - (SPAN - 1) + i), sum);
		} else {
			for (int i = 0; i < span; i++)
				sum = fmaf(ldg_float(w + i), conv_input(rows, x, state, cols, span - 1, n - (span - 1) + i), sum);
		}
		dst[(size_t)rows.order[n] * cols] = silu ? glu_of(SILU, sum, 1.0f) : sum;
	}
}

// dst[c] = bias[c] + Σ_i w[c, i] · x[c] at position pos - (span - 1) + i. w is (cols, span), bias may be
// null. The state holds the inputs of the span - 1 positions before, oldest first. A block computes 32
// columns, each warp every eighth row of them, and then replaces the state. With silu, dst = SiLU(dst).
KERNEL(conv, CONV_THREADS, 4)(float *dst, const float *x, const float *w, const float *bias, int cols, int span, int silu,
	float *states, long long slot_values, const int *pos, const int *order, const int *begin, const int *slots, const int *sequences)
{
	if ((int)blockIdx.y >= *sequences)
		return;
	const int col = blockIdx.x * WARP + lane_id(), before = span - 1;
	const Rows rows = rows_of(states, slot_values, pos, order, begin, slots);
	float *state = rows.state + col;
	if (col < cols) {
		const float b = bias ? bias[col] : 0.0f;
		if (span == 4)
			conv_rows<4>(dst + col, rows, x + col, state, w + (size_t)col * span, b, cols, span, silu);
		else if (span == 3)
			conv_rows<3>(dst + col, rows, x + col, state, w + (size_t)col * span, b, cols, span, silu);
		else
			conv_rows<0>(dst + col, rows, x + col, state, w + (size_t)col * span, b, cols, span, silu);
	}
	syncthreads(); // all rows have read the state
	if (col < cols && warp_id() == 0)
		for (int i = 0; i < before; i++) // what is read is behind what has been written
			state[(size_t)i * cols] = conv_input(rows, x + col, state, cols, before, rows.count - before + i);
}

enum { SCAN_THREADS = 128, SCAN_COLUMNS = 4 };

// The sizes and inputs of a scan. Rows have key_heads queries and keys of keys values, heads values of
// values values, and for each head a step and decays decays: 1 or keys.
struct Scan {
	const float *q, *k, *v, *decay, *step, *skip; // skip: (heads), or null
	int heads, key_heads, keys, values, decays;
	bool tiled, delta;
};

// What a lane reads of a row: elements lane, lane + 32, … of the head's query, key and decays, zeros behind
// their ends; and the value of its column.
template <int CHUNKS> struct ScanRow {
	float q[CHUNKS], k[CHUNKS], decay[CHUNKS], v, step;
};

template <int CHUNKS> DEVICE void load_row(ScanRow<CHUNKS> *to, const Scan &a, int row, int head, int column)
{
	const int key_head = a.tiled ? head % a.key_heads : head / (a.heads / a.key_heads);
	const size_t key = ((size_t)row * a.key_heads + key_head) * a.keys, of_head = (size_t)row * a.heads + head;
	UNROLL for (int c = 0; c < CHUNKS; c++) {
		const int i = c * WARP + lane_id();
		const bool in = i < a.keys;
		to->q[c] = in ? ldg_float(a.q + key + i) : 0.0f;
		to->k[c] = in ? ldg_float(a.k + key + i) : 0.0f;
		to->decay[c] = in ? ldg_float(a.decay + of_head * a.decays + (a.decays > 1 ? i : 0)) : 0.0f;
	}
	to->v = column < a.values ? ldg_float(a.v + of_head * a.values + column) : 0.0f;
	to->step = ldg_float(a.step + of_head);
}

// Returns the sum over all lanes of sums[lane / 8].
DEVICE float sum_of_columns(const float *sums)
{
	const bool high = lane_id() & 16, odd = lane_id() & 8;
	const float first = (high ? sums[2] : sums[0]) + shfl_xor(high ? sums[0] : sums[2], 16);
	const float second = (high ? sums[3] : sums[1]) + shfl_xor(high ? sums[1] : sums[3], 16);
	float sum = (odd ? second : first) + shfl_xor(odd ? first : second, 8);
	UNROLL for (int mask = 4; mask > 0; mask /= 2)
		sum += shfl_xor(sum, mask);
	return sum;
}

// One step of SCAN_COLUMNS columns of a head, whose states are state: a lane has elements lane, lane + 32, … of
// each. Returns the result of column lane / 8.
template <int CHUNKS> DEVICE float scan_step(float (&state)[SCAN_COLUMNS][CHUNKS], const ScanRow<CHUNKS> &row, bool delta)
{
	float sums[SCAN_COLUMNS] = {};
	UNROLL for (int j = 0; j < SCAN_COLUMNS; j++)
		UNROLL for (int c = 0; c < CHUNKS; c++) {
			state[j][c] *= row.decay[c];
			sums[j] = fmaf(state[j][c], row.k[c], sums[j]);
		}
	const float e = (delta ? row.v - sum_of_columns(sums) : row.v) * row.step;
	UNROLL for (int j = 0; j < SCAN_COLUMNS; j++) {
		const float added = shfl(e, j * (WARP / SCAN_COLUMNS));
		sums[j] = 0.0f;
		UNROLL for (int c = 0; c < CHUNKS; c++) {
			state[j][c] = fmaf(row.k[c], added, state[j][c]);
			sums[j] = fmaf(state[j][c], row.q[c], sums[j]);
		}
	}
	return sum_of_columns(sums);
}

// Computes the columns of the warp for all rows of the sequence. The state, (heads, values, keys), is read
// once and written once; in between it is in registers. The next row is loaded before one is computed.
template <int CHUNKS> DEVICE void scan_rows(float *dst, const Scan &a, const Rows &rows)
{
	const int groups = (a.values + SCAN_COLUMNS - 1) / SCAN_COLUMNS, unit = blockIdx.x * (SCAN_THREADS / WARP) + warp_id();
	const int head = unit / groups, first = unit % groups * SCAN_COLUMNS, column = first + lane_id() / (WARP / SCAN_COLUMNS);
	if (head >= a.heads)
		return;
	float *memory = rows.state + ((size_t)head * a.values + first) * a.keys + lane_id(), state[SCAN_COLUMNS][CHUNKS];
	UNROLL for (int j = 0; j < SCAN_COLUMNS; j++)
		UNROLL for (int c = 0; c < CHUNKS; c++)
			state[j][c] = rows.first > 0 && first + j < a.values && c * WARP + lane_id() < a.keys ? memory[(size_t)j * a.keys + c * WARP] : 0.0f;
	const float skip = a.skip ? ldg_float(a.skip + head) : 0.0f;
	ScanRow<CHUNKS> next;
	load_row(&next, a, rows.order[0], head, column);
	for (int n = 0; n < rows.count; n++) {
		const ScanRow<CHUNKS> row = next;
		if (n + 1 < rows.count)
			load_row(&next, a, rows.order[n + 1], head, column);
		const float sum = scan_step(state, row, a.delta);
		if (column < a.values && lane_id() % (WARP / SCAN_COLUMNS) == 0)
			dst[((size_t)rows.order[n] * a.heads + head) * a.values + column] = fmaf(skip, row.v, sum);
	}
	UNROLL for (int j = 0; j < SCAN_COLUMNS; j++)
		UNROLL for (int c = 0; c < CHUNKS; c++)
			if (first + j < a.values && c * WARP + lane_id() < a.keys)
				memory[(size_t)j * a.keys + c * WARP] = state[j][c];
}

// The linear recurrence of device.Scan. A warp computes four columns of a head, an element of the key in
// each lane, so that reading and writing the state is coalesced and nothing waits for another warp.
#define SCAN(name, chunks, blocks) \
	KERNEL(name, SCAN_THREADS, blocks)(float *dst, const float *q, const float *k, const float *v, const float *decay, const float *step, const float *skip, \
		int heads, int key_heads, int keys, int values, int decays, int tiled, int delta, \
		float *states, long long slot_values, const int *pos, const int *order, const int *begin, const int *slots, const int *sequences) \
	{ \
		if ((int)blockIdx.y < *sequences) \
			scan_rows<chunks>(dst, {q, k, v, decay, step, skip, heads, key_heads, keys, values, decays, tiled != 0, delta != 0}, \
				rows_of(states, slot_values, pos, order, begin, slots)); \
	}

// By the longest key.
SCAN(scan_k64, 2, 8)
SCAN(scan_k128, 4, 6)
SCAN(scan_k256, 8, 4)
SCAN(scan_k512, 16, 2)
