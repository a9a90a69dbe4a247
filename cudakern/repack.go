package cudakern

import (
	"errors"
	"fmt"
)

// Loader brings weights of model files to the device and lays them out there for the
// products. While one part is on its way, the next is copied to page-locked memory.
type Loader struct {
	context *Context
	stream  *Stream
	parts   [2]loaderPart
	next    int // of parts
}

// loaderPart is a part of a weight on its way.
type loaderPart struct {
	host   *Host
	device Ptr
	free   *Event // passed once the last part has left both
}

// LoaderBytes is the size of a part.
const LoaderBytes = 16 << 20

// NewLoader makes a loader with memory of its own, on the host and the device: twice
// LoaderBytes each.
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

// Load lays w out at dst, of data as it lies in a model file. data has been read on
// return, but the device may still be at work: see Sync.
func (l *Loader) Load(dst Ptr, w Weights, data []byte) error {
	f, err := w.format()
	if err != nil {
		return err
	}
	size, want, _ := w.Bytes()
	if int64(len(data)) != want {
		return fmt.Errorf("%s weights of %d outputs and %d inputs have %d bytes, want %d", w.Type, w.Outputs, w.Inputs, len(data), want)
	}
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
		if err := l.part(kernel, at, outputs, w.Inputs, data[first*row:(first+outputs)*row]); err != nil {
			return err
		}
	}
	return nil
}

// part sends whole bands of a weight.
func (l *Loader) part(kernel *Function, dst Ptr, outputs, inputs int, data []byte) error {
	p := &l.parts[l.next]
	l.next = (l.next + 1) % len(l.parts)
	if err := p.free.Sync(); err != nil {
		return err
	}
	copy(p.host.Bytes(), data)
	if err := l.stream.Upload(p.device, p.host.Bytes()[:len(data)]); err != nil {
		return err
	}
	err := kernel.Launch(l.stream, Dim3{X: blocksFor(outputs*blocksFor(inputs, blockInputs), threads)}, Dim3{X: threads}, 0,
		dst, p.device, int32(outputs), int32(inputs))
	if err != nil {
		return err
	}
	return l.stream.Record(p.free)
}

// Sync waits until everything loaded is in its place.
func (l *Loader) Sync() error { return l.stream.Sync() }

// Close frees the loader's memory. What it loaded stays.
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
