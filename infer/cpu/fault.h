// Handling of SIGBUS on mapped files. If a mapped model file is truncated or its disk fails, reading
// it raises SIGBUS, which would end the process. While a thread watches, such a page reads as zeros
// instead, and lost is set.
#ifndef M40_CPU_FAULT_H
#define M40_CPU_FAULT_H

#include <stdatomic.h>

// Installs the signal handler, once per process.
void fault_install(void);

// Makes the calling thread watch until fault_unwatch: lost becomes 1 if a page cannot be read.
void fault_watch(atomic_int *lost);
void fault_unwatch(void);

#endif
