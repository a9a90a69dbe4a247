package model_test

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/ref"
)

// pictureGolden is golden.json of a model that reads pictures.
type pictureGolden struct {
	ImageToken int32 `json:"image_token_id"`
	Pictures   []struct {
		File   string `json:"file"`
		Embeds struct {
			File string `json:"file"`
		} `json:"image_embeds"`
		Tower *struct {
			File string `json:"file"`
		} `json:"tower_output"`
	} `json:"pictures"`
	Cases []pictureCase `json:"cases"`
}

type pictureCase struct {
	Name     string   `json:"name"`
	Pictures []string `json:"pictures"`
	IDs      []int32  `json:"ids"`
	Spans    [][2]int `json:"image_spans"`
	Logits   struct {
		File string `json:"file"`
	} `json:"logits"`
	Greedy       []int32   `json:"greedy"`
	GreedyMargin []float64 `json:"greedy_margin"`
}

// seeing is a language model with its tower.
type seeing struct {
	pictureGolden
	dir   string
	model *model.Model
	tower *model.Tower
	pre   *picture.Preprocessor
	see   model.Pictures
}

func openSeeing(t *testing.T, name, companion string, openDevice func() (device.Device, error)) *seeing {
	t.Helper()
	s := &seeing{dir: fixtures.Path(t, "images", name)}
	if err := json.Unmarshal(readFile(t, filepath.Join(s.dir, "golden.json")), &s.pictureGolden); err != nil {
		t.Fatal(err)
	}
	open := func(file string) (*gguf.File, device.Device) {
		f, err := gguf.Parse(readFile(t, filepath.Join(s.dir, file)))
		if err != nil {
			t.Fatal(err)
		}
		dev, err := openDevice()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return f, dev
	}
	text, textDevice := open("text.gguf")
	vision, towerDevice := open(companion)
	c, err := model.ReadConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.see, err = model.ReadTower(vision, &c); err != nil {
		t.Fatal(err)
	}
	if s.tower, err = model.LoadTower(vision, towerDevice); err != nil {
		t.Fatal(err)
	}
	if s.pre, err = picture.NewPreprocessor(vision, picture.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.model, err = model.Load(t.Context(), text, textDevice, model.Options{CacheType: gguf.F32, Blocks: 16, MaxRows: 128, Pictures: s.see}); err != nil {
		t.Fatal(err)
	}
	return s
}

// encode returns the vectors of a picture of the fixtures.
func (s *seeing) encode(t *testing.T, file string) []float32 {
	t.Helper()
	img, err := picture.Decode(readFile(t, filepath.Join(s.dir, file)), picture.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := s.pre.Prepare(img)
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := s.tower.Encode(t.Context(), pixels)
	if err != nil {
		t.Fatal(err)
	}
	return vectors
}

// endsAfter is a context that ends when it has been asked for its error so often.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestAnEncodingOfWhichNobodyWaitsForTheResultEndsAfterALayer(t *testing.T) {
	s := openSeeing(t, "gemma3", "mmproj.gguf", func() (device.Device, error) { return ref.New(), nil })
	pixels, err := s.pre.Prepare(&picture.Image{Width: 2, Height: 1, Pix: []byte{255, 0, 0, 0, 255, 0}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := &endsAfter{t.Context(), 2}
	if vectors, err := s.tower.Encode(ctx, pixels); vectors != nil || err != context.Canceled || ctx.left != -1 {
		t.Errorf("got %d values and the error %v after %d more looks at the context", len(vectors), err, -1-ctx.left)
	}
	if vectors, err := s.tower.Encode(t.Context(), pixels); err != nil || len(vectors) == 0 {
		t.Errorf("the next encoding has %d values and the error %v", len(vectors), err)
	}
}

// seenText is a sequence with pictures.
type seenText struct {
	ids     []int32
	spans   [][2]int // first row and rows
	vectors [][]float32
	blocks  []int32
}

// add adds rows from to to-1 of x to the batch, as sequence number seq.
func (s *seeing) add(b *device.Batch, x *seenText, seq, from, to int) {
	width := s.model.Config().Dim
	first := len(b.Tokens) - from
	for pos := from; pos < to; pos++ {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, x.ids[pos]), append(b.Pos, int32(pos)), append(b.Seq, int32(seq))
		end := pos
		for i, span := range x.spans {
			if last := span[0] + span[1] - 1; span[0] <= pos && pos <= last {
				b.Inputs = append(b.Inputs, device.Input{Row: first + pos, Values: x.vectors[i][(pos-span[0])*width:][:width]})
				if s.see.Attend {
					end = last
				}
			}
		}
		b.Ends = append(b.Ends, int32(end))
	}
	b.Tables[0] = append(b.Tables[0], x.blocks)
}

func (s *seeing) run(t *testing.T, b *device.Batch) [][]float32 {
	t.Helper()
	if len(b.Inputs) == 0 {
		b.Ends = nil
	}
	for len(b.Tables) < len(s.model.Config().CacheGroups()) {
		b.Tables = append(b.Tables, b.Tables[0])
	}
	if err := s.model.Forward(b); err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, len(b.Out))
	for i := range rows {
		rows[i] = make([]float32, s.model.Config().Vocab)
		if err := s.model.Logits(rows[i], i); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

func TestPicturesEqualTheReference(t *testing.T) {
	for _, name := range []string{"gemma3"} {
		for kind, openDevice := range map[string]func() (device.Device, error){"ref": func() (device.Device, error) { return ref.New(), nil }, "cpu": openCPU, "cuda": cudaOpener(t)} {
			t.Run(name+" on "+kind, func(t *testing.T) {
				s := openSeeing(t, name, "mmproj.gguf", openDevice)
				vectors := map[string][]float32{}
				for _, p := range s.Pictures {
					vectors[p.File] = s.encode(t, p.File)
					want := readFloats(t, filepath.Join(s.dir, p.Embeds.File))
					largest := 0.0
					for _, v := range want {
						largest = max(largest, math.Abs(float64(v)))
					}
					worst := largestError(vectors[p.File], want)
					t.Logf("%s: vectors differ by up to %.2g of %.2g", p.File, worst, largest)
					tolerance := 1e-3 * largest
					if filepath.Ext(p.File) == ".jpg" { // decoders differ
						tolerance = 0.1 * largest
					}
					if !(worst <= tolerance) {
						t.Errorf("%s: vectors differ by up to %g, allowed are %g", p.File, worst, tolerance)
					}
				}
				for _, c := range s.Cases {
					x := &seenText{ids: c.IDs, spans: c.Spans, blocks: []int32{3, 1, 4, 6, 5}}
					exact := true
					for _, file := range c.Pictures {
						x.vectors = append(x.vectors, vectors[file])
						exact = exact && filepath.Ext(file) != ".jpg"
					}
					tolerance := 1e-3
					if !exact {
						tolerance = 0.3
					}
					b := &device.Batch{Tables: [][][]int32{nil}}
					n := len(c.IDs)
					s.add(b, x, 0, 0, n)
					b.Out = []int32{int32(n - 4), int32(n - 3), int32(n - 2), int32(n - 1)}
					rows := s.run(t, b)
					want := readFloats(t, filepath.Join(s.dir, c.Logits.File))
					worst := 0.0
					for i, row := range rows {
						worst = max(worst, largestError(logSoftmaxOf(row), logSoftmaxOf(want[i*len(row):][:len(row)])))
					}
					t.Logf("%s: log-probabilities differ by up to %.2g of %g", c.Name, worst, tolerance)
					if !(worst <= tolerance) {
						t.Errorf("%s: log-probabilities differ by up to %g, allowed are %g", c.Name, worst, tolerance)
					}
					last := rows[3]
					for i, id := range c.Greedy {
						if c.GreedyMargin[i] <= 2*tolerance {
							break
						}
						if got := argmaxOf(last); got != id {
							t.Fatalf("%s: greedy token %d is %d, want %d", c.Name, i, got, id)
						}
						x.ids = append(slices.Clip(x.ids), id)
						b := &device.Batch{Tables: [][][]int32{nil}, Out: []int32{0}}
						s.add(b, x, 0, len(x.ids)-1, len(x.ids))
						last = s.run(t, b)[0]
					}
				}
			})
		}
	}
}

func TestRowsOfPicturesHaveTheSameBitsInEveryStep(t *testing.T) {
	for kind, openDevice := range map[string]func() (device.Device, error){"ref": func() (device.Device, error) { return ref.New(), nil }, "cpu": openCPU, "cuda": cudaOpener(t)} {
		t.Run(kind, func(t *testing.T) {
			s := openSeeing(t, "gemma3", "mmproj-f16.gguf", openDevice)
			c := s.Cases[slices.IndexFunc(s.Cases, func(c pictureCase) bool {
				return c.Name == "two_images"
			})]
			seen := &seenText{ids: c.IDs, spans: c.Spans, blocks: []int32{3, 1, 4}}
			for _, file := range c.Pictures {
				seen.vectors = append(seen.vectors, s.encode(t, file))
			}
			plain := &seenText{ids: c.IDs[:c.Spans[0][0]], blocks: []int32{7}}
			n := len(c.IDs)
			alone := &device.Batch{Tables: [][][]int32{nil}, Out: []int32{int32(n - 1)}}
			s.add(alone, seen, 0, 0, n)
			want := s.run(t, alone)[0]
			text := &device.Batch{Tables: [][][]int32{nil}, Out: []int32{int32(len(plain.ids) - 1)}}
			s.add(text, plain, 0, 0, len(plain.ids))
			wantText := s.run(t, text)[0]

			second := c.Spans[1][0]
			for _, cuts := range [][]int{{second}, {second - 1, second + c.Spans[1][1]}, {2, c.Spans[0][0], second, n - 1}} {
				seen.blocks = []int32{9, 2, 8}
				for i, to := range append(slices.Clone(cuts), n) {
					from := 0
					if i > 0 {
						from = cuts[i-1]
					}
					b := &device.Batch{Tables: [][][]int32{nil}}
					s.add(b, plain, 0, 0, len(plain.ids))
					s.add(b, seen, 1, from, to)
					b.Out = []int32{int32(len(plain.ids) - 1), int32(len(b.Tokens) - 1)}
					rows := s.run(t, b)
					if !slices.Equal(rows[0], wantText) {
						t.Errorf("cut at %v, step %d: the text beside a picture has other bits than alone", cuts, i)
					}
					if to == n && !slices.Equal(rows[1], want) {
						t.Errorf("cut at %v: the answer has other bits than in one step", cuts)
					}
				}
			}
		})
	}
}

func largestError(got, want []float32) (worst float64) {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	for i := range got {
		worst = max(worst, math.Abs(float64(got[i])-float64(want[i])))
	}
	return worst
}

func logSoftmaxOf(row []float32) []float32 {
	top, sum := float64(slices.Max(row)), 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	list := make([]float32, len(row))
	for i, v := range row {
		list[i] = float32(float64(v) - top - math.Log(sum))
	}
	return list
}

func argmaxOf(row []float32) int32 { return int32(slices.Index(row, slices.Max(row))) }
