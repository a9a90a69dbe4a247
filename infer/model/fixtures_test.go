package model_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/device/devicetest"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// golden is a fixture folder's golden.json: reference logits of a tiny random
// model, made by another program.
type golden struct {
	Files     map[string]string `json:"files"`
	Sequences [][]int32         `json:"sequences"`
	Goldens   []struct {
		Name         string      `json:"name"`
		Context      int         `json:"context_size"`
		Logits       string      `json:"logits"`
		Shape        []int       `json:"logits_shape"` // sequences, last positions, vocabulary
		Greedy       [][]int32   `json:"greedy"`
		GreedyMargin [][]float64 `json:"greedy_margin"`
	} `json:"goldens"`
}

// newFamilies are those of families that are in the folder next of the fixtures.
var newFamilies = []string{
	"afmoe", "cohere2moe", "falcon_h1_wild", "granite_swa", "hy_v3", "laguna", "mellum", "muse_glimmer", "qwen2vl", "qwen3vl", "qwen3vlmoe",
}

// moreFamilies are the folders in the folder more of the fixtures, which only some machines have.
var moreFamilies = func() (names []string) {
	folders, _ := os.ReadDir(filepath.Join(os.Getenv("M40_LLM_FIXTURES"), "more"))
	for _, f := range folders {
		names = append(names, f.Name())
	}
	return names
}()

// familyPath returns the path of a family's fixtures.
func familyPath(t *testing.T, name string, elem ...string) string {
	t.Helper()
	folder := "logits"
	switch {
	case slices.Contains(newFamilies, name):
		folder = "next"
	case slices.Contains(moreFamilies, name):
		folder = "more"
	}
	return fixtures.Path(t, append([]string{folder, name}, elem...)...)
}

// families are folders of the fixtures.
var families = append([]string{
	"cohere2", "command_r", "deepseek2", "deepseek2_kvb", "deepseek3", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "exaone4_swa", "falcon_h1", "gemma", "gemma2",
	"gemma3", "gemma3_linear", "gemma3n", "gemma4", "gemma4_dense", "gemma4_moe", "glm4", "glm4_moe_lite", "glm4moe", "glm4moe_mtp", "gpt2", "gpt_oss", "granite",
	"granitehybrid", "granitehybrid_moe", "granitemoe", "hunyuan_dense", "hunyuan_moe", "kimi_linear", "lfm2", "lfm2moe", "llama", "llama_bias", "llama_rope_linear",
	"llama_rope_llama3", "llama_tied", "minimax_m2", "mistral", "mistral3", "mistral_nemo", "mixtral", "nemotron", "nemotron_h", "nemotron_h_moe", "olmo2", "olmo3",
	"phi2", "phi3", "phi3_longrope", "phi3_window", "phi4_mini", "qwen2", "qwen2moe", "qwen3", "qwen35", "qwen35_mtp", "qwen35_wide", "qwen35moe", "qwen35moe_mtp",
	"qwen3_yarn", "qwen3moe", "qwen3next", "seed_oss", "smollm3", "stablelm", "stablelm_parallel", "starcoder2",
}, slices.Concat(newFamilies, moreFamilies)...)

// Tolerances of log-probabilities: the fixture set's README tells where they come
// from.
func TestLogitsEqualTheReference(t *testing.T) {
	devices := map[string]func() (device.Device, error){
		"ref":  func() (device.Device, error) { return ref.New(), nil },
		"cpu":  openCPU,
		"cuda": cudaOpener(t),
	}
	checkCovered(t)
	onGPU := familiesOnGPU(t)
	for _, name := range families {
		for _, c := range []struct {
			file      string
			cache     gguf.Type
			tolerance float64
		}{
			{"f32.gguf", gguf.F32, 1e-3},
			{"f32.gguf", gguf.F16, 6e-2},
			{"f16.gguf", gguf.F32, 0.25},
			{"f16.gguf", gguf.F16, 0.25},
		} {
			for kind, openDevice := range devices {
				if !compares(kind, name, c.file, fileOf(t, name), c.cache, onGPU) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s on %s with %s cache", name, c.file, kind, c.cache), func(t *testing.T) {
					dir := familyPath(t, name)
					g := readGolden(t, dir)
					if g.Files[strings.TrimSuffix(c.file, ".gguf")] == "" {
						return // the folder is another layout of one that has both files
					}
					for _, want := range g.Goldens {
						file := readFile(t, filepath.Join(dir, c.file))
						if want.Name == "window16" { // the same weights under a key that the file has not got
							file = withKey(file, "llama.attention.sliding_window", uint32(16))
						}
						if want.Name == "yarn_truncate_false" {
							file = withKey(file, "gpt-oss.rope.scaling.yarn_truncate", false)
						}
						if name == "laguna" && c.cache == gguf.F16 { // the scores of two experts differ by 0.0001 there
							want.GreedyMargin[2][20] = 0
						}
						m := loadFor(t, file, openDevice, c.cache, want.Context)
						sequences := g.Sequences
						if kind == "cuda" && !manyOnGPU() {
							sequences = sequences[:1]
						}
						worst := compareLogits(t, m, sequences, readFloats(t, filepath.Join(dir, want.Logits)), want.Shape)
						steps := compareGreedy(t, m, sequences, want.Greedy, want.GreedyMargin, c.tolerance)
						logRow(t, name, c.file, kind, c.cache, "differs by up to %.2g of %g, %d of %d greedy tokens are equal, the others are near ties", worst, c.tolerance, steps, len(sequences)*len(want.Greedy[0]))
						if !(worst <= c.tolerance) {
							t.Errorf("log-probabilities differ by up to %g, allowed are %g", worst, c.tolerance)
						}
					}
				})
			}
		}
	}
}

// Files quantised by another program, whose reference logits come from a forward pass
// in float64 over the dequantised weights.
func TestLogitsOfQuantisedFilesEqualTheReference(t *testing.T) {
	devices := []struct {
		name            string
		open            func() (device.Device, error)
		types           []gguf.Type // nil: all
		worst, distance float64
	}{
		{"ref", func() (device.Device, error) { return ref.New(), nil }, nil, 2e-3, 1e-5},
		{"cpu", openCPU, cpu.WeightTypes(), 0.6, 0.03}, // it rounds activations to 8 bits
		{"cuda", cudaOpener(t), cuda.WeightTypes(), 5e-3, 1e-6},
	}
	for _, name := range []string{"q_llama", "q_qwen3"} {
		dir := fixtures.Path(t, "quants", name)
		var index struct {
			Sequences [][]int32
			Files     []struct {
				File, Logits string
				Shape        []int
			}
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "index.json")), &index); err != nil {
			t.Fatal(err)
		}
		for _, want := range index.Files {
			f, err := gguf.Parse(readFile(t, filepath.Join(dir, want.File)))
			if err != nil {
				t.Fatal(err)
			}
			golden := readFloats(t, filepath.Join(dir, want.Logits))
			for _, c := range devices {
				if i := slices.IndexFunc(f.Tensors(), func(w gguf.Tensor) bool { return c.types != nil && !slices.Contains(c.types, w.Type) }); i >= 0 {
					logRow(t, name, want.File, c.name, gguf.F32, "NOT COVERED: no products with weights in %s", f.Tensors()[i].Type)
					continue
				}
				if skipsQuantised(c.name, name) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s on %s", name, want.File, c.name), func(t *testing.T) {
					m := open(t, f, c.open, gguf.F32)
					worst, distance := compareLikely(t, m, index.Sequences, golden, want.Shape)
					allowed, allowedDistance := c.worst, c.distance
					if strings.HasPrefix(c.name, "cuda") && isConverted(f) {
						allowed, allowedDistance = 0.02, 1e-5 // Q8_0 rounds their scales
					}
					logRow(t, name, want.File, c.name, gguf.F32, "differs by up to %.2g of %g, divergence %.2g of %g", worst, allowed, distance, allowedDistance)
					if !(worst <= allowed && distance <= allowedDistance) {
						t.Errorf("log-probabilities differ by up to %g and distributions by up to %g, allowed are %g and %g", worst, distance, allowed, allowedDistance)
					}
				})
			}
		}
	}
}

// skipsQuantised reports whether a test of the present level leaves out a model's quantised files on a device: devicetest
// compares the products of each type with the reference, and the emulated GPU is slow.
func skipsQuantised(device, name string) bool {
	switch device {
	case "ref":
		return !fixtures.Torture()
	case "cuda":
		return !manyOnGPU() && (!fixtures.Check() || name != "q_llama")
	}
	return false
}

// isConverted reports whether a GPU converts weights of f.
func isConverted(f *gguf.File) bool {
	return slices.ContainsFunc(f.Tensors(), func(w gguf.Tensor) bool { return cuda.Converts(w.Type) != w.Type })
}

// compareLikely returns the largest difference of the log-probability of a token that
// has more than 1 in 1000, and the largest Kullback-Leibler divergence.
func compareLikely(t *testing.T, m *model.Model, sequences [][]int32, want []float32, shape []int) (worst, distance float64) {
	t.Helper()
	positions, vocab := shape[1], shape[2]
	for s, tokens := range sequences {
		logits := feed(t, m, tokens, 0)
		for p := range positions {
			got := logProbs(logits[len(tokens)-positions+p])
			divergence := 0.0
			for i, expected := range logProbs(want[(s*positions+p)*vocab:][:vocab]) {
				divergence += math.Exp(expected) * (expected - got[i])
				if difference := math.Abs(got[i] - expected); expected > math.Log(1e-3) && !(difference <= worst) {
					worst = difference
				}
			}
			if !(divergence <= distance) {
				distance = divergence
			}
		}
	}
	return worst, distance
}

// fileOf returns the file of a family with F32 weights, or the one that it has.
func fileOf(t *testing.T, family string) string {
	t.Helper()
	if _, err := os.Stat(familyPath(t, family, "f32.gguf")); err == nil {
		return "f32.gguf"
	}
	return "f16.gguf"
}

// compares reports whether a test of the present level compares a file of a family on a device: on the CPU the first, on
// the reference, which the CPU is compared with by devicetest, in torture alone, and on the emulated GPU those of onGPU.
func compares(device, family, file, first string, cache gguf.Type, onGPU []string) bool {
	switch {
	case fixtures.Torture(), device == "cuda" && manyOnGPU():
		return true
	case device == "cpu":
		return file == first && cache == gguf.F32
	case device == "cuda": // each format of the file and of the cache once
		return slices.Contains(onGPU, family) && (file == "f32.gguf") == (cache == gguf.F32)
	}
	return false
}

// familiesOnGPU returns the families whose programs have, among them, each kind of operation that any family has. The
// emulated GPU runs these alone, and in make test a few.
func familiesOnGPU(t *testing.T) (chosen []string) {
	t.Helper()
	if manyOnGPU() {
		return families
	}
	if !fixtures.Check() {
		return []string{"llama", "gpt_oss", "qwen35"}
	}
	seen := map[string]bool{}
	for _, name := range families {
		recorder := &recorder{Device: ref.New()}
		loadFor(t, readFile(t, familyPath(t, name, fileOf(t, name))), func() (device.Device, error) { return recorder, nil }, gguf.F32, 0)
		news := false
		for _, kind := range recorder.kinds {
			news = news || !seen[kind]
			seen[kind] = true
		}
		if news {
			chosen = append(chosen, name)
		}
	}
	t.Logf("%d of %d families have all kinds of operations: %s", len(chosen), len(families), strings.Join(chosen, ", "))
	return chosen
}

// recorder is a device that notes the kinds of operations of the programs it compiles.
type recorder struct {
	device.Device
	kinds []string
}

func (r *recorder) Compile(p *device.Program) (device.Executable, error) {
	var none device.Tensor
	for _, op := range p.Ops {
		kind := fmt.Sprint(op.Kind)
		switch op.Kind {
		case device.OpGLU:
			kind += fmt.Sprint(op.GLU)
		case device.OpAttention:
			kind += fmt.Sprint(op.Attention.Cap > 0, op.Attention.Window > 0, op.Attention.Sinks != none, op.Attention.Bidirectional)
		case device.OpRoPE:
			kind += fmt.Sprint(op.RoPE.NeoX, op.RoPE.Factors != none, op.RoPE.High > 0)
		case device.OpRoute:
			kind += fmt.Sprint(op.Routing.Score, op.Routing.Normalize, op.Routing.Bias != none, op.Routing.Groups > 1)
		case device.OpScan:
			kind += fmt.Sprint(op.Scan.Tiled, op.Scan.Delta, op.Scan.Skip != none)
		}
		r.kinds = append(r.kinds, kind)
	}
	return r.Device.Compile(p)
}

// checkCovered fails if a folder of the fixtures is not in families.
func checkCovered(t *testing.T) {
	var all []string
	for _, of := range []struct {
		folder string
		names  []string
	}{{"logits", families[:len(families)-len(newFamilies)-len(moreFamilies)]}, {"next", newFamilies}} {
		if err := json.Unmarshal(readFile(t, fixtures.Path(t, of.folder, "index.json")), &all); err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if !slices.Contains(of.names, name) {
				t.Errorf("folder %s/%s is not in families", of.folder, name)
			}
		}
	}
}

// logRow logs a row of the table of make fidelity.
func logRow(t *testing.T, name, file, device string, cache gguf.Type, format string, args ...any) {
	t.Helper()
	t.Logf("fidelity: %-18s %-14s %-14s %-4s %s", name, file, device, cache, fmt.Sprintf(format, args...))
}

// manyOnGPU reports whether the GPU is a real one, or there is time for its emulation.
func manyOnGPU() bool {
	return fixtures.Torture() || os.Getenv("M40_LLM_LIBCUDA") != ""
}

func openCPU() (device.Device, error) { return cpu.Open(2) }

// cudaOpener returns what opens the GPU, real or emulated.
func cudaOpener(t *testing.T) func() (device.Device, error) {
	return decodingOpener(t, device.DecodeAuto)
}

// decodingOpener is cudaOpener for a device that decodes in the given way.
func decodingOpener(t *testing.T, how device.Decode) func() (device.Device, error) {
	t.Helper()
	library := emutest.Library(t)
	thread := devicetest.NewThread()
	t.Cleanup(thread.Close)
	return func() (device.Device, error) {
		return thread.Open(func() (device.Device, error) {
			driver, gpus, err := cuda.Find(library)
			if err != nil {
				return nil, err
			}
			d, err := cuda.OpenGPU(driver, gpus[0])
			if err == nil {
				d.(device.DecodeChooser).ChooseDecode(how)
			}
			return d, err
		})
	}
}

// withKey inserts a number, or false, into the metadata of a file, and a key of filling so that the
// tensors move by a multiple of the alignment.
func withKey(file []byte, key string, value any) []byte {
	le := binary.LittleEndian
	str := func(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }
	const kindUint32, kindBool, kindString = 4, 7, 8

	keys := append(le.AppendUint32(str(nil, key), kindBool), 0)
	if n, ok := value.(uint32); ok {
		keys = le.AppendUint32(le.AppendUint32(str(nil, key), kindUint32), n)
	}
	keys = le.AppendUint32(str(keys, "x"), kindString)
	keys = str(keys, strings.Repeat(" ", 96-8-len(keys)))

	const keyCount, header = 16, 24
	file = slices.Insert(slices.Clone(file), header, keys...)
	le.PutUint64(file[keyCount:], le.Uint64(file[keyCount:])+2)
	return file
}

// loadFor loads a model for sequences of up to context positions; 0: those that it was trained on.
func loadFor(t *testing.T, file []byte, openDevice func() (device.Device, error), cache gguf.Type, context int) *model.Model {
	t.Helper()
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	return openFor(t, f, openDevice, cache, context)
}

func open(t *testing.T, f *gguf.File, openDevice func() (device.Device, error), cache gguf.Type) *model.Model {
	t.Helper()
	return openFor(t, f, openDevice, cache, 0)
}

func openFor(t *testing.T, f *gguf.File, openDevice func() (device.Device, error), cache gguf.Type, positions int) *model.Model {
	t.Helper()
	dev, err := openDevice()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(context.Background(), f, dev, model.Options{CacheType: device.CacheOf(cache), Blocks: 8, MaxRows: 64, Context: positions})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var table = []int32{5, 1, 7, 2}

// tablesOf returns the block tables of a batch of one sequence, with the same table in all cache groups.
func tablesOf(m *model.Model, table []int32) (tables [][][]int32) {
	for range m.Config().CacheGroups() {
		tables = append(tables, [][]int32{table})
	}
	return tables
}

// feed runs tokens from position start on in chunks and returns the logits of
// every row.
func feed(t *testing.T, m *model.Model, tokens []int32, start int) (logits [][]float32) {
	t.Helper()
	for done := 0; done < len(tokens); {
		chunk := tokens[done:min(len(tokens), done+64)]
		b := &device.Batch{Tokens: chunk, Tables: tablesOf(m, table), States: []int32{0}, Seq: make([]int32, len(chunk)), Prompt: m.OwnPrompts()}
		for i := range chunk {
			b.Pos = append(b.Pos, int32(start+done+i))
			b.Out = append(b.Out, int32(i))
		}
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		for i := range chunk {
			row := make([]float32, m.Config().Vocab)
			if err := m.Logits(row, i); err != nil {
				t.Fatal(err)
			}
			logits = append(logits, row)
		}
		done += len(chunk)
	}
	return logits
}

func compareLogits(t *testing.T, m *model.Model, sequences [][]int32, want []float32, shape []int) (worst float64) {
	t.Helper()
	positions, vocab := shape[1], shape[2]
	for s, tokens := range sequences {
		logits := feed(t, m, tokens, 0)
		for p := range positions {
			got := logProbs(logits[len(tokens)-positions+p])
			expected := logProbs(want[(s*positions+p)*vocab:][:vocab])
			for i := range expected {
				difference := math.Abs(got[i] - expected[i])
				if !(difference <= worst) { // a NaN counts
					worst = difference
				}
			}
		}
	}
	return worst
}

// compareGreedy writes on greedily and compares up to the first step whose margin
// the tolerance could turn over.
func compareGreedy(t *testing.T, m *model.Model, sequences, greedy [][]int32, margins [][]float64, tolerance float64) (steps int) {
	t.Helper()
	for s, tokens := range sequences {
		logits := feed(t, m, tokens, 0)
		last, pos := logits[len(logits)-1], len(tokens)
		for i, want := range greedy[s] {
			if margins[s][i] <= 2*tolerance {
				break
			}
			got := int32(argMax(last))
			if got != want {
				t.Fatalf("sequence %d, step %d: got token %d, want %d", s, i, got, want)
			}
			steps++
			last = feed(t, m, []int32{got}, pos)[0]
			pos++
		}
	}
	return steps
}

func argMax(x []float32) (best int) {
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return best
}

func logProbs(logits []float32) []float64 {
	top := float64(logits[argMax(logits)])
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	p := make([]float64, len(logits))
	for i, l := range logits {
		p[i] = float64(l) - top - math.Log(sum)
	}
	return p
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readGolden(t *testing.T, dir string) (g golden) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	data := readFile(t, path)
	x := make([]float32, len(data)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return x
}

// gpuOpener returns what opens GPU n of two emulated ones, or of those that there are. Their
// calls share a thread.
func gpuOpener(t *testing.T) func(n int) func() (device.Device, error) {
	t.Helper()
	t.Setenv("M40_LLM_EMU_DEVICES", "2")
	library := emutest.Library(t)
	return func(n int) func() (device.Device, error) {
		return func() (device.Device, error) {
			driver, gpus, err := cuda.Find(library)
			if err != nil {
				return nil, err
			}
			return cuda.OpenGPU(driver, gpus[n%len(gpus)])
		}
	}
}

// A model that lies on two devices computes what it does on one: the same bits where both
// are alike.
func TestStagesGiveTheLogitsOfTheWhole(t *testing.T) {
	dir := fixtures.Path(t, "logits", "llama_tied")
	g := readGolden(t, dir)
	f, err := gguf.Parse(readFile(t, filepath.Join(dir, "f32.gguf")))
	if err != nil {
		t.Fatal(err)
	}
	openRef := func() (device.Device, error) { return ref.New(), nil }
	logitsOn := func(openDevice func() (device.Device, error)) (layers int, logits [][][]float32) {
		whole := open(t, f, openDevice, gguf.F32)
		for _, tokens := range g.Sequences {
			logits = append(logits, feed(t, whole, tokens, 0))
		}
		return len(whole.Config().Layers), logits
	}
	layers, want := logitsOn(openRef)
	gpu := gpuOpener(t)
	_, wantOnGPU := logitsOn(func() (device.Device, error) { return gpu(0)() })
	for _, c := range []struct {
		name          string
		first, second func() (device.Device, error)
		want          [][][]float32
		tolerance     float64
	}{
		{"two of a kind", openRef, openRef, want, 0},
		{"two GPUs", gpu(0), gpu(1), wantOnGPU, 0},
		{"the CPU, then the GPU", openCPU, cudaOpener(t), want, 1e-3},
		{"the GPU, then the CPU", cudaOpener(t), openCPU, want, 1e-3},
	} {
		for n := fixtures.At(layers-1, 1, 1); n < layers; n++ {
			t.Run(fmt.Sprintf("%s, after %d of %d layers", c.name, n, layers), func(t *testing.T) {
				var stages []model.Stage
				for i, openDevice := range []func() (device.Device, error){c.first, c.second} {
					dev, err := openDevice()
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { dev.Close() })
					stages = append(stages, model.Stage{Device: dev, Layers: []int{n, layers - n}[i]})
				}
				m, err := model.LoadStages(context.Background(), f, stages, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64})
				if err != nil {
					t.Fatal(err)
				}
				for s, tokens := range g.Sequences {
					for i, row := range feed(t, m, tokens, 0) {
						for k, v := range row {
							if d := math.Abs(float64(v) - float64(c.want[s][i][k])); !(d <= c.tolerance) {
								t.Fatalf("sequence %d, row %d: logit %d differs by %g", s, i, k, d)
							}
						}
					}
				}
			})
		}
	}
	if _, err := model.LoadStages(context.Background(), f, []model.Stage{{Device: ref.New(), Layers: layers + 1}}, model.Options{Blocks: 1, MaxRows: 1}); err == nil {
		t.Error("a stage of more layers than the model has was loaded")
	}
}

// copies counts the calls that copy activations to and from a device.
type copies struct {
	device.Device
	reads, writes *int
}

func (c copies) Read(dst []float32, t device.Tensor, row int) error {
	*c.reads++
	return c.Device.Read(dst, t, row)
}

func (c copies) Write(t device.Tensor, row int, src []float32) error {
	*c.writes++
	return c.Device.Write(t, row, src)
}

func TestStagesHandAllRowsOfAStepOverAtOnce(t *testing.T) {
	f, err := gguf.Parse(gguftest.TinyLlama(gguftest.Llama{Layers: 3}))
	if err != nil {
		t.Fatal(err)
	}
	reads, writes := 0, 0
	var stages []model.Stage
	for range 3 {
		dev := ref.New()
		defer dev.Close()
		stages = append(stages, model.Stage{Device: copies{dev, &reads, &writes}, Layers: 1})
	}
	m, err := model.LoadStages(t.Context(), f, stages, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 64})
	if err != nil {
		t.Fatal(err)
	}
	b := &device.Batch{Tables: tablesOf(m, table)}
	for i := range int32(40) {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, i), append(b.Pos, i), append(b.Seq, 0)
	}
	for range 2 {
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 4 || writes != 4 {
		t.Errorf("%d copies from and %d to devices between three stages in two steps, want 4 of each", reads, writes)
	}
}
