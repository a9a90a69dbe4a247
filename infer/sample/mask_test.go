package sample

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMask_AllowsOnlyTheTokensOfItsBits(t *testing.T) {
	m := Mask{1<<63 | 1, 0, 2}
	for _, tt := range []struct {
		mask Mask
		id   int32
		want bool
	}{
		{m, 0, true}, {m, 1, false}, {m, 63, true}, {m, 64, false}, {m, 129, true}, {m, 191, false},
		{m, 192, false}, {m, math.MaxInt32, false}, {m, -1, false}, {Mask{}, 0, false}, {nil, 0, true}, {nil, 1 << 20, true},
	} {
		if got := tt.mask.Allows(tt.id); got != tt.want {
			t.Errorf("%b, token %d: got %v", tt.mask, tt.id, got)
		}
	}
}

func TestMask_LeavesTheSoftmaxOfTheAllowedTokens(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, vocab := range []int{1, 63, 64, 65, 1000} {
		for _, share := range []float64{0, 0.01, 0.4, 0.6, 0.99, 1} {
			for range 20 {
				row := randomLogits(rng, vocab, 3, 0.2, 0.5)
				m := make(Mask, rng.IntN(vocab/64+2))
				for i := range m {
					for b := range 64 {
						if rng.Float64() < share {
							m[i] |= 1 << b
						}
					}
				}
				want := slices.Clone(row)
				for id := range want {
					if !m.Allows(int32(id)) {
						want[id] = -inf
					}
				}
				left, masked := softmax(want)
				before, _ := softmax(row)
				got, err := m.apply(row, before)
				if masked != nil {
					if !errors.Is(err, ErrMasked) {
						t.Fatalf("got error %v, want ErrMasked", err)
					}
					continue
				}
				near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12*math.Max(1, math.Abs(b)) }
				shift := math.Exp(got.max - left.max)
				if err != nil || got.count != left.count || !near(got.mass*shift, left.mass) || !near(got.entropy(), left.entropy()) || !slices.Equal(row, want) {
					t.Fatalf("%d tokens, share %v: got %+v (%v), want %+v", vocab, share, got, err, left)
				}
			}
		}
	}
}

func TestChain_ReturnsErrMaskedWhenNoTokenIsLeft(t *testing.T) {
	logits := []float32{1, -inf, 2}
	c := mustChain(t, off(), 3)
	for name, m := range map[string]Mask{
		"no token":                   {0},
		"no words":                   {},
		"a token that is masked":     {1 << 1},
		"a token past the end":       {1 << 3},
		"words past the end as well": {0, ^uint64(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if choice, err := c.Next(Input{Row: RowOf(logits), Mask: m}); !errors.Is(err, ErrMasked) {
				t.Errorf("%v, %+v", err, choice)
			}
		})
	}
	if choice, err := c.Next(Input{Row: RowOf(logits), Mask: Mask{1 << 2}}); err != nil || choice.ID != 2 {
		t.Errorf("afterwards: %v, %+v", err, choice)
	}
}

func TestChain_AMaskLimitsTheChoiceAndNotTheReportedDistribution(t *testing.T) {
	logits := []float32{float32(math.Log(0.5)), float32(math.Log(0.3)), float32(math.Log(0.2))}
	p := off()
	p.TopK = 1
	got, err := mustChain(t, p, 3).Next(Input{Row: RowOf(logits), Mask: Mask{1<<1 | 1<<2}, Top: 2})
	if err != nil {
		t.Fatal(err)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }
	if got.ID != 1 || got.Rank != 1 || !near(got.LogProb, math.Log(0.3)) || !near(got.PMax, 0.5) || got.Top[0].ID != 0 {
		t.Errorf("%+v", got)
	}
	if s := got.Stages; len(s) != 2 || s[0].Name != "mask" || s[0].Kept != 2 || !near(s[0].Removed, 0.5) || s[1].Name != "top_k" || !near(s[1].Removed, 0.4) {
		t.Errorf("stages %+v", s)
	}
}
