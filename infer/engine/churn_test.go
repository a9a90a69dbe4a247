package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/device"
)

// TestEngine_Churn lets many consumers come, read at their own pace, cancel and leave
// while models are switched and memory is short. Every answer that ends is the
// model's own; the bench checks that nothing is left behind.
func TestEngine_Churn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(b *bench, o *Options) {
			o.Parallel, o.ChunkRows, o.ContextLength = 5, 40, 100
			b.memory = memoryFor(t, *o, 10)
			b.onStep = func(int, *device.Batch) error { time.Sleep(time.Millisecond); return nil }
		})
		rng := rand.New(rand.NewPCG(40, 40))
		var mu sync.Mutex
		ends := map[string]int{}
		var wg sync.WaitGroup
		for range 300 {
			n, shared := 1+rng.IntN(70), rng.IntN(3)
			r := request(slices.Concat(span(int32(50*shared), int32(50*shared+n/2)), span(int32(rng.IntN(200)), 200+int32(n-n/2)))[:n], rng.IntN(30))
			r.Model = []string{"", "toy", "toy", "other"}[rng.IntN(4)]
			r.PromptLogProb = rng.IntN(4) == 0
			r.Client, r.Sibling = []string{"a", "a", "b", "c"}[rng.IntN(4)], rng.IntN(3)
			ctx, cancel := context.WithCancel(t.Context())
			stop, leave, pace := rng.IntN(40), rng.IntN(40), time.Duration(rng.IntN(5))*time.Millisecond
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			wg.Go(func() {
				defer cancel()
				var ids []int32
				end := "left"
				for e, err := range b.Generate(ctx, r) {
					switch {
					case errors.Is(err, context.Canceled):
						end = "cancelled"
					case err != nil:
						t.Errorf("%v", err)
					case e.Token != nil && !e.Token.Prompt:
						ids = append(ids, e.Token.ID)
					case e.Done != nil:
						end = "done"
						if !slices.Equal(ids, greedy(r.Tokens, r.MaxTokens)) {
							t.Errorf("%v, want %v", ids, greedy(r.Tokens, r.MaxTokens))
						}
					}
					time.Sleep(pace)
					if stop--; stop == 0 {
						cancel()
					}
					if leave--; leave == 0 {
						break
					}
				}
				mu.Lock()
				ends[end]++
				mu.Unlock()
			})
		}
		wg.Wait()
		synctest.Wait()
		if ends["done"] < 30 || ends["cancelled"] < 30 || ends["left"] < 30 {
			t.Errorf("ends %v: too few of a kind to test anything", ends)
		}
		if s := b.Status(); s.State != infer.StateReady || s.Running+s.Queued != 0 {
			t.Errorf("status %+v at the end", s)
		}
		t.Logf("ends %v after %d steps and %d loads", ends, b.steps, b.opened)
	})
}
