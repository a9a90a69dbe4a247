#define _POSIX_C_SOURCE 199309L
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef __linux__
#include <dlfcn.h>

// look_up sets the functions of d. It returns NULL, or the name of the first one that the library lacks.
static const char *look_up(struct driver *d) {
#define LOOK_UP(name, params, args) \
	if (!(*(void **)&d->name = dlsym(d->library, #name))) return #name;
	DRIVER_CALLS(LOOK_UP)
#undef LOOK_UP
	*(void **)&d->cuLaunchKernelEx = dlsym(d->library, "cuLaunchKernelEx");
	return NULL;
}

struct driver *driver_open(const char *path, char *error, size_t bytes) {
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(error, bytes, "%s", dlerror());
		return NULL;
	}
	struct driver *d = calloc(1, sizeof *d);
	if (!d) {
		snprintf(error, bytes, "out of memory");
		dlclose(library);
		return NULL;
	}
	d->library = library;
	d->emulated = dlsym(library, "emu_threads") != NULL;
	const char *missing = look_up(d);
	if (missing) {
		snprintf(error, bytes, "%s has no %s: the driver is too old, version 470 or later is needed", path, missing);
		free(d);
		dlclose(library);
		return NULL;
	}
	return d;
}

#else

struct driver *driver_open(const char *path, char *error, size_t bytes) {
	(void)path;
	snprintf(error, bytes, "CUDA is used on Linux only");
	return NULL;
}

#endif

// set_current makes the context of d current on this thread, which may have called functions of another
// context since.
static CUresult set_current(const struct driver *d) { return d->context ? d->cuCtxSetCurrent(d->context) : 0; }

#define DEFINE(name, params, args) \
	CUresult call_##name(const struct driver *d, UNPACK params) { \
		CUresult failed = set_current(d); \
		return failed ? failed : d->name args; \
	}
DRIVER_CALLS(DEFINE)
#undef DEFINE

CUresult launch(const struct driver *d, CUfunction function, const unsigned grid[3], const unsigned block[3],
	unsigned shared, CUstream stream, const void *values, int n, int overlaps) {
	void *params[MAX_PARAMS];
	for (int i = 0; i < n; i++) params[i] = (char *)values + 8 * i;
	if (overlaps && d->cuLaunchKernelEx) {
		struct launch_attribute early = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value = {.allowed = 1}};
		struct launch_config config = {{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, stream, &early, 1};
		CUresult failed = set_current(d);
		return failed ? failed : d->cuLaunchKernelEx(&config, function, params, NULL);
	}
	return call_cuLaunchKernel(d, function, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, stream, params, NULL);
}

CUresult load_module(const struct driver *d, CUmodule *module, const void *image, char *log, size_t bytes) {
	enum { ERROR_LOG_BUFFER = 5, ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
	int options[] = {ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)bytes};
	return call_cuModuleLoadDataEx(d, module, image, 2, options, values);
}
