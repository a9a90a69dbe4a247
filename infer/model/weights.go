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
			if w, err = l.upload(s.dev, t); err != nil {
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
	data := t.Data
	if t.data != nil {
		var err error
		if data, err = t.data(); err != nil {
			return device.Tensor{}, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
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
