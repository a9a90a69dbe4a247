package infer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

func TestPlanMemory(t *testing.T) {
	const mb, gb = 1 << 20, 1 << 30
	// The shape of Llama 3.2 1B: a block of 32 positions takes 1 MiB in F16.
	shape := llamaShape().config
	short := shape
	short.ContextLength = 2048
	l := limits{sequences: 16, rows: 256, logits: 48}
	scratch := scratchBytes(shape, l)
	tests := []struct {
		name    string
		config  model.Config
		free    int64 // beside weights and scratch; -1: the device does not know
		wanted  int
		cache   gguf.Type
		context int
		blocks  int
		notice  string
		refused string
	}{
		{"plenty of memory gives the model's own context", shape, 64 * gb, 0, gguf.F16, 131072, 4096, "", ""},
		{"a short context gets room for all answers at once", short, 64 * gb, 0, gguf.F16, 2048, 1024, "", ""},
		{"half of what is free becomes cache", shape, 2 * gb, 0, gguf.F16, 32768, 1024, "32768 tokens instead of the model's 131072", ""},
		{"a cache of float32 holds half as many positions", shape, 2 * gb, 0, gguf.F32, 16384, 512, "16384", ""},
		{"a context that was asked for may take all that is free", shape, 2 * gb, 60000, gguf.F16, 60000, 1875, "", ""},
		{"a context that was asked for is rounded up to blocks", shape, 64 * gb, 33, gguf.F16, 33, 32, "", ""},
		{"no context is longer than what the model was trained on", short, 64 * gb, 4096, gguf.F16, 2048, 1024, "not trained on more", ""},
		{"an unknown memory gives two gigabytes of cache", shape, -1, 0, gguf.F16, 65536, 2048, "65536", ""},
		{"an unknown memory gives the context that was asked for", shape, -1, 131072, gguf.F16, 131072, 4096, "", ""},
		{"the context shrinks to 512 positions and no further", shape, 16 * mb, 0, gguf.F16, 512, 16, "512", ""},
		{"less than 512 positions are refused", shape, 15 * mb, 0, gguf.F16, 0, 0, "", "use a smaller model"},
		{"a context that was asked for and does not fit is refused", shape, 1 * gb, 60000, gguf.F16, 0, 0, "", "use a smaller model or a shorter --ctx"},
		{"weights that do not fit are refused", shape, -2 * gb, 0, gguf.F16, 0, 0, "", "weights 1.2 GB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const weights = 1.2e9
			free := weights + scratch + spareMemory + tt.free
			if tt.free == -1 {
				free = 0
			}
			if tt.free < -1 {
				free = weights / 2
			}
			p, err := planMemory(tt.config.ContextLength, demandOf(tt.config, weights, workspace{}, tt.cache, l), device.Info{Memory: free}, tt.wanted, l)
			if tt.refused != "" {
				var e *Error
				if !errors.As(err, &e) || e.Code != CodeMemory || !strings.Contains(e.Message, tt.refused) {
					t.Errorf("error %v, want %s with %q", err, CodeMemory, tt.refused)
				}
				return
			}
			if err != nil || p.context != tt.context || p.blocks != tt.blocks || (p.notice == "") != (tt.notice == "") || !strings.Contains(p.notice, tt.notice) {
				t.Errorf("%+v, %v; want context %d, %d blocks and a notice of %q", p, err, tt.context, tt.blocks, tt.notice)
			}
		})
	}
}

func TestADedicatedDeviceGivesNearlyAllItHasToTheCache(t *testing.T) {
	const gb = 1 << 30
	shape := llamaShape().config
	l := limits{sequences: 16, rows: 256, logits: 48}
	info := device.Info{Memory: gb + scratchBytes(shape, l) + 2*gb, Dedicated: true}
	p, err := planMemory(shape.ContextLength, demandOf(shape, gb, workspace{}, gguf.F16, l), info, 0, l)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * 1024 / 8 * 7; p.blocks != want { // blocks of 1 MiB
		t.Errorf("%d blocks, want %d", p.blocks, want)
	}
}

func TestThePlanCountsTheWorkspaceOfTheDevice(t *testing.T) {
	const mb, gb = int64(1) << 20, int64(1) << 30
	shape := llamaShape().config
	l := limits{sequences: 16, rows: 256, logits: 48}
	info := device.Info{Memory: gb + scratchBytes(shape, l) + 2*gb, Dedicated: true}
	p, err := planMemory(shape.ContextLength, demandOf(shape, gb, workspace{fixed: gb, block: mb}, gguf.F16, l), info, 0, l)
	if err != nil {
		t.Fatal(err)
	}
	if want := 1024 / 2 / 8 * 7; p.blocks != want { // a block takes 1 MiB of cache and 1 MiB beside
		t.Errorf("%d blocks, want %d", p.blocks, want)
	}
	parts := model.Parts{Embedding: 300 * mb, Output: 300 * mb, Layers: slices.Repeat([]int64{64 * mb}, 16)}
	info.Memory = parts.Output + scratchBytes(shape, l) + gb + 500*mb
	layers, p, err := planSplit(shape, parts, parts, workspace{fixed: gb, block: mb / 8}, info, device.Info{}, gguf.F16, 0, l)
	if used := int64(layers)*64*mb + int64(p.blocks)*(int64(layers)*mb/16+mb/8); err != nil || layers != 5 || used > 500*mb {
		t.Errorf("%d layers, %+v, %v; they take %d of %d MiB", layers, p, err, used/mb, 500)
	}
}

func TestPlanSplit(t *testing.T) {
	const mb, gb = int64(1) << 20, int64(1) << 30
	// The shape of Llama 3.2 1B: a block of 32 positions takes 64 KiB in F16 for a layer, so
	// 8,192 positions 16 MiB.
	shape := llamaShape().config
	l := limits{sequences: 16, rows: 256, logits: 48}
	scratch := scratchBytes(shape, l)
	parts := model.Parts{Embedding: 300 * mb, Output: 300 * mb, Layers: slices.Repeat([]int64{64 * mb}, 16)}
	for _, c := range []struct {
		name    string
		device  int64 // beside the output layer and scratch
		host    int64 // the same, with the embedding table
		wanted  int
		layers  int
		context int
		refused string
	}{
		{"as many layers as have room for a common context go to the device", 500 * mb, 64 * gb, 0, 6, 8192, ""},
		{"what is left over is context", 80*mb*8/7 + 100*mb, 64 * gb, 0, 2, 8192, ""},
		{"nothing fits", 70 * mb, 64 * gb, 0, 0, 0, ""},
		{"a context that was asked for takes the place of layers", 500 * mb, 64 * gb, 65536, 2, 65536, ""},
		{"the rest does not fit in main memory", 500 * mb, 500 * mb, 0, 0, 0, "6 of 16 layers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := device.Info{Name: "the card", Memory: parts.Output + scratch + c.device}
			host := device.Info{Memory: parts.Embedding + scratch + spareMemory + c.host}
			layers, plan, err := planSplit(shape, parts, parts, workspace{}, dev, host, gguf.F16, c.wanted, l)
			if c.refused != "" {
				var e *Error
				if !errors.As(err, &e) || e.Code != CodeMemory || !strings.Contains(e.Message, c.refused) {
					t.Errorf("error %v, want one that says %q", err, c.refused)
				}
				return
			}
			if err != nil || layers != c.layers || plan.context < c.context || (layers > 0) != (plan.blocks > 0) {
				t.Errorf("%d layers, %+v, %v; want %d with a context of at least %d", layers, plan, err, c.layers, c.context)
			}
			used := int64(layers)*64*mb + int64(layers)*64<<10*int64(plan.blocks)
			if layers > 0 && used > c.device {
				t.Errorf("%d bytes are planned for, %d are free", used, c.device)
			}
		})
	}
}
