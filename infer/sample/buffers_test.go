package sample

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestChainsWithSharedBuffersChooseAsWithTheirOwn(t *testing.T) {
	const vocab = 3000
	settings := []func(p *Params){
		func(p *Params) { p.RepeatPenalty, p.PresencePenalty = 1.3, 0.2 },
		func(p *Params) { p.DryMultiplier = 0.8 },
		func(p *Params) { p.TypicalP = 0.9 },
		func(p *Params) { p.Temperature, p.TopK = 1.5, 0 },
		func(p *Params) { p.LogitBias = map[int32]float64{7: 2, 2999: -1} },
	}
	var shared Buffers
	var own, sharing []*Chain
	for i, set := range settings {
		p := off()
		p.Seed = int64(i)
		set(&p)
		for _, c := range []struct {
			list *[]*Chain
			make func(Params, Vocabulary) (*Chain, error)
		}{{&own, NewChain}, {&sharing, shared.NewChain}} {
			chain, err := c.make(p, vocabulary(vocab))
			if err != nil {
				t.Fatal(err)
			}
			*c.list = append(*c.list, chain)
		}
	}
	if shared.counts != nil || shared.longest != nil || shared.pool.row != nil {
		t.Error("the buffers were allocated before the first token")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	histories := make([][]int32, len(settings))
	for pos := range 40 {
		for i := range settings {
			logits := make([]float32, vocab)
			for id := range logits {
				logits[id] = float32(3 * rng.NormFloat64())
			}
			in := Input{Row: RowOf(logits), History: histories[i], Pos: pos, Top: 3}
			want, err := own[i].Next(in)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := sharing[i].Next(in); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("answer %d, token %d: %+v, %v with shared buffers, %+v with its own", i, pos, got, err, want)
			}
			histories[i] = append(histories[i], want.ID, want.ID%5)
		}
	}
	p := &shared.pool
	taken := 4*cap(p.row) + 8*cap(p.oldProbs) + 16*cap(p.buffer) + 8*(cap(p.ranker.heap)+cap(p.ranker.keys)+cap(p.ranker.scratch)) + 4*(cap(shared.counts)+cap(shared.longest))
	if most := BufferBytes(vocab); int64(taken) > most*5/4 || int64(taken) < most/2 {
		t.Errorf("the buffers take %d bytes, BufferBytes is %d", taken, most)
	}
}
