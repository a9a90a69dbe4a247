package model_test

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/ref"
)

// companionFamilies are the fixtures whose companions differ in their keys.
var companionFamilies = []string{"gemma3", "qwen25vl", "qwen3vl", "smolvlm", "mistral3", "llava", "gemma4", "gemma4e", "internvl", "lfm2", "qwen2vl"}

// openedCompanion is a companion file with the configuration of its language model.
type openedCompanion struct {
	file *gguf.File
	text model.Config
	keys []string // about the tower
}

func openCompanion(t testing.TB, name string) *openedCompanion {
	t.Helper()
	c := &openedCompanion{}
	for _, one := range []string{"mmproj.gguf", "text.gguf"} {
		data, err := os.ReadFile(fixtures.Images(t, name, one))
		if err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if one == "mmproj.gguf" {
			c.file = f
			continue
		}
		if c.text, err = model.ReadConfig(f); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range c.file.Keys() {
		if strings.HasPrefix(key, "clip.") {
			c.keys = append(c.keys, key)
		}
	}
	return c
}

// with returns the file with another value of a key; without the key if value is nil.
func (c *openedCompanion) with(t testing.TB, key string, value any) *gguf.File {
	t.Helper()
	b := gguftest.New()
	for _, other := range c.file.Keys() {
		if other != key {
			b.Set(other, valueInFile(t, c.file, other))
		}
	}
	if value != nil {
		b.Set(key, value)
	}
	for _, one := range c.file.Tensors() {
		b.Tensor(one.Name, one.Type, one.Shape, one.Data)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// valueInFile returns the value of a key as gguftest takes it.
func valueInFile(t testing.TB, f *gguf.File, key string) any {
	t.Helper()
	values, _, array, err := f.First(key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if !array {
		return values[0]
	}
	switch {
	case len(values) == 0:
		return []uint32{}
	default:
		if texts, err := f.Strs(key); err == nil {
			return texts
		}
		if numbers, err := f.Uints(key); err == nil {
			return numbers
		}
		if numbers, err := f.Ints(key); err == nil {
			return numbers
		}
		if numbers, err := f.Floats(key); err == nil {
			return numbers
		}
		var flags []bool
		for _, v := range values {
			flag, ok := v.(bool)
			if !ok {
				t.Fatalf("%s has elements that are %T", key, v)
			}
			flags = append(flags, flag)
		}
		return flags
	}
}

// maxRead bounds what reading a companion file allocates, in bytes. The fixtures have less than a megabyte.
const maxRead = 64 << 20

// read reads a companion file as an engine does, and returns why it is refused.
func (c *openedCompanion) read(t *testing.T, f *gguf.File) error {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pre, err := picture.NewPreprocessor(f, picture.Options{})
	if err == nil {
		for _, s := range [][2]int{{1, 1}, {9, 7}, {150, 90}, {1024, 768}, {20000, 1}, {1, 20000}, {60000, 60000}} {
			size, err := pre.Size(s[0], s[1])
			if err == nil && (size.Tokens < 1 || size.Tiles < 1 || size.Width < 1 || size.Height < 1 || size.Tiles*size.Width*size.Height > 20_000_000) {
				t.Errorf("a picture of %v pixels becomes %+v", s, size)
			}
		}
		_, err = model.ReadTower(f, &c.text, pre.Most())
		if err == nil {
			_, err = model.TowerBytesIn(f, nil)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > maxRead {
		t.Errorf("reading it allocated %d bytes", used)
	}
	return err
}

// encode encodes a small picture in few tokens.
func (c *openedCompanion) encode(t *testing.T, f *gguf.File) {
	t.Helper()
	pre, err := picture.NewPreprocessor(f, picture.Options{MinTokens: 1, MaxTokens: 16})
	if err != nil {
		t.Fatalf("with limits of tokens it is refused: %v", err)
	}
	size, err := pre.Size(9, 7)
	if err != nil || size.Tiles*size.Width*size.Height > 1<<14 {
		return
	}
	dev := ref.New()
	defer dev.Close()
	tower, err := model.LoadTower(f, dev, size)
	if err != nil {
		return // which ReadTower did not see: the size is this picture's
	}
	pixels, err := pre.Prepare(&picture.Image{Width: 9, Height: 7, Pix: make([]byte, 3*9*7)})
	if err != nil {
		t.Fatalf("a picture whose size is %+v is refused: %v", size, err)
	}
	vectors, err := tower.Encode(t.Context(), pixels)
	if err != nil || len(vectors) != size.Tokens*(1+c.text.Deepstack)*c.text.Dim {
		t.Errorf("%d tokens have %d values, %v", size.Tokens, len(vectors), err)
	}
}

// hostile are values that no key has.
var hostile = map[string]any{
	"0": uint32(0), "the largest of 32 bits": uint32(math.MaxUint32), "the largest of 64 bits": uint64(math.MaxUint64), "a negative number": int32(-1),
	"no number": float32(math.NaN()), "infinity": float32(math.Inf(1)), "a text": "x", "an empty array": []uint32{}, "an array of texts": []string{"x"}, "a long array": make([]uint32, 1<<16), "none": nil,
}

// readKeys are those of which every hostile value is refused, by their names behind clip. and clip.vision.
var readKeys = []string{"attention.head_count", "attention.layer_norm_epsilon", "block_count", "embedding_length", "feed_forward_length", "image_mean", "image_size", "image_std", "patch_size", "preproc_image_size",
	"projector.scale_factor", "projector_type", "spatial_merge_size"}

// optionalKeys are those that have a published value where a file lacks them.
var optionalKeys = []string{"preproc_image_size", "projector.scale_factor", "projector_type", "spatial_merge_size"}

func TestCompanionsWithHostileValuesAreRefusedByTheNameOfTheKey(t *testing.T) {
	refused := map[string]bool{}
	for _, name := range companionFamilies {
		c := openCompanion(t, name)
		if err := c.read(t, c.file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, key := range c.keys {
			short := strings.TrimPrefix(strings.TrimPrefix(key, "clip."), "vision.")
			if !slices.Contains(readKeys, short) {
				continue // without an effect, or a flag that may be missing
			}
			for what, value := range hostile {
				err := c.read(t, c.with(t, key, value))
				if value == nil && slices.Contains(optionalKeys, short) {
					continue // another size, which may fit the tensors
				}
				if err == nil {
					t.Errorf("%s: %s is %s, and nothing is wrong", name, key, what)
				} else if !strings.Contains(err.Error(), short) && !strings.Contains(err.Error(), "projector") {
					t.Errorf("%s: %s is %s: the error does not name it: %v", name, key, what, err)
				}
				refused[short] = true
			}
		}
	}
	for _, key := range readKeys {
		if !refused[key] {
			t.Errorf("no file has the key %s", key)
		}
	}
}

// A number within its limits, to which tensors do not fit, is refused before memory is allocated by it.
func TestCompanionsWithLargeNumbersTakeLittleMemory(t *testing.T) {
	for _, name := range companionFamilies {
		c := openCompanion(t, name)
		for _, key := range c.keys {
			if _, err := c.file.Uint(key); err == nil {
				_ = c.read(t, c.with(t, key, uint32(16384))) // of some keys every number is taken
			}
		}
	}
}

// FuzzCompanion changes two keys of a companion file: it is refused, or encodes pictures within bounds.
func FuzzCompanion(f *testing.F) {
	var families []*openedCompanion
	for _, name := range companionFamilies {
		families = append(families, openCompanion(f, name))
	}
	for i := range families {
		for kind := range byte(9) {
			f.Add(byte(i), byte(3*i), kind, uint64(1)<<(7*kind), byte(5*kind), byte(i), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, family, first, kind byte, value uint64, second, otherKind byte, other uint64) {
		c := *families[int(family)%len(families)]
		c.file = c.with(t, c.keys[int(first)%len(c.keys)], drawn(kind, value))
		changed := c.with(t, c.keys[int(second)%len(c.keys)], drawn(otherKind, other))
		if c.read(t, changed) == nil {
			c.encode(t, changed)
		}
	})
}

// drawn returns a value of a type by its number.
func drawn(kind byte, v uint64) any {
	switch kind % 9 {
	case 0:
		return uint32(v)
	case 1:
		return v
	case 2:
		return int64(v)
	case 3:
		return math.Float32frombits(uint32(v))
	case 4:
		return v%2 == 0
	case 5:
		return []string{"gemma3", "gemma4v", "idefics3", "mlp", "pixtral", "qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "", "x"}[v%10]
	case 6:
		return []float32{math.Float32frombits(uint32(v)), math.Float32frombits(uint32(v >> 32)), 1}
	case 7:
		return slices.Repeat([]uint32{uint32(v)}, int(v>>32%512))
	}
	return nil
}
