package model

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// weights are the tensors of a model on its device, under their GGUF names. Shapes
// are (outputs, inputs).
type weights struct {
	TokenEmbd  device.Tensor // (vocab, dim)
	OutputNorm device.Tensor // (1, dim)
	Output     device.Tensor // (vocab, dim); TokenEmbd where the file ties them
	RoPEFreqs  device.Tensor // (1, rope dims/2), or none
	Layers     []layer
}

type layer struct {
	AttnNorm   device.Tensor // (1, dim)
	AttnQ      device.Tensor // (heads·head dim, dim)
	AttnK      device.Tensor // (kv heads·head dim, dim)
	AttnV      device.Tensor // (kv heads·head dim, dim)
	AttnOutput device.Tensor // (dim, heads·head dim)

	AttnQBias, AttnKBias, AttnVBias, AttnOutputBias device.Tensor // (1, outputs) or none

	FFNNorm device.Tensor // (1, dim)
	FFNGate device.Tensor // (hidden dim, dim)
	FFNUp   device.Tensor // (hidden dim, dim)
	FFNDown device.Tensor // (dim, hidden dim)

	FFNGateBias, FFNUpBias, FFNDownBias device.Tensor // (1, outputs) or none
}

// ignored reports whether a tensor is one that some files carry and no supported model
// reads: a table that can be computed.
func ignored(name string) bool {
	return strings.Contains(name, ".attn_rot_embd") || strings.Contains(name, ".attn.rotary_emb.inv_freq")
}

// loader uploads the tensors of a file one after another. Every tensor must have
// the shape that the Config implies, and every tensor of the file must be used: an
// unknown one means a computation that this model would silently leave out.
type loader struct {
	ctx      context.Context
	f        *gguf.File
	config   Config
	progress func(Progress)

	used        map[string]bool
	done, total int64
}

// load uploads what a stage holds.
func (l *loader) load(s *stage) (err error) {
	c, w := l.config, &s.weights
	kvWidth := c.KVHeads * c.HeadDim

	// The first failure ends the list below.
	get := func(dst *device.Tensor, name string, rows, cols int) {
		if err == nil {
			*dst, err = l.tensor(s.dev, name, rows, cols)
		}
	}
	optional := func(dst *device.Tensor, name string, cols int) {
		if _, missing := l.f.Tensor(name); missing == nil {
			get(dst, name, 1, cols)
		}
	}

	if s.embeds {
		get(&w.TokenEmbd, "token_embd.weight", c.Vocab, c.Dim)
	}
	optional(&w.RoPEFreqs, "rope_freqs.weight", c.RoPE.Dims/2)
	w.Layers = make([]layer, s.last-s.first)
	for i := range w.Layers {
		b, name := &w.Layers[i], func(part string) string { return fmt.Sprintf("blk.%d.%s", s.first+i, part) }
		get(&b.AttnNorm, name("attn_norm.weight"), 1, c.Dim)
		get(&b.AttnQ, name("attn_q.weight"), c.Heads*c.HeadDim, c.Dim)
		get(&b.AttnK, name("attn_k.weight"), kvWidth, c.Dim)
		get(&b.AttnV, name("attn_v.weight"), kvWidth, c.Dim)
		get(&b.AttnOutput, name("attn_output.weight"), c.Dim, c.Heads*c.HeadDim)
		optional(&b.AttnQBias, name("attn_q.bias"), c.Heads*c.HeadDim)
		optional(&b.AttnKBias, name("attn_k.bias"), kvWidth)
		optional(&b.AttnVBias, name("attn_v.bias"), kvWidth)
		optional(&b.AttnOutputBias, name("attn_output.bias"), c.Dim)
		get(&b.FFNNorm, name("ffn_norm.weight"), 1, c.Dim)
		get(&b.FFNGate, name("ffn_gate.weight"), c.HiddenDim, c.Dim)
		get(&b.FFNUp, name("ffn_up.weight"), c.HiddenDim, c.Dim)
		get(&b.FFNDown, name("ffn_down.weight"), c.Dim, c.HiddenDim)
		optional(&b.FFNGateBias, name("ffn_gate.bias"), c.HiddenDim)
		optional(&b.FFNUpBias, name("ffn_up.bias"), c.HiddenDim)
		optional(&b.FFNDownBias, name("ffn_down.bias"), c.Dim)
	}
	if !s.outputs {
		return err
	}
	get(&w.OutputNorm, "output_norm.weight", 1, c.Dim)
	switch _, missing := l.f.Tensor("output.weight"); {
	case missing == nil:
		get(&w.Output, "output.weight", c.Vocab, c.Dim)
	case s.embeds:
		w.Output = w.TokenEmbd
	default:
		get(&w.Output, "token_embd.weight", c.Vocab, c.Dim)
	}
	return err
}

func (l *loader) tensor(dev device.Device, name string, rows, cols int) (device.Tensor, error) {
	if err := l.ctx.Err(); err != nil {
		return device.Tensor{}, err
	}
	t, err := l.f.Tensor(name)
	if err != nil {
		if errors.Is(err, gguf.ErrMissing) {
			err = fmt.Errorf("the file is incomplete: %w", err)
		}
		return device.Tensor{}, err
	}
	vector := rows == 1 && len(t.Shape) == 1 && t.Shape[0] == cols
	matrix := len(t.Shape) == 2 && t.Shape[0] == cols && t.Shape[1] == rows
	if !vector && !matrix {
		return device.Tensor{}, fmt.Errorf("tensor %s has shape %v, but the metadata implies [%d %d]", name, t.Shape, cols, rows)
	}
	if rows == 1 && t.Type != gguf.F32 {
		return device.Tensor{}, fmt.Errorf("tensor %s has type %s, but norms, biases and factors must be F32", name, t.Type)
	}
	if err := l.fetch(t); err != nil {
		return device.Tensor{}, err
	}
	w, err := dev.Upload(t.Type, rows, cols, t.Data)
	if err != nil {
		return device.Tensor{}, fmt.Errorf("tensor %s: %w", name, err)
	}
	l.f.Release(t) // most devices have a copy now
	return w, nil
}

// fetch reads t from the disk and reports the progress of that.
func (l *loader) fetch(t gguf.Tensor) error {
	if l.used[t.Name] { // two stages may hold the same table
		return nil
	}
	l.used[t.Name] = true
	before := l.done
	return l.f.Fetch(t, func(bytes int64) error {
		l.done = before + bytes
		l.progress(Progress{Done: l.done, Total: l.total})
		return l.ctx.Err()
	})
}

func (l *loader) allUsed() error {
	for _, t := range l.f.Tensors() {
		if l.used[t.Name] || ignored(t.Name) {
			continue
		}
		return fmt.Errorf("tensor %s has no place in the architecture %q; answers without it would be wrong", t.Name, l.config.Architecture)
	}
	return nil
}
