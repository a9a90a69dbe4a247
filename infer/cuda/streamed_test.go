package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
)

// Rows of prompts have the bits of a model that is on the GPU as a whole, although the experts of some layers are in main memory: however
// the prompt is cut into steps, with other sequences in a step, and with steps of answers in between, which the CPU has a part of.
func TestStreamedExpertsHaveTheBitsOfAModelOnTheGPU(t *testing.T) {
	names := []string{"qwen3moe", "gpt_oss"}
	if fixtures.Check() {
		names = append(names, "deepseek2", "gemma4_moe", "granitehybrid_moe")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			file, golden := readFixture(t, name)
			f, err := gguf.Parse(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			load := func(t *testing.T, experts int) *model.Model {
				o := model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 32, States: 2}
				gpu := openDevice(t)
				if experts > 0 {
					host, err := cpu.Open(2)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { host.Close() })
					o.Experts, o.Stream = model.Stage{Device: host, Layers: experts}, true
				}
				m, err := model.LoadStages(t.Context(), f, []model.Stage{{Device: gpu, Layers: len(c.Layers)}}, o)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			tokens := slices.Concat(golden.Sequences...)[:21]
			want := newFeeder(t, load(t, 0)).rows(0, tokens, len(tokens))
			for experts := 1; experts <= len(c.Layers); experts++ {
				t.Run(fmt.Sprintf("experts of %d of %d layers", experts, len(c.Layers)), func(t *testing.T) {
					m := load(t, experts)
					for _, rows := range []int{len(tokens), 1, 13} {
						b := newFeeder(t, m)
						for i, row := range b.rows(0, tokens, rows) {
							if !slices.EqualFunc(row, want[i], sameBits) {
								t.Fatalf("steps of %d rows: row %d has other bits", rows, i)
							}
						}
						b.answer(0, tokens[0], len(tokens))
						b.answer(0, tokens[1], len(tokens)+1)
					}
					b := newFeeder(t, m)
					both := b.together([][]int32{tokens[:15], tokens[:9]})
					for s, rows := range both {
						for i, row := range rows {
							if !slices.EqualFunc(row, want[i], sameBits) {
								t.Fatalf("two sequences in a step: row %d of sequence %d has other bits", i, s)
							}
						}
					}
				})
			}
		})
	}
}

// Where whole layers are in main memory, prompts have their feed-forward layers on the GPU: with the bits of a model that is on the GPU as a whole if the
// other device has those of the GPU, too, and the same ones in all steps if it has others.
func TestStreamedFeedForwardLayersHaveTheirBitsInAllSteps(t *testing.T) {
	names := []string{"llama"}
	if fixtures.Check() {
		names = append(names, "gemma2", "qwen2", "granitehybrid", "mixtral")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			file, golden := readFixture(t, name)
			f, err := gguf.Parse(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := model.ReadConfig(f)
			if err != nil {
				t.Fatal(err)
			}
			load := func(t *testing.T, host device.Device, layers int) *model.Model {
				stages := []model.Stage{{Device: openDevice(t), Layers: len(c.Layers) - layers}}
				if host != nil {
					stages = slices.Insert(stages, 0, model.Stage{Device: host, Layers: layers})
				}
				m, err := model.LoadStages(t.Context(), f, stages, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 32, States: 2, Stream: host != nil})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			tokens := slices.Concat(golden.Sequences...)[:21]
			whole := newFeeder(t, load(t, nil, 0)).rows(0, tokens, len(tokens))
			for layers := 1; layers < len(c.Layers); layers++ {
				for _, host := range []string{"GPU", "CPU"} {
					t.Run(fmt.Sprintf("%d of %d layers on another %s", layers, len(c.Layers), host), func(t *testing.T) {
						var dev device.Device
						if host == "GPU" {
							dev = notStreaming{openDevice(t)}
						} else {
							if dev, err = cpu.Open(2); err != nil {
								t.Fatal(err)
							}
							t.Cleanup(func() { dev.Close() })
						}
						m, want := load(t, dev, layers), whole
						if host == "CPU" {
							want = newFeeder(t, m).rows(0, tokens, len(tokens))
						}
						for _, rows := range []int{len(tokens), 1, 13} {
							b := newFeeder(t, m)
							for i, row := range b.rows(0, tokens, rows) {
								if !slices.EqualFunc(row, want[i], sameBits) {
									t.Fatalf("steps of %d rows: row %d has other bits", rows, i)
								}
							}
							b.answer(0, tokens[0], len(tokens))
						}
						for s, rows := range newFeeder(t, m).together([][]int32{tokens[:15], tokens[:9]}) {
							for i, row := range rows {
								if !slices.EqualFunc(row, want[i], sameBits) {
									t.Fatalf("two sequences in a step: row %d of sequence %d has other bits", i, s)
								}
							}
						}
						if difference := largestDifference(want[20], whole[20]); !(difference < 1e-3) {
							t.Errorf("the last logits differ by %g from those of a model on the GPU", difference)
						}
					})
				}
			}
		})
	}
}

// notStreaming is a device without what it can do beyond device.Device.
type notStreaming struct{ device.Device }

func largestDifference(a, b []float32) (most float64) {
	for i := range a {
		if d := math.Abs(float64(a[i]) - float64(b[i])); !(d <= most) {
			most = d
		}
	}
	return most
}

// A model file that is cut short is an error of the step that copies weights of it.
func TestStreamedWeightsOfAFileThatIsCutShort(t *testing.T) {
	file, _ := readFixture(t, "gpt_oss")
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	host, err := cpu.Open(2)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	gpu := openDevice(t)
	defer gpu.Close() // before the file
	m, err := model.LoadStages(t.Context(), f, []model.Stage{{Device: gpu, Layers: len(c.Layers)}}, model.Options{
		CacheType: device.CacheOf(gguf.F32), Blocks: 8, MaxRows: 8, Experts: model.Stage{Device: host, Layers: 3}, Stream: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	b := newFeeder(t, m)
	for range 2 { // it does not get better
		step := b.batch()
		step.Prompt = true
		if b.add(step, 0, 3, 0); !errors.Is(m.Forward(step), device.ErrUnreadable) {
			t.Errorf("the step does not say that the file cannot be read")
		}
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

func openDevice(t *testing.T) device.Device {
	t.Helper()
	driver, gpus, err := cuda.Find(emutest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := cuda.OpenGPU(driver, gpus[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gpu.Close(); err != nil {
			t.Error(err)
		}
	})
	return gpu
}

// feeder computes rows of two sequences.
type feeder struct {
	t *testing.T
	m *model.Model
}

func newFeeder(t *testing.T, m *model.Model) feeder { return feeder{t, m} }

func (f feeder) batch() *device.Batch {
	b := &device.Batch{States: []int32{0, 1}}
	for range f.m.BlockBytes() {
		b.Tables = append(b.Tables, [][]int32{{5, 1}, {3, 6}})
	}
	return b
}

func (f feeder) add(b *device.Batch, seq int, token int32, pos int) {
	b.Out = append(b.Out, int32(len(b.Tokens)))
	b.Tokens, b.Pos, b.Seq = append(b.Tokens, token), append(b.Pos, int32(pos)), append(b.Seq, int32(seq))
}

// run computes a step and returns the logits of its rows.
func (f feeder) run(b *device.Batch) (logits [][]float32) {
	f.t.Helper()
	if err := f.m.Forward(b); err != nil {
		f.t.Fatal(err)
	}
	for i := range b.Out {
		row := make([]float32, f.m.Config().Vocab)
		if err := f.m.Logits(row, i); err != nil {
			f.t.Fatal(err)
		}
		logits = append(logits, row)
	}
	return logits
}

// rows returns the logits of all rows of a prompt that is read in steps of so many rows.
func (f feeder) rows(seq int, tokens []int32, rows int) (logits [][]float32) {
	f.t.Helper()
	for from := 0; from < len(tokens); from += rows {
		b := f.batch()
		b.Prompt = true
		for pos := from; pos < min(from+rows, len(tokens)); pos++ {
			f.add(b, seq, tokens[pos], pos)
		}
		logits = append(logits, f.run(b)...)
	}
	return logits
}

// answer computes a row of an answer and returns its logits.
func (f feeder) answer(seq int, token int32, pos int) []float32 {
	f.t.Helper()
	b := f.batch()
	f.add(b, seq, token, pos)
	return f.run(b)[0]
}

// together returns the logits of the rows of prompts that are read in one step.
func (f feeder) together(prompts [][]int32) (logits [][][]float32) {
	f.t.Helper()
	b := f.batch()
	b.Prompt = true
	for s, tokens := range prompts {
		for pos, token := range tokens {
			f.add(b, s, token, pos)
		}
	}
	rows := f.run(b)
	for _, tokens := range prompts {
		logits, rows = append(logits, rows[:len(tokens)]), rows[len(tokens):]
	}
	return logits
}
