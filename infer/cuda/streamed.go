package cuda

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Streamed weights stay in main memory. A goroutine copies them part after part, around and around, into one or two regions of GPU memory: a part is
// copied as soon as no step reads the one that was in its region, so that the bus and the processors work at the same time, and the first parts are
// there when the next step begins. The goroutine has a stream of its own, and starts with the first step that needs it, when all graphs are captured.

// streamed is the state of the streamed weights.
type streamed struct {
	regions []streamRegion
	parts   [][]tensor       // by part; only those that are copied
	loader  *cudakern.Loader // of the device, which loads nothing else once the goroutine has started
	next    int              // part that is awaited next

	ready chan error    // a part was copied, in the order of parts
	stop  chan struct{} // closed: the goroutine ends; nil: it has not started
	done  chan struct{} // closed: it has ended
}

// streamRegion is the memory of the parts whose numbers leave the same rest.
type streamRegion struct {
	region
	copied *cudakern.Event // after the copies of a part
	free   chan struct{}   // has an element if no step reads the region, and nothing is copied there
}

// ReserveStream implements device.Streamer.
func (d *cuda) ReserveStream(parts, regions int, bytes int64) (err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return err
	}
	if d.streamed != nil {
		return errors.New("cuda: memory for streamed weights was reserved before")
	}
	s := &streamed{parts: make([][]tensor, parts), regions: make([]streamRegion, min(parts, regions))}
	for i := range s.regions {
		r := &s.regions[i]
		if r.at, err = d.memory.alloc(bytes); err != nil {
			return fmt.Errorf("cuda: a part of the streamed weights: %w", err)
		}
		if r.copied, err = d.context.NewBarrier(); err != nil {
			return fmt.Errorf("cuda: %w", err)
		}
		d.close = append(d.close, r.copied.Close)
		r.bytes, r.free = bytes, make(chan struct{}, 1)
		r.free <- struct{}{}
	}
	d.streamed = s
	return nil
}

// Stream implements device.Streamer.
func (d *cuda) Stream(part int, t gguf.Type, rows, cols int, data []byte) (_ device.Tensor, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return device.Tensor{}, err
	}
	s := d.streamed
	switch {
	case s == nil || part < 0 || part >= len(s.parts):
		return device.Tensor{}, fmt.Errorf("cuda: no memory was reserved for part %d of the streamed weights", part)
	case s.stop != nil:
		return device.Tensor{}, errors.New("cuda: a step has used streamed weights, so that there can be no more of them")
	case Converts(t) != t:
		return device.Tensor{}, fmt.Errorf("cuda: weights of type %s are converted to %s, which takes too long for each step", t, Converts(t))
	}
	w, err := d.described(t, rows, cols, data)
	if err != nil {
		return device.Tensor{}, err
	}
	if w.isVector() {
		_, err = w.asVector(d)
	} else if err = d.prepareLoader(t); err == nil {
		w.matrix, err = s.place(part, w)
	}
	if err != nil {
		return device.Tensor{}, fmt.Errorf("cuda: weight %s (%d, %d): %w", t, rows, cols, err)
	}
	return d.add(w), nil
}

// place returns where w is in the region of its part.
func (s *streamed) place(part int, w tensor) (at cudakern.Ptr, err error) {
	r := s.region(part)
	at = r.at
	for _, other := range append(slices.Clip(s.parts[part]), w) {
		bytes, _, err := weightsOf(other.Tensor).Bytes()
		if err != nil {
			return 0, err
		}
		w.matrix, at = at, at+cudakern.Ptr((bytes+alignment-1)/alignment*alignment)
	}
	if int64(at-r.at) > r.bytes {
		return 0, fmt.Errorf("the weights of part %d take more than the %d bytes that are reserved", part, r.bytes)
	}
	s.parts[part] = append(s.parts[part], w)
	return w.matrix, nil
}

// AwaitPart implements device.Streamer.
func (d *cuda) AwaitPart(part int) (err error) {
	defer mark(&err)
	if err := d.begin(); err != nil { // a resident kernel would not let the copies through
		return err
	}
	s := d.streamed
	if s == nil || part != s.next {
		return fmt.Errorf("cuda: part %d of the streamed weights is not the next", part)
	}
	if s.stop == nil {
		s.loader, s.ready, s.stop, s.done = d.loader, make(chan error), make(chan struct{}), make(chan struct{})
		d.close = append(d.close, s.end)
		go s.run()
	}
	if err = <-s.ready; err == nil {
		s.next = (part + 1) % len(s.parts)
		err = d.stream.Wait(s.region(part).copied)
	}
	if err != nil {
		return fmt.Errorf("cuda: streamed weights: %w", err)
	}
	return nil
}

// ReleasePart implements device.Streamer. The steps that read the part have ended, because Run waits for them.
func (d *cuda) ReleasePart(part int) error {
	if d.streamed == nil || part < 0 || part >= len(d.streamed.parts) {
		return fmt.Errorf("cuda: no part %d of the streamed weights is used", part)
	}
	d.streamed.region(part).free <- struct{}{}
	return nil
}

// run copies the parts until it is stopped, or fails.
func (s *streamed) run() {
	defer close(s.done)
	for part := 0; ; part = (part + 1) % len(s.parts) {
		r := s.region(part)
		select {
		case <-r.free:
		case <-s.stop:
			return
		}
		err := s.copy(part)
		if err == nil {
			err = s.loader.Record(r.copied)
		}
		for { // after an error every later step fails too: the device has to be opened again
			select {
			case s.ready <- err:
			case <-s.stop:
				return
			}
			if err == nil {
				break
			}
		}
	}
}

func (s *streamed) region(part int) *streamRegion { return &s.regions[part%len(s.regions)] }

// copy enqueues the copies of a part. A file that can no longer be read is an error.
func (s *streamed) copy(part int) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(interface{ Addr() uintptr }); !ok {
				panic(p)
			}
			err = device.ErrUnreadable
		}
	}()
	for i := range s.parts[part] {
		w := &s.parts[part][i]
		if err := s.loader.Load(w.matrix, weightsOf(w.Tensor), w.raw); err != nil {
			return err
		}
	}
	return nil
}

// end stops the goroutine and waits for it.
func (s *streamed) end() error {
	close(s.stop)
	<-s.done
	return nil
}
