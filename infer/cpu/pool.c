#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

// Iterations that a waiting thread spins before it sleeps: about 50 µs, longer than most waits in a
// step, and short enough not to waste a shared machine.
enum { SPINS = 2000 };

static inline void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

// A counter that threads can wait on.
struct event {
	atomic_uint value;
	atomic_uint sleepers;
	pthread_mutex_t lock;
	pthread_cond_t changed;
};

static void event_init(struct event *e)
{
	atomic_init(&e->value, 0);
	atomic_init(&e->sleepers, 0);
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->changed, NULL);
}

static void event_destroy(struct event *e)
{
	pthread_mutex_destroy(&e->lock);
	pthread_cond_destroy(&e->changed);
}

// The store to value and the load of sleepers here, and the store to sleepers and the load of value
// in event_wait, are sequentially consistent: either this function sees the sleeper, or the sleeper
// sees the new value.
static void event_raise(struct event *e)
{
	atomic_fetch_add(&e->value, 1);
	if (atomic_load(&e->sleepers) > 0) {
		pthread_mutex_lock(&e->lock);
		pthread_cond_broadcast(&e->changed);
		pthread_mutex_unlock(&e->lock);
	}
}

static void event_wait(struct event *e, unsigned old)
{
	for (int i = 0; i < SPINS; i++) {
		if (atomic_load_explicit(&e->value, memory_order_acquire) != old)
			return;
		spin_pause();
	}
	pthread_mutex_lock(&e->lock);
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->value) == old)
		pthread_cond_wait(&e->changed, &e->lock);
	atomic_fetch_sub(&e->sleepers, 1);
	pthread_mutex_unlock(&e->lock);
}

struct worker {
	struct pool *pool;
	int thread;
	pthread_t id;
};

struct pool {
	int threads, started;
	struct worker *workers; // (threads-1)

	struct event job;     // raised by pool_run and pool_close
	struct event turn;    // raised by pool_next
	struct event barrier; // raised when all threads have returned from fn
	atomic_int arrived;

	void (*fn)(void *arg, int thread); // NULL: the workers end
	void *arg;
};

unsigned pool_turn(struct pool *p) { return atomic_load_explicit(&p->turn.value, memory_order_acquire); }

void pool_next(struct pool *p) { event_raise(&p->turn); }

void pool_wait(struct pool *p, unsigned turn) { event_wait(&p->turn, turn); }

int64_t pool_clock(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool pool_spin(struct pool *p, unsigned turn, int64_t patience)
{
	const int64_t begin = pool_clock();
	do
		for (int i = 0; i < 32; i++) {
			if (pool_turn(p) != turn)
				return true;
			spin_pause();
		}
	while (pool_clock() - begin < patience);
	return false;
}

// Waits for all threads.
static void barrier(struct pool *p)
{
	unsigned old = atomic_load_explicit(&p->barrier.value, memory_order_relaxed);
	if (atomic_fetch_add(&p->arrived, 1) + 1 < p->threads) {
		event_wait(&p->barrier, old);
		return;
	}
	atomic_store(&p->arrived, 0);
	event_raise(&p->barrier);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pool *p = w->pool;
	for (unsigned job = 0;; job++) {
		event_wait(&p->job, job);
		if (!p->fn)
			return NULL;
		p->fn(p->arg, w->thread);
		barrier(p);
	}
}

void pool_run(struct pool *p, void (*fn)(void *arg, int thread), void *arg)
{
	p->fn = fn;
	p->arg = arg;
	event_raise(&p->job);
	fn(arg, 0);
	barrier(p);
}

struct pool *pool_open(int threads)
{
	struct pool *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->threads = threads;
	event_init(&p->job);
	event_init(&p->turn);
	event_init(&p->barrier);
	p->workers = calloc((size_t)threads, sizeof *p->workers);
	if (!p->workers) {
		pool_close(p);
		return NULL;
	}
	// Workers block all signals of the host program except SIGBUS, which is delivered to the thread
	// that faults.
	sigset_t all, before;
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (p->started < threads - 1) {
		struct worker *w = &p->workers[p->started];
		w->pool = p;
		w->thread = p->started + 1;
		if (pthread_create(&w->id, NULL, work, w) != 0)
			break;
		p->started++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (p->started < threads - 1) {
		pool_close(p);
		return NULL;
	}
	return p;
}

void pool_close(struct pool *p)
{
	if (!p)
		return;
	p->fn = NULL;
	event_raise(&p->job);
	for (int i = 0; i < p->started; i++)
		pthread_join(p->workers[i].id, NULL);
	event_destroy(&p->job);
	event_destroy(&p->turn);
	event_destroy(&p->barrier);
	free(p->workers);
	free(p);
}
