package devicetest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// sameBits runs a small transformer over fixed sequences, split into batches in many ways, and
// compares the logits with those of one row at a time, bit for bit. The first weight type runs
// all operations and all ways to fill the KV cache, unless OnlyProducts is set. The other types
// differ only in their matrix products, so they run only the ways that select another product
// kernel, or all with M40_LLM_TORTURE=1; expertMatMul compares their products with experts.
func (s Suite) sameBits(t *testing.T) {
	types := s.SameBits
	if types == nil {
		types = s.Types
	}
	for i, typ := range types {
		first := i == 0 && !s.OnlyProducts
		full := first || fixtures.Torture()
		caches := []device.CacheType{f16}
		if first { // the kernels that read the cache do not depend on the weight type
			caches = append(caches, fixtures.At([]device.CacheType{q8q4}, []device.CacheType{f32, q8, q4, q8q4}, []device.CacheType{f32, q8, q4, q8q4})...)
		}
		for _, cache := range caches {
			t.Run(fmt.Sprintf("%s weights, %s cache", typ, cache), func(t *testing.T) {
				newNet := func(t *testing.T, dev device.Device, typ gguf.Type, cache device.CacheType) *net {
					n := newNet(t, dev, typ, cache)
					if full {
						n.widen()
					}
					return n
				}
				want := newNet(t, open(t, s.Open[0]), typ, cache).alone()
				for i, f := range s.Open[1:] {
					t.Run(fmt.Sprintf("variant %d of the device", i+1), func(t *testing.T) {
						newNet(t, open(t, f), typ, cache).vary(t, want, full)
					})
				}
				newNet(t, open(t, s.Open[0]), typ, cache).vary(t, want, full)
			})
		}
	}
}

// prompts checks a device that computes rows of prompts in another way: they have the same bits in all chunks and whoever shares a step, and are near those
// of answers.
func (s Suite) prompts(t *testing.T) {
	if !open(t, s.Open[0]).Info().Prompts {
		return
	}
	types := s.SameBits
	if types == nil {
		types = s.Types
	}
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			n := newNet(t, open(t, s.Open[0]), typ, f16)
			answers := n.whole()
			n.programs, n.prompt = map[int]device.Executable{}, true
			want := n.whole()
			differ := false
			for seq := range want {
				for pos := range want[seq] {
					differ = differ || !slices.Equal(want[seq][pos], answers[seq][pos])
					for i, v := range want[seq][pos] {
						if math.Abs(float64(v-answers[seq][pos][i])) > 0.05 {
							t.Fatalf("sequence %d, position %d, logit %d: %g, as a row of an answer %g", seq, pos, i, v, answers[seq][pos][i])
						}
					}
				}
			}
			if !differ && typ != gguf.F32 { // whose products are the same
				t.Error("rows of prompts have the bits of those of answers: there is nothing to compare")
			}
			same := sameAs(want)
			n.varyChunks(t, []int{33}, same)
			var feeds []*feed
			for seq := range netLengths {
				feeds = append(feeds, &feed{seq: seq, table: []int32{int32(4 * seq), int32(4*seq + 1), int32(4*seq + 2), int32(4*seq + 3)}})
			}
			logits, of := n.step(feeds, netLengths)
			same(t, logits, of)
		})
	}
}

const (
	netVocab   = 67
	netBlocks  = 24
	netMaxRows = 512
	netSlots   = 5 // of recurrent state
)

type netShape struct {
	dim, ffn                int
	heads, kvHeads, headDim int
}

// shapeFor returns a shape in which rows of weights are whole blocks of typ, and heads those of the cache.
func shapeFor(typ gguf.Type, cache device.CacheType) netShape {
	if elements, _ := typ.Block(); elements < 64 && !cache.Fits(16) {
		return netShape{dim: 192, ffn: 160, heads: 6, kvHeads: 2, headDim: 32}
	}
	switch elements, _ := typ.Block(); elements {
	case 256:
		return netShape{dim: 256, ffn: 256, heads: 8, kvHeads: 2, headDim: 32}
	case 64:
		return netShape{dim: 128, ffn: 192, heads: 8, kvHeads: 2, headDim: 16}
	}
	return netShape{dim: 96, ffn: 160, heads: 6, kvHeads: 2, headDim: 16}
}

// netLengths are the lengths of the test sequences, in positions.
var netLengths = []int{97, 33, 70}

// net is a transformer of two layers with random weights. The second layer uses the options of
// operations that the first does not. A wide net has two more layers: see widen.
type net struct {
	*rig
	netShape
	kv       device.KV
	wide     *wide // nil: the net is not wide
	weights  map[string]device.Tensor
	buffers  map[string]device.Tensor
	programs map[int]device.Executable
	prompt   bool // rows are of prompts
}

func newNet(t *testing.T, dev device.Device, typ gguf.Type, cache device.CacheType) *net {
	n := &net{rig: newRig(t, dev, netMaxRows), netShape: shapeFor(typ, cache), weights: map[string]device.Tensor{}, buffers: map[string]device.Tensor{}, programs: map[int]device.Executable{}}
	rng := rand.New(rand.NewPCG(3, 4))
	upload := func(name string, typ gguf.Type, rows, cols int) {
		n.weights[name] = n.upload(typ, rows, cols, RandomWeight(rng, typ, rows, cols, 1/math.Sqrt(float64(cols))))
	}
	upload("embd", typ, netVocab, n.dim)
	for l := range 2 {
		for _, w := range []struct {
			name       string
			rows, cols int
		}{
			{"q", n.dim, n.dim}, {"k", n.kvHeads * n.headDim, n.dim}, {"v", n.kvHeads * n.headDim, n.dim}, {"o", n.dim, n.dim},
			{"gate", n.ffn, n.dim}, {"up", n.ffn, n.dim}, {"down", n.dim, n.ffn},
		} {
			upload(fmt.Sprint(w.name, l), typ, w.rows, w.cols)
		}
		upload(fmt.Sprint("norm", l), gguf.F32, 1, n.dim)
		upload(fmt.Sprint("headnorm", l), gguf.F32, 1, n.headDim)
	}
	for name, cols := range map[string]int{
		"x": n.dim, "norm": n.dim, "q": n.dim, "k": n.kvHeads * n.headDim, "v": n.kvHeads * n.headDim, "att": n.dim,
		"o": n.dim, "gate": n.ffn, "up": n.ffn, "last": n.dim, "logits": netVocab,
	} {
		n.buffers[name] = n.alloc(cols)
	}
	n.kv = n.rig.kv(device.KVLayout{Type: cache, Blocks: netBlocks, Layers: 3, KVHeads: n.kvHeads, HeadDim: n.headDim})
	return n
}

// program returns the forward pass compiled for at least rows rows, rounded up to a power of
// two as package model does.
func (n *net) program(rows int) device.Executable {
	bucket := 1
	if n.prompt {
		bucket = 64 // as the least of package model
	}
	for bucket < rows {
		bucket *= 2
	}
	if x := n.programs[bucket]; x != nil {
		return x
	}
	x, err := n.dev.Compile(n.record(bucket))
	if err != nil {
		n.t.Fatal(err)
	}
	n.programs[bucket] = x
	return x
}

// record returns the forward pass for up to rows rows.
func (n *net) record(rows int) *device.Program {
	p, b := device.NewProgram(rows, rows), n.buffers
	if n.prompt {
		p.Of = device.PromptRows
	}
	ropes := []device.RoPE{
		{HeadDim: n.headDim, Dims: n.headDim, Base: 1e4, Scale: 1},
		{HeadDim: n.headDim, Dims: n.headDim, Base: 1e4, Scale: 0.25, Low: 1, High: 6, Magnitude: 1.14, NeoX: true},
	}
	attentions := []device.Attention{{Heads: n.heads, Scale: 0.25}, {Heads: n.heads, Scale: 0.25, Window: 40, Cap: 5}}
	activations := []device.Activation{device.SiLU, device.GELU}
	p.Embed(b["x"], n.weights["embd"])
	if n.wide != nil {
		n.positions(p)
	}
	for l := range 2 {
		w := func(name string) device.Tensor { return n.weights[fmt.Sprint(name, l)] }
		p.RMSNorm(b["norm"], b["x"], w("norm"), 1e-5)
		p.MatMul(b["q"], w("q"), b["norm"])
		p.MatMul(b["k"], w("k"), b["norm"])
		p.MatMul(b["v"], w("v"), b["norm"])
		if l == 1 {
			p.RMSNorm(b["q"], b["q"], w("headnorm"), 1e-5)
			p.RMSNorm(b["k"], b["k"], w("headnorm"), 1e-5)
		}
		p.RoPE(b["q"], ropes[l])
		p.RoPE(b["k"], ropes[l])
		p.StoreKV(n.kv, l, b["k"], b["v"])
		p.Attention(b["att"], b["q"], n.kv, l, attentions[l])
		p.MatMul(b["o"], w("o"), b["att"])
		p.Add(b["x"], b["o"])
		p.RMSNorm(b["norm"], b["x"], w("norm"), 1e-5)
		p.MatMul(b["gate"], w("gate"), b["norm"])
		p.MatMul(b["up"], w("up"), b["norm"])
		p.GLU(b["gate"], b["gate"], b["up"], activations[l])
		p.MatMul(b["o"], w("down"), b["gate"])
		p.Add(b["x"], b["o"])
	}
	if n.wide != nil {
		n.mixture(p)
		n.latent(p)
		n.recurrent(p)
		n.everyOperation(p)
	}
	p.GatherRows(b["last"], b["x"])
	p.RMSNorm(b["last"], b["last"], n.weights["norm0"], 1e-5)
	p.MatMul(b["logits"], n.weights["embd"], b["last"])
	p.Scale(b["logits"], 0.5, 30)
	if err := p.Err(); err != nil {
		n.t.Fatal(err)
	}
	return p
}

// feed is a sequence that is being fed to a net.
type feed struct {
	seq   int // index in netLengths
	next  int // position of the next row
	table []int32
	slot  int32 // of the recurrent state
}

func token(seq, pos int) int32 { return int32((pos*pos*(seq+3) + 5*pos + seq*11) % netVocab) }

// step feeds the next counts[i] rows of feeds[i], or as many as are left, in one batch. It returns
// the logits of each row, and the sequence and position of each.
func (n *net) step(feeds []*feed, counts []int) (logits [][]float32, of [][2]int) {
	b, rows := &device.Batch{Tables: make([][][]int32, 1)}, 0
	for i, f := range feeds {
		rows += counts[i] // counts beyond the end select a larger program than the batch needs
		b.Tables[0], b.States = append(b.Tables[0], f.table), append(b.States, f.slot)
		for range min(counts[i], netLengths[f.seq]-f.next) {
			b.Out = append(b.Out, int32(len(b.Tokens)))
			b.Tokens = append(b.Tokens, token(f.seq, f.next))
			b.Pos = append(b.Pos, int32(f.next))
			b.Seq = append(b.Seq, int32(i))
			of = append(of, [2]int{f.seq, f.next})
			f.next++
		}
	}
	n.run(n.program(rows), b)
	for i := range b.Out {
		logits = append(logits, n.read(n.buffers["logits"], i))
	}
	return logits, of
}

// alone returns the logits of every position of every sequence, fed one row at a time.
func (n *net) alone() (logits [][][]float32) {
	for seq, length := range netLengths {
		f := &feed{seq: seq, table: []int32{0, 1, 2, 3}}
		var of [][]float32
		for range length {
			l, _ := n.step([]*feed{f}, []int{1})
			of = append(of, l[0])
		}
		logits = append(logits, of)
	}
	return logits
}

// whole returns the logits of every position of every sequence, fed in one step.
func (n *net) whole() (logits [][][]float32) {
	for seq, length := range netLengths {
		of, _ := n.step([]*feed{{seq: seq, table: []int32{0, 1, 2, 3}}}, []int{length})
		logits = append(logits, of)
	}
	return logits
}

// sameAs returns what compares logits with want, bit for bit.
func sameAs(want [][][]float32) compare {
	return func(t *testing.T, logits [][]float32, of [][2]int) {
		t.Helper()
		for i, at := range of {
			if !slices.Equal(logits[i], want[at[0]][at[1]]) {
				t.Fatalf("sequence %d, position %d: logits differ from those of the row alone", at[0], at[1])
			}
		}
	}
}

// vary feeds the sequences in other chunks, orders and blocks, and compares the logits with want;
// with full, in more variants.
func (n *net) vary(t *testing.T, want [][][]float32, full bool) {
	same := sameAs(want)
	chunks, mixes := []int{2, 3, 8, 33}, 1 // products have kernels for 1, 2 and 4 rows, and for many
	if full {
		chunks, mixes = append(chunks, 64, 512, 1, 7), 3
	}
	n.varyChunks(t, chunks, same)
	t.Run("three sequences share every step in changing amounts and order", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for range mixes {
			n.mix(t, rng, same)
		}
	})
	if full {
		n.sharePrefix(t, same)
		n.copyBlocks(t, same)
	}
}

// compare fails the test if logits of the given sequences and positions are wrong.
type compare func(t *testing.T, logits [][]float32, of [][2]int)

func (n *net) varyChunks(t *testing.T, chunks []int, same compare) {
	for _, chunk := range chunks {
		t.Run(fmt.Sprintf("prefill in chunks of %d", chunk), func(t *testing.T) {
			f := &feed{seq: 0, table: []int32{9, 2, 17, 4}}
			for f.next < netLengths[0] {
				logits, of := n.step([]*feed{f}, []int{chunk})
				same(t, logits, of)
			}
		})
	}
}

// mix feeds three sequences to their ends, some rows of each in every step.
func (n *net) mix(t *testing.T, rng *rand.Rand, same compare) {
	blocks := rng.Perm(netBlocks)
	feeds := make([]*feed, 3)
	for i := range feeds {
		feeds[i] = &feed{seq: i, slot: int32(2 - i)}
		for _, b := range blocks[4*i : 4*i+4] {
			feeds[i].table = append(feeds[i].table, int32(b))
		}
	}
	for slices.ContainsFunc(feeds, func(f *feed) bool { return f.next < netLengths[f.seq] }) {
		rng.Shuffle(len(feeds), func(i, j int) { feeds[i], feeds[j] = feeds[j], feeds[i] })
		counts := []int{rng.IntN(20), rng.IntN(4), 1 + rng.IntN(2)}
		left := 0
		for i, f := range feeds {
			left += min(counts[i], netLengths[f.seq]-f.next)
		}
		if left > 0 {
			logits, of := n.step(feeds, counts)
			same(t, logits, of)
		}
	}
}

func (n *net) sharePrefix(t *testing.T, same compare) {
	t.Run("two sequences share the blocks of a common prefix", func(t *testing.T) {
		first := &feed{seq: 0, table: []int32{0, 1, 2, 3}}
		for first.next < 97 {
			n.step([]*feed{first}, []int{40})
		}
		second := &feed{seq: 0, next: 64, table: []int32{0, 1, 8, 9}, slot: n.stateAt(64)}
		for second.next < 97 {
			logits, of := n.step([]*feed{second}, []int{5})
			same(t, logits, of)
		}
	})
}

// stateAt returns a slot with the recurrent state of the first sequence after its first positions
// positions: a copy of one that goes on afterwards.
func (n *net) stateAt(positions int) (slot int32) {
	if n.wide == nil {
		return 0
	}
	f := &feed{seq: 0, table: []int32{4, 5, 6, 7}, slot: 3}
	for f.next < positions {
		n.step([]*feed{f}, []int{min(13, positions-f.next)})
	}
	if err := n.dev.CopyState(n.wide.state, 4, f.slot); err != nil {
		n.t.Fatal(err)
	}
	n.step([]*feed{f}, []int{7})
	return 4
}

// copiedOut returns another slot with what slot has, copied out and back.
func (n *net) copiedOut(slot int32) int32 {
	if n.wide == nil {
		return 0
	}
	const to = 1
	data := make([]byte, n.wide.state.Layout.SlotBytes())
	if err := errors.Join(n.dev.ReadState(data, n.wide.state, slot), n.dev.WriteState(n.wide.state, to, data)); err != nil {
		n.t.Fatal(err)
	}
	return to
}

// copyBlocks continues a sequence after blocks that were read and written elsewhere.
func (n *net) copyBlocks(t *testing.T, same compare) {
	t.Run("a sequence continues behind blocks that were copied out and back", func(t *testing.T) {
		first := &feed{seq: 0, table: []int32{0, 1, 2, 3}}
		for first.next < 64 {
			n.step([]*feed{first}, []int{32})
		}
		caches := []device.KV{n.kv}
		if n.wide != nil {
			caches = append(caches, n.wide.kv)
		}
		for _, kv := range caches {
			for block := range int32(2) {
				data := make([]byte, kv.Layout.BlockBytes())
				if err := errors.Join(n.dev.ReadKV(data, kv, block), n.dev.WriteKV(kv, 20+block, data)); err != nil {
					t.Fatal(err)
				}
			}
		}
		second := &feed{seq: 0, next: 64, table: []int32{20, 21, 22, 23}, slot: n.copiedOut(n.stateAt(64))}
		for second.next < 97 {
			logits, of := n.step([]*feed{second}, []int{11})
			same(t, logits, of)
		}
	})
}
