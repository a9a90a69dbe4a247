package engine

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// halfOnly is a device without kernels for quantised KV caches.
type halfOnly struct{ device.Device }

func (halfOnly) Check(p *device.Program) error {
	for _, op := range p.Ops {
		if op.Kind == device.OpStoreKV && op.KV.Layout.Type != device.CacheOf(gguf.F16) {
			return errors.New("only f16")
		}
	}
	return nil
}

func TestEngine_ChoosesTheFormatOfTheCache(t *testing.T) {
	const context = 4096 // 128 blocks
	file := gguftest.TinyLlama(gguftest.Llama{Heads: 2, Context: context})
	for _, c := range []struct {
		name     string
		asks     string
		blocks   int // of f16, for which there is memory
		halfOnly bool
		format   string // of the loaded model; empty: it is not loaded
		context  int
		says     string // the notice, or the error
	}{
		{"f16 is the default", "", 200, false, "f16", context, ""},
		{"auto is f16 where the whole context fits", "auto", 128, false, "f16", context, ""},
		{"auto is q8_0 where it does not", "auto", 80, false, "q8_0", context, "the KV cache is q8_0, because the whole context does not fit with f16"},
		{"auto is q8_0 where it fits with neither", "auto", 40, false, "q8_0", 75 * 32, "the context is 2400 tokens instead of the model's 4096: more does not fit into memory; the KV cache is q8_0"},
		{"auto is f16 on a device without q8_0", "auto", 80, true, "f16", 80 * 32, "the context is 2560 tokens"},
		{"a format that a device lacks is refused", "q8_0", 200, true, "", 0, `cannot load model "toy": only f16`},
		{"keys and values have formats of their own", "q8_0/q4_0", 80, false, "q8_0/q4_0", context, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, func(b *bench, o *Options) {
					b.files["toy"], o.CacheType, o.Parallel = file, c.asks, 1
					f, err := gguf.Parse(file)
					if err != nil {
						t.Fatal(err)
					}
					config, err := model.ReadConfig(f)
					if err != nil {
						t.Fatal(err)
					}
					block := config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
					b.memory = model.WeightBytes(f) + placement.StepLimitsOf(1, 0).Scratch(config) + placement.Spare + 2*int64(c.blocks)*block
					if c.halfOnly {
						o.OpenDevice = func(f *gguf.File) (device.Device, error) {
							d, err := b.OpenDevice(f)
							return halfOnly{d}, err
						}
					}
				})
				err := b.WaitReady(t.Context())
				if c.format == "" {
					if e := fault.Of(fault.CodeInternal, err); e == nil || e.Code != fault.CodeDevice || !strings.Contains(e.Message, c.says) {
						t.Errorf("got %v, want %q", err, c.says)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				s := b.Status()
				if s.CacheType != c.format || s.ContextLength != c.context || (c.says == "") != (s.Notice == "") || !strings.Contains(s.Notice, c.says) {
					t.Errorf("format %s, context %d, notice %q; want %s, %d, %q", s.CacheType, s.ContextLength, s.Notice, c.format, c.context, c.says)
				}
				if a := b.ask(request(span(10, 20), 3)); a.err != nil || a.done.Receipt.CacheType != c.format {
					t.Errorf("an answer has the receipt %+v, %v", a.done, a.err)
				}
			})
		})
	}
}

// The plan of a GPU counts what its own buffers take.
func TestRealModel_AutoChoosesTheFormatOfTheCacheOfAGPU(t *testing.T) {
	const context = 1 << 20
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 128, Heads: 2, KVHeads: 1, Type: gguf.Q8_0, Context: context})
	for _, c := range []struct {
		name      string
		megabytes int // of the GPU's memory
		format    string
		whole     bool
		says      string
	}{
		{"f16 where the whole context fits", 1500, "f16", true, ""},
		{"q8_0 where it does not", 900, "q8_0", true, "the KV cache is q8_0, because the whole context does not fit with f16"},
		{"q8_0 where it fits with neither", 500, "q8_0", false, "more does not fit into memory; the KV cache is q8_0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			t.Setenv("M40_LLM_EMU_MEMORY", strconv.Itoa(c.megabytes*1e6))
			b := openReference(t, file, func(o *Options) {
				o.CacheType, o.OpenDevice = placement.AutoCache, func(*gguf.File) (device.Device, error) { return cuda.Open() }
			})
			s := b.Status()
			if s.CacheType != c.format || (s.ContextLength == context) != c.whole || (c.says == "") != (s.Notice == "") || !strings.Contains(s.Notice, c.says) {
				t.Errorf("format %s, context %d, notice %q", s.CacheType, s.ContextLength, s.Notice)
			}
			if a := b.ask(request(span(10, 20), 3)); a.err != nil || a.done.Receipt.CacheType != c.format {
				t.Errorf("an answer has the receipt %+v, %v", a.done, a.err)
			}
		})
	}
}

func TestEngine_SaysWhichLayersAreNotQuantized(t *testing.T) {
	b := newBench(t, func(b *bench, o *Options) { o.CacheType = "q8_0" })
	if err := b.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, want := b.Status(), "the KV cache of layers 0-1 stays f16: its heads have 16 elements, and q8_0 has blocks of 32"; !strings.Contains(s.Notice, want) {
		t.Errorf("got the notice %q, want %q", s.Notice, want)
	}
}
