package model_test

import (
	"errors"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// reserving is a device that records the order in which a model is loaded on it.
type reserving struct {
	device.Device
	calls *[]string
	fails bool // to compile
}

func (d reserving) Reserve(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	*d.calls = append(*d.calls, "reserve")
	return d.Upload(t, rows, cols, data)
}

func (d reserving) Fill(device.Tensor) error {
	*d.calls = append(*d.calls, "fill")
	return nil
}

func (d reserving) AllocKV(l device.KVLayout) (device.KV, error) {
	*d.calls = append(*d.calls, "cache")
	return d.Device.AllocKV(l)
}

func (d reserving) Compile(p *device.Program) (device.Executable, error) {
	*d.calls = append(*d.calls, "compile")
	if d.fails {
		return nil, device.ErrMemory
	}
	return d.Device.Compile(p)
}

func TestEverythingIsAllocatedBeforeAWeightIsCopied(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Layers: 2}))
	if err != nil {
		t.Fatal(err)
	}
	for name, fails := range map[string]bool{"it fits": false, "the memory runs out": true} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			read := int64(0)
			o := model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 8, Progress: func(p model.Progress) { read = p.Done }}
			d := reserving{ref.New(), &calls, fails}
			_, err := model.Load(t.Context(), f, d, o)
			order := slices.Compact(slices.Clone(calls))
			if fails {
				failed, ok := errors.AsType[*model.DeviceError](err)
				if !ok || failed.Device != d || !errors.Is(err, device.ErrMemory) || read > 0 || slices.Contains(calls, "fill") {
					t.Errorf("got %v after %v, with %d bytes read", err, order, read)
				}
				return
			}
			if err != nil || !slices.Equal(order, []string{"reserve", "cache", "compile", "fill"}) || read != model.WeightBytes(f) {
				t.Errorf("the order is %v, %v, with %d bytes read", order, err, read)
			}
			count := func(call string) (n int) {
				for _, c := range calls {
					if c == call {
						n++
					}
				}
				return n
			}
			if count("fill") != count("reserve") {
				t.Errorf("%d weights are reserved and %d filled", count("reserve"), count("fill"))
			}
		})
	}
}
