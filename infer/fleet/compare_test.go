package fleet

import (
	"os"
	"path/filepath"
	"testing"

	"m40-llm/infer"
)

func TestAComparisonUsesBothModelsWithoutAnotherLoadIfBothFit(t *testing.T) {
	for name, c := range map[string]struct {
		models int // that memory has room for
		loads  string
		evicts int64
	}{
		"both fit":     {2, "a b", 0},
		"there is one": {1, "a b a b", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			h := newHouse(t, c.models)
			f := h.fleet(nil)
			for range 2 {
				tokens, done, place := 0, 0, ""
				r := infer.Request{Tokens: []int32{1, 2, 3}, Model: "a", Against: "b", PromptLogProb: true, Params: infer.DefaultRequest().Params}
				for e, err := range f.Generate(t.Context(), r) {
					switch {
					case err != nil:
						t.Fatal(err)
					case e.Token != nil:
						if tokens++; e.Token.LogProb != 1 || e.Token.Compared == nil || e.Token.Compared.KL != 2 {
							t.Errorf("token %d is %+v, want the score of the first model and the comparison of the second", tokens, e.Token)
						}
					case e.Loading != nil:
						place = e.Loading.InPlaceOf
					case e.Done != nil:
						if done++; e.Done.Text != "b" {
							t.Errorf("the end is that of %q, want b", e.Done.Text)
						}
					}
				}
				if tokens != 3 || done != 1 {
					t.Errorf("%d tokens and %d ends, want 3 and 1", tokens, done)
				}
				if want := c.models == 1; want != (place == "a") {
					t.Errorf("it says that b is loaded in place of %q", place)
				}
			}
			if got := h.loads(); got != c.loads {
				t.Errorf("loaded in turn: %q, want %q", got, c.loads)
			}
			if got := f.Status().Evictions; got != c.evicts {
				t.Errorf("%d evictions, want %d", got, c.evicts)
			}
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 || err != nil {
				t.Errorf("%v are left in the temporary folder, %v", left, err)
			}
		})
	}
}

func TestAComparisonIsRefusedWhileOthersUseAllTheDisk(t *testing.T) {
	f := newHouse(t, 2).fleet(nil)
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	f.compared = maxCompared - 150
	release, err := f.countRows(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.countRows(path); err == nil {
		t.Error("a second file of 100 bytes is taken where 50 are left")
	}
	release()
	if _, err := f.countRows(path); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}
