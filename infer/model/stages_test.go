package model_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// Experts that are on another device than the rest of their layers compute the same: the same bits where both
// devices are alike.
func TestExpertsOnAnotherDeviceGiveTheLogitsOfTheWhole(t *testing.T) {
	openRef := func() (device.Device, error) { return ref.New(), nil }
	for _, c := range []struct {
		name  string // of the fixture
		apart int    // layers whose experts can be elsewhere
	}{
		{"mixtral", 2},
		{"gpt_oss", 4},           // with biases, and windows
		{"deepseek2", 2},         // its first layer is dense
		{"qwen2moe", 2},          // with gated shared experts
		{"gemma4_moe", 4},        // with a dense layer beside the experts, and scales of layers
		{"granitehybrid_moe", 4}, // with recurrent state
		{"nemotron_h_moe", 0},    // experts are layers of their own, without a norm
	} {
		dir := fixtures.Path(t, "logits", c.name)
		g := readGolden(t, dir)
		f, err := gguf.Parse(readFile(t, filepath.Join(dir, "f32.gguf")))
		if err != nil {
			t.Fatal(err)
		}
		whole := open(t, f, openRef, gguf.F32)
		layers := len(whole.Config().Layers)
		var want [][][]float32
		for _, tokens := range g.Sequences[:2] {
			want = append(want, feed(t, whole, tokens, 0))
		}
		load := func(t *testing.T, dev, elsewhere device.Device, firstStage, experts int) *model.Model {
			stages := []model.Stage{{Device: dev, Layers: layers}}
			if firstStage > 0 {
				other := ref.New()
				t.Cleanup(func() { other.Close() })
				stages = []model.Stage{{Device: dev, Layers: firstStage}, {Device: other, Layers: layers - firstStage}}
			}
			m, err := model.LoadStages(t.Context(), f, stages, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64, Experts: model.Stage{Device: elsewhere, Layers: experts}})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		compare := func(t *testing.T, m *model.Model, tolerance float64) {
			for s, tokens := range g.Sequences[:2] {
				for i, row := range feed(t, m, tokens, 0) {
					for k, v := range row {
						if d := math.Abs(float64(v) - float64(want[s][i][k])); !(d <= tolerance) {
							t.Fatalf("sequence %d, row %d: logit %d differs by %g", s, i, k, d)
						}
					}
				}
			}
		}
		for experts := 1; experts <= layers; experts++ {
			for _, firstStage := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s, experts of %d of %d layers, stages after %d", c.name, experts, layers, firstStage), func(t *testing.T) {
					reads, writes := 0, 0
					elsewhere := copies{ref.New(), &reads, &writes}
					defer elsewhere.Close()
					dev := ref.New()
					defer dev.Close()
					m := load(t, dev, elsewhere, firstStage, experts)
					compare(t, m, 0)
					if steps := 2; reads != writes || reads > steps*c.apart || experts == layers && reads != steps*c.apart {
						t.Errorf("%d copies to and %d from the device with the experts in %d steps", writes, reads, steps)
					}
				})
			}
		}
		if c.name == "mixtral" {
			t.Run("mixtral on the GPU with experts on the CPU", func(t *testing.T) {
				gpu, err := cudaOpener(t)()
				if err != nil {
					t.Fatal(err)
				}
				defer gpu.Close()
				cpu, err := openCPU()
				if err != nil {
					t.Fatal(err)
				}
				defer cpu.Close()
				compare(t, load(t, gpu, cpu, 0, 1), 1e-3)
			})
		}
	}
}
