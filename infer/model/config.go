package model

import (
	"cmp"
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// Config are the hyperparameters of a model, read from the metadata of its file.
type Config struct {
	Architecture  string
	ContextLength int // positions it was trained on
	Dim           int // width of the residual stream
	Vocab         int
	Eps           float32 // of norms
	PostEps       float32 // of norms of the outputs of attention and feed-forward layers; 0: Eps
	LayerNorm     bool    // norms are LayerNorm instead of RMSNorm
	Layers        []Layer

	// Factors; 0: none.
	EmbeddingScale float32
	ResidualScale  float32 // of what a layer adds to the residual stream
	LogitScale     float32

	LogitCap   float32 // soft cap: logits l become LogitCap · tanh(l / LogitCap); 0: no cap
	Suppressed []int32 // tokens whose logits become -Inf, because the model chooses them by mistake

	PerLayerDim int // width of per-layer embeddings; 0: none

	Streams      int // residual streams of a model with AltUp; 0: one
	ActiveStream int // the stream that layers compute on
	LaurelRank   int // width of the low-rank layers in parallel with attention

	MTPBlocks  int  // multi-token prediction blocks after the last layer, which are no layers
	firstBlock int  // number of the first layer in the file
	isHead     bool // the layer is a multi-token prediction block: see head.go

	OriginalContext int // positions before the context was extended: the short RoPE factors apply up to here

	// Sections are how many pairs of RoPE turn by the time, the row and the column of a row of a picture, one section after the other, or
	// Interleaved; zero: all turn by the position. The three are the same in rows of text.
	Sections    [3]int
	Interleaved bool

	Deepstack int // layers after which vectors of pictures are added to their rows

	Parallel bool // attention and feed-forward layer read the same norm

	Pooling    Pooling // of a model that computes embeddings or ranks texts; PoolNone: it computes logits
	Labels     int     // outputs of the classifier after the pooling of a model that ranks texts; 0: there is none
	TokenTypes int     // rows of the table of token types, of which the first is used; 0: there is none
	Dense      [2]int  // widths of the dense layers after the output norm of an embedding model; 0: none

	// Temperature scales queries by 1 + Temperature · ln(1 + floor(position / OriginalContext));
	// 0: not.
	Temperature float32
}

// Experts returns how many experts a layer of a mixture of experts has, and how many of them are
// active for each token; 0, 0 for a dense model.
func (c *Config) Experts() (all, active int) {
	for _, l := range c.Layers {
		if l.Routing.Experts > 0 {
			return l.Routing.Experts, l.Routing.Used
		}
	}
	return 0, 0
}

// Layer are the hyperparameters of one layer of a model.
type Layer struct {
	device.Attention

	KVHeads        int               // 0: the layer has no attention
	Linear         bool              // the layer has a matrix in place of attention
	SeparateGate   bool              // the file has the gates of the feed-forward layer as a tensor of their own, where that differs between files
	GatedAttention bool              // queries come with gates of the result
	GateDim        int               // width of gates of the result with weights of their own, one for each element or for each head; 0: there are none
	GateActivation device.Activation // of those gates; 0: sigmoid
	HeadDim        int
	ValueDim       int // width of a head's value
	NoPEDim        int // with Latent: elements of a head's key without RoPE
	QueryRank      int // width of the low-rank step that queries are computed from; 0: none
	Latent         int // width of the latent vector that all heads compute keys and values from; 0: no latent attention
	FFNDim         int // width of the feed-forward layer
	Activation     device.Activation
	ReLU           bool  // gates of experts have max(x, 0) in place of Activation
	XIELU          XIELU // an activation in place of Activation; zero: none
	Sparse         bool  // gates below mean + SparsityScale · deviation are cut
	SparsityScale  float32
	Routing        device.Routing // of the mixture of experts; no Experts: there is none
	RoutesFirst    bool           // the router reads the input of the layer, not that of the experts
	ExpertDim      int            // width of each expert
	FusedExperts   bool           // the file has the gate and up weights of experts as one tensor
	SharedDim      int            // width of all shared experts together
	SharedMean     bool           // the result is the mean of that of the routed and that of the shared experts, not their sum
	RoPE           device.RoPE    // Dims 0: no RoPE
	NormedInput    bool           // the layer has no norm before attention, because its input has one
	NormAfterRoPE  bool           // queries and keys are normed after RoPE instead of before
	NoRoPEFactors  bool           // ignore the model's RoPE factors
	Unrotated      bool           // latent attention whose RoPE.Dims elements are not rotated
	Recurrent      Recurrent      // recurrent state
	KVLayersBack   int            // the layer reads the keys and values of the layer this far before it; 0: its own
	F32Cache       bool           // keys and values are F32 in a cache of any format
}

// Limits of the values in a file, far above any real model and small enough that no product of
// two overflows.
const (
	maxLayers  = 1024
	maxDim     = 1 << 20
	maxHeads   = 4096
	maxExperts = 4096
	maxContext = 1 << 26
)

// ReadConfig reads and checks the hyperparameters of the model in f. Its errors name the metadata
// key that is missing or wrong; of an architecture that is not supported it is an *UnsupportedError.
func ReadConfig(f *gguf.File) (Config, error) {
	name, err := f.Str("general.architecture")
	if err != nil {
		return Config{}, err
	}
	if err := CheckArchitecture(name); err != nil {
		return Config{}, err
	}
	return readConfig(&metadata{f: f, prefix: name, read: map[string]bool{}})
}

// readConfig reads the keys of an architecture.
func readConfig(m *metadata) (Config, error) {
	f, name := m.f, nameOf(m.prefix)
	arch := architectures[name]
	c := Config{
		Architecture:  name,
		ContextLength: m.integer("context_length", 1, maxContext),
		Dim:           m.integer("embedding_length", 1, maxDim),
		LayerNorm:     arch.layerNorm,
		Pooling:       m.pooling(arch.encoder),
	}
	bidirectional := !m.optionalBool("attention.causal", !arch.encoder)
	if arch.layerNorm {
		c.Eps = float32(m.float("attention.layer_norm_epsilon", 0, 1))
	} else {
		c.Eps = float32(m.float("attention.layer_norm_rms_epsilon", 0, 1))
	}
	m.classifier(&c, arch)
	c.OriginalContext = m.optionalInteger("rope.scaling.original_context_length", 1, maxContext, c.ContextLength)
	layers := m.integer("block_count", 1, maxLayers)
	m.layers = layers
	for m.layer = range layers {
		l := m.readLayer(c, arch.hybrid)
		if !arch.positions && l.Attends() {
			l.RoPE = m.rope(l.HeadDim, c.OriginalContext)
			l.RoPE.NeoX = arch.neox
		}
		l.Activation = cmp.Or(arch.activation, device.SiLU)
		l.Bidirectional = bidirectional
		c.Layers = append(c.Layers, l)
	}
	if arch.read != nil {
		arch.read(m, &c)
	}
	if bidirectional {
		c.Pooling = cmp.Or(c.Pooling, PoolMean)
	}
	for i, l := range c.Layers {
		if !arch.hybrid && !l.feedsForward() {
			m.fail(fmt.Errorf("%s is missing or 0, but layer %d has no experts instead", m.key("feed_forward_length"), i))
		}
		if l.RoPE.Dims%2 != 0 {
			m.fail(fmt.Errorf("%s is %d, want an even number", m.key("rope.dimension_count"), l.RoPE.Dims))
		}
		if l.Bidirectional && l.Window > 0 && !arch.encoder {
			m.fail(fmt.Errorf("%s is false, but what its sliding window means then is not known in architecture %q", m.key("attention.causal"), name))
		}
		if l.Latent == 0 && l.ValueDim != l.HeadDim {
			m.fail(fmt.Errorf("%s: values of width %d with keys of width %d are not supported", m.key("attention.value_length"), l.ValueDim, l.HeadDim))
		}
	}
	m.refuseUnread()
	if m.err == nil {
		c.Vocab, m.err = vocabulary(f)
	}
	if m.err == nil {
		c.Suppressed, m.err = suppressed(f, c.Vocab)
	}
	return c, m.err
}

// readLayer reads the keys of a layer that are common to all families. A layer of a hybrid may lack
// attention or a feed-forward layer.
func (m *metadata) readLayer(c Config, hybrid bool) Layer {
	least := 1
	if hybrid {
		least = 0
	}
	l := Layer{FFNDim: m.optionalInteger("feed_forward_length", 0, maxDim, 0)}
	l.Heads = m.integer("attention.head_count", least, maxHeads)
	l.Window = m.optionalInteger("attention.sliding_window", 0, maxContext, 0)
	l.KVHeads = m.optionalInteger("attention.head_count_kv", least, maxHeads, l.Heads)
	if !l.Attends() || l.Heads == 0 {
		l.withoutAttention()
		return l
	}
	if l.Heads%l.KVHeads != 0 {
		m.fail(fmt.Errorf("%s: %d query heads cannot share %d kv heads evenly", m.key("attention.head_count_kv"), l.Heads, l.KVHeads))
	}
	l.HeadDim = m.optionalInteger("attention.key_length", 1, maxDim, c.Dim/l.Heads)
	l.ValueDim = m.optionalInteger("attention.value_length", 1, maxDim, l.HeadDim)
	l.Scale = float32(1 / math.Sqrt(float64(l.HeadDim)))
	if l.HeadDim == 0 {
		m.fail(fmt.Errorf("%s: %d heads are too many for a model of width %d", m.key("attention.head_count"), l.Heads, c.Dim))
	}
	return l
}

// windows decides which layers have a sliding window: those that the file marks, by default all but
// the last of each period layers. Layers without one lose Window, and layers with one get the RoPE
// frequency base of windows. It reports whether the model has windows.
func (m *metadata) windows(c *Config, period int) bool {
	return m.windowed(c, m.pattern("attention.sliding_window_pattern", len(c.Layers), period))
}

// windowed is windows for the layers that are marked.
func (m *metadata) windowed(c *Config, marks []bool) bool {
	base := m.optionalFloat("rope.freq_base_swa", 1, 1e12, c.Layers[0].RoPE.Base)
	window := c.Layers[0].Window
	for i := range c.Layers {
		if l := &c.Layers[i]; marks[i] {
			l.RoPE.Base = base
		} else {
			l.Window = 0
		}
	}
	return window > 0
}

// rotateWindowed removes RoPE from layers without a sliding window.
func (c *Config) rotateWindowed() {
	for i := range c.Layers {
		if l := &c.Layers[i]; l.Window == 0 {
			l.RoPE = device.RoPE{}
		}
	}
}

// moeDefaults are a family's defaults for metadata keys of mixtures of experts.
type moeDefaults struct {
	score     device.Score
	normalize bool
	width     func(l *Layer) int // width of an expert; nil: FFNDim divided by the experts used
}

// experts reads the mixtures of experts of c. Layers that have one get FFNDim 0.
func (m *metadata) experts(c *Config, defaults moeDefaults) {
	r := m.routing(defaults)
	shared := m.optionalInteger("expert_shared_count", 0, maxExperts, 0)
	dense := m.optionalInteger("leading_dense_block_count", 0, maxLayers, 0)
	for i := range c.Layers {
		l := &c.Layers[i]
		if i < dense {
			continue
		}
		width := max(l.FFNDim/r.Used, 1)
		if defaults.width != nil {
			width = defaults.width(l)
		}
		l.Routing = r
		l.ExpertDim = m.optionalInteger("expert_feed_forward_length", 1, maxDim, width)
		l.SharedDim = m.optionalInteger("expert_shared_feed_forward_length", 0, maxDim, shared*l.ExpertDim)
		l.FusedExperts = m.hasTensor(fmt.Sprintf("blk.%d.ffn_gate_up_exps.weight", i))
		l.FFNDim = 0
	}
}

// hasTensor reports whether the file has a tensor.
func (m *metadata) hasTensor(name string) bool {
	_, err := m.f.Tensor(name)
	return err == nil
}

func (m *metadata) routing(defaults moeDefaults) device.Routing {
	r := device.Routing{Experts: m.integer("expert_count", 1, maxExperts), Score: defaults.score}
	r.Used = m.integer("expert_used_count", 1, r.Experts)
	r.Normalize = m.optionalBool("expert_weights_norm", defaults.normalize)
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
	case 3: // softmax over the chosen experts only
		r.Score, r.Normalize = device.ScoreSoftmax, true
	}
	return r
}

// dropMTPBlocks removes the multi-token prediction blocks, which files count as layers, unless they are read.
func (m *metadata) dropMTPBlocks(c *Config) {
	c.MTPBlocks = m.optionalInteger("nextn_predict_layers", 0, len(c.Layers)-1, 0)
	if m.withHeads {
		return
	}
	c.Layers = c.Layers[:len(c.Layers)-c.MTPBlocks]
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

// suppressed returns the tokens of a vocabulary of vocab tokens that the model in f must never choose.
func suppressed(f *gguf.File, vocab int) ([]int32, error) {
	const key = "tokenizer.ggml.suppress_tokens"
	ids, err := gguf.Optional(f.Ints, key, nil)
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("%s has token %d; the last id of the vocabulary is %d", key, id, vocab-1)
		}
	}
	return ids, err
}
