package picture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// companion returns a file with the metadata of a published model's tower.
func companion(t testing.TB, keys map[string]any) *gguf.File {
	t.Helper()
	b := gguftest.New()
	for k, v := range keys {
		b.Set(k, v)
	}
	file, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// published are the keys of published companions that decide about sizes.
var published = map[string]map[string]any{
	"Gemma 3":      {"clip.projector_type": "gemma3", "clip.vision.image_size": uint32(896), "clip.vision.patch_size": uint32(14)},
	"Gemma 4":      {"clip.vision.projector_type": "gemma4v", "clip.vision.image_size": uint32(224), "clip.vision.patch_size": uint32(16)},
	"SmolVLM":      {"clip.projector_type": "idefics3", "clip.vision.image_size": uint32(512), "clip.vision.patch_size": uint32(16), "clip.vision.projector.scale_factor": uint32(4), "clip.vision.preproc_image_size": uint32(2048)},
	"InternVL 3":   {"clip.projector_type": "internvl", "clip.vision.image_size": uint32(448), "clip.vision.patch_size": uint32(14), "clip.vision.projector.scale_factor": uint32(2), "clip.vision.preproc_min_tiles": uint32(1), "clip.vision.preproc_max_tiles": uint32(12)},
	"LFM2-VL":      {"clip.projector_type": "lfm2", "clip.vision.image_size": uint32(256), "clip.vision.patch_size": uint32(16), "clip.vision.projector.scale_factor": uint32(2)},
	"LLaVA 1.5":    {"clip.has_llava_projector": true, "clip.vision.image_size": uint32(336), "clip.vision.patch_size": uint32(14)},
	"Mistral 3.1":  {"clip.projector_type": "pixtral", "clip.vision.image_size": uint32(1540), "clip.vision.patch_size": uint32(14), "clip.vision.spatial_merge_size": uint32(2)},
	"Pixtral 12B":  {"clip.projector_type": "pixtral", "clip.vision.image_size": uint32(1024), "clip.vision.patch_size": uint32(16)},
	"Qwen2-VL":     {"clip.projector_type": "qwen2vl_merger", "clip.vision.image_size": uint32(560), "clip.vision.patch_size": uint32(14)},
	"Qwen2.5-VL":   {"clip.projector_type": "qwen2.5vl_merger", "clip.vision.image_size": uint32(560), "clip.vision.patch_size": uint32(14)},
	"Qwen3-VL":     {"clip.projector_type": "qwen3vl_merger", "clip.vision.image_size": uint32(768), "clip.vision.patch_size": uint32(16), "clip.vision.spatial_merge_size": uint32(2)},
	"other values": {"clip.projector_type": "gemma3", "clip.vision.image_size": uint32(896), "clip.vision.patch_size": uint32(14), "clip.vision.image_mean": []float32{0.4, 0.5, 0.5}},
}

func preprocessorOf(t testing.TB, name string, options Options) *Preprocessor {
	t.Helper()
	keys := map[string]any{"clip.vision.image_mean": []float32{0.5, 0.5, 0.5}, "clip.vision.image_std": []float32{0.5, 0.5, 0.5}}
	for k, v := range published[name] {
		keys[k] = v
	}
	p, err := NewPreprocessor(companion(t, keys), options)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

func TestPublishedModelsGetTheirPublishedSizes(t *testing.T) {
	for _, c := range []struct {
		model         string
		options       Options
		width, height int
		want          Size
	}{
		{"Gemma 3", Options{}, 1024, 768, Size{Tiles: 1, Width: 896, Height: 896, Rows: 16, Columns: 16, Tokens: 256}},
		{"Gemma 4", Options{}, 1024, 768, Size{Tiles: 1, Width: 912, Height: 672, Rows: 14, Columns: 19, Tokens: 266}},
		{"Gemma 4", Options{MaxTokens: 70}, 1024, 768, Size{Tiles: 1, Width: 432, Height: 336, Rows: 7, Columns: 9, Tokens: 63}},
		{"SmolVLM", Options{}, 1024, 768, Size{Tiles: 13, TileRows: 3, TileColumns: 4, Width: 512, Height: 512, Rows: 8, Columns: 8, Tokens: 832}},
		{"InternVL 3", Options{}, 1024, 768, Size{Tiles: 13, TileRows: 3, TileColumns: 4, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 3328}},
		{"InternVL 3", Options{}, 800, 800, Size{Tiles: 5, TileRows: 2, TileColumns: 2, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 1280}},
		{"InternVL 3", Options{}, 300, 300, Size{Tiles: 1, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 256}},
		{"InternVL 3", Options{Within: 1024}, 1024, 500, Size{Tiles: 3, TileRows: 1, TileColumns: 2, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 768}},
		{"InternVL 3", Options{Within: 256}, 1024, 768, Size{Tiles: 1, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 256}},
		{"InternVL 3", Options{Within: 1}, 1024, 768, Size{Tiles: 1, Width: 448, Height: 448, Rows: 16, Columns: 16, Tokens: 256}},
		{"LFM2-VL", Options{}, 640, 480, Size{Tiles: 1, Width: 576, Height: 416, Rows: 13, Columns: 18, Tokens: 234}},
		{"LFM2-VL", Options{}, 1024, 768, Size{Tiles: 7, TileRows: 2, TileColumns: 3, Width: 512, Height: 512, Rows: 16, Columns: 16, Overview: Tile{576, 416, 13, 18}, Tokens: 1770}},
		{"LFM2-VL", Options{}, 1024, 1024, Size{Tiles: 5, TileRows: 2, TileColumns: 2, Width: 512, Height: 512, Rows: 16, Columns: 16, Tokens: 1280}},
		{"LFM2-VL", Options{}, 10, 10, Size{Tiles: 1, Width: 256, Height: 256, Rows: 8, Columns: 8, Tokens: 64}},
		{"LFM2-VL", Options{MaxTokens: 64, MinTokens: 16}, 1024, 768, Size{Tiles: 7, TileRows: 2, TileColumns: 3, Width: 256, Height: 256, Rows: 8, Columns: 8, Overview: Tile{288, 192, 6, 9}, Tokens: 438}},
		{"LFM2-VL", Options{Within: 1024}, 1600, 800, Size{Tiles: 3, TileRows: 1, TileColumns: 2, Width: 512, Height: 512, Rows: 16, Columns: 16, Overview: Tile{704, 352, 11, 22}, Tokens: 754}},
		{"LFM2-VL", Options{Within: 256}, 1024, 768, Size{Tiles: 1, Width: 576, Height: 416, Rows: 13, Columns: 18, Tokens: 234}},
		{"LFM2-VL", Options{Within: 16}, 1024, 768, Size{Tiles: 1, Width: 128, Height: 96, Rows: 3, Columns: 4, Tokens: 12}},
		{"LLaVA 1.5", Options{}, 1024, 768, Size{Tiles: 1, Width: 336, Height: 336, Rows: 24, Columns: 24, Tokens: 576}},
		{"Mistral 3.1", Options{}, 1024, 768, Size{Tiles: 1, Width: 1036, Height: 784, Rows: 28, Columns: 37, Tokens: 1036}},
		{"Pixtral 12B", Options{}, 1024, 768, Size{Tiles: 1, Width: 1024, Height: 768, Rows: 48, Columns: 64, Tokens: 3072}},
		{"Qwen2-VL", Options{}, 10, 10, Size{Tiles: 1, Width: 56, Height: 56, Rows: 2, Columns: 2, Tokens: 4}},
		{"Qwen2.5-VL", Options{}, 1024, 768, Size{Tiles: 1, Width: 1036, Height: 756, Rows: 27, Columns: 37, Tokens: 999}},
		{"Qwen2.5-VL", Options{MaxTokens: 100}, 1024, 768, Size{Tiles: 1, Width: 308, Height: 224, Rows: 8, Columns: 11, Tokens: 88}},
		{"Qwen3-VL", Options{}, 10, 10, Size{Tiles: 1, Width: 256, Height: 256, Rows: 8, Columns: 8, Tokens: 64}},
		{"Qwen3-VL", Options{MaxTokens: 16}, 1024, 768, Size{Tiles: 1, Width: 128, Height: 96, Rows: 3, Columns: 4, Tokens: 12}},
		{"Qwen3-VL", Options{Within: 16}, 1024, 768, Size{Tiles: 1, Width: 128, Height: 96, Rows: 3, Columns: 4, Tokens: 12}},
		{"Qwen2.5-VL", Options{Within: 100}, 1024, 768, Size{Tiles: 1, Width: 308, Height: 224, Rows: 8, Columns: 11, Tokens: 88}},
		{"Qwen2.5-VL", Options{Within: 100, MaxTokens: 100}, 1024, 768, Size{Tiles: 1, Width: 308, Height: 224, Rows: 8, Columns: 11, Tokens: 88}},
		{"Qwen2.5-VL", Options{Within: 200, MinTokens: 150, MaxTokens: 100_000}, 10, 10, Size{Tiles: 1, Width: 364, Height: 364, Rows: 13, Columns: 13, Tokens: 169}},
		{"Gemma 4", Options{Within: 70}, 1024, 768, Size{Tiles: 1, Width: 432, Height: 336, Rows: 7, Columns: 9, Tokens: 63}},
		{"Gemma 3", Options{Within: 64}, 1024, 768, Size{Tiles: 1, Width: 896, Height: 896, Rows: 16, Columns: 16, Tokens: 256}},
		{"LLaVA 1.5", Options{Within: 64}, 1024, 768, Size{Tiles: 1, Width: 336, Height: 336, Rows: 24, Columns: 24, Tokens: 576}},
		{"Mistral 3.1", Options{Within: 256}, 1024, 768, Size{Tiles: 1, Width: 448, Height: 336, Rows: 12, Columns: 16, Tokens: 192}},
		{"Mistral 3.1", Options{Within: 256}, 140, 84, Size{Tiles: 1, Width: 140, Height: 84, Rows: 3, Columns: 5, Tokens: 15}},
		{"Mistral 3.1", Options{Within: 100_000}, 1024, 768, Size{Tiles: 1, Width: 1036, Height: 784, Rows: 28, Columns: 37, Tokens: 1036}},
		{"SmolVLM", Options{Within: 256}, 1024, 768, Size{Tiles: 1, Width: 512, Height: 512, Rows: 8, Columns: 8, Tokens: 64}},
		{"SmolVLM", Options{Within: 1}, 1024, 768, Size{Tiles: 1, Width: 512, Height: 512, Rows: 8, Columns: 8, Tokens: 64}},
		{"SmolVLM", Options{Within: 832}, 1024, 768, Size{Tiles: 10, TileRows: 3, TileColumns: 3, Width: 512, Height: 512, Rows: 8, Columns: 8, Tokens: 640}},
	} {
		t.Run(fmt.Sprintf("%s %+v %d x %d", c.model, c.options, c.width, c.height), func(t *testing.T) {
			got, err := preprocessorOf(t, c.model, c.options).Size(c.width, c.height)
			if err != nil || got != c.want {
				t.Errorf("got %+v, error %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestPicturesOfExtremeSidesArePreparedOrRefusedInWords(t *testing.T) {
	longest := fixtures.At(2000, DefaultLimits.Side, DefaultLimits.Side)
	for name := range published {
		t.Run(name, func(t *testing.T) {
			p := preprocessorOf(t, name, Options{})
			for _, side := range [][2]int{{1, 1}, {longest, 1}, {1, longest}, {longest, 7}, {90, longest}} {
				out, err := p.Prepare(newImage(side[0], side[1]))
				if err != nil {
					if !strings.Contains(err.Error(), "; ") {
						t.Errorf("%d x %d: the error does not say what to do: %v", side[0], side[1], err)
					}
					continue
				}
				// The overview may have another size than the other tiles.
				if n := out.Sum(Tile.Values); len(out.Data) != n || out.Tokens < 1 || n > 3*maxTowerPixels {
					t.Errorf("%d x %d: %+v with %d values", side[0], side[1], out.Size, len(out.Data))
				}
			}
			if s, err := p.Size(DefaultLimits.Side, DefaultLimits.Side); err != nil || s.Tokens < 1 {
				t.Errorf("the largest sides: %+v, error %v", s, err)
			}
			if _, err := p.Size(0, 5); err == nil {
				t.Error("a picture without width has a size")
			}
		})
	}
}

func TestHashesAreEqualForEqualPixelsAlone(t *testing.T) {
	img, other := letters("abc/def"), letters("abc/deg")
	var seen [][32]byte
	for _, c := range []struct {
		name string
		p    *Preprocessor
		img  *Image
	}{
		{"a picture", preprocessorOf(t, "Gemma 3", Options{}), img},
		{"one whose last pixel differs", preprocessorOf(t, "Gemma 3", Options{}), other},
		{"for another mean", preprocessorOf(t, "other values", Options{}), img},
		{"for another model", preprocessorOf(t, "LLaVA 1.5", Options{}), img},
	} {
		first, err := c.p.Prepare(c.img)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		second, err := c.p.Prepare(c.img)
		if err != nil || second.Hash != first.Hash {
			t.Errorf("%s: the second hash differs, error %v", c.name, err)
		}
		if slices.Contains(seen, first.Hash) {
			t.Errorf("%s: the hash is that of another picture", c.name)
		}
		seen = append(seen, first.Hash)
	}
}

func TestUnusableCompanionsAreRefusedByName(t *testing.T) {
	with := func(model string, changes map[string]any) map[string]any {
		keys := map[string]any{"clip.vision.image_mean": []float32{0.5, 0.5, 0.5}, "clip.vision.image_std": []float32{0.5, 0.5, 0.5}}
		for _, m := range []map[string]any{published[model], changes} {
			for k, v := range m {
				keys[k] = v
			}
		}
		return keys
	}
	for _, c := range []struct {
		name    string
		keys    map[string]any
		options Options
		want    string
	}{
		{"an unknown projector", with("Gemma 3", map[string]any{"clip.projector_type": "resampler"}), Options{}, `projector "resampler" is not supported; these are: gemma3, gemma4v, idefics3, internvl, lfm2, mlp, pixtral, qwen2.5vl_merger, qwen2vl_merger, qwen3vl_merger`},
		{"no projector", map[string]any{"a": "b"}, Options{}, "clip.projector_type"},
		{"a patch of nothing", with("Gemma 3", map[string]any{"clip.vision.patch_size": uint32(0)}), Options{}, "clip.vision.patch_size is 0, and must be from 1 to 16384"},
		{"a side that patches do not fill", with("Gemma 3", map[string]any{"clip.vision.patch_size": uint32(13)}), Options{}, "896 is no multiple of 52"},
		{"a side too large", with("Gemma 3", map[string]any{"clip.vision.image_size": uint32(1 << 31)}), Options{}, "clip.vision.image_size is 2147483648"},
		{"two means", with("Gemma 3", map[string]any{"clip.vision.image_mean": []float32{0.5, 0.5}}), Options{}, "clip.vision.image_mean has 2 values"},
		{"a std of 0", with("Gemma 3", map[string]any{"clip.vision.image_std": []float32{0.5, 0, 0.5}}), Options{}, "clip.vision.image_std"},
		{"a first size that is too large", with("SmolVLM", map[string]any{"clip.vision.preproc_image_size": uint32(8192)}), Options{}, "must be at most 4096"},
		{"more least than most tiles", with("InternVL 3", map[string]any{"clip.vision.preproc_min_tiles": uint32(13)}), Options{}, "preproc_min_tiles and preproc_max_tiles are 13 and 12"},
		{"too many tiles", with("InternVL 3", map[string]any{"clip.vision.preproc_max_tiles": uint32(65)}), Options{}, "at most 64"},
		{"tiles of LLaVA 1.6", with("LLaVA 1.5", map[string]any{"clip.vision.image_grid_pinpoints": []uint32{336, 672}}), Options{}, "LLaVA 1.6"},
		{"more least than most tokens", with("Qwen3-VL", nil), Options{MinTokens: 20, MaxTokens: 10}, "least and most tokens are 20 and 10"},
		{"negative tokens", with("Qwen3-VL", nil), Options{MaxTokens: -1}, "least and most tokens"},
		{"too many tokens", with("Gemma 4", nil), Options{MaxTokens: 1 << 40}, "from 1 to 131072"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := NewPreprocessor(companion(t, c.keys), c.options); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func BenchmarkPrepare(b *testing.B) {
	img := newImage(4000, 3000)
	for _, name := range []string{"Gemma 3", "Qwen2.5-VL"} {
		b.Run(name, func(b *testing.B) {
			p := preprocessorOf(b, name, Options{})
			for b.Loop() {
				if _, err := p.Prepare(img); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
