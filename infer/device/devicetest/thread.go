package devicetest

import (
	"runtime"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Thread is a locked OS thread for devices that must be called from one thread. Tests, which run
// in several goroutines, call such a device through it.
type Thread struct {
	calls chan func()
	ended chan struct{}
}

// NewThread starts a thread. Close ends it.
func NewThread() *Thread {
	t := &Thread{calls: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine, and a driver's thread state with it
		for call := range t.calls {
			call()
		}
	}()
	return t
}

// Close ends the thread.
func (t *Thread) Close() {
	close(t.calls)
	<-t.ended
}

// Do runs f on the thread and waits until it returns.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// Open opens a device whose calls all happen on the thread.
func (t *Thread) Open(open func() (device.Device, error)) (device.Device, error) {
	var d device.Device
	var err error
	t.Do(func() { d, err = open() })
	if err != nil {
		return nil, err
	}
	return onThread{d, t}, nil
}

type onThread struct {
	device.Device
	thread *Thread
}

func (d onThread) Upload(t gguf.Type, rows, cols int, data []byte) (w device.Tensor, err error) {
	d.thread.Do(func() { w, err = d.Device.Upload(t, rows, cols, data) })
	return w, err
}

// Reserve implements device.Reserver for devices that do.
func (d onThread) Reserve(t gguf.Type, rows, cols int, data []byte) (w device.Tensor, err error) {
	r, ok := d.Device.(device.Reserver)
	if !ok {
		return d.Upload(t, rows, cols, data)
	}
	d.thread.Do(func() { w, err = r.Reserve(t, rows, cols, data) })
	return w, err
}

func (d onThread) Fill(w device.Tensor) (err error) {
	if r, ok := d.Device.(device.Reserver); ok {
		d.thread.Do(func() { err = r.Fill(w) })
	}
	return err
}

func (d onThread) Alloc(rows, cols int) (a device.Tensor, err error) {
	d.thread.Do(func() { a, err = d.Device.Alloc(rows, cols) })
	return a, err
}

func (d onThread) AllocKV(l device.KVLayout) (kv device.KV, err error) {
	d.thread.Do(func() { kv, err = d.Device.AllocKV(l) })
	return kv, err
}

func (d onThread) AllocState(l device.StateLayout) (s device.State, err error) {
	d.thread.Do(func() { s, err = d.Device.AllocState(l) })
	return s, err
}

func (d onThread) CopyState(s device.State, to, from int32) (err error) {
	d.thread.Do(func() { err = d.Device.CopyState(s, to, from) })
	return err
}

func (d onThread) ReadState(dst []byte, s device.State, slot int32) (err error) {
	d.thread.Do(func() { err = d.Device.ReadState(dst, s, slot) })
	return err
}

func (d onThread) WriteState(s device.State, slot int32, src []byte) (err error) {
	d.thread.Do(func() { err = d.Device.WriteState(s, slot, src) })
	return err
}

func (d onThread) Compile(p *device.Program) (device.Executable, error) {
	var x device.Executable
	var err error
	d.thread.Do(func() { x, err = d.Device.Compile(p) })
	if err != nil {
		return nil, err
	}
	return executableOnThread{x, d.thread}, nil
}

func (d onThread) Candidates(logits device.Tensor, row int) (c device.Candidates, err error) {
	d.thread.Do(func() { c, err = d.Device.Candidates(logits, row) })
	return c, err
}

func (d onThread) Read(dst []float32, t device.Tensor, row int) (err error) {
	d.thread.Do(func() { err = d.Device.Read(dst, t, row) })
	return err
}

func (d onThread) Write(t device.Tensor, row int, src []float32) (err error) {
	d.thread.Do(func() { err = d.Device.Write(t, row, src) })
	return err
}

func (d onThread) Close() (err error) {
	d.thread.Do(func() { err = d.Device.Close() })
	return err
}

type executableOnThread struct {
	device.Executable
	thread *Thread
}

func (x executableOnThread) Run(b *device.Batch) (err error) {
	x.thread.Do(func() { err = x.Executable.Run(b) })
	return err
}
