package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// packingBench is an engine over toys whose weights have so many bytes to be copied between steps.
func packingBench(t *testing.T, bytes int64, set func(*bench, *Options)) *bench {
	return newBench(t, func(b *bench, o *Options) {
		b.readsFile, b.unpacked = true, bytes
		o.packLaterFrom, o.FreeMemory = 1, func() int64 { return 1 << 40 }
		if set != nil {
			set(b, o)
		}
	})
}

// waitPacked waits until nothing is left to be copied.
func waitPacked(t *testing.T, b *bench) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s := b.Status(); s.State == infer.StateReady && s.Packing == (infer.Packing{}) {
			return
		}
	}
	t.Fatalf("weights are still being copied: %+v", b.Status().Packing)
}

func TestEngine_CopiesWeightsWhileNothingIsToBeComputed(t *testing.T) {
	const bytes = 20
	var seen []infer.Packing
	b := packingBench(t, bytes, func(b *bench, _ *Options) {
		b.onPack = func() error { seen = append(seen, b.Status().Packing); return nil }
	})
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitPacked(t, b)
	b.Close()
	for i, p := range seen {
		if want := (infer.Packing{Done: int64(i), Total: bytes}); p != want {
			t.Errorf("before copy %d the status has %+v, want %+v", i, p, want)
		}
	}
	if len(seen) != bytes {
		t.Errorf("%d copies, want %d", len(seen), bytes)
	}
}

func TestEngine_CopiesWeightsBetweenSteps(t *testing.T) {
	var mu sync.Mutex
	var order []byte // s: a step, p: a copy
	note := func(what byte) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	copying, held := make(chan struct{}), make(chan struct{})
	var hold sync.Once
	var at atomic.Int64
	b := packingBench(t, 500, func(b *bench, o *Options) {
		o.Now = func() time.Time { return time.Unix(0, at.Load()) }
		b.onStep = func(int, *device.Batch) error { note('s'); at.Add(3e6); return nil }
		b.onPack = func() error {
			hold.Do(func() { close(copying); <-held }) // until the request is there
			note('p')
			at.Add(1e6)
			return nil
		}
	})
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-copying // a request that came before would already be in the step, and none would wait below
	prompt := span(10, 20)
	r := request(prompt, 20)
	r.IgnoreEOS = true
	asked := make(chan outcome)
	go func() { asked <- b.ask(r) }()
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		b.inbox.mu.Lock()
		waits = len(b.inbox.fresh)
		b.inbox.mu.Unlock()
	}
	close(held)
	a := <-asked
	if want := greedy(prompt, 20); a.err != nil || !slices.Equal(a.ids(), want) {
		t.Errorf("got %v, %v, want %v", a.ids(), a.err, want)
	}
	mu.Lock()
	defer mu.Unlock()
	steps, copies := 0, 0
	for i, what := range order {
		if what == 's' {
			steps++
			if i > 0 && order[i-1] == 's' {
				t.Errorf("no copy behind step %d", steps-1)
			}
		} else if steps > 0 && steps < 20 {
			copies++
		}
	}
	if first := slices.Index(order, 's'); first > 2 || steps != 20 || copies < 19*packShare*3 { // a step takes as long as 3 copies
		t.Errorf("the first step was behind %d copies; %d steps and %d copies between them", first, steps, copies)
	}
}

func TestLoop_CopiesWeightsWhereNothingElseIsToBeDoneOrAStepOwesIt(t *testing.T) {
	one := []*sequence{{}}
	for name, c := range map[string]struct {
		missing  int64
		owed     time.Duration
		running  []*sequence
		waiting  []*sequence
		setup    *infer.Setup
		inFlight []*flight
		want     bool
	}{
		"weights are copied while nothing is to be done":                     {missing: 1, want: true},
		"none are once all are copied":                                       {},
		"an answer that runs waits as long as a step owes":                   {missing: 1, owed: time.Second, running: one, want: true},
		"an answer that runs does not wait for longer":                       {missing: 1, running: one},
		"none are copied during a step":                                      {missing: 1, owed: time.Second, running: one, inFlight: []*flight{nil}},
		"the answer of another model does not wait although a step owes it":  {missing: 1, owed: time.Second, waiting: one},
		"the model is loaded with another setup although a step owes copies": {missing: 1, owed: time.Second, setup: &infer.Setup{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &loop{loaded: &loadedModel{packing: packing{missing: c.missing, owed: c.owed}}, setup: c.setup, flights: c.inFlight}
			l.sched.running, l.sched.waiting = c.running, c.waiting
			if got := l.packs(); got != c.want {
				t.Errorf("copies are made: %v, want %v", got, c.want)
			}
		})
	}
}

func TestEngine_CopiesWeightsAtOnceWhereMemoryIsShortOrTheyAreFew(t *testing.T) {
	for name, set := range map[string]func(*bench, *Options){
		"short memory":   func(_ *bench, o *Options) { o.FreeMemory = func() int64 { return 1 } },
		"unknown memory": func(_ *bench, o *Options) { o.FreeMemory = nil },
		"few weights":    func(_ *bench, o *Options) { o.packLaterFrom = 0 },
		"another device": func(b *bench, _ *Options) { b.readsFile = false },
	} {
		t.Run(name, func(t *testing.T) {
			loads := 0
			b := packingBench(t, 10, func(b *bench, o *Options) {
				set(b, o)
				b.onLoad = func(_ context.Context, o model.Options) error {
					if loads++; o.PackLater {
						t.Error("weights are copied between steps")
					}
					return nil
				}
			})
			if err := b.WaitReady(t.Context()); err != nil || loads != 1 {
				t.Errorf("%v after %d loads", err, loads)
			}
		})
	}
}

func TestEngine_LoadsTheModelAgainAfterACopyHasFailed(t *testing.T) {
	for _, tt := range []struct {
		fails int
		err   error
		state infer.State
		loads int
	}{
		{1, errors.New("a device"), infer.StateReady, 2},
		{2, errors.New("a device"), infer.StateFailed, 2},
		{1, device.ErrUnreadable, infer.StateFailed, 1},
	} {
		fails := tt.fails
		b := packingBench(t, 10, func(b *bench, _ *Options) {
			b.onPack = func() error {
				if fails--; fails >= 0 {
					return tt.err
				}
				return nil
			}
		})
		for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if s := b.Status(); s.State == infer.StateFailed || s.State == infer.StateReady && s.Packing.Total == 0 {
				break
			}
		}
		b.mu.Lock()
		loads := b.opened
		b.mu.Unlock()
		if s := b.Status(); s.State != tt.state || loads != tt.loads {
			t.Errorf("after %d errors (%v): %s, %v, %d loads", tt.fails, tt.err, s.State, s.Error, loads)
		}
		if a := b.ask(request(span(10, 20), 5)); tt.err != device.ErrUnreadable && a.err != nil {
			t.Errorf("after %d errors (%v): %v", tt.fails, tt.err, a.err)
		}
	}
}

func TestGrowth_LeavesMemoryForCopiesThatAreMissing(t *testing.T) {
	const mb = int64(1) << 20
	r := &loadedModel{plan: placement.Plan{Groups: []placement.Group{{Blocks: 8, Block: mb}}}}
	r.growth = growth{free: func() int64 { return placement.Spare + 30*mb }}
	b := r.newBlocks(4)
	for _, tt := range []struct {
		missing int64
		blocks  bool
	}{{40 * mb, false}, {20 * mb, true}} {
		r.packing.missing, r.growth.refused = tt.missing, false
		if _, _, got := b.open(span(0, 8), 0, audience{}); got != tt.blocks {
			t.Errorf("with %d bytes of copies missing there is memory for blocks: %v", tt.missing, got)
		}
	}
}

// TestRealModel_AnswersTheSameWhileWeightsAreCopied asks the built-in model, read from a file, on the CPU.
func TestRealModel_AnswersTheSameWhileWeightsAreCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "guide.gguf")
	if err := os.WriteFile(path, guide.Model, 0o666); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, from := range []int64{1 << 40, 1} {
		var packer *countingPacker
		b := &bench{t: t}
		b.openReady(Options{
			Catalog: fileCatalog(path),
			OpenDevice: func(*gguf.File) (device.Device, error) {
				d, err := cpu.Open(2)
				if err == nil {
					packer = &countingPacker{Device: d, Packer: d.(device.Packer)}
				}
				return packer, err
			},
			Model:         "guide",
			packLaterFrom: from,
			FreeMemory:    cpu.FreeMemory,
		})
		a := b.ask(request(span(10, 40), 100))
		if a.err != nil {
			t.Fatal(a.err)
		}
		texts = append(texts, a.text)
		waitPacked(t, b)
		b.Close()
		if later := packer.views > 50; later != (from == 1) {
			t.Errorf("from %d bytes on, %d weights were copied between steps", from, packer.views)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("got %q and %q", texts[0], texts[1])
	}
}

// countingPacker counts the views that are replaced.
type countingPacker struct {
	device.Device
	device.Packer
	views int
}

func (d *countingPacker) Pack(limit time.Duration, release func([]byte)) (int64, error) {
	return d.Packer.Pack(min(limit, time.Microsecond), func(view []byte) { d.views++; release(view) })
}

// fileCatalog has one model, the file of this name.
type fileCatalog string

func (c fileCatalog) Models(context.Context) ([]infer.ModelInfo, error) { return nil, nil }

func (c fileCatalog) OwnTemplate(m infer.ModelInfo) (string, error) { return m.ChatTemplate, nil }

func (c fileCatalog) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	f, err := gguf.Open(string(c))
	return f, infer.ModelInfo{Name: name}, err
}
