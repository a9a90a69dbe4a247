package record

import (
	"slices"
	"testing"
	"time"
)

func TestPaceCountsTokensInIntervalsThatWiden(t *testing.T) {
	var p Pace
	for _, ms := range []int{0, 40, 99, 100, 350, 399} {
		p.Add(time.Duration(ms) * time.Millisecond)
	}
	if p.Every != 100 || !slices.Equal(p.Tokens, []int{3, 1, 0, 2}) {
		t.Errorf("six tokens of 400 ms are %+v", p)
	}
	if got := p.First(4); !slices.Equal(got.Tokens, []int{3, 1}) {
		t.Errorf("the first four are %+v", got)
	}
	copied := p.Clone()
	p.Add(7 * time.Second)
	if p.Every != 200 || len(p.Tokens) != 36 || !slices.Equal(p.Tokens[:3], []int{4, 2, 0}) || p.Tokens[35] != 1 {
		t.Errorf("with one after 7 s they are %+v", p)
	}
	if !slices.Equal(copied.Tokens, []int{3, 1, 0, 2}) {
		t.Errorf("the copy became %+v", copied)
	}
	p.Add(20 * time.Hour)
	for _, wrong := range []Pace{{}, {Every: -1, Tokens: []int{1}}, {Every: 100}, {Every: 100, Tokens: []int{-1}}, {Every: 100, Tokens: make([]int, 65)}, {Every: 1 << 50, Tokens: []int{1}}} {
		if wrong.Valid() || !p.Valid() {
			t.Errorf("%+v is taken, or %+v is not", wrong, p)
		}
	}
	if len(p.Tokens) > maxIntervals || p.total() != 8 || int64(len(p.Tokens))*p.Every < (20*time.Hour).Milliseconds() {
		t.Errorf("with one after 20 h they are %+v", p)
	}
}
