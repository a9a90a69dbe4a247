package model_test

import (
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
		CacheType: gguf.F32, Blocks: 8, MaxRows: 128, MaxOut: 8, Head: model.HeadOptions{CacheType: gguf.F32, Blocks: 8, MaxRows: 64, MaxOut: 4},
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
