package hub

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/infer/placement"
)

// TestLook asks what a header says of a file that is on a server.
func TestLook(t *testing.T) {
	long := append(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Seed: 1}), make([]byte, 8<<20)...)
	foreign := gguftest.New().Set("general.architecture", "abacus").Tensor("w", gguf.F32, []int{32}, make([]byte, 128)).Bytes()
	for _, c := range []struct {
		name    string
		file    []byte
		onCDN   func(w http.ResponseWriter, r *http.Request, try int, data []byte) bool
		fits    bool
		problem string
	}{
		{name: "a model fits", file: long, fits: true},
		{name: "a model on a server that knows no ranges fits", file: long, fits: true,
			onCDN: func(w http.ResponseWriter, _ *http.Request, _ int, data []byte) bool {
				w.Write(data)
				return true
			}},
		{name: "an architecture that nothing computes is a problem", file: foreign, problem: `architecture "abacus" is not supported`},
		{name: "what is no model is a problem", file: []byte("<html>please log in</html>"), problem: `not a GGUF file: starts with "<html>pl"`},
		{name: "a server that fails leaves it open", file: long,
			onCDN: func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}},
		{name: "so does a header that is cut", file: long,
			onCDN: func(w http.ResponseWriter, r *http.Request, _ int, data []byte) bool {
				hubtest.Cut(w, r, data, 1000)
				return true
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := hubtest.New(t, map[string][]byte{modelFile: c.file}, modelFile)
			registry.OnCDN = c.onCDN
			p := newPuller(t, filepath.Join(t.TempDir(), "models"), registry.API.URL)
			p.hub.FitInto(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: 8 << 30}}} })
			resolved, err := p.Resolve(t.Context(), "org/repo:Q8_0")
			if err != nil {
				t.Fatal(err)
			}
			d, err := p.Look(t.Context(), resolved)
			if err != nil {
				t.Fatal(err)
			}
			if fits := d.Fit != nil && d.Fit.Context > 0; fits != c.fits {
				t.Errorf("the fit is %+v", d.Fit)
			}
			if !strings.Contains(d.Problem, c.problem) || (c.problem == "") != (d.Problem == "") {
				t.Errorf("the problem is %q, want %q", d.Problem, c.problem)
			}
			if asked := registry.Asked("cdn"); len(asked) != 1 || asked[0].Header.Get("Range") == "" {
				t.Errorf("the storage was asked %+v", asked)
			}
		})
	}
}
