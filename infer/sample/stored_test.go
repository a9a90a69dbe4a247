package sample

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func TestStoredRow_GivesTheChoiceThatTheRowGave(t *testing.T) {
	chosen, missing := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 2, 17, 255, 256, 257, 3000, 20000}).Draw(r, "vocab")
		p := drawParams(r, vocab)
		in := drawInput(r, vocab)
		in.Store, in.Top = true, rapid.SampledFrom([]int{0, 1, 20, StoredCandidates}).Draw(r, "top")
		want, err := mustChain(t, p, vocab).Next(in)
		if err != nil {
			r.Skip(err)
		}
		if in.Row, err = ParseRow(want.Row); err != nil {
			r.Fatal(err)
		}
		got, err := mustChain(t, p, vocab).Next(in)
		if errors.Is(err, ErrNotStored) {
			missing++
			return
		}
		if err != nil {
			r.Fatal(err)
		}
		chosen++
		if err := same(want, got); err != nil {
			r.Fatal(err)
		}
		if !bytes.Equal(want.Row, got.Row) || !bytes.Equal(want.Changed, got.Changed) {
			r.Fatal("storing a stored row gives other bytes")
		}
	})
	if chosen == 0 || missing == 0 {
		t.Errorf("%d rows sufficed and %d did not: the test needs some of both", chosen, missing)
	}
}

func TestStoredRow_AfterPenaltiesGivesTheSameChoiceWithoutThem(t *testing.T) {
	chosen := 0
	rapid.Check(t, func(r *rapid.T) {
		vocab := rapid.SampledFrom([]int{17, 256, 257, 3000}).Draw(r, "vocab")
		p := drawParams(r, vocab)
		p.Samplers, p.Mirostat = nil, 0
		in := drawInput(r, vocab)
		in.Store = true
		want, err := mustChain(t, p, vocab).Next(in)
		if err != nil || want.Changed == nil {
			r.Skip(err)
		}
		in.Row, err = ParseRow(want.Changed)
		if err != nil {
			r.Fatal(err)
		}
		in.Mask = nil
		p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty, p.DryMultiplier, p.LogitBias = 1, 0, 0, 0, nil
		got, err := mustChain(t, p, vocab).Next(in)
		if errors.Is(err, ErrNotStored) {
			return
		}
		if err != nil {
			r.Fatal(err)
		}
		chosen++
		if got.ID != want.ID {
			r.Fatalf("chose token %d, want %d: %+v and %+v", got.ID, want.ID, got.Stages, want.Stages)
		}
	})
	if chosen == 0 {
		t.Error("no row sufficed")
	}
}

func TestProbability_IsThatOfTheTokensThatAreLeft(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 17, 300}).Draw(r, "vocab")
		p := drawParams(r, vocab)
		p.Mirostat = 0
		c := mustChain(t, p, vocab)
		choice, err := c.Next(drawInput(r, vocab))
		if err != nil {
			r.Skip(err)
		}
		sum, left := 0.0, 0
		for id := range int32(vocab) {
			p, err := c.Probability(id)
			if err != nil {
				r.Fatal(err)
			}
			if p > 0 {
				left++
			}
			sum += p
		}
		if p, _ := c.Probability(choice.ID); p <= 0 {
			r.Fatalf("the chosen token has the probability %g", p)
		}
		if math.Abs(sum-1) > 1e-9 {
			r.Fatalf("the probabilities sum to %g", sum)
		}
		if n := len(choice.Stages); n > 0 && left > choice.Stages[n-1].Kept {
			r.Fatalf("%d tokens have a probability, and the last stage kept %d", left, choice.Stages[n-1].Kept)
		}
	})
}

func TestStoredRow_HasTheLogitsAfterPenalties(t *testing.T) {
	logits := randomRow(3000)
	p := DefaultParams()
	p.Seed, p.RepeatPenalty, p.PresencePenalty = 1, 1.3, 0.5
	history := []int32{5, 7, 5, 2999}
	for _, tc := range []struct {
		name     string
		samplers []string
		changed  bool
	}{
		{"penalties come first", nil, true},
		{"penalties come behind a stage that removes candidates", []string{"top_k", "penalties"}, false},
		{"penalties are off", []string{"top_k"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.Samplers = tc.samplers
			c, err := mustChain(t, p, len(logits)).Next(Input{Row: RowOf(logits), History: history, Pos: len(history), Store: true})
			if err != nil {
				t.Fatal(err)
			}
			if tc.changed != (c.Changed != nil) {
				t.Fatalf("a changed row is stored: %v, want %v", c.Changed != nil, tc.changed)
			}
			if c.Changed == nil {
				return
			}
			r, err := ParseRow(c.Changed)
			if err != nil {
				t.Fatal(err)
			}
			edited := append([]float32(nil), logits...)
			for id, n := range map[int32]int{5: 2, 7: 1, 2999: 1} {
				edited[id] = float32(penalise(float64(logits[id]), n, p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty))
			}
			want, _ := softmax(edited)
			if mass := r.Mass * math.Exp(float64(r.Max)-want.max); math.Abs(mass/want.mass-1) > 1e-12 {
				t.Errorf("the mass relative to the largest logit is %g, want %g", mass, want.mass)
			}
			for i, key := range new(ranker).best(edited, StoredCandidates)[:StoredCandidates] {
				if r.IDs[i] != keyID(key) || r.Logits[i] != keyLogit(key) {
					t.Fatalf("candidate %d is token %d with %g, want %d with %g", i, r.IDs[i], r.Logits[i], keyID(key), keyLogit(key))
				}
			}
		})
	}
}

// randomRow returns logits as a language model has them: a few stand out.
func randomRow(vocab int) []float32 {
	random := rand.New(rand.NewPCG(1, 2))
	row := make([]float32, vocab)
	for i := range row {
		row[i] = float32(3*random.NormFloat64() - 6)
	}
	for i := range min(vocab, 40) {
		row[random.IntN(vocab)] += float32(12 - i/4)
	}
	return row
}

func TestStoredRow_OfALargeVocabularyTakesAtMost1500Bytes(t *testing.T) {
	for _, vocab := range []int{32000, 128256, 262144} {
		c, err := Score(RowOf(randomRow(vocab)), vocab, 0, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		chain := mustChain(t, Params{Temperature: 1, TopP: 1, TypicalP: 1, RepeatPenalty: 1, XTCThreshold: 1, DynatempExponent: 1, DryBase: 1.75, Seed: 1}, vocab)
		choice, err := chain.Next(Input{Row: RowOf(randomRow(vocab)), Store: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("vocabulary of %d, entropy %.1f bits: %d bytes", vocab, c.Entropy, len(choice.Row))
		if len(choice.Row) > 1500 {
			t.Errorf("a row takes %d bytes, want at most 1500", len(choice.Row))
		}
	}
}

func TestParseRow_RefusesDamagedRows(t *testing.T) {
	c, err := mustChain(t, seededParams(), 300).Next(Input{Row: RowOf(randomRow(300)), Store: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range c.Row {
		if _, err := ParseRow(c.Row[:n]); err == nil {
			t.Errorf("a row that was cut off at byte %d is accepted", n)
		}
	}
	if _, err := ParseRow(append(bytes.Clone(c.Row), 0)); err == nil {
		t.Error("a row with a byte too many is accepted")
	}
}

// seededParams returns the default settings with a seed that is drawn.
func seededParams() Params {
	p := DefaultParams()
	p.Seed = 1
	return p
}

func FuzzParseRow(f *testing.F) {
	c, err := mustChain(f, seededParams(), 300).Next(Input{Row: RowOf(randomRow(300)), Store: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(c.Row)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, stored []byte) {
		r, err := ParseRow(stored)
		if err != nil {
			return
		}
		if len(r.IDs) != len(r.Logits) || len(r.IDs) > StoredCandidates {
			t.Fatalf("got %d ids and %d logits", len(r.IDs), len(r.Logits))
		}
		// A chain chooses one of the candidates, or returns an error.
		choice, err := mustChain(t, seededParams(), 300).Next(Input{Row: r})
		if err == nil && (choice.ID < 0 || choice.ID >= 300) {
			t.Fatalf("token %d was chosen from a vocabulary of 300", choice.ID)
		}
	})
}

func TestStoredRow_DoesNotSufficeForATopKBeyondItsCandidates(t *testing.T) {
	logits := randomRow(3000)
	stored, err := mustChain(t, seededParams(), len(logits)).Next(Input{Row: RowOf(logits), Store: true})
	if err != nil {
		t.Fatal(err)
	}
	row, err := ParseRow(stored.Row)
	if err != nil {
		t.Fatal(err)
	}
	p := seededParams()
	p.TopK = StoredCandidates + 1
	if _, err := mustChain(t, p, len(logits)).Next(Input{Row: row}); !errors.Is(err, ErrNotStored) {
		t.Errorf("got %v, want ErrNotStored", err)
	}
}
