// The functions of the CUDA driver API that this package calls, declared here so that building needs no
// CUDA toolkit. Names, types and values are those of NVIDIA's ABI; its header maps a name without _v2 to
// the one with it.

#ifndef CUDAKERN_DRIVER_H
#define CUDAKERN_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

// DRIVER_CALLS(X) expands to X(name, (parameters), (arguments)) for every function.
#define DRIVER_CALLS(X) \
	X(cuInit, (unsigned flags), (flags)) \
	X(cuDriverGetVersion, (int *version), (version)) \
	X(cuGetErrorName, (CUresult code, const char **name), (code, name)) \
	X(cuGetErrorString, (CUresult code, const char **text), (code, text)) \
	X(cuDeviceGetCount, (int *count), (count)) \
	X(cuDeviceGet, (CUdevice *device, int ordinal), (device, ordinal)) \
	X(cuDeviceGetName, (char *name, int bytes, CUdevice device), (name, bytes, device)) \
	X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device), (value, attribute, device)) \
	X(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device), (bytes, device)) \
	X(cuCtxCreate_v2, (CUcontext *context, unsigned flags, CUdevice device), (context, flags, device)) \
	X(cuCtxDestroy_v2, (CUcontext context), (context)) \
	X(cuCtxSetCurrent, (CUcontext context), (context)) \
	X(cuMemGetInfo_v2, (size_t *free, size_t *total), (free, total)) \
	X(cuMemAlloc_v2, (CUdeviceptr *p, size_t bytes), (p, bytes)) \
	X(cuMemFree_v2, (CUdeviceptr p), (p)) \
	X(cuMemHostAlloc, (void **p, size_t bytes, unsigned flags), (p, bytes, flags)) \
	X(cuMemHostGetDevicePointer_v2, (CUdeviceptr *p, void *host, unsigned flags), (p, host, flags)) \
	X(cuMemFreeHost, (void *p), (p)) \
	X(cuMemcpyHtoDAsync_v2, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	X(cuMemcpyDtoHAsync_v2, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	X(cuMemcpyDtoDAsync_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	X(cuMemcpyPeerAsync, (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes, CUstream stream), \
		(dst, to, src, from, bytes, stream)) \
	X(cuMemsetD8Async, (CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream), (dst, value, bytes, stream)) \
	X(cuStreamCreateWithPriority, (CUstream *stream, unsigned flags, int priority), (stream, flags, priority)) \
	X(cuStreamDestroy_v2, (CUstream stream), (stream)) \
	X(cuStreamSynchronize, (CUstream stream), (stream)) \
	X(cuStreamQuery, (CUstream stream), (stream)) \
	X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags)) \
	X(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode)) \
	X(cuStreamEndCapture, (CUstream stream, CUgraph *graph), (stream, graph)) \
	X(cuEventCreate, (CUevent *event, unsigned flags), (event, flags)) \
	X(cuEventDestroy_v2, (CUevent event), (event)) \
	X(cuEventRecord, (CUevent event, CUstream stream), (event, stream)) \
	X(cuEventSynchronize, (CUevent event), (event)) \
	X(cuEventElapsedTime, (float *milliseconds, CUevent from, CUevent to), (milliseconds, from, to)) \
	X(cuModuleLoadDataEx, (CUmodule *module, const void *image, unsigned n, int *options, void **values), (module, image, n, options, values)) \
	X(cuModuleUnload, (CUmodule module), (module)) \
	X(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name), (function, module, name)) \
	X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function), (value, attribute, function)) \
	X(cuFuncSetAttribute, (CUfunction function, int attribute, int value), (function, attribute, value)) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared), (blocks, function, threads, shared)) \
	X(cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
		unsigned shared, CUstream stream, void **params, void **extra), \
		(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra)) \
	X(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags)) \
	X(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream)) \
	X(cuGraphDestroy, (CUgraph graph), (graph)) \
	X(cuGraphExecDestroy, (CUgraphExec exec), (exec))

#define UNPACK(...) __VA_ARGS__

// A launch with attributes, of which this package has one: whether it may begin before the launches before it have ended.
struct launch_attribute {
	int id;
	char padding[4];
	union {
		int allowed;
		char bytes[64];
	} value;
};

struct launch_config {
	unsigned grid[3], block[3], shared;
	CUstream stream;
	struct launch_attribute *attributes;
	unsigned count;
};

enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

// struct driver holds the functions of a loaded library and the context to call them in.
struct driver {
	void *library;
	int emulated;      // the library is the emulator of emu/
	CUcontext context; // made current before each call; NULL: the current one is not changed
#define FIELD(name, params, args) CUresult (*name) params;
	DRIVER_CALLS(FIELD)
#undef FIELD
	CUresult (*cuLaunchKernelEx)(const struct launch_config *config, CUfunction function, void **params, void **extra); // NULL: older than 11.8
};

// driver_open loads the library at path. If that fails or a function is missing, it returns NULL and
// writes the reason to error, which has room for bytes bytes.
struct driver *driver_open(const char *path, char *error, size_t bytes);

// call_NAME makes the context of d current on this thread and calls NAME.
#define DECLARE(name, params, args) CUresult call_##name(const struct driver *d, UNPACK params);
DRIVER_CALLS(DECLARE)
#undef DECLARE

enum { MAX_PARAMS = 40 };

// launch calls cuLaunchKernel with n parameters, at most MAX_PARAMS; parameter i is at values + 8i. With overlaps, the kernel
// waits itself for the launches before it, and may begin before they have ended, if the driver can do so.
CUresult launch(const struct driver *d, CUfunction function, const unsigned grid[3], const unsigned block[3],
	unsigned shared, CUstream stream, const void *values, int n, int overlaps);

// load_module calls cuModuleLoadDataEx and writes the error messages of the driver's compiler to log, which
// has room for bytes bytes.
CUresult load_module(const struct driver *d, CUmodule *module, const void *image, char *log, size_t bytes);

#endif
