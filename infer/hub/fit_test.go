package hub

import (
	"os"
	"path/filepath"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/placement"
)

func TestModelsReportWhichContextFits(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"good.gguf": testModel, "bad.gguf": []byte("text")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := New(Options{Dir: dir, Builtin: map[string][]byte{"guide": testModel}})
	if d, err := h.Details("good"); err != nil || d.Fit != nil {
		t.Errorf("without a machine: %+v, %v", d.Fit, err)
	}
	free := int64(8 << 30)
	h.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: free}}} })
	models, err := h.Models(t.Context())
	if err != nil || len(models) != 3 {
		t.Fatal(models, err)
	}
	for _, m := range models {
		fits := m.Fit != nil && m.Fit.Context == m.ContextTrain && m.Fit.Needs > m.Size/2
		if fits != (m.Error == "") {
			t.Errorf("%s, %q: %+v", m.Name, m.Error, m.Fit)
		}
	}
	free = 1000
	for _, name := range []string{"guide", "good"} {
		if d, err := h.Details(name); err != nil || d.Fit == nil || d.Fit.Context != 0 || d.Fit.Free != free {
			t.Errorf("%s, which no longer fits: got %+v, %v", name, d.Fit, err)
		}
	}
}
