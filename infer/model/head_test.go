package model_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// headGolden is what the reference computed of a head.
type headGolden struct {
	Sequences [][]int32
	MTP       struct {
		Logits    string
		Shape     []int `json:"logits_shape"` // sequences, rows, vocabulary
		Depth     int
		Sequences []struct {
			Greedy, Drafts []int32
			Margin         []float64 `json:"draft_margin"`
		}
	}
}

// TestHead_LogitsAndDraftsEqualTheReference computes, of each sequence, the head at the last positions of the prompt, and behind the first
// token of the answer as many drafts as the reference.
func TestHead_LogitsAndDraftsEqualTheReference(t *testing.T) {
	devices := map[string]func() (device.Device, error){
		"ref":  func() (device.Device, error) { return ref.New(), nil },
		"cpu":  openCPU,
		"cuda": cudaOpener(t),
	}
	for _, name := range []string{"qwen35", "qwen35moe", "glm4moe"} {
		for kind, open := range devices {
			if kind == "cuda" && name != "glm4moe" {
				continue // it takes long where a GPU is emulated
			}
			t.Run(name+" on "+kind, func(t *testing.T) {
				dir := fixtures.Path(t, "mtp", name)
				var g headGolden
				if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &g); err != nil {
					t.Fatal(err)
				}
				logits := readFile(t, filepath.Join(dir, g.MTP.Logits))
				rows, vocab := g.MTP.Shape[1], g.MTP.Shape[2]
				files := map[string]float64{"f32.gguf": 1e-3, "f16.gguf": 0.25}
				if kind == "cuda" {
					delete(files, "f32.gguf")
				}
				for file, tolerance := range files {
					h := openHead(t, readFile(t, filepath.Join(dir, file)), open)
					for i, ids := range g.Sequences {
						want := g.MTP.Sequences[i]
						got, drafts := h.draft(t, ids, want.Greedy[0], g.MTP.Depth)
						for row := range got {
							golden := headLogProbs(device.Candidates{All: floats(logits[4*(i*rows+row)*vocab:][:4*vocab])}, vocab)
							if d := difference(got[row], golden); !(d <= tolerance) {
								t.Fatalf("%s, sequence %d, row %d: log-probabilities differ by %g, want at most %g", file, i, row, d, tolerance)
							}
						}
						for k, margin := range want.Margin {
							if margin <= 2*tolerance {
								break
							}
							if drafts[k] != want.Drafts[k] {
								t.Fatalf("%s, sequence %d: drafts %v, want %v", file, i, drafts, want.Drafts)
							}
						}
					}
				}
			})
		}
	}
}

func floats(data []byte) (list []float32) {
	for ; len(data) >= 4; data = data[4:] {
		list = append(list, math.Float32frombits(uint32(data[0])|uint32(data[1])<<8|uint32(data[2])<<16|uint32(data[3])<<24))
	}
	return list
}

// headLogProbs returns the log-probabilities of a row, by token; those that a device did not return are NaN.
func headLogProbs(c device.Candidates, vocab int) []float32 {
	list := slices.Repeat([]float32{float32(math.NaN())}, vocab)
	if c.All == nil {
		for k, id := range c.IDs {
			list[id] = c.Logits[k] - c.Max - float32(math.Log(c.Mass))
		}
		return list
	}
	top, sum := slices.Max(c.All), 0.0
	for _, v := range c.All {
		sum += math.Exp(float64(v - top))
	}
	for i, v := range c.All {
		list[i] = v - top - float32(math.Log(sum))
	}
	return list
}

// difference returns the largest difference between two rows of log-probabilities.
func difference(got, want []float32) (most float64) {
	for i := range want {
		if got[i] == got[i] {
			most = max(most, math.Abs(float64(got[i]-want[i])))
		}
	}
	return most
}

type openedHead struct {
	*model.Model
	blocks []int32
}

func openHead(t *testing.T, file []byte, open func() (device.Device, error)) openedHead {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(t.Context(), f, dev, model.Options{
		CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 128, MaxOut: 8, Head: model.HeadOptions{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64, MaxOut: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	return openedHead{m, []int32{0, 1, 2, 3, 4, 5, 6, 7}}
}

// draft returns the log-probabilities of the head at the last four positions of ids, and those of depth drafts behind next, with the drafts.
func (h openedHead) draft(t *testing.T, ids []int32, next int32, depth int) (logits [][]float32, drafts []int32) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	batch := func(tokens []int32, from int, out ...int32) *device.Batch {
		b := &device.Batch{Tokens: tokens, Tables: [][][]int32{{h.blocks}}, States: []int32{0}, Out: out}
		for i := range tokens {
			b.Pos, b.Seq = append(b.Pos, int32(from+i)), append(b.Seq, 0)
		}
		return b
	}
	head, n := h.Head(), len(ids)
	check(h.Forward(batch(ids, 0, int32(n-1))))
	states := make([]float32, n*head.Dim())
	check(h.States(states, 0))
	var likeliest int32
	row := func(i int) {
		c, err := head.Candidates(i)
		check(err)
		logits = append(logits, headLogProbs(c, h.Config().Vocab))
		best := 0
		for id, v := range logits[len(logits)-1] {
			if v > logits[len(logits)-1][best] || logits[len(logits)-1][best] != logits[len(logits)-1][best] {
				best = id
			}
		}
		likeliest = int32(best)
	}
	pairs := append(slices.Clone(ids[1:]), next)
	for from := 0; from < len(pairs); { // in chunks, as an engine does
		to := min(len(pairs), from+40)
		var out []int32
		for p := max(from, len(pairs)-5); p < to; p++ {
			if p >= 0 {
				out = append(out, int32(p-from))
			}
		}
		if len(out) > head.MaxOut() {
			to -= len(out) - head.MaxOut()
			out = out[:head.MaxOut()]
		}
		check(head.Forward(batch(pairs[from:to], from, out...), states[from*head.Dim():to*head.Dim()]))
		for i := range out {
			row(i)
		}
		if to == len(pairs) {
			states = states[:head.Dim()]
			check(head.State(states, len(out)-1))
		}
		from = to
	}
	for k := 0; ; k++ {
		drafts = append(drafts, likeliest)
		if len(drafts) == depth {
			return logits, drafts
		}
		check(head.Forward(batch(drafts[k:], len(pairs)+k, 0), states))
		row(0)
		check(head.State(states, 0))
	}
}

func TestReadHead_RefusesFilesWithoutOne(t *testing.T) {
	for name, file := range map[string][]byte{
		"another architecture": gguftest.TinyLlama(gguftest.Llama{}),
		"no block":             readFile(t, filepath.Join(fixtures.Path(t, "logits", "qwen35"), "f16.gguf")),
	} {
		f, err := gguf.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := model.ReadHead(f); !errors.Is(err, model.ErrNoHead) {
			t.Errorf("%s: error %v, want ErrNoHead", name, err)
		}
	}
}

// TestHead_OwnEmbeddingsAndOutputReplaceThoseOfTheModel gives the head of a file an embedding table and an output layer of its own: those of the model
// with every row in the place of the one before. So it must compute the same from tokens that are one less, for tokens that are one less.
func TestHead_OwnEmbeddingsAndOutputReplaceThoseOfTheModel(t *testing.T) {
	dir := fixtures.Path(t, "mtp", "glm4moe")
	var g headGolden
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &g); err != nil {
		t.Fatal(err)
	}
	file := readFile(t, filepath.Join(dir, "f32.gguf"))
	plain := openHead(t, file, func() (device.Device, error) { return ref.New(), nil })
	own := openHead(t, withOwnTables(t, file), func() (device.Device, error) { return ref.New(), nil })
	vocab := plain.Config().Vocab
	for i, ids := range g.Sequences {
		compute := func(h openedHead, shift int32) []float32 {
			b := &device.Batch{Tables: [][][]int32{{h.blocks}}, States: []int32{0}, Out: []int32{int32(len(ids) - 2)}}
			for pos, id := range ids[:len(ids)-1] {
				b.Tokens, b.Pos, b.Seq = append(b.Tokens, id), append(b.Pos, int32(pos)), append(b.Seq, 0)
			}
			if err := h.Forward(b); err != nil {
				t.Fatal(err)
			}
			states := make([]float32, len(b.Tokens)*h.Head().Dim())
			if err := h.States(states, 0); err != nil {
				t.Fatal(err)
			}
			from := max(0, len(b.Tokens)-h.Head().MaxRows())
			for pos := range b.Tokens {
				b.Tokens[pos], b.Pos[pos] = (ids[pos+1]-shift+int32(vocab))%int32(vocab), int32(pos-from)
			}
			b.Tokens, b.Pos, b.Seq, b.Out[0] = b.Tokens[from:], b.Pos[from:], b.Seq[from:], int32(len(b.Tokens)-from-1)
			if err := h.Head().Forward(b, states[from*h.Head().Dim():]); err != nil {
				t.Fatal(err)
			}
			c, err := h.Head().Candidates(0)
			if err != nil {
				t.Fatal(err)
			}
			return slices.Clone(c.All)
		}
		want, got := compute(plain, 0), compute(own, 1)
		for id := range want {
			if got[id] != want[(id+1)%vocab] {
				t.Fatalf("sequence %d: the logit of token %d is %g, want %g", i, id, got[id], want[(id+1)%vocab])
			}
		}
	}
}

// withOwnTables returns file with an embedding table and an output layer of the head.
func withOwnTables(t *testing.T, file []byte) []byte {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	const alignment, tensorCount = 32, 8
	le := binary.LittleEndian
	padded := func(b []byte) []byte { return append(b, make([]byte, -len(b)&(alignment-1))...) }
	header := slices.Clone(f.Header())
	data := padded(slices.Clone(file[len(padded(slices.Clone(header))):]))
	le.PutUint64(header[tensorCount:], le.Uint64(header[tensorCount:])+2)
	for name, of := range map[string]string{"blk.3.nextn.embed_tokens.weight": "token_embd.weight", "blk.3.nextn.shared_head_head.weight": "output.weight"} {
		tensor, err := f.Tensor(of)
		if err != nil {
			t.Fatal(err)
		}
		header = append(le.AppendUint64(header, uint64(len(name))), name...)
		header = le.AppendUint64(le.AppendUint64(le.AppendUint32(header, 2), uint64(tensor.Shape[0])), uint64(tensor.Shape[1]))
		header = le.AppendUint64(le.AppendUint32(header, uint32(tensor.Type)), uint64(len(data)))
		row := len(tensor.Data) / tensor.Shape[1]
		data = padded(append(append(data, tensor.Data[row:]...), tensor.Data[:row]...))
	}
	return append(padded(header), data...)
}
