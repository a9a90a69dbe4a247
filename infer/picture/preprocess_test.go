package picture

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
)

// golden is what is read of a family's golden.json.
type golden struct {
	Pictures []struct {
		File          string
		Width, Height int
		Tokens        int `json:"n_image_tokens"`
		PixelValues   struct {
			Shape         []int
			File, Resized string
			Overview      struct { // if it has another size than the other tiles
				Shape   []int
				Resized string
			}
		} `json:"pixel_values"`
	}
	Sizes        [][]json.RawMessage
	Refused      [][2]int
	Preprocessor struct {
		MaxSoftTokens int `json:"max_soft_tokens"`
		MergeSize     int `json:"merge_size"`
		PatchSize     any `json:"patch_size"`
		MinTokens     int `json:"min_image_tokens"`
		MaxTokens     int `json:"max_image_tokens"`
		Size          struct {
			Longest  int `json:"longest_edge"`
			Shortest int `json:"shortest_edge"`
		}
	}
}

var families = []string{"gemma3", "qwen25vl", "qwen3vl", "qwen35vl", "smolvlm", "mistral3", "llava", "gemma4", "gemma4e", "internvl", "lfm2", "qwen2vl"}

// options returns the limits that the golden was made with and its companion file does not hold.
func (g *golden) options() Options {
	p := g.Preprocessor
	if p.MergeSize == 0 {
		return Options{MinTokens: p.MinTokens, MaxTokens: p.MaxSoftTokens + p.MaxTokens}
	}
	side := p.MergeSize * int(p.PatchSize.(float64))
	return Options{MinTokens: p.Size.Shortest / (side * side), MaxTokens: p.Size.Longest / (side * side)}
}

func openFamily(t *testing.T, family string) (*golden, *Preprocessor) {
	t.Helper()
	var g golden
	readJSON(t, fixtures.Images(t, family, "golden.json"), &g)
	file, err := gguf.Open(fixtures.Images(t, family, "mmproj.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	p, err := NewPreprocessor(file, g.options())
	if err != nil {
		t.Fatal(err)
	}
	return &g, p
}

// shapes returns the shape of the tiles as the goldens write it, without their number where the family never cuts, and that of an overview
// of another size.
func (s Size) shapes(tiled bool) (shape, overview []int) {
	tiles := s.Tiles
	if o := s.Overview; o != (Tile{}) {
		tiles--
		overview = []int{3, o.Height, o.Width}
	}
	if tiled {
		return []int{tiles, 3, s.Height, s.Width}, overview
	}
	return []int{3, s.Height, s.Width}, overview
}

func TestPreparedPixelsAreTheReferences(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			g, p := openFamily(t, family)
			passed := 0
			for _, c := range g.Pictures {
				img := decoded(t, fixtures.Images(t, family, c.File))
				got, err := p.Prepare(img)
				if err != nil {
					t.Errorf("%s: %v", c.File, err)
					continue
				}
				v := c.PixelValues
				if shape, overview := got.shapes(len(v.Shape) == 4); !slices.Equal(shape, v.Shape) || !slices.Equal(overview, v.Overview.Shape) || got.Tokens != c.Tokens {
					t.Errorf("%s: shapes %v and %v and %d tokens, want %v, %v and %d", c.File, shape, overview, got.Tokens, v.Shape, v.Overview.Shape, c.Tokens)
					continue
				}
				resized := p.rule.tiles(img, got.Size)
				var pix []byte
				for _, r := range resized {
					pix = append(pix, r.Pix...)
				}
				want := decoded(t, fixtures.Images(t, family, v.Resized)).Pix
				if v.Overview.Resized != "" {
					want = append(want, decoded(t, fixtures.Images(t, family, v.Overview.Resized)).Pix...)
				}
				tolerance := 0
				if filepath.Ext(c.File) == ".jpg" {
					tolerance = 3 // two levels of the inverse transforms, which differ between decoders, and the overshoot of the filters
				}
				if d := largestDifference(pix, want); len(pix) != len(want) || d > tolerance {
					t.Errorf("%s: resized values differ by %d", c.File, d)
					continue
				}
				if v.File != "" && !equalFloats(t, got.Data, readFile(t, fixtures.Images(t, family, v.File))) {
					continue
				}
				passed++
			}
			fixtures.Row(t, "prepared pictures", "images/"+family, passed, len(g.Pictures))
		})
	}
}

// equalFloats reports whether values are those of a file within 1e-6.
func equalFloats(t *testing.T, got []float32, file []byte) bool {
	t.Helper()
	if len(file) != 4*len(got) {
		t.Errorf("%d values, want %d", len(got), len(file)/4)
		return false
	}
	largest, unequal := 0.0, 0
	for i, v := range got {
		want := math.Float32frombits(binary.LittleEndian.Uint32(file[4*i:]))
		if v != want {
			unequal++
		}
		largest = max(largest, math.Abs(float64(v)-float64(want)))
	}
	t.Logf("%d of %d values differ, by up to %g", unequal, len(got), largest)
	if largest > 1e-6 {
		t.Errorf("values differ by up to %g, want at most 1e-6", largest)
		return false
	}
	return true
}

func TestSizesAreTheReferences(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			g, p := openFamily(t, family)
			passed := 0
			for _, c := range g.Sizes {
				var width, height, tokens int
				var shape, overview []int
				into := []any{&width, &height, &shape, &tokens, new(int), &overview}
				for i, value := range c {
					if err := json.Unmarshal(value, into[i]); err != nil {
						t.Fatalf("%s: %v", c, err)
					}
				}
				s, err := p.Size(width, height)
				if got, gotOverview := s.shapes(len(shape) == 4); err != nil || !slices.Equal(got, shape) || !slices.Equal(gotOverview, overview) || s.Tokens != tokens {
					t.Errorf("%d x %d: shapes %v and %v and %d tokens, error %v; want %v, %v and %d", width, height, got, gotOverview, s.Tokens, err, shape, overview, tokens)
					continue
				}
				if s.Tokens > p.Most() {
					t.Errorf("%d x %d: %d tokens, more than the most, %d", width, height, s.Tokens, p.Most())
				}
				passed++
			}
			for _, side := range g.Refused {
				if s, err := p.Size(side[0], side[1]); err == nil {
					t.Errorf("%d x %d: %d tokens, and the reference refuses it", side[0], side[1], s.Tokens)
				}
			}
			fixtures.Row(t, "sizes of pictures", "images/"+family, passed, len(g.Sizes))
		})
	}
}
