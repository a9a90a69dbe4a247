package model

import (
	"context"
	"fmt"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// weights are tensors on a device by their place in the forward pass. Those that the file
// has not got are none.
type weights [slots]device.Tensor

// loader uploads the tensors of a file one after another.
type loader struct {
	ctx      context.Context
	f        *gguf.File
	tensors  []found
	progress func(Progress)

	fetched     map[source]bool
	done, total int64
}

// load uploads what a stage holds.
func (l *loader) load(s *stage) error {
	s.layers = make([]weights, s.last-s.first)
	uploaded := map[source]device.Tensor{}
	for _, t := range l.tensors {
		to := s.place(t.wanted)
		if to == nil {
			continue
		}
		w, ok := uploaded[t.source()]
		if !ok {
			var err error
			if w, err = l.upload(s.dev, t); err != nil {
				return err
			}
			uploaded[t.source()] = w
		}
		*to = w
	}
	return nil
}

// place returns where s keeps a tensor, nil if it does not hold it.
func (s *stage) place(w wanted) *device.Tensor {
	switch {
	case w.part == everyLayer && s.first <= w.layer && w.layer < s.last:
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
	if err := l.fetch(t); err != nil {
		return device.Tensor{}, err
	}
	data := t.Data
	if t.data != nil {
		var err error
		if data, err = t.data(); err != nil {
			return device.Tensor{}, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	w, err := dev.Upload(t.Type, t.rows, t.cols, data)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	l.f.Release(t.Tensor) // most devices have a copy now
	return w, nil
}

// fetch reads t from the disk and reports the progress of that.
func (l *loader) fetch(t found) error {
	if l.fetched[t.source()] { // two stages may hold the same table
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
