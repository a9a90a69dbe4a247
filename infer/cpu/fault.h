// Reads of mapped memory that is gone. A model file that is cut short while it is
// mapped, or whose disk fails, faults where it is read, and in C that would end the
// process. While a thread watches, such a page reads as zeros instead, and lost says so.
#ifndef M40_CPU_FAULT_H
#define M40_CPU_FAULT_H

#include <stdatomic.h>

// Installs the handler, once for the process.
void fault_install(void);

// Has the calling thread watch until fault_unwatch; lost is set when a page was gone.
void fault_watch(atomic_int *lost);
void fault_unwatch(void);

#endif
