// On a machine with several nodes (NUMA), threads stay on the processors of one node each, so that they read the weights in its
// memory.
#ifndef M40_CPU_NUMA_H
#define M40_CPU_NUMA_H

#include <stddef.h>
#include <stdint.h>

struct engine;

// Keeps each thread on the processors of its mask: masks has bytes bytes for each thread, a multiple of 8, with bit p % 8 of byte p / 8 for
// processor p. The caller of engine_run, which is thread 0, is kept there until that returns. Returns 0 if there is no memory for that.
int engine_keep_threads(struct engine *e, const uint8_t *masks, size_t bytes);

#endif
