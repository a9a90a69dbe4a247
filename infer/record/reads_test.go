package record

import (
	"math"
	"testing"
	"time"
)

func TestReadsOfAContinuedAnswerAreAddedWithinOneMemory(t *testing.T) {
	for _, c := range []struct {
		name              string
		first, next, want Reads
	}{
		{"of one memory", Reads{100, 10, 5}, Reads{200, 30, 5}, Reads{300, 40, 5}},
		{"before the bandwidth was measured", Reads{100, 10, 0}, Reads{200, 30, 5}, Reads{200, 30, 5}},
		{"of another memory", Reads{100, 10, 7}, Reads{200, 30, 5}, Reads{200, 30, 5}},
		{"of a continuation that was not counted", Reads{100, 10, 5}, Reads{}, Reads{100, 10, 5}},
		{"of a first part that was not counted", Reads{}, Reads{200, 30, 0}, Reads{200, 30, 0}},
	} {
		if got := c.first.Then(c.next); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	var r Reads
	r.Add(1000, 2*time.Millisecond)
	r.Add(1000, 3*time.Millisecond)
	if r != (Reads{Bytes: 2000, Micros: 5000}) || !r.Valid() {
		t.Errorf("%+v", r)
	}
	for _, r := range []Reads{{Bytes: -1}, {Micros: -1}, {Bandwidth: -1}, {Bytes: math.MaxInt64}, {Bandwidth: math.NaN()}, {Bandwidth: math.Inf(1)}} {
		if r.Valid() {
			t.Errorf("%+v counts as valid", r)
		}
	}
}
