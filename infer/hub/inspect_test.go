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

func TestInspect_ReportsFitOrProblemFromTheHeader(t *testing.T) {
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
		{name: "a model on a server without range requests fits", file: long, fits: true,
			onCDN: func(w http.ResponseWriter, _ *http.Request, _ int, data []byte) bool {
				w.Write(data)
				return true
			}},
		{name: "an unsupported architecture is a problem", file: foreign, problem: `architecture "abacus" is not supported`},
		{name: "a file that is not a model is a problem", file: []byte("<html>please log in</html>"), problem: `not a GGUF file: starts with "<html>pl"`},
		{name: "a failing server leaves the result open", file: long,
			onCDN: func(w http.ResponseWriter, _ *http.Request, _ int, _ []byte) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}},
		{name: "a truncated header leaves the result open", file: long,
			onCDN: func(w http.ResponseWriter, r *http.Request, _ int, data []byte) bool {
				hubtest.Truncate(w, r, data, 1000)
				return true
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := hubtest.New(t, map[string][]byte{modelFile: c.file}, modelFile)
			registry.OnCDN = c.onCDN
			p := newPuller(t, filepath.Join(t.TempDir(), "models"), registry.API.URL)
			p.hub.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: 8 << 30}}} })
			resolved, err := p.Resolve(t.Context(), "org/repo:Q8_0")
			if err != nil {
				t.Fatal(err)
			}
			d, err := p.Inspect(t.Context(), resolved)
			if err != nil {
				t.Fatal(err)
			}
			if fits := d.Fit != nil && d.Fit.Context > 0; fits != c.fits {
				t.Errorf("got fit %+v", d.Fit)
			}
			if !strings.Contains(d.Problem, c.problem) || (c.problem == "") != (d.Problem == "") {
				t.Errorf("got problem %q, want %q", d.Problem, c.problem)
			}
			if asked := registry.Requests("cdn"); len(asked) != 1 || asked[0].Header.Get("Range") == "" {
				t.Errorf("the storage received %+v", asked)
			}
		})
	}
}
