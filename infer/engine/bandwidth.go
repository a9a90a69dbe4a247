package engine

import (
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/model"
)

// idleTime is how long the engine must have been idle before it measures the bandwidth of the memory: that
// takes up to a second, in which a request would wait.
const idleTime = 5 * time.Second

// stepBytes returns how many bytes a step over plan reads from memory; 0 if that is not known, if it reads
// prompts too, or as long as weights are being copied.
func (r *loadedModel) stepBytes(plan []scheduled) int64 {
	if r.reads == nil || r.packing.missing > 0 {
		return 0
	}
	var positions []int
	rows := 0
	for _, part := range plan {
		if !part.seq.decodes() {
			return 0
		}
		rows += part.rows + len(part.draft)
		positions = append(positions, part.from+part.rows+len(part.draft))
	}
	bytes, known := r.reads.Step(rows, positions...)
	if !known {
		return 0
	}
	return bytes
}

// countReads counts the step for an answer that got a token in it and in the step before.
func (l *loop) countReads(a *answer, before, now time.Time) {
	if !a.last.Equal(now) {
		return
	}
	if l.stepBytes > 0 && !before.IsZero() && a.step == l.steps-1 {
		a.reads.Add(l.stepBytes, now.Sub(before))
		a.reads.Bandwidth = l.bandwidths[l.loaded.metered()]
	}
	a.step = l.steps
}

// meter returns what measures the bandwidth; nil: it is measured, or cannot be.
func (l *loop) meter() device.BandwidthMeter {
	if l.loaded == nil {
		return nil
	}
	if _, measured := l.bandwidths[l.loaded.metered()]; measured {
		return nil
	}
	return l.loaded.meter
}

// metered names what the bandwidth is measured of: a device, which may read its copies of a model's weights.
func (r *loadedModel) metered() string { return r.info.Name + "\x00" + r.model.key() }

func (l *loop) measure() {
	rate, err := l.meter().ReadBandwidth()
	if err != nil {
		l.options.Logger.Warn("the bandwidth of the memory cannot be measured", "error", err)
	}
	l.bandwidths[l.loaded.metered()] = rate
	l.status.update(func(s *infer.Status) { s.Reads.Bandwidth = rate })
}

// setReads records what steps read, and what measures the bandwidth of the memory: of a model on one device
// that does not read weights from their file.
func (r *loadedModel) setReads(p placed, cache device.CacheType) {
	if len(p.stages) != 1 || p.experts.Layers > 0 || p.info.InFile != "" {
		return
	}
	reads, err := model.ReadsOf(r.model.file, r.model.config, cache)
	if err != nil {
		return // loading the model has reported it
	}
	r.reads = &reads
	r.meter, _ = p.stages[0].Device.(device.BandwidthMeter)
}
