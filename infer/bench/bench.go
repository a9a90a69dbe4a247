// Package bench measures the speed of a model on a device: prefill, decode of one answer and of
// several at once, and the memory bandwidth that limits decode. It also has the shapes of published models,
// and writes headers and whole files of them with random weights.
package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// Options configures a measurement.
type Options struct {
	Prompts  []int            // tokens in the prompt, for each length to measure
	Answer   int              // tokens to decode after it
	Repeat   int              // rounds, of which the median is reported
	Contexts []int            // positions that are in the KV cache already, for each length to measure decode and a next turn at
	Parallel int              // 2, 4, … answers are decoded at once up to this number; 1: only single answers
	Cache    device.CacheType // of the KV cache
	Drafts   bool             // also measure steps of one answer with rows for drafted tokens
	Ahead    bool             // also measure an answer that is sampled, without steps ahead and with them
	Kernels  bool             // also measure each kernel of a step of an answer after the first prompt

	// Progress, if set, is called with the current activity and its progress.
	Progress func(what string, done, total int64)
}

// Result is the result of a measurement. Speeds are medians over the rounds.
type Result struct {
	Model        string        `json:"model"`
	Device       string        `json:"device"`
	Path         string        `json:"path"`             // number path
	Decode       device.Decode `json:"decode,omitempty"` // how a GPU runs steps
	DecodeReason string        `json:"decode_reason,omitempty"`
	Notice       string        `json:"notice,omitempty"` // why another device was not used
	Threads      int           `json:"threads,omitempty"`
	Answer       int           `json:"answer_tokens"`
	Repeat       int           `json:"repeat"`

	Speed                     // with the first length of prompt
	LoadSeconds    float64    `json:"load_seconds"`          // weights to the device, programs compiled
	PrepareSeconds float64    `json:"prepare_seconds"`       // first prefill and token
	PackSeconds    float64    `json:"pack_seconds"`          // for the copies of weights that are faster to read, if they are made after that
	ReadGBs        float64    `json:"read_gb_s"`             // read bandwidth of the device's memory
	PeakRSSMB      int64      `json:"peak_rss_mb,omitempty"` // of the process; 0: unknown
	LogitsHash     string     `json:"logits_hash"`           // of the logits after the first prompt, to compare devices bit for bit
	Parallel       []Parallel `json:"parallel,omitempty"`    // after the first prompt
	Drafts         []Draft    `json:"drafts,omitempty"`      // after the first prompt
	Ahead          *Ahead     `json:"ahead,omitempty"`       // after the first prompt
	Lengths        []Speed    `json:"lengths,omitempty"`     // for each length of prompt, if several were measured
	Contexts       []Context  `json:"contexts,omitempty"`
	Kernels        []Kernel   `json:"kernels,omitempty"` // in the order of their first launch in a step
}

// Kernel is the speed of the launches in a step that are alike.
type Kernel struct {
	Kernel       string  `json:"kernel"`
	Grid         [3]int  `json:"grid"`            // blocks
	Launches     int     `json:"launches"`        // in a step
	Bytes        int64   `json:"bytes"`           // of weights and KV cache that one of them reads
	Microseconds float64 `json:"us"`              // of one of them, the mean
	GBs          float64 `json:"gb_s,omitempty"`  // of these bytes
	Share        float64 `json:"share,omitempty"` // of ReadGBs
	OfStep       float64 `json:"of_step"`         // share of the time of all launches
}

// TurnTokens is the number of tokens of the next turn in a chat that Context measures.
const TurnTokens = 32

// Context is the speed of an answer after a context of some length.
type Context struct {
	Context             int     `json:"context_tokens"`
	PrefillSeconds      float64 `json:"prefill_seconds"` // of the context, once
	TurnSeconds         float64 `json:"turn_seconds"`    // to the first token after TurnTokens more
	DecodeTokS          float64 `json:"decode_tok_s"`
	DecodeBytesPerToken int64   `json:"decode_bytes_per_token"`
	DecodeGBs           float64 `json:"decode_gb_s"`
	DecodeShare         float64 `json:"decode_share"`
}

// Speed is the speed of one answer to a prompt of some length.
type Speed struct {
	Prompt              int     `json:"prompt_tokens"`
	PrefillTokS         float64 `json:"prefill_tok_s"`
	DecodeTokS          float64 `json:"decode_tok_s"`
	DecodeBytesPerToken int64   `json:"decode_bytes_per_token"` // weights and KV cache read, halfway through the answer
	DecodeGBs           float64 `json:"decode_gb_s"`
	DecodeShare         float64 `json:"decode_share"` // of ReadGBs
	Spread              float64 `json:"spread"`       // of DecodeTokS: (fastest - slowest) / median
}

// Parallel is the speed of several answers at once.
type Parallel struct {
	Answers    int     `json:"answers"`
	DecodeTokS float64 `json:"decode_tok_s"` // of all of them together
}

// Draft is the speed of steps that also have rows for drafted tokens. The time in which tokens are drafted is not in it.
type Draft struct {
	Tokens     int     `json:"tokens"`       // drafted in each step
	Cost       float64 `json:"cost"`         // time of a step, relative to one without a draft: its speed if none is accepted is 1/Cost
	DecodeTokS float64 `json:"decode_tok_s"` // if all are accepted

	Accepting []Accepting `json:"accepting"` // with drafts that are right with given probabilities
}

// Accepting is the speed of an answer whose drafted tokens are right with a given probability, each one if those before it are.
type Accepting struct {
	Probability float64 `json:"probability"`
	Accepted    float64 `json:"accepted"`     // share of the drafted tokens
	DecodeTokS  float64 `json:"decode_tok_s"` // measured
	Gain        float64 `json:"gain"`         // DecodeTokS over that without drafts, measured in turn
}

// probabilities are those of Draft.Accepting.
var probabilities = []float64{0.4, 0.6, 0.8}

// chunkRows returns the most rows in a step on a device, as in the engine.
func chunkRows(i device.Info) int { return max(i.StepRows, placement.StepLimitsOf(1, 0).Rows) }

// maxDraft is the most drafted tokens in a step, as in the engine.
const maxDraft = 8

// Run measures the model in f, reported as name, on dev. dev must be empty; afterwards it holds
// the model, so the caller must close it before f.
func Run(ctx context.Context, f *gguf.File, name string, dev device.Device, o Options) (Result, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	info := dev.Info()
	r := Result{Model: name, Device: info.Name, Path: info.Path, Notice: info.Notices(), Threads: info.Threads, Answer: o.Answer, Repeat: o.Repeat}
	c, err := model.ReadConfig(f)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return r, err
	}
	longest, after := max(slices.Max(o.Prompts), slices.Max(append([]int{0}, o.Contexts...))), o.Answer
	if len(o.Contexts) > 0 {
		after = max(after, TurnTokens)
	}
	if o.Drafts {
		after += maxDraft // the last step may have more tokens than the answer
	}
	if most := c.ContextLength; longest+after > most {
		return r, fmt.Errorf("%d tokens of prompt and %d of answer exceed the model's context of %d; choose fewer", longest, after, most)
	}
	o.Progress("measuring the memory", 0, 0)
	read, err := readBandwidth(dev)
	if err != nil {
		return r, fmt.Errorf("failed to measure the memory bandwidth: %w", err)
	}
	r.ReadGBs = read / 1e9
	resetPeakRSS() // which has the memory that was read
	b := rounds{ctx: ctx, o: o, rows: chunkRows(info), blocks: (longest + after + device.BlockSize - 1) / device.BlockSize}
	begin := time.Now()
	b.model, err = model.Load(ctx, f, dev, model.Options{
		CacheType: o.Cache,
		Blocks:    b.blocks * o.Parallel,
		States:    o.Parallel,
		MaxRows:   max(b.rows, o.Parallel),
		MaxOut:    max(o.Parallel, 1+maxDraft),
		Context:   longest + after,
		Prompts:   true,
		PackLater: true,
		Progress: func(p model.Progress) {
			if p.KernelsTotal > 0 {
				o.Progress(fmt.Sprintf("compiling kernels, %d of %d", p.Kernels, p.KernelsTotal), 0, 0)
				return
			}
			o.Progress("loading", p.Done, p.Total)
		},
	})
	if err != nil {
		return r, err
	}
	r.LoadSeconds = time.Since(begin).Seconds()
	info = dev.Info() // with what is known since programs were compiled
	r.Decode, r.DecodeReason, r.Path = info.Decode, info.DecodeReason, info.Path
	if err := b.run(&r); err != nil {
		return r, err
	}
	r.PeakRSSMB = peakRSS() >> 20
	o.Progress("measuring the memory", 0, 0)
	if read, err = readBandwidth(dev); err != nil { // again: other programs may have used it before
		return r, fmt.Errorf("failed to measure the memory bandwidth: %w", err)
	}
	r.ReadGBs = max(r.ReadGBs, read/1e9)
	for i := range r.Kernels {
		r.Kernels[i].Share = r.Kernels[i].GBs / r.ReadGBs
	}
	for i := range r.Contexts {
		s := &r.Contexts[i]
		if s.DecodeBytesPerToken, err = model.StepBytes(f, c, o.Cache, s.Context+o.Answer/2); err != nil {
			return r, err
		}
		s.DecodeGBs = s.DecodeTokS * float64(s.DecodeBytesPerToken) / 1e9
		s.DecodeShare = s.DecodeGBs / r.ReadGBs
	}
	for i := range r.Lengths {
		s := &r.Lengths[i]
		if s.DecodeBytesPerToken, err = model.StepBytes(f, c, o.Cache, s.Prompt+o.Answer/2); err != nil {
			return r, err
		}
		s.DecodeGBs = s.DecodeTokS * float64(s.DecodeBytesPerToken) / 1e9
		s.DecodeShare = s.DecodeGBs / r.ReadGBs
	}
	if r.Speed = r.Lengths[0]; len(r.Lengths) == 1 {
		r.Lengths = nil
	}
	return r, nil
}

// rounds runs the measurement on a loaded model.
type rounds struct {
	ctx    context.Context
	o      Options
	model  *model.Model
	rows   int // most of a step
	blocks int // of the KV cache for one answer
}

func (b *rounds) run(r *Result) error {
	begin, first := time.Now(), b.o.Prompts[0]
	if err := b.prefill(first); err != nil {
		return err
	}
	logits := make([]float32, b.model.Config().Vocab)
	if err := b.model.Logits(logits, 0); err != nil {
		return err
	}
	r.LogitsHash = hash(logits)
	if err := b.decode(1, first, 1); err != nil {
		return err
	}
	r.PrepareSeconds = time.Since(begin).Seconds()
	var err error
	if r.PackSeconds, err = timed(b.pack); err != nil {
		return err
	}
	if b.o.Kernels {
		b.o.Progress("measuring kernels", 0, 0)
		list, err := b.kernels()
		if err != nil {
			return err
		}
		r.Kernels = list
	}
	for i, prompt := range b.o.Prompts {
		s, err := b.speed(prompt, i*b.o.Repeat)
		if err != nil {
			return err
		}
		r.Lengths = append(r.Lengths, s)
	}
	for _, n := range b.o.Contexts {
		c, err := b.context(n)
		if err != nil {
			return err
		}
		r.Contexts = append(r.Contexts, c)
	}
	for answers := 2; answers <= b.o.Parallel; answers *= 2 {
		b.o.Progress(fmt.Sprintf("measuring %d answers at once", answers), 0, 0)
		seconds, err := timed(func() error { return b.decode(answers, first, b.o.Answer) })
		if err != nil {
			return err
		}
		r.Parallel = append(r.Parallel, Parallel{answers, float64(answers*b.o.Answer) / seconds})
	}
	if b.o.Ahead {
		if err := b.ahead(r); err != nil {
			return err
		}
	}
	if b.o.Drafts {
		return b.drafts(r)
	}
	return nil
}

// pack copies the weights that the device has views of.
func (b *rounds) pack() error {
	const slice = 100 * time.Millisecond
	total, err := b.model.Pack(0)
	for missing := total; missing > 0 && err == nil; {
		b.o.Progress("copying the weights", total-missing, total)
		if missing, err = b.model.Pack(slice); err == nil {
			err = b.ctx.Err()
		}
	}
	return err
}

// drafts measures steps with drafts of several lengths, in turn.
func (b *rounds) drafts(r *Result) error {
	lengths := []int{0, 1, 2, 4, maxDraft}
	steps := make([][]float64, len(lengths)) // seconds
	for i := range b.o.Repeat {
		b.o.Progress("measuring drafts", int64(i), int64(b.o.Repeat))
		for k, n := range lengths {
			count := max(1, (b.o.Answer+n)/(1+n))
			seconds, err := timed(func() error {
				_, err := b.draftSteps(b.o.Prompts[0], n, b.o.Answer, func() bool { return true })
				return err
			})
			if err != nil {
				return err
			}
			steps[k] = append(steps[k], seconds/float64(count))
		}
	}
	accepting := map[int][]Accepting{}
	for _, p := range probabilities {
		for _, n := range lengths[1:] {
			a, err := b.accepting(n, p)
			if err != nil {
				return err
			}
			accepting[n] = append(accepting[n], a)
		}
	}
	for k, n := range lengths[1:] {
		took := median(steps[1+k])
		r.Drafts = append(r.Drafts, Draft{Tokens: n, Cost: took / median(steps[0]), DecodeTokS: float64(1+n) / took, Accepting: accepting[n]})
	}
	return nil
}

// accepting measures answers without drafts, and with drafts of n tokens that are right with probability p, in turn.
func (b *rounds) accepting(n int, p float64) (a Accepting, err error) {
	a.Probability = p
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var speeds, gains []float64
	drafted, accepted := 0, 0
	for i := range b.o.Repeat {
		b.o.Progress(fmt.Sprintf("measuring drafts that are right by %.0f %%", 100*p), int64(i), int64(b.o.Repeat))
		seconds, err := timed(func() error { return b.decode(1, b.o.Prompts[0], b.o.Answer) })
		if err != nil {
			return a, err
		}
		steps := 0
		with, err := timed(func() error {
			steps, err = b.draftSteps(b.o.Prompts[0], n, b.o.Answer, func() bool { return rng.Float64() < p })
			return err
		})
		if err != nil {
			return a, err
		}
		drafted, accepted = drafted+n*steps, accepted+max(0, b.o.Answer-steps)
		speeds, gains = append(speeds, float64(b.o.Answer)/with), append(gains, seconds/with)
	}
	a.Accepted, a.DecodeTokS, a.Gain = float64(accepted)/float64(max(1, drafted)), median(speeds), median(gains)
	return a, nil
}

// draftSteps computes an answer of so many tokens, or up to n more, after prompt tokens, in steps with n drafted tokens each, of which those are
// accepted for which accept returns true, up to the first other one. It returns how many steps that took.
func (b *rounds) draftSteps(prompt, n, answer int, accept func() bool) (steps int, err error) {
	for pos := prompt; pos < prompt+answer; steps++ {
		if err := b.ctx.Err(); err != nil {
			return steps, err
		}
		batch := &device.Batch{Tables: b.tables(1), States: states(1)}
		for i := range 1 + n {
			batch.Tokens, batch.Pos = append(batch.Tokens, b.token(pos+i)), append(batch.Pos, int32(pos+i))
			batch.Seq, batch.Out = append(batch.Seq, 0), append(batch.Out, int32(i))
		}
		if err := b.model.Forward(batch); err != nil {
			return steps, err
		}
		right := 0
		for i := range batch.Out {
			if _, err := b.model.Candidates(i); err != nil {
				return steps, err
			}
			if i < n && right == i && accept() {
				right++
			}
		}
		pos += 1 + right
	}
	return steps, nil
}

// speed measures one answer to a prompt of so many tokens. done rounds came before.
func (b *rounds) speed(prompt, done int) (Speed, error) {
	var prefill, decode []float64
	for i := range b.o.Repeat {
		b.o.Progress("measuring", int64(done+i), int64(len(b.o.Prompts)*b.o.Repeat))
		seconds, err := timed(func() error { return b.prefill(prompt) })
		if err != nil {
			return Speed{}, err
		}
		prefill = append(prefill, float64(prompt)/seconds)
		if seconds, err = timed(func() error { return b.decode(1, prompt, b.o.Answer) }); err != nil {
			return Speed{}, err
		}
		decode = append(decode, float64(b.o.Answer)/seconds)
	}
	s := Speed{Prompt: prompt, PrefillTokS: median(prefill), DecodeTokS: median(decode)}
	s.Spread = (slices.Max(decode) - slices.Min(decode)) / s.DecodeTokS
	return s, nil
}

// context measures an answer and a turn after n positions.
func (b *rounds) context(n int) (Context, error) {
	c := Context{Context: n}
	b.o.Progress(fmt.Sprintf("measuring a context of %d", n), 0, 0)
	var err error
	if c.PrefillSeconds, err = timed(func() error { return b.prefillFrom(0, n) }); err != nil {
		return c, err
	}
	var turns, decode []float64
	for range b.o.Repeat {
		seconds, err := timed(func() error { return b.prefillFrom(n, n+TurnTokens) })
		if err != nil {
			return c, err
		}
		turns = append(turns, seconds)
		if seconds, err = timed(func() error { return b.decode(1, n, b.o.Answer) }); err != nil {
			return c, err
		}
		decode = append(decode, float64(b.o.Answer)/seconds)
	}
	c.TurnSeconds, c.DecodeTokS = median(turns), median(decode)
	return c, nil
}

// kernels measures the kernels of a step of one answer after the first prompt.
func (b *rounds) kernels() (list []Kernel, err error) {
	pos := b.o.Prompts[0]
	times, err := b.model.Profile(&device.Batch{
		Tokens: []int32{b.token(pos)}, Pos: []int32{int32(pos)}, Seq: []int32{0}, Tables: b.tables(1), States: states(1), Out: []int32{0},
	}, 4*b.o.Repeat)
	if err != nil {
		return nil, err
	}
	total := 0.0
	for _, t := range times {
		us := float64(t.Time.Nanoseconds()) / 1e3
		total += us
		i := slices.IndexFunc(list, func(k Kernel) bool { return k.Kernel == t.Kernel && k.Grid == t.Grid && k.Bytes == t.Bytes })
		if i < 0 {
			i, list = len(list), append(list, Kernel{Kernel: t.Kernel, Grid: t.Grid, Bytes: t.Bytes})
		}
		list[i].Launches++
		list[i].Microseconds += us // the sum until all are counted
	}
	for i := range list {
		k := &list[i]
		k.OfStep = k.Microseconds / total
		k.Microseconds /= float64(k.Launches)
		if k.Bytes > 0 && k.Microseconds > 0 {
			k.GBs = float64(k.Bytes) / k.Microseconds / 1e3
		}
	}
	return list, nil
}

// table returns the KV-cache block table of answer i.
func (b *rounds) table(i int) []int32 {
	t := make([]int32, b.blocks)
	for k := range t {
		t[k] = int32(i*b.blocks + k)
	}
	return t
}

// tables returns the block tables of answers: those of all cache groups are alike.
func (b *rounds) tables(answers int) (tables [][][]int32) {
	var one [][]int32
	for i := range answers {
		one = append(one, b.table(i))
	}
	for range b.model.Config().CacheGroups() {
		tables = append(tables, one)
	}
	return tables
}

// states returns the slots of recurrent state of so many answers.
func states(answers int) (slots []int32) {
	for i := range answers {
		slots = append(slots, int32(i))
	}
	return slots
}

// token returns a token for a position. They are spread over the vocabulary, so that rows all
// over the embedding table are read.
func (b *rounds) token(pos int) int32 {
	return int32((7919*pos + 1) % b.model.Config().Vocab)
}

// prefill runs a prompt of n tokens of the first answer and computes the logits of its last row.
func (b *rounds) prefill(n int) error { return b.prefillFrom(0, n) }

// prefillFrom is prefill for positions from to to-1.
func (b *rounds) prefillFrom(from, to int) error {
	for begin, end := from, from; begin < to; begin = end {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		end = min(begin+b.rows, to)
		batch := &device.Batch{Tables: b.tables(1), States: states(1)}
		if b.model.OwnPrompts() && to-from > 1 && begin < to-1 { // as in the engine, the last row is one of the answer
			end, batch.Prompt = min(end, to-1), true
		}
		for pos := begin; pos < end; pos++ {
			batch.Tokens = append(batch.Tokens, b.token(pos))
			batch.Pos = append(batch.Pos, int32(pos))
			batch.Seq = append(batch.Seq, 0)
		}
		if end == to {
			batch.Out = []int32{int32(len(batch.Tokens) - 1)}
		}
		if err := b.model.Forward(batch); err != nil {
			return err
		}
	}
	return nil
}

// decode decodes n tokens of several answers at once, with the sampler's candidates, as if all
// had the same prompt, of prompt tokens.
func (b *rounds) decode(answers, prompt, n int) error {
	batch := &device.Batch{
		Tokens: make([]int32, answers),
		Pos:    make([]int32, answers),
		Seq:    make([]int32, answers),
		Tables: b.tables(answers),
		States: states(answers),
		Out:    make([]int32, answers),
	}
	for i := range answers {
		batch.Seq[i], batch.Out[i] = int32(i), int32(i)
	}
	for pos := prompt; pos < prompt+n; pos++ {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		for i := range answers {
			batch.Tokens[i], batch.Pos[i] = b.token(pos+i), int32(pos)
		}
		if err := b.model.Forward(batch); err != nil {
			return err
		}
		for i := range answers {
			c, err := b.model.Candidates(i)
			if err != nil {
				return err
			}
			if c.All != nil {
				c.Bad = -1
				if v := c.All[0]; v != v || math.IsInf(float64(v), 0) {
					c.Bad = 0
				}
			}
			if c.Bad >= 0 {
				return fmt.Errorf("the logit of token %d at position %d is not finite", c.Bad, pos)
			}
		}
	}
	return nil
}

func timed(do func() error) (seconds float64, err error) {
	begin := time.Now()
	err = do()
	return time.Since(begin).Seconds(), err
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func hash(logits []float32) string {
	data := make([]byte, 0, 4*len(logits))
	for _, v := range logits {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// readBandwidth returns the read bandwidth of dev's memory in bytes per second, as dev measures it,
// or else as plain Go reads main memory.
func readBandwidth(dev device.Device) (float64, error) {
	if d, ok := dev.(device.BandwidthMeter); ok {
		return d.ReadBandwidth()
	}
	return hostBandwidth(), nil
}

// hostBandwidth returns the bytes per second that all cores together read from memory, the
// best of several passes. It takes half a gibibyte, and two seconds at most. It searches for a byte
// that does not occur, which uses vector instructions.
func hostBandwidth() (best float64) {
	const size = 512 << 20
	memory := bytes.Repeat([]byte{1}, size)
	cores := runtime.GOMAXPROCS(0)
	first := time.Now()
	for pass := 0; pass < 8 && (pass == 0 || time.Since(first) < 2*time.Second); pass++ {
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range cores {
			wg.Go(func() { bytes.IndexByte(memory[i*size/cores:(i+1)*size/cores], 0) })
		}
		wg.Wait()
		best = max(best, size/time.Since(begin).Seconds())
	}
	return best
}

// resetPeakRSS makes peakRSS return the peak from now on, if the system can.
func resetPeakRSS() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// peakRSS returns the peak resident memory of the process in bytes, 0 if unknown.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
