#include "driver.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __linux__
#include <dlfcn.h>

// find writes the addresses of all calls to d. It returns NULL, or the name of the first
// call that the library lacks.
static const char *find(struct driver *d) {
#define FIND(name, params, args) \
	if (!(*(void **)&d->name = dlsym(d->library, #name))) return #name;
	DRIVER_CALLS(FIND)
#undef FIND
	return NULL;
}

struct driver *driver_open(const char *path, char *why, size_t bytes) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(why, bytes, "%s", dlerror());
		return NULL;
	}
	struct driver *d = calloc(1, sizeof *d);
	if (!d) {
		snprintf(why, bytes, "out of memory");
		dlclose(library);
		return NULL;
	}
	d->library = library;
	d->emulated = dlsym(library, "emu_threads") != NULL;
	const char *missing = find(d);
	if (missing) {
		snprintf(why, bytes, "%s has no %s: the driver is too old, version 470 or later is needed", path, missing);
		free(d);
		dlclose(library);
		return NULL;
	}
	return d;
}

#else

struct driver *driver_open(const char *path, char *why, size_t bytes) {
	(void)path;
	snprintf(why, bytes, "CUDA is used on Linux only");
	return NULL;
}

#endif

// enter makes the context of d current on this thread, where calls for several contexts may
// take turns.
static CUresult enter(const struct driver *d) { return d->context ? d->cuCtxSetCurrent(d->context) : 0; }

#define DEFINE(name, params, args) \
	CUresult call_##name(const struct driver *d, UNPACK params) { \
		CUresult refused = enter(d); \
		return refused ? refused : d->name args; \
	}
DRIVER_CALLS(DEFINE)
#undef DEFINE

CUresult launch(const struct driver *d, CUfunction function, const unsigned grid[3], const unsigned block[3],
	unsigned shared, CUstream stream, const void *values, const int *offsets, int n) {
	void *params[MOST_PARAMS];
	for (int i = 0; i < n; i++) params[i] = (char *)values + offsets[i];
	return call_cuLaunchKernel(d, function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, params, NULL);
}

CUresult load_module(const struct driver *d, CUmodule *module, const void *image, char *log, size_t bytes) {
	enum { ERROR_LOG_BUFFER = 5, ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
	int options[] = {ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)bytes};
	return call_cuModuleLoadDataEx(d, module, image, 2, options, values);
}
