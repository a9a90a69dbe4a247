package model

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Config is the shape of a model, read from the metadata of its file.
type Config struct {
	Architecture  string
	ContextLength int // positions it was trained on
	Dim           int // width of the residual stream
	Vocab         int
	Eps           float32 // of norms
	LayerNorm     bool    // is what norms are, instead of RMSNorm
	Layers        []Layer

	// What values are multiplied by; 0: nothing.
	EmbeddingScale float32
	ResidualScale  float32 // what a layer adds
	LogitScale     float32

	LogitCap float32 // logits l become LogitCap · tanh(l / LogitCap); 0: they stay

	PerLayer int // width of what each layer gets of a token's own embedding for it; 0: none

	Predictors int // blocks behind the last layer that predict further tokens, which nobody uses

	OriginalContext int // positions up to which the short factors of RoPE hold

	Parallel bool // attention and feed-forward layers read the same norm

	// Queries are multiplied by 1 + Temperature · ln(1 + floor(position / OriginalContext)).
	Temperature float32
}

// Layer is the shape of one layer of a model.
type Layer struct {
	device.Attention

	KVHeads    int
	HeadDim    int
	ValueDim   int // of a head
	PlainDim   int // of a head's key that RoPE does not turn; with Latent
	QueryRank  int // values that queries are made of; 0: of all
	Latent     int // values of a position that all heads make their keys and values of; 0: they have their own
	HiddenDim  int // width of the feed-forward layer
	Activation device.Activation
	Routing    device.Routing // of the experts of the feed-forward layer, if it has any
	ExpertDim  int            // width of each
	SharedDim  int            // width of the experts that every row uses, together
	RoPE       device.RoPE    // of no dimensions: there is none
	NormLast   bool           // queries and keys are normed after RoPE, not before
	Unfactored bool           // RoPE has no factors, even if others of the model have
	CacheBack  int            // how many layers before it is the one whose keys and values it reads; 0: it has its own
}

// Limits of what a file may claim, far above any real model, so that no product
// of two of them overflows.
const (
	maxLayers  = 1024
	maxDim     = 1 << 20
	maxHeads   = 4096
	maxExperts = 4096
	maxContext = 1 << 26
)

// ReadConfig reads and checks the shape of the model in f. Its errors name the
// metadata key that is wrong.
func ReadConfig(f *gguf.File) (Config, error) {
	name, err := f.Str("general.architecture")
	if err != nil {
		return Config{}, err
	}
	arch, ok := architectures[name]
	if !ok {
		return Config{}, fmt.Errorf("architecture %q is not supported; supported are %s", name, strings.Join(Architectures(), ", "))
	}
	m := metadata{f: f, prefix: name, asked: map[string]bool{}}
	c := Config{
		Architecture:  name,
		ContextLength: m.integer("context_length", 1, maxContext),
		Dim:           m.integer("embedding_length", 1, maxDim),
		LayerNorm:     arch.layerNorm,
	}
	if arch.layerNorm {
		c.Eps = float32(m.float("attention.layer_norm_epsilon", 0, 1))
	} else {
		c.Eps = float32(m.float("attention.layer_norm_rms_epsilon", 0, 1))
	}
	c.OriginalContext = m.optionalInteger("rope.scaling.original_context_length", 1, maxContext, c.ContextLength)
	layers := m.integer("block_count", 1, maxLayers)
	m.layers = layers
	for m.layer = range layers {
		l := m.readLayer(c)
		if !arch.positions {
			l.RoPE = m.rope(l.HeadDim, c.OriginalContext)
			l.RoPE.NeoX = arch.neox
		}
		l.Activation = cmp.Or(arch.activation, device.SiLU)
		c.Layers = append(c.Layers, l)
	}
	if arch.read != nil {
		arch.read(&m, &c)
	}
	for _, l := range c.Layers {
		if l.Latent == 0 && l.ValueDim != l.HeadDim {
			m.fail(fmt.Errorf("%s: values of %d beside keys of %d are not supported", m.key("attention.value_length"), l.ValueDim, l.HeadDim))
		}
	}
	m.refuseUnread()
	if m.err == nil {
		c.Vocab, m.err = vocabulary(f)
	}
	return c, m.err
}

// readLayer reads what a layer of c has in every family.
func (m *metadata) readLayer(c Config) Layer {
	l := Layer{HiddenDim: m.integer("feed_forward_length", 1, maxDim)}
	l.Heads = m.integer("attention.head_count", 1, maxHeads)
	l.Window = m.optionalInteger("attention.sliding_window", 0, maxContext, 0)
	l.KVHeads = m.optionalInteger("attention.head_count_kv", 1, maxHeads, l.Heads)
	if l.Heads%l.KVHeads != 0 {
		m.fail(fmt.Errorf("%s: %d query heads cannot share %d kv heads evenly", m.key("attention.head_count_kv"), l.Heads, l.KVHeads))
	}
	l.HeadDim = m.optionalInteger("attention.key_length", 1, maxDim, c.Dim/l.Heads)
	l.ValueDim = m.optionalInteger("attention.value_length", 1, maxDim, l.HeadDim)
	l.Scale = float32(1 / math.Sqrt(float64(l.HeadDim)))
	if l.HeadDim == 0 {
		m.fail(fmt.Errorf("%s: %d heads do not fit a width of %d", m.key("attention.head_count"), l.Heads, c.Dim))
	}
	return l
}

// windows leaves the window to those layers that have one, and the frequency base that windows
// have to their RoPE: where the file does not say which layers these are, all but the last of
// each period. It reports whether there are windows.
func (m *metadata) windows(c *Config, period int) bool {
	windowed := m.pattern("attention.sliding_window_pattern", len(c.Layers), period)
	base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, c.Layers[0].RoPE.Base)
	window := c.Layers[0].Window
	for i := range c.Layers {
		if l := &c.Layers[i]; windowed[i] {
			l.RoPE.Base = base
		} else {
			l.Window = 0
		}
	}
	return window > 0
}

// mixture is what a family's mixtures of experts are where its files do not say otherwise.
type mixture struct {
	score     device.Score
	normalize bool
	width     func(l *Layer) int // of an expert; nil: its share of the feed-forward layer
}

// experts reads the mixtures of experts of c: the layers that have one lose the feed-forward
// layer that they would have instead.
func (m *metadata) experts(c *Config, missing mixture) {
	r := m.routing(missing)
	shared := m.optionalInteger("expert_shared_count", 0, maxExperts, 0)
	dense := m.optionalInteger("leading_dense_block_count", 0, maxLayers, 0)
	for i := range c.Layers {
		l := &c.Layers[i]
		if i < dense {
			continue
		}
		width := max(l.HiddenDim/r.Used, 1)
		if missing.width != nil {
			width = missing.width(l)
		}
		l.Routing = r
		l.ExpertDim = m.optionalInteger("expert_feed_forward_length", 1, maxDim, width)
		l.SharedDim = m.optionalInteger("expert_shared_feed_forward_length", 0, maxDim, shared*l.ExpertDim)
		l.HiddenDim = 0
	}
}

func (m *metadata) routing(missing mixture) device.Routing {
	r := device.Routing{Experts: m.integer("expert_count", 1, maxExperts), Score: missing.score}
	r.Used = m.integer("expert_used_count", 1, r.Experts)
	r.Normalize = m.optionalBool("expert_weights_norm", missing.normalize)
	r.Scale = float32(cmp.Or(m.optionalFloat("expert_weights_scale", 0, 1e6, 0), 1))
	r.Groups = m.optionalInteger("expert_group_count", 0, r.Experts, 0)
	r.GroupsUsed = m.optionalInteger("expert_group_used_count", 0, max(r.Groups, 1), r.Groups)
	if !r.Ungrouped() && (r.GroupsUsed == 0 || r.Experts%r.Groups != 0 || r.Used > r.Experts/r.Groups*r.GroupsUsed) {
		m.fail(fmt.Errorf("%s: cannot choose %d of %d experts in %d of %d groups", m.key("expert_group_count"), r.Used, r.Experts, r.GroupsUsed, r.Groups))
	}
	switch kind := m.optionalInteger("expert_gating_func", 0, 3, 0); kind {
	case 1:
		r.Score = device.ScoreSoftmax
	case 2:
		r.Score = device.ScoreSigmoid
	case 3: // softmax over the experts that are chosen
		r.Score, r.Normalize = device.ScoreSoftmax, true
	}
	return r
}

// withoutPredictors leaves out the blocks behind the last layer that predict further tokens.
func (m *metadata) withoutPredictors(c *Config) {
	c.Predictors = m.optionalInteger("nextn_predict_layers", 0, len(c.Layers)-1, 0)
	c.Layers = c.Layers[:len(c.Layers)-c.Predictors]
}

func vocabulary(f *gguf.File) (int, error) {
	t, err := f.Tensor("token_embd.weight")
	if err != nil {
		return 0, err
	}
	if len(t.Shape) != 2 {
		return 0, fmt.Errorf("tensor token_embd.weight has %d dimensions, want 2", len(t.Shape))
	}
	return t.Shape[1], nil
}
