// The driver API of an emulated Tesla M40: the functions that ../driver.h looks up in libcuda.so.1.
//
// Calls execute work immediately, so streams are idle and events complete, with two exceptions: a capture
// records work for later, and a resident kernel (resident.h) runs beside the program, on a CPU thread that
// then executes what has been enqueued behind it. Calls that wait for the whole device on a GPU, or could,
// fail while one runs. Environment variables configure the emulator:
//
//	M40_LLM_EMU_DEVICES      number of devices (1)
//	M40_LLM_EMU_CAPABILITY   their compute capability (5.2)
//	M40_LLM_EMU_MEMORY       bytes of memory of each (12 GiB)
//	M40_LLM_EMU_SMS          multiprocessors of each (24)
//	M40_LLM_EMU_THREADS      CPU threads that run blocks (all)
//	M40_LLM_EMU_SEED         seed for a random order of blocks, warps and lanes (0: ascending)
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "resident.h"

namespace {

using emu::Launch;

enum Result {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	ILLEGAL_STATE = 401,
	NOT_FOUND = 500,
	NOT_READY = 600,
	LAUNCH_TOO_LARGE = 720,
	NOT_PERMITTED = 800,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901,
	CAPTURE_UNMATCHED = 903,
	CAPTURE_UNJOINED = 904,
};

struct ErrorText {
	int code;
	const char *name, *text;
};

const ErrorText errors[] = {
	{SUCCESS, "CUDA_SUCCESS", "no error"},
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{emu::ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{emu::MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
	{emu::LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
	{NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
	{CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
	{CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not initiated in this stream"},
	{CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
};

const ErrorText *find_error(int code)
{
	for (const ErrorText &e : errors)
		if (e.code == code)
			return &e;
	return nullptr;
}

using Ptr = unsigned long long; // CUdeviceptr: an address in this process

// Work that a capture has recorded, or that waits for a resident kernel.
using Work = std::function<int()>;

using Lock = std::unique_lock<std::mutex>; // of State::lock

// What a handle of the API points to. It belongs to the context that was current when it was created,
// and is destroyed with it.
struct Object {
	struct Context *context = nullptr;
	size_t charged = 0; // bytes of device memory
	virtual ~Object() = default;
};

struct Graph : Object {
	std::vector<Work> work;
};

struct Executable : Object {
	std::vector<Work> work;
};

struct Capture {
	std::vector<Work> work;
	bool invalid = false;
};

struct Stream : Object {
	std::deque<std::function<int(Lock &)>> queue; // what a CPU thread executes in order while busy
	bool busy = false;
	std::shared_ptr<Capture> capture; // null unless the stream is being captured
	bool origin = false;              // the capture began on this stream
};

struct Event : Object {
	int pending = 0; // records in the queues of streams
	std::shared_ptr<Capture> capture; // that the event was recorded in; it has no time then
	bool recorded = false, timed = true;
	std::chrono::steady_clock::time_point at;
};

struct Module : Object {
	std::string name; // "": all modules
};

struct Context {
	std::atomic<bool> closing{false};
	int device = 0;
	int fault = SUCCESS; // error of a launch; sticky: every further call returns it
	Stream default_stream;
};

// Device memory. Access beyond its ends faults.
struct Region {
	static constexpr size_t ALIGNMENT = 512;
	char *at = nullptr; // null: out of memory
	size_t size;

#ifdef __SANITIZE_ADDRESS__
	explicit Region(size_t n) : size(n)
	{
		void *p = nullptr;
		if (posix_memalign(&p, ALIGNMENT, n) == 0)
			at = static_cast<char *>(p);
	}
	~Region() { free(at); }
#else
	// The region is between two guard pages and ends as close to the second as its alignment allows.
	explicit Region(size_t n) : size(n)
	{
		size_t page = size_t(sysconf(_SC_PAGESIZE)), body = (n + page - 1) / page * page;
		mapped = body + 2 * page;
		mapping = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mapping == MAP_FAILED)
			return;
		char *low = static_cast<char *>(mapping) + page;
		if (mprotect(low, body, PROT_READ | PROT_WRITE) == 0)
			at = low + body - (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	}
	~Region()
	{
		if (mapping != MAP_FAILED)
			munmap(mapping, mapped);
	}

private:
	void *mapping;
	size_t mapped;
#endif

public:
	Region(const Region &) = delete;
};

struct Allocation {
	Context *context;
	std::unique_ptr<Region> region;
};

struct HostAllocation {
	Context *context;
	size_t size;
	bool mapped; // the device can read and write it
	std::unique_ptr<void, decltype(&free)> memory;
};

struct Options {
	int devices = 1, major = 5, minor = 2, multiprocessors = 24;
	size_t memory = size_t(12) << 30;
	unsigned long seed = 0;
};

struct State {
	std::mutex lock; // guards all fields below
	bool ready = false;
	Options options;
	std::map<int, size_t> used;               // by device
	std::map<uintptr_t, Allocation> device;   // by address
	std::map<void *, HostAllocation> host;    // by address
	std::map<void *, std::unique_ptr<Object>> objects;
	std::set<Context *> contexts;
	std::vector<std::pair<Context *, const Launch *>> resident; // running
	std::condition_variable changed;                            // a stream or an event
};

State &state()
{
	static State *s = new State; // outlives every caller
	return *s;
}

thread_local Context *current;

// Returns the error of the current context: none is current, or it has a sticky error.
int check_context()
{
	State &s = state();
	if (!s.ready)
		return NOT_INITIALIZED;
	if (!s.contexts.count(current))
		return INVALID_CONTEXT;
	return current->fault;
}

#define ENTER \
	Lock hold(state().lock); \
	if (int error = check_context()) \
		return error

#define REQUIRE(condition, error) \
	if (!(condition)) \
		return error

// Returns the object of the current context that the handle points to, or null.
template <typename T> T *object(void *handle)
{
	auto found = state().objects.find(handle);
	if (found == state().objects.end() || found->second->context != current)
		return nullptr;
	return dynamic_cast<T *>(found->second.get());
}

template <typename T> T *make()
{
	T *o = new T;
	o->context = current;
	state().objects[o].reset(o);
	return o;
}

template <typename T> int destroy(void *handle)
{
	T *o = object<T>(handle);
	if (!o)
		return INVALID_HANDLE;
	state().used[current->device] -= o->charged;
	state().objects.erase(handle);
	return SUCCESS;
}

template <typename T, typename F> void for_each(F f)
{
	for (auto &[handle, o] : state().objects)
		if (T *t = dynamic_cast<T *>(o.get()); t && t->context == current)
			f(*t);
}

// Calls that wait for the device cannot be captured: they fail and invalidate the captures in progress.
int fail_if_capturing()
{
	bool capturing = false;
	for_each<Stream>([&](Stream &s) {
		if (s.capture)
			s.capture->invalid = capturing = true;
	});
	return capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}

bool on_device(Ptr p, size_t n, Context *context = nullptr)
{
	if (!context)
		context = current;
	auto next = state().device.upper_bound(p);
	if (next == state().device.begin())
		return false;
	--next;
	size_t at = p - next->first;
	size_t size = next->second.region->size;
	return next->second.context == context && at <= size && n <= size - at;
}

Stream *stream_of(void *handle) { return handle ? object<Stream>(handle) : &current->default_stream; }

// Executes the queue of a stream on this CPU thread.
void execute(Stream *s, Context *context)
{
	Lock hold(state().lock);
	current = context;
	while (!s->queue.empty()) {
		auto work = std::move(s->queue.front());
		s->queue.pop_front();
		if (int error = work(hold); error && !context->fault)
			context->fault = error;
		state().changed.notify_all();
	}
	s->busy = false;
	state().changed.notify_all();
}

// Appends work to the queue of a stream.
void append(Stream *s, std::function<int(Lock &)> work)
{
	s->queue.push_back(std::move(work));
	if (s->busy)
		return;
	s->busy = true;
	emu::start_thread([s, context = current] { execute(s, context); });
}

// Executes the work, or records it if the stream is being captured, or appends it if the stream is busy.
int enqueue(void *handle, Work work)
{
	Stream *s = stream_of(handle);
	REQUIRE(s, INVALID_HANDLE);
	if (s->capture) {
		if (s->capture->invalid)
			return CAPTURE_INVALIDATED;
		s->capture->work.push_back(std::move(work));
		return SUCCESS;
	}
	if (!s->busy)
		return work();
	append(s, [work](Lock &) { return current->fault ? SUCCESS : work(); });
	return SUCCESS;
}

// Waits until the stream is idle.
int wait_idle(Stream *s, Lock &hold)
{
	state().changed.wait(hold, [&] { return !s->busy; });
	return check_context();
}

// Page-locked memory, which is read and written when the stream reaches the copy.
bool page_locked(const void *p)
{
	auto next = state().host.upper_bound(const_cast<void *>(p));
	if (next == state().host.begin())
		return false;
	--next;
	return size_t(static_cast<const char *>(p) - static_cast<const char *>(next->first)) < next->second.size;
}

// The call waits for running kernels on a GPU, or may: it would wait for a resident one until that leaves.
#define REFUSE_BESIDE_RESIDENT \
	if (const Launch *l = resident_kernel()) { \
		fprintf(stderr, "emulation: %s would wait for the resident kernel %s\n", __func__, l->kernel->name); \
		return NOT_PERMITTED; \
	}

// Returns a running resident kernel of the context, or null.
const Launch *resident_kernel()
{
	for (auto [context, l] : state().resident)
		if (context == current)
			return l;
	return nullptr;
}

constexpr size_t SM_THREADS = 2048, SM_BLOCKS = 32;

// The shared memory of a multiprocessor in bytes, what a block there can opt in to, and what the system takes for each
// block, by compute capability.
struct SharedMemory {
	size_t multiprocessor, block, system;
};

SharedMemory shared_memory()
{
	int major = state().options.major, minor = state().options.minor;
	if (major < 8)
		return {96 << 10, 48 << 10, 0};
	if (major == 8 && minor == 0)
		return {164 << 10, 163 << 10, 1 << 10};
	if (major == 8 || major == 12)
		return {100 << 10, 99 << 10, 1 << 10};
	return {228 << 10, 227 << 10, 1 << 10};
}

// Returns how many blocks of a kernel fit on a multiprocessor, of which some threads, shared memory and blocks
// are used.
size_t fitting(const emu::Kernel &k, size_t threads, size_t shared, size_t used_threads = 0, size_t used_shared = 0, size_t used_blocks = 0)
{
	size_t n = std::min((SM_THREADS - used_threads) / threads, SM_BLOCKS - used_blocks);
	SharedMemory memory = shared_memory();
	shared += memory.system;
	used_shared += used_blocks * memory.system;
	if (shared)
		n = std::min(n, (memory.multiprocessor - used_shared) / shared);
	size_t most = emu::resident_blocks(k);
	return most ? std::min(n, most) : n;
}

// Returns an error if there is no room on the device beside the running resident kernels: for all blocks of
// a resident kernel, for one block of any other.
int check_room(const Launch &l)
{
	size_t threads = 0, shared = 0, blocks = 0, multiprocessors = size_t(state().options.multiprocessors);
	bool resident = emu::resident_blocks(*l.kernel) > 0;
	for (auto [context, running] : state().resident)
		if (context->device == current->device) {
			size_t n = (running->grid.count() + (resident ? multiprocessors - 1 : 0)) / multiprocessors;
			threads += n * running->shape.count(), shared += n * running->shared, blocks += n;
		}
	size_t room = fitting(*l.kernel, l.shape.count(), l.shared, threads, shared, blocks);
	if (resident)
		room *= multiprocessors;
	if (room >= (resident ? l.grid.count() : 1))
		return SUCCESS;
	fprintf(stderr, "emulation: %lu blocks of %s cannot run at the same time, there is room for %zu\n", resident ? l.grid.count() : 1, l.kernel->name, room);
	return LAUNCH_TOO_LARGE;
}

int launch(const Launch &l)
{
	if (!state().resident.empty())
		if (int error = check_room(l))
			return error;
	int fault = emu::run(l);
	if (fault)
		current->fault = fault;
	return fault;
}

// Starts a resident kernel, which runs beside the program.
int launch_resident(void *stream, std::shared_ptr<Launch> l)
{
	Stream *s = stream_of(stream);
	REQUIRE(s, INVALID_HANDLE);
	REQUIRE(!s->capture, CAPTURE_UNSUPPORTED);
	const bool later = s->busy; // when the stream's work before it, which may be a resident kernel too, has ended
	std::pair<Context *, const Launch *> running(current, l.get());
	if (!later) {
		if (int error = check_room(*l))
			return error;
		state().resident.push_back(running);
	}
	append(s, [l, running, later](Lock &hold) {
		int fault = SUCCESS;
		if (later) {
			if (int error = check_room(*l))
				return error;
			state().resident.push_back(running);
		}
		if (!current->fault) {
			hold.unlock();
			fault = emu::run_resident(*l, current->closing);
			hold.lock();
		}
		auto &all = state().resident;
		all.erase(std::find(all.begin(), all.end(), running));
		return fault;
	});
	return SUCCESS;
}

// What a driver takes of the device's memory: for an allocation of more than 1 MiB a multiple of UNIT, for a module, and for a graph and each
// of its launches. Measured on an NVIDIA H200 with driver 580 (BenchmarkDriverMemory); modules share units.
constexpr size_t UNIT = 2 << 20, MODULE_BYTES = 128 << 10, GRAPH_BYTES = 104 << 10, LAUNCH_BYTES = 2400;

size_t allocated(size_t size) { return size > 1 << 20 ? (size + UNIT - 1) / UNIT * UNIT : size; }

// Takes bytes of the memory of the current device. It returns false if fewer are free.
bool take(size_t bytes)
{
	State &s = state();
	if (bytes > s.options.memory - s.used[current->device])
		return false;
	s.used[current->device] += bytes;
	return true;
}

// Frees an allocation.
void release(std::map<uintptr_t, Allocation>::iterator at)
{
	state().used[at->second.context->device] -= allocated(at->second.region->size);
	state().device.erase(at);
}

bool valid(int device) { return device >= 0 && device < state().options.devices; }

// A Tesla M40, by CUdevice_attribute.
const std::map<int, int> attributes = {
	{1, 1024},        // threads per block
	{2, 1024},        // block: x
	{3, 1024},        // y
	{4, 64},          // z
	{5, 2147483647},  // grid: x
	{6, 65535},       // y
	{7, 65535},       // z
	{8, 48 << 10},    // shared memory per block
	{9, 64 << 10},    // constant memory
	{10, 32},         // warp
	{12, 65536},      // registers per block
	{13, 1112000},    // clock, kHz
	{17, 0},          // kernels have a time limit
	{18, 0},          // integrated
	{19, 1},          // can map host memory
	{20, 0},          // compute mode
	{31, 1},          // concurrent kernels
	{32, 0},          // ECC
	{33, 0},          // PCI bus
	{34, 0},          // PCI device
	{36, 3004000},    // memory clock, kHz
	{37, 384},        // memory bus, bits
	{38, 3 << 20},    // L2
	{39, 2048},       // threads per multiprocessor
	{40, 2},          // copy engines
	{41, 1},          // unified addressing
	{50, 0},          // PCI domain
	{78, 1},          // stream priorities
	{82, 65536},      // registers per multiprocessor
	{90, 0},          // preemption
	{95, 0},          // cooperative launch
};

} // namespace

#define API extern "C" __attribute__((visibility("default"))) int

// Returns the number of CPU threads that run blocks. The symbol marks the library as an emulator.
API emu_threads() { return int(emu::cpu_threads()); }

API cuInit(unsigned flags)
{
	State &s = state();
	std::lock_guard hold(s.lock);
	REQUIRE(flags == 0, INVALID_VALUE);
	Options o;
	if (const char *devices = getenv("M40_LLM_EMU_DEVICES"))
		REQUIRE(sscanf(devices, "%d", &o.devices) == 1, INVALID_VALUE);
	if (const char *capability = getenv("M40_LLM_EMU_CAPABILITY"))
		REQUIRE(sscanf(capability, "%d.%d", &o.major, &o.minor) == 2, INVALID_VALUE);
	if (const char *memory = getenv("M40_LLM_EMU_MEMORY"))
		REQUIRE(sscanf(memory, "%zu", &o.memory) == 1, INVALID_VALUE);
	if (const char *multiprocessors = getenv("M40_LLM_EMU_SMS"))
		REQUIRE(sscanf(multiprocessors, "%d", &o.multiprocessors) == 1 && o.multiprocessors > 0, INVALID_VALUE);
	if (const char *seed = getenv("M40_LLM_EMU_SEED"))
		REQUIRE(sscanf(seed, "%lu", &o.seed) == 1, INVALID_VALUE);
	s.options = o;
	s.ready = true;
	return SUCCESS;
}

API cuDriverGetVersion(int *version)
{
	REQUIRE(version, INVALID_VALUE);
	*version = 11080;
	return SUCCESS;
}

API cuGetErrorName(int error, const char **name)
{
	const ErrorText *e = find_error(error);
	*name = e ? e->name : nullptr;
	return e ? SUCCESS : INVALID_VALUE;
}

API cuGetErrorString(int error, const char **text)
{
	const ErrorText *e = find_error(error);
	*text = e ? e->text : nullptr;
	return e ? SUCCESS : INVALID_VALUE;
}

API cuDeviceGetCount(int *count)
{
	REQUIRE(state().ready, NOT_INITIALIZED);
	REQUIRE(count, INVALID_VALUE);
	*count = state().options.devices;
	return SUCCESS;
}

API cuDeviceGet(int *device, int ordinal)
{
	REQUIRE(state().ready, NOT_INITIALIZED);
	REQUIRE(valid(ordinal), INVALID_DEVICE);
	REQUIRE(device, INVALID_VALUE);
	*device = ordinal;
	return SUCCESS;
}

API cuDeviceGetName(char *name, int size, int device)
{
	REQUIRE(valid(device), INVALID_DEVICE);
	REQUIRE(name && size > 0, INVALID_VALUE);
	snprintf(name, size_t(size), "Tesla M40 (emulated)");
	return SUCCESS;
}

API cuDeviceGetAttribute(int *value, int attribute, int device)
{
	State &s = state();
	REQUIRE(s.ready, NOT_INITIALIZED);
	REQUIRE(valid(device), INVALID_DEVICE);
	REQUIRE(value, INVALID_VALUE);
	if (attribute == 75)
		*value = s.options.major;
	else if (attribute == 76)
		*value = s.options.minor;
	else if (attribute == 16)
		*value = s.options.multiprocessors;
	else if (attribute == 81)
		*value = int(shared_memory().multiprocessor);
	else if (attribute == 97)
		*value = int(shared_memory().block);
	else {
		auto found = attributes.find(attribute);
		REQUIRE(found != attributes.end(), INVALID_VALUE);
		*value = found->second;
	}
	return SUCCESS;
}

API cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	REQUIRE(valid(device), INVALID_DEVICE);
	REQUIRE(bytes, INVALID_VALUE);
	*bytes = state().options.memory;
	return SUCCESS;
}

API cuCtxCreate_v2(void **context, unsigned, int device)
{
	State &s = state();
	std::lock_guard hold(s.lock);
	REQUIRE(s.ready, NOT_INITIALIZED);
	REQUIRE(valid(device), INVALID_DEVICE);
	REQUIRE(context, INVALID_VALUE);
	*context = current = new Context;
	current->device = device;
	s.contexts.insert(current);
	return SUCCESS;
}

API cuCtxDestroy_v2(void *context)
{
	State &s = state();
	Lock hold(s.lock);
	Context *c = static_cast<Context *>(context);
	REQUIRE(s.contexts.erase(c), INVALID_CONTEXT);
	c->closing = true; // a GPU waits for running kernels; this stops resident ones that wait
	s.changed.wait(hold, [&] {
		bool busy = c->default_stream.busy;
		for (auto &[handle, o] : s.objects)
			if (Stream *stream = dynamic_cast<Stream *>(o.get()); stream && stream->context == c)
				busy = busy || stream->busy;
		return !busy;
	});
	for (auto o = s.objects.begin(); o != s.objects.end();) {
		if (o->second->context == c)
			s.used[c->device] -= o->second->charged;
		o = o->second->context == c ? s.objects.erase(o) : std::next(o);
	}
	for (auto h = s.host.begin(); h != s.host.end();)
		h = h->second.context == c ? s.host.erase(h) : std::next(h);
	for (auto d = s.device.begin(); d != s.device.end();) {
		auto here = d++;
		if (here->second.context == c)
			release(here);
	}
	if (current == c)
		current = nullptr;
	delete c;
	return SUCCESS;
}

API cuCtxSetCurrent(void *context)
{
	State &s = state();
	std::lock_guard hold(s.lock);
	REQUIRE(s.ready, NOT_INITIALIZED);
	REQUIRE(!context || s.contexts.count(static_cast<Context *>(context)), INVALID_CONTEXT);
	current = static_cast<Context *>(context);
	return SUCCESS;
}

API cuCtxSynchronize()
{
	ENTER;
	REFUSE_BESIDE_RESIDENT;
	return fail_if_capturing();
}

API cuMemGetInfo_v2(size_t *free, size_t *total)
{
	ENTER;
	REQUIRE(free && total, INVALID_VALUE);
	*total = state().options.memory;
	*free = state().options.memory - state().used[current->device];
	return SUCCESS;
}

API cuMemAlloc_v2(Ptr *p, size_t size)
{
	ENTER;
	State &s = state();
	REQUIRE(p && size > 0, INVALID_VALUE);
	REFUSE_BESIDE_RESIDENT;
	if (int error = fail_if_capturing())
		return error;
	const size_t free = s.options.memory - s.used[current->device];
	REQUIRE(size <= free && allocated(size) <= free, OUT_OF_MEMORY);
	auto region = std::make_unique<Region>(size);
	REQUIRE(region->at, OUT_OF_MEMORY);
	if (size <= size_t(1) << 20)
		memset(region->at, 0xff, size); // NaN, so that reading uninitialized memory is noticed
	*p = reinterpret_cast<uintptr_t>(region->at);
	s.device[uintptr_t(*p)] = {current, std::move(region)};
	take(allocated(size));
	return SUCCESS;
}

API cuMemFree_v2(Ptr p)
{
	ENTER;
	State &s = state();
	if (!p)
		return SUCCESS;
	auto found = s.device.find(uintptr_t(p));
	REQUIRE(found != s.device.end() && found->second.context == current, INVALID_VALUE);
	REFUSE_BESIDE_RESIDENT;
	if (int error = fail_if_capturing())
		return error;
	release(found);
	return SUCCESS;
}

API cuMemHostAlloc(void **p, size_t size, unsigned flags)
{
	ENTER;
	const unsigned portable = 1, device_map = 2, write_combined = 4;
	REQUIRE(p && size > 0 && flags <= (portable | device_map | write_combined), INVALID_VALUE);
	REFUSE_BESIDE_RESIDENT;
	size_t whole = (size + 4095) / 4096 * 4096;
	*p = aligned_alloc(4096, whole);
	REQUIRE(*p, OUT_OF_MEMORY);
	memset(*p, 0xff, std::min(whole, size_t(1) << 20)); // so that reading uninitialized memory is noticed
	state().host.emplace(*p, HostAllocation{current, size, (flags & device_map) != 0, {*p, free}});
	return SUCCESS;
}

API cuMemFreeHost(void *p)
{
	ENTER;
	REQUIRE(state().host.count(p), INVALID_VALUE);
	REFUSE_BESIDE_RESIDENT;
	state().host.erase(p);
	return SUCCESS;
}

API cuMemHostGetDevicePointer_v2(Ptr *p, void *host, unsigned flags)
{
	ENTER;
	auto found = state().host.find(host);
	REQUIRE(p && flags == 0 && found != state().host.end() && found->second.mapped, INVALID_VALUE);
	*p = reinterpret_cast<uintptr_t>(host);
	return SUCCESS;
}

API cuMemcpyHtoDAsync_v2(Ptr dst, const void *src, size_t n, void *stream)
{
	ENTER;
	REQUIRE(on_device(dst, n), INVALID_VALUE);
	if (Stream *s = stream_of(stream); s && s->busy && !page_locked(src)) {
		const char *bytes = static_cast<const char *>(src);
		auto staged = std::make_shared<std::vector<char>>(bytes, bytes + n);
		return enqueue(stream, [=] { memcpy(reinterpret_cast<void *>(dst), staged->data(), n); return SUCCESS; });
	}
	return enqueue(stream, [=] { memcpy(reinterpret_cast<void *>(dst), src, n); return SUCCESS; });
}

API cuMemcpyDtoHAsync_v2(void *dst, Ptr src, size_t n, void *stream)
{
	ENTER;
	REQUIRE(on_device(src, n), INVALID_VALUE);
	if (Stream *s = stream_of(stream); s && s->busy && !page_locked(dst))
		if (int error = wait_idle(s, hold))
			return error;
	return enqueue(stream, [=] { memcpy(dst, reinterpret_cast<void *>(src), n); return SUCCESS; });
}

API cuMemcpyDtoDAsync_v2(Ptr dst, Ptr src, size_t n, void *stream)
{
	ENTER;
	REQUIRE(on_device(dst, n) && on_device(src, n), INVALID_VALUE);
	return enqueue(stream, [=] { memmove(reinterpret_cast<void *>(dst), reinterpret_cast<void *>(src), n); return SUCCESS; });
}

API cuMemcpyPeerAsync(Ptr dst, void *to, Ptr src, void *from, size_t n, void *stream)
{
	ENTER;
	Context *there = static_cast<Context *>(to), *here = static_cast<Context *>(from);
	REQUIRE(state().contexts.count(there) && state().contexts.count(here), INVALID_CONTEXT);
	REQUIRE(on_device(dst, n, there) && on_device(src, n, here), INVALID_VALUE);
	return enqueue(stream, [=] { memcpy(reinterpret_cast<void *>(dst), reinterpret_cast<void *>(src), n); return SUCCESS; });
}

API cuMemsetD8Async(Ptr dst, unsigned char value, size_t n, void *stream)
{
	ENTER;
	REQUIRE(on_device(dst, n), INVALID_VALUE);
	return enqueue(stream, [=] { memset(reinterpret_cast<void *>(dst), value, n); return SUCCESS; });
}

API cuStreamCreateWithPriority(void **stream, unsigned, int)
{
	ENTER;
	REQUIRE(stream, INVALID_VALUE);
	*stream = make<Stream>();
	return SUCCESS;
}

API cuStreamDestroy_v2(void *stream)
{
	ENTER;
	if (Stream *s = object<Stream>(stream))
		if (int error = wait_idle(s, hold))
			return error;
	return destroy<Stream>(stream);
}

// Ends the capture in s, if there is one, because its work is to be waited for or asked about.
static bool breaks_capture(Stream *s)
{
	if (s->capture)
		s->capture->invalid = true;
	return s->capture != nullptr;
}

API cuStreamSynchronize(void *stream)
{
	ENTER;
	Stream *s = stream_of(stream);
	REQUIRE(s, INVALID_HANDLE);
	if (breaks_capture(s))
		return CAPTURE_UNSUPPORTED;
	return wait_idle(s, hold);
}

API cuStreamQuery(void *stream)
{
	ENTER;
	Stream *s = stream_of(stream);
	REQUIRE(s, INVALID_HANDLE);
	if (breaks_capture(s))
		return CAPTURE_UNSUPPORTED;
	return s->busy ? NOT_READY : SUCCESS;
}

API cuStreamWaitEvent(void *stream, void *event, unsigned)
{
	ENTER;
	Stream *s = stream_of(stream);
	Event *e = object<Event>(event);
	REQUIRE(s && e, INVALID_HANDLE);
	if (e->capture && !s->capture)
		s->capture = e->capture; // joins the capture of the event
	else if (e->pending || s->busy)
		append(s, [event](Lock &hold) {
			state().changed.wait(hold, [&] { Event *e = object<Event>(event); return !e || !e->pending; });
			return SUCCESS;
		});
	return SUCCESS;
}

API cuStreamBeginCapture_v2(void *stream, int)
{
	ENTER;
	Stream *s = stream_of(stream);
	REQUIRE(stream && s, INVALID_HANDLE);
	REQUIRE(!s->capture, ILLEGAL_STATE);
	s->capture = std::make_shared<Capture>();
	s->origin = true;
	return SUCCESS;
}

API cuStreamEndCapture(void *stream, void **graph)
{
	ENTER;
	Stream *s = stream_of(stream);
	REQUIRE(s && graph, INVALID_HANDLE);
	REQUIRE(s->capture, ILLEGAL_STATE);
	REQUIRE(s->origin, CAPTURE_UNMATCHED);
	*graph = nullptr;
	std::shared_ptr<Capture> capture = s->capture;
	for_each<Stream>([&](Stream &other) {
		if (other.capture == capture)
			other.capture = nullptr;
	});
	for_each<Event>([&](Event &e) {
		if (e.capture == capture)
			e.capture = nullptr;
	});
	s->origin = false;
	REQUIRE(!capture->invalid, CAPTURE_INVALIDATED);
	Graph *g = make<Graph>();
	g->work = std::move(capture->work);
	*graph = g;
	return SUCCESS;
}

API cuEventCreate(void **event, unsigned flags)
{
	ENTER;
	REQUIRE(event, INVALID_VALUE);
	Event *e = make<Event>();
	e->timed = !(flags & 2);
	*event = e;
	return SUCCESS;
}

API cuEventDestroy_v2(void *event)
{
	ENTER;
	return destroy<Event>(event);
}

API cuEventRecord(void *event, void *stream)
{
	ENTER;
	Event *e = object<Event>(event);
	Stream *s = stream_of(stream);
	REQUIRE(s && e, INVALID_HANDLE);
	e->capture = s->capture;
	if (!s->busy) {
		e->recorded = true;
		e->at = std::chrono::steady_clock::now();
		return SUCCESS;
	}
	e->pending++;
	append(s, [event](Lock &) {
		if (Event *e = object<Event>(event)) {
			e->pending--;
			e->recorded = true;
			e->at = std::chrono::steady_clock::now();
		}
		return SUCCESS;
	});
	return SUCCESS;
}

API cuEventSynchronize(void *event)
{
	ENTER;
	Event *e = object<Event>(event);
	REQUIRE(e, INVALID_HANDLE);
	if (e->capture)
		return CAPTURE_UNSUPPORTED;
	state().changed.wait(hold, [&] { Event *e = object<Event>(event); return !e || !e->pending || current->fault; });
	return check_context();
}

API cuEventQuery(void *event)
{
	ENTER;
	Event *e = object<Event>(event);
	REQUIRE(e, INVALID_HANDLE);
	return e->capture ? CAPTURE_UNSUPPORTED : e->pending ? NOT_READY : SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
	ENTER;
	Event *a = object<Event>(start), *b = object<Event>(end);
	REQUIRE(milliseconds && a && b, INVALID_HANDLE);
	REQUIRE(a->recorded && b->recorded && a->timed && b->timed && !a->capture && !b->capture, INVALID_HANDLE);
	*milliseconds = std::chrono::duration<float, std::milli>(b->at - a->at).count();
	return SUCCESS;
}

// The image "emulation:<module>" stands for that module. Any other image, such as one compiled by nvcc,
// stands for all modules: the emulator does not parse images, and names of kernels are unique.
API cuModuleLoadDataEx(void **module, const void *image, unsigned, const int *, void **)
{
	ENTER;
	REQUIRE(module && image, INVALID_VALUE);
	REFUSE_BESIDE_RESIDENT;
	const char prefix[] = "emulation:", *text = static_cast<const char *>(image);
	std::string name;
	if (strncmp(text, prefix, sizeof prefix - 1) == 0) {
		name = text + sizeof prefix - 1;
		bool known = false;
		for (const emu::Kernel &k : emu::kernels())
			known = known || name == k.module;
		REQUIRE(known, INVALID_IMAGE);
	}
	REQUIRE(take(MODULE_BYTES), OUT_OF_MEMORY);
	Module *m = make<Module>();
	m->name = name, m->charged = MODULE_BYTES;
	*module = m;
	return SUCCESS;
}

API cuModuleUnload(void *module)
{
	ENTER;
	REFUSE_BESIDE_RESIDENT;
	return destroy<Module>(module);
}

API cuModuleGetFunction(void **function, void *module, const char *name)
{
	ENTER;
	Module *m = object<Module>(module);
	REQUIRE(function && name, INVALID_VALUE);
	REQUIRE(m, INVALID_HANDLE);
	for (emu::Kernel &k : emu::kernels())
		if (strcmp(k.name, name) == 0 && (m->name.empty() || m->name == k.module)) {
			*function = &k;
			return SUCCESS;
		}
	return NOT_FOUND;
}

static const emu::Kernel *kernel_of(void *function)
{
	std::vector<emu::Kernel> &all = emu::kernels();
	emu::Kernel *k = static_cast<emu::Kernel *>(function);
	return k >= all.data() && k < all.data() + all.size() ? k : nullptr;
}

API cuFuncGetAttribute(int *value, int attribute, void *function)
{
	ENTER;
	const emu::Kernel *k = kernel_of(function);
	REQUIRE(k, INVALID_HANDLE);
	REQUIRE(value, INVALID_VALUE);
	switch (attribute) {
	case 0: *value = int(k->max_threads); break; // threads per block
	case 1: *value = 0; break;                   // static shared memory
	case 2: *value = 0; break;                   // constant memory
	case 3: *value = 0; break;                   // local memory
	case 4: *value = 32; break;                  // registers: the emulation has none
	case 5: case 6: *value = 52; break;          // versions of PTX and binary
	case 8: *value = 48 << 10; break;            // maximum dynamic shared memory
	default: return INVALID_VALUE;
	}
	return SUCCESS;
}

API cuFuncSetAttribute(void *function, int attribute, int value)
{
	ENTER;
	REQUIRE(kernel_of(function), INVALID_HANDLE);
	REQUIRE(attribute == 8 && value >= 0 && size_t(value) <= shared_memory().block, INVALID_VALUE);
	return SUCCESS;
}

// Returns the offset and size of a parameter, as drivers from 12.4 on do.
API cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
	ENTER;
	const emu::Kernel *k = kernel_of(function);
	REQUIRE(k, INVALID_HANDLE);
	REQUIRE(index < k->sizes.size() && offset, INVALID_VALUE);
	size_t at = 0;
	for (size_t i = 0; i <= index; i++) {
		size_t n = k->sizes[i];
		at = (at + n - 1) / n * n; // parameters are scalars and pointers, aligned to their size
		*offset = at;
		if (size)
			*size = n;
		at += n;
	}
	return SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared)
{
	ENTER;
	const emu::Kernel *k = kernel_of(function);
	REQUIRE(k, INVALID_HANDLE);
	REQUIRE(blocks && threads > 0 && unsigned(threads) <= k->max_threads, INVALID_VALUE);
	*blocks = int(fitting(*k, size_t(threads), shared));
	return SUCCESS;
}

API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
	ENTER;
	auto l = std::make_shared<Launch>();
	l->kernel = kernel_of(function);
	REQUIRE(l->kernel, INVALID_HANDLE);
	REQUIRE(!extra && (arguments || l->kernel->sizes.empty()), INVALID_VALUE);
	l->grid = {gx, gy, gz};
	l->shape = {bx, by, bz};
	l->shared = shared;
	l->seed = state().options.seed;
	REQUIRE(gx > 0 && gy > 0 && gz > 0 && gx <= 0x7fffffff && gy <= 65535 && gz <= 65535, INVALID_VALUE);
	REQUIRE(bx > 0 && by > 0 && bz > 0 && bx <= 1024 && by <= 1024 && bz <= 64, INVALID_VALUE);
	REQUIRE(l->shape.count() <= l->kernel->max_threads && shared <= shared_memory().block, INVALID_VALUE);
	l->copy_arguments(arguments);
	if (emu::resident_blocks(*l->kernel))
		return launch_resident(stream, l);
	return enqueue(stream, [l] { return launch(*l); });
}

API cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long)
{
	ENTER;
	Graph *g = object<Graph>(graph);
	REQUIRE(executable, INVALID_VALUE);
	REQUIRE(g, INVALID_HANDLE);
	const size_t bytes = GRAPH_BYTES + g->work.size() * LAUNCH_BYTES;
	REQUIRE(take(bytes), OUT_OF_MEMORY);
	Executable *x = make<Executable>();
	x->work = g->work, x->charged = bytes;
	*executable = x;
	return SUCCESS;
}

API cuGraphLaunch(void *executable, void *stream)
{
	ENTER;
	Executable *x = object<Executable>(executable);
	REQUIRE(x, INVALID_HANDLE);
	return enqueue(stream, [work = x->work] {
		for (const Work &w : work)
			if (int error = w())
				return error;
		return int(SUCCESS);
	});
}

API cuGraphDestroy(void *graph)
{
	ENTER;
	return destroy<Graph>(graph);
}

API cuGraphExecDestroy(void *executable)
{
	ENTER;
	return destroy<Executable>(executable);
}
