package record

import "time"

// Reads is what steps read from the memory of a device while an answer was decoded: weights once a step, and
// the KV cache of each answer in it. Steps that also read prompts are not counted, nor those for which the
// bytes are not known.
type Reads struct {
	Bytes     int64   `json:"bytes"`
	Micros    int64   `json:"us"`                  // duration, from the token before to that of the step
	Bandwidth float64 `json:"bandwidth,omitempty"` // read bandwidth of the memory, bytes per second; 0: not measured yet
}

// Add counts a step.
func (r *Reads) Add(bytes int64, took time.Duration) {
	r.Bytes += bytes
	r.Micros += took.Microseconds()
}

// Then returns the reads of an answer continued by another one: of both if they are of one memory.
func (r Reads) Then(next Reads) Reads {
	switch {
	case next.Micros == 0:
		return r
	case r.Bandwidth == next.Bandwidth:
		next.Bytes += r.Bytes
		next.Micros += r.Micros
	}
	return next
}

// Valid reports whether r can be what an engine counted. The reads of an import may be anything.
func (r Reads) Valid() bool {
	const most = 1 << 60
	return r.Bytes >= 0 && r.Bytes <= most && r.Micros >= 0 && r.Micros <= most && r.Bandwidth >= 0 && r.Bandwidth <= most
}
