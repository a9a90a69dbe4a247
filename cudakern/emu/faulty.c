// A driver in front of the emulated one that lets a call fail: the test and it share the
// file CONTROL, which says which call, and tells what happened. What it hands on really
// happens, and so does what frees something, as with NVIDIA's driver.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../driver.h"

// As emutest.Faults has it.
struct control {
	int64_t fail_at;  // number of the call that fails, from 1; 0: none
	int64_t code;     // with what
	int64_t calls;    // made so far
	int64_t contexts; // that are open
	char failed[64];  // name of the call that failed
};

static struct control *control;
static void *target;
static CUresult lasting; // what every call on the context fails with by now

int emu_threads; // marks an emulation, which needs no compiled kernels

__attribute__((constructor)) static void begin(void) {
	int file = open(CONTROL, O_RDWR);
	control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	target = dlopen(TARGET, RTLD_NOW | RTLD_LOCAL);
	if (file < 0 || control == MAP_FAILED || !target) abort();
}

static int is(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

// A kernel that went wrong leaves a context that can do nothing but end.
static int lasts(CUresult code) { return code >= 700 && code < 800; }

static CUresult fault(const char *name) {
	if (is(name, "cuGetError") || is(name, "cuCtxSetCurrent")) return 0; // they work whatever else fails
	control->calls++;
	if (control->calls == control->fail_at) {
		strncpy(control->failed, name, sizeof control->failed - 1);
		if (lasts((CUresult)control->code)) lasting = (CUresult)control->code;
		return (CUresult)control->code;
	}
	return is(name, "cuInit") || is(name, "cuDevice") || is(name, "cuDriver") || is(name, "cuCtxCreate") ? 0 : lasting;
}

static int frees(const char *name) { return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unload") || strstr(name, "EndCapture"); }

static CUresult ended(const char *name, CUresult fault, CUresult result) {
	if (is(name, "cuCtxCreate") && !result) control->contexts++;
	if (is(name, "cuCtxDestroy") && !result) {
		control->contexts--;
		lasting = 0;
	}
	return fault ? fault : result;
}

#define HAND_ON(name, params, args) \
	CUresult name params { \
		static CUresult (*real) params; \
		if (!real) *(void **)&real = dlsym(target, #name); \
		CUresult failed = fault(#name); \
		if (failed && !frees(#name)) return failed; \
		return ended(#name, failed, real args); \
	}
DRIVER_CALLS(HAND_ON)
