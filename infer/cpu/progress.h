// How threads divide the items of a phase, and how a phase ends without a thread that the system does
// not run at the moment.
//
// Each thread has a contiguous part of the items, so that it reads weights in the order of memory and
// prefetches what it reads next. A thread that is done takes items of other parts. When none is left,
// it waits for the items that others still run. If that takes long, it runs them too, and the first
// thread to finish stores the result: the other one's, which it computed into memory of its own, is
// dropped. Both have the same bits.
//
// So a thread may return from an item after its phase has ended. Then it has computed from activations
// that have changed since, inside of the same memory, and its result is dropped.
#ifndef M40_CPU_PROGRESS_H
#define M40_CPU_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	FIELD = 22, // bits of the lower fields of a word
	MOST_ITEMS = 1 << (FIELD - 1), // of a phase; takes behind the last need the other half
	MOST_PHASES = 1 << (64 - 2 * FIELD),
};

// Fields are tagged with the number of a phase, so that a late thread cannot change a later one.
static inline uint64_t word_of(int phase, int middle, int low)
{
	return (uint64_t)phase << (2 * FIELD) | (uint64_t)middle << FIELD | (uint64_t)low;
}
static inline int word_phase(uint64_t w) { return (int)(w >> (2 * FIELD)); }
static inline int word_middle(uint64_t w) { return (int)(w >> FIELD & ((1 << FIELD) - 1)); }
static inline int word_low(uint64_t w) { return (int)(w & ((1 << FIELD) - 1)); }

// What a thread does: the low field of struct progress.at.
enum {
	NOTHING,   // it is between two items
	STORING,   // it stores results, and nobody else may run its item
	ITEM,      // ITEM + i: it runs item i, and others may run it too
};

struct progress {
	_Alignas(64) atomic_uint_least64_t next; // of the thread's part: phase, end, the first item that nobody has taken
	_Alignas(64) atomic_uint_least64_t at;   // phase, items that the thread has completed and not reported, what it does
};

struct item {
	int phase, index;
};

// Takes an item of a part. Its phase may be later than the caller knows. Returns false if none is left.
static inline bool progress_take(struct progress *part, struct item *item)
{
	const uint64_t next = atomic_fetch_add_explicit(&part->next, 1, memory_order_acquire);
	*item = (struct item){word_phase(next), word_low(next)};
	return item->index < word_middle(next);
}

// Records that the thread runs an item: state is STORING, or ITEM + its index. Returns the word.
static inline uint64_t progress_begin(struct progress *own, int phase, int state)
{
	uint64_t before = atomic_load_explicit(&own->at, memory_order_relaxed);
	const uint64_t at = word_of(phase, word_phase(before) == phase ? word_middle(before) : 0, state);
	if (atomic_compare_exchange_strong(&own->at, &before, at))
		return at;
	atomic_store(&own->at, word_of(phase, 0, state)); // another thread has reported what this one completed
	return word_of(phase, 0, state);
}

// Makes the caller the only one that stores the result of the item of word at. Returns false if
// another thread has stored it.
static inline bool progress_store(struct progress *own, uint64_t at)
{
	return atomic_compare_exchange_strong(&own->at, &at, word_of(word_phase(at), word_middle(at), STORING));
}

// Records that the result of the item is stored.
static inline void progress_end(struct progress *own, uint64_t at)
{
	atomic_store_explicit(&own->at, word_of(word_phase(at), word_middle(at) + 1, NOTHING), memory_order_release);
}

// Returns how many items the thread has completed and not reported.
static inline int progress_report(struct progress *own)
{
	return word_middle(atomic_exchange(&own->at, 0));
}

// Takes over what another thread, at word at, completed and did not report, and its item if it runs
// one. Returns false if that has changed since.
static inline bool progress_take_over(struct progress *other, uint64_t at)
{
	return atomic_compare_exchange_strong(&other->at, &at, 0);
}

#endif
