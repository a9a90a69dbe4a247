package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// rankGolden is a golden.json of a model that ranks documents.
type rankGolden struct {
	Queries, Documents []string
	Cases              []struct {
		Query, Document int
		IDs             []int32
		Score           float64
	}
	Ranking [][]int // by query, the documents, the best first
}

func readRankGolden(t *testing.T, dir string) (g rankGolden) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestScoresOfPairsEqualTheReference(t *testing.T) {
	devices := map[string]func() (device.Device, error){
		"ref":  func() (device.Device, error) { return ref.New(), nil },
		"cpu":  openCPU,
		"cuda": cudaOpener(t),
	}
	var names []string
	if err := json.Unmarshal(readFile(t, fixtures.Path(t, "rerank", "index.json")), &names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		dir := fixtures.Path(t, "rerank", name)
		g := readRankGolden(t, dir)
		for _, c := range []struct {
			file               string
			logit, probability float64 // tolerances
		}{{"f32.gguf", 1e-4, 1e-5}, {"f16.gguf", 5e-2, 3e-3}} {
			for kind, openDevice := range devices {
				cases := g.Cases
				if kind == "cuda" && !manyOnGPU() {
					cases = cases[:1]
				}
				t.Run(fmt.Sprintf("%s %s on %s", name, c.file, kind), func(t *testing.T) {
					file := readFile(t, filepath.Join(dir, c.file))
					m := openEmbedder(t, file, openDevice, gguf.F32)
					classifier := readClassifier(t, file)
					tolerance := c.logit
					if classifier.GivesProbabilities() {
						tolerance = c.probability
					}
					worst := 0.0
					for _, pair := range cases {
						got := classifier.Score(pool32(m.Config().Pooling, vectors(t, m, [][]int32{pair.IDs})[0]))
						worst = max(worst, math.Abs(got-pair.Score))
					}
					logRow(t, name, c.file, kind, gguf.F32, "scores differ by at most %.1e, of %.1e", worst, tolerance)
					if !(worst <= tolerance) {
						t.Errorf("scores differ by up to %g, want at most %g", worst, tolerance)
					}
				})
			}
		}
	}
}

// pool32 returns the pooled vector of a text from the vectors of its tokens.
func pool32(p model.Pooling, rows [][]float32) []float32 {
	sum, n := pool(p, rows), float32(0)
	for i := range rows {
		if p.Needs(i, len(rows)) {
			n++
		}
	}
	for i := range sum {
		sum[i] /= n
	}
	return sum
}

func readClassifier(t *testing.T, file []byte) *model.Classifier {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	classifier, err := model.ReadClassifier(f, c)
	if err != nil {
		t.Fatal(err)
	}
	return classifier
}

func TestARankerPoolsAsItsFileSays(t *testing.T) {
	modernBERT := readFile(t, filepath.Join(fixtures.Path(t, "rerank", "modernbert"), "f16.gguf"))
	for name, c := range map[string]struct {
		file []byte
		want model.Pooling
	}{
		"the first token, by the key":               {modernBERT, model.PoolFirst},
		"the mean, by the key":                      {replaced(t, modernBERT, "modern-bert.classifier.pooling_type", 1), model.PoolMean},
		"the mean in ModernBERT without the key":    {renamed(t, modernBERT, "classifier.pooling_type", "classifier.pooling_typo"), model.PoolMean},
		"the first token in BERT":                   {readFile(t, filepath.Join(fixtures.Path(t, "rerank", "xlm_roberta"), "f16.gguf")), model.PoolFirst},
		"the last token in models that write texts": {readFile(t, filepath.Join(fixtures.Path(t, "rerank", "qwen3_reranker"), "f16.gguf")), model.PoolLast},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Parse(c.file)
			if err != nil {
				t.Fatal(err)
			}
			if config, err := model.ReadConfig(f); err != nil || config.Pooling != c.want || !config.Ranks() {
				t.Errorf("got %s, %v, want %s", config.Pooling, err, c.want)
			}
		})
	}
}

func TestAFileThatCannotRankIsRefusedByWhatItLacks(t *testing.T) {
	modernBERT := readFile(t, filepath.Join(fixtures.Path(t, "rerank", "modernbert"), "f32.gguf"))
	qwen3 := readFile(t, filepath.Join(fixtures.Path(t, "rerank", "qwen3_reranker"), "f32.gguf"))
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"an activation that is not known":    {renamed(t, modernBERT, "gelu", "relu"), `modern-bert.hidden_activation is "relu"`},
		"a layer without its first norm":     {renamed(t, modernBERT, "blk.1.attn_norm.weight", "blk.9.attn_norm.weight"), "blk.1.attn_norm.weight"},
		"a ranker without a classifier":      {renamed(t, qwen3, "cls.output.weight", "cls.outpu_.weight"), "no classifier, cls.output.weight"},
		"an embedding model as a classifier": {renamed(t, qwen3, "qwen3.pooling_type", "qwen3.pooling_typo"), "cls.output.weight"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Parse(c.file)
			if err != nil {
				t.Fatal(err)
			}
			dev := ref.New()
			defer dev.Close()
			if _, err := model.Load(t.Context(), f, dev, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 1, MaxRows: 4}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to mention %q", err, c.want)
			}
		})
	}
}

func TestModernBERTWithoutAClassifierComputesEmbeddings(t *testing.T) {
	ranker := readFile(t, filepath.Join(fixtures.Path(t, "rerank", "modernbert"), "f32.gguf"))
	embedder := bytes.ReplaceAll(ranker, []byte("cls."), []byte("mm.x")) // names of tensors that are not used
	openRef := func() (device.Device, error) { return ref.New(), nil }
	m, text := openEmbedder(t, embedder, openRef, gguf.F32), [][]int32{{396, 86, 280, 276, 397}}
	if c := m.Config(); c.Ranks() || !c.Embeds() || c.Pooling != model.PoolMean || c.VectorDim() != 32 {
		t.Fatalf("it pools by %s, and ranks: %t", c.Pooling, c.Ranks())
	}
	want := vectors(t, openEmbedder(t, ranker, openRef, gguf.F32), text)
	if got := vectors(t, m, text); !reflect.DeepEqual(got, want) {
		t.Errorf("its vectors are not those that the ranker's classifier reads")
	}
}

// renamed returns file with the first text old replaced by one of the same length.
func renamed(t *testing.T, file []byte, old, text string) []byte {
	t.Helper()
	if len(old) != len(text) || !bytes.Contains(file, []byte(old)) {
		t.Fatalf("the file has no %q", old)
	}
	return bytes.Replace(file, []byte(old), []byte(text), 1)
}
