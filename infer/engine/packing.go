package engine

import (
	"slices"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// Copies of weights that are faster to read are made between steps, if memory has room for them alongside the pages of the
// file: else a model would wait for all of them before its first token. A step that needs a weight before reads it from
// the file, with the same bits. While nothing is to be computed, the loop does nothing but copy; after a step it copies
// for packShare times as long as that took.

const (
	packShare = 3

	// packSlice is for how long the loop copies before it looks for requests.
	packSlice = 20 * time.Millisecond

	// packLaterFrom is the size of the weights from which they are copied between steps: the copies of smaller ones are
	// made before anyone notices.
	packLaterFrom = 64 << 20
)

// packing is what has become of the copies.
type packing struct {
	total, missing int64         // bytes
	owed           time.Duration // for which copies are made before the next step
}

// packsLater reports whether the weights of m, placed as p says, are copied between steps.
func (l *loop) packsLater(m *openModel, p placed) bool {
	file := model.WeightBytes(m.file)
	if file < l.options.packLaterFrom || l.options.FreeMemory == nil {
		return false
	}
	needed := file + placement.Spare
	for _, stage := range slices.Concat(p.stages, []model.Stage{p.experts}) {
		if _, ok := stage.Device.(device.Packer); !ok {
			continue
		}
		size, err := l.sizeOn(m, stage.Device, slices.Index(p.devices, stage.Device))
		if err != nil {
			return false // loading the model reports it
		}
		return l.options.FreeMemory() >= needed+size.Weights
	}
	return false
}

// packs reports whether copies are made now.
func (l *loop) packs() bool {
	if l.loaded == nil || l.loaded.packing.missing == 0 || len(l.flights) > 0 {
		return false
	}
	idle := len(l.sched.running)+len(l.sched.waiting) == 0 && l.setup == nil && !l.kv.active()
	return idle || len(l.sched.running) > 0 && l.loaded.packing.owed > 0
}

// pack makes some copies.
func (l *loop) pack() error {
	p, begin := &l.loaded.packing, l.options.Now()
	err := readable(l.loaded.model.file, func() (err error) {
		p.missing, err = l.loaded.forward.Pack(packSlice)
		return err
	})
	if err != nil {
		return deviceError(err)
	}
	p.owed -= l.options.Now().Sub(begin)
	l.collected = time.Time{}
	if p.missing == 0 {
		l.packed()
	}
	l.status.update(func(s *infer.Status) { s.Device, s.Packing = l.loaded.info, p.progress() })
	return nil
}

// packed reports that all copies have been made, or that there is no memory for the rest.
func (l *loop) packed() {
	r := l.loaded
	log := l.options.Logger.With("model", r.model.info.Name)
	for _, dev := range r.devices {
		if notice := (device.Info{InFile: dev.Info().InFile}).Notices(); notice != "" {
			log.Warn("not all weights copied", "notice", notice)
			r.info.Notice = strings.Trim(r.info.Notice+"; "+notice, "; ")
			return
		}
	}
	log.Info("weights copied", "bytes", r.packing.total)
}

// progress returns the progress for the status; zero if there is nothing to do.
func (p *packing) progress() infer.Packing {
	if p.missing == 0 {
		return infer.Packing{}
	}
	return infer.Packing{Done: p.total - p.missing, Total: p.total}
}
