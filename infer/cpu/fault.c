#include "fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local atomic_int *watching;
static struct sigaction before; // Go's handler, which turns faults of Go code into panics
static uintptr_t page;

// BUS_ADRERR is raised only for mapped files: the page has no data behind it.
static void on_fault(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	if (watching && info->si_code == BUS_ADRERR) {
		void *at = (void *)((uintptr_t)info->si_addr & ~(page - 1));
		if (mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at) {
			atomic_store(watching, 1);
			errno = saved;
			return;
		}
	}
	errno = saved;
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
		return;
	}
	sigaction(sig, &before, NULL); // the instruction faults again and ends the process
}

static void install(void)
{
	page = (uintptr_t)sysconf(_SC_PAGESIZE);
	if (sigaction(SIGBUS, NULL, &before) != 0)
		return;
	struct sigaction ours = before;
	ours.sa_sigaction = on_fault;
	// Go's threads have small stacks and a separate signal stack.
	ours.sa_flags |= SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGBUS, &ours, NULL);
}

void fault_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, install);
}

void fault_watch(atomic_int *lost) { watching = lost; }

void fault_unwatch(void) { watching = NULL; }
