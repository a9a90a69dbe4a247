package hub

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub/hubtest"
	"m40-llm/infer/placement"
)

// repository has the same model in three quantisations, another model in one of them, and one that
// is not supported.
func repository() map[string][]byte {
	of := func(t gguf.Type) []byte {
		return gguftest.TinyLlama(gguftest.Llama{Type: t, Dim: 256, Layers: 4, FFN: 256})
	}
	return map[string][]byte{
		"model-Q4_0.gguf": of(gguf.Q4_0), "model-Q8_0.gguf": of(gguf.Q8_0), "model-F16.gguf": of(gguf.F16),
		"model-Q2_K.gguf": of(gguf.Q2_K), "other-F32.gguf": of(gguf.F32),
	}
}

func TestResolveComparesQuantisations(t *testing.T) {
	sizes := map[string]int64{}
	for name, data := range repository() {
		sizes[name] = int64(len(data))
	}
	for _, c := range []struct {
		name   string
		memory int64   // free
		read   float64 // bytes per second
		chosen string
		why    string
	}{
		{"with memory and speed, the one with most bits below 16 is chosen", 1 << 30, 1e12, "Q8_0", "Q8_0 has the most bits of those that fit with a context of 256 and are expected to give 10 tokens per second or more"},
		{"a slow machine gets the fastest of 4 bits", 1 << 30, 1e5, "Q4_0", "Q4_0 is the fastest of 4 bits or more that fits with a context of 256"},
		{"if the speed is unknown, the usual one is chosen", 1 << 30, 0, "Q4_0", "Q4_0 is the usual choice of those that fit"},
		{"without memory, the smallest is chosen", 1 << 10, 1e12, "Q4_0", "none fits into the memory that is free; Q4_0 is the smallest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hubtest.New(t, repository(), "model-Q4_0.gguf")
			p := newPuller(t, t.TempDir(), f.API.URL, func(o *PullOptions) {
				o.ReadBandwidth = func(context.Context, placement.Machine) []float64 { return []float64{c.read} }
			})
			p.hub.types = append(p.hub.types, gguf.F16)
			p.hub.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: c.memory}}} })
			d, err := p.Resolve(t.Context(), "org/repo")
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != "org/repo:"+c.chosen || d.Quant != c.chosen || !strings.Contains(d.Notice, c.why) {
				t.Errorf("got %s, %q", d.Name, d.Notice)
			}
			var quants []string
			for _, q := range d.Choices {
				quants = append(quants, q.Quant)
				switch {
				case q.Chosen != (q.Quant == c.chosen), q.Size != sizes["model-"+q.Quant+".gguf"]:
					t.Errorf("got %+v", q)
				case q.Quant == "Q2_K":
					if q.Fit != nil || q.Problem != "weights in Q2_K are not supported yet" {
						t.Errorf("got %+v", q)
					}
				case q.Fit == nil || (q.Fit.Context > 0) != (c.memory > 1<<20) || (q.TokensPerSecond > 0) != (c.read > 0 && c.memory > 1<<20):
					t.Errorf("got %+v, %+v", q, q.Fit)
				}
			}
			if want := []string{"Q2_K", "Q4_0", "Q8_0", "F16"}; !reflect.DeepEqual(quants, want) {
				t.Errorf("compared %q, want %q", quants, want)
			}
			if again, err := p.Resolve(t.Context(), d.Name); c.chosen == "Q4_0" && (err != nil || again.File != d.File || len(again.Choices) > 0) {
				t.Errorf("%s is %+v, %v", d.Name, again, err)
			}
		})
	}
	t.Run("the estimate of a file from the header of another is close to that from its own", func(t *testing.T) {
		f := hubtest.New(t, repository(), "model-Q4_0.gguf")
		p := newPuller(t, t.TempDir(), f.API.URL)
		p.hub.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: 1 << 30}}} })
		d, err := p.Resolve(t.Context(), "org/repo")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range d.Choices {
			if q.Quant != "Q8_0" {
				continue
			}
			of, err := p.Resolve(t.Context(), "https://huggingface.co/org/repo/resolve/main/model-Q8_0.gguf")
			if err == nil {
				of, err = p.Inspect(t.Context(), of)
			}
			if err != nil || of.Fit.Context != q.Fit.Context || max(of.Fit.Needs, q.Fit.Needs) > min(of.Fit.Needs, q.Fit.Needs)*102/100 {
				t.Errorf("got %+v, and from its header %+v, %v", q.Fit, of.Fit, err)
			}
		}
	})
	t.Run("without a table the choice is as before", func(t *testing.T) {
		f := hubtest.New(t, map[string][]byte{modelFile: testModel}, modelFile)
		p := newPuller(t, t.TempDir(), f.API.URL)
		p.hub.SetMachine(func() placement.Machine { return placement.Machine{Devices: []device.Info{{Memory: 1 << 30}}} })
		if d, err := p.Resolve(t.Context(), "org/repo"); err != nil || d.Name != "org/repo" || len(d.Choices) > 0 || d.Quant != "Q8_0" {
			t.Errorf("got %+v, %v", d, err)
		}
	})
}

func TestChooseQuant(t *testing.T) {
	fit := func(context int) *placement.Fit {
		return &placement.Fit{Context: context, Trained: 131072, Free: 1}
	}
	for _, c := range []struct {
		name    string
		choices []infer.Quantisation
		want    string
	}{
		{"a longer context than usual is not worth fewer bits", []infer.Quantisation{
			{Quant: "Q4_K_M", Size: 4, Fit: fit(131072), TokensPerSecond: 20}, {Quant: "Q6_K", Size: 6, Fit: fit(8192), TokensPerSecond: 12}}, "Q6_K"},
		{"bits are given up for a usual context", []infer.Quantisation{
			{Quant: "Q4_K_M", Size: 4, Fit: fit(8192), TokensPerSecond: 20}, {Quant: "Q6_K", Size: 6, Fit: fit(4096), TokensPerSecond: 20}}, "Q4_K_M"},
		{"and for speed", []infer.Quantisation{
			{Quant: "Q4_K_M", Size: 4, Fit: fit(8192), TokensPerSecond: 10}, {Quant: "Q6_K", Size: 6, Fit: fit(8192), TokensPerSecond: 9}}, "Q4_K_M"},
		{"but not below 4 bits", []infer.Quantisation{
			{Quant: "Q2_K", Size: 2, Fit: fit(8192), TokensPerSecond: 9}, {Quant: "Q4_K_M", Size: 4, Fit: fit(8192), TokensPerSecond: 5}, {Quant: "Q5_K_M", Size: 5, Fit: fit(8192), TokensPerSecond: 4}}, "Q4_K_M"},
		{"the longest context is best if none has the usual one", []infer.Quantisation{
			{Quant: "Q2_K", Size: 2, Fit: fit(4096)}, {Quant: "Q4_K_M", Size: 4, Fit: fit(1024)}}, "Q2_K"},
		{"16 bits are better than nothing", []infer.Quantisation{{Quant: "F16", Size: 16, Fit: fit(8192), TokensPerSecond: 20}, {Quant: "Q2_K", Size: 2}}, "F16"},
		{"a file that cannot be used is chosen only among such", []infer.Quantisation{{Quant: "Q1_0", Size: 1}}, "Q1_0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i, why := chooseQuant(c.choices); c.choices[i].Quant != c.want || why == "" {
				t.Errorf("chose %s: %s", c.choices[i].Quant, why)
			}
		})
	}
}

func TestWithQuant(t *testing.T) {
	if got, err := WithQuant("hf.co/org/repo", "Q4_K_M"); err != nil || got != "org/repo:Q4_K_M" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, name := range []string{"org/repo:Q8_0", "mistral", "https://example.org/m.gguf", ""} {
		if got, err := WithQuant(name, "Q4_K_M"); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got, err := WithQuant("org/repo", "a/b"); err == nil {
		t.Errorf("got %q", got)
	}
}
