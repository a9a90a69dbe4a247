package record

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Timings are the durations of one answer. JSON has them in milliseconds, to the
// microsecond: queue_ms, load_ms and so on.
type Timings struct {
	Queue   time.Duration
	Load    time.Duration
	Prefill time.Duration // until the first token
	Decode  time.Duration // from the first token to the last
	First   time.Duration // from the request to the first token, which is what the reader waits for
}

// named returns the durations with their names in JSON, less the unit.
func (t *Timings) named() map[string]*time.Duration {
	return map[string]*time.Duration{"queue": &t.Queue, "load": &t.Load, "prefill": &t.Prefill, "decode": &t.Decode, "first": &t.First}
}

// MarshalJSON implements json.Marshaler.
func (t Timings) MarshalJSON() ([]byte, error) {
	return t.marshal("_ms", Milliseconds)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Timings) UnmarshalJSON(data []byte) error {
	return t.unmarshal(data, "_ms", time.Millisecond)
}

func (t Timings) marshal(suffix string, number func(time.Duration) float64) ([]byte, error) {
	out := map[string]float64{}
	for name, d := range t.named() {
		out[name+suffix] = number(*d)
	}
	return json.Marshal(out)
}

func (t *Timings) unmarshal(data []byte, suffix string, unit time.Duration) error {
	in := map[string]float64{}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	for name, d := range t.named() {
		n := math.Round(in[name+suffix] * float64(unit))
		if math.Abs(n) > math.MaxInt64/2 {
			return fmt.Errorf("%s is %v, but a duration is 146 years at most", name+suffix, in[name+suffix])
		}
		*d = time.Duration(n)
	}
	return nil
}

// Milliseconds returns d in milliseconds, to the microsecond.
func Milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}
