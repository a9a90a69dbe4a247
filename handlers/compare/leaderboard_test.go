package compare

import (
	"math"
	"testing"

	"m40-llm/store"
)

func TestTheLeaderboardCountsVotes(t *testing.T) {
	vote := func(first, second string, result store.VoteResult) store.Vote {
		return store.Vote{First: first, Second: second, Result: result}
	}
	got := standings([]store.Vote{
		vote("a", "b", store.VoteFirst), vote("b", "a", store.VoteSecond), vote("a", "b", store.VoteSecond),
		vote("a", "b", store.VoteTie), vote("c", "b", store.VoteTie), vote("a", "c", store.VoteBad),
	})
	want := []Standing{{Name: "a", Won: 2, Lost: 1, Tied: 1, Bad: 1}, {Name: "b", Won: 1, Lost: 2, Tied: 2}, {Name: "c", Tied: 1, Bad: 1}}
	for i, w := range want {
		g := got[i]
		if g.Name != w.Name || g.Won != w.Won || g.Lost != w.Lost || g.Tied != w.Tied || g.Bad != w.Bad {
			t.Errorf("row %d is %+v, want %+v", i, g, w)
		}
	}
}

// The bounds are those of E. B. Wilson's formula (1927), computed by hand for z = 1.96.
func TestTheIntervalIsWilsons(t *testing.T) {
	for _, test := range []struct {
		won, n    int
		low, high float64
	}{{0, 0, 0, 1}, {0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {5, 10, 0.2366, 0.7634}, {8, 12, 0.3906, 0.8619}, {81, 263, 0.2553, 0.3662}} {
		low, high := wilson(test.won, test.n)
		if math.Abs(low-test.low) > 5e-5 || math.Abs(high-test.high) > 5e-5 {
			t.Errorf("%d of %d: from %.4f to %.4f, want %.4f to %.4f", test.won, test.n, low, high, test.low, test.high)
		}
	}
}
