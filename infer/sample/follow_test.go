package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/fixtures"

	"pgregory.net/rapid"
)

// compareFollowed returns how the way of the followed tokens differs from another.
func compareFollowed(got, want Choice) error {
	if len(got.Stages) != len(want.Stages) || len(got.Followed) != len(want.Followed) {
		return fmt.Errorf("got stages %+v, want %+v", got.Stages, want.Stages)
	}
	for i, s := range got.Stages {
		if w := want.Stages[i]; s.Name != w.Name || s.Kept != w.Kept || math.Abs(s.Removed-w.Removed) > 1e-9 {
			return fmt.Errorf("stage %d: got %+v, want %+v", i, s, w)
		}
	}
	for i, list := range got.Followed {
		for j, p := range list {
			if p == -1 && want.Followed[i][j] < 1.0/StoredCandidates {
				continue // it fell behind the candidates that are stored
			}
			if math.Abs(p-want.Followed[i][j]) > 1e-9 {
				return fmt.Errorf("after %d stages, token %d has the probability %g, want %g: %+v", i, j, p, want.Followed[i][j], got.Stages)
			}
		}
	}
	g, w := got.Drawn, want.Drawn
	if g == nil || w == nil || g.U != w.U || math.Abs(g.From-w.From) > 1e-9 || math.Abs(g.To-w.To) > 1e-9 {
		return fmt.Errorf("got %+v, want %+v", g, w)
	}
	return nil
}

func TestFollow_GivesTheProbabilitiesOfTheNaiveImplementationAfterEachStage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 3, 17, 300, 2000}).Draw(r, "vocab")
		p := drawParams(r, vocab)
		in := drawInput(r, vocab)
		in.Follow = rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-1)), 1, 5).Draw(r, "follow")
		got, err := mustChain(t, p, vocab).Next(in)
		if err != nil {
			r.Fatal(err)
		}
		want := newTwin(p, vocabulary(vocab)).next(in)
		if math.IsNaN(want.Drawn.To) || p.Mirostat != 0 && want.ID != got.ID {
			r.Skip("rounding")
		}
		if err := compareFollowed(got, want); err != nil {
			r.Fatal(err)
		}
	})
}

// rows is how many tokens the tests below recompute.
func rows() int {
	if fixtures.Torture() {
		return 10_000
	}
	return 300
}

// drawLike returns settings and an input as chats have them: stages in any order, penalties of tokens
// that are likely too, and a vocabulary larger than what is stored.
func drawLike(r *rapid.T, vocab int) (Params, Input) {
	p := drawParams(r, vocab)
	p.LogitBias, p.Mirostat, p.Samplers = nil, 0, nil
	if rapid.Bool().Draw(r, "a usual top_k") {
		p.TopK = rapid.IntRange(1, 100).Draw(r, "top_k")
	}
	logits := randomLogits(testRandom(r), vocab, rapid.SampledFrom([]float64{1, 3, 5}).Draw(r, "spread"), 0, 0)
	likely := new(ranker).best(logits, 40)
	in := Input{Row: RowOf(logits), Pos: rapid.IntRange(0, 1<<20).Draw(r, "pos")}
	in.History = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) int32 {
		if rapid.IntRange(0, 9).Draw(r, "likely") < 9 {
			return keyID(likely[rapid.IntRange(0, min(len(likely), 40)-1).Draw(r, "rank")])
		}
		return rapid.Int32Range(0, int32(vocab-1)).Draw(r, "token")
	}), 0, 40).Draw(r, "history")
	for _, key := range likely[:min(len(likely), 12)] {
		in.Follow = append(in.Follow, keyID(key))
	}
	return p, in
}

// The way of a token through the stages, as it is recomputed from what was stored with it, is what the
// sampler itself reported when it drew the token.
func TestStoredRow_GivesTheWayThroughTheStagesThatTheSamplerReported(t *testing.T) {
	recomputed, missing, changed := 0, 0, 0
	for n := 0; n < rows(); n += 100 {
		rapid.Check(t, func(r *rapid.T) {
			vocab := rapid.SampledFrom([]int{100, 300, 1500, 3000}).Draw(r, "vocab")
			p, in := drawLike(r, vocab)
			in.Store = true
			want, err := mustChain(t, p, vocab).Next(in)
			if err != nil {
				r.Skip(err)
			}
			again := Input{Row: parsed(r, want.Row), History: in.History, Pos: in.Pos, Follow: in.Follow}
			if want.Changed != nil {
				row := parsed(r, want.Changed)
				again.Changed = &row
			}
			got, err := mustChain(t, p, vocab).Next(again)
			if errors.Is(err, ErrNotStored) {
				missing++
				return
			}
			if err != nil {
				r.Fatal(err)
			}
			recomputed++
			if want.Changed != nil {
				changed++
			}
			if got.ID != want.ID || got.Rank != want.Rank {
				r.Fatalf("drew token %d, want %d", got.ID, want.ID)
			}
			if err := compareFollowed(got, want); err != nil {
				r.Fatal(err)
			}
		})
	}
	t.Logf("%d tokens were recomputed, %d of them after changes of logits; for %d the rows did not suffice", recomputed, changed, missing)
	if recomputed == 0 || missing == 0 || changed == 0 {
		t.Error("the test needs some of each")
	}
}

// Settings other than those of the answer, penalties among them, draw from a stored row what they draw
// from all logits.
func TestStoredRow_GivesTheChoiceOfOtherPenalties(t *testing.T) {
	judged, missing := 0, 0
	for n := 0; n < rows(); n += 100 {
		rapid.Check(t, func(r *rapid.T) {
			vocab := rapid.SampledFrom([]int{300, 3000}).Draw(r, "vocab")
			p, in := drawLike(r, vocab)
			in.Follow = nil
			want, err := mustChain(t, p, vocab).Next(in)
			if err != nil {
				r.Skip(err)
			}
			chain, exact := mustChain(t, p, vocab), mustChain(t, p, vocab)
			got, err := chain.Next(Input{Row: parsed(r, stored(t, in.Row, vocab)), History: in.History, Pos: in.Pos})
			if errors.Is(err, ErrNotStored) {
				missing++
				return
			}
			if err != nil {
				r.Fatal(err)
			}
			judged++
			if got.ID != want.ID {
				r.Fatalf("drew token %d, want %d", got.ID, want.ID)
			}
			if _, err := exact.Next(in); err != nil {
				r.Fatal(err)
			}
			for _, id := range append(slices.Clone(in.History), want.ID) {
				p, err := chain.Probability(id)
				q, _ := exact.Probability(id)
				if err == nil && math.Abs(p-q) > 1e-9 {
					r.Fatalf("token %d has the probability %g, want %g", id, p, q)
				}
			}
		})
	}
	t.Logf("%d tokens were judged; for %d the rows did not suffice", judged, missing)
	if judged == 0 || missing == 0 {
		t.Error("the test needs some of both")
	}
}

// stored returns a row as it is stored.
func stored(t *testing.T, row Row, vocab int) []byte {
	t.Helper()
	c, err := mustChain(t, off(), vocab).Next(Input{Row: row, Store: true})
	if err != nil {
		t.Fatal(err)
	}
	return c.Row
}

func parsed(r *rapid.T, stored []byte) Row {
	row, err := ParseRow(stored)
	if err != nil {
		r.Fatal(err)
	}
	return row
}

func TestStoredRow_DoesNotSufficeWhereATokenThatWasNotStoredMayRise(t *testing.T) {
	logits := randomRow(3000)
	row, err := ParseRow(stored(t, RowOf(logits), len(logits)))
	if err != nil {
		t.Fatal(err)
	}
	first, last := row.IDs[0], keyID(new(ranker).sort(logits)[2999])
	for _, tc := range []struct {
		name    string
		set     func(p *Params)
		history []int32
		known   bool
	}{
		{"a stored token is penalised", func(p *Params) { p.RepeatPenalty = 1.3 }, []int32{first}, true},
		{"a token that was not stored is penalised, and top_k does not need it", func(p *Params) { p.RepeatPenalty = 1.3 }, []int32{last}, true},
		{"a token that was not stored is penalised, and top_p needs the sum", func(p *Params) { p.RepeatPenalty, p.TopK = 1.3, 0 }, []int32{last}, false},
		{"a token that was not stored is favoured", func(p *Params) { p.PresencePenalty = -1 }, []int32{last}, false},
		{"a stored token is favoured", func(p *Params) { p.PresencePenalty = -1 }, []int32{first}, true},
		{"a bias lifts a token that was not stored", func(p *Params) { p.LogitBias = map[int32]float64{last: 1} }, nil, false},
		{"a bias bans a token that was not stored", func(p *Params) { p.LogitBias = map[int32]float64{last: -100} }, nil, true},
		{"all stored tokens but the last are banned", func(p *Params) {
			p.LogitBias = map[int32]float64{}
			for _, id := range row.IDs[:255] {
				p.LogitBias[id] = -1000
			}
		}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := seededParams()
			tc.set(&p)
			want := mustNext(t, mustChain(t, p, len(logits)), logits, tc.history, 1, 0)
			got, err := mustChain(t, p, len(logits)).Next(Input{Row: row, History: tc.history, Pos: 1})
			if tc.known && (err != nil || got.ID != want.ID) || !tc.known && !errors.Is(err, ErrNotStored) {
				t.Errorf("got token %d, %v; the row suffices: %v, for token %d", got.ID, err, tc.known, want.ID)
			}
		})
	}
}

func testRandom(r *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "logits"), 0))
}
