// A pool of a fixed number of threads that runs one function at a time, with barriers inside it.
#ifndef M40_CPU_POOL_H
#define M40_CPU_POOL_H

struct pool;

// Starts threads-1 workers; the caller of pool_run is the remaining thread. NULL on failure.
struct pool *pool_open(int threads);

// Runs fn(arg, thread) on every thread and returns when all are done. The caller is thread 0.
void pool_run(struct pool *p, void (*fn)(void *arg, int thread), void *arg);

// Waits for all threads; each calls it from inside fn. The last to arrive runs alone(arg) before the
// others continue; alone may be NULL.
void pool_barrier(struct pool *p, void (*alone)(void *arg), void *arg);

// Ends and joins the workers.
void pool_close(struct pool *p);

#endif
