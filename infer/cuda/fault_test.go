package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"m40-llm/cudakern"
	"m40-llm/cudakern/emutest"
	"m40-llm/cudakern/resident"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
)

// The six errors that a driver gives most.
var faultCodes = []int{
	2,   // out of memory
	700, // illegal address: nothing works any more in its context
	719, // launch failed: the same
	801, // not supported
	802, // system not ready
	999, // unknown
}

// TestEveryCallOfAGenerationMayFail lets each call of the driver fail while a model is
// loaded and writes two tokens. Whatever fails, the caller gets an error that names the
// call, and nothing stays open.
func TestEveryCallOfAGenerationMayFail(t *testing.T) {
	faults := emutest.NewFaults(t)
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Layers: 1, Dim: 128, Heads: 2, KVHeads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("M40_LLM_EMU_SMS", "1") // of the resident kernel's few blocks
	how := device.DecodeGraph
	try := func(n, code int) (failed bool) {
		faults.FailAt(n, code)
		err := generate(faults.Library, f, how)
		call := faults.Failed()
		if e, ok := errors.AsType[*cudakern.Error](err); call == "" && err != nil || call != "" && (!ok || e.Call != call || e.Code != code) {
			t.Errorf("call %d, %q, fails with %d: got %v", n, call, code, err)
		}
		if open := faults.Contexts(); open != 0 {
			t.Fatalf("call %d, %s, fails with %d: %d contexts stay open", n, call, code, open)
		}
		return call != ""
	}
	if try(0, 0) {
		t.Fatal("a call fails that was not to")
	}
	calls := faults.Calls()
	for n := 1; n <= calls; n++ {
		for i, code := range faultCodes {
			if !fixtures.Check() && i != n%len(faultCodes) {
				continue // each call fails once, in one way
			}
			if !try(n, code) {
				t.Fatalf("a generation has %d calls and no call %d", calls, n)
			}
		}
	}
	// How often the host asks whether the resident kernel runs depends on the time.
	how = device.DecodePersistent
	n := 1
	for try(n, faultCodes[2]) {
		n++
	}
	t.Logf("a generation makes %d calls with graphs, %d with a resident kernel", calls, n-1)
	if n-1 < calls-10 {
		t.Errorf("only %d calls with a resident kernel", n-1)
	}
}

// A step copies its batch, launches its graph, copies its candidates, records an event and waits for it; whole
// rows are copied and waited for.
func TestAStepLoadsAndAllocatesNothing(t *testing.T) {
	faults, d, m := loadFaulty(t, device.DecodeGraph)
	defer d.Close()
	logits := make([]float32, m.Config().Vocab)
	for rows := range 8 {
		faults.FailAt(0, 0)
		if err := m.Forward(rowsOfOne(rows + 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Candidates(0); err != nil {
			t.Fatal(err)
		}
		if n := faults.Calls(); n != 5 {
			t.Errorf("a step of %d rows and reading candidates make %d calls of the driver", rows+1, n)
		}
		if err := m.Logits(logits, 0); err != nil {
			t.Fatal(err)
		}
		if n := faults.Calls(); n != 7 {
			t.Errorf("reading logits makes %d calls of the driver", n-5)
		}
	}
}

// Steps of the resident kernel need no call of the driver, except that now and then the host asks whether it runs; calls that wait for it, such
// as those that allocate, the emulation refuses. Whole rows are copied and waited for.
func TestAStepOfAResidentKernelIsNoLaunch(t *testing.T) {
	faults, d, m := loadFaulty(t, device.DecodePersistent)
	defer d.Close()
	logits := make([]float32, m.Config().Vocab)
	for rows := range 4 {
		for range 3 {
			if err := m.Forward(rowsOfOne(rows + 1)); err != nil {
				t.Fatal(err)
			}
			faults.FailAt(0, 0)
			if _, err := m.Candidates(0); err != nil || faults.Calls() > 0 {
				t.Errorf("reading candidates makes %d calls of the driver, error %v", faults.Calls(), err)
			}
			if err := m.Logits(logits, 0); err != nil || faults.Calls() != 2 {
				t.Errorf("reading logits makes %d calls of the driver, error %v", faults.Calls(), err)
			}
		}
	}
	if n := cuda.ResidentLaunches(d); n != 1 {
		t.Errorf("12 steps make %d launches", n)
	}
}

// loadFaulty loads a model on a small GPU for steps of up to 8 rows.
func loadFaulty(t *testing.T, how device.Decode) (*emutest.Faults, device.Device, *model.Model) {
	t.Helper()
	t.Setenv("M40_LLM_EMU_SMS", "1") // of the resident kernel's few blocks
	faults := emutest.NewFaults(t)
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Heads: 2, KVHeads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, m, err := load(faults.Library, f, 8, how, patient)
	if err != nil {
		t.Fatal(err)
	}
	return faults, d, m
}

// rowsOfOne is a step of the first rows of a sequence.
func rowsOfOne(rows int) *device.Batch {
	b := &device.Batch{Out: []int32{int32(rows - 1)}, Tables: [][][]int32{{{1}}}}
	for i := range rows {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, 5), append(b.Pos, int32(i)), append(b.Seq, 0)
	}
	return b
}

// load loads the model in f for batches of up to rows rows.
func load(library string, f *gguf.File, rows int, how device.Decode, limits resident.Limits) (d device.Device, m *model.Model, err error) {
	driver, gpus, err := cuda.Find(library)
	if err != nil {
		return nil, nil, err
	}
	if d, err = cuda.OpenGPU(driver, gpus[0]); err != nil {
		return nil, nil, err
	}
	d.(device.DecodeChooser).ChooseDecode(how)
	cuda.Limit(d, limits)
	m, err = model.Load(context.Background(), f, d, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 2, MaxRows: rows, MaxOut: 1})
	if err != nil {
		d.Close()
		if !errors.Is(err, device.ErrFailed) {
			err = fmt.Errorf("not told as a failure of the device: %v", err)
		}
	}
	return d, m, err
}

// generate loads the model in f and writes four tokens, the last of them in a step ahead.
func generate(library string, f *gguf.File, how device.Decode) (err error) {
	d, m, err := load(library, f, 2, how, cuda.ResidentLimits)
	if err != nil {
		return err
	}
	defer func() {
		if e := d.Close(); err == nil {
			err = e
		}
	}()
	logits := make([]float32, m.Config().Vocab)
	for _, b := range []*device.Batch{
		{Tokens: []int32{5, 6}, Pos: []int32{0, 1}, Seq: []int32{0, 0}, Out: []int32{1}, Tables: [][][]int32{{{1}}}},
		{Tokens: []int32{7}, Pos: []int32{2}, Seq: []int32{0}, Out: []int32{0}, Tables: [][][]int32{{{1}}}},
	} {
		if err := m.Forward(b); err != nil {
			return err
		}
		if _, err := m.Candidates(0); err != nil {
			return err
		}
		if err := m.Logits(logits, 0); err != nil {
			return err
		}
	}
	var tickets []model.Ticket
	for i := range 2 {
		ticket, err := m.Submit(&device.Batch{
			Tokens: []int32{5}, Pos: []int32{int32(3 + i)}, Seq: []int32{0}, Out: []int32{0}, Tables: [][][]int32{{{1}}}, Draws: []device.Draw{{}}, Ahead: i > 0,
		})
		if err != nil {
			return err
		}
		tickets = append(tickets, ticket)
	}
	for _, ticket := range tickets {
		if _, err := m.Collect(ticket); err != nil {
			return err
		}
		if _, err := m.Drawn(0); err != nil {
			return err
		}
		if err := m.Logits(logits, 0); err != nil {
			return err
		}
	}
	return nil
}

// oneModel is a catalog of one file.
type oneModel struct{ data []byte }

func (c oneModel) Models(context.Context) ([]infer.ModelInfo, error) {
	return []infer.ModelInfo{{Name: "tiny"}}, nil
}

func (c oneModel) OwnTemplate(m infer.ModelInfo) (string, error) { return m.ChatTemplate, nil }

func (c oneModel) Open(string) (*gguf.File, infer.ModelInfo, error) {
	f, err := gguf.Parse(c.data)
	return f, infer.ModelInfo{Name: "tiny"}, err
}

// A kernel that goes wrong ends the answers of its step. The engine opens the device anew
// and answers the next request as if nothing had been.
func TestTheEngineOutlivesAFaultOfTheDevice(t *testing.T) {
	t.Setenv("M40_LLM_EMU_SMS", "1")
	for _, how := range []device.Decode{device.DecodeGraph, device.DecodePersistent} {
		t.Run(string(how), func(t *testing.T) { engineOutlivesFaults(t, how) })
	}
}

func engineOutlivesFaults(t *testing.T, how device.Decode) {
	faults := emutest.NewFaults(t)
	engine, err := engine.Open(engine.Options{
		Catalog: oneModel{gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q4_0, Dim: 128, Heads: 2, KVHeads: 1})},
		OpenDevice: func(*gguf.File) (device.Device, error) {
			driver, gpus, err := cuda.Find(faults.Library)
			if err != nil {
				return nil, err
			}
			d, err := cuda.OpenGPU(driver, gpus[0])
			if err == nil {
				d.(device.DecodeChooser).ChooseDecode(how)
			}
			return d, err
		},
		Model:     "tiny",
		ChunkRows: 4,
		Parallel:  2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if err := engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask := func() (text string, err error) {
		r := infer.DefaultRequest()
		r.Prompt, r.MaxTokens, r.Params.Seed = "once upon a time", 8, 1
		r.Params.RepeatPenalty = 1.3 // for which whole rows are copied, after the step
		for event, e := range engine.Generate(t.Context(), r) {
			if e != nil {
				return text, e
			}
			if event.Token != nil {
				text += event.Token.Text
			}
		}
		return text, nil
	}
	before, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 3, 4, 5, 6, 11} { // calls of the first steps and of a later one
		faults.FailAt(n, 719)
		_, err := ask()
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.CodeDevice {
			t.Errorf("call %d, %s, fails: got %v", n, faults.Failed(), err)
		}
		faults.FailAt(0, 0)
		if after, err := ask(); err != nil || after != before {
			t.Errorf("after a failed %s the answer is %q, %v; before it was %q", faults.Failed(), after, err, before)
		}
		if open := faults.Contexts(); open != 1 {
			t.Errorf("%d contexts are open", open)
		}
	}
}

// reading counts the rows that are copied from a device.
type reading struct {
	device.Device
	rows *atomic.Int64
}

func (d reading) Read(dst []float32, t device.Tensor, row int) error {
	d.rows.Add(1)
	return d.Device.Read(dst, t, row)
}

// Candidates are enough for the settings that nearly all requests have. The text is the
// same as from whole rows, which others still get.
func TestWholeRowsAreCopiedOnlyForSettingsThatNeedThem(t *testing.T) {
	library := emutest.Emulation(t)
	rows := new(atomic.Int64)
	engine, err := engine.Open(engine.Options{
		Catalog: oneModel{gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})},
		OpenDevice: func(*gguf.File) (device.Device, error) {
			driver, gpus, err := cuda.Find(library)
			if err != nil {
				return nil, err
			}
			d, err := cuda.OpenGPU(driver, gpus[0])
			return reading{d, rows}, err
		},
		Model:     "tiny",
		ChunkRows: 4,
		Parallel:  2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	const tokens = 12
	for _, c := range []struct {
		name string
		set  func(*infer.Request)
		rows bool
	}{
		{"the default settings", func(*infer.Request) {}, false},
		{"temperature 0", func(r *infer.Request) { r.Params.Temperature = 0 }, false},
		{"alternatives", func(r *infer.Request) { r.Alternatives = 20 }, false},
		{"a penalty", func(r *infer.Request) { r.Params.RepeatPenalty = 1.3 }, true},
		{"scores of the prompt", func(r *infer.Request) { r.PromptLogProb = true }, true},
	} {
		r := infer.DefaultRequest()
		r.Prompt, r.MaxTokens, r.Params.Seed, r.IgnoreEOS = "once upon a time", tokens, 1, true
		c.set(&r)
		rows.Store(0)
		got := 0
		for event, err := range engine.Generate(t.Context(), r) {
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if event.Token != nil && !event.Token.Prompt {
				got++
			}
		}
		if copied := rows.Load(); got != tokens || (copied > 0) != c.rows {
			t.Errorf("%s: %d tokens copy %d whole rows", c.name, got, copied)
		}
	}
}
