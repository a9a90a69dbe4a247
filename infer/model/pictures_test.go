package model_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/ref"
)

// pictureGolden is golden.json of a model that reads pictures.
type pictureGolden struct {
	ImageToken int32 `json:"image_token_id"`
	Pictures   []struct {
		File      string     `json:"file"`
		Embeds    floatsFile `json:"image_embeds"`
		Deepstack floatsFile `json:"deepstack"`
		Layers    floatsFile `json:"layers"` // first picture only
		Tower     floatsFile `json:"tower_output"`
	} `json:"pictures"`
	Cases        []pictureCase `json:"cases"`
	Preprocessor struct {
		MaxSoftTokens int `json:"max_soft_tokens"`
		MergeSize     int `json:"merge_size"`
		PatchSize     any `json:"patch_size"`
		MinTokens     int `json:"min_image_tokens"`
		MaxTokens     int `json:"max_image_tokens"`
		Size          struct {
			Longest  int `json:"longest_edge"`
			Shortest int `json:"shortest_edge"`
		} `json:"size"`
	} `json:"preprocessor"`
}

// floatsFile is a file of float32 values.
type floatsFile struct {
	File  string `json:"file"`
	Shape []int  `json:"shape"`
}

// options returns the limits of pictures that the golden was made with and its companion file does not hold.
func (g *pictureGolden) options() picture.Options {
	p := g.Preprocessor
	if p.MergeSize == 0 {
		return picture.Options{MinTokens: p.MinTokens, MaxTokens: p.MaxSoftTokens + p.MaxTokens}
	}
	side := p.MergeSize * int(p.PatchSize.(float64))
	return picture.Options{MinTokens: p.Size.Shortest / (side * side), MaxTokens: p.Size.Longest / (side * side)}
}

type pictureCase struct {
	Name     string     `json:"name"`
	Pictures []string   `json:"pictures"`
	IDs      []int32    `json:"ids"`
	Spans    [][2]int   `json:"image_spans"`
	Logits   floatsFile `json:"logits"`

	Positions [][]int32 `json:"position_ids"`
	Next      int32     `json:"next_position"`

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
	s := &seeing{dir: fixtures.Images(t, name)}
	if err := json.Unmarshal(readFile(t, filepath.Join(s.dir, "golden.json")), &s.pictureGolden); err != nil {
		t.Fatal(err)
	}
	open := func(file string) (*gguf.File, device.Device) {
		f, err := gguf.Parse(s.read(t, file))
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
	if s.pre, err = picture.NewPreprocessor(vision, s.options()); err != nil {
		t.Fatal(err)
	}
	if s.see, err = model.ReadTower(vision, &c, s.pre.Most()); err != nil {
		t.Fatal(err)
	}
	size, err := s.pre.Size(150, 90)
	if err != nil {
		t.Fatal(err)
	}
	if s.tower, err = model.LoadTower(vision, towerDevice, size); err != nil {
		t.Fatal(err)
	}
	if s.model, err = model.Load(t.Context(), text, textDevice, model.Options{CacheType: device.CacheOf(gguf.F32), Blocks: 16, MaxRows: 192, States: 2, Pictures: s.see}); err != nil {
		t.Fatal(err)
	}
	return s
}

// read returns a file of the fixtures. What they lack in F16 is made of the file in F32.
func (s *seeing) read(t *testing.T, file string) []byte {
	t.Helper()
	path := filepath.Join(s.dir, file)
	whole, half := strings.CutSuffix(path, "-f16.gguf")
	if _, err := os.Stat(path); err == nil || !half {
		return readFile(t, path)
	}
	f, err := gguf.Parse(readFile(t, whole+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	b := gguftest.New()
	for _, key := range f.Keys() {
		b.Set(key, valueInFile(t, f, key))
	}
	for _, one := range f.Tensors() {
		if len(one.Shape) < 2 || strings.Contains(one.Name, "position_embd") { // as the converter leaves them
			b.Tensor(one.Name, one.Type, one.Shape, one.Data)
			continue
		}
		values := make([]float32, one.Elements())
		if err := gguf.Dequantize(one.Type, one.Data, values); err != nil {
			t.Fatal(err)
		}
		b.Tensor(one.Name, gguf.F16, one.Shape, gguftest.Quantize(gguf.F16, values))
	}
	return b.Bytes()
}

// encode returns the vectors of a picture of the fixtures.
func (s *seeing) encode(t *testing.T, file string) []float32 {
	t.Helper()
	vectors, err := s.tower.Encode(t.Context(), s.prepare(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return vectors
}

// prepare returns the pixels of a picture of the fixtures.
func (s *seeing) prepare(t *testing.T, file string) *picture.Pixels {
	t.Helper()
	img, err := picture.Decode(readFile(t, filepath.Join(s.dir, file)), picture.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	pixels, err := s.pre.Prepare(img)
	if err != nil {
		t.Fatal(err)
	}
	return pixels
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
	vectors []float32
	next    int32     // the coordinate behind those
	at      [][]int32 // coordinates of the rows by axis; nil: none
	blocks  []int32
}

// rows returns the rows that have vectors.
func (x *seenText) rows() (list []int) {
	for _, span := range x.spans {
		for i := range span[1] {
			list = append(list, span[0]+i)
		}
	}
	return list
}

// coordinate returns that of a row on an axis. Rows behind those that have any go on by one.
func (x *seenText) coordinate(axis, pos int) int32 {
	known := x.at[axis]
	if pos < len(known) {
		return known[pos]
	}
	return x.next + int32(pos-len(known))
}

// add adds rows from to to-1 of x to the batch, as sequence number seq.
func (s *seeing) add(b *device.Batch, x *seenText, seq, from, to int) {
	c := s.model.Config()
	first, seen := len(b.Tokens)-from, x.rows()
	width := 0
	if len(seen) > 0 {
		width = len(x.vectors) / len(seen)
	}
	for pos := from; pos < to; pos++ {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, x.ids[pos]), append(b.Pos, int32(pos)), append(b.Seq, int32(seq))
		end := pos
		if i := slices.Index(seen, pos); i >= 0 {
			b.Inputs = append(b.Inputs, device.Input{Row: first + pos, Values: x.vectors[i*width:][:width]})
			for _, span := range x.spans {
				if last := span[0] + span[1] - 1; s.see.Attend && span[0] <= pos && pos <= last {
					end = last
				}
			}
		}
		b.Ends = append(b.Ends, int32(end))
		for axis := range device.MaxAxes {
			if !c.HasCoordinates() {
				break
			}
			if len(b.Coordinates) <= axis {
				b.Coordinates = append(b.Coordinates, nil)
			}
			at := int32(pos)
			if x.at != nil {
				at = x.coordinate(axis, pos)
			}
			b.Coordinates[axis] = append(b.Coordinates[axis], at)
		}
	}
	b.Tables[0] = append(b.Tables[0], x.blocks)
	b.States = append(b.States, int32(seq))
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

// pictureFamilies are the fixtures of models that read pictures, with what they call the output of the tower.
var pictureFamilies = []struct {
	name  string
	tower func(s *seeing, pixels *picture.Pixels, layers [][]float32, result []float32) []float32
}{
	{"gemma3", resultOf},
	{"llava", nil}, // of a layer more than the file has
	{"smolvlm", resultOf},
	{"mistral3", lastOf},
	{"qwen2vl", lastOf},
	{"qwen25vl", windowOrder},
	{"qwen3vl", lastOf},
	{"qwen35vl", lastOf},
	{"gemma4", joinedOf},
	{"gemma4e", joinedOf},
	{"internvl", resultOf},
	{"lfm2", resultOf},
}

// fewFamilies are those of which each has what others have not: windows, three coordinates, vectors for layers, limits of values, factors
// of what is added, an overview of another size.
var fewFamilies = []string{"gemma3", "qwen25vl", "qwen3vl", "gemma4e", "internvl", "lfm2"}

func resultOf(_ *seeing, _ *picture.Pixels, _ [][]float32, result []float32) []float32 { return result }

func lastOf(_ *seeing, _ *picture.Pixels, layers [][]float32, _ []float32) []float32 {
	return layers[len(layers)-1]
}

func joinedOf(s *seeing, pixels *picture.Pixels, _ [][]float32, result []float32) []float32 {
	return s.tower.Joined(pixels, result)
}

// windowOrder returns the result of the last layer, of one window of 4 x 4 tokens after the other.
func windowOrder(s *seeing, pixels *picture.Pixels, layers [][]float32, _ []float32) (list []float32) {
	last, token := layers[len(layers)-1], 4*s.tower.Width()
	for top := 0; top < pixels.Rows; top += 4 {
		for left := 0; left < pixels.Columns; left += 4 {
			for row := top; row < min(top+4, pixels.Rows); row++ {
				for column := left; column < min(left+4, pixels.Columns); column++ {
					list = append(list, last[(row*pixels.Columns+column)*token:][:token]...)
				}
			}
		}
	}
	return list
}

// devicesOfTowers open the devices on which towers are tested.
func devicesOfTowers(t *testing.T) map[string]func() (device.Device, error) {
	return map[string]func() (device.Device, error){"ref": func() (device.Device, error) { return ref.New(), nil }, "cpu": openCPU, "cuda": cudaOpener(t)}
}

// equalWithin checks that values differ from those of a fixture by no more than a share of the largest of them.
func (s *seeing) equalWithin(t *testing.T, what string, got []float32, file string, share float64) {
	t.Helper()
	want := readFloats(t, filepath.Join(s.dir, file))
	largest := 0.0
	for _, v := range want {
		largest = max(largest, math.Abs(float64(v)))
	}
	worst := largestError(got, want)
	t.Logf("%s: values differ by up to %.2g of %.2g", what, worst, largest)
	if !(worst <= share*largest) {
		t.Errorf("%s: values differ by up to %g, allowed are %g (%d values, want %d)", what, worst, share*largest, len(got), len(want))
	}
}

func TestPicturesEqualTheReference(t *testing.T) {
	devices := devicesOfTowers(t)
	for _, family := range pictureFamilies {
		for kind, openDevice := range devices {
			if kind == "cuda" && !fixtures.Check() && !slices.Contains(fewFamilies, family.name) {
				continue // the emulation takes its time
			}
			t.Run(family.name+" on "+kind, func(t *testing.T) {
				s := openSeeing(t, family.name, "mmproj.gguf", openDevice)
				vectors := map[string][]float32{}
				for _, p := range s.Pictures {
					vectors[p.File] = s.encode(t, p.File)
					share := 1e-3
					if filepath.Ext(p.File) == ".jpg" { // decoders differ
						share = 0.1
					}
					s.testVectors(t, p.File, vectors[p.File], p.Embeds, p.Deepstack, share)
					if p.Tower.File == "" {
						continue
					}
					pixels := s.prepare(t, p.File)
					var tiles [][][]float32
					var output []float32
					for tile := range pixels.Tiles {
						layers, result, err := s.tower.Layers(pixels, tile)
						if err != nil {
							t.Fatal(err)
						}
						if tiles = append(tiles, layers); family.tower != nil {
							output = append(output, family.tower(s, pixels, layers, result)...)
						}
					}
					s.testLayers(t, tiles, p.Layers)
					if family.tower != nil {
						s.equalWithin(t, "output of the tower", output, p.Tower.File, 1e-3)
					}
				}
				for _, c := range s.Cases {
					s.testCase(t, c, vectors)
				}
			})
		}
	}
}

func TestCompanionsInF16EqualTheReference(t *testing.T) {
	for _, name := range []string{"gemma3", "qwen25vl", "internvl", "lfm2"} {
		for kind, openDevice := range map[string]func() (device.Device, error){"cpu": openCPU, "cuda": cudaOpener(t)} {
			t.Run(name+" on "+kind, func(t *testing.T) {
				s := openSeeing(t, name, "mmproj-f16.gguf", openDevice)
				s.equalWithin(t, "vectors", s.encode(t, s.Pictures[0].File), s.Pictures[0].Embeds.File, 2e-2)
			})
		}
	}
}

func TestTheTowerOfLargeInternVLModelsEqualsTheReference(t *testing.T) {
	for kind, openDevice := range devicesOfTowers(t) {
		t.Run(kind, func(t *testing.T) {
			s := openSeeing(t, "internvl", "mmproj-large.gguf", openDevice)
			s.equalWithin(t, "vectors", s.encode(t, s.Pictures[0].File), "large-tower.embeds.f32", 1e-3)
		})
	}
}

func TestTowersOfAnySizeGiveAPictureTheSameBits(t *testing.T) {
	for _, name := range []string{"mistral3", "qwen25vl", "qwen3vl", "gemma4", "lfm2"} {
		t.Run(name, func(t *testing.T) {
			s := openSeeing(t, name, "mmproj.gguf", openCPU)
			pixels := s.prepare(t, s.Pictures[0].File)
			want, err := s.tower.Encode(t.Context(), pixels)
			if err != nil {
				t.Fatal(err)
			}
			large := *pixels
			large.Width, large.Height = 20*pixels.Width, 20*pixels.Height
			large.Data = make([]float32, 3*large.Width*large.Height)
			if _, err := s.tower.Encode(t.Context(), &large); s.tower.Fits(large.Size) || err == nil || !strings.Contains(err.Error(), "the tower was loaded for 1024") {
				t.Errorf("a tower for small pictures encodes a large one: error %v", err)
			}
			f, err := gguf.Parse(readFile(t, filepath.Join(s.dir, "mmproj.gguf")))
			if err != nil {
				t.Fatal(err)
			}
			dev, err := openCPU()
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			tower, err := model.LoadTower(f, dev, large.Size)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tower.Encode(t.Context(), pixels); err != nil || !tower.Fits(large.Size) || !slices.Equal(got, want) {
				t.Errorf("a tower for large pictures gives other bits, error %v", err)
			}
		})
	}
}

// testVectors tests the vectors of a picture, and those that are added behind layers of the language model.
func (s *seeing) testVectors(t *testing.T, file string, got []float32, embeds, deepstack floatsFile, share float64) {
	t.Helper()
	dim := s.model.Config().Dim
	parts := 1 + s.model.Config().Deepstack
	split := make([][]float32, parts)
	for i := range len(got) / dim {
		split[i%parts] = append(split[i%parts], got[i*dim:][:dim]...)
	}
	s.equalWithin(t, file+": vectors", split[0], embeds.File, share)
	if parts > 1 || deepstack.File != "" {
		s.equalWithin(t, file+": vectors behind layers", slices.Concat(split[1:]...), deepstack.File, share)
	}
}

// testLayers tests, of what enters the layers and of their results, the first row of the first tile and the last row of the last one.
func (s *seeing) testLayers(t *testing.T, tiles [][][]float32, file floatsFile) {
	t.Helper()
	want, width := readFloats(t, filepath.Join(s.dir, file.File)), s.tower.Width()
	for i, first := range tiles[0] {
		if worst := largestError(first[:width], want[2*i*width:][:width]); !(worst <= 1e-4) {
			t.Errorf("the first row behind layer %d differs by up to %g", i, worst)
		}
		last := tiles[len(tiles)-1][i]
		if s.see.Placeholder == "<|image|>" {
			continue // the last row of the reference is padding
		}
		if worst := largestError(last[len(last)-width:], want[(2*i+1)*width:][:width]); !(worst <= 1e-4) {
			t.Errorf("the last row behind layer %d differs by up to %g", i, worst)
		}
	}
}

// testCase tests the logits of a case, and its greedy continuation.
func (s *seeing) testCase(t *testing.T, c pictureCase, vectors map[string][]float32) {
	t.Helper()
	x := &seenText{ids: c.IDs, spans: c.Spans, at: c.Positions, next: c.Next, blocks: []int32{3, 1, 4, 6, 5, 2}}
	tolerance := 1e-3
	for _, file := range c.Pictures {
		x.vectors = append(x.vectors, vectors[file]...)
		if filepath.Ext(file) == ".jpg" {
			tolerance = 0.3
		}
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

func TestRowsOfPicturesHaveTheSameBitsInEveryStep(t *testing.T) {
	devices := devicesOfTowers(t)
	for _, family := range pictureFamilies {
		for kind, openDevice := range devices {
			if kind == "ref" && family.name != "gemma3" || kind == "cuda" && !fixtures.Check() && !slices.Contains(fewFamilies, family.name) {
				continue // sums of ref have one order only
			}
			t.Run(family.name+" on "+kind, func(t *testing.T) { testRowsOfPictures(t, family.name, openDevice) })
		}
	}
}

func testRowsOfPictures(t *testing.T, family string, openDevice func() (device.Device, error)) {
	companion := "mmproj.gguf"
	if slices.Contains([]string{"gemma3", "qwen25vl", "internvl", "lfm2"}, family) {
		companion = "mmproj-f16.gguf"
	}
	s := openSeeing(t, family, companion, openDevice)
	recurs := s.model.StateBytes() > 0
	c := s.Cases[slices.IndexFunc(s.Cases, func(c pictureCase) bool { return c.Name == "two_images" })]
	seen := &seenText{ids: c.IDs, spans: c.Spans, at: c.Positions, next: c.Next, blocks: []int32{3, 1, 4, 12, 13}}
	for _, file := range c.Pictures {
		seen.vectors = append(seen.vectors, s.encode(t, file)...)
	}
	plain := &seenText{ids: c.IDs[:c.Spans[0][0]], blocks: []int32{7}}
	n := len(c.IDs)
	alone := &device.Batch{Tables: [][][]int32{nil}, Out: []int32{int32(n - 1)}}
	s.add(alone, seen, 0, 0, n)
	want := s.run(t, alone)[0]
	text := &device.Batch{Tables: [][][]int32{nil}, Out: []int32{int32(len(plain.ids) - 1)}}
	s.add(text, plain, 0, 0, len(plain.ids))
	text.Coordinates = nil // they are the positions
	wantText := s.run(t, text)[0]

	second := c.Spans[len(c.Spans)-1]
	cuts := [][]int{{second[0]}, {second[0] - 1, second[0] + second[1]}, {2, c.Spans[0][0], second[0], n - 1}}
	if !s.see.Attend {
		cuts = append(cuts, []int{c.Spans[0][0] + 1, second[0] + 2})
	}
	for _, cuts := range cuts {
		seen.blocks = []int32{9, 2, 8, 14, 15}
		cuts = slices.Compact(cuts)
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
			if !recurs && !slices.Equal(rows[0], wantText) || recurs && i == 0 && !slices.Equal(rows[0], wantText) {
				t.Errorf("cut at %v, step %d: the text beside a picture has other bits than alone", cuts, i)
			}
			if to == n && !slices.Equal(rows[1], want) {
				t.Errorf("cut at %v: the answer has other bits than in one step", cuts)
			}
		}
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
