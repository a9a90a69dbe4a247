package cudakern

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
)

// Loader copies weights of model files to the device and repacks them there in the layout of the
// kernels. While the device works on one part, the next is copied to page-locked memory.
type Loader struct {
	context *Context
	stream  *Stream
	parts   [2]loaderPart
	next    int // of parts
}

// loaderPart is the staging memory of a part of a weight.
type loaderPart struct {
	host   *Host
	device Ptr
	free   *Event // recorded when the part has been repacked: the memory can be reused
}

// LoaderBytes is the size of a part in bytes.
const LoaderBytes = 16 << 20

// NewLoader creates a loader. It allocates 2 · LoaderBytes on the host, and as much on the device.
func NewLoader(c *Context) (_ *Loader, err error) {
	l := &Loader{context: c}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if l.stream, err = c.NewStream(PriorityLow); err != nil {
		return nil, err
	}
	for i := range l.parts {
		p := &l.parts[i]
		if p.host, err = c.AllocHost(LoaderBytes); err != nil {
			return nil, err
		}
		if p.device, err = c.Alloc(LoaderBytes); err != nil {
			return nil, err
		}
		if p.free, err = c.NewEvent(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Prepare loads what Load needs for weights of a type, so that it allocates nothing.
func (l *Loader) Prepare(weights string) error {
	_, err := l.context.kernel("repack_"+weights, "repack_"+weights)
	return err
}

// Load writes weight w to dst in the layout of the kernels. data has the layout of the model file and
// is not read after Load returns, but the device may still work; see Sync.
func (l *Loader) Load(dst Ptr, w Weights, data []byte) error {
	_, want, err := w.Bytes()
	if err != nil {
		return err
	}
	if int64(len(data)) != want {
		return fmt.Errorf("%s weights of %d outputs and %d inputs have %d bytes, want %d", w.Type, w.Outputs, w.Inputs, len(data), want)
	}
	row := want / int64(w.Outputs)
	return l.LoadFrom(dst, w, func(to []byte, first int) error {
		copyParallel(to, data[int64(first)*row:])
		return nil
	})
}

// copyParallel copies len(to) bytes of from with several goroutines: one does not read memory as fast as a GPU takes it. A fault in one of
// them, because from is a mapped file that can no longer be read, is a panic of the caller.
func copyParallel(to, from []byte) {
	const least = 2 << 20 // for which a goroutine is worth it, and copies that do not go through the caches
	n := max(1, min(runtime.GOMAXPROCS(0), len(to)/least))
	faults := make([]any, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() { faults[i] = recover() }()
			begin, end := len(to)*i/n, len(to)*(i+1)/n
			copy(to[begin:end], from[begin:])
		})
	}
	all.Wait()
	for _, fault := range faults {
		if fault != nil {
			panic(fault)
		}
	}
}

// LoadFrom is like Load for weights that read provides: it fills to with the weights of outputs first,
// first + 1 …, in the layout of the model file.
func (l *Loader) LoadFrom(dst Ptr, w Weights, read func(to []byte, first int) error) error {
	f, err := w.format()
	if err != nil {
		return err
	}
	size, _, _ := w.Bytes()
	kernel, err := l.context.kernel("repack_"+w.Type, "repack_"+w.Type)
	if err != nil {
		return err
	}
	row := int(f.rowBytes(w.Inputs))
	step := LoaderBytes / (bandOutputs * row) * bandOutputs // outputs in a part
	if step == 0 {
		return fmt.Errorf("%s weights of %d inputs are too wide to load: %d outputs must fit in %d bytes", w.Type, w.Inputs, bandOutputs, LoaderBytes)
	}
	if err := l.stream.Fill(dst, 0, size); err != nil {
		return err
	}
	for first := 0; first < w.Outputs; first += step {
		outputs := min(step, w.Outputs-first)
		at := dst + Ptr(int64(first/bandOutputs)*f.bandBytes(w.Inputs))
		fill := func(to []byte) error { return read(to, first) }
		if err := l.part(kernel, at, outputs, w.Inputs, outputs*row, fill); err != nil {
			return err
		}
	}
	return nil
}

// part copies and repacks whole bands of a weight, size bytes that read provides.
func (l *Loader) part(kernel *Function, dst Ptr, outputs, inputs, size int, read func(to []byte) error) error {
	p := &l.parts[l.next]
	l.next = (l.next + 1) % len(l.parts)
	if err := p.free.Sync(); err != nil {
		return err
	}
	if err := read(p.host.Bytes()[:size]); err != nil {
		return err
	}
	if err := l.stream.Upload(p.device, p.host.Bytes()[:size]); err != nil {
		return err
	}
	err := kernel.Launch(l.stream, Dim3{X: blocksFor(outputs*blocksFor(inputs, blockInputs), threads)}, Dim3{X: threads}, 0,
		dst, p.device, int32(outputs), int32(inputs))
	if err != nil {
		return err
	}
	return l.stream.Record(p.free)
}

// Sync waits until everything is loaded.
func (l *Loader) Sync() error { return l.stream.Sync() }

// Record enqueues e after what was loaded.
func (l *Loader) Record(e *Event) error { return l.stream.Record(e) }

// Close frees the loader's own memory. Loaded weights stay valid.
func (l *Loader) Close() error {
	var errs []error
	if l.stream != nil {
		errs = append(errs, l.stream.Sync(), l.stream.Close())
	}
	for _, p := range l.parts {
		if p.free != nil {
			errs = append(errs, p.free.Close())
		}
		errs = append(errs, l.context.Free(p.device))
		if p.host != nil {
			errs = append(errs, p.host.Close())
		}
	}
	return errors.Join(errs...)
}
