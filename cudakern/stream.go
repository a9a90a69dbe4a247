package cudakern

// #include "driver.h"
import "C"

import (
	"time"
	"unsafe"
)

// Priority is the scheduling priority of a stream.
type Priority int

const (
	PriorityLow  Priority = iota // loading, measuring
	PriorityHigh                 // steps
)

// Stream is a queue of work that the device runs in order.
type Stream struct {
	driver *Driver
	stream C.CUstream
}

// NewStream creates a stream that does not synchronise with the default stream.
func (c *Context) NewStream(priority Priority) (*Stream, error) {
	const nonBlocking = 1
	s := &Stream{driver: c.driver}
	// Lower numbers have higher priority. Every device supports 0; unsupported numbers are clamped.
	if err := c.driver.check("cuStreamCreateWithPriority", C.call_cuStreamCreateWithPriority(c.driver.calls, &s.stream, nonBlocking, -C.int(priority))); err != nil {
		return nil, err
	}
	return s, nil
}

// Close frees the stream after its work has ended. It does not wait.
func (s *Stream) Close() error {
	return s.driver.check("cuStreamDestroy_v2", C.call_cuStreamDestroy_v2(s.driver.calls, s.stream))
}

// Sync waits for all work of the stream and returns the first error of that work.
func (s *Stream) Sync() error {
	return s.driver.check("cuStreamSynchronize", C.call_cuStreamSynchronize(s.driver.calls, s.stream))
}

// Done reports whether all work of the stream has ended, and returns the first error of that work. It does not wait.
func (s *Stream) Done() (bool, error) {
	const notReady = 600
	code := C.call_cuStreamQuery(s.driver.calls, s.stream)
	if code == notReady {
		return false, nil
	}
	err := s.driver.check("cuStreamQuery", code)
	return err == nil, err
}

// Upload copies src to the device. Memory of a Host must not change until the stream has completed
// the copy; any other src has been read when Upload returns.
func (s *Stream) Upload(dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	start := unsafe.Pointer(unsafe.SliceData(src))
	return s.driver.check("cuMemcpyHtoDAsync_v2", C.call_cuMemcpyHtoDAsync_v2(s.driver.calls, C.CUdeviceptr(dst), start, C.size_t(len(src)), s.stream))
}

// Download copies from the device to dst. Memory of a Host is valid when the stream has completed the
// copy; any other dst when Download returns.
func (s *Stream) Download(dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	start := unsafe.Pointer(unsafe.SliceData(dst))
	return s.driver.check("cuMemcpyDtoHAsync_v2", C.call_cuMemcpyDtoHAsync_v2(s.driver.calls, start, C.CUdeviceptr(src), C.size_t(len(dst)), s.stream))
}

// Copy copies n bytes of device memory, which must not overlap.
func (s *Stream) Copy(dst, src Ptr, n int64) error {
	return s.driver.check("cuMemcpyDtoDAsync_v2", C.call_cuMemcpyDtoDAsync_v2(s.driver.calls, C.CUdeviceptr(dst), C.CUdeviceptr(src), C.size_t(n), s.stream))
}

// CopyFrom copies n bytes at src in another context to dst, directly from device to device if the
// hardware can. It does not wait for streams of the other context.
func (s *Stream) CopyFrom(dst Ptr, other *Context, src Ptr, n int64) error {
	return s.driver.check("cuMemcpyPeerAsync",
		C.call_cuMemcpyPeerAsync(s.driver.calls, C.CUdeviceptr(dst), s.driver.calls.context, C.CUdeviceptr(src), other.context, C.size_t(n), s.stream))
}

// Fill sets n bytes of device memory.
func (s *Stream) Fill(dst Ptr, value byte, n int64) error {
	return s.driver.check("cuMemsetD8Async", C.call_cuMemsetD8Async(s.driver.calls, C.CUdeviceptr(dst), C.uchar(value), C.size_t(n), s.stream))
}

// Event marks a point in a stream that others can wait for, and records the time when the stream
// reaches it.
type Event struct {
	driver *Driver
	event  C.CUevent
}

// NewEvent creates an event that is not recorded.
func (c *Context) NewEvent() (*Event, error) { return c.newEvent(0) }

// NewBarrier creates an event without a time, on which a thread that waits sleeps instead of spinning.
func (c *Context) NewBarrier() (*Event, error) {
	const blockingSync, disableTiming = 1, 2
	return c.newEvent(blockingSync | disableTiming)
}

func (c *Context) newEvent(flags C.uint) (*Event, error) {
	e := &Event{driver: c.driver}
	if err := c.driver.check("cuEventCreate", C.call_cuEventCreate(c.driver.calls, &e.event, flags)); err != nil {
		return nil, err
	}
	return e, nil
}

// Close frees the event.
func (e *Event) Close() error {
	return e.driver.check("cuEventDestroy_v2", C.call_cuEventDestroy_v2(e.driver.calls, e.event))
}

// Sync waits until the stream has reached the event.
func (e *Event) Sync() error {
	return e.driver.check("cuEventSynchronize", C.call_cuEventSynchronize(e.driver.calls, e.event))
}

// Since returns the time from an earlier event to this one, measured by the device. The streams must
// have reached both.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	var ms C.float
	err := e.driver.check("cuEventElapsedTime", C.call_cuEventElapsedTime(e.driver.calls, &ms, earlier.event, e.event))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

// Record enqueues e in the stream.
func (s *Stream) Record(e *Event) error {
	return s.driver.check("cuEventRecord", C.call_cuEventRecord(s.driver.calls, e.event, s.stream))
}

// Wait makes later work of the stream wait for e.
func (s *Stream) Wait(e *Event) error {
	return s.driver.check("cuStreamWaitEvent", C.call_cuStreamWaitEvent(s.driver.calls, s.stream, e.event, 0))
}
