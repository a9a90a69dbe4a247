package cuda_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// Two GPUs that are each too small for a model, or that are both requested, answer as one that is large enough.
func TestAnEngineDividesAModelAmongGPUs(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	file := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Layers: 4, Context: 128})
	const answers, rows = 2, 8

	ask := func(ordinals ...int) (text string, status infer.Status) {
		t.Helper()
		e, err := engine.Open(engine.Options{
			Catalog:     oneModel{file},
			OpenDevice:  func(*gguf.File) (device.Device, error) { return cuda.OpenOrdinals(ordinals...) },
			MoreDevices: func() iter.Seq2[device.Device, error] { return cuda.Devices(1, ordinals...) },
			Among:       len(ordinals),
			Model:       "tiny",
			ChunkRows:   rows,
			Parallel:    answers,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for seed := range int64(3) {
			r := infer.DefaultRequest()
			r.Prompt, r.MaxTokens, r.Params.Seed, r.IgnoreEOS = "once upon a time", 30, seed+1, true
			for event, err := range e.Generate(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if event.Token != nil {
					text += fmt.Sprint(event.Token.ID, " ", event.Token.LogProb, "\n")
				}
			}
		}
		return text, e.Status()
	}
	want, whole := ask()

	t.Setenv("M40_LLM_EMU_DEVICES", "2")
	requested, status := ask(1, 0)
	if n := status.Device.Notice; requested != want || !strings.Contains(n, "divided as requested: 2 of 4 layers are on") {
		t.Errorf("two GPUs that are both requested say\n%s, notice %q, want what one says\n%s", requested, n, want)
	}
	if alone, status := ask(1); alone != want || status.Device.Notice != whole.Device.Notice {
		t.Errorf("the second GPU says\n%s, notice %q, want what one says\n%s", alone, status.Device.Notice, want)
	}
	for _, missing := range [][]int{{2}, {0, 2}} {
		if err := cuda.Check(missing...); err == nil || !strings.Contains(err.Error(), "there is no GPU 2: the driver lists 2") {
			t.Errorf("a check of the GPUs %v says %v", missing, err)
		}
	}
	t.Setenv("M40_LLM_EMU_MEMORY", fmt.Sprint(tooSmall(t, file, answers, rows)))
	got, divided := ask()
	if got != want || strings.Count(want, "\n") != 90 {
		t.Errorf("two GPUs say\n%s, want what one says\n%s", got, want)
	}
	if n := divided.Device.Notice; divided.Device.Name != whole.Device.Name+" (GPU 0) and "+whole.Device.Name+" (GPU 1)" || !strings.Contains(n, "of 4 layers are on") {
		t.Errorf("the model is on %q, notice %q", divided.Device.Name, n)
	}
	if divided.ContextLength != whole.ContextLength {
		t.Errorf("context of %d, want %d", divided.ContextLength, whole.ContextLength)
	}
}

// tooSmall returns a memory in which the model in file just does not fit.
func tooSmall(t *testing.T, file []byte, answers, rows int) int64 {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cuda.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d, err := placement.DeviceOf(f, config, dev, device.CacheOf(gguf.F16), placement.StepLimitsOf(answers, rows))
	if err != nil {
		t.Fatal(err)
	}
	block := config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes() + d.Block
	return cuda.Reserve + d.Weights + d.Scratch + int64(config.ContextLength/device.BlockSize)*block - 1
}
