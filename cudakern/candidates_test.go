package cudakern_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
)

// candidatesOf returns the expected result of Candidates, computed by sorting the row.
func candidatesOf(row []float32) cudakern.Distribution {
	d := cudakern.Distribution{Bad: -1, Max: float32(math.Inf(-1))}
	for id, x := range row {
		if x != x || math.IsInf(float64(x), 1) {
			if d.Bad < 0 {
				d.Bad = int32(id)
			}
			continue
		}
		d.Max = max(d.Max, x)
		if !math.IsInf(float64(x), -1) {
			d.IDs = append(d.IDs, int32(id))
		}
	}
	d.Count = len(d.IDs)
	for _, id := range d.IDs {
		x := float64(row[id]) - float64(d.Max)
		d.Mass += math.Exp(x)
		d.Dot += math.Exp(x) * x
	}
	slices.SortStableFunc(d.IDs, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	d.IDs = d.IDs[:min(len(d.IDs), cudakern.MaxCandidates)]
	for _, id := range d.IDs {
		d.Logits = append(d.Logits, row[id])
	}
	return d
}

func TestCandidatesAreTheLargestLogitsInOrder(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	shapes := []struct {
		name  string
		logit func(rng *rand.Rand, id, vocab int) float32
	}{
		{"normal", func(rng *rand.Rand, id, vocab int) float32 { return float32(rng.NormFloat64() * 4) }},
		{"peaked", func(rng *rand.Rand, id, vocab int) float32 { return float32(-math.Log(rng.Float64()) * 9) }},
		{"of a few values, so that nearly all are equal", func(rng *rand.Rand, id, vocab int) float32 { return float32(rng.IntN(3)) }},
		{"all equal", func(rng *rand.Rand, id, vocab int) float32 { return -7 }},
		{"zeros of both signs", func(rng *rand.Rand, id, vocab int) float32 {
			return float32(math.Copysign(0, float64(rng.IntN(2))-0.5))
		}},
		{"ascending", func(rng *rand.Rand, id, vocab int) float32 { return float32(id) / 100 }},
		{"descending", func(rng *rand.Rand, id, vocab int) float32 { return -float32(id) / 100 }},
		{"mostly masked", func(rng *rand.Rand, id, vocab int) float32 {
			if id%97 == 5 {
				return float32(rng.NormFloat64())
			}
			return -inf
		}},
		{"all masked", func(rng *rand.Rand, id, vocab int) float32 { return -inf }},
		{"with a NaN", func(rng *rand.Rand, id, vocab int) float32 {
			if id == vocab/2 || id == vocab-1 {
				return nan
			}
			return float32(rng.NormFloat64())
		}},
		{"with an infinity", func(rng *rand.Rand, id, vocab int) float32 {
			if id == vocab-1 {
				return inf
			}
			return float32(rng.NormFloat64())
		}},
	}
	for _, vocab := range []int{1, 2, 255, 256, 257, 4095, 4096, 4097, 32003, 70001, 262144} {
		if testing.Short() && vocab > 1<<16 {
			continue
		}
		t.Run(fmt.Sprintf("of %d", vocab), func(t *testing.T) {
			e := device(t)
			k, err := cudakern.NewCandidates(e.Context)
			e.Must(err)
			rng := rand.New(rand.NewPCG(10, uint64(vocab)))
			picked := shapes
			if vocab > 100000 {
				picked = shapes[:3]
			}
			// All shapes are rows of one launch.
			var logits []float32
			for _, s := range picked {
				for id := range vocab {
					logits = append(logits, s.logit(rng, id, vocab))
				}
			}
			rows, data := len(picked), e.uploadFloats(logits)
			count := e.Upload([]int32{int32(rows)})
			var first []byte
			for _, capacity := range []int{rows, rows + 5} {
				dst := e.Buffer(capacity * cudakern.CandidateBytes)
				e.Must(k.Enqueue(e.Stream, dst, data, vocab, count, capacity, e.Buffer(int(k.Workspace(vocab, capacity))), cudakern.Draws{}))
				got := make([]byte, rows*cudakern.CandidateBytes)
				e.Must(e.Stream.Download(got, dst))
				e.Must(e.Stream.Sync())
				if first == nil {
					first = got
				}
				if !slices.Equal(got, first) {
					t.Errorf("a launch for %d rows gives other bits than one for %d", capacity, rows)
				}
			}
			for r, s := range picked {
				got, err := k.Decode(first[r*cudakern.CandidateBytes : (r+1)*cudakern.CandidateBytes])
				e.Must(err)
				want := candidatesOf(logits[r*vocab : (r+1)*vocab])
				if got.Bad != want.Bad {
					t.Errorf("%s: token %d is said to be bad, want %d", s.name, got.Bad, want.Bad)
				}
				if want.Bad >= 0 {
					continue
				}
				if got.Count != want.Count || got.Max != want.Max {
					t.Errorf("%s: %d tokens up to %g, want %d up to %g", s.name, got.Count, got.Max, want.Count, want.Max)
				}
				if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Logits, want.Logits) {
					t.Errorf("%s: the tokens are %v, want %v", s.name, got.IDs, want.IDs)
				}
				if math.Abs(got.Mass-want.Mass) > 3e-7*want.Mass || math.Abs(got.Dot-want.Dot) > 1e-6*math.Abs(want.Dot) {
					t.Errorf("%s: sums are %v and %v, want %v and %v", s.name, got.Mass, got.Dot, want.Mass, want.Dot)
				}
			}
		})
	}
}

func TestCandidatesRefusesAVocabularyTooLarge(t *testing.T) {
	e := device(t)
	k, err := cudakern.NewCandidates(e.Context)
	e.Must(err)
	x := e.uploadFloats(make([]float32, 8))
	if err := k.Enqueue(e.Stream, x, x, 1<<20+1, e.Upload([]int32{1}), 1, x, cudakern.Draws{}); err == nil {
		t.Error("a vocabulary of more than 2^20 tokens was not refused")
	}
	if _, err := k.Decode(make([]byte, 7)); err == nil {
		t.Error("a row of candidates of 7 bytes was not refused")
	}
}
