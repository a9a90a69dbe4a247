package model_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// superseded are keys that have no effect on logits if the file has another key too.
var superseded = map[string]string{
	"attention.key_length":   "attention.key_length_mla",
	"attention.value_length": "attention.value_length_mla",
	"expert_shared_count":    "expert_shared_feed_forward_length",
	"feed_forward_length":    "expert_feed_forward_length",
}

// isHarmless reports whether the value of a key has no effect in the model in f.
func isHarmless(f *gguf.File, architecture, key string) bool {
	if key == "rope.scaling.factor" { // of Hunyuan, whose files have the scaled base instead
		kind, _ := f.Str(architecture + ".rope.scaling.type")
		return kind == "none"
	}
	if finetuned, err := f.Bool(architecture + ".rope.scaling.finetuned"); err == nil && !finetuned && (key == "rope.freq_base" || key == "rope.scaling.finetuned" && architecture != "granitehybrid") {
		return true // Granite 4 and Nemotron-H have no positions
	}
	if all, err := f.Uint(architecture + ".expert_count"); err == nil && all == 0 && strings.HasPrefix(key, "expert_") && key != "expert_count" {
		return true // of a dense model
	}
	if key == "attention.layer_norm_epsilon" && f.Has(architecture+".attention.layer_norm_rms_epsilon") {
		return true // Nemotron-H has RMSNorm
	}
	if key == "rope.dimension_sections" || key == "n_deepstack_layers" { // of pictures
		return true
	}
	return key == "vocab_size" || superseded[key] != "" && f.Has(architecture+"."+superseded[key])
}

// A key that was overlooked in a family would give wrong answers silently: every key of every file
// changes the configuration when its value changes, or the file is refused.
func TestEveryKeyOfAFamilyMatters(t *testing.T) {
	for _, name := range families {
		file := readFile(t, familyPath(t, name, "f16.gguf"))
		f, err := gguf.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := model.ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range f.Keys() {
			short, own := strings.CutPrefix(key, want.Architecture+".")
			if !own || isHarmless(f, want.Architecture, short) {
				continue
			}
			if !anyMatters(t, file, key, want) {
				t.Errorf("%s: %s can have other values without an effect", name, key)
			}
		}
	}
}

// anyMatters reports whether one of several other values of key is refused or gives a configuration
// other than want.
func anyMatters(t *testing.T, file []byte, key string, want model.Config) bool {
	t.Helper()
	for _, edited := range otherValues(file, key) {
		f, err := gguf.Parse(edited)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := model.ReadConfig(f); err != nil || !reflect.DeepEqual(c, want) {
			return true
		}
	}
	return false
}

// otherValues returns the file with other values of key; of an array, of its first element.
func otherValues(file []byte, key string) (edited [][]byte) {
	le, at := binary.LittleEndian, valueOf(file, key)
	kind := le.Uint32(file[at-4:])
	const array, str = 9, 8
	if kind == array {
		kind, at = le.Uint32(file[at:]), at+12
	}
	edit := func(put func(value []byte)) {
		changed := bytes.Clone(file)
		put(changed[at:])
		edited = append(edited, changed)
	}
	switch kind {
	case 0, 1, 7: // one byte
		edit(func(v []byte) { v[0] ^= 1 })
	case 4, 5:
		edit(func(v []byte) { le.PutUint32(v, le.Uint32(v)+1) })
		edit(func(v []byte) { le.PutUint32(v, le.Uint32(v)*2) })
		edit(func(v []byte) { le.PutUint32(v, max(le.Uint32(v), 1)-1) })
	case 6:
		for _, change := range [][2]float32{{1.5, 0.25}, {0.001, 0.25}, {10, 0.25}, {0.001, 0}} { // bounds of YaRN are rounded to whole pairs
			edit(func(v []byte) {
				le.PutUint32(v, math.Float32bits(math.Float32frombits(le.Uint32(v))*change[0]+change[1]))
			})
		}
	case str:
		edit(func(v []byte) { v[8] ^= 1 })
	default:
		panic(fmt.Sprintf("%s has type %d", key, kind))
	}
	return edited
}

// Every family refuses by name what would change its answers and what its declaration lacks.
func TestEveryFamilyRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, name := range families {
		dir := familyPath(t, name)
		file := readFile(t, filepath.Join(dir, "f16.gguf"))
		f, err := gguf.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		architecture, _ := f.Str("general.architecture")
		layer, state := layerTensor(f), "ssm.state_size"
		if f.Has(architecture + "." + state) {
			state = "shortconv.l_cache"
		}
		for _, c := range []struct {
			what string
			edit func(file []byte) []byte
			want string
		}{
			{"a key that changes scores", addUint(architecture+".attention.clamp_kqv", 3), architecture + ".attention.clamp_kqv is 3, which the architecture"},
			{"positions by ALiBi", addUint(architecture+".attention.max_alibi_bias", 8), architecture + ".attention.max_alibi_bias is 8, which the architecture"},
			{"recurrent state of another kind", addUint(architecture+"."+state, 16), architecture + "." + state + " is 16, which the architecture"},
			{"an unknown tensor", rename(layer, strings.ToUpper(layer[:3])+layer[3:]), layer},
			{"a tensor missing", rename("token_embd.weight", "token_embd.height"), "token_embd.weight"},
			{"a weight type without products", func(file []byte) []byte {
				at := bytes.Index(file, append(binary.LittleEndian.AppendUint64(nil, uint64(len(layer))), layer...)) + 8 + len(layer)
				dims := int(binary.LittleEndian.Uint32(file[at:]))
				binary.LittleEndian.PutUint32(file[at+4+8*dims:], uint32(gguf.I16))
				return file
			}, layer},
		} {
			f, err := gguf.Parse(c.edit(bytes.Clone(file)))
			if err == nil {
				_, err = model.Load(t.Context(), f, ref.New(), model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 1, MaxRows: 2})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s with %s: got %v, want it to say %q", name, c.what, err, c.want)
			}
		}
	}
}

// layerTensor returns the name of a matrix of the first layer in float16.
func layerTensor(f *gguf.File) string {
	for _, t := range f.Tensors() {
		if strings.HasPrefix(t.Name, "blk.0.") && t.Type == gguf.F16 {
			return t.Name
		}
	}
	return ""
}
