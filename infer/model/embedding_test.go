package model_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// embeddingGolden is a golden.json of an embedding model.
type embeddingGolden struct {
	Sequences [][]int32 `json:"sequences"`
	Goldens   []struct {
		Embedding string `json:"embedding"` // pooled as the file says, of length 1
		Shape     []int  `json:"shape"`     // sequences, width
		Vectors   []struct {
			File  string `json:"file"`
			Shape []int  `json:"shape"` // tokens, width
		} `json:"token_vectors"`
	} `json:"goldens"`
}

// vectors runs texts in one step, and returns the vectors of all tokens of each.
func vectors(t *testing.T, m *model.Model, texts [][]int32) (all [][][]float32) {
	t.Helper()
	b, block := &device.Batch{Tables: make([][][]int32, len(tablesOf(m, nil)))}, int32(0)
	for s, tokens := range texts {
		var table []int32
		for i, token := range tokens {
			if i%device.BlockSize == 0 {
				table, block = append(table, block), block+1
			}
			b.Out = append(b.Out, int32(len(b.Tokens)))
			b.Tokens, b.Pos, b.Seq = append(b.Tokens, token), append(b.Pos, int32(i)), append(b.Seq, int32(s))
		}
		for g := range b.Tables {
			b.Tables[g] = append(b.Tables[g], table)
		}
	}
	if err := m.Forward(b); err != nil {
		t.Fatal(err)
	}
	row, c := 0, m.Config()
	for _, tokens := range texts {
		var list [][]float32
		for range tokens {
			v := make([]float32, c.VectorDim())
			if err := m.Vectors(v, row); err != nil {
				t.Fatal(err)
			}
			list, row = append(list, v), row+1
		}
		all = append(all, list)
	}
	return all
}

// pool returns the embedding of a text from the vectors of its tokens.
func pool(p model.Pooling, rows [][]float32) []float32 {
	sum := make([]float32, len(rows[0]))
	for i, row := range rows {
		for k, v := range row {
			if p.Needs(i, len(rows)) {
				sum[k] += v
			}
		}
	}
	return sum
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

func TestEmbeddingsEqualTheReference(t *testing.T) {
	devices := map[string]func() (device.Device, error){
		"ref":  func() (device.Device, error) { return ref.New(), nil },
		"cpu":  openCPU,
		"cuda": cudaOpener(t),
	}
	var names []string
	if err := json.Unmarshal(readFile(t, fixtures.Path(t, "embeddings", "index.json")), &names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		dir := fixtures.Path(t, "embeddings", name)
		var g embeddingGolden
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &g); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			file   string
			cache  gguf.Type
			cosine float64
		}{{"f32.gguf", gguf.F32, 0.99999}, {"f16.gguf", gguf.F32, 0.999}, {"f16.gguf", gguf.F16, 0.999}} {
			for kind, openDevice := range devices {
				if kind == "cuda" && c.file == "f16.gguf" && c.cache == gguf.F32 && !manyOnGPU() {
					continue
				}
				t.Run(fmt.Sprintf("%s %s on %s with %s cache", name, c.file, kind, c.cache), func(t *testing.T) {
					m := openEmbedder(t, readFile(t, filepath.Join(dir, c.file)), openDevice, c.cache)
					got := vectors(t, m, g.Sequences)
					want := readFloats(t, filepath.Join(dir, g.Goldens[0].Embedding))
					worst, worstToken, width := 1.0, 1.0, g.Goldens[0].Shape[1]
					for s, rows := range got {
						worst = min(worst, cosine(pool(m.Config().Pooling, rows), want[s*width:(s+1)*width]))
						tokens := readFloats(t, filepath.Join(dir, g.Goldens[0].Vectors[s].File))
						for i, row := range rows {
							worstToken = min(worstToken, cosine(row, tokens[i*width:(i+1)*width]))
						}
					}
					logRow(t, name, c.file, kind, c.cache, "cosine of texts at least 1 - %.1e, of tokens 1 - %.1e, of 1 - %.1e", 1-worst, 1-worstToken, 1-c.cosine)
					if !(worst >= c.cosine && worstToken >= c.cosine) {
						t.Errorf("cosines of texts are at least %g, of tokens %g, want %g", worst, worstToken, c.cosine)
					}
					for s, tokens := range g.Sequences {
						for i, row := range vectors(t, m, [][]int32{tokens})[0] {
							if !slices.Equal(row, got[s][i]) {
								t.Fatalf("text %d alone, token %d: other bits than among others", s, i)
							}
						}
					}
				})
			}
		}
	}
}

func openEmbedder(t *testing.T, file []byte, openDevice func() (device.Device, error), cache gguf.Type) *model.Model {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := openDevice()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(t.Context(), f, dev, model.Options{CacheType: device.CacheOf(cache), Blocks: 8, MaxRows: 256})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWhatAnEmbeddingModelCannotBeIsRefusedByItsKey(t *testing.T) {
	bert := readFile(t, filepath.Join(fixtures.Path(t, "embeddings", "bert"), "f16.gguf"))
	gemma2 := readFile(t, filepath.Join(fixtures.Path(t, "logits", "gemma2"), "f16.gguf"))
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"a ranker without a classifier": {replaced(t, bert, "bert.pooling_type", 4), "no classifier, cls.output.weight"},
		"an unknown pooling":            {replaced(t, bert, "bert.pooling_type", 9), "bert.pooling_type"},
		"windows of unknown direction":  {withKey(gemma2, "gemma2.attention.causal", false), "sliding window"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Parse(c.file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := model.ReadConfig(f); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to mention %q", err, c.want)
			}
		})
	}
}

// replaced returns file with another value of a uint32 key.
func replaced(t *testing.T, file []byte, key string, value byte) []byte {
	t.Helper()
	at := strings.Index(string(file), key)
	if at < 0 {
		t.Fatalf("the file has no key %s", key)
	}
	file = slices.Clone(file)
	file[at+len(key)+4] = value
	return file
}

// The weights of the files are the same numbers, rounded to each type. How far that turns the vectors of a
// model of this size is measured; what is asserted is that no more is lost.
func TestQuantisedEmbeddingsAreNearTheFloatOnes(t *testing.T) {
	build := func(typ gguf.Type) []byte {
		return gguftest.TinyBERT(gguftest.BERT{Dim: 128, Heads: 4, FFN: 256, Layers: 3, Type: typ, Seed: 3})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var texts [][]int32
	for range 6 {
		text := []int32{2}
		for range 3 + rng.IntN(20) {
			text = append(text, 5+int32(rng.IntN(180)))
		}
		texts = append(texts, append(text, 3))
	}
	embed := func(t *testing.T, typ gguf.Type, openDevice func() (device.Device, error)) (list [][]float32) {
		m := openEmbedder(t, build(typ), openDevice, gguf.F32)
		for _, rows := range vectors(t, m, texts) {
			list = append(list, pool(m.Config().Pooling, rows))
		}
		return list
	}
	openRef := func() (device.Device, error) { return ref.New(), nil }
	want := embed(t, gguf.F32, openRef)
	for typ, least := range map[gguf.Type]float64{gguf.F16: 0.999999, gguf.Q8_0: 0.9995, gguf.Q4_0: 0.95} {
		for kind, openDevice := range map[string]func() (device.Device, error){"ref": openRef, "cpu": openCPU} {
			t.Run(fmt.Sprintf("%s on %s", typ, kind), func(t *testing.T) {
				worst := 1.0
				for i, v := range embed(t, typ, openDevice) {
					worst = min(worst, cosine(v, want[i]))
				}
				logRow(t, "tiny bert", typ.String(), kind, gguf.F32, "cosine of texts with those of F32 weights at least 1 - %.1e, of 1 - %.1e", 1-worst, 1-least)
				if !(worst >= least) {
					t.Errorf("cosines are at least %g, want %g", worst, least)
				}
			})
		}
	}
}
