package placement

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// The shape of Llama 3.2 1B: 8,192 positions take 256 MiB of cache.
func llamaShape() *Shape {
	s := &Shape{
		config:  llama1B,
		weights: 1300 * mb,
		parts:   model.Parts{Embedding: 276 * mb, Output: 276 * mb},
	}
	for range 16 {
		s.parts.Layers = append(s.parts.Layers, 64*mb)
	}
	return s
}

func TestFitSaysWhichContextFits(t *testing.T) {
	s := llamaShape()
	scratch := StepLimitsOf(0, 0).Scratch(s.config)
	cpu := func(free int64) device.Info {
		return device.Info{Kind: "cpu", Memory: s.weights + scratch + Spare + free}
	}
	tests := []struct {
		name    string
		machine Machine
		context int
		says    string
	}{
		{"plenty of memory holds the whole context", Machine{Devices: []device.Info{cpu(64 * gb)}}, 131072, "fits with a context of 131,072"},
		{"less memory holds a shorter one, and says what the whole one needs", Machine{Devices: []device.Info{cpu(2 * gb)}}, 32768, "fits with a context of 32,768: 2.5 GB of the 3.6 GB that are free; 131,072 would need 5.7 GB"},
		{"the whole context that automatic planning leaves to others can be asked for", Machine{Devices: []device.Info{cpu(5 * gb)}}, 81920, "--ctx 131072 would take 5.7 GB, and leave less to other programs"},
		{"a cache of float32 holds half as much", Machine{Devices: []device.Info{cpu(2 * gb)}, CacheType: "f32"}, 16384, "fits with a context of 16,384"},
		{"a cache of q8_0 holds 32/17 as much", Machine{Devices: []device.Info{cpu(2 * gb)}, CacheType: "q8_0"}, 61664, "fits with a context of 61,664: 2.5 GB of the 3.6 GB that are free; 131,072 would need 3.7 GB"},
		{"an automatic format is f16 where the whole context fits", Machine{Devices: []device.Info{cpu(64 * gb)}, CacheType: "auto"}, 131072, "fits with a context of 131,072: 5.7 GB of the"},
		{"an automatic format is q8_0 where it does not", Machine{Devices: []device.Info{cpu(2 * gb)}, CacheType: "auto"}, 61664, "; the KV cache is q8_0, because the whole context does not fit with f16"},
		{"more answers at once take more for logits", Machine{Devices: []device.Info{cpu(0)}, Parallel: 200}, 19328, "fits only with weights that stay in the file"},
		{"a context that was asked for fits", Machine{Devices: []device.Info{cpu(2 * gb)}, ContextLength: 60000}, 60000, "fits with a context of 60,000"},
		{"one that was asked for does not", Machine{Devices: []device.Info{cpu(1 * gb)}, ContextLength: 60000}, 0, "one of 60,000 needs 3.4 GB"},
		{"no context fits with copies of the weights", Machine{Devices: []device.Info{cpu(-300 * mb)}}, 16000, "fits only with weights that stay in the file, which is slower: copies of them and a context of 16,000 need 1.9 GB, and 1.2 GB are free"},
		{"a device that cannot leave weights in the file", Machine{Devices: []device.Info{{Kind: "ref", Memory: s.weights + scratch + Spare - 300*mb}}}, 0, "does not fit: a context of 512 needs 1.4 GB, one of 131,072 needs 5.7 GB, and 1.2 GB are free"},
		{"what stays free is too little for it", Machine{Devices: []device.Info{{Kind: "ref", Memory: s.weights + scratch + Spare/2 + 17*mb}}}, 0, "GB in addition to 67.1 MB that stay free for the rest of the program, one of 131,072 needs 5.7 GB, and"},
		{"an unknown memory", Machine{Devices: []device.Info{{}}}, 65536, "how much memory is free is not known"},
		{"a GPU holds it alone", Machine{Devices: []device.Info{{Memory: 12 * gb, Dedicated: true}, cpu(64 * gb)}}, 131072, "of the 12.9 GB that are free"},
		{"a small GPU shares it with main memory", Machine{Devices: []device.Info{{Memory: 1400 * mb, Dedicated: true}, cpu(1 * gb)}}, 0, "fits with a context of"},
		{"a GPU that holds no layer leaves it to main memory", Machine{Devices: []device.Info{{Memory: 100 * mb, Dedicated: true}, cpu(2 * gb)}}, 32768, "32,768"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := s.Fit(tt.machine)
			if tt.context > 0 && f.Context != tt.context || !strings.Contains(f.String(), tt.says) {
				t.Errorf("%+v, %q; want a context of %d and %q", f, f, tt.context, tt.says)
			}
			if f.Context == 0 && strings.HasPrefix(tt.says, "fits") {
				t.Errorf("%+v does not fit", f)
			}
		})
	}
}

func TestAFitCountsTheCompanionWhereThereIsRoomForIt(t *testing.T) {
	s := llamaShape()
	gpu := func(free int64) device.Info {
		return device.Info{Kind: "cuda", Name: "a GPU", Memory: free, Dedicated: true}
	}
	cpu := device.Info{Kind: "cpu", Memory: 64 * gb}
	for _, tt := range []struct {
		name     string
		devices  []device.Info
		pictures string
		counts   bool
	}{
		{"a GPU with room for both", []device.Info{gpu(12 * gb), cpu}, "a GPU", true},
		{"a GPU with room for the model alone", []device.Info{gpu(2300 * mb), cpu}, "CPU", false},
		{"a GPU with room for a part of the model", []device.Info{gpu(1200 * mb), cpu}, "a GPU", false},
		{"the CPU", []device.Info{cpu}, "CPU", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Machine{Devices: tt.devices}
			without, with := s.Fit(m), s.WithCompanion(gb).Fit(m)
			more := int64(0)
			if tt.counts {
				more = gb
			}
			if with.Pictures != tt.pictures || with.Whole-without.Whole != more || with.On != without.On {
				t.Errorf("got %+v, without the companion %+v; want pictures on %q, and %d bytes more", with, without, tt.pictures, more)
			}
		})
	}
}

func TestAFitReportsConvertedWeights(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.IQ3_S, Dim: 256, FFN: 256}))
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	shape, err := ShapeOf(f, config)
	if err != nil {
		t.Fatal(err)
	}
	toQ8 := func(t gguf.Type) gguf.Type {
		if t == gguf.IQ3_S {
			return gguf.Q8_0
		}
		return t
	}
	host, gpu := device.Info{Kind: "cpu", Memory: 1 << 40}, device.Info{Kind: "cuda", Memory: 1 << 40, Dedicated: true}
	onCPU := shape.Fit(Machine{Devices: []device.Info{host}, Converts: toQ8})
	onGPU := shape.Fit(Machine{Devices: []device.Info{gpu, host}, Converts: toQ8})
	native := shape.Fit(Machine{Devices: []device.Info{gpu, host}})
	const says = "IQ3_S weights are converted to Q8_0 for the GPU and take 2.5 times as much memory there"
	if onCPU.Converted != "" || native.Converted != "" || onGPU.Converted != says || !strings.Contains(onGPU.String(), says) {
		t.Errorf("%q on the CPU, %q and %q on the GPU", onCPU.Converted, native.Converted, onGPU)
	}
	weights := model.WeightBytes(f)
	if more := onGPU.Needs - native.Needs; more < weights*14/10 || more > weights*15/10 {
		t.Errorf("converted weights take %d bytes more, those of the file %d", more, weights)
	}
	small := gpu
	small.Memory = native.Needs + weights // too small for converted weights
	if fit := shape.Fit(Machine{Devices: []device.Info{small, host}, Converts: toQ8}); fit.Free < 1<<40 {
		t.Errorf("a model whose converted weights do not fit on the GPU needs %d of %d bytes there", fit.Needs, fit.Free)
	}
}

func TestAFitReportsWhereExpertsAre(t *testing.T) {
	s := llamaShape()
	s.reads, s.experts = 400*mb, 200*mb
	machine := Machine{
		Devices:       []device.Info{{Name: "A", Memory: 1100 * mb, Dedicated: true}, {Kind: "cpu", Memory: 64 * gb}},
		ReadBandwidth: []float64{200e9, 20e9},
	}
	byLayer := s.Estimate(machine)
	s.parts.Experts = slices.Repeat([]int64{60 * mb}, 16) // of which a token reads few
	e := s.Estimate(machine)
	if !regexp.MustCompile(`^A and CPU, the experts of \d+ of 16 layers$`).MatchString(e.Fit.On) || e.Fit.Free < 65*gb {
		t.Errorf("it would be on %q, where %d bytes are free", e.Fit.On, e.Fit.Free)
	}
	if !(e.TokensPerSecond > byLayer.TokensPerSecond) {
		t.Errorf("%g tokens a second are expected, %g if whole layers are on the CPU", e.TokensPerSecond, byLayer.TokensPerSecond)
	}
}
