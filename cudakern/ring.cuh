// Rings between the host and a resident kernel, in mapped page-locked host memory: the host writes commands, the
// kernel answers each with a result. ring.go is the host's side and has the same structs.
//
// Command number n is in slot n % slots of the commands, its result in slot n % slots of the results. Numbers
// are uint32, grow by one and wrap around. The host writes command n only after it has read the result of command
// n - slots. So no slot is written while the other side may read it, results never wait for room, and neither
// side needs to know how far the other has read. There is one producer and one consumer for each ring.
//
// Memory order:
//
//   - The host writes a command and then stores its number with a sequentially consistent atomic store (Go's
//     sync/atomic; on arm64 a store-release). Block 0 polls the number with volatile loads, calls
//     __threadfence_system, and then loads the command with volatile loads, which read host memory each time.
//   - Block 0 writes a result; each thread that has written calls __threadfence_system; the threads meet at
//     syncthreads; then thread 0 stores the number with a volatile store. The host polls the number with
//     atomic loads (on arm64 load-acquire), and then reads the result.
//   - cancel and leave are single words that the host may store at any time. Nothing else is ordered by them.
//
// Mapped host memory is coherent for the host's caches on x86 and on the arm64 servers that take GPUs. A word of 4
// bytes is never torn. Atomic additions across the bus are not needed: each word has one writer.
//
// The kernel leaves, in whole commands, when it has answered its share of commands, when none has come for some
// time, or when it is asked to; commands that it has not taken stay in the ring for the next launch.
#pragma once

#include "resident.cuh"

// What the host tells the kernel. The first fields do not change during a launch.
struct RingHost {
	uint32_t slots;        // a power of two
	uint32_t command_bytes; // from one command to the next
	uint32_t result_bytes;
	uint32_t launch;    // number of the launch
	uint32_t first;     // number of the next command
	uint32_t most;      // commands that the launch answers before it leaves
	uint32_t idle;      // microseconds without a command after which it leaves
	uint32_t unused[9];
	volatile uint32_t cancel; // commands up to this number are answered without being executed
	volatile uint32_t leave;  // the launch with this number leaves before its next command
	uint32_t unused2[14];
};

// What the kernel tells the host.
struct RingDevice {
	volatile uint32_t beat;   // changes every few milliseconds while the kernel waits for a command
	volatile uint32_t at;     // how far a command is: what the kernel passes to ring_beat
	volatile uint32_t next;   // number of the command after the last one that was answered; valid when left is set
	volatile uint32_t reason; // why the kernel has left; valid when left is set
	volatile uint32_t left;   // number of the launch that has left
	uint32_t unused[27];
};

enum { RING_HEADER_BYTES = 256 }; // RingHost and RingDevice; commands and then results follow

struct Command {
	volatile uint32_t number;
	uint32_t kind;    // what to do: not interpreted here
	uint32_t program; // with what
	uint32_t words;   // of data
	uint32_t args[4];
	uint32_t data[]; // whole units of 16 bytes
};

struct Result {
	volatile uint32_t number;
	uint32_t state;   // ResultState
	uint32_t words;   // of data
	uint32_t unused;
	uint32_t args[4];
	uint32_t data[];
};

enum ResultState { RESULT_DONE = 1, RESULT_CANCELLED, RESULT_FAILED };

// Why a kernel has left.
enum LeaveReason { LEFT_ASKED = 1, LEFT_IDLE, LEFT_SHARE, LEFT_BROKEN };

// What block 0 has taken from the ring, in device memory, where the other blocks read it after a barrier with
// load_word.
struct Order {
	uint32_t leave; // 0, or a LeaveReason: all blocks return
	uint32_t number, kind, program, words;
	uint32_t args[4];
	uint32_t unused[3];
};

// The ring as a thread of block 0 sees it.
struct Ring {
	char *memory;
	uint32_t slots, command_bytes, result_bytes, launch, most, idle; // as in RingHost
	uint32_t next, answered, beats; // of thread 0: number of the next command; commands answered by this launch; last beat
};

DEVICE RingHost *ring_host(const Ring &r) { return reinterpret_cast<RingHost *>(r.memory); }
DEVICE RingDevice *ring_device(const Ring &r) { return reinterpret_cast<RingDevice *>(r.memory + sizeof(RingHost)); }

DEVICE Command *ring_command(const Ring &r, uint32_t number)
{
	return reinterpret_cast<Command *>(r.memory + RING_HEADER_BYTES + size_t(number % r.slots) * r.command_bytes);
}

DEVICE Result *ring_result(const Ring &r, uint32_t number)
{
	return reinterpret_cast<Result *>(r.memory + RING_HEADER_BYTES + size_t(r.slots) * r.command_bytes + size_t(number % r.slots) * r.result_bytes);
}

// Threads of block 0 call it once.
DEVICE Ring ring_open(void *memory)
{
	Ring r = {static_cast<char *>(memory), 0, 0, 0, 0, 0, 0, 0, 0, 0};
	const RingHost *h = ring_host(r);
	r.slots = load_word(&h->slots), r.command_bytes = load_word(&h->command_bytes), r.result_bytes = load_word(&h->result_bytes);
	r.launch = load_word(&h->launch), r.most = load_word(&h->most), r.idle = load_word(&h->idle), r.next = load_word(&h->first);
	r.beats = load_word(&ring_device(r)->beat);
	return r;
}

// Tells the host that the kernel is alive, and how far the command is. Thread 0 of block 0. The next fence waits until
// the host has it, for a microsecond or so.
DEVICE void ring_beat(Ring *r, uint32_t at)
{
	RingDevice *d = ring_device(*r);
	store_word(&d->at, at);
	store_word(&d->beat, ++r->beats);
}

// Stores the number of the result of the next command, all of which has been written. Thread 0 of block 0.
DEVICE void ring_store_number(Ring *r)
{
	store_word(&ring_result(*r, r->next)->number, r->next);
	r->next++;
	r->answered++;
}

// Waits for the next command that is to be executed, and returns 0, or for a reason to leave, and returns that.
// Thread 0 of block 0.
DEVICE uint32_t ring_wait(Ring *r)
{
	constexpr uint64_t BEAT = 1000000; // between two beats, in nanoseconds
	const RingHost *h = ring_host(*r);
	const uint64_t start = device_time();
	const uint32_t launch = r->launch;
	while (r->answered != r->most) {
		const uint32_t next = r->next;
		uint32_t asked = 0, cancel = 0;
		const bool ready = wait_for_host(&ring_command(*r, next)->number, [&](uint32_t number) {
			asked = load_word(&h->leave);
			cancel = load_word(&h->cancel);
			return number == next || asked == launch;
		}, BEAT);
		if (asked == launch)
			return LEFT_ASKED;
		if (!ready) {
			if (device_time() - start > uint64_t(r->idle) * 1000)
				return LEFT_IDLE;
			ring_beat(r, 0);
			continue;
		}
		__threadfence_system();
		if (int(cancel - next) < 0)
			return 0;
		Result *to = ring_result(*r, next);
		to->state = RESULT_CANCELLED;
		to->words = 0;
		__threadfence_system();
		ring_store_number(r);
	}
	return LEFT_SHARE;
}

// Takes the next command and stores it to order, in device memory. The other blocks read it after a barrier, order->leave
// first. All threads of block 0 call it.
//
// Host memory is far away, so its loads do not wait for each other: each thread loads a unit of 16 bytes of the data
// with the header, before it knows how many there are. unit receives it: that with the index of the thread.
DEVICE void ring_take(Ring *r, Order *order, uint4 *unit)
{
	if (threadIdx.x == 0) {
		const uint32_t leave = ring_wait(r);
		store_word(&order->leave, leave);
		store_word(&order->number, r->next);
	}
	syncthreads();
	if (load_word(&order->leave))
		return;
	const Command *c = ring_command(*r, load_word(&order->number));
	if (sizeof(Command) + (threadIdx.x + 1) * sizeof *unit <= r->command_bytes)
		*unit = load_units(reinterpret_cast<const uint4 *>(c->data) + threadIdx.x);
	if (threadIdx.x < 7) // kind, program, words and args
		store_word(&order->kind + threadIdx.x, load_word(&c->kind + threadIdx.x));
	syncthreads();
}

// Copies the data of the command that was taken to device memory, whole units of 16 bytes: the first of each thread, and then four
// at a time. All threads of block 0 call it.
DEVICE void ring_copy(const Ring *r, const Order *order, uint4 unit, uint32_t *to)
{
	const uint4 *data = reinterpret_cast<const uint4 *>(ring_command(*r, load_word(&order->number))->data);
	const uint32_t units = (load_word(&order->words) + 3) / 4;
	uint4 *const dst = reinterpret_cast<uint4 *>(to);
	if (threadIdx.x < units)
		dst[threadIdx.x] = unit;
	for (uint32_t first = threadIdx.x + blockDim.x; first < units; first += 4 * blockDim.x) {
		uint4 more[4];
		UNROLL for (uint32_t i = 0; i < 4; i++)
			if (first + i * blockDim.x < units)
				more[i] = load_units(data + first + i * blockDim.x);
		UNROLL for (uint32_t i = 0; i < 4; i++)
			if (first + i * blockDim.x < units)
				dst[first + i * blockDim.x] = more[i];
	}
}

// Answers the command that was taken last. Threads of block 0 have written words words to the data of its result; all of
// them call it.
DEVICE void ring_answer(Ring *r, uint32_t state, uint32_t words)
{
	if (threadIdx.x == 0) {
		Result *to = ring_result(*r, r->next);
		to->state = state;
		to->words = words;
	}
	__threadfence_system();
	syncthreads();
	if (threadIdx.x == 0)
		ring_store_number(r);
}

// Tells the host that the kernel leaves. Thread 0 of block 0, which then returns.
DEVICE void ring_leave(Ring *r, uint32_t reason)
{
	RingDevice *d = ring_device(*r);
	store_word(&d->next, r->next);
	store_word(&d->reason, reason);
	__threadfence_system();
	store_word(&d->left, r->launch);
}
