// Launches that overlap, from compute capability 9.0 on: a kernel lets the next one of its stream begin early, whose blocks
// run where there is room, and wait before they use what the previous ones have written. In code for older devices, and in the
// emulation, both functions do nothing, and launches follow one another.
//
// A kernel that is launched so calls wait_for_previous in every block, even in one that has nothing to compute: the next
// kernel relies on that this one has waited. Before, it reads only what no kernel writes: weights, and inputs of the step.
#pragma once

#include "kernel.cuh"

// Lets the next launch begin once all blocks have called it.
DEVICE void begin_next(void)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until all launches before have ended, and sees what they have written.
DEVICE void wait_for_previous(void)
{
#if !defined(EMU) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
