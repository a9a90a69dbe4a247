package record

import (
	"encoding/json"
	"testing"
	"time"
)

func TestTimingsAreMillisecondsInJSON(t *testing.T) {
	for _, c := range []struct {
		name    string
		timings Timings
		want    string
	}{
		{"none", Timings{}, `{"decode_ms":0,"first_ms":0,"load_ms":0,"prefill_ms":0,"queue_ms":0}`},
		{"to the microsecond", Timings{Queue: 1_234_567, Load: time.Second, Prefill: 2 * time.Millisecond, Decode: time.Hour, First: 499}, `{"decode_ms":3600000,"first_ms":0,"load_ms":1000,"prefill_ms":2,"queue_ms":1.235}`},
	} {
		got, err := json.Marshal(c.timings)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.name, got, err, c.want)
		}
		var back Timings
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for name, d := range back.named() {
			if want := c.timings.named()[name].Round(time.Microsecond); *d != want {
				t.Errorf("%s: %s came back as %v, want %v", c.name, name, *d, want)
			}
		}
	}
	if err := json.Unmarshal([]byte(`{"load_ms":1e300}`), &Timings{}); err == nil {
		t.Error("a duration of 1e300 ms was taken")
	}
}
