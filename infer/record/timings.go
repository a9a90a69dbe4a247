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
	First   time.Duration // from the request to the first token
}

// named returns the durations with their names in JSON.
func (t *Timings) named() map[string]*time.Duration {
	return map[string]*time.Duration{"queue_ms": &t.Queue, "load_ms": &t.Load, "prefill_ms": &t.Prefill, "decode_ms": &t.Decode, "first_ms": &t.First}
}

// MarshalJSON implements json.Marshaler.
func (t Timings) MarshalJSON() ([]byte, error) {
	out := map[string]float64{}
	for name, d := range t.named() {
		out[name] = Milliseconds(*d)
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Timings) UnmarshalJSON(data []byte) error {
	in := map[string]float64{}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	for name, d := range t.named() {
		n := math.Round(in[name] * float64(time.Millisecond))
		if math.Abs(n) > math.MaxInt64/2 {
			return fmt.Errorf("%s is %v, but a duration is 146 years at most", name, in[name])
		}
		*d = time.Duration(n)
	}
	return nil
}

// Milliseconds returns d in milliseconds, to the microsecond.
func Milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Microsecond)) / 1000
}

// Micro are Timings in microseconds, as exports and the database have them.
type Micro struct {
	Queue   int64 `json:"queue_us"`
	Load    int64 `json:"load_us"`
	Prefill int64 `json:"prefill_us"`
	Decode  int64 `json:"decode_us"`
	First   int64 `json:"first_us"`
}

// Micro returns t in microseconds.
func (t Timings) Micro() Micro {
	us := time.Duration.Microseconds
	return Micro{us(t.Queue), us(t.Load), us(t.Prefill), us(t.Decode), us(t.First)}
}

// Timings returns m as durations.
func (m Micro) Timings() Timings {
	us := time.Microsecond
	return Timings{time.Duration(m.Queue) * us, time.Duration(m.Load) * us, time.Duration(m.Prefill) * us, time.Duration(m.Decode) * us, time.Duration(m.First) * us}
}
