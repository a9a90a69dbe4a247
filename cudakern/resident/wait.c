#define _POSIX_C_SOURCE 199309L
#include "wait.h"

#include <stddef.h>

#ifdef __linux__
#include <time.h>

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void wait_number(const uint32_t *word, uint32_t number, const uint32_t *other, uint32_t stop, uint64_t sleep, uint64_t poll) {
	if (sleep) nanosleep(&(struct timespec){(time_t)(sleep / 1000000000), (long)(sleep % 1000000000)}, NULL);
	for (uint64_t start = now(); now() - start < poll;)
		for (int i = 0; i < 20; i++) {
			if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == number || __atomic_load_n(other, __ATOMIC_ACQUIRE) == stop) return;
#ifdef __x86_64__
			__builtin_ia32_pause();
#endif
		}
}

#else // there is no CUDA driver

void wait_number(const uint32_t *word, uint32_t number, const uint32_t *other, uint32_t stop, uint64_t sleep, uint64_t poll) {
	(void)word, (void)number, (void)other, (void)stop, (void)sleep, (void)poll;
}

#endif
