package cuda_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
)

// openAlone opens the first GPU of the library that tests use.
func openAlone(t *testing.T) device.Pipelined {
	t.Helper()
	driver, gpus, err := cuda.Find(emutest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	d, err := cuda.OpenGPU(driver, gpus[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(device.Pipelined)
}

// tokens is a vocabulary of so many tokens without text.
type tokens int

func (v tokens) Size() int          { return int(v) }
func (v tokens) Piece(int32) []byte { return nil }

// basicParams returns settings of the stages that a device has.
func basicParams(rng *rand.Rand) sample.Params {
	p := sample.DefaultParams()
	p.Temperature = []float64{0, 0.2, 0.7, 0.7, 1, 1.3, 3, 1e-9}[rng.IntN(8)]
	p.TopK = []int{0, 1, 2, 20, 40, 256, 257, 5000}[rng.IntN(8)]
	p.TopP = []float64{1, 0.95, 0.95, 0.5, 0.1, 0}[rng.IntN(6)]
	p.MinP = []float64{0, 0.05, 0.05, 0.3, 1}[rng.IntN(5)]
	p.Seed = rng.Int64()
	return p
}

// TestDrawnTokensAreThoseOfTheSampler draws from rows of logits of many shapes. Where the sampler needs no more than the
// candidates, the token must be its token: the arithmetic is the same to the bit.
func TestDrawnTokensAreThoseOfTheSampler(t *testing.T) {
	rounds := fixtures.At(8, 40, 2000)
	d, rng := openAlone(t), rand.New(rand.NewPCG(17, 3))
	shapes := []func() float32{
		func() float32 { return float32(rng.NormFloat64() * 4) },
		func() float32 { return float32(-math.Log(rng.Float64()) * 3) },
		func() float32 { return float32(rng.IntN(3)) },
		func() float32 { return float32(rng.NormFloat64() * 300) },
		func() float32 { return 7 },
		func() float32 {
			if rng.IntN(8) > 0 {
				return float32(math.Inf(-1))
			}
			return float32(rng.NormFloat64())
		},
	}
	const rows = device.MaxDraws
	equal, fetched := 0, 0
	for _, vocab := range []int{1, 200, 300, 5000} {
		var values []byte
		for i := range 6 * rows {
			shape := shapes[i%len(shapes)]
			for id := range vocab {
				x := shape()
				if id == vocab-1 && math.IsInf(float64(x), -1) {
					x = 1
				}
				values = binary.LittleEndian.AppendUint32(values, math.Float32bits(x))
			}
		}
		table, err := d.Upload(gguf.F32, 6*rows, vocab, values)
		if err != nil {
			t.Fatal(err)
		}
		x, logits := alloc(t, d, rows, vocab), alloc(t, d, rows, vocab)
		p := device.NewProgram(rows, rows)
		p.Embed(x, table)
		p.GatherRows(logits, x)
		p.Candidates(logits)
		run, err := d.Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		for range rounds {
			b := &device.Batch{Tables: [][][]int32{{{0}}}}
			var params []sample.Params
			for i := range 1 + rng.IntN(rows) {
				b.Tokens, b.Pos, b.Seq, b.Out = append(b.Tokens, rng.Int32N(6*rows)), append(b.Pos, int32(i)), append(b.Seq, 0), append(b.Out, int32(i))
				p := basicParams(rng)
				params = append(params, p)
				b.Draws = append(b.Draws, device.Draw{Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, Seed: p.Seed, Pos: rng.IntN(1 << 20)})
			}
			if err := run.Run(b); err != nil {
				t.Fatal(err)
			}
			for i, p := range params {
				c, err := d.Candidates(logits, i)
				if err != nil {
					t.Fatal(err)
				}
				whole := false
				row := sample.Row{IDs: c.IDs, Logits: c.Logits, Max: c.Max, Mass: c.Mass, Dot: c.Dot, Count: c.Count, NotFinite: c.Bad >= 0}
				row.Fetch = func() ([]float32, error) {
					whole = true
					all := make([]float32, vocab)
					return all, d.Read(all, logits, i)
				}
				chain, err := sample.NewChain(p, tokens(vocab))
				if err != nil {
					t.Fatal(err)
				}
				want, err := chain.Next(sample.Input{Row: row, Pos: b.Draws[i].Pos})
				if err != nil {
					t.Fatal(err)
				}
				got, err := d.Drawn(logits, i)
				switch {
				case err != nil:
					t.Fatal(err)
				case whole:
					fetched++
					if !slices.Contains(c.IDs, got) {
						t.Errorf("token %d was drawn, which is no candidate", got)
					}
				case got != want.ID:
					t.Errorf("vocabulary of %d, token %d: %d was drawn, the sampler draws %d, with %+v", vocab, b.Tokens[i], got, want.ID, b.Draws[i])
				default:
					equal++
				}
			}
		}
	}
	t.Logf("%d tokens are equal; %d times the sampler needed the whole row", equal, fetched)
	if fetched == 0 || equal < 4*fetched {
		t.Errorf("the sampler needed %d whole rows and no more than candidates %d times", fetched, equal)
	}
}

func alloc(t *testing.T, d device.Device, rows, cols int) device.Tensor {
	t.Helper()
	x, err := d.Alloc(rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestStepsAheadHaveTheBitsOfStepsOneByOne writes two answers with every step ahead that the device takes, and then again
// with their tokens, one step after the other. The logits are read while the next step is computed.
func TestStepsAheadHaveTheBitsOfStepsOneByOne(t *testing.T) {
	for _, how := range []device.Decode{device.DecodeGraph, device.DecodePersistent} {
		t.Run(string(how), func(t *testing.T) { checkStepsAhead(t, how) })
	}
}

func checkStepsAhead(t *testing.T, how device.Decode) {
	t.Setenv("M40_LLM_EMU_SMS", "2") // so that the emulation of a resident kernel is fast
	d := openAlone(t)
	d.(device.DecodeChooser).ChooseDecode(how)
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Dim: 128, Heads: 2, KVHeads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(t.Context(), f, d, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 8, MaxRows: 64, MaxOut: 4})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Info().Decode; got != how {
		t.Fatalf("the device decodes by %s, want %s: %s", got, how, d.Info().DecodeReason)
	}
	vocab := m.Config().Vocab
	batch := func(step int, fed []int32) *device.Batch {
		b := &device.Batch{Tokens: slices.Clone(fed), Seq: []int32{0, 1}, Out: []int32{0, 1}, Tables: [][][]int32{{{3, 1}, {2, 5}}}}
		for i := range fed {
			b.Pos = append(b.Pos, int32(step+i))
			b.Draws = append(b.Draws, device.Draw{Temperature: 1, TopK: 40, TopP: 0.95, MinP: 0.05, Seed: int64(i), Pos: step + i + 1})
		}
		return b
	}
	const steps = 40
	var fed [][]int32 // by step
	var rows [][]float32
	read := func() (drawn []int32) {
		for i := range 2 {
			row := make([]float32, vocab)
			if err := m.Logits(row, i); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
			id, err := m.Drawn(i)
			if err != nil {
				t.Fatal(err)
			}
			drawn = append(drawn, id)
		}
		return drawn
	}
	// Sequence 1 begins at position 1, so that positions differ.
	if err := m.Forward(&device.Batch{Tokens: []int32{9}, Pos: []int32{0}, Seq: []int32{1}, Tables: [][][]int32{{{3, 1}, {2, 5}}}}); err != nil {
		t.Fatal(err)
	}
	fed = append(fed, []int32{5, 6})
	var tickets []model.Ticket
	for submitted := 0; len(fed) <= steps; {
		for submitted < steps && len(tickets) < m.Depth() {
			b := batch(submitted, []int32{5, 6})
			if b.Ahead = submitted > 0 && len(tickets) > 0; !b.Ahead {
				b.Tokens = fed[submitted]
			}
			ticket, err := m.Submit(b)
			if err != nil {
				t.Fatal(err)
			}
			tickets, submitted = append(tickets, ticket), submitted+1
		}
		if _, err := m.Collect(tickets[0]); err != nil {
			t.Fatal(err)
		}
		tickets, fed = tickets[1:], append(fed, read())
	}
	if m.Depth() != 5 {
		t.Errorf("%d steps can be started, want 5", m.Depth())
	}
	ahead := rows
	rows = nil
	for step := range steps {
		if err := m.Forward(batch(step, fed[step])); err != nil {
			t.Fatal(err)
		}
		if drawn := read(); !slices.Equal(drawn, fed[step+1]) {
			t.Fatalf("step %d draws %v, and %v ahead", step, drawn, fed[step+1])
		}
	}
	for i := range rows {
		if !slices.Equal(rows[i], ahead[i]) {
			t.Fatalf("the logits of step %d differ ahead", i/2)
		}
	}
}

func TestStepsAheadThatAreImpossibleAreRefused(t *testing.T) {
	d := openAlone(t)
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{}))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(t.Context(), f, d, model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 2, MaxRows: 64, MaxOut: 4})
	if err != nil {
		t.Fatal(err)
	}
	one := func(change func(*device.Batch)) *device.Batch {
		b := &device.Batch{Tokens: []int32{5}, Pos: []int32{0}, Seq: []int32{0}, Out: []int32{0}, Tables: [][][]int32{{{1}}}}
		change(b)
		return b
	}
	draws := func(b *device.Batch) { b.Draws = []device.Draw{{}} }
	refused := func(what, want string, b *device.Batch) {
		t.Helper()
		if _, err := m.Submit(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", what, err, want)
		}
	}
	refused("ahead of nothing", "draws no tokens", one(func(b *device.Batch) { b.Ahead = true }))
	refused("more draws than rows", "draws 2 tokens for 1", one(func(b *device.Batch) { b.Draws = make([]device.Draw, 2) }))
	refused("a draw at a negative temperature", "invalid", one(func(b *device.Batch) { b.Draws = []device.Draw{{Temperature: -1}} }))
	refused("no output row", "want as many", one(func(b *device.Batch) { b.Ahead, b.Out = true, nil }))
	first, err := m.Submit(one(func(b *device.Batch) {}))
	if err != nil {
		t.Fatal(err)
	}
	refused("after a step that draws nothing", "draws no tokens", one(func(b *device.Batch) { b.Ahead = true }))
	var tickets []model.Ticket
	for range m.Depth() - 1 {
		ticket, err := m.Submit(one(draws))
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, ticket)
	}
	refused("more steps than the device takes", "not been collected", one(draws))
	if err := m.Forward(one(draws)); err == nil {
		t.Error("a step was computed in addition to those that were started")
	}
	for _, ticket := range append([]model.Ticket{first}, tickets...) {
		if _, err := m.Drawn(0); err == nil {
			t.Error("a token was read of a step that was not collected")
		}
		if _, err := m.Collect(ticket); err != nil {
			t.Fatal(err)
		}
		if ticket == first {
			if _, err := m.Drawn(0); err == nil {
				t.Error("a token was read of a step that draws none")
			}
		}
		if err := m.Logits(make([]float32, m.Config().Vocab), 0); err != nil {
			t.Error(err)
		}
		if ticket != first {
			if _, err := m.Drawn(0); err != nil {
				t.Error(err)
			}
			break
		}
	}
}
