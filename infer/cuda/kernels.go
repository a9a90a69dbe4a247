package cuda

import (
	"fmt"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// kernels are the kernel launchers of programs. Each is loaded once, with its module, before the
// first program that needs it is captured.
type kernels struct {
	context *cudakern.Context
	loaded  map[string]bool // needs by name

	norm   *cudakern.Norm
	rope   *cudakern.RoPE
	add    *cudakern.AddRows
	glu    *cudakern.GLU
	scale  *cudakern.ScaleRows
	gather *cudakern.GatherRows
	copies *cudakern.CopyColumns
	reduce *cudakern.Candidates
	expert *cudakern.Experts

	streams   *cudakern.Streams
	recurrent *cudakern.Recurrent

	embeds     map[gguf.Type]*cudakern.Embed
	products   map[gguf.Type]*cudakern.MatMul
	prompts    map[gguf.Type]*cudakern.PromptMatMul
	quantize   map[string]*cudakern.Activation // by the kind that they write
	stores     map[cudakern.CacheType]*cudakern.StoreKV
	attentions map[attentionKey]*cudakern.Attention
	alibis     map[cudakern.CacheType]*cudakern.ALiBi
}

// attentionKey selects the attention kernels.
type attentionKey struct {
	cache          cudakern.CacheType
	heads, kvHeads int
	dim, latent    int  // of a key; of a value if the cache is latent, else 0
	capped         bool // scores have a soft cap
}

func newKernels(c *cudakern.Context) kernels {
	return kernels{
		context:    c,
		loaded:     map[string]bool{},
		embeds:     map[gguf.Type]*cudakern.Embed{},
		products:   map[gguf.Type]*cudakern.MatMul{},
		prompts:    map[gguf.Type]*cudakern.PromptMatMul{},
		quantize:   map[string]*cudakern.Activation{},
		stores:     map[cudakern.CacheType]*cudakern.StoreKV{},
		attentions: map[attentionKey]*cudakern.Attention{},
		alibis:     map[cudakern.CacheType]*cudakern.ALiBi{},
	}
}

// need is a module that an operation needs, with a unique name.
type need struct {
	name string
	load func() error
}

// load loads the modules that p needs and that are not loaded yet. It calls progress with the
// number of loaded modules and the number to load.
func (k *kernels) load(p *device.Program, progress func(done, total int)) error {
	var missing []need
	listed := map[string]bool{}
	for _, op := range p.Ops {
		for _, n := range k.needs(op, p.Of == device.PromptRows) {
			if !k.loaded[n.name] && !listed[n.name] {
				listed[n.name] = true
				missing = append(missing, n)
			}
		}
	}
	for i, n := range missing {
		progress(i, len(missing))
		if err := n.load(); err != nil {
			return err
		}
		k.loaded[n.name] = true
	}
	if len(missing) > 0 {
		progress(len(missing), len(missing))
	}
	return nil
}

// needs returns the modules that op needs, in a program of prompts or another. It does not validate op; lowering does.
func (k *kernels) needs(op device.Op, prompt bool) []need {
	switch op.Kind {
	case device.OpEmbed, device.OpEmbedPositions:
		return []need{{"embed " + kernelName(op.W.Type), func() error { return errorOf(k.embed(op.W.Type)) }}}
	case device.OpRMSNorm, device.OpLayerNorm:
		return []need{{"norm", func() (err error) { k.norm, err = cudakern.NewNorm(k.context); return err }}}
	case device.OpMatMul:
		list := k.product(op.W.Type)
		if prompt && cudakern.HasPromptMatMul(k.context, kernelName(op.W.Type)) {
			list = append(list, need{"prompts " + kernelName(op.W.Type), func() error { return errorOf(k.promptMatMul(op.W.Type)) }})
		}
		return list
	case device.OpAddBias, device.OpAdd, device.OpGLU, device.OpScale, device.OpScaleByPosition, device.OpGatherRows, device.OpGate, device.OpMultiply, device.OpCopy:
		return []need{{"rows", k.loadRows}}
	case device.OpMix, device.OpMatchRMS, device.OpSparsify:
		return []need{{"streams", func() (err error) { k.streams, err = cudakern.NewStreams(k.context); return err }}}
	case device.OpConv, device.OpScan:
		return []need{{"recurrent", func() (err error) { k.recurrent, err = cudakern.NewRecurrent(k.context); return err }}}
	case device.OpRoute, device.OpExpertBias, device.OpExpertSum:
		return []need{k.experts()}
	case device.OpExpertMatMul:
		return append(k.product(op.W.Type), k.experts(), need{"mixture " + kernelName(op.W.Type), func() error { return k.mixture(op.W.Type) }})
	case device.OpRoPE:
		return []need{{"rope", func() (err error) { k.rope, err = cudakern.NewRoPE(k.context); return err }}}
	case device.OpStoreKV:
		t := cacheType(op.KV.Layout)
		return []need{{fmt.Sprint("store ", t), func() error { return errorOf(k.storeKV(t)) }}}
	case device.OpAttention:
		l := op.KV.Layout
		if t := cacheType(l); op.Attention.MaxBias > 0 {
			return []need{{fmt.Sprint("ALiBi ", t), func() error { return errorOf(k.alibi(t)) }}}
		}
		key := attentionKey{cacheType(l), op.Attention.Heads, l.KVHeads, l.HeadDim, l.Latent, op.Attention.Cap > 0}
		return []need{{fmt.Sprint("attention ", key), func() error { return errorOf(k.attention(key)) }}}
	case device.OpCandidates:
		return []need{{"candidates", func() (err error) { k.reduce, err = cudakern.NewCandidates(k.context); return err }}}
	}
	return nil
}

// product returns the modules for matrix products with weights of type t.
func (k *kernels) product(t gguf.Type) []need {
	return []need{
		{"product " + kernelName(t), func() error { return errorOf(k.matMul(t)) }},
		{"activation", func() error { return k.quantizeFor(t) }},
	}
}

// mixture loads the kernels for mixtures of experts of few rows with weights of type t.
func (k *kernels) mixture(t gguf.Type) error {
	product, err := k.matMul(t)
	if err != nil {
		return err
	}
	return product.LoadMixtures(k.context)
}

// path returns the number path of what is loaded.
func (k *kernels) path() string {
	path := cudakern.ProductPath
	for _, product := range k.products {
		if product.RoundsToHalves() {
			path = cudakern.HalfPath
		}
	}
	for _, attention := range k.attentions {
		if attention.MatrixUnits() {
			path += cudakern.AttentionPath
			break
		}
	}
	if len(k.prompts) > 0 {
		path += cudakern.PromptPath
	}
	return path
}

func (k *kernels) experts() need {
	return need{"experts", func() (err error) { k.expert, err = cudakern.NewExperts(k.context); return err }}
}

// quantizeFor loads the kernels that quantise activations for products with weights of type t.
func (k *kernels) quantizeFor(t gguf.Type) error {
	product, err := k.matMul(t)
	if err != nil {
		return err
	}
	for _, kind := range product.Kinds() {
		if _, err := k.activation(kind); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernels) loadRows() (err error) {
	if k.add, err = cudakern.NewAddRows(k.context); err != nil {
		return err
	}
	if k.glu, err = cudakern.NewGLU(k.context); err != nil {
		return err
	}
	if k.scale, err = cudakern.NewScaleRows(k.context); err != nil {
		return err
	}
	if k.copies, err = cudakern.NewCopyColumns(k.context); err != nil {
		return err
	}
	k.gather, err = cudakern.NewGatherRows(k.context)
	return err
}

func errorOf[V any](_ V, err error) error { return err }

func (k *kernels) embed(t gguf.Type) (*cudakern.Embed, error) {
	return once(k.embeds, t, func() (*cudakern.Embed, error) { return cudakern.NewEmbed(k.context, kernelName(t)) })
}

func (k *kernels) matMul(t gguf.Type) (*cudakern.MatMul, error) {
	return once(k.products, t, func() (*cudakern.MatMul, error) { return cudakern.NewMatMul(k.context, kernelName(t)) })
}

func (k *kernels) promptMatMul(t gguf.Type) (*cudakern.PromptMatMul, error) {
	return once(k.prompts, t, func() (*cudakern.PromptMatMul, error) { return cudakern.NewPromptMatMul(k.context, kernelName(t)) })
}

func (k *kernels) activation(kind string) (*cudakern.Activation, error) {
	return once(k.quantize, kind, func() (*cudakern.Activation, error) { return cudakern.NewActivation(k.context, kind) })
}

func (k *kernels) storeKV(t cudakern.CacheType) (*cudakern.StoreKV, error) {
	return once(k.stores, t, func() (*cudakern.StoreKV, error) { return cudakern.NewStoreKV(k.context, t) })
}

func (k *kernels) alibi(t cudakern.CacheType) (*cudakern.ALiBi, error) {
	return once(k.alibis, t, func() (*cudakern.ALiBi, error) { return cudakern.NewALiBi(k.context, t) })
}

func (k *kernels) attention(key attentionKey) (*cudakern.Attention, error) {
	return once(k.attentions, key, func() (*cudakern.Attention, error) {
		return cudakern.NewAttention(k.context, key.cache, key.heads, key.kvHeads, key.dim, key.latent, key.capped)
	})
}

// once returns loaded[key], and calls load the first time.
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
