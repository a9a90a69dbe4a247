package hub

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// testModel is a model file of some hundred kilobytes.
var testModel = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256})

// otherModel has the same size and other weights.
var otherModel = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Layers: 4, FFN: 256, Seed: 7})

// unsupportedModel has weights in a format that is not in supportedTypes.
var unsupportedModel = gguftest.TinyLlama(gguftest.Llama{Type: gguf.F16, Dim: 128, Layers: 4, FFN: 256})

var supportedTypes = []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q4_0}

// testPuller is a Puller that records waits instead of sleeping.
type testPuller struct {
	*Puller
	dir    string
	mu     sync.Mutex
	waited []time.Duration
}

func newPuller(t testing.TB, dir, endpoint string, change ...func(*PullOptions)) *testPuller {
	t.Helper()
	p := &testPuller{dir: dir}
	o := PullOptions{
		Endpoint:  endpoint,
		Token:     "hf_secret",
		Version:   "test",
		Addresses: true,
		Stall:     10 * time.Second,
		FreeDisk:  func(string) (int64, error) { return 1 << 40, nil },
		Sleep: func(ctx context.Context, d time.Duration) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.waited = append(p.waited, d)
			return context.Cause(ctx)
		},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if p.Puller, err = NewPuller(New(Options{Dir: dir, Types: supportedTypes}), o); err != nil {
		t.Fatal(err)
	}
	return p
}

// pull resolves and pulls name.
func (p *testPuller) pull(ctx context.Context, name string, force bool) error {
	d, err := p.Resolve(ctx, name)
	if err != nil {
		return err
	}
	_, err = p.Pull(ctx, d, force, nil)
	return err
}

// filesIn returns the paths of the files in a folder.
func filesIn(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err == nil && !d.IsDir() {
			relative, _ := filepath.Rel(dir, path)
			files = append(files, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// checkLoadable fails if a file other than want is listed as a model. It reports whether one
// is listed.
func checkLoadable(t testing.TB, dir string, want []byte) (found bool) {
	t.Helper()
	for _, name := range filesIn(t, dir) {
		if !strings.HasSuffix(name, ".gguf") {
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is listed as a model but is a wrong file of %d bytes", name, len(got))
		}
		found = true
	}
	return found
}
