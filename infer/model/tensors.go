package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
)

// wanted is a tensor that a model wants of its file.
type wanted struct {
	tensor
	layer      int // of a layer's tensor
	rows, cols int
}

// wanted lists the tensors that c's architecture declares.
func (c *Config) wanted() (list []wanted) {
	add := func(t tensor, layer int) {
		if rows, cols := t.shape.dims(c, &c.Layers[layer]); rows > 0 && cols > 0 {
			list = append(list, wanted{t, layer, rows, cols})
		}
	}
	declared := architectures[c.Architecture].tensors
	for _, t := range declared {
		if t.part != everyLayer {
			add(t, 0)
		}
	}
	for layer := range c.Layers {
		for _, t := range declared {
			if t.part == everyLayer {
				t.name = fmt.Sprintf("blk.%d.%s", layer, t.name)
				add(t, layer)
			}
		}
	}
	return list
}

// found is a tensor of a file, and what a model wants it for.
type found struct {
	wanted
	gguf.Tensor
}

// find returns the tensors in f that the model uses. It fails if f lacks one or has one of
// another shape, or one that the architecture has no place for: that means a computation
// that would silently be left out.
func (c *Config) find(f *gguf.File) ([]found, error) {
	var list []found
	used := map[string]bool{}
	for _, w := range c.wanted() {
		t, err := f.Tensor(w.name)
		if errors.Is(err, gguf.ErrMissing) && w.instead != "" {
			t, err = f.Tensor(w.instead)
		}
		switch {
		case errors.Is(err, gguf.ErrMissing) && w.optional:
			continue
		case errors.Is(err, gguf.ErrMissing):
			return nil, fmt.Errorf("the file is incomplete: %w", err)
		case err != nil:
			return nil, err
		}
		if err := c.check(w, t); err != nil {
			return nil, err
		}
		used[t.Name] = true
		list = append(list, found{w, t})
	}
	for _, t := range f.Tensors() {
		if !used[t.Name] && !ignored(t.Name) {
			return nil, fmt.Errorf("tensor %s has no place in the architecture %q; answers without it would be wrong", t.Name, c.Architecture)
		}
	}
	return list, nil
}

// check returns an error if t has not the shape that w declares.
func (c *Config) check(w wanted, t gguf.Tensor) error {
	var shape []int // as in the file: inputs first
	for _, size := range slices.Backward(w.shape) {
		shape = append(shape, size(c, &c.Layers[w.layer]))
	}
	if !slices.Equal(significant(t.Shape), significant(shape)) {
		return fmt.Errorf("tensor %s has shape %v, but the metadata implies %v", t.Name, t.Shape, shape)
	}
	if len(w.shape) == 1 && t.Type != gguf.F32 {
		return fmt.Errorf("tensor %s has type %s, but norms, biases and factors must be F32", t.Name, t.Type)
	}
	return nil
}

// significant returns shape without the ones at its end, which some files have and others
// leave out.
func significant(shape []int) []int {
	for len(shape) > 0 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	return shape
}

// ignored reports whether a tensor is one that some files carry and no supported model
// reads: a table that can be computed.
func ignored(name string) bool {
	return strings.Contains(name, ".attn_rot_embd") || strings.Contains(name, ".attn.rotary_emb.inv_freq")
}
