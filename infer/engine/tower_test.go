package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// watchedDevice is a device whose steps are watched. It may have a memory of its own, and too little of it.
type watchedDevice struct {
	device.Device
	info  device.Info
	run   func() // before each step
	alloc error
}

func (d *watchedDevice) Info() device.Info { return d.info }

func (d *watchedDevice) Alloc(rows, cols int) (device.Tensor, error) {
	if d.alloc != nil {
		return device.Tensor{}, d.alloc
	}
	return d.Device.Alloc(rows, cols)
}

func (d *watchedDevice) Compile(p *device.Program) (device.Executable, error) {
	x, err := d.Device.Compile(p)
	return watchedExecutable{x, d.run}, err
}

type watchedExecutable struct {
	device.Executable
	run func()
}

func (x watchedExecutable) Run(b *device.Batch) error {
	x.run()
	return x.Executable.Run(b)
}

// isCompanion reports whether a file has a tower.
func isCompanion(f *gguf.File) bool {
	kind, err := f.Str("general.type")
	return err == nil && kind == "mmproj"
}

func aboutAPicture(t *testing.T) infer.Request {
	r := infer.DefaultRequest()
	r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = 4, true, 0
	r.Messages = []chat.Message{{Role: "user", Content: chat.PictureMark + "text", Pictures: [][]byte{readPicture(t, "wide.png")}}}
	return r
}

// longAnswer is a request whose answer goes on while a picture is encoded.
func longAnswer() infer.Request {
	r := infer.DefaultRequest()
	r.MaxTokens, r.IgnoreEOS = 200, true
	r.Messages = []chat.Message{{Role: "user", Content: "text"}}
	return r
}

func TestTower_OnTheFirstDeviceItTakesTurnsWithTheStepsOfAnswers(t *testing.T) {
	var mu sync.Mutex
	var order []string // of steps
	watch := func(what string) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
	}
	info := device.Info{Kind: "cuda", Name: "a GPU", Path: "go", Memory: 1 << 40, Dedicated: true}
	b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), func(o *Options) {
		o.OpenDevice = func(f *gguf.File) (device.Device, error) {
			what := "answer"
			if isCompanion(f) {
				what = "picture"
			}
			return &watchedDevice{Device: ref.New(), info: info, run: watch(what)}, nil
		}
	})
	started := make(chan struct{})
	other := b.stream(longAnswer(), func(e infer.Event) {
		if e.Type == infer.EventToken {
			select {
			case started <- struct{}{}:
			default:
			}
		}
	})
	<-started
	mu.Lock()
	order = nil
	mu.Unlock()
	encoded := b.ask(aboutAPicture(t))
	mu.Lock()
	steps := slices.Clone(order)
	mu.Unlock()
	other.cancel()
	<-other.ended
	if encoded.err != nil {
		t.Fatal(encoded.err)
	}
	pictures := 0
	for i, what := range steps {
		if what != "picture" {
			continue
		}
		if pictures++; i > 0 && steps[i-1] == "picture" {
			t.Errorf("step %d of a picture follows another one, while an answer waits: %v", i, steps)
			break
		}
	}
	if pictures < 10 {
		t.Errorf("the picture was encoded in %d steps", pictures)
	}
	if len(b.Status().Memory) != 1 || b.Status().Memory[0].Pictures == 0 || strings.Contains(b.Status().Notice+b.Status().Device.Notice, "CPU") {
		t.Errorf("the status tells of the tower: %+v, %q", b.Status().Memory, b.Status().Device.Notice)
	}
}

func TestTower_OnTheCPUAnswersGoOnWhileItEncodes(t *testing.T) {
	tokens := make(chan struct{})
	b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), func(o *Options) {
		o.OpenTower = func(*gguf.File) (device.Device, error) {
			return &watchedDevice{Device: ref.New(), info: ref.New().Info(), run: func() {
				for range 2 {
					<-tokens // of the other answer
				}
			}}, nil
		}
	})
	over := make(chan struct{})
	other := b.stream(longAnswer(), func(e infer.Event) {
		if e.Type == infer.EventToken {
			select {
			case tokens <- struct{}{}:
			case <-over:
			}
		}
	})
	if got := b.ask(aboutAPicture(t)); got.err != nil {
		t.Error(got.err)
	}
	close(over)
	other.cancel()
	<-other.ended
}

func TestTower_IsWhereThereIsRoomForIt(t *testing.T) {
	want := openSeeing(t, "gemma3", mmproj(t, "gemma3"), nil).ask(aboutAPicture(t))
	for name, c := range map[string]struct {
		memory int64
		alloc  error // of the tower on the GPU
		gpu    bool
		notice string // of the loaded model
	}{
		"enough memory":                       {memory: 1 << 40, gpu: true},
		"memory for the model alone":          {memory: 100 << 20, notice: "pictures are encoded on the CPU: the model leaves no room"},
		"memory that others take meanwhile":   {memory: 1 << 40, alloc: fmt.Errorf("no memory: %w", device.ErrMemory)},
		"memory that is not known to be free": {memory: 0, gpu: true},
	} {
		t.Run(name, func(t *testing.T) {
			var onGPU, onCPU int
			info := device.Info{Kind: "cuda", Name: "a GPU", Path: "go", Memory: c.memory, Dedicated: true}
			b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), func(o *Options) {
				o.OpenDevice = func(f *gguf.File) (device.Device, error) {
					d := &watchedDevice{Device: ref.New(), info: info, run: func() {}}
					if isCompanion(f) {
						d.run, d.alloc = func() { onGPU++ }, c.alloc
					}
					return d, nil
				}
				o.OpenTower = func(*gguf.File) (device.Device, error) {
					return &watchedDevice{Device: ref.New(), info: ref.New().Info(), run: func() { onCPU++ }}, nil
				}
			})
			got := b.ask(aboutAPicture(t))
			if got.err != nil || !slices.Equal(got.ids(), want.ids()) {
				t.Errorf("the answer is %v, %v, want %v", got.ids(), got.err, want.ids())
			}
			if c.gpu != (onGPU > 0) || c.gpu == (onCPU > 0) {
				t.Errorf("the tower had %d steps on the GPU and %d on the CPU", onGPU, onCPU)
			}
			s := b.Status()
			if notice := s.Device.Notice + s.Notice; c.notice == "" && strings.Contains(notice, "pictures") || !strings.Contains(notice, c.notice) {
				t.Errorf("the notice is %q, want %q", notice, c.notice)
			}
			planned := c.gpu || c.alloc != nil
			if first := s.Memory[0]; planned != (first.Pictures > 0) {
				t.Errorf("the status has %+v", s.Memory)
			}
		})
	}
}

// TestTower_OnAGPUAnswersAreTheReferences checks on the GPU of tests.
func TestTower_OnAGPUAnswersAreTheReferences(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Library(t))
	for _, name := range fixtures.At(seenFamilies[:1], seenFamilies, seenFamilies) {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, name, mmproj(t, name), func(o *Options) {
				o.OpenDevice = func(*gguf.File) (device.Device, error) { return cuda.Open() }
				o.ContextLength = 512
			})
			cases := seenCases(t, name)
			alone := make([]outcome, len(cases))
			for i, c := range cases[:fixtures.At(1, len(cases), len(cases))] {
				if alone[i] = b.ask(c.request(t)); alone[i].err != nil {
					t.Fatalf("%s: %v", c.Name, alone[i].err)
				}
				for k, id := range alone[i].ids() {
					if c.GreedyMargin[k] <= c.sure() {
						break
					}
					if id != c.Greedy[k] {
						t.Errorf("%s: token %d is %d, want %d", c.Name, k, id, c.Greedy[k])
						break
					}
				}
			}
			if s := b.Status(); s.Memory[0].Kind != "cuda" || s.Memory[0].Pictures == 0 {
				t.Errorf("the tower is not on the GPU: %+v, %q", s.Memory, s.Device.Notice)
			}
			fresh := openSeeing(t, name, mmproj(t, name), func(o *Options) {
				o.OpenDevice = func(*gguf.File) (device.Device, error) { return cuda.Open() }
				o.ContextLength = 512
			})
			var running sync.WaitGroup
			for i, c := range cases {
				if alone[i].done == nil {
					continue
				}
				running.Go(func() {
					if got := fresh.ask(c.request(t)); got.err != nil || !slices.Equal(got.ids(), alone[i].ids()) {
						t.Errorf("%s: beside others the answer is %v, %v, want %v", c.Name, got.ids(), got.err, alone[i].ids())
					}
				})
			}
			running.Wait()
		})
	}
}
