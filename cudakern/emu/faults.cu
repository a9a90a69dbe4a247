// Kernels with one error each, which the emulator must report. They are not compiled for GPUs.
#include "../kernel.cuh"

KERNEL(faults_write, 256, 1)(int *p, long long i) { p[i] = 1; }

KERNEL(faults_misaligned, 256, 1)(uint4 *dst, const char *src) { *dst = ldg128(src + 4); }

KERNEL(faults_two_barriers, 256, 1)(void)
{
	if (warp_id() == 0)
		syncthreads();
	else
		syncthreads();
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
