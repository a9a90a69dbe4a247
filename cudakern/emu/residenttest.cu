// Resident kernels that test what barriers and rings promise, and measure them.
#include "../barrier.cuh"
#include "../ring.cuh"

// Each block stores values[block], meets the others, and adds up what all have stored; sums[block] is the
// total of all rounds. Between two rounds the blocks meet again.
RESIDENT(resident_sums, 256, 2)(Barrier *barrier, uint32_t *values, uint32_t *sums, int rounds)
{
	Grid grid = join_grid(barrier);
	uint32_t sum = 0;
	for (int round = 0; round < rounds; round++) {
		if (threadIdx.x == blockDim.x - 1) // not the thread that calls the fence
			values[blockIdx.x] = (round + 1) * (blockIdx.x + 1);
		if (!meet(&grid, 2000000000))
			return;
		for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
			sum += values[i];
		if (!meet(&grid, 2000000000))
			return;
	}
	atomicAdd(&sums[blockIdx.x], sum);
}

// Meets rounds times and does nothing else.
RESIDENT(resident_meet, 256, 2)(Barrier *barrier, int rounds)
{
	Grid grid = join_grid(barrier);
	for (int round = 0; round < rounds; round++)
		if (!meet(&grid, 2000000000))
			return;
}

// Block 0 waits for the host to store another value than 0 in *go, for at most the given time; the others wait for
// block 0 at the barrier, for at most 1/8 of it. *passed counts the blocks that have met.
RESIDENT(resident_wait, 256, 2)(Barrier *barrier, const uint32_t *go, uint32_t *passed, unsigned milliseconds)
{
	Grid grid = join_grid(barrier);
	const uint64_t limit = uint64_t(milliseconds) * 1000000;
	if (blockIdx.x == 0 && threadIdx.x == 0)
		wait_for_host(go, [](uint32_t v) { return v != 0; }, limit);
	if (meet(&grid, limit / 8) && threadIdx.x == 0)
		atomicAdd(passed, 1u);
}

// ---------------------------------------------------------------------------------------
// Rings

// What the kernel of the tests does with a command.
enum { TEST_ADD = 1, TEST_HANG };

// Answers commands. TEST_ADD: all blocks add args[0] to the data, args[1] times with a barrier each time. TEST_HANG: block
// args[0] sets go[1] and waits for the host to set go[0], for at most args[1] milliseconds. Barriers last for at most patience milliseconds, the
// one before a command ten seconds longer.
RESIDENT(resident_answers, 256, 2)(void *memory, Barrier *barrier, Order *order, uint32_t *data, uint32_t *go, unsigned patience)
{
	Grid grid = join_grid(barrier);
	Ring ring = {};
	if (blockIdx.x == 0)
		ring = ring_open(memory);
	const uint64_t limit = uint64_t(patience) * 1000000, idle = 10000000000;
	uint32_t leave = 0;
	while (leave == 0) {
		if (blockIdx.x == 0) {
			uint4 unit = {};
			ring_take(&ring, order, &unit);
			if (load_word(&order->leave) == 0)
				ring_copy(&ring, order, unit, data);
		}
		leave = meet(&grid, limit + idle) ? load_word(&order->leave) : uint32_t(LEFT_BROKEN);
		if (leave)
			break;
		const uint32_t kind = load_word(&order->kind), words = load_word(&order->words), a = load_word(&order->args[0]), b = load_word(&order->args[1]);
		if (kind == TEST_HANG && blockIdx.x == a && threadIdx.x == 0) {
			store_word(&go[1], 1);
			wait_for_host(go, [](uint32_t v) { return v != 0; }, uint64_t(b) * 1000000);
		}
		for (uint32_t round = 0; round < (kind == TEST_ADD ? b : 1) && leave == 0; round++) {
			// Each round another block adds to a word.
			for (uint32_t i = threadIdx.x; i < words; i += blockDim.x)
				if (kind == TEST_ADD && (i + round) % gridDim.x == blockIdx.x)
					data[i] += a;
			if (!meet(&grid, limit))
				leave = LEFT_BROKEN;
			else if (round % 64 == 63 && blockIdx.x == 0 && threadIdx.x == 0)
				ring_beat(&ring, round + 1);
		}
		if (blockIdx.x == 0 && leave == 0) {
			Result *result = ring_result(ring, load_word(&order->number));
			for (uint32_t i = threadIdx.x; i < words; i += blockDim.x)
				result->data[i] = data[i];
			ring_answer(&ring, RESULT_DONE, words);
		}
	}
	if (blockIdx.x == 0 && threadIdx.x == 0)
		ring_leave(&ring, leave);
}

// Stores the layout of the structs that the host shares.
KERNEL(resident_layout, 32, 1)(uint32_t *dst)
{
	if (threadIdx.x > 0)
		return;
	const size_t layout[] = {
		sizeof(Barrier), sizeof(Order), sizeof(RingHost), sizeof(RingDevice), sizeof(Command), sizeof(Result), RING_HEADER_BYTES,
		__builtin_offsetof(RingHost, slots), __builtin_offsetof(RingHost, command_bytes), __builtin_offsetof(RingHost, result_bytes), __builtin_offsetof(RingHost, launch),
		__builtin_offsetof(RingHost, first), __builtin_offsetof(RingHost, most), __builtin_offsetof(RingHost, idle), __builtin_offsetof(RingHost, cancel), __builtin_offsetof(RingHost, leave),
		__builtin_offsetof(RingDevice, beat), __builtin_offsetof(RingDevice, at), __builtin_offsetof(RingDevice, next),
		__builtin_offsetof(RingDevice, reason), __builtin_offsetof(RingDevice, left),
		__builtin_offsetof(Command, number), __builtin_offsetof(Command, kind), __builtin_offsetof(Command, program), __builtin_offsetof(Command, words), __builtin_offsetof(Command, args), __builtin_offsetof(Command, data),
		__builtin_offsetof(Result, number), __builtin_offsetof(Result, state), __builtin_offsetof(Result, words), __builtin_offsetof(Result, args), __builtin_offsetof(Result, data),
		RESULT_DONE, RESULT_CANCELLED, RESULT_FAILED, LEFT_BROKEN,
	};
	for (unsigned i = 0; i < sizeof layout / sizeof layout[0]; i++)
		dst[i] = uint32_t(layout[i]);
}
