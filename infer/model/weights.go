package model

import (
	"context"
	"fmt"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// weights are the tensors on a device by slot. Tensors that the file lacks are none.
type weights [slots]device.Tensor

// loader uploads the tensors of a file.
type loader struct {
	ctx      context.Context
	f        *gguf.File
	tensors  []found
	progress func(Progress)

	fetched     map[source]bool
	reserved    []reserved
	done, total int64 // bytes
}

// reserved is a weight that its device fills when everything is allocated.
type reserved struct {
	dev    device.Reserver
	weight device.Tensor
	tensor found
}

// fill copies the weights that are reserved.
func (l *loader) fill() error {
	for _, r := range l.reserved {
		err := l.ctx.Err()
		if err == nil {
			err = l.fetch(r.tensor)
		}
		if err != nil {
			return err
		}
		if err := r.dev.Fill(r.weight); err != nil {
			return &DeviceError{r.dev.(device.Device), fmt.Errorf("tensor %s: %w", r.tensor.Name, err)}
		}
		l.f.Release(r.tensor.Data)
	}
	return nil
}

// load uploads the tensors of a stage.
func (l *loader) load(s *stage) error {
	s.layers = make([]weights, s.last-s.first)
	for _, t := range l.tensors {
		to := s.place(t.wanted)
		if to == nil {
			continue
		}
		w, ok := s.uploaded[t.source()]
		if !ok {
			var err error
			if s.streams && t.part == everyLayer {
				w, err = l.stream(s, t)
			} else {
				w, err = l.upload(s.dev, t)
			}
			if err != nil {
				return err
			}
			s.uploaded[t.source()] = w
		}
		*to = w
	}
	return nil
}

// place returns where s keeps tensor w, nil if w belongs to other stages or to none.
func (s *stage) place(w wanted) *device.Tensor {
	switch {
	case w.part == everyLayer && s.first <= w.layer && w.layer < s.last:
		if w.slot.feedsForward() && s.apart && w.layer == s.last-1 || !w.slot.feedsForward() && s.experts {
			return nil
		}
		return &s.layers[w.layer-s.first][w.slot]
	case w.part == firstStage && s.embeds, w.part == lastStage && s.outputs, w.part == everyStage:
		return &s.weights[w.slot]
	}
	return nil
}

func (l *loader) upload(dev device.Device, t found) (device.Tensor, error) {
	if err := l.ctx.Err(); err != nil {
		return device.Tensor{}, err
	}
	reserver, reserves := dev.(device.Reserver)
	if !reserves {
		if err := l.fetch(t); err != nil {
			return device.Tensor{}, err
		}
	}
	data, err := t.content()
	if err != nil {
		return device.Tensor{}, err
	}
	upload := dev.Upload
	if reserves {
		upload = reserver.Reserve
	}
	w, err := upload(t.Type, t.rows, t.cols, data)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	if reserves {
		l.reserved = append(l.reserved, reserved{reserver, w, t})
		return w, nil
	}
	l.f.Release(t.Data) // most devices have made a copy; the others read it when a step or a copy needs it
	return w, nil
}

// stream gives t to the device of s, which copies it for each step.
func (l *loader) stream(s *stage, t found) (device.Tensor, error) {
	data, err := t.content()
	if err != nil {
		return device.Tensor{}, err
	}
	w, err := s.dev.(device.Streamer).Stream(s.part, t.Type, t.rows, t.cols, data)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return w, nil
}

// sizeOf returns how many bytes the layers of s take on its device.
func (l *loader) sizeOf(s *stage) (total int64, err error) {
	s.layers = make([]weights, s.last-s.first)
	for _, t := range l.tensors {
		if s.place(t.wanted) == nil || t.part != everyLayer {
			continue
		}
		bytes, err := s.dev.WeightBytes(t.Type, t.rows, t.cols)
		if err != nil {
			return 0, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		total += bytes
	}
	return total, nil
}

// content returns the data of t.
func (t found) content() ([]byte, error) {
	if t.data == nil {
		return t.Data, nil
	}
	data, err := t.data()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return data, nil
}

// fetch reads t from the disk and reports progress.
func (l *loader) fetch(t found) error {
	if l.fetched[t.source()] { // the first and the last stage may use the same table
		return nil
	}
	l.fetched[t.source()] = true
	before := l.done
	return l.f.Fetch(t.Tensor, func(bytes int64) error {
		l.done = before + bytes
		l.progress(Progress{Done: l.done, Total: l.total})
		return l.ctx.Err()
	})
}
