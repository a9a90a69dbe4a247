package model

import (
	"fmt"

	"m40-llm/infer/device"
)

// This file divides a model into stages. The experts of a layer can be on another device than its attention:
// that is then a stage of its own, between two stages of the device with the attention.

// feedsForward reports whether a tensor belongs to the feed-forward layer of its layer.
func (s slot) feedsForward() bool { return ffnNorm <= s && s <= ffnExpertScales || s == layerScale }

// expertLayers reports which layers have experts that can be on another device. tensors are those that the file has.
func (c *Config) expertLayers(tensors []found) []bool {
	apart := c.partedLayers(tensors)
	for i, l := range c.Layers {
		apart[i] = apart[i] && l.Routing.Experts > 0
	}
	return apart
}

// partedLayers reports which layers have a feed-forward layer that can be on another device: they get no more of the rest of the model than the
// residual stream.
func (c *Config) partedLayers(tensors []found) []bool {
	apart := make([]bool, len(c.Layers))
	if c.Streams > 0 || c.PerLayerDim > 0 || c.FirstSharedKV() < len(c.Layers) {
		return apart
	}
	for _, t := range tensors {
		if t.slot == ffnNorm && t.part == everyLayer && !c.Layers[t.layer].RoutesFirst {
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
		s.dev, s.alloc, s.common, s.programs = dev, dev.Alloc, shared, map[steps]device.Executable{}
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

// addStreamed adds to stages on a device that is no Streamer those that compute their part of steps of prompts; see Options.Stream. A stage of experts
// is computed on the device of its layer. Of whole layers, those before others on a Streamer, the feed-forward layers are computed there.
func (m *Model) addStreamed(parted []bool) error {
	parts := map[device.Device]int{}
	streamed := func(on *stage, layer int) *stage {
		part := parts[on.dev]
		parts[on.dev]++
		return &stage{dev: on.dev, alloc: on.alloc, common: on.common, first: layer, last: layer + 1, experts: true, streams: true, part: part, programs: map[steps]device.Executable{}}
	}
	for i, s := range m.stages {
		if s.experts {
			s.prompts = []*stage{streamed(m.stages[i-1], s.first)}
		}
		if _, ok := s.dev.(device.Streamer); ok || s.experts || i+1 == len(m.stages) {
			continue
		}
		for layer := s.first; layer < s.last; layer++ {
			one := &stage{dev: s.dev, alloc: s.alloc, common: s.common, whole: s, first: layer, last: layer + 1, embeds: s.embeds && layer == s.first, apart: parted[layer], programs: map[steps]device.Executable{}}
			if s.prompts = append(s.prompts, one); one.apart {
				s.prompts = append(s.prompts, streamed(m.stages[i+1], layer))
			}
		}
	}
	for dev := range parts {
		if _, ok := dev.(device.Streamer); !ok {
			return fmt.Errorf("the device %s cannot copy weights for each step", dev.Info().Name)
		}
	}
	return nil
}

// forBatch returns the stages that compute the part of a step over b that s has.
func (s *stage) forBatch(b *device.Batch) []*stage {
	if b.Prompt && s.prompts != nil {
		return s.prompts
	}
	return []*stage{s}
}

// loadStreamed loads the stages of addStreamed whose weights stay in main memory.
func (m *Model) loadStreamed(l *loader) error {
	parts, regions, largest := map[device.Device]int{}, map[device.Device]int{}, map[device.Device]int64{}
	var list []*stage
	for _, s := range m.stages {
		for _, p := range s.prompts {
			if !p.streams {
				continue
			}
			list = append(list, p)
			bytes, err := l.sizeOf(p)
			if err != nil {
				return err
			}
			parts[p.dev]++
			largest[p.dev] = max(largest[p.dev], bytes)
			if regions[p.dev] = 1; s.experts { // else the other device computes while weights are copied
				regions[p.dev] = StreamRegions
			}
		}
	}
	for dev, bytes := range largest {
		if err := dev.(device.Streamer).ReserveStream(parts[dev], regions[dev], bytes); err != nil {
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

// StreamRegions is in how many regions of a device's memory layers of experts are copied; see device.Streamer.
const StreamRegions = 2

// compileParted compiles the stages of addStreamed that have single layers of a stage that is loaded.
func (m *Model) compileParted(read *int64) error {
	for _, s := range m.stages {
		for _, p := range s.prompts {
			if p.whole == nil {
				continue
			}
			at := p.first - s.first
			p.weights, p.layers, p.kv, p.places, p.state, p.stateAt = s.weights, s.layers[at:at+1], s.kv, s.places[at:at+1], s.state, s.stateAt[at:at+1]
			if err := m.compile(p, read); err != nil {
				return &DeviceError{p.dev, err}
			}
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
