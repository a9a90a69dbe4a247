package placement

import (
	"cmp"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/sample"
)

// AutoCache is the name of the format of a KV cache that is f16 where the whole context fits with it, else q8_0.
const AutoCache = "auto"

// ParseCache returns the formats of a KV cache to try, in their order, for a name that is AutoCache or one of device.ParseCacheType.
func ParseCache(name string) ([]device.CacheType, error) {
	if name == AutoCache {
		return []device.CacheType{device.CacheOf(gguf.F16), device.CacheOf(gguf.Q8_0)}, nil
	}
	t, err := device.ParseCacheType(name)
	if err != nil {
		return nil, err
	}
	return []device.CacheType{t}, nil
}

// StepLimits bound the steps of an engine. Their activations and logits take memory.
type StepLimits struct {
	Answers int // in a step
	Rows    int // tokens computed, at least Answers
	Logits  int // rows whose logits are wanted, at least Answers
}

const (
	// DefaultAnswers is how many answers run at once by default.
	DefaultAnswers = 16

	defaultRows = 256

	// scoredRows is how many rows of a step can score prompts, in addition to those that give the next
	// token. Each takes memory for the logits of the whole vocabulary.
	scoredRows = 32
)

// StepLimitsOf returns the limits for so many answers at once and at most rows rows; 0 means the
// default.
func StepLimitsOf(answers, rows int) StepLimits {
	answers = cmp.Or(answers, DefaultAnswers)
	rows = max(cmp.Or(rows, defaultRows), answers)
	return StepLimits{Answers: answers, Rows: rows, Logits: min(rows, answers+scoredRows)}
}

// Setup is what a model is planned with.
type Setup struct {
	Context int // of one answer, in positions; 0: the model's
	Answers int // of CommonContext that the KV cache has room for
	Cache   device.CacheType
	Steps   StepLimits
}

// Defaults for models that compute embeddings.
const (
	embedTexts = 128 // computed in a step at most
	embedRows  = 512 // tokens of a step, unless a whole text has more

	wholeContext   = 2048 // longest text that is computed in one step
	chunkedContext = 8192 // longest text that is computed in chunks
)

// Of returns what a model of configuration c is planned with if s is asked for, in steps of at most rows rows; 0: the default. A model
// that computes embeddings has a shorter context by default, and a cache for the texts of one step, each of which may fill its last
// block only partly. Encoders and rankers have few positions in it at a time, and lose nothing to rounding: it is F32.
func (s Setup) Of(c model.Config, rows int) Setup {
	embeds, whole := c.Embeds(), c.Embeds() && c.IsBidirectional()
	if whole || c.Ranks() {
		s.Cache = device.CacheOf(gguf.F32)
	}
	if !embeds {
		s.Steps = StepLimitsOf(s.Answers, rows)
		s.Answers = s.Steps.Answers
		return s
	}
	longest := chunkedContext
	if whole {
		longest = wholeContext
	}
	s.Context = cmp.Or(s.Context, min(longest, c.ContextLength))
	context := min(s.Context, c.ContextLength)
	s.Steps.Rows = cmp.Or(rows, embedRows)
	if whole {
		s.Steps.Rows = max(s.Steps.Rows, context)
	}
	s.Steps.Answers, s.Steps.Logits = min(embedTexts, s.Steps.Rows), s.Steps.Rows
	blocks, one := blocksFor(s.Steps.Rows)+int64(s.Steps.Answers), blocksFor(min(context, CommonContext))
	s.Answers = int((blocks + one - 1) / one)
	return s
}

// Scratch returns the bytes of logits and sampler buffers.
func (s StepLimits) Scratch(c model.Config) int64 {
	row := 4 * int64(c.Vocab) // copied from a device for a sampler
	return c.ScratchBytes(s.Rows, s.Logits) + sample.BufferBytes(c.Vocab) + row
}

// ModelOf returns the sizes of a model with a KV cache of a format.
func ModelOf(c model.Config, cache device.CacheType) Model {
	m := Model{Context: c.ContextLength, Shared: c.FirstSharedKV()}
	for _, g := range c.CacheGroups() {
		m.Windows = append(m.Windows, g.Window)
	}
	for i := range c.Layers {
		layer := model.Config{Dim: c.Dim, Layers: c.Layers[i : i+1]}
		m.Group = append(m.Group, c.GroupOf(i))
		m.State = append(m.State, layer.StateLayout(1).Bytes())
		if c.Layers[i].KVLayersBack > 0 {
			m.Cache = append(m.Cache, 0)
			continue
		}
		m.Cache = append(m.Cache, layer.KVLayout(cache, 1).BlockBytes())
	}
	return m
}

// DeviceOf asks dev how much memory the model in f takes of it. It fails if dev has no kernel for
// a weight.
func DeviceOf(f *gguf.File, c model.Config, dev device.Device, cache device.CacheType, s StepLimits) (Device, error) {
	d := Device{Info: dev.Info()}
	var err error
	if d.Weights, err = model.DeviceBytes(f, dev); err != nil {
		return Device{}, err
	}
	if d.Parts, err = model.PartBytes(f, c, dev); err != nil {
		return Device{}, err
	}
	const few, many = 64, 64 << 10 // blocks; in between, a device may round
	work := func(blocks int) int64 {
		return c.WorkBytes(dev, model.Options{CacheType: cache, Blocks: blocks, MaxRows: s.Rows, MaxOut: s.Logits, Prompts: true})
	}
	least, most := work(few), work(many)
	d.Scratch = s.Scratch(c) + least
	d.Block = (most - least + many - few - 1) / (many - few)
	return d, nil
}
