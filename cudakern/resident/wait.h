#include <stdint.h>

// wait_number sleeps, and then polls until *word is number, or *other is stop, or the given time to poll is over. Both
// times are in nanoseconds. Sleeping in the kernel of the operating system is more precise than Go's timers.
void wait_number(const uint32_t *word, uint32_t number, const uint32_t *other, uint32_t stop, uint64_t sleep, uint64_t poll);
