package hub

import (
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
)

func TestPull_KnowsFromTheRegistryThatAnArchitectureDoesNotRun(t *testing.T) {
	foreign := gguftest.New().Set("general.architecture", "muse-spark").Tensor("w", gguf.F32, []int{32}, make([]byte, 128)).Bytes()
	usable := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Seed: 1})
	const problem = `architecture "muse-spark" is not supported; the nearest that is supported is "muse-glimmer"`
	for _, c := range []struct {
		name, told string
		file       []byte
		problem    string
	}{
		{"an unsupported architecture is a problem before anything of the file is read", "muse-spark", foreign, problem},
		{"a supported architecture is none", "llama", usable, ""},
		{"a projector of pictures says nothing about the model beside it", "clip", usable, ""},
		{"a registry that tells nothing leaves it open", "", foreign, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := hubtest.New(t, map[string][]byte{modelFile: c.file}, modelFile)
			registry.Architecture = c.told
			p := newPuller(t, filepath.Join(t.TempDir(), "models"), registry.API.URL)
			for _, name := range []string{"org/repo:Q8_0", "org/repo"} {
				d, err := p.Resolve(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(d.Problem, c.problem) || (c.problem == "") != (d.Problem == "") {
					t.Errorf("%s: got problem %q, want %q", name, d.Problem, c.problem)
				}
				if c.problem != "" {
					_, err := p.Pull(t.Context(), d, false, func(infer.DownloadProgress) {})
					if err == nil || !strings.Contains(err.Error(), c.problem) {
						t.Errorf("%s: pull gives %v", name, err)
					}
				}
				if asked := registry.Requests("cdn"); len(asked) != 0 {
					t.Errorf("%s: the storage received %+v", name, asked)
				}
			}
		})
	}
}
