// Kernels with one error each, which the emulator must report. They are not compiled for GPUs.
#include "../barrier.cuh"
#include "../ring.cuh"

KERNEL(faults_write, 256, 1)(int *p, long long i) { p[i] = 1; }

KERNEL(faults_misaligned, 256, 1)(uint4 *dst, const char *src) { *dst = ldg128(src + 4); }

KERNEL(faults_two_barriers, 256, 1)(void)
{
	if (warp_id() == 0)
		syncthreads();
	else
		syncthreads();
}

KERNEL(faults_two_barriers_of_a_part, 256, 1)(void)
{
	if (warp_id() == 0)
		sync_part(0, 64);
	else
		sync_part(0, 64);
}

KERNEL(faults_not_in_a_part, 256, 1)(void) { sync_part(1, 32); }

KERNEL(faults_thread_stays_away, 256, 1)(void)
{
	if (warp_id() == 0)
		sync_part(0, 64);
}

KERNEL(faults_lane_stays_away, 256, 1)(void)
{
	if (lane_id() != 5)
		shfl_xor(lane_id(), 1);
}

KERNEL(faults_lanes_part, 256, 1)(void)
{
	if (lane_id() < 16)
		shfl_xor(lane_id(), 1);
	else
		syncthreads();
}

KERNEL(faults_two_shuffles, 256, 1)(int *dst)
{
	if (lane_id() < 16)
		*dst = shfl(lane_id(), 0);
	else
		*dst = shfl(lane_id(), 1);
}

// A barrier is missing between the store and the load, so the result depends on the order of threads.
KERNEL(faults_race, 256, 1)(int *dst)
{
	SHARED(int, values);
	values[threadIdx.x] = threadIdx.x;
	dst[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

KERNEL(faults_shared_overrun, 256, 1)(int n)
{
	SHARED(int, values);
	values[n] = 1;
}

KERNEL(faults_stack_overflow, 256, 1)(int *dst, int n)
{
	volatile int deep[1 << 20];
	for (int i = n; i >= 0; i--)
		deep[i] = i;
	*dst = deep[n];
}

// The last block never arrives.
RESIDENT(faults_block_stays_away, 256, 1)(Barrier *barrier)
{
	Grid grid = join_grid(barrier);
	if (blockIdx.x < gridDim.x - 1)
		meet(&grid, 1000000000);
}

// Waits for other blocks without being resident.
KERNEL(faults_not_resident, 256, 1)(Barrier *barrier)
{
	Grid grid = join_grid(barrier);
	meet(&grid, 1000000000);
}

// A barrier is missing between the store and the load, so the result depends on the order of blocks.
RESIDENT(faults_race_of_blocks, 256, 1)(Barrier *barrier, uint32_t *values, uint32_t *dst)
{
	Grid grid = join_grid(barrier);
	values[blockIdx.x] = blockIdx.x;
	meet(&grid, 1000000000);
	values[blockIdx.x] = blockIdx.x + 100;
	dst[blockIdx.x] = values[(blockIdx.x + 1) % gridDim.x];
}

// Loads what the host writes before it waits for the word that says so.
RESIDENT(faults_early_load, 256, 1)(uint32_t *dst, const uint32_t *data, const uint32_t *ready)
{
	if (threadIdx.x == 0) {
		*dst = load_word(data);
		wait_for_host(ready, [](uint32_t v) { return v == 1; }, 10000000000);
	}
}

// Answers commands with their data, which it loads before their number is there.
RESIDENT(faults_early_command, 256, 1)(void *memory, Order *order)
{
	Ring ring = ring_open(memory);
	for (;;) {
		const uint32_t early = load_word(ring_command(ring, ring.next)->data);
		syncthreads();
		uint4 unit;
		ring_take(&ring, order, &unit);
		if (load_word(&order->leave))
			break;
		if (threadIdx.x == 0)
			ring_result(ring, load_word(&order->number))->data[0] = early;
		ring_answer(&ring, RESULT_DONE, 1);
	}
	if (threadIdx.x == 0)
		ring_leave(&ring, load_word(&order->leave));
}
