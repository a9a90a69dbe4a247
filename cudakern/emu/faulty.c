// A driver that forwards calls to the emulated one and makes one of them fail. It shares the mapped file
// CONTROL with the test, which sets the call to fail and reads what happened. A failing call is not
// forwarded unless it frees something: NVIDIA's driver frees even when it returns an error.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../driver.h"

// The layout that emutest.Faults reads and writes.
struct control {
	int64_t fail_at;  // number of the call to fail, from 1; 0: none
	int64_t code;     // CUresult that it returns
	int64_t calls;    // number of calls so far
	int64_t contexts; // number of open contexts
	char failed[64];  // name of the call that failed
};

static struct control *control;
static void *target;
static CUresult sticky; // error that every further call on the context returns

int emu_threads; // marks the library as an emulator, which needs no compiled kernels

__attribute__((constructor)) static void init(void) {
	int file = open(CONTROL, O_RDWR);
	control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	target = dlopen(TARGET, RTLD_NOW | RTLD_LOCAL);
	if (file < 0 || control == MAP_FAILED || !target) abort();
}

static int has_prefix(const char *name, const char *prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; }

// Errors of kernels are sticky: the context can only be destroyed.
static int is_sticky(CUresult code) { return code >= 700 && code < 800; }

static CUresult next_fault(const char *name) {
	if (has_prefix(name, "cuGetError") || has_prefix(name, "cuCtxSetCurrent")) return 0; // they never fail
	control->calls++;
	if (control->calls == control->fail_at) {
		strncpy(control->failed, name, sizeof control->failed - 1);
		if (is_sticky((CUresult)control->code)) sticky = (CUresult)control->code;
		return (CUresult)control->code;
	}
	return has_prefix(name, "cuInit") || has_prefix(name, "cuDevice") || has_prefix(name, "cuDriver") || has_prefix(name, "cuCtxCreate") ? 0 : sticky;
}

static int frees(const char *name) { return strstr(name, "Destroy") || strstr(name, "Free") || strstr(name, "Unload") || strstr(name, "EndCapture"); }

static CUresult after_call(const char *name, CUresult fault, CUresult result) {
	if (has_prefix(name, "cuCtxCreate") && !result) control->contexts++;
	if (has_prefix(name, "cuCtxDestroy") && !result) {
		control->contexts--;
		sticky = 0;
	}
	return fault ? fault : result;
}

#define FORWARD(name, params, args) \
	CUresult name params { \
		static CUresult (*real) params; \
		if (!real) *(void **)&real = dlsym(target, #name); \
		CUresult failed = next_fault(#name); \
		if (failed && !frees(#name)) return failed; \
		return after_call(#name, failed, real args); \
	}
DRIVER_CALLS(FORWARD)
