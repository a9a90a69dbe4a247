package engine

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/ref"
)

// openReference starts an engine with the real forward pass on the reference
// device.
func openReference(t *testing.T, file []byte, set func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, files: map[string][]byte{"m": file}}
	o := Options{
		Catalog:    catalog{b},
		OpenDevice: func(*gguf.File) (device.Device, error) { return ref.New(), nil },
		Model:      "m",
	}
	if set != nil {
		set(&o)
	}
	b.openReady(o)
	return b
}

// openReady opens the engine of b and waits for its model.
func (b *bench) openReady(o Options) {
	b.t.Helper()
	e, err := Open(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { e.Close() })
	b.Engine = e
	if err := e.WaitReady(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func TestRealModel_AnswersBesideOthersAreTheSameBits(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})
	var requests []infer.Request
	for i := range 6 {
		r := infer.DefaultRequest()
		r.Messages = []chat.Message{{Role: "system", Content: "the same beginning for all of them"}, {Role: "user", Content: string(rune('a' + i))}}
		r.MaxTokens, r.IgnoreEOS, r.Alternatives, r.PromptLogProb = 16, true, 3, i%3 == 0
		r.Params.Temperature, r.Params.Seed = 1.2, int64(i)
		requests = append(requests, r)
	}
	alone := make([]outcome, len(requests))
	for i, r := range requests {
		alone[i] = openReference(t, file, nil).ask(r)
	}
	b := openReference(t, file, func(o *Options) { o.Parallel, o.ChunkRows = 4, 20 })
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			a := b.ask(r)
			// Log-probabilities are compared too, so this is about bits.
			if a.err != nil || len(a.tokens) != 16 || !reflect.DeepEqual(a.tokens, alone[i].tokens) || !reflect.DeepEqual(a.prompt, alone[i].prompt) {
				t.Errorf("request %d: %v, %v; alone %v, %v", i, a.ids(), a.err, alone[i].ids(), alone[i].err)
			}
		})
	}
	wg.Wait()
}

func TestRealModel_TheNextTurnComputesOnlyWhatIsNew(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{})
	b := openReference(t, file, nil)
	opening := request(span(3, 43), 20)
	opening.IgnoreEOS = true
	first := b.ask(opening)
	turn := request(slices.Concat(span(3, 43), first.ids(), span(100, 110)), 10)
	turn.Alternatives = 2
	a := b.ask(turn)
	if a.err != nil || a.done.Usage.CachedTokens != 59 {
		t.Fatalf("%+v, %v; want 59 cached tokens", a.done, a.err)
	}
	if fresh := openReference(t, file, nil).ask(turn); !reflect.DeepEqual(a.tokens, fresh.tokens) {
		t.Errorf("%v on a reused cache, %v on a fresh one", a.ids(), fresh.ids())
	}
}

// diskCatalog serves the file at a path.
type diskCatalog string

func (c diskCatalog) Models(context.Context) ([]infer.ModelInfo, error) { return nil, nil }

func (c diskCatalog) OwnTemplate(m infer.ModelInfo) (string, error) { return m.ChatTemplate, nil }

func (c diskCatalog) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	f, err := gguf.Open(string(c))
	return f, infer.ModelInfo{Name: name}, err
}

func TestRealModel_AFileThatIsCutShortInUseEndsTheAnswerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, gguftest.TinyLlama(gguftest.Llama{}), 0o600); err != nil {
		t.Fatal(err)
	}
	b := openReference(t, nil, func(o *Options) { o.Catalog = diskCatalog(path) })
	if a := b.ask(request(span(3, 43), 2)); a.err != nil {
		t.Fatal(a.err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if a := b.ask(request(span(3, 43), 2)); a.code() != fault.CodeModelFile {
		t.Errorf("error %v, want %s", a.err, fault.CodeModelFile)
	}
}

// TestRealModel_GreedyAnswersEqualTheReference asks for all sequences of a fixture at
// once and compares with what another program computed: greedy tokens up to the
// first step that rounding could turn over, and scores of the prompts' last tokens.
func TestRealModel_GreedyAnswersEqualTheReference(t *testing.T) {
	const tolerance = 1e-3 // of log-probabilities, float32 throughout
	for _, name := range []string{
		"llama", "llama_bias", "llama_rope_linear", "llama_rope_llama3", "llama_tied", "mistral", "mistral_nemo", "qwen2",
	} {
		t.Run(name, func(t *testing.T) {
			dir := fixtures.Path(t, "logits", name)
			var golden struct {
				Sequences [][]int32
				Goldens   []struct {
					Logits       string
					Shape        []int `json:"logits_shape"` // sequences, last positions, vocabulary
					Greedy       [][]int32
					GreedyMargin [][]float64 `json:"greedy_margin"`
				}
			}
			if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &golden); err != nil {
				t.Fatal(err)
			}
			want := golden.Goldens[0]
			positions, vocab := want.Shape[1], want.Shape[2]
			logits := readFile(t, filepath.Join(dir, want.Logits))
			b := openReference(t, readFile(t, filepath.Join(dir, "f32.gguf")), func(o *Options) {
				o.CacheType, o.ChunkRows = "f32", 40
			})
			var wg sync.WaitGroup
			for s, prompt := range golden.Sequences {
				wg.Go(func() {
					r := request(prompt, len(want.Greedy[s]))
					r.IgnoreEOS, r.PromptLogProb = true, true
					a := b.ask(r)
					if a.err != nil || len(a.tokens) != r.MaxTokens || len(a.prompt) != len(prompt) {
						t.Errorf("sequence %d: %d tokens, %d of the prompt, %v", s, len(a.tokens), len(a.prompt), a.err)
						return
					}
					compared := 0
					for i, id := range a.ids() {
						if want.GreedyMargin[s][i] <= 2*tolerance {
							break
						}
						if id != want.Greedy[s][i] {
							t.Errorf("sequence %d: token %d is %d, want %d", s, i, id, want.Greedy[s][i])
							break
						}
						compared++
					}
					if compared == 0 {
						t.Errorf("sequence %d: nothing was compared", s)
					}
					for row := range positions - 1 {
						at := len(prompt) - positions + row + 1 // the token that this row predicts
						expected := logProb(logits[4*(s*positions+row)*vocab:][:4*vocab], prompt[at])
						if got := a.prompt[at].LogProb; !(math.Abs(got-expected) <= tolerance) {
							t.Errorf("sequence %d: prompt token %d has log-probability %g, want %g", s, at, got, expected)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// logProb is the log-probability of token id in a row of little-endian float32
// logits.
func logProb(row []byte, id int32) float64 {
	sum := 0.0
	at := func(i int) float64 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:])))
	}
	for i := range len(row) / 4 {
		sum += math.Exp(at(i))
	}
	return at(int(id)) - math.Log(sum)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// smallDevice is a device with a memory of its own, of a size.
type smallDevice struct {
	device.Device
	memory int64
	closed *int
}

func (d smallDevice) Info() device.Info {
	return device.Info{Kind: "small", Name: "a small device", Path: "go", Memory: d.memory, Dedicated: true}
}

func (d smallDevice) Close() error {
	*d.closed++
	return d.Device.Close()
}

// parse returns the model in file and its configuration.
func parse(t *testing.T, file []byte) (*gguf.File, model.Config) {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return f, config
}

// partBytes returns what each part of a model takes on the reference device.
func partBytes(t *testing.T, f *gguf.File, config model.Config) model.Parts {
	t.Helper()
	parts, err := model.PartBytes(f, config, ref.New())
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// weightBytes returns what the weights of a model take on the reference device.
func weightBytes(t *testing.T, f *gguf.File) int64 {
	t.Helper()
	weights, err := model.DeviceBytes(f, ref.New())
	if err != nil {
		t.Fatal(err)
	}
	return weights
}

func TestRealModel_TooLargeForItsDeviceIsDivided(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 4, Context: 64})
	f, config := parse(t, file)
	parts := partBytes(t, f, config)
	r := request(span(3, 23), 20)
	r.IgnoreEOS, r.Alternatives = true, 2
	limit := func(o *Options) { o.ChunkRows, o.Parallel = 8, 2 }
	whole := openReference(t, file, limit).ask(r)
	scratch := placement.StepLimitsOf(2, 8).Scratch(config)
	cache := config.KVLayout(device.CacheOf(gguf.F16), 2).Bytes() / 4 // of one layer, for 64 positions
	for _, c := range []struct {
		name   string
		memory int64
		device string
		notice string
	}{
		{"three of four layers fit", parts.Output + scratch + 3*parts.Layers[0] + 2*3*cache, "a small device and ", "3 of 4 layers are on a small device"},
		{"one fits", parts.Output + scratch + parts.Layers[0] + 2*cache, "a small device and ", "1 of 4 layers are on a small device"},
		{"not one fits", parts.Output + scratch, "", "not one layer of the model fits on a small device"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened, closed := 0, 0
			open := func(memory int64) (device.Device, error) {
				opened++
				return smallDevice{ref.New(), memory, &closed}, nil
			}
			b := openReference(t, file, func(o *Options) {
				limit(o)
				o.OpenDevice = func(*gguf.File) (device.Device, error) { return open(c.memory) }
				o.MoreDevices = func() iter.Seq2[device.Device, error] {
					return func(yield func(device.Device, error) bool) {
						d, err := open(1 << 30)
						yield(hostDevice{d}, err)
					}
				}
			})
			a := b.ask(r)
			if a.err != nil || !reflect.DeepEqual(a.tokens, whole.tokens) {
				t.Errorf("divided %v, %v; whole %v", a.ids(), a.err, whole.ids())
			}
			info := b.Status().Device
			if info.Name != c.device+"the host" || !strings.Contains(info.Notice, c.notice) {
				t.Errorf("it runs on %+v", info)
			}
			if a.done.Receipt.Device != info.Name {
				t.Errorf("the receipt says %q", a.done.Receipt.Device)
			}
			b.Close()
			if opened != 2 || closed != 2 {
				t.Errorf("%d devices were opened and %d closed, want 2", opened, closed)
			}
		})
	}
}

// shortDevice has less memory for weights than it says.
type shortDevice struct {
	smallDevice
	left *int64
}

func (d shortDevice) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	bytes, err := d.WeightBytes(t, rows, cols)
	if err != nil {
		return device.Tensor{}, err
	}
	if *d.left -= bytes; *d.left < 0 {
		return device.Tensor{}, fmt.Errorf("%w: %w", device.ErrFailed, device.ErrMemory)
	}
	return d.smallDevice.Upload(t, rows, cols, data)
}

func TestRealModel_ADeviceThatRunsOutOfMemoryGetsFewerLayers(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 4, Context: 64})
	f, config := parse(t, file)
	parts := partBytes(t, f, config)
	weights := weightBytes(t, f)
	r := request(span(3, 23), 20)
	r.IgnoreEOS, r.Alternatives = true, 2
	limit := func(o *Options) { o.ChunkRows, o.Parallel = 8, 2 }
	whole := openReference(t, file, limit).ask(r)
	for _, c := range []struct {
		name string
		left int64 // bytes for weights
		host bool
		says string // the device's notice, or the error
	}{
		{"it has room for three of four layers", parts.Output + 3*parts.Layers[0], true, "the memory of a small device ran out while the model was loaded"},
		{"it has room for one", parts.Output + parts.Layers[0], true, "the memory of a small device ran out while the model was loaded"},
		{"it has room for none", parts.Output, true, "not one layer of the model fits on a small device"},
		{"it has no memory at all", 0, true, "not one layer of the model fits on a small device"},
		{"it is the only one", parts.Output, false, "cannot load model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened, closed := 0, 0
			b := openShort(t, file, c.host, func() device.Device {
				opened++
				left := c.left
				return shortDevice{smallDevice{ref.New(), 2*weights + 64<<20, &closed}, &left}
			})
			a := b.ask(r)
			if !c.host {
				if failed, _ := errors.AsType[*fault.Error](a.err); failed == nil || failed.Code != fault.CodeMemory || !strings.Contains(failed.Message, c.says) {
					t.Errorf("got %v, want the error of the load", a.err)
				}
			} else if a.err != nil || !reflect.DeepEqual(a.tokens, whole.tokens) {
				t.Errorf("divided %v, %v; whole %v", a.ids(), a.err, whole.ids())
			}
			if info := b.Status().Device; c.host && !strings.Contains(info.Notice, c.says) {
				t.Errorf("it runs on %+v", info)
			}
			b.Close()
			if opened < 2 || closed != opened {
				t.Errorf("%d devices were opened and %d closed", opened, closed)
			}
		})
	}
}

// reluctantHost has main memory whose first allocations the system refuses.
type reluctantHost struct {
	smallDevice
	refuses *int // uploads that fail
}

func (d reluctantHost) Info() device.Info {
	info := d.smallDevice.Info()
	info.Dedicated = false
	return info
}

func (d reluctantHost) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	if *d.refuses > 0 {
		*d.refuses--
		return device.Tensor{}, fmt.Errorf("no memory: %w", device.ErrMemory)
	}
	return d.Device.Upload(t, rows, cols, data)
}

func TestRealModel_MainMemoryThatIsRefusedMakesTheContextShorter(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 4, Context: 1 << 18})
	f, _ := parse(t, file)
	for name, c := range map[string]struct {
		refuses int
		whole   bool
		says    string // the device's notice, or the error
	}{
		"twice":  {refuses: 2, says: "the memory of a small device ran out while the model was loaded"},
		"always": {refuses: 1000, says: "no memory"},
		"once, where others can be unloaded first": {refuses: 1, whole: true, says: "no memory"},
		"never": {},
	} {
		t.Run(name, func(t *testing.T) {
			closed := 0
			b := &bench{t: t, files: map[string][]byte{"m": file}}
			e, err := Open(Options{
				Catalog: catalog{b}, Model: "m", ChunkRows: 8, Parallel: 2, WholePlan: c.whole,
				OpenDevice: func(*gguf.File) (device.Device, error) {
					return reluctantHost{smallDevice{ref.New(), weightBytes(t, f) + 400<<20, &closed}, &c.refuses}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			b.Engine = e
			a := b.ask(request(span(3, 23), 4))
			s := b.Status()
			switch {
			case c.refuses > 0 || c.whole:
				if failed, _ := errors.AsType[*fault.Error](a.err); failed == nil || failed.Code != fault.CodeMemory || !strings.Contains(failed.Message, c.says) {
					t.Errorf("got %v, want the error of the load", a.err)
				}
			case a.err != nil:
				t.Fatal(a.err)
			case !strings.Contains(s.Device.Notice, c.says) || (c.says != "") != strings.Contains(s.Device.Notice, "ran out"):
				t.Errorf("it runs on %+v, want %q", s.Device, c.says)
			default:
				if shorter := s.ContextLength < 1<<18; shorter != (c.says != "") {
					t.Errorf("the context is %d", s.ContextLength)
				}
			}
		})
	}
}

// openShort opens a model in file on the devices that open returns, and on the host if they are not enough. It does not
// wait until the model is loaded.
func openShort(t *testing.T, file []byte, host bool, open func() device.Device) *bench {
	b := &bench{t: t, files: map[string][]byte{"m": file}}
	o := Options{
		Catalog: catalog{b}, Model: "m", ChunkRows: 8, Parallel: 2,
		OpenDevice: func(*gguf.File) (device.Device, error) { return open(), nil },
	}
	if host {
		o.MoreDevices = func() iter.Seq2[device.Device, error] {
			return func(yield func(device.Device, error) bool) { yield(hostDevice{ref.New()}, nil) }
		}
	}
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	b.Engine = e
	return b
}

func TestRealModel_MemoryThatWasMissingIsUsedWhenItIsThereAgain(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 4, Context: 64})
	f, _ := parse(t, file)
	weights := weightBytes(t, f)
	for _, c := range []struct {
		name   string
		host   bool
		reload bool
	}{
		{"a load that failed is tried again with all memory", false, false},
		{"a model that runs with fewer layers there gets all memory after a reload", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			free, closed := int64(0), 0
			b := openShort(t, file, c.host, func() device.Device {
				left := free
				return shortDevice{smallDevice{ref.New(), 2*weights + 64<<20, &closed}, &left}
			})
			if a := b.ask(request(span(3, 23), 2)); (a.err == nil) != c.host {
				t.Fatalf("while memory is missing: %v", a.err)
			}
			free = 2 * weights
			if c.reload {
				if err := b.Reload(t.Context(), b.Status().Setup); err != nil {
					t.Fatal(err)
				}
			}
			a := b.ask(request(span(3, 23), 2))
			if info := b.Status().Device; a.err != nil || info.Name != "a small device" || info.Notice != "" {
				t.Errorf("got %v, on %+v", a.err, info)
			}
		})
	}
}

func TestRealModel_ExpertsThatDoNotFitOnItsDeviceStayOnTheHost(t *testing.T) {
	file := readFile(t, filepath.Join(fixtures.Path(t, "logits", "qwen3moe"), "f32.gguf"))
	f, config := parse(t, file)
	parts := partBytes(t, f, config)
	weights := weightBytes(t, f)
	r := request(span(3, 23), 20)
	r.IgnoreEOS, r.Alternatives = true, 2
	limit := func(o *Options) { o.ChunkRows, o.Parallel, o.ContextLength = 8, 2, 64 }
	whole := openReference(t, file, limit).ask(r)
	rest := weights + placement.StepLimitsOf(2, 8).Scratch(config) + 2*config.KVLayout(device.CacheOf(gguf.F16), 2).Bytes()
	for missing := 1; missing <= len(parts.Experts); missing++ {
		t.Run(fmt.Sprintf("of %d layers", missing), func(t *testing.T) {
			rest -= parts.Experts[missing-1]
			closed := 0
			b := openReference(t, file, func(o *Options) {
				limit(o)
				o.OpenDevice = func(*gguf.File) (device.Device, error) { return smallDevice{ref.New(), rest, &closed}, nil }
				o.MoreDevices = func() iter.Seq2[device.Device, error] {
					return func(yield func(device.Device, error) bool) { yield(hostDevice{ref.New()}, nil) }
				}
			})
			a := b.ask(r)
			if a.err != nil || !reflect.DeepEqual(a.tokens, whole.tokens) {
				t.Errorf("divided %v, %v; whole %v", a.ids(), a.err, whole.ids())
			}
			info := b.Status().Device
			want := fmt.Sprintf("the experts of %d of %d layers are on the host, because a small device has no room for them", missing, len(parts.Experts))
			if info.Name != "a small device and the host" || info.Notice != want {
				t.Errorf("it runs on %+v, want the notice %q", info, want)
			}
		})
	}
}

// hostDevice computes in the machine's memory.
type hostDevice struct{ device.Device }

func (d hostDevice) Info() device.Info {
	return device.Info{Kind: "host", Name: "the host", Path: "go", Memory: 1 << 30}
}

// steppingDevice has a memory of its own and should compute steps of some size. It notes the largest that it is to compute.
type steppingDevice struct {
	device.Device
	memory  int64
	rows    int
	largest *int
}

func (d steppingDevice) Info() device.Info {
	return device.Info{Kind: "stepping", Name: "a device", Path: "go", Memory: d.memory, Dedicated: true, StepRows: d.rows}
}

func (d steppingDevice) Compile(p *device.Program) (device.Executable, error) {
	*d.largest = max(*d.largest, p.Rows)
	return d.Device.Compile(p)
}

func TestRealModel_HasLargerStepsWhereTheDeviceIsFasterAndTheMemoryAllows(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{Layers: 2, Context: 64})
	f, config := parse(t, file)
	weights := weightBytes(t, f)
	needs := func(rows int) int64 {
		return weights + placement.StepLimitsOf(2, rows).Scratch(config) + 2*config.KVLayout(device.CacheOf(gguf.F16), 2).Bytes()
	}
	for _, c := range []struct {
		name            string
		memory          int64
		stepRows, chunk int
		want            int
	}{
		{"a device that says nothing has the default", 1 << 30, 0, 0, 256},
		{"a device that is faster with more has as many", 1 << 30, 512, 0, 512},
		{"the option counts more", 1 << 30, 512, 8, 8},
		{"they are not larger where they do not fit", (needs(256) + needs(512)) / 2, 512, 0, 256},
	} {
		t.Run(c.name, func(t *testing.T) {
			largest := 0
			openReference(t, file, func(o *Options) {
				o.ChunkRows, o.Parallel = c.chunk, 2
				o.OpenDevice = func(*gguf.File) (device.Device, error) {
					return steppingDevice{ref.New(), c.memory, c.stepRows, &largest}, nil
				}
			})
			if largest != c.want {
				t.Errorf("the largest step has %d rows, want %d", largest, c.want)
			}
		})
	}
}
