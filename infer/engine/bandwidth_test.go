package engine

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// metered is a device whose memory has a bandwidth.
type metered struct {
	device.Device
	measured *atomic.Int32
}

func (d metered) ReadBandwidth() (float64, error) {
	d.measured.Add(1)
	return 2e9, nil
}

func TestAnAnswerReportsWhatItsDecodeReads(t *testing.T) {
	file := gguftest.TinyLlama(gguftest.Llama{})
	var measured atomic.Int32
	b := openReference(t, file, func(o *Options) {
		o.OpenDevice = func(*gguf.File) (device.Device, error) { return metered{ref.New(), &measured}, nil }
		o.measureAfter = time.Microsecond
	})
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	r := request(span(3, 43), 5)
	r.IgnoreEOS = true
	a := b.ask(r)
	var want int64
	for positions := 41; positions <= 44; positions++ { // the first token comes from the prompt's last row
		n, err := model.StepBytes(f, mustConfig(t, f), device.CacheOf(gguf.F16), positions)
		if err != nil {
			t.Fatal(err)
		}
		want += n
	}
	if a.err != nil || a.done.Reads.Bytes != want || a.done.Reads.Micros <= 0 || a.done.Reads.Bandwidth != 0 {
		t.Fatalf("%v, %+v; want %d bytes, and no bandwidth yet", a.err, a.done.Reads, want)
	}
	if got := b.Status().Reads.Bytes; got != want {
		t.Errorf("the status counts %d bytes, want %d", got, want)
	}
	for late := time.Now().Add(time.Minute); measured.Load() == 0 || b.Status().Reads.Bandwidth == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the bandwidth is not measured")
		}
	}
	for range 3 {
		if a = b.ask(r); a.err != nil || a.done.Reads.Bandwidth != 2e9 || a.done.Reads.Bytes != want {
			t.Errorf("%v, %+v; want %d bytes and a bandwidth of 2e9", a.err, a.done.Reads, want)
		}
	}
	if b.Close(); measured.Load() != 1 {
		t.Errorf("the bandwidth was measured %d times, want once", measured.Load())
	}
}

func TestStepsThatReadPromptsAreNotCounted(t *testing.T) {
	b := openReference(t, gguftest.TinyLlama(gguftest.Llama{}), func(o *Options) { o.ChunkRows = 4 })
	r := request(span(3, 203), 1)
	if a := b.ask(r); a.err != nil || a.done.Reads.Bytes != 0 || b.Status().Reads.Bytes != 0 {
		t.Errorf("%v, %+v", a.err, a.done.Reads)
	}
}

// Which experts the rows of a step have in common is not known; those of a single row are.
func TestExpertsOfSeveralAnswersAreNotCounted(t *testing.T) {
	file := readFile(t, filepath.Join(fixtures.Path(t, "logits", "qwen3moe"), "f32.gguf"))
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	reads, err := model.ReadsOf(f, mustConfig(t, f), device.CacheOf(gguf.F16))
	if err != nil {
		t.Fatal(err)
	}
	one, known := reads.Step(1, 10)
	if !known || one == 0 {
		t.Errorf("a row reads %d bytes, known %v", one, known)
	}
	if _, known := reads.Step(2, 10, 12); known {
		t.Error("two rows of a mixture of experts read a known number of bytes")
	}
	if _, known := reads.Step(2, 10); known {
		t.Error("a row and a drafted one of a mixture of experts read a known number of bytes")
	}
	dense, err := model.ReadsOf(mustParse(t, gguftest.TinyLlama(gguftest.Llama{})), mustConfig(t, mustParse(t, gguftest.TinyLlama(gguftest.Llama{}))), device.CacheOf(gguf.F16))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := dense.Step(1, 32)
	second, _ := dense.Step(1, 64)
	both, known := dense.Step(2, 32, 64)
	if none, _ := dense.Step(0); !known || both != first+second-none {
		t.Errorf("two rows read %d bytes, known %v; one %d, the other %d, weights are %d", both, known, first, second, none)
	}
}

func mustParse(t *testing.T, data []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Answers that share steps read the weights once: each counts the bytes of the steps that it is in.
func TestAnswersThatShareStepsCountTheWholeStep(t *testing.T) {
	b := openReference(t, gguftest.TinyLlama(gguftest.Llama{}), nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var bytes []int64
	for i := range 3 {
		wg.Go(func() {
			r := request(span(int32(3+i), int32(13+i)), 20)
			r.IgnoreEOS = true
			a := b.ask(r)
			mu.Lock()
			defer mu.Unlock()
			bytes = append(bytes, a.done.Reads.Bytes)
		})
	}
	wg.Wait()
	if total := b.Status().Reads.Bytes; slices.Max(bytes) > total || slices.Min(bytes) == 0 {
		t.Errorf("answers count %v bytes, all steps together %d", bytes, total)
	}
}
