package model

import (
	"fmt"

	"m40-llm/infer/device"
)

// This file divides a model into stages. The experts of a layer can be on another device than its attention:
// that is then a stage of its own, between two stages of the device with the attention.

// feedsForward reports whether a tensor belongs to the feed-forward layer of its layer.
func (s slot) feedsForward() bool { return ffnNorm <= s && s <= ffnExpertScales || s == layerScale }

// expertLayers reports which layers have experts that can be on another device: they get no more of the
// rest of the model than the residual stream. tensors are those that the file has.
func (c *Config) expertLayers(tensors []found) []bool {
	apart := make([]bool, len(c.Layers))
	if c.Streams > 0 || c.PerLayerDim > 0 || c.FirstSharedKV() < len(c.Layers) {
		return apart
	}
	for _, t := range tensors {
		if l := c.Layers[t.layer]; t.slot == ffnNorm && l.Routing.Experts > 0 && !l.RoutesFirst {
			apart[t.layer] = true
		}
	}
	return apart
}

// cut returns the stages of a model. The experts of the first experts.Layers layers are on experts.Device,
// where apart says that they can be.
func cut(c Config, stages []Stage, experts Stage, apart []bool) (list []*stage, err error) {
	elsewhere, layer := newCommon(), 0
	add := func(dev device.Device, shared *common, s stage) {
		s.dev, s.alloc, s.common, s.programs = dev, dev.Alloc, shared, map[int]device.Executable{}
		s.embeds = len(list) == 0
		list = append(list, &s)
	}
	for i, part := range stages {
		shared, first := newCommon(), layer
		if first > c.FirstSharedKV() {
			return nil, fmt.Errorf("a stage cannot begin at layer %d: layers from %d on read each other's keys and values", first, c.FirstSharedKV())
		}
		layer += part.Layers
		for next := first; next < min(layer, experts.Layers, len(c.Layers)); next++ {
			if apart[next] {
				add(part.Device, shared, stage{first: first, last: next + 1, apart: true})
				add(experts.Device, elsewhere, stage{first: next, last: next + 1, experts: true})
				first = next + 1
			}
		}
		if first < layer || i == len(stages)-1 {
			add(part.Device, shared, stage{first: first, last: layer})
		}
	}
	if layer != len(c.Layers) {
		return nil, fmt.Errorf("the stages have %d layers together, the model has %d", layer, len(c.Layers))
	}
	list[len(list)-1].outputs = true
	return list, nil
}

// addStreamed adds to each stage with experts one that computes them on the device of their layer; see Options.Stream.
func (m *Model) addStreamed() error {
	parts := map[device.Device]int{}
	for i, s := range m.stages {
		if !s.experts {
			continue
		}
		of := m.stages[i-1]
		if _, ok := of.dev.(device.Streamer); !ok {
			return fmt.Errorf("the device %s cannot copy weights for each step", of.dev.Info().Name)
		}
		s.prompts = &stage{dev: of.dev, alloc: of.alloc, common: of.common, first: s.first, last: s.last, experts: true, streams: true, part: parts[of.dev], programs: map[int]device.Executable{}}
		parts[of.dev]++
	}
	return nil
}

// loadStreamed loads the stages of addStreamed, whose weights stay in main memory.
func (m *Model) loadStreamed(l *loader) error {
	parts, largest := map[device.Device]int{}, map[device.Device]int64{}
	var list []*stage
	for _, s := range m.stages {
		if s.prompts == nil {
			continue
		}
		list = append(list, s.prompts)
		bytes, err := l.sizeOf(s.prompts)
		if err != nil {
			return err
		}
		dev := s.prompts.dev
		parts[dev]++
		largest[dev] = max(largest[dev], bytes)
	}
	for dev, bytes := range largest {
		if err := dev.(device.Streamer).ReserveStream(parts[dev], bytes); err != nil {
			return &DeviceError{dev, err}
		}
	}
	for _, s := range list {
		err := l.load(s)
		if err == nil {
			err = m.compile(s, &l.done)
		}
		if err != nil {
			return &DeviceError{s.dev, err}
		}
	}
	return nil
}

// firstMixer returns the first layer whose attention or recurrence is in the stage.
func (s *stage) firstMixer() int {
	if s.experts {
		return s.last
	}
	return s.first
}
