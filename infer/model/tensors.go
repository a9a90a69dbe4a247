package model

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
)

// wanted is a declared tensor, resolved for a layer of a model.
type wanted struct {
	tensor
	layer      int // 0 if it does not belong to a layer
	rows, cols int
}

// place is a slot of a layer.
type place struct {
	slot  slot
	layer int
}

// wanted lists the tensors that c's architecture declares, for all layers.
func (c *Config) wanted() (list []wanted) {
	add := func(t tensor, layer int) {
		if rows, cols := t.shape.dims(c, &c.Layers[layer]); rows > 0 && cols > 0 {
			list = append(list, wanted{t, layer, rows, cols})
		}
	}
	declared := architectures[c.Architecture].tensors
	if c.isHead {
		declared = headDeclared(declared)
	}
	for _, t := range declared {
		if t.part != everyLayer {
			if strings.HasPrefix(t.name, "nextn.") {
				t.name = fmt.Sprintf("blk.%d.%s", c.firstBlock, t.name)
			}
			add(t, 0)
		}
	}
	for layer := range c.Layers {
		for _, t := range declared {
			if t.part == everyLayer {
				t.name = fmt.Sprintf("blk.%d.%s", c.firstBlock+layer, t.name)
				add(t, layer)
			}
		}
	}
	return list
}

// found is a wanted tensor with its data: a tensor of the file, or some of its outputs.
type found struct {
	wanted
	gguf.Tensor
	first int                    // first output in the file's tensor
	data  func() ([]byte, error) // if set, computes the data
}

// source identifies the data of a tensor: two slots may use the same data.
type source struct {
	name    string
	first   int
	derived slot // slot of a weight that is computed, 0 if it is stored
}

func (f found) source() source {
	if f.data != nil {
		return source{f.Name, f.first, f.slot}
	}
	return source{f.Name, f.first, 0}
}

// find returns the tensors in f that the model uses. It fails if f lacks one, has one of another
// shape, or has one that the architecture does not use: the model would then compute something
// else.
func (c *Config) find(f *gguf.File) ([]found, error) {
	var list []found
	used, filled, missing := map[string]bool{}, map[place]bool{}, map[place]error{}
	wanted := c.wanted()
	for _, w := range wanted {
		at := place{w.slot, w.layer}
		if filled[at] {
			continue
		}
		t, err := f.Tensor(w.name)
		switch {
		case errors.Is(err, gguf.ErrMissing) && w.fill != 0:
			filled[at] = true
			list = append(list, filledTensor(w))
			continue
		case errors.Is(err, gguf.ErrMissing):
			if !w.optional {
				missing[at] = cmp.Or(missing[at], err)
			}
			continue
		case err != nil:
			return nil, err
		}
		if err := c.check(w, t); err != nil {
			return nil, err
		}
		used[t.Name], filled[at] = true, true
		found := found{w, t, c.sum(w.before, w.layer), nil}
		if w.derived != nil {
			found.derive(c, t)
		}
		if len(w.before)+len(w.after) > 0 {
			t.Shape = significant(t.Shape)
			found.Tensor = t.Slice(found.first, w.shape[0](c, &c.Layers[w.layer]))
		}
		if w.float && found.data == nil && found.Type != gguf.F32 {
			found.convert()
		}
		list = append(list, found)
	}
	for _, w := range wanted {
		if err := missing[place{w.slot, w.layer}]; err != nil && !filled[place{w.slot, w.layer}] {
			return nil, fmt.Errorf("the file is incomplete: %w", err)
		}
	}
	for _, t := range f.Tensors() {
		if used[t.Name] && !t.Type.Known() {
			return nil, fmt.Errorf("tensor %s has weights of the unknown type %s", t.Name, t.Type)
		}
		if !used[t.Name] && !c.ignored(t.Name) {
			return nil, fmt.Errorf("tensor %s is not supported in architecture %q; answers without it would be wrong", t.Name, c.Architecture)
		}
	}
	if len(c.Suppressed) > 0 && !c.Embeds() {
		list = append(list, c.suppression())
	}
	return list, nil
}

// suppression returns what is added to the logits: -Inf for suppressed tokens, 0 for the others.
func (c *Config) suppression() found {
	w := wanted{tensor: tensor{slot: suppression, name: "suppressed tokens", part: lastStage}, rows: 1, cols: c.Vocab}
	return computed(w, func() []float32 {
		bias := make([]float32, c.Vocab)
		for _, id := range c.Suppressed {
			bias[id] = float32(math.Inf(-1))
		}
		return bias
	})
}

// filledTensor returns a tensor with w.fill in all elements, for a file that lacks it.
func filledTensor(w wanted) found {
	return computed(w, func() []float32 { return slices.Repeat([]float32{w.fill}, w.rows*w.cols) })
}

// computed returns a tensor with values that the file lacks.
func computed(w wanted, values func() []float32) found {
	return found{wanted: w, Tensor: gguf.Tensor{Name: w.name, Type: gguf.F32}, data: func() ([]byte, error) { return bytesOf(values()), nil }}
}

// bytesOf returns values as a file stores them in F32.
func bytesOf(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// derive lets f's data be computed from tensor t of the file.
func (f *found) derive(c *Config, t gguf.Tensor) {
	f.Type = gguf.F16
	if t.Type == gguf.F32 || len(f.shape) == 1 {
		f.Type = gguf.F32
	}
	typ, layer, build := f.Type, &c.Layers[f.layer], f.derived.compute
	f.data = func() ([]byte, error) {
		values := make([]float32, t.Elements())
		if err := gguf.Dequantize(t.Type, t.Data, values); err != nil {
			return nil, err
		}
		values = build(c, layer, values)
		if typ == gguf.F32 {
			return bytesOf(values), nil
		}
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint16(data, gguf.F32ToF16(v))
		}
		return data, nil
	}
}

// convert lets f's data be converted to F32.
func (f *found) convert() {
	t := f.Tensor
	f.Type = gguf.F32
	f.data = func() ([]byte, error) {
		values := make([]float32, t.Elements())
		if err := gguf.Dequantize(t.Type, t.Data, values); err != nil {
			return nil, err
		}
		return bytesOf(values), nil
	}
}

// sum returns the sum of sizes for a layer.
func (c *Config) sum(sizes []size, layer int) (sum int) {
	for _, size := range sizes {
		sum += size(c, &c.Layers[layer])
	}
	return sum
}

// check returns an error if t does not have the shape that w declares, or a norm or bias is not
// F32.
func (c *Config) check(w wanted, t gguf.Tensor) error {
	var shape []int // as in the file: inputs first
	of := w.shape
	if w.derived != nil {
		of = w.derived.shape
	}
	for _, size := range slices.Backward(of) {
		shape = append(shape, size(c, &c.Layers[w.layer]))
	}
	shape[len(shape)-1] += c.sum(w.before, w.layer) + c.sum(w.after, w.layer)
	if !slices.Equal(significant(t.Shape), significant(shape)) {
		return fmt.Errorf("tensor %s has shape %v, but the metadata implies %v", t.Name, t.Shape, shape)
	}
	isNorm := w.slot == attnQNorm || w.slot == attnKNorm || w.slot == scanNorm // norms that may have a row for each head
	if (len(w.shape) == 1 || isNorm) && t.Type != gguf.F32 && w.derived == nil {
		return fmt.Errorf("tensor %s has type %s, but norms, biases and factors must be F32", t.Name, t.Type)
	}
	return nil
}

// significant returns shape without ones, because only some files have them.
func significant(shape []int) []int {
	return slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
}

// ignored reports whether a tensor can be left out without changing answers: a table of RoPE that
// is computed instead, a part of a multi-token prediction block, keys and values of a layer that
// reads those of another, the output layer of a model that computes embeddings, or a part of an encoder of
// images or audio, which text does not use.
func (c *Config) ignored(name string) bool {
	if c.isHead || isOtherInput(name) { // the model has all others
		return true
	}
	for i, l := range c.Layers {
		if l.KVLayersBack > 0 && (strings.HasPrefix(name, fmt.Sprintf("blk.%d.attn_k", i)) || strings.HasPrefix(name, fmt.Sprintf("blk.%d.attn_v.", i))) {
			return true
		}
	}
	for i := range c.MTPBlocks {
		if strings.HasPrefix(name, fmt.Sprintf("blk.%d.", len(c.Layers)+i)) {
			return true
		}
	}
	if c.Embeds() && (name == "output.weight" || name == "output.bias") {
		return true
	}
	return strings.Contains(name, ".attn_rot_embd") || strings.Contains(name, ".attn.rotary_emb.inv_freq")
}

// isOtherInput reports whether a tensor belongs to an encoder of images or audio, or leads from it to the
// model of the text. Most files have these apart.
func isOtherInput(name string) bool {
	for _, prefix := range []string{"v.", "a.", "mm."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// IsTextOnly reports whether f also has encoders of images or audio, which are not used.
func IsTextOnly(f *gguf.File) bool {
	return slices.ContainsFunc(f.Tensors(), func(t gguf.Tensor) bool { return isOtherInput(t.Name) })
}
