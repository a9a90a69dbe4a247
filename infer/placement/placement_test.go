package placement

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

const mb, gb = int64(1) << 20, int64(1) << 30

// llama1B is the shape of Llama 3.2 1B: in F16 a block of 32 positions takes 1 MiB, so 8,192
// positions 256 MiB, 16 MiB of them in each layer.
var llama1B = model.Config{Architecture: "llama", ContextLength: 131072, Dim: 2048, Vocab: 128256, Layers: slices.Repeat([]model.Layer{{
	Attention: device.Attention{Heads: 32}, KVHeads: 8, HeadDim: 64, FFNDim: 8192, RoPE: device.RoPE{HeadDim: 64, Dims: 64},
}}, 16)}

// parts1B are its parts, each layer 64 MiB.
var parts1B = model.Parts{Embedding: 300 * mb, Output: 300 * mb, Layers: slices.Repeat([]int64{64 * mb}, 16)}

// scratch1B is what it takes apart from weights and cache in steps of 16 answers.
var scratch1B = StepLimitsOf(16, 256).Scratch(llama1B)

func TestAModelOnOneDeviceGetsTheContextThatFits(t *testing.T) {
	short := llama1B
	short.ContextLength = 2048
	tests := []struct {
		name    string
		config  model.Config
		free    int64 // alongside weights and scratch; -1: the device does not know
		wanted  int
		cache   device.CacheType
		context int
		blocks  int
		notice  string
		refused string
	}{
		{"plenty of memory gives the model's own context", llama1B, 64 * gb, 0, device.CacheOf(gguf.F16), 131072, 4096, "", ""},
		{"a short context gets room for all answers at once", short, 64 * gb, 0, device.CacheOf(gguf.F16), 2048, 1024, "", ""},
		{"half of what is free becomes cache", llama1B, 2 * gb, 0, device.CacheOf(gguf.F16), 32768, 1024, "32768 tokens instead of the model's 131072", ""},
		{"a cache of float32 holds half as many positions", llama1B, 2 * gb, 0, device.CacheOf(gguf.F32), 16384, 512, "16384", ""},
		{"a cache of q8_0 holds 32/17 as many positions", llama1B, 2 * gb, 0, device.CacheOf(gguf.Q8_0), 61664, 1927, "61664", ""},
		{"a cache of q8_0 and q4_0 holds more", llama1B, 2 * gb, 0, device.CacheType{Keys: gguf.Q8_0, Values: gguf.Q4_0}, 80640, 2520, "80640", ""},
		{"a cache of q4_0 holds 32/9 as many positions", llama1B, 2 * gb, 0, device.CacheOf(gguf.Q4_0), 116480, 3640, "116480", ""},
		{"a context that was asked for may take all that is free", llama1B, 2 * gb, 60000, device.CacheOf(gguf.F16), 60000, 1875, "", ""},
		{"a context that was asked for is rounded up to blocks", llama1B, 64 * gb, 33, device.CacheOf(gguf.F16), 33, 32, "", ""},
		{"no context is longer than what the model was trained on", short, 64 * gb, 4096, device.CacheOf(gguf.F16), 2048, 1024, "not trained on more", ""},
		{"an unknown memory gives two gigabytes of cache", llama1B, -1, 0, device.CacheOf(gguf.F16), 65536, 2048, "65536", ""},
		{"an unknown memory gives the context that was asked for", llama1B, -1, 131072, device.CacheOf(gguf.F16), 131072, 4096, "", ""},
		{"the context shrinks to 512 positions and no further", llama1B, 16 * mb, 0, device.CacheOf(gguf.F16), 512, 16, "512", ""},
		{"less than 512 positions are refused", llama1B, 15 * mb, 0, device.CacheOf(gguf.F16), 0, 0, "", "use a smaller model"},
		{"a context that was asked for and does not fit is refused", llama1B, 1 * gb, 60000, device.CacheOf(gguf.F16), 0, 0, "", "use a smaller model or a shorter --ctx"},
		{"weights that do not fit are refused", llama1B, -2 * gb, 0, device.CacheOf(gguf.F16), 0, 0, "", "weights 1.2 GB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			const weights = 1.2e9
			free := weights + scratch1B + Spare + tt.free
			if tt.free == -1 {
				free = 0
			}
			if tt.free < -1 {
				free = weights / 2
			}
			d := Device{Info: device.Info{Memory: free}, Weights: weights, Scratch: scratch1B}
			p, err := Place(ModelOf(tt.config, tt.cache), []Device{d}, Limits{Context: tt.wanted, Answers: 16})
			if tt.refused != "" {
				var e *Error
				if !errors.As(err, &e) || !strings.Contains(e.Reason, tt.refused) {
					t.Errorf("error %v, want one with %q", err, tt.refused)
				}
				return
			}
			if err != nil || p.Context != tt.context || p.Blocks != tt.blocks || (p.Notice == "") != (tt.notice == "") || !strings.Contains(p.Notice, tt.notice) {
				t.Errorf("%+v, %v; want context %d, %d blocks and a notice of %q", p, err, tt.context, tt.blocks, tt.notice)
			}
			if want := []Stage{{0, 16}}; !slices.Equal(p.Stages, want) || p.Reason != "" {
				t.Errorf("stages %+v, reason %q, want %+v and none", p.Stages, p.Reason, want)
			}
		})
	}
}

func TestARefusalAddsUpWhatTakesTheMemory(t *testing.T) {
	const million = 1_000_000
	d := Device{Info: device.Info{Memory: 1000 * million, Dedicated: true}, Weights: 600 * million, Scratch: 100 * million}
	for _, tt := range []struct {
		name  string
		state int64
		block int64
		want  string
	}{
		{"a cache counts", 0, 25 * million, "1.1 GB (weights 600 MB, KV cache for 512 positions 400 MB, scratch and reserve 100 MB)"},
		{"recurrent state counts as scratch", 50 * million, 10 * million, "1.1 GB (weights 600 MB, KV cache for 512 positions 160 MB, scratch and reserve 300 MB)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Place(Model{Context: 512, Cache: []int64{tt.block}, State: []int64{tt.state}}, []Device{d}, Limits{Answers: 1})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestADedicatedDeviceGivesNearlyAllItHasToTheCache(t *testing.T) {
	d := Device{Info: device.Info{Memory: gb + scratch1B + 2*gb, Dedicated: true}, Weights: gb, Scratch: scratch1B}
	for _, c := range []struct {
		name         string
		fixed, block int64
		want         int
	}{
		{"blocks of 1 MiB", 0, 0, 2 * 1024 / 8 * 7},
		{"a workspace, and 1 MiB more for each block", gb, mb, 1024 / 2 / 8 * 7},
	} {
		d.Scratch, d.Block = scratch1B+c.fixed, c.block
		p, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), []Device{d}, Limits{Answers: 16})
		if err != nil || p.Blocks != c.want || p.Taken != int64(c.want)*mb || p.Groups[0].Block != 0 {
			t.Errorf("%s: %+v, %v, want %d blocks that are taken at once", c.name, p, err, c.want)
		}
	}
}

func TestAModelIsDividedAmongTheFewestDevices(t *testing.T) {
	card := func(name string, free int64) Device { // free alongside the output layer and scratch
		return Device{
			Info:    device.Info{Name: name, Memory: parts1B.Output + scratch1B + free, Dedicated: true},
			Weights: parts1B.Embedding + 16*64*mb, Parts: parts1B, Scratch: scratch1B, // the output layer is the embedding table
		}
	}
	host := func(free int64) Device { // free alongside the embedding table and scratch
		d := card("the CPU", 0)
		d.Info = device.Info{Name: "the CPU", Memory: parts1B.Embedding + scratch1B + Spare + free}
		return d
	}
	// Where devices share it, n layers with f MiB alongside what else is there have room for
	// (f - 64 n) / 8 * 7 / n * 16 blocks; the division is the one with most.
	for _, c := range []struct {
		name    string
		devices []Device
		wanted  int
		stages  []Stage
		context int    // at least
		reason  string // or, where there are no stages, the error
	}{
		{"one device holds all", []Device{card("A", 2*gb), card("B", 64*gb), host(64 * gb)}, 0, []Stage{{0, 16}}, 8192, ""},
		{"the first of several that does alone gets it", []Device{card("A", 100*mb), card("B", 64*gb), host(64 * gb)}, 0, []Stage{{1, 16}}, 131072, ""},
		{"two of one size share it evenly where the cache can grow", []Device{card("A", 1400*mb), card("B", 1400*mb)}, 131072 / 4, []Stage{{0, 8}, {1, 8}}, 131072 / 4, "8 of 16 layers are on A and 8 are on B"},
		{"two of different memory", []Device{card("A", 600*mb), card("B", 900*mb)}, 0, []Stage{{0, 6}, {1, 10}}, 364 * 32, "no device has room for all of it: 6 of 16 layers are on A and 10 are on B"},
		{"three, one of which is small", []Device{card("A", 600*mb), card("B", 200*mb), card("C", 800*mb)}, 0, []Stage{{0, 5}, {1, 4}, {2, 7}}, 704 * 32, "5 of 16 layers are on A, 4 are on B and 7 are on C"},
		{"one too small for a layer is left out", []Device{card("A", 800*mb), card("B", -250*mb), card("C", 800*mb)}, 0, []Stage{{0, 8}, {2, 8}}, 8192, "8 of 16 layers are on A and 8 are on C"},
		{"as many layers as have room for a common context go to the device", []Device{card("A", 500*mb), host(64 * gb)}, 0, []Stage{{1, 10}, {0, 6}}, 8192, "6 of 16 layers are on A, which has no room for more; the others are on the CPU"},
		{"what is left over is context", []Device{card("A", 80*mb*8/7+100*mb), host(64 * gb)}, 0, []Stage{{1, 14}, {0, 2}}, 8192, "2 of 16"},
		{"nothing fits on the device", []Device{card("A", 70*mb), host(64 * gb)}, 0, []Stage{{1, 16}}, 131072, "running on the CPU: not one layer of the model fits on A, where"},
		{"a context that was asked for takes the place of layers", []Device{card("A", 500*mb), host(64 * gb)}, 65536, []Stage{{1, 14}, {0, 2}}, 65536, "2 of 16"},
		{"two devices and main memory", []Device{card("A", 500*mb), card("B", 300*mb), host(64 * gb)}, 0, nil, 8192, "are on A"},
		{"the rest does not fit in main memory", []Device{card("A", 500*mb), host(500 * mb)}, 0, nil, 0, "where 6 of 16 layers are on A the others need"},
		{"two are too small together", []Device{card("A", 300*mb), card("B", 300*mb)}, 0, nil, 0, "more than 2 devices hold together: A, where"},
		{"one is too small for a context that was asked for", []Device{card("A", 2*gb)}, 131072, nil, 0, "or a shorter --ctx"},
		{"there is none", nil, 0, nil, 0, "no device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits := Limits{Context: c.wanted, Answers: 16}
			p, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), c.devices, limits)
			if c.context == 0 {
				if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Reason, c.reason) {
					t.Errorf("error %v, want one that says %q", err, c.reason)
				}
				return
			}
			if err != nil || p.Context < c.context || p.Blocks < c.context/device.BlockSize || !strings.Contains(p.Reason, c.reason) {
				t.Errorf("%+v, %v; want a context of at least %d and the reason %q", p, err, c.context, c.reason)
			}
			if c.stages != nil && !slices.Equal(p.Stages, c.stages) {
				t.Errorf("stages %+v, want %+v", p.Stages, c.stages)
			}
			checkMemory(t, c.devices, p)
			// The same sizes give the same plan, also where the devices come one by one.
			for n := 1; n <= len(c.devices); n++ {
				if first, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), c.devices[:n], limits); err == nil && !reflect.DeepEqual(first, p) {
					t.Errorf("the first %d devices get %+v, all get %+v", n, first, p)
				}
			}
		})
	}
}

// checkMemory adds up what a plan puts on each device.
func checkMemory(t *testing.T, devices []Device, p Plan) {
	t.Helper()
	at := 0
	for _, s := range p.Stages {
		d := devices[s.Device]
		takes := d.Scratch + int64(s.Layers)*(64*mb+int64(p.Blocks)*64<<10)
		if at == 0 {
			takes += parts1B.Embedding
		}
		if at += s.Layers; at == 16 && s.Layers < 16 {
			takes += parts1B.Output
		}
		if takes > d.Memory {
			t.Errorf("%d MiB are planned on %s, which has %d", takes/mb, d.Name, d.Memory/mb)
		}
	}
	if at != 16 {
		t.Errorf("%d of 16 layers are placed", at)
	}
}

// gemmaLike is a model of the shape of Gemma 3 4B: of each six layers five attend to 1,024 positions.
func gemmaLike() (c model.Config) {
	c.ContextLength, c.Vocab = 131072, 262144
	for i := range 34 {
		l := model.Layer{KVHeads: 4, HeadDim: 256}
		if i%6 != 5 {
			l.Window = 1024
		}
		c.Layers = append(c.Layers, l)
	}
	return c
}

func TestAModelIsDividedAmongAllDevicesOnRequest(t *testing.T) {
	card := func(name string, memory int64) Device {
		return Device{Info: device.Info{Name: name, Memory: memory, Dedicated: true}, Weights: parts1B.Embedding + 16*64*mb, Parts: parts1B, Scratch: scratch1B}
	}
	host := Device{Info: device.Info{Name: "the CPU", Memory: 64 * gb}, Weights: parts1B.Embedding + 16*64*mb, Parts: parts1B, Scratch: scratch1B}
	for _, c := range []struct {
		name    string
		devices []Device
		among   int
		shared  int
		stages  []Stage
		reason  string
	}{
		{"no request", []Device{card("A", 24*gb), card("B", 24*gb)}, 0, 0, []Stage{{0, 16}}, ""},
		{"one device", []Device{card("A", 24*gb), card("B", 24*gb)}, 1, 0, []Stage{{0, 16}}, ""},
		{"two of one size", []Device{card("A", 24*gb), card("B", 24*gb)}, 2, 0, []Stage{{0, 8}, {1, 8}}, "divided as requested: 8 of 16 layers are on A and 8 are on B"},
		{"two of three", []Device{card("A", 24*gb), card("B", 24*gb), card("C", 24*gb)}, 2, 0, []Stage{{0, 8}, {1, 8}}, "8 are on B"},
		{"three", []Device{card("A", 24*gb), card("B", 24*gb), card("C", 24*gb)}, 3, 0, []Stage{{0, 5}, {1, 6}, {2, 5}}, "and 5 are on C"},
		{"shares are like those of the memory", []Device{card("A", 24*gb), card("B", 8*gb)}, 2, 0, []Stage{{0, 12}, {1, 4}}, "12 of 16 layers are on A"},
		{"a device gets a layer at least", []Device{card("A", 800*gb), card("B", 2*gb)}, 2, 0, []Stage{{0, 15}, {1, 1}}, "1 are on B"},
		{"layers that must not be parted", []Device{card("A", 24*gb), card("B", 24*gb)}, 2, 3, []Stage{{0, 3}, {1, 13}}, "13 are on B"},
		{"where shares do not fit, as much as fits", []Device{card("A", 700*mb), card("B", 700*mb), host}, 2, 0, nil, "which has no room for more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := ModelOf(llama1B, device.CacheOf(gguf.F16))
			m.Shared = c.shared
			p, err := Place(m, c.devices, Limits{Answers: 1, Among: c.among})
			if err != nil || c.stages != nil && !slices.Equal(p.Stages, c.stages) || !strings.Contains(p.Reason, c.reason) || (p.Reason == "") != (c.reason == "") {
				t.Fatalf("%+v, %v; want stages %+v and the reason %q", p, err, c.stages, c.reason)
			}
		})
	}
}

func TestLayersWithAWindowTakeTheMemoryOfTheirWindows(t *testing.T) {
	windows := ModelOf(gemmaLike(), device.CacheOf(gguf.F16))
	whole := windows
	whole.Windows, whole.Group = nil, nil
	const weights, scratch = 5 * gb / 2, gb / 2
	for _, c := range []struct {
		name            string
		answers         int
		free            int64 // alongside weights and scratch; half of it is left to other programs
		without, within int   // context
	}{
		{"little memory", 16, gb, 3840, 9504},
		{"one answer in little memory", 1, gb, 3840, 17472},
		{"a machine of 8 GB", 16, 4 * gb, 15392, 49728},
		{"a machine of 16 GB", 16, 12 * gb, 46240, 131072},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Device{Info: device.Info{Memory: weights + scratch + Spare + c.free}, Weights: weights, Scratch: scratch}
			limits := Limits{Answers: c.answers}
			before, err := Place(whole, []Device{d}, limits)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Place(windows, []Device{d}, limits)
			if err != nil || before.Context != c.without || p.Context != c.within {
				t.Errorf("context %d, without windows %d, %v; want %d and %d", p.Context, before.Context, err, c.within, c.without)
			}
			span := model.CacheGroup{Window: 1024}.Span(defaultRows)
			if len(p.Groups) != 2 || p.Groups[0].Blocks < min(span, p.Blocks) || p.Groups[1].Blocks != p.Blocks || p.Planned() > c.free/2 {
				t.Errorf("%+v with %d bytes: a window needs %d blocks", p.Groups, p.Planned(), span)
			}
			if a, b := p.Groups[1].Block/device.BlockSize, before.Groups[0].Block/device.BlockSize; a != 20480 || b != 139264 {
				t.Errorf("a token beyond the window takes %d bytes, without windows %d", a, b)
			}
		})
	}
}

// mixture1B is parts1B with experts that take three quarters of each layer but the first, which is dense.
func mixture1B() model.Parts {
	parts := parts1B
	parts.Experts = append([]int64{0}, slices.Repeat([]int64{48 * mb}, 15)...)
	return parts
}

func TestExpertsThatDoNotFitStayInMainMemory(t *testing.T) {
	device1B := func(info device.Info) Device {
		return Device{Info: info, Weights: parts1B.Embedding + 16*64*mb, Parts: mixture1B(), Scratch: scratch1B}
	}
	card := func(name string, free int64) Device { // free alongside the output layer and scratch
		return device1B(device.Info{Name: name, Memory: parts1B.Output + scratch1B + free, Dedicated: true})
	}
	host := func(free int64) Device { // free alongside scratch
		return device1B(device.Info{Name: "the CPU", Memory: scratch1B + Spare + free})
	}
	// A common context takes 256 MiB of the cache, for which 293 MiB have to be free.
	for _, c := range []struct {
		name    string
		devices []Device
		stages  []Stage
		experts Stage
		reason  string
	}{
		{"all fit", []Device{card("A", 4*gb), host(64 * gb)}, []Stage{{0, 16}}, Stage{}, ""},
		{"those of some layers do not fit", []Device{card("A", 800*mb), host(64 * gb)}, []Stage{{0, 16}}, Stage{1, 12}, "the experts of 12 of 16 layers are on the CPU, because A has no room for them"},
		{"those of no layer fit", []Device{card("A", 600*mb), host(64 * gb)}, []Stage{{0, 16}}, Stage{1, 16}, "the experts of 16 of 16 layers"},
		{"not even the rest fits", []Device{card("A", 500*mb), host(64 * gb)}, []Stage{{1, 10}, {0, 6}}, Stage{}, "6 of 16 layers are on A"},
		{"main memory has just room for them", []Device{card("A", 800*mb), host(11 * 48 * mb)}, []Stage{{0, 16}}, Stage{1, 12}, "12 of 16"},
		{"two devices share the rest", []Device{card("A", 400*mb), card("B", 400*mb), host(64 * gb)}, []Stage{{0, 10}, {1, 6}}, Stage{2, 12}, "because A and B have no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), c.devices, Limits{Answers: 16})
			if err != nil || !slices.Equal(p.Stages, c.stages) || p.Experts != c.experts || p.Context < CommonContext || !strings.Contains(p.Reason, c.reason) || (p.Reason == "") != (c.reason == "") {
				t.Fatalf("%+v, %v; want stages %+v, experts %+v and the reason %q", p, err, c.stages, c.experts, c.reason)
			}
			takes := make([]int64, len(c.devices)) // main memory may do without its half for the cache
			at := 0
			for _, s := range p.Stages {
				d := c.devices[s.Device]
				if takes[s.Device] += d.Scratch; at == 0 || at+s.Layers == 16 {
					takes[s.Device] += 300 * mb // embedding table and output layer, which are the same
				}
				for layer := at; layer < at+s.Layers; layer++ {
					takes[s.Device] += 64*mb + int64(p.Blocks)*64<<10
					if layer < p.Experts.Layers {
						takes[s.Device] -= d.Parts.Experts[layer]
						takes[p.Experts.Device] += d.Parts.Experts[layer]
					}
				}
				at += s.Layers
			}
			for i, d := range c.devices {
				if takes[i] > d.Memory {
					t.Errorf("%d MiB are planned on %s, which has %d", takes[i]/mb, d.Name, d.Memory/mb)
				}
			}
		})
	}
	streams := func(d Device) Device {
		d.Parts.Streams, d.Parts.Parted = true, d.Parts.Experts
		return d
	}
	const experts, pages = 48 * mb, 2 // bytes of a layer; copies, and pages of the file
	for _, c := range []struct {
		name    string
		devices []Device
		layers  int
		stream  bool
	}{
		{"a region for each of two layers costs the place of two more", []Device{streams(card("A", 800*mb)), host(64 * gb)}, 14, true},
		{"main memory has just room for pages of the file", []Device{streams(card("A", 800*mb)), host(13 * pages * experts)}, 14, true},
		{"main memory has no room for them", []Device{streams(card("A", 800*mb)), host(13*pages*experts - 1)}, 12, false},
		{"the GPU has no room for the regions", []Device{streams(card("A", 600*mb)), host(64 * gb)}, 16, false},
		{"one of two GPUs cannot copy weights", []Device{streams(card("A", 400*mb)), card("B", 400*mb), host(64 * gb)}, 12, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), c.devices, Limits{Answers: 16})
			if err != nil || p.Experts.Layers != c.layers || p.Stream != c.stream || strings.Contains(p.Reason, "for prompts they are copied") != c.stream {
				t.Errorf("the experts of %d layers, copied: %v, %q, %v; want %d, %v", p.Experts.Layers, p.Stream, p.Reason, err, c.layers, c.stream)
			}
			if use := p.Uses[0].Weights + p.Uses[0].Cache + p.Uses[0].Work; use > c.devices[0].Memory {
				t.Errorf("%d MiB are planned on A, which has %d", use/mb, c.devices[0].Memory/mb)
			}
		})
	}
	if p, err := Place(ModelOf(llama1B, device.CacheOf(gguf.F16)), []Device{card("A", 800*mb), host(11*48*mb - 1)}, Limits{Answers: 16}); err == nil {
		t.Errorf("%+v is planned where main memory has no room for the experts", p)
	}
}

// A device has room for the first parts; each further one, which an expert layer elsewhere ends, takes its share of the memory.
func TestManyPartsOfAModelTakeMemoryOfTheirDevice(t *testing.T) {
	parts := model.Parts{Layers: slices.Repeat([]int64{100 * mb}, 40), Experts: slices.Repeat([]int64{80 * mb}, 40)}
	p := newPlacer(Model{Context: 512, Cache: make([]int64, 40)}, []Device{{Parts: parts}}, Limits{Answers: 1})
	fixed := func(stage int64, experts int) int64 {
		p.experts = experts
		d := Device{Info: device.Info{StageBytes: stage, Dedicated: true}, Weights: 40 * 100 * mb, Parts: parts}
		return p.need(d, 0, 40).fixed
	}
	for experts, more := range map[int]int64{0: 0, device.FewStages: 0, device.FewStages + 1: 3 * mb, 40: (40 - device.FewStages) * 3 * mb} {
		if got := fixed(3*mb, experts) - fixed(0, experts); got != more {
			t.Errorf("with the experts of %d layers elsewhere, the parts take %d MiB, want %d", experts, got/mb, more/mb)
		}
	}
}
