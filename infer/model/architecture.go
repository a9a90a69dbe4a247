package model

import (
	"cmp"
	"maps"
	"slices"

	"m40-llm/infer/device"
)

// architecture declares a family of models: the differences that the metadata of a file does
// not state.
type architecture struct {
	neox       bool              // RoPE rotates pairs (i, i+n/2) instead of (2i, 2i+1)
	activation device.Activation // of the feed-forward layers; 0: SiLU
	layerNorm  bool              // LayerNorm instead of RMSNorm
	positions  bool              // learned position embeddings instead of RoPE
	encoder    bool              // attention is bidirectional, with symmetric windows, unless the file says otherwise
	hybrid     bool              // layers may lack attention or a feed-forward layer
	heads      bool              // multi-token prediction blocks are used: see head.go
	geluHead   bool              // the classifier of a model that ranks texts reads the mean and has GELU, instead of the first token and tanh
	tensors    []tensor

	// read, if set, reads the metadata keys that only this family has, and sets the options
	// that differ between layers.
	read func(m *metadata, c *Config)
}

// architectures maps the supported values of general.architecture to their declarations.
var architectures = map[string]architecture{
	"afmoe":           afmoe,
	"apertus":         apertus,
	"arcee":           arcee,
	"baichuan":        baichuan,
	"bailingmoe2":     bailingMoE2,
	"bailingmoe3":     bailingMoE3,
	"bert":            bert,
	"bloom":           bloom,
	"chatglm":         chatGLM,
	"cohere2":         cohere2,
	"cohere2moe":      cohere2MoE,
	"command-r":       commandR,
	"deci":            deci,
	"deepseek2":       deepseek2,
	"dots1":           dots1,
	"ernie4_5":        ernie45,
	"ernie4_5-moe":    ernie45MoE,
	"eurobert":        euroBERT,
	"exaone":          exaone,
	"exaone-moe":      exaoneMoE,
	"exaone4":         exaone4,
	"falcon-h1":       falconH1,
	"gemma":           gemma,
	"gemma-embedding": gemmaEmbedding,
	"gemma2":          gemma2,
	"gemma3":          gemma3,
	"gemma3n":         gemma3n,
	"gemma4":          gemma4,
	"glm4":            glm4,
	"glm4moe":         glm4MoE,
	"gpt-oss":         gptOSS,
	"gpt2":            gpt2,
	"granite":         granite,
	"granite_swa":     graniteSWA,
	"granitehybrid":   graniteHybrid,
	"granitemoe":      graniteMoE,
	"hunyuan-dense":   hunyuanDense,
	"hunyuan-moe":     hunyuanMoE,
	"hy_v3":           hyV3,
	"internlm2":       internLM2,
	"jamba":           jamba,
	"jina-bert-v2":    jinaBERT2,
	"jina-bert-v3":    jinaBERT3,
	"kimi-linear":     kimiLinear,
	"laguna":          laguna,
	"lfm2":            lfm2,
	"lfm2moe":         lfm2MoE,
	"llama":           llama,
	"mamba":           mambaOne,
	"mamba2":          mambaTwo,
	"mellum":          mellum,
	"minicpm":         miniCPM,
	"minicpm3":        miniCPM3,
	"minimax-m2":      minimaxM2,
	"mistral3":        mistral3,
	"modern-bert":     modernBERT,
	"mpt":             mpt,
	"muse-glimmer":    museGlimmer,
	"nemotron":        nemotron,
	"nemotron_h":      nemotronH,
	"nemotron_h_moe":  nemotronHMoE,
	"nomic-bert":      nomicBERT,
	"nomic-bert-moe":  nomicBERTMoE,
	"olmo2":           olmo2,
	"olmoe":           olmoe,
	"orion":           orion,
	"phi2":            phi2,
	"phi3":            phi3,
	"phimoe":          phiMoE,
	"qwen2":           qwen2,
	"qwen2moe":        qwen2MoE,
	"qwen2vl":         qwen2VL,
	"qwen3":           qwen3,
	"qwen35":          qwen35,
	"qwen35moe":       qwen35MoE,
	"qwen3moe":        qwen3moe,
	"qwen3next":       qwen3Next,
	"qwen3vl":         qwen3VL,
	"qwen3vlmoe":      qwen3VLMoE,
	"seed_oss":        seedOSS,
	"smallthinker":    smallThinker,
	"smollm3":         smollm3,
	"stablelm":        stableLM,
	"starcoder2":      starCoder2,
	"xverse":          xverse,
}

// otherNames are the names that files of some converters have for an architecture. Their keys begin with
// that name too.
var otherNames = map[string]string{"gptoss": "gpt-oss"} // of Ollama

// nameOf returns the name of an architecture in the table for a value of general.architecture.
func nameOf(value string) string { return cmp.Or(otherNames[value], value) }

// Architectures lists the supported values of general.architecture.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// slot identifies the use of a tensor in the forward pass.
type slot int

const (
	tokenEmbd slot = iota
	positionEmbd
	tokenTypes
	tokenEmbdNorm
	tokenEmbdNormBias
	outputNorm
	outputNormBias
	output
	outputBias
	suppression
	dense2
	dense3
	classifierDense // see classifier.go
	classifierDenseBias
	classifierNorm
	classifierNormBias
	classifierOut
	classifierOutBias
	headTokenNorm // see head.go
	headStateNorm
	headProj
	ropeFreqs
	ropeShort
	ropeLong

	attnNorm
	attnNormBias
	attnQ
	attnK
	attnV
	attnOutput
	attnQBias
	attnKBias
	attnVBias
	attnOutputBias
	attnQNorm
	attnKNorm
	attnQNormBias
	attnKNormBias
	attnPostNorm
	attnSumNorm
	attnSumNormBias
	attnAgainNorm
	attnAgainNormBias
	attnSinks
	attnVNorm
	attnQA
	attnQANorm
	attnKVA
	attnKVANorm
	attnKB
	attnVB
	attnGate
	attnGateSpread
	attnLinear

	ffnNorm
	ffnNormBias
	ffnGate
	ffnUp
	ffnDown
	ffnGateBias
	ffnUpBias
	ffnDownBias
	ffnRouter
	ffnRouterBias
	ffnSelectionBias
	ffnGateExperts
	ffnUpExperts
	ffnGateUpExperts
	ffnDownExperts
	ffnGateExpertsBias
	ffnUpExpertsBias
	ffnDownExpertsBias
	ffnSharedGate
	ffnSharedUp
	ffnSharedDown
	ffnSharedInput
	ffnPostNorm
	ffnSumNorm
	ffnSumNormBias
	ffnMLPPostNorm
	ffnExpertsNorm
	ffnExpertsPostNorm
	ffnRouterNorm
	ffnExpertScales
	xieluOffset

	tokenPerLayer // per-layer embeddings: see perlayer.go
	perLayerProj
	perLayerNorm
	perLayerGate
	perLayerOut
	perLayerPostNorm
	layerScale

	altupProj // several residual streams: see altup.go
	altupUnembed
	altupRouter
	altupRouterNorm
	altupPredict
	altupCorrect
	altupCorrectBias
	altupCorrectScale
	laurelLeft
	laurelRight
	laurelPostNorm

	scanQ // recurrent state: see recurrent.go
	scanK
	scanV
	scanQConv
	scanKConv
	scanVConv
	scanQConvBias
	scanKConvBias
	scanVConvBias
	scanStep
	scanDecay
	scanStepAndDecay
	scanDecayRank
	scanDecayBias
	scanA
	scanSkip
	scanStepNorm
	scanQueryNorm
	scanKeyNorm
	scanNorm
	scanGate
	scanGateRank
	scanOut

	slots // number of slots
)

// tensor declares a tensor of the model's file. If several are declared for one slot, the first
// that the file has is used.
type tensor struct {
	slot  slot
	name  string // in the file; for tensors of a layer, the part after "blk.N."
	shape shape
	part  part

	optional bool
	float    bool    // uploaded as F32, whatever its type in the file
	fill     float32 // if not 0, value of all elements if the file lacks the tensor

	derived       *derivation // if set, the weight is computed from a tensor of another shape
	before, after []size      // further outputs of the file's tensor: see fused
}

// fused declares tensors that the file stores as one, with their outputs concatenated in order.
func fused(name string, tensors ...tensor) []tensor {
	for i := range tensors {
		tensors[i].name = name
		for _, t := range tensors[:i] {
			tensors[i].before = append(tensors[i].before, t.shape[0])
		}
		for _, t := range tensors[i+1:] {
			tensors[i].after = append(tensors[i].after, t.shape[0])
		}
	}
	return tensors
}

// derivation says how a weight is computed from a tensor of another shape. The weight is F32 if
// the tensor is or if it is a vector, and F16 otherwise.
type derivation struct {
	shape   shape                                                 // of the file's tensor
	compute func(c *Config, l *Layer, values []float32) []float32 // from row-major values of the tensor
}

// part says which stages load a tensor.
type part int

const (
	everyLayer part = iota // a tensor of each layer, in the stage of that layer
	firstStage
	lastStage
	everyStage
	onHost // no stage: a tensor of the classifier, see ReadClassifier
)

// size returns a size of the model or of one of its layers.
type size func(c *Config, l *Layer) int

// shape is the shape of a tensor, outputs first. If a size is 0, the model does not have the
// tensor.
type shape []size

// dims returns the rows and columns of a tensor as a matrix, as devices store it.
func (s shape) dims(c *Config, l *Layer) (rows, cols int) {
	rows, cols = 1, s[len(s)-1](c, l)
	for _, size := range s[:len(s)-1] {
		rows *= size(c, l)
	}
	return rows, cols
}

func dim(c *Config, _ *Layer) int       { return c.Dim }
func vocab(c *Config, _ *Layer) int     { return c.Vocab }
func queryDim(_ *Config, l *Layer) int  { return l.Heads * l.HeadDim }
func headDim(_ *Config, l *Layer) int   { return l.HeadDim }
func ffnDim(_ *Config, l *Layer) int    { return l.FFNDim }
func heads(_ *Config, l *Layer) int     { return l.Heads }
func kvHeads(_ *Config, l *Layer) int   { return l.KVHeads }
func positions(c *Config, _ *Layer) int { return c.ContextLength }
func experts(_ *Config, l *Layer) int   { return l.Routing.Experts }
func expertDim(_ *Config, l *Layer) int { return l.ExpertDim }
func sharedDim(_ *Config, l *Layer) int { return l.SharedDim }

// separateExpertDim is the width of an expert's gate and of its up weights, 0 if they are one tensor.
func separateExpertDim(_ *Config, l *Layer) int {
	if l.FusedExperts {
		return 0
	}
	return l.ExpertDim
}

// fusedExpertDim is the width of an expert's gate and up weights together if they are one tensor.
func fusedExpertDim(_ *Config, l *Layer) int {
	if !l.FusedExperts {
		return 0
	}
	return 2 * l.ExpertDim
}

// kvDim is the width of the keys of all heads, and of the values, 0 in layers without a cache of
// their own.
func kvDim(_ *Config, l *Layer) int {
	if l.KVLayersBack > 0 {
		return 0
	}
	return l.KVHeads * l.HeadDim
}

func one(*Config, *Layer) int { return 1 }

// logits is the number of logits, 0 in a model that computes embeddings.
func logits(c *Config, _ *Layer) int {
	if c.Embeds() {
		return 0
	}
	return c.Vocab
}

// ropePairs is the number of pairs that RoPE rotates in a head of the layers that use RoPE factors.
func ropePairs(c *Config, _ *Layer) (pairs int) {
	for _, l := range c.Layers {
		if !l.NoRoPEFactors {
			pairs = max(pairs, l.RoPE.Dims/2)
		}
	}
	return pairs
}

// Tensors that many families have.
var (
	ends = []tensor{ // embeddings and output layer
		{slot: tokenEmbd, name: "token_embd.weight", shape: shape{vocab, dim}, part: firstStage},
		{slot: outputNorm, name: "output_norm.weight", shape: shape{dim}, part: lastStage},
		{slot: output, name: "output.weight", shape: shape{logits, dim}, part: lastStage},
		{slot: output, name: "token_embd.weight", shape: shape{logits, dim}, part: lastStage},
		{slot: ropeFreqs, name: "rope_freqs.weight", shape: shape{ropePairs}, part: everyStage, optional: true},
	}
	outputBiases = []tensor{{slot: outputBias, name: "output.bias", shape: shape{logits}, part: lastStage, optional: true}}
	ropeFactors  = []tensor{
		{slot: ropeShort, name: "rope_factors_short.weight", shape: shape{ropePairs}, part: everyStage, optional: true},
		{slot: ropeLong, name: "rope_factors_long.weight", shape: shape{ropePairs}, part: everyStage, optional: true},
	}
	norms = []tensor{
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: ffnNorm, name: "ffn_norm.weight", shape: shape{dim}},
	}
	layerNorms = slices.Concat(norms, []tensor{
		{slot: outputNormBias, name: "output_norm.bias", shape: shape{dim}, part: lastStage, optional: true},
		{slot: attnNormBias, name: "attn_norm.bias", shape: shape{dim}, optional: true},
		{slot: ffnNormBias, name: "ffn_norm.bias", shape: shape{dim}, optional: true},
	})
	sharedNorm = []tensor{ // one norm for attention and feed-forward layer
		{slot: attnNorm, name: "attn_norm.weight", shape: shape{dim}},
		{slot: attnNormBias, name: "attn_norm.bias", shape: shape{dim}, optional: true},
		{slot: outputNormBias, name: "output_norm.bias", shape: shape{dim}, part: lastStage, optional: true},
	}
	attention = slices.Concat( // converters write queries, keys and values as one tensor of some families, and of all on request
		fused("attn_qkv.weight", tensor{slot: attnQ, shape: shape{queryDim, dim}, optional: true},
			tensor{slot: attnK, shape: shape{kvDim, dim}, optional: true}, tensor{slot: attnV, shape: shape{kvDim, dim}, optional: true}),
		fused("attn_qkv.bias", tensor{slot: attnQBias, shape: shape{queryDim}, optional: true},
			tensor{slot: attnKBias, shape: shape{kvDim}, optional: true}, tensor{slot: attnVBias, shape: shape{kvDim}, optional: true}),
		separateAttention)
	separateAttention = []tensor{
		{slot: attnQ, name: "attn_q.weight", shape: shape{queryDim, dim}},
		{slot: attnK, name: "attn_k.weight", shape: shape{kvDim, dim}},
		{slot: attnV, name: "attn_v.weight", shape: shape{kvDim, dim}},
		{slot: attnOutput, name: "attn_output.weight", shape: shape{dim, queryDim}},
		{slot: attnQBias, name: "attn_q.bias", shape: shape{queryDim}, optional: true},
		{slot: attnKBias, name: "attn_k.bias", shape: shape{kvDim}, optional: true},
		{slot: attnVBias, name: "attn_v.bias", shape: shape{kvDim}, optional: true},
		{slot: attnOutputBias, name: "attn_output.bias", shape: shape{dim}, optional: true},
	}
	rowNorms = []tensor{ // one norm over the queries of all heads, one over the keys
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{queryDim}},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{kvDim}},
	}
	headNorms = []tensor{ // norms of each head, with the same weights
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{headDim}},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{headDim}},
	}
	perHeadNorms = []tensor{ // norms of each head, each with its own weights
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{heads, headDim}, optional: true},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{kvHeads, headDim}, optional: true},
	}
	gatedFeedForward = slices.Concat(feedForward, []tensor{
		{slot: ffnGate, name: "ffn_gate.weight", shape: shape{ffnDim, dim}},
		{slot: ffnGateBias, name: "ffn_gate.bias", shape: shape{ffnDim}, optional: true},
	})
	feedForward = []tensor{
		{slot: ffnUp, name: "ffn_up.weight", shape: shape{ffnDim, dim}},
		{slot: ffnDown, name: "ffn_down.weight", shape: shape{dim, ffnDim}},
		{slot: ffnUpBias, name: "ffn_up.bias", shape: shape{ffnDim}, optional: true},
		{slot: ffnDownBias, name: "ffn_down.bias", shape: shape{dim}, optional: true},
	}
	fusedFeedForward = slices.Concat(
		fused("ffn_up.weight", tensor{slot: ffnGate, shape: shape{ffnDim, dim}}, tensor{slot: ffnUp, shape: shape{ffnDim, dim}}),
		[]tensor{{slot: ffnDown, name: "ffn_down.weight", shape: shape{dim, ffnDim}}})
	mixtureOfExperts = []tensor{
		{slot: ffnRouter, name: "ffn_gate_inp.weight", shape: shape{experts, dim}},
		{slot: ffnGateExperts, name: "ffn_gate_exps.weight", shape: shape{experts, separateExpertDim, dim}},
		{slot: ffnUpExperts, name: "ffn_up_exps.weight", shape: shape{experts, separateExpertDim, dim}},
		{slot: ffnGateUpExperts, name: "ffn_gate_up_exps.weight", shape: shape{experts, fusedExpertDim, dim}},
		{slot: ffnDownExperts, name: "ffn_down_exps.weight", shape: shape{experts, dim, expertDim}},
	}
	selectionBias = []tensor{
		{slot: ffnSelectionBias, name: "exp_probs_b.bias", shape: shape{experts}, optional: true},
		{slot: ffnSelectionBias, name: "exp_probs_b", shape: shape{experts}, optional: true},
	}
	sharedExperts = []tensor{
		{slot: ffnSharedGate, name: "ffn_gate_shexp.weight", shape: shape{sharedDim, dim}},
		{slot: ffnSharedUp, name: "ffn_up_shexp.weight", shape: shape{sharedDim, dim}},
		{slot: ffnSharedDown, name: "ffn_down_shexp.weight", shape: shape{dim, sharedDim}},
	}
	gatedSharedExperts = slices.Concat(sharedExperts, []tensor{{slot: ffnSharedInput, name: "ffn_gate_inp_shexp.weight", shape: shape{one, dim}}})
	normedValues       = []tensor{ // norms of each head of queries and keys, and of values without weights
		{slot: attnQNorm, name: "attn_q_norm.weight", shape: shape{headDim}},
		{slot: attnKNorm, name: "attn_k_norm.weight", shape: shape{keyNormDim}},
		{slot: attnVNorm, name: "attn_v_norm.weight", shape: shape{keyNormDim}, fill: 1},
	}
	postNorms = []tensor{
		{slot: attnPostNorm, name: "post_attention_norm.weight", shape: shape{dim}},
		{slot: ffnPostNorm, name: "post_ffw_norm.weight", shape: shape{dim}},
	}
)
