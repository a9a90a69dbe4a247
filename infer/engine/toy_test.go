package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// toy stands in for a model: the logits of a row are a hash of all tokens up to it,
// found by following the block table from row to row. Wherever rows, positions,
// blocks or sequences are mixed up, other tokens come out.
type toy struct {
	options model.Options
	groups  []model.CacheGroup
	cache   [][]cell // by cache group, block and position
	out     []history
	outPos  []int32

	submitted []*device.Batch // and not collected
	fed       []int32         // tokens of the rows of the next step if it is ahead
	drawn     []int32         // of the last collected step
	unpacked  int64           // bytes of weights that Pack has not copied

	bench *bench
}

// cell is K and V of a position.
type cell struct{ of, before history }

// A toy that computes steps ahead does so in Collect: what was submitted must not be touched before.
func (m *toy) Submit(b *device.Batch) (model.Ticket, error) {
	if len(m.submitted) >= m.Depth() {
		return 0, errors.New("too many steps were submitted")
	}
	if b.Ahead && (len(m.submitted) == 0 || len(m.submitted[len(m.submitted)-1].Draws) != len(b.Tokens)) {
		return 0, errors.New("the step before draws no tokens")
	}
	copied := *b // a device has its own copy of the inputs
	copied.Tables = nil
	for _, tables := range b.Tables {
		copied.Tables = append(copied.Tables, nil)
		for _, table := range tables {
			copied.Tables[len(copied.Tables)-1] = append(copied.Tables[len(copied.Tables)-1], slices.Clone(table))
		}
	}
	m.submitted = append(m.submitted, &copied)
	return 1, nil
}

func (m *toy) Collect(model.Ticket) ([]model.Result, error) {
	b := m.submitted[0]
	m.submitted = m.submitted[1:]
	m.bench.mu.Lock()
	m.bench.ahead = append(m.bench.ahead, len(m.submitted))
	m.bench.mu.Unlock()
	if b.Ahead {
		b.Tokens = slices.Clone(m.fed)
	}
	err := m.forward(b)
	if err == nil {
		err = m.draw(b)
	}
	return model.Results(b), err
}

func (m *toy) Depth() int { return max(1, m.bench.depth) }

// draw draws tokens with the chain of package sample, and now and then a wrong one.
func (m *toy) draw(b *device.Batch) error {
	m.drawn = m.drawn[:0]
	for i, d := range b.Draws {
		p := sample.DefaultParams()
		p.Temperature, p.TopK, p.TopP, p.MinP, p.Seed = d.Temperature, d.TopK, d.TopP, d.MinP, d.Seed
		chain, err := sample.NewChain(p, toyVocabulary(m.bench.vocab))
		if err != nil {
			return err
		}
		c, err := m.Candidates(i)
		if err != nil {
			return err
		}
		id := int32(0) // not finite: the host ends the answer
		if choice, err := chain.Next(sample.Input{Row: sample.RowOf(c.All), Pos: d.Pos}); err == nil {
			id = choice.ID
		}
		if n := m.bench.missEvery; n > 0 && m.out[i]%history(n) == 0 {
			id = (id + 1) % int32(m.bench.vocab)
		}
		m.drawn = append(m.drawn, id)
	}
	m.fed = m.drawn
	return nil
}

func (m *toy) Drawn(i int) (int32, error) { return m.drawn[i], nil }

// toyVocabulary is a vocabulary of so many tokens without text.
type toyVocabulary int

func (v toyVocabulary) Size() int          { return int(v) }
func (v toyVocabulary) Piece(int32) []byte { return nil }

func (m *toy) forward(b *device.Batch) error {
	m.bench.mu.Lock()
	m.bench.steps++
	m.bench.rows += len(b.Tokens)
	step, hook := m.bench.steps, m.bench.onStep
	m.bench.mu.Unlock()
	if hook != nil {
		if err := hook(step, b); err != nil {
			return err
		}
	}
	p := device.NewProgram(m.options.MaxRows, m.options.MaxOut)
	if err := b.Check(device.Limits{Rows: p.Rows, Out: p.Out, Blocks: m.options.GroupBlocks, Vocab: m.bench.vocab, Positions: math.MaxInt32}); err != nil {
		return err
	}
	m.out, m.outPos = m.out[:0], m.outPos[:0]
	for row, id := range b.Tokens {
		before := historyOf(nil)
		for g, group := range m.groups {
			table, pos := b.Tables[g][b.Seq[row]], int(b.Pos[row])
			last := historyOf(nil)
			for read := group.Needs(pos); read < pos; read++ {
				c := m.cell(g, table, read)
				if read > group.Needs(pos) && c.before != last {
					return fmt.Errorf("position %d of group %d does not follow the one before it", read, g)
				}
				last = c.of
			}
			if g > 0 && pos > 0 && group.Window != 1 && last != before {
				return fmt.Errorf("position %d of group %d is another sequence's", pos-1, g)
			}
			before = last
			*m.cell(g, table, pos) = cell{before.then(id), before}
		}
		if slices.Contains(b.Out, int32(row)) {
			m.out = append(m.out, before.then(id))
			m.outPos = append(m.outPos, b.Pos[row])
		}
	}
	return nil
}

func (m *toy) cell(group int, table []int32, pos int) *cell {
	return &m.cache[group][int(table[pos/device.BlockSize])*device.BlockSize+pos%device.BlockSize]
}

func (m *toy) Candidates(i int) (device.Candidates, error) {
	all := make([]float32, m.bench.vocab)
	err := m.Logits(all, i)
	return device.Candidates{All: all}, err
}

func (m *toy) Logits(dst []float32, i int) error {
	fillLogits(dst, m.out[i])
	if hook := m.bench.onLogits; hook != nil {
		hook(dst, m.outPos[i])
	}
	return nil
}

func (m *toy) Vectors([]float32, int) error { return errors.New("a toy computes no embeddings") }

func (m *toy) ReadBlock(dst []byte, group int, id int32) error {
	for i := range device.BlockSize {
		c := m.cache[group][int(id)*device.BlockSize+i]
		binary.LittleEndian.PutUint64(dst[16*i:], uint64(c.of))
		binary.LittleEndian.PutUint64(dst[16*i+8:], uint64(c.before))
	}
	return nil
}

func (m *toy) WriteBlock(group int, id int32, src []byte) error {
	for i := range device.BlockSize {
		m.cache[group][int(id)*device.BlockSize+i] = cell{history(binary.LittleEndian.Uint64(src[16*i:])), history(binary.LittleEndian.Uint64(src[16*i+8:]))}
	}
	return nil
}

// ReleaseBlock drops what a block holds, as a device that gives its memory back.
func (m *toy) ReleaseBlock(group int, id int32) error {
	clear(m.cache[group][int(id)*device.BlockSize:][:device.BlockSize])
	m.bench.released.Add(1)
	return nil
}

func (m *toy) BlockBytes() []int { return slices.Repeat([]int{16 * device.BlockSize}, len(m.groups)) }

// Pack copies one byte, in a millisecond.
func (m *toy) Pack(limit time.Duration) (int64, error) {
	if limit == 0 || m.unpacked == 0 {
		return m.unpacked, nil
	}
	if len(m.submitted) > 0 {
		return 0, errors.New("weights are copied while a step is computed")
	}
	if hook := m.bench.onPack; hook != nil {
		if err := hook(); err != nil {
			return 0, err
		}
	}
	time.Sleep(time.Millisecond)
	m.unpacked--
	return m.unpacked, nil
}

var errNoState = errors.New("the toy has no recurrent state")

func (m *toy) CopyState(to, from int32) error          { return errNoState }
func (m *toy) StateBytes() int                         { return 0 }
func (m *toy) ReadState(dst []byte, slot int32) error  { return errNoState }
func (m *toy) WriteState(slot int32, src []byte) error { return errNoState }

const (
	toyVocab = 320
	toyEnd   = 2            // the vocabulary's end token
	letterA  = 3 + int('a') // the bytes follow three special tokens
)

// fillLogits makes logits from a history: small letters and pairs of them are
// likely, so that answers are text.
func fillLogits(dst []float32, h history) {
	for id := range dst {
		dst[id] = float32(h.then(int32(id))>>40) / (1 << 22) // 0 to 4
		if id >= letterA && id < letterA+26 || id >= 3+256 {
			dst[id] += 8
		}
	}
}

func (h history) then(id int32) history { return (h ^ history(uint32(id)+1)) * 1099511628211 }

// greedy returns the n tokens that the toy answers to prompt at temperature 0, with
// no engine at all.
func greedy(prompt []int32, n int) []int32 {
	tokens, logits := slices.Clone(prompt), make([]float32, toyVocab)
	for range n {
		fillLogits(logits, historyOf(tokens))
		best := 0
		for id := range logits {
			if logits[id] > logits[best] {
				best = id
			}
		}
		tokens = append(tokens, int32(best))
	}
	return tokens[len(prompt):]
}

// bench is an engine over toys, with hooks into its steps.
type bench struct {
	*Engine
	t     testing.TB
	files map[string][]byte

	mu        sync.Mutex
	steps     int
	rows      int
	ahead     []int // steps that were submitted after each one, when it was collected
	open      int   // devices
	opened    int   // the same, ever
	reads     int   // files opened
	openErr   error
	memory    int64
	readsFile bool // devices can leave weights in the file
	suggests  *sample.Suggestion
	vocab     int          // logits of a row
	depth     int          // steps that toys take before the first is collected; 0: 1
	missEvery int          // one in so many tokens that toys draw is wrong; 0: none
	released  atomic.Int64 // blocks whose memory was given back
	onStep    func(step int, b *device.Batch) error
	onLogits  func(logits []float32, pos int32)
	onLoad    func(ctx context.Context, o model.Options) error
	onPack    func() error
	unpacked  int64 // bytes of weights that devices copy between steps, if they may
}

// toyDevice has memory and nothing else.
type toyDevice struct {
	device.Device
	bench *bench
}

func (d toyDevice) Info() device.Info {
	return device.Info{Kind: "toy", Name: "a toy", Path: "hash", Memory: d.bench.memory}
}

func (d toyDevice) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	return int64(rows) * int64(t.RowBytes(cols)), nil
}

func (d toyDevice) WorkBytes(...*device.Program) int64 { return 0 }

func (d toyDevice) Close() error {
	d.bench.mu.Lock()
	defer d.bench.mu.Unlock()
	d.bench.open--
	return nil
}

func (b *bench) Models(context.Context) ([]infer.ModelInfo, error) { return nil, nil }

func (b *bench) OpenDevice(*gguf.File) (device.Device, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openErr != nil {
		return nil, b.openErr
	}
	if b.open++; b.open > 1 {
		b.t.Error("a second device was opened before the first was closed")
	}
	b.opened++
	if b.readsFile {
		return &toyReader{toyDevice: toyDevice{bench: b}}, nil
	}
	return toyDevice{bench: b}, nil
}

// toyReader is a toyDevice that can leave weights in the file, and copy them later: the toy does so.
type toyReader struct {
	toyDevice
	why string
}

func (d *toyReader) KeepInFile(why string) { d.why = why }

func (d *toyReader) PackLater() {}

func (d *toyReader) Pack(time.Duration, func([]byte)) (int64, error) { return 0, nil }

func (d *toyReader) Info() device.Info {
	info := d.toyDevice.Info()
	info.InFile = d.why
	return info
}

func (d *toyReader) WeightBytes(t gguf.Type, rows, cols int) (int64, error) {
	if d.why != "" {
		return 0, nil
	}
	return d.toyDevice.WeightBytes(t, rows, cols)
}

// catalog serves the files of a bench.
type catalog struct{ *bench }

func (c catalog) OwnTemplate(m infer.ModelInfo) (string, error) { return m.ChatTemplate, nil }

func (c catalog) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	data, ok := c.files[name]
	if !ok {
		return nil, infer.ModelInfo{}, fault.Errorf(fault.CodeNotFound, "there is no model %q", name)
	}
	f, err := gguf.Parse(data)
	return f, infer.ModelInfo{Name: name, Size: int64(len(data)), Sampling: c.suggests}, err
}

// newBench starts an engine; set is called before, and its first model is "toy"
// unless set says otherwise.
func newBench(t testing.TB, set func(*bench, *Options)) *bench {
	b := &bench{t: t, vocab: toyVocab, files: map[string][]byte{
		"toy":   gguftest.TinyLlama(gguftest.Llama{}),
		"other": gguftest.TinyLlama(gguftest.Llama{Seed: 1, Context: 128}),
	}}
	o := Options{
		Catalog:    catalog{b},
		OpenDevice: b.OpenDevice,
		Model:      "toy",
		Logger:     slog.New(slog.NewTextHandler(testWriter{t}, nil)),
		Version:    "test",
	}
	if set != nil {
		set(b, &o)
	}
	e, err := open(o, func(ctx context.Context, f *gguf.File, _ []model.Stage, o model.Options) (forwarder, error) {
		if b.onLoad != nil {
			if err := b.onLoad(ctx, o); err != nil {
				return nil, err
			}
		}
		o.Progress(model.Progress{Done: 1, Total: 1})
		c, err := model.ReadConfig(f)
		m := &toy{options: o, groups: c.CacheGroups(), bench: b}
		for _, blocks := range o.GroupBlocks {
			m.cache = append(m.cache, make([]cell, blocks*device.BlockSize))
		}
		if o.PackLater {
			m.unpacked = b.unpacked
		}
		return m, err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Engine = e
	t.Cleanup(func() {
		e.Close()
		if b.open != 0 {
			t.Errorf("%d devices are still open after Close", b.open)
		}
		if n := e.compared.Load(); n != 0 {
			t.Errorf("%d bytes are still counted for comparisons after Close", n)
		}
		if e.inbox.count != 0 || len(e.models.open) != 0 {
			t.Errorf("%d requests and %d files are still open after Close", e.inbox.count, len(e.models.open))
		}
	})
	return b
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

// outcome is all that one answer sent.
type outcome struct {
	events []infer.Event
	prompt []infer.Token
	tokens []infer.Token
	text   string
	done   *infer.Done
	err    error
}

func (r outcome) ids() (ids []int32) {
	for _, t := range r.tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

func (r outcome) code() fault.Code {
	var e *fault.Error
	if errors.As(r.err, &e) {
		return e.Code
	}
	return ""
}

// ask reads an answer to its end. The order of its events is checked.
func (b *bench) ask(r infer.Request) outcome { return b.askContext(b.t.Context(), r, nil) }

func (b *bench) askContext(ctx context.Context, r infer.Request, each func(infer.Event)) (a outcome) {
	order := map[infer.EventType]int{infer.EventQueued: 1, infer.EventLoading: 1, infer.EventPrefill: 1, infer.EventToken: 2, infer.EventDone: 3}
	last := 0
	for e, err := range b.Generate(ctx, r) {
		if err != nil {
			a.err = err
			continue
		}
		if order[e.Type] < last || last == 3 || a.err != nil {
			b.t.Errorf("a %s event comes too late", e.Type)
		}
		last = order[e.Type]
		a.events = append(a.events, e)
		switch {
		case e.Token != nil && e.Token.Prompt:
			a.prompt = append(a.prompt, *e.Token)
		case e.Token != nil:
			a.tokens = append(a.tokens, *e.Token)
			a.text += e.Token.Text
		case e.Done != nil:
			a.done = e.Done
			a.text += e.Done.Text
		}
		if each != nil {
			each(e)
		}
	}
	if (a.done == nil) == (a.err == nil) {
		b.t.Errorf("an answer ended with done %v and error %v", a.done, a.err)
	}
	return a
}

// request asks for n tokens at temperature 0.
func request(prompt []int32, n int) infer.Request {
	r := infer.DefaultRequest()
	r.Tokens, r.MaxTokens, r.Params.Temperature = prompt, n, 0
	return r
}
