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
		} `json:"pixel_values"`
	}
	Sizes        [][5]json.RawMessage
	Preprocessor struct {
		MaxSoftTokens int `json:"max_soft_tokens"`
		MergeSize     int `json:"merge_size"`
		PatchSize     any `json:"patch_size"`
		Size          struct {
			Longest  int `json:"longest_edge"`
			Shortest int `json:"shortest_edge"`
		}
	}
}

var families = []string{"gemma3", "qwen25vl", "qwen3vl", "qwen35vl", "smolvlm", "mistral3", "llava", "gemma4", "gemma4e"}

// options returns the limits that the golden was made with and its companion file does not hold.
func (g *golden) options() Options {
	p := g.Preprocessor
	if p.MergeSize == 0 {
		return Options{MaxTokens: p.MaxSoftTokens}
	}
	side := p.MergeSize * int(p.PatchSize.(float64))
	return Options{MinTokens: p.Size.Shortest / (side * side), MaxTokens: p.Size.Longest / (side * side)}
}

func openFamily(t *testing.T, family string) (*golden, *Preprocessor) {
	t.Helper()
	var g golden
	readJSON(t, fixtures.Path(t, "images", family, "golden.json"), &g)
	file, err := gguf.Open(fixtures.Path(t, "images", family, "mmproj.gguf"))
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

// shape returns the shape as the goldens write it: without tiles where the family never cuts.
func (s Size) shape(tiled bool) []int {
	if tiled {
		return []int{s.Tiles, 3, s.Height, s.Width}
	}
	return []int{3, s.Height, s.Width}
}

func TestPreparedPixelsAreTheReferences(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			g, p := openFamily(t, family)
			passed := 0
			for _, c := range g.Pictures {
				img := decoded(t, fixtures.Path(t, "images", family, c.File))
				got, err := p.Prepare(img)
				if err != nil {
					t.Errorf("%s: %v", c.File, err)
					continue
				}
				if shape := got.shape(len(c.PixelValues.Shape) == 4); !slices.Equal(shape, c.PixelValues.Shape) || got.Tokens != c.Tokens {
					t.Errorf("%s: shape %v and %d tokens, want %v and %d", c.File, shape, got.Tokens, c.PixelValues.Shape, c.Tokens)
					continue
				}
				resized := p.rule.tiles(img, got.Size)
				var pix []byte
				for _, r := range resized {
					pix = append(pix, r.Pix...)
				}
				want := decoded(t, fixtures.Path(t, "images", family, c.PixelValues.Resized)).Pix
				tolerance := 0
				if filepath.Ext(c.File) == ".jpg" {
					tolerance = 3 // two levels of the inverse transforms, which differ between decoders, and the overshoot of the filters
				}
				if d := largestDifference(pix, want); len(pix) != len(want) || d > tolerance {
					t.Errorf("%s: resized values differ by %d", c.File, d)
					continue
				}
				if c.PixelValues.File != "" && !equalFloats(t, got.Data, readFile(t, fixtures.Path(t, "images", family, c.PixelValues.File))) {
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
				var shape []int
				for i, into := range []any{&width, &height, &shape, &tokens} {
					if err := json.Unmarshal(c[i], into); err != nil {
						t.Fatalf("%s: %v", c, err)
					}
				}
				s, err := p.Size(width, height)
				if got := s.shape(len(shape) == 4); err != nil || !slices.Equal(got, shape) || s.Tokens != tokens {
					t.Errorf("%d x %d: shape %v and %d tokens, error %v; want %v and %d", width, height, got, s.Tokens, err, shape, tokens)
					continue
				}
				if s.Tokens > p.Most() {
					t.Errorf("%d x %d: %d tokens, more than the most, %d", width, height, s.Tokens, p.Most())
				}
				passed++
			}
			fixtures.Row(t, "sizes of pictures", "images/"+family, passed, len(g.Sizes))
		})
	}
}
