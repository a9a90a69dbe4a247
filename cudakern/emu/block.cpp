#include "emu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fiber.h"
#include "resident.h"

namespace emu {

EMU_LOCAL Thread *self;

namespace {

enum { LANES = 32, MAX_WARPS = 32, MAX_THREADS = LANES * MAX_WARPS, MAX_SHARED = 228 << 10, MAX_PARTS = 15 }; // MAX_SHARED is whole pages: a guard page follows

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
	uint32_t at_part = 0;     // wait for their part of it
	uint32_t ended = 0;
	Site exchange_site, part_site;
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
	~Mapping()
	{
#ifdef __SANITIZE_ADDRESS__
		__asan_unpoison_memory_region(at, size); // stacks of threads that have not returned are poisoned
#endif
		munmap(at, size);
	}
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

	~Shared() { free(at); }

private:
	void *at = nullptr;
#else
	Shared() : mapping(MAX_SHARED + PAGE) { mprotect(mapping.at + MAX_SHARED, PAGE, PROT_NONE); }
	void *take(size_t n) { return mapping.at + MAX_SHARED - (n + 15) / 16 * 16; }

private:
	Mapping mapping;
#endif
};

using Clock = std::chrono::steady_clock;

// A thread of a resident block that waits for a condition.
struct Waiting {
	unsigned thread;
	Condition condition;
	Clock::time_point limit;
	Site site;
	bool *held; // what wait returns
};

// A block that runs.
struct Running : Block {
	unsigned count = 0, live = 0, at_barrier = 0; // threads
	Site barrier;
	unsigned at_part[MAX_PARTS] = {}; // threads
	bool votes = false, vote = false; // of any_of_block: so far at this barrier, and of the last one
	std::vector<Thread> threads;
	std::vector<Fiber *> fiber_of;
	std::vector<Waiting> waiting;
	Warp warps[MAX_WARPS];
	Shared memory;

	void start(const Launch &launch, uint64_t number);
	void release_barrier();
	void resume_waiting(bool expired);
	std::string describe_waiting() const;
	unsigned warp_count() const { return (count + LANES - 1) / LANES; }

private:
	void set_shape(Dim3 s);
};

// Runs blocks on its CPU thread: one after the other, or all blocks of a resident kernel at the same time.
class Runner {
public:
	Runner(size_t blocks, size_t threads);

	// Runs blocks number, number + 1 … of the launch at the same time, as many as the runner was created for.
	Fault run(const Launch &launch, void *const *arguments, uint64_t number, const std::atomic<bool> *stop);

	void wait_for_block(Site site);
	void wait_for_part(unsigned part, unsigned threads, Site site);
	bool any_of_block(bool b, Site site);
	bool wait(const Condition &condition, uint64_t nanoseconds, Site site);
	const uint32_t *exchange(uint32_t bits, Site site);
	[[noreturn]] void fail(Fault fault, std::string what);
	[[noreturn]] void exit_blocks(); // may be called from a signal handler
	void report() const;

	Fault fault = NO_FAULT;
	const void *bad_address = nullptr;

private:
	static void fiber_main();
	void end_thread();
	void yield();
	void choose_thread();
	bool choose_thread(Running &block);
	void resume_expired();
	Running &block() { return *static_cast<Running *>(self->block); }
	Fiber *&fiber() { return block().fiber_of[self->number]; }
	Fiber &started_fiber();
	uint64_t draw();
	unsigned pick_bit(uint32_t bits);
	std::string describe_waiting() const;
	Warp &warp() { return block().warps[self->number / LANES]; }
	uint32_t bit() const { return 1u << self->number % LANES; }

	const Launch *launch = nullptr;
	void *const *arguments = nullptr;
	const std::atomic<bool> *stop = nullptr; // of a resident kernel
	std::vector<std::unique_ptr<Running>> blocks;
	size_t ended = 0; // blocks
	std::string why;
	Dim3 failed; // block
	// A thread takes an idle fiber when it starts. A thread that ends without having waited
	// passes its fiber to the next one, so most kernels need few stacks.
	std::vector<Fiber> fibers;
	std::vector<Fiber *> idle;
	Fiber home;
	Mapping stacks;
	uint64_t random = 0; // state of the generator; 0: ascending order
};

EMU_LOCAL Runner *runner;

// The page before each stack is a guard page.
Runner::Runner(size_t n, size_t threads) : fibers(n * threads), stacks((STACK + PAGE) * n * threads)
{
	for (size_t i = 0; i < n; i++)
		blocks.push_back(std::make_unique<Running>());
	for (size_t i = 0; i < fibers.size(); i++) {
		mprotect(stacks.at + i * (STACK + PAGE), PAGE, PROT_NONE);
		// The tops of the stacks differ in their low bits, so that they use different cache sets.
		fibers[i].low = stacks.at + i * (STACK + PAGE) + PAGE;
		fibers[i].size = STACK - i % 61 * 64;
	}
	home.use_cpu_stack();
}

Fault Runner::run(const Launch &l, void *const *args, uint64_t number, const std::atomic<bool> *s)
{
	launch = &l;
	arguments = args;
	stop = s;
	fault = NO_FAULT;
	ended = 0;
	for (size_t i = 0; i < blocks.size(); i++)
		blocks[i]->start(l, number + i);
	idle.clear();
	for (size_t i = blocks.size() * blocks[0]->count; i-- > 0;)
		idle.push_back(&fibers[i]);
	random = l.seed * (number + 1);
	Running &first = *blocks[random ? draw() % blocks.size() : 0];
	self = &first.threads[random ? pick_bit(first.warps[0].ready) : 0];
	home.switch_to(started_fiber());
	self = nullptr;
	return fault;
}

void Running::start(const Launch &l, uint64_t number)
{
	grid = l.grid;
	index = {unsigned(number % l.grid.x), unsigned(number / l.grid.x % l.grid.y), unsigned(number / l.grid.x / l.grid.y)};
	set_shape(l.shape);
	live = count;
	at_barrier = 0;
	std::fill(std::begin(at_part), std::end(at_part), 0u);
	votes = false;
	waiting.clear();
	shared = memory.take(l.shared);
	memset(shared, 0xff, l.shared); // NaN, so that reading uninitialised memory is noticed
	for (unsigned w = 0; w < warp_count(); w++) {
		unsigned lanes = std::min(count - w * LANES, unsigned(LANES));
		warps[w].ready = lanes == LANES ? ~0u : (1u << lanes) - 1;
		warps[w].fresh = warps[w].ready;
		warps[w].at_exchange = warps[w].at_barrier = warps[w].at_part = 0;
		warps[w].ended = ~warps[w].ready;
	}
}

// Sets the indices of the threads for a block of shape s.
void Running::set_shape(Dim3 s)
{
	if (s.x == shape.x && s.y == shape.y && s.z == shape.z && count > 0)
		return;
	shape = s;
	count = unsigned(s.count());
	threads.resize(count);
	fiber_of.resize(count);
	for (unsigned i = 0; i < count; i++) {
		Thread &t = threads[i];
		t.index = {i % s.x, i / s.x % s.y, i / s.x / s.y};
		t.number = i;
		t.block = this;
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
	Running &b = block();
	warp().ready &= ~bit();
	warp().ended |= bit();
	b.live--;
	if (b.live == 0 && ++ended == blocks.size())
		exit_blocks();
	if (b.live > 0 && b.at_barrier == b.live)
		b.release_barrier();
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
	if (Fiber &next = started_fiber(); &next != here) // it may have waited for a word that was stored meanwhile
		here->switch_to(next);
}

// Sets self to a runnable thread: of this block, else of the next. With a seed, every eighth time any block
// can be the next.
void Runner::choose_thread()
{
	size_t n = blocks.size(), first = 0;
	if (n > 1 && random && draw() % 8 == 0)
		first = draw() % n;
	else if (choose_thread(block()))
		return;
	else
		while (blocks[first].get() != &block())
			first++;
	for (;; resume_expired())
		for (size_t i = 0; i < n; i++)
			if (choose_thread(*blocks[(first + i) % n]))
				return;
}

// Sets self to a runnable thread of the block: of this warp, else of the next.
bool Runner::choose_thread(Running &b)
{
	if (!b.waiting.empty())
		b.resume_waiting(false);
	unsigned n = b.warp_count(), first = random ? pick_bit(~0u) % n : self->block == &b ? self->number / LANES : 0, w = first;
	do {
		if (b.warps[w].ready) {
			self = &b.threads[w * LANES + pick_bit(b.warps[w].ready)];
			return true;
		}
		w = w + 1 < n ? w + 1 : 0;
	} while (w != first);
	return false;
}

// No thread is runnable: waits for the host, and lets the threads go on whose time is over.
void Runner::resume_expired()
{
	bool host = false;
	for (const auto &b : blocks)
		for (const Waiting &w : b->waiting)
			host = host || w.condition.host;
	if (!host)
		fail(LAUNCH_FAILED, "deadlock: " + describe_waiting());
	if (*stop)
		fail(LAUNCH_FAILED, "stopped with its context: " + describe_waiting());
	std::this_thread::sleep_for(std::chrono::microseconds(20));
	for (const auto &b : blocks)
		b->resume_waiting(true);
}

// Makes those waiting threads runnable whose condition holds, with expired also those whose time is over.
void Running::resume_waiting(bool expired)
{
	Clock::time_point now = expired ? Clock::now() : Clock::time_point::min();
	for (size_t i = 0; i < waiting.size();) {
		Waiting &w = waiting[i];
		bool holds = w.condition.holds(w.condition.of);
		if (!holds && now < w.limit) {
			i++;
			continue;
		}
		*w.held = holds;
		warps[w.thread / LANES].ready |= 1u << w.thread % LANES;
		waiting.erase(waiting.begin() + long(i));
	}
}

bool Runner::wait(const Condition &condition, uint64_t nanoseconds, Site site)
{
	if (!stop)
		fail(LAUNCH_FAILED, "waits at " + name(site) + ", but the kernel is not declared RESIDENT: blocks may run one after the other");
	if (!random && condition.holds(condition.of))
		return true;
	bool held = false;
	warp().ready &= ~bit();
	nanoseconds = std::min(nanoseconds, uint64_t(1) << 60);
	block().waiting.push_back({self->number, condition, Clock::now() + std::chrono::nanoseconds(nanoseconds), site, &held});
	yield();
	return held;
}

// Returns a random number; only with a seed.
uint64_t Runner::draw()
{
	random ^= random << 13, random ^= random >> 7, random ^= random << 17;
	return random;
}

// Returns the lowest set bit, or with a seed a random one.
unsigned Runner::pick_bit(uint32_t bits)
{
	if (!random)
		return unsigned(__builtin_ctz(bits));
	for (unsigned skip = draw() % unsigned(__builtin_popcount(bits)); skip > 0; skip--)
		bits &= bits - 1;
	return unsigned(__builtin_ctz(bits));
}

void Running::release_barrier()
{
	for (unsigned w = 0; w < warp_count(); w++) {
		warps[w].ready |= warps[w].at_barrier;
		warps[w].at_barrier = 0;
	}
	at_barrier = 0;
	vote = votes;
	votes = false;
}

void Runner::wait_for_block(Site site)
{
	Running &b = block();
	if (b.at_barrier == 0)
		b.barrier = site;
	else if (b.barrier != site)
		fail(LAUNCH_FAILED, "threads are at different barriers: " + name(b.barrier) + " and " + name(site));
	warp().ready &= ~bit();
	warp().at_barrier |= bit();
	b.at_barrier++;
	if (b.at_barrier == b.live)
		b.release_barrier();
	else
		yield();
}

void Runner::wait_for_part(unsigned part, unsigned threads, Site site)
{
	Running &b = block();
	if (part >= MAX_PARTS || threads == 0 || threads % LANES != 0 || self->number / threads != part || (part + 1) * threads > b.count)
		fail(LAUNCH_FAILED, "a thread waits for a part of its block that it is not in: " + name(site));
	const unsigned first = part * threads / LANES, end = first + threads / LANES;
	for (unsigned w = first; w < end; w++)
		if (b.warps[w].at_part && b.warps[w].part_site != site)
			fail(LAUNCH_FAILED, "threads are at different barriers: " + name(b.warps[w].part_site) + " and " + name(site));
	warp().ready &= ~bit();
	warp().at_part |= bit();
	warp().part_site = site;
	if (++b.at_part[part] < threads) {
		yield();
		return;
	}
	b.at_part[part] = 0;
	for (unsigned w = first; w < end; w++) {
		b.warps[w].ready |= b.warps[w].at_part;
		b.warps[w].at_part = 0;
	}
}

bool Runner::any_of_block(bool b, Site site)
{
	block().votes |= b;
	wait_for_block(site);
	return block().vote;
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

// Lists the set numbers below n as ranges: 0-3,5.
template <typename F> std::string ranges(size_t n, F is_set)
{
	std::string s;
	for (size_t i = 0; i < n; i++)
		if (is_set(i)) {
			size_t first = i;
			while (i + 1 < n && is_set(i + 1))
				i++;
			s += (s.empty() ? "" : ",") + std::to_string(first) + (i > first ? "-" + std::to_string(i) : "");
		}
	return s;
}

std::string lanes(uint32_t bits)
{
	return ranges(LANES, [&](size_t l) { return bits >> l & 1; });
}

// Lists the waiting threads and where they wait.
std::string Running::describe_waiting() const
{
	std::string s;
	for (unsigned w = 0; w < warp_count(); w++) {
		const Warp &warp = warps[w];
		std::map<std::string, uint32_t> words;
		for (const Waiting &t : waiting)
			if (t.thread / LANES == w)
				words[std::string(t.condition.host ? "the host" : "a word") + " at " + name(t.site)] |= 1u << t.thread % LANES;
		if (!warp.at_exchange && !warp.at_barrier && !warp.at_part && words.empty())
			continue;
		s += (s.empty() ? "warp " : "; warp ") + std::to_string(w) + ":";
		if (warp.at_exchange)
			s += " lanes " + lanes(warp.at_exchange) + " wait for their warp at " + name(warp.exchange_site) + ",";
		if (warp.at_barrier)
			s += " lanes " + lanes(warp.at_barrier) + " wait for their block at " + name(barrier) + ",";
		if (warp.at_part)
			s += " lanes " + lanes(warp.at_part) + " wait for their part of the block at " + name(warp.part_site) + ",";
		for (const auto &[what, threads] : words)
			s += " lanes " + lanes(threads) + " wait for " + what + ",";
		s += warp.ended ? " lanes " + lanes(warp.ended) + " have ended or do not exist" : " no lane has ended";
	}
	return s.empty() ? "have ended" : s;
}

// Lists the waiting threads of all blocks; blocks that wait alike are listed together.
std::string Runner::describe_waiting() const
{
	if (!stop)
		return blocks[0]->describe_waiting();
	std::map<std::string, std::vector<bool>> alike;
	for (size_t i = 0; i < blocks.size(); i++) {
		std::vector<bool> &these = alike[blocks[i]->describe_waiting()];
		these.resize(blocks.size());
		these[i] = true;
	}
	std::string s;
	for (const auto &[what, these] : alike)
		s += (s.empty() ? "blocks " : " | blocks ") + ranges(these.size(), [&, &these = these](size_t i) { return these[i]; }) + ": " + what;
	return s;
}

void Runner::fail(Fault f, std::string what)
{
	fault = f;
	why = "thread (" + std::to_string(self->index.x) + "," + std::to_string(self->index.y) + "," + std::to_string(self->index.z) + "): " + what;
	exit_blocks();
}

void Runner::exit_blocks()
{
	failed = self->block->index;
	fiber()->switch_to(home);
	abort(); // not reached
}

// Prints the error.
void Runner::report() const
{
	std::string what = why;
	if (fault == ILLEGAL_ADDRESS)
		what = "illegal access to address " + std::to_string(reinterpret_cast<uintptr_t>(bad_address));
	fprintf(stderr, "emulation: %s, block (%u,%u,%u), %s\n", launch->kernel->name, failed.x, failed.y, failed.z, what.c_str());
}

struct sigaction previous_actions[2]; // of SIGSEGV and SIGBUS

void on_fault(int signal, siginfo_t *info, void *context)
{
	if (self) {
		runner->bad_address = info->si_addr;
		runner->fault = ILLEGAL_ADDRESS;
		runner->exit_blocks();
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

// A stack for the handler of faults on this CPU thread, whose fibers may overflow theirs.
struct SignalStack {
	stack_t previous = {};
	std::unique_ptr<char[]> memory{new char[64 << 10]};

	SignalStack()
	{
		stack_t stack = {};
		stack.ss_size = 64 << 10;
		stack.ss_sp = memory.get();
		sigaltstack(&stack, &previous);
	}
	~SignalStack() { sigaltstack(&previous, nullptr); }
};

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
	for (helpers = 0; helpers + 1 < cpu_threads(); helpers++)
		start_thread([this] { help(); });
}

void Pool::help()
{
	SignalStack stack;
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
		runner = new Runner(1, MAX_THREADS);
	uint64_t blocks = launch->grid.count();
	for (uint64_t number; !stop && (number = taken++) < blocks;) {
		if (launch->seed % 2)
			number = blocks - 1 - number;
		Fault f = runner->run(*launch, arguments, number, nullptr);
		if (f == NO_FAULT)
			continue;
		std::lock_guard hold(lock);
		if (!stop) {
			fault = f;
			runner->report();
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
void wait_for_part(int part, int threads, const char *file, int line) { runner->wait_for_part(unsigned(part), unsigned(threads), {file, line}); }
uint64_t nanoseconds() { return uint64_t(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count()); }
bool any_of_block(bool b, const char *file, int line) { return runner->any_of_block(b, {file, line}); }
bool wait(const Condition &c, uint64_t nanoseconds, const char *file, int line) { return runner->wait(c, nanoseconds, {file, line}); }
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

namespace {

Pool &pool()
{
	static Pool *p = new Pool; // never destroyed: its threads wait for work until the process ends
	return *p;
}

std::map<std::string, unsigned> &residents()
{
	static std::map<std::string, unsigned> all; // by name: blocks on a multiprocessor
	return all;
}

} // namespace

Fault run(const Launch &launch) { return pool().run(launch); }

void start_thread(std::function<void()> f)
{
	sigset_t all, previous;
	sigfillset(&all);
	for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
		sigdelset(&all, s);
	pthread_sigmask(SIG_SETMASK, &all, &previous); // inherited by the thread
	std::thread(std::move(f)).detach();
	pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

Resident::Resident(const char *name, unsigned blocks) { residents()[name] = blocks; }

unsigned resident_blocks(const Kernel &kernel)
{
	auto found = residents().find(kernel.name);
	return found == residents().end() ? 0 : found->second;
}

Fault run_resident(const Launch &launch, const std::atomic<bool> &stop)
{
	pool(); // which catches faults
	SignalStack stack;
	Runner here(size_t(launch.grid.count()), size_t(launch.shape.count()));
	runner = &here;
	std::vector<void *> args = launch.arguments();
	Fault fault = here.run(launch, args.data(), 0, &stop);
	if (fault)
		here.report();
	runner = nullptr;
	return fault;
}

} // namespace emu
