// A pool of a fixed number of threads that runs one function at a time.
#ifndef M40_CPU_POOL_H
#define M40_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

// Starts threads-1 workers; the caller of pool_run is the remaining thread. NULL on failure.
struct pool *pool_open(int threads);

// Runs fn(arg, thread) on every thread and returns when all are done. The caller is thread 0.
void pool_run(struct pool *p, void (*fn)(void *arg, int thread), void *arg);

// A counter that threads wait on inside fn. pool_turn returns it, pool_next raises it, and pool_wait
// returns when it is no longer turn. pool_spin waits at most patience nanoseconds and reports whether it
// has changed.
unsigned pool_turn(struct pool *p);
void pool_next(struct pool *p);
void pool_wait(struct pool *p, unsigned turn);
bool pool_spin(struct pool *p, unsigned turn, int64_t patience);

// Nanoseconds since any point in time.
int64_t pool_clock(void);

// Ends and joins the workers.
void pool_close(struct pool *p);

#endif
