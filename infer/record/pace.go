package record

import (
	"slices"
	"time"
)

// Intervals of a Pace. When there are too many, pairs of them become one.
const (
	firstInterval = 100 // ms
	maxIntervals  = 64
)

// Pace is how many tokens an answer got in each interval of its decode, from its first token on. An
// interval without tokens is a pause.
type Pace struct {
	Every  int64 `json:"every_ms"` // duration of an interval
	Tokens []int `json:"tokens"`
}

// Add counts a token that came so long after the first one. Tokens are added in their order.
func (p *Pace) Add(at time.Duration) {
	if p.Every == 0 {
		p.Every = firstInterval
	}
	for at.Milliseconds()/p.Every >= maxIntervals {
		p.widen()
	}
	for int64(len(p.Tokens)) <= at.Milliseconds()/p.Every {
		p.Tokens = append(p.Tokens, 0)
	}
	p.Tokens[len(p.Tokens)-1]++
}

// widen doubles the interval.
func (p *Pace) widen() {
	p.Every *= 2
	wide := make([]int, (len(p.Tokens)+1)/2)
	for i, n := range p.Tokens {
		wide[i/2] += n
	}
	p.Tokens = wide
}

// Valid reports whether p is what Add makes. A pace of an import may be anything.
func (p Pace) Valid() bool {
	const most = 1 << 40 // ms
	wrong := func(n int) bool { return n < 0 || n > most }
	return p.Every > 0 && p.Every <= most && len(p.Tokens) > 0 && len(p.Tokens) <= maxIntervals && !slices.ContainsFunc(p.Tokens, wrong)
}

// Clone returns a copy that shares nothing with p.
func (p Pace) Clone() Pace { return p.First(p.total()) }

// First returns the pace of the first n tokens.
func (p Pace) First(n int) Pace {
	first := Pace{Every: p.Every}
	for _, tokens := range p.Tokens {
		if n <= 0 {
			break
		}
		first.Tokens = append(first.Tokens, min(n, tokens))
		n -= tokens
	}
	return first
}

func (p Pace) total() (n int) {
	for _, tokens := range p.Tokens {
		n += tokens
	}
	return n
}
