package fleet

import (
	"strings"
	"testing"
	"time"

	"m40-llm/infer"
)

func TestALoadToWhichMemoryIsRefusedIsTriedAgainWithoutTheIdleModels(t *testing.T) {
	for name, c := range map[string]struct {
		loaded string // models, the one used least recently first
		pin    string
		busy   string
		use    func(t *testing.T, f *Fleet) error // of another model
		loads  string                             // of that, with what is left
		left   string
		notice string
	}{
		"one after the other goes, the one used least recently first": {
			loaded: "a b", use: embed, loads: "embed embed embed", left: "embed",
			notice: "memory ran out while the model was loaded, so these models were unloaded: a, b",
		},
		"a pinned model stays, and the load is tried with less": {
			loaded: "a b", pin: "a", use: embed, loads: "embed embed", left: "a embed", notice: "memory ran out while the model was loaded, so b was unloaded",
		},
		"a model with answers stays, too": {
			loaded: "a b", busy: "a", use: embed, loads: "embed embed", left: "a embed", notice: "memory ran out while the model was loaded, so b was unloaded",
		},
		"an answer waits for it": {
			loaded: "a", use: func(t *testing.T, f *Fleet) error { _, err := ask(t.Context(), f, "chat"); return err }, loads: "chat chat", left: "chat",
			notice: "memory ran out while the model was loaded, so a was unloaded",
		},
		"nobody waits for it": {
			loaded: "a", use: func(t *testing.T, f *Fleet) error { return f.Load(t.Context(), "embed") }, loads: "embed embed", left: "embed",
			notice: "memory ran out while the model was loaded, so a was unloaded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, 5)
			h.hold = c.busy != ""
			f := h.fleet(nil)
			for model := range strings.FieldsSeq(c.loaded) {
				if err := f.Load(t.Context(), model); err != nil {
					t.Fatal(err)
				}
			}
			if c.pin != "" {
				if err := f.Pin(t.Context(), c.pin, true); err != nil {
					t.Fatal(err)
				}
			}
			if c.busy != "" {
				go ask(t.Context(), f, c.busy)
				for f.inUse(c.busy) != 1 {
					time.Sleep(time.Millisecond)
				}
			}
			h.mu.Lock()
			h.refuses, h.log = true, nil
			h.mu.Unlock()
			if err := c.use(t, f); err != nil {
				t.Fatal(err)
			}
			for loadedNames(f) != c.left {
				time.Sleep(time.Millisecond)
			}
			if got := h.loads(); got != c.loads {
				t.Errorf("loaded in turn: %q, want %q", got, c.loads)
			}
			s := f.Status()
			if got := s.Of(strings.Fields(c.loads)[0]); got == nil || got.State != infer.StateReady || got.Notice != c.notice {
				t.Errorf("its status is %+v, want ready and %q", got, c.notice)
			}
			if want := int64(strings.Count(c.notice, ",")); s.Evictions != want {
				t.Errorf("%d evictions, want %d", s.Evictions, want)
			}
		})
	}
}

func embed(t *testing.T, f *Fleet) error {
	_, err := f.Embed(t.Context(), infer.EmbedRequest{Model: "embed"})
	return err
}
