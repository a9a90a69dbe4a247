package cuda

import (
	"strings"

	"m40-llm/cudakern"
	"m40-llm/infer/gguf"
)

// kernelTypes are the formats of weights that MatMul and Embed can read.
var kernelTypes = []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q4_0, gguf.Q4_K, gguf.Q6_K}

// kernels are the launchers that programs use, loaded once: those that every model needs
// at the start, the others when a program first does.
type kernels struct {
	context *cudakern.Context
	path    string

	norm   *cudakern.RMSNorm
	rope   *cudakern.RoPE
	add    *cudakern.AddRows
	swiGLU *cudakern.SwiGLU
	gather *cudakern.GatherRows
	reduce *cudakern.Candidates

	embeds     map[gguf.Type]*cudakern.Embed
	products   map[gguf.Type]*cudakern.MatMul
	images     map[string]*cudakern.Activation // by what products read
	stores     map[bool]*cudakern.StoreKV
	attentions map[attentionKey]*cudakern.Attention
}

// attentionKey is what the kernels of an attention depend on.
type attentionKey struct {
	half                bool // cache of float16
	heads, kvHeads, dim int
}

func loadKernels(c *cudakern.Context, path string) (k kernels, err error) {
	k = kernels{
		context:    c,
		path:       path,
		embeds:     map[gguf.Type]*cudakern.Embed{},
		products:   map[gguf.Type]*cudakern.MatMul{},
		images:     map[string]*cudakern.Activation{},
		stores:     map[bool]*cudakern.StoreKV{},
		attentions: map[attentionKey]*cudakern.Attention{},
	}
	if k.norm, err = cudakern.NewRMSNorm(c); err != nil {
		return k, err
	}
	if k.rope, err = cudakern.NewRoPE(c); err != nil {
		return k, err
	}
	if k.add, err = cudakern.NewAddRows(c); err != nil {
		return k, err
	}
	if k.swiGLU, err = cudakern.NewSwiGLU(c); err != nil {
		return k, err
	}
	if k.gather, err = cudakern.NewGatherRows(c); err != nil {
		return k, err
	}
	k.reduce, err = cudakern.NewCandidates(c)
	return k, err
}

func (k *kernels) embed(t gguf.Type) (*cudakern.Embed, error) {
	return once(k.embeds, t, func() (*cudakern.Embed, error) { return cudakern.NewEmbed(k.context, kernelName(t)) })
}

func (k *kernels) matMul(t gguf.Type) (*cudakern.MatMul, error) {
	return once(k.products, t, func() (*cudakern.MatMul, error) { return cudakern.NewMatMul(k.context, kernelName(t), k.path) })
}

func (k *kernels) activation(image string) (*cudakern.Activation, error) {
	return once(k.images, image, func() (*cudakern.Activation, error) { return cudakern.NewActivation(k.context, image) })
}

func (k *kernels) storeKV(half bool) (*cudakern.StoreKV, error) {
	return once(k.stores, half, func() (*cudakern.StoreKV, error) { return cudakern.NewStoreKV(k.context, half) })
}

func (k *kernels) attention(key attentionKey) (*cudakern.Attention, error) {
	return once(k.attentions, key, func() (*cudakern.Attention, error) {
		return cudakern.NewAttention(k.context, key.half, key.heads, key.kvHeads, key.dim)
	})
}

// once returns what loaded has for key, or loads it.
func once[K comparable, V any](loaded map[K]V, key K, load func() (V, error)) (V, error) {
	if v, ok := loaded[key]; ok {
		return v, nil
	}
	v, err := load()
	if err == nil {
		loaded[key] = v
	}
	return v, err
}

// kernelName is the name of a weight type in the names of modules and kernels.
func kernelName(t gguf.Type) string { return strings.ToLower(t.String()) }
