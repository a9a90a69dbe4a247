#include "emu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "fiber.h"

namespace emu {

EMU_LOCAL Thread *self;

namespace {

enum { LANES = 32, MAX_WARPS = 32, MAX_THREADS = LANES * MAX_WARPS, MAX_SHARED = 100 << 10 }; // MAX_SHARED is whole pages: a guard page follows

#ifdef __SANITIZE_ADDRESS__
constexpr size_t STACK = 128 << 10; // with red zones
#else
constexpr size_t STACK = 64 << 10;
#endif

struct Site {
	const char *file = nullptr;
	int line = 0;
	bool operator!=(const Site &o) const { return line != o.line || (file != o.file && strcmp(file, o.file) != 0); }
};

std::string name(const Site &s)
{
	const char *slash = strrchr(s.file, '/');
	return std::string(slash ? slash + 1 : s.file) + ":" + std::to_string(s.line);
}

// One bit for each lane.
struct Warp {
	uint32_t ready = 0;       // runnable
	uint32_t fresh = 0;       // runnable and not started
	uint32_t at_exchange = 0; // wait for their warp
	uint32_t at_barrier = 0;  // wait for their block
	uint32_t ended = 0;
	Site exchange_site;
	unsigned buffer = 0;
	uint32_t values[2][LANES]; // double-buffered, so that a fast lane does not overwrite what a slow one has not read yet
};

const size_t PAGE = size_t(sysconf(_SC_PAGESIZE));

struct Mapping {
	char *at;
	size_t size;

	explicit Mapping(size_t n) : size(n)
	{
		void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED) {
			perror("emulation: cannot map memory for blocks");
			abort();
		}
		at = static_cast<char *>(p);
	}
	Mapping(const Mapping &) = delete;
};

// Shared memory for a block. Access beyond its end faults.
class Shared {
public:
#ifdef __SANITIZE_ADDRESS__
	void *take(size_t n)
	{
		free(at);
		if (posix_memalign(&at, 16, n) != 0)
			abort();
		return at;
	}

private:
	void *at = nullptr;
#else
	Shared() : mapping(MAX_SHARED + PAGE) { mprotect(mapping.at + MAX_SHARED, PAGE, PROT_NONE); }
	void *take(size_t n) { return mapping.at + MAX_SHARED - (n + 15) / 16 * 16; }

private:
	Mapping mapping;
#endif
};

// Runs blocks, one after the other, on its CPU thread.
class Runner {
public:
	Runner();
	Fault run(const Launch &launch, void *const *arguments, uint64_t number);

	void wait_for_block(Site site);
	const uint32_t *exchange(uint32_t bits, Site site);
	[[noreturn]] void fail(Fault fault, std::string what);
	[[noreturn]] void exit_block(); // may be called from a signal handler
	bool running() const { return self != nullptr; }

	Fault fault = NO_FAULT;
	std::string why;
	const void *bad_address = nullptr;

private:
	static void fiber_main();
	void end_thread();
	void yield();
	void choose_thread();
	void prepare(Dim3 shape);
	Fiber *&fiber() { return fiber_of[self->number]; }
	Fiber &started_fiber();
	unsigned pick_bit(uint32_t bits);
	void release_barrier();
	std::string describe_waiting() const;
	Warp &warp() { return warps[self->number / LANES]; }
	uint32_t bit() const { return 1u << self->number % LANES; }

	const Launch *launch = nullptr;
	void *const *arguments = nullptr;
	Block block;
	unsigned count = 0, live = 0, at_barrier = 0; // threads
	Site barrier;
	std::vector<Thread> threads;
	// A thread takes an idle fiber when it starts. A thread that ends without having waited
	// passes its fiber to the next one, so most kernels need few stacks.
	std::vector<Fiber> fibers;
	std::vector<Fiber *> idle, fiber_of;
	Fiber home;
	Warp warps[MAX_WARPS];
	Mapping stacks;
	Shared shared;
	uint64_t random = 0; // state of the generator; 0: ascending order
};

EMU_LOCAL Runner *runner;

// The page before each stack is a guard page.
Runner::Runner() : threads(MAX_THREADS), fibers(MAX_THREADS), fiber_of(MAX_THREADS), stacks((STACK + PAGE) * MAX_THREADS)
{
	for (size_t i = 0; i < MAX_THREADS; i++) {
		mprotect(stacks.at + i * (STACK + PAGE), PAGE, PROT_NONE);
		// The tops of the stacks differ in their low bits, so that they use different cache sets.
		fibers[i].low = stacks.at + i * (STACK + PAGE) + PAGE;
		fibers[i].size = STACK - i % 61 * 64;
	}
	home.use_cpu_stack();
}

Fault Runner::run(const Launch &l, void *const *args, uint64_t number)
{
	launch = &l;
	arguments = args;
	fault = NO_FAULT;
	prepare(l.shape);
	live = count;
	at_barrier = 0;
	block.grid = l.grid;
	block.index = {unsigned(number % l.grid.x), unsigned(number / l.grid.x % l.grid.y), unsigned(number / l.grid.x / l.grid.y)};
	block.shared = shared.take(l.shared);
	memset(block.shared, 0xff, l.shared); // NaN, so that reading uninitialised memory is noticed
	idle.clear();
	for (unsigned i = count; i-- > 0;)
		idle.push_back(&fibers[i]);
	for (unsigned w = 0; w * LANES < count; w++) {
		unsigned lanes = std::min(count - w * LANES, unsigned(LANES));
		warps[w].ready = lanes == LANES ? ~0u : (1u << lanes) - 1;
		warps[w].fresh = warps[w].ready;
		warps[w].at_exchange = warps[w].at_barrier = 0;
		warps[w].ended = ~warps[w].ready;
	}
	random = l.seed * (number + 1);
	self = &threads[random ? pick_bit(warps[0].ready) : 0];
	home.switch_to(started_fiber());
	self = nullptr;
	return fault;
}

// Sets the indices of the threads for a block of the given shape.
void Runner::prepare(Dim3 shape)
{
	if (shape.x == block.shape.x && shape.y == block.shape.y && shape.z == block.shape.z && count > 0)
		return;
	block.shape = shape;
	count = unsigned(shape.count());
	for (unsigned i = 0; i < count; i++) {
		Thread &t = threads[i];
		t.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
		t.number = i;
		t.block = &block;
	}
}

// Returns the fiber of this thread, a new one if it has not started.
Fiber &Runner::started_fiber()
{
	if (warp().fresh & bit()) {
		fiber() = idle.back();
		idle.pop_back();
		fiber()->make(fiber_main);
	}
	return *fiber();
}

void Runner::fiber_main()
{
	Fiber::started();
	for (;;) {
		runner->warp().fresh &= ~runner->bit();
		runner->launch->kernel->enter(runner->launch->kernel->function, runner->arguments);
		runner->end_thread();
	}
}

// Ends this thread. Returns as a thread that has not started, or never.
void Runner::end_thread()
{
	warp().ready &= ~bit();
	warp().ended |= bit();
	live--;
	if (live == 0)
		exit_block();
	if (at_barrier == live)
		release_barrier();
	Fiber *here = fiber();
	choose_thread();
	if (warp().fresh & bit())
		fiber() = here;
	else {
		idle.push_back(here);
		here->switch_to(*fiber());
	}
}

// Runs another thread. Returns when this one is runnable again.
void Runner::yield()
{
	Fiber *here = fiber();
	choose_thread();
	here->switch_to(started_fiber());
}

// Sets self to a runnable thread: of this warp, else of the next.
void Runner::choose_thread()
{
	unsigned n = (count + LANES - 1) / LANES, first = random ? pick_bit(~0u) % n : self->number / LANES, w = first;
	do {
		if (warps[w].ready) {
			self = &threads[w * LANES + pick_bit(warps[w].ready)];
			return;
		}
		w = w + 1 < n ? w + 1 : 0;
	} while (w != first);
	fail(LAUNCH_FAILED, "deadlock: " + describe_waiting());
}

// Returns the lowest set bit, or with a seed a random one.
unsigned Runner::pick_bit(uint32_t bits)
{
	if (!random)
		return unsigned(__builtin_ctz(bits));
	random ^= random << 13, random ^= random >> 7, random ^= random << 17;
	for (unsigned skip = random % unsigned(__builtin_popcount(bits)); skip > 0; skip--)
		bits &= bits - 1;
	return unsigned(__builtin_ctz(bits));
}

void Runner::release_barrier()
{
	for (unsigned w = 0; w * LANES < count; w++) {
		warps[w].ready |= warps[w].at_barrier;
		warps[w].at_barrier = 0;
	}
	at_barrier = 0;
}

void Runner::wait_for_block(Site site)
{
	if (at_barrier == 0)
		barrier = site;
	else if (barrier != site)
		fail(LAUNCH_FAILED, "threads are at different barriers: " + name(barrier) + " and " + name(site));
	warp().ready &= ~bit();
	warp().at_barrier |= bit();
	at_barrier++;
	if (at_barrier == live)
		release_barrier();
	else
		yield();
}

const uint32_t *Runner::exchange(uint32_t bits, Site site)
{
	Warp &w = warp();
	if (w.at_exchange == 0)
		w.exchange_site = site;
	else if (w.exchange_site != site)
		fail(LAUNCH_FAILED, "lanes of one warp are at different shuffles or warp barriers: " + name(w.exchange_site) + " and " + name(site));
	const uint32_t *all = w.values[w.buffer];
	w.values[w.buffer][self->number % LANES] = bits;
	w.ready &= ~bit();
	w.at_exchange |= bit();
	if (w.at_exchange == ~0u) {
		w.ready = ~0u;
		w.at_exchange = 0;
		w.buffer ^= 1;
	} else
		yield();
	return all;
}

std::string lanes(uint32_t bits)
{
	std::string s;
	for (int l = 0; l < LANES; l++)
		if (bits >> l & 1) {
			int first = l;
			while (l + 1 < LANES && bits >> (l + 1) & 1)
				l++;
			s += (s.empty() ? "" : ",") + std::to_string(first) + (l > first ? "-" + std::to_string(l) : "");
		}
	return s;
}

// Lists the waiting threads and where they wait.
std::string Runner::describe_waiting() const
{
	std::string s;
	for (unsigned w = 0; w * LANES < count; w++) {
		const Warp &warp = warps[w];
		if (!warp.at_exchange && !warp.at_barrier)
			continue;
		s += (s.empty() ? "warp " : "; warp ") + std::to_string(w) + ":";
		if (warp.at_exchange)
			s += " lanes " + lanes(warp.at_exchange) + " wait for their warp at " + name(warp.exchange_site) + ",";
		if (warp.at_barrier)
			s += " lanes " + lanes(warp.at_barrier) + " wait for their block at " + name(barrier) + ",";
		s += warp.ended ? " lanes " + lanes(warp.ended) + " have ended or do not exist" : " no lane has ended";
	}
	return s;
}

void Runner::fail(Fault f, std::string what)
{
	fault = f;
	why = "thread (" + std::to_string(self->index.x) + "," + std::to_string(self->index.y) + "," + std::to_string(self->index.z) + "): " + what;
	exit_block();
}

void Runner::exit_block()
{
	fiber()->switch_to(home);
	abort(); // not reached
}

struct sigaction previous_actions[2]; // of SIGSEGV and SIGBUS

void on_fault(int signal, siginfo_t *info, void *context)
{
	if (self) {
		runner->bad_address = info->si_addr;
		runner->fault = ILLEGAL_ADDRESS;
		runner->exit_block();
	}
	const struct sigaction &previous = previous_actions[signal == SIGBUS];
	if (previous.sa_flags & SA_SIGINFO)
		previous.sa_sigaction(signal, info, context);
	else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN)
		previous.sa_handler(signal);
	else
		sigaction(signal, &previous, nullptr); // the fault is raised again and ends the process
}

void catch_faults()
{
#ifndef __SANITIZE_ADDRESS__ // the sanitizer reports faults in more detail
	struct sigaction action = {};
	action.sa_sigaction = on_fault;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigaction(SIGSEGV, &action, &previous_actions[0]);
	sigaction(SIGBUS, &action, &previous_actions[1]);
#endif
}

// The blocks of the running launch, and the CPU threads that run them.
struct Pool {
	std::mutex lock;
	std::condition_variable work, done;
	unsigned helpers = 0, busy = 0;
	uint64_t generation = 0;

	const Launch *launch = nullptr;
	void *const *arguments = nullptr;
	std::atomic<uint64_t> taken{0};
	std::atomic<bool> stop{false};
	Fault fault = NO_FAULT;

	Pool();
	void take_blocks();
	void help();
	Fault run(const Launch &l);
};

Pool::Pool()
{
	catch_faults();
	sigset_t all, previous;
	sigfillset(&all);
	for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
		sigdelset(&all, s);
	pthread_sigmask(SIG_SETMASK, &all, &previous); // inherited by the threads, so that the program's own threads handle signals
	for (helpers = 0; helpers + 1 < cpu_threads(); helpers++)
		std::thread([this] { help(); }).detach();
	pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void Pool::help()
{
	stack_t stack = {};
	stack.ss_size = 64 << 10;
	stack.ss_sp = malloc(stack.ss_size);
	sigaltstack(&stack, nullptr);
	uint64_t seen = 0;
	for (;;) {
		{
			std::unique_lock hold(lock);
			work.wait(hold, [&] { return generation != seen; });
			seen = generation;
		}
		take_blocks();
		std::lock_guard hold(lock);
		if (--busy == 0)
			done.notify_one();
	}
}

void Pool::take_blocks()
{
	if (!runner)
		runner = new Runner;
	uint64_t blocks = launch->grid.count();
	for (uint64_t number; !stop && (number = taken++) < blocks;) {
		if (launch->seed % 2)
			number = blocks - 1 - number;
		Fault f = runner->run(*launch, arguments, number);
		if (f == NO_FAULT)
			continue;
		std::lock_guard hold(lock);
		if (!stop) {
			fault = f;
			if (f == ILLEGAL_ADDRESS)
				runner->why = "illegal access to address " + std::to_string(reinterpret_cast<uintptr_t>(runner->bad_address));
			uint64_t x = number % launch->grid.x, y = number / launch->grid.x % launch->grid.y, z = number / launch->grid.x / launch->grid.y;
			fprintf(stderr, "emulation: %s, block (%lu,%lu,%lu), %s\n", launch->kernel->name, x, y, z, runner->why.c_str());
		}
		stop = true;
	}
}

Fault Pool::run(const Launch &l)
{
	std::vector<void *> args = l.arguments();
	launch = &l;
	arguments = args.data();
	taken = 0;
	stop = false;
	fault = NO_FAULT;
	bool alone = helpers == 0 || l.grid.count() == 1;
	if (!alone) {
		std::lock_guard hold(lock);
		busy = helpers;
		generation++;
		work.notify_all();
	}
	take_blocks();
	if (!alone) {
		std::unique_lock hold(lock);
		done.wait(hold, [&] { return busy == 0; });
	}
	return fault;
}

// Set by Module and Declaration for the Definition after them.
const char *module_name = "";
const char *kernel_name;
unsigned kernel_threads;

} // namespace

std::vector<Kernel> &kernels()
{
	static std::vector<Kernel> all;
	return all;
}

Module::Module(const char *name) { module_name = name; }

Declaration::Declaration(const char *name, unsigned max_threads)
{
	kernel_name = name;
	kernel_threads = max_threads;
}

void Definition::define(void (*function)(), std::vector<size_t> sizes, void (*enter)(void (*)(), void *const *))
{
	kernels().push_back({module_name, kernel_name, kernel_threads, std::move(sizes), enter, function});
}

void Launch::copy_arguments(void *const *args)
{
	size_t words = 0;
	for (size_t size : kernel->sizes)
		words += (size + 7) / 8;
	storage.assign(words, 0);
	uint64_t *to = storage.data();
	for (size_t i = 0; i < kernel->sizes.size(); i++) {
		memcpy(to, args[i], kernel->sizes[i]);
		to += (kernel->sizes[i] + 7) / 8;
	}
}

std::vector<void *> Launch::arguments() const
{
	std::vector<void *> args;
	const uint64_t *from = storage.data();
	for (size_t size : kernel->sizes) {
		args.push_back(const_cast<uint64_t *>(from));
		from += (size + 7) / 8;
	}
	return args;
}

void wait_for_block(const char *file, int line) { runner->wait_for_block({file, line}); }
const uint32_t *exchange(uint32_t bits, const char *file, int line) { return runner->exchange(bits, {file, line}); }

void misaligned(const void *p, size_t size)
{
	runner->fail(MISALIGNED_ADDRESS, std::to_string(size) + "-byte access to misaligned address " + std::to_string(reinterpret_cast<uintptr_t>(p)));
}

unsigned cpu_threads()
{
	const char *s = getenv("M40_LLM_EMU_THREADS");
	int n = s ? atoi(s) : int(std::thread::hardware_concurrency());
	return unsigned(std::clamp(n, 1, 64));
}

Fault run(const Launch &launch)
{
	static Pool *pool = new Pool; // never destroyed: its threads wait for work until the process ends
	return pool->run(launch);
}

} // namespace emu
