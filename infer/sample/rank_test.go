package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRankKey_RoundTripsTokenAndLogit(t *testing.T) {
	for _, logit := range []float32{0, 1, -1, 3.25, -1e-40, 1e-40, math.MaxFloat32, -math.MaxFloat32, -inf, inf} {
		for _, id := range []int32{0, 1, 151643, math.MaxInt32} {
			key := rankKey(logit, id)
			if keyLogit(key) != logit || keyID(key) != id {
				t.Errorf("logit %v of token %d was unpacked as %v of %d", logit, id, keyLogit(key), keyID(key))
			}
		}
	}
}

func TestRanker_EqualsSortingEverything(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	rows := map[string][]float32{
		"one token":         {3},
		"one masked token":  {-inf},
		"both zeros":        {0, float32(math.Copysign(0, -1)), 0, float32(math.Copysign(0, -1)), 1e-45, -1e-45},
		"the whole range":   {math.MaxFloat32, -math.MaxFloat32, 1e-38, -1e-38, -inf, 0},
		"normal":            randomLogits(rng, 5000, 3, 0, 0),
		"many ties":         randomLogits(rng, 5000, 1, 0, 0.5),
		"nearly all masked": randomLogits(rng, 5000, 1, 0.99, 0),
	}
	for _, name := range []string{"ascending", "descending", "all equal"} {
		row := make([]float32, 3000)
		for i := range row {
			row[i] = map[string]float32{"ascending": float32(i) - 1500, "descending": 1500 - float32(i), "all equal": 2}[name]
		}
		rows[name] = row
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var ids []int32
			for id, logit := range row {
				if logit != -inf {
					ids = append(ids, int32(id))
				}
			}
			slices.SortFunc(ids, func(a, b int32) int { return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b)) })
			var r ranker
			// Down and up again, because a ranker reuses its buffers.
			for _, n := range []int{len(row), len(row) / 2, len(row) / 8, 40, 7, 2, 1, 0, 1, 300, len(row)} {
				n = min(n, len(row))
				for how, keys := range map[string][]uint64{"best": r.best(row, n), "selectBest": new(ranker).selectBest(row, n)} {
					if len(keys) < min(n, len(ids)) {
						t.Fatalf("%s: got %d keys, want %d of %d", how, len(keys), n, len(ids))
					}
					for i, key := range keys {
						if keyID(key) != ids[i] || keyLogit(key) != row[ids[i]] {
							t.Fatalf("%s of %d: rank %d: got token %d (%v), want %d (%v)", how, n, i, keyID(key), keyLogit(key), ids[i], row[ids[i]])
						}
					}
				}
			}
		})
	}
}

func BenchmarkRanker128k(b *testing.B) {
	row := randomLogits(rand.New(rand.NewPCG(5, 6)), 128256, 3, 0, 0)
	for _, bb := range []struct {
		name string
		n    int
	}{{"40", 40}, {"256", 256}, {"4096", 4096}, {"all", len(row)}} {
		b.Run(bb.name, func(b *testing.B) {
			var r ranker
			for b.Loop() {
				r.best(row, bb.n)
			}
		})
	}
}
