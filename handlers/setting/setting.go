// Package setting has the values that a person sets for an answer: their limits, their defaults, and how a request has them.
package setting

import (
	"cmp"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// Settings are the values that a person sets for an answer. JSON is decoded over
// Default: what was stored before a field existed has its default.
type Settings struct {
	sample.Params             // LogitBias is made of TokenBiases when an answer begins
	Stop          []string    `json:"stop,omitempty"`           // texts that end the answer
	BannedStrings []string    `json:"banned_strings,omitempty"` // texts that it never contains
	TokenBiases   []TokenBias `json:"token_biases,omitempty"`
	Thinking      Thinking    `json:"thinking,omitempty"`
	MaxTokens     int         `json:"max_tokens"` // -1: until the context is full

	OutputFormat OutputFormat `json:"output_format,omitzero"`

	ThinkingBudget int `json:"thinking_budget,omitempty"` // tokens of reasoning after which the answer goes on without; 0: no limit

	PauseRepetition int `json:"pause_repetition,omitempty"` // 1: an answer that repeats itself is paused; 0: readers are told alone

	Tools    string `json:"tools,omitempty"`     // definitions of the tools that the model may call, a JSON array
	MustCall int    `json:"must_call,omitempty"` // 1: the answer to a question is a call of one of Tools
}

// TokenBias makes one token of a model likelier or less likely. Other models ignore it, for their tokens have other ids.
type TokenBias struct {
	ID    int32   `json:"id"`
	Text  string  `json:"text"` // what the token spells, for people
	Model string  `json:"model"`
	Bias  float64 `json:"bias"` // added to the logit, from -sample.MaxBias, at which the token never comes, to sample.MaxBias
}

// BiasFor returns the biases for the tokens of a model; nil if there are none.
func (s Settings) BiasFor(model string) map[int32]float64 {
	var biases map[int32]float64
	for _, b := range s.TokenBiases {
		if b.Model != model {
			continue
		}
		if biases == nil {
			biases = map[int32]float64{}
		}
		biases[b.ID] = b.Bias
	}
	return biases
}

// Thinking is what a person asks of a model that can think before it answers. Of the
// words a model has some, others do nothing to it.
type Thinking string

// The words of Thinking. The empty one leaves it to the model.
const (
	ThinkingOn     Thinking = "on"
	ThinkingOff    Thinking = "off"
	ThinkingLow    Thinking = "low"
	ThinkingMedium Thinking = "medium"
	ThinkingHigh   Thinking = "high"
)

// variables returns what a chat template reads it from.
func (t Thinking) variables() map[string]json.RawMessage {
	switch t {
	case ThinkingOn, ThinkingOff:
		on := json.RawMessage(strconv.FormatBool(t == ThinkingOn))
		return map[string]json.RawMessage{"enable_thinking": on, "thinking": on}
	case ThinkingLow, ThinkingMedium, ThinkingHigh:
		return map[string]json.RawMessage{"reasoning_effort": json.RawMessage(strconv.Quote(string(t)))}
	}
	return nil
}

// MaxSeed is the largest seed that survives a browser's numbers.
const MaxSeed = 1<<53 - 1

// MaxTokens is the highest limit that a person can set.
const MaxTokens = 1 << 20

// TextList limits a list of texts.
type TextList struct {
	Most  int // texts
	Bytes int // of one of them
}

// Limits of the lists of Settings.
var (
	Stops    = TextList{Most: 16, Bytes: 256}
	Banned   = TextList{Most: 512, Bytes: 256}
	Breakers = TextList{Most: 64, Bytes: 40}
)

// Limits of TokenBiases.
const (
	MaxTokenBiases = 256
	maxBiasText    = 256 // bytes of a text and of the name of a model
)

// Default are what the page shows before a person touches it.
func Default() Settings { return Settings{Params: sample.DefaultParams(), MaxTokens: 512} }

// Validate returns a *fault.Error that names the first field out of range.
func (s Settings) Validate() error {
	var wrong *sample.FieldError
	switch err := s.Params.Validate(); {
	case errors.As(err, &wrong):
		return fault.Invalid(wrong.Field, "%s", wrong)
	case s.Seed > MaxSeed:
		return fault.Invalid("seed", "seed is %d, but it must be from -1 to %d", s.Seed, int64(MaxSeed))
	case len(s.LogitBias) > 0:
		return fault.Invalid("logit_bias", "logit_bias is no setting of a chat; token_biases is")
	case s.MaxTokens == 0:
		return fault.Invalid("max_tokens", "max_tokens is 0, but an answer needs at least 1 token; -1 means until the context is full")
	case s.MaxTokens < -1 || s.MaxTokens > MaxTokens:
		return fault.Invalid("max_tokens", "max_tokens is %d, but it must be from -1 to %d", s.MaxTokens, MaxTokens)
	case s.ThinkingBudget < 0 || s.ThinkingBudget > MaxTokens:
		return fault.Invalid("thinking_budget", "thinking_budget is %d, but it must be from 0 (no limit) to %d", s.ThinkingBudget, MaxTokens)
	case s.PauseRepetition != 0 && s.PauseRepetition != 1:
		return fault.Invalid("pause_repetition", "pause_repetition is %d, but it must be 0 (off) or 1", s.PauseRepetition)
	case s.MustCall != 0 && s.MustCall != 1:
		return fault.Invalid("must_call", "must_call is %d, but it must be 0 (off) or 1", s.MustCall)
	case s.Thinking != "" && s.Thinking.variables() == nil:
		return fault.Invalid("thinking", "thinking is %q, but it must be on, off, low, medium or high, or be left out", string(s.Thinking))
	}
	for _, l := range []struct {
		name   string
		list   []string
		limits TextList
	}{{"stop", s.Stop, Stops}, {"banned_strings", s.BannedStrings, Banned}, {"dry_sequence_breakers", s.DryBreakers, Breakers}} {
		if err := l.limits.validate(l.name, l.list); err != nil {
			return err
		}
	}
	if err := checkBiases(s.TokenBiases); err != nil {
		return err
	}
	if err := s.OutputFormat.validate(); err != nil {
		return err
	}
	if s.MustCall == 1 && s.OutputFormat.Type == OutputGrammar && strings.TrimSpace(s.Tools) != "" {
		return fault.Invalid("output_format", "an answer that must call a tool cannot match a grammar too: switch off must_call, or choose another output format")
	}
	return checkTools(s.Tools)
}

func checkBiases(list []TokenBias) error {
	const name = "token_biases"
	if len(list) > MaxTokenBiases {
		return fault.Invalid(name, "%s has %d tokens, and at most %d can have a bias", name, len(list), MaxTokenBiases)
	}
	for i, b := range list {
		switch {
		case b.ID < 0:
			return fault.Invalid(name, "token %d of %s has the id %d, but ids are 0 or more", i+1, name, b.ID)
		case !(b.Bias >= -sample.MaxBias && b.Bias <= sample.MaxBias):
			return fault.Invalid(name, "token %d of %s has the bias %g, but it must be from %d to %d", i+1, name, b.Bias, -sample.MaxBias, sample.MaxBias)
		case b.Model == "" || len(b.Model) > maxBiasText || len(b.Text) > maxBiasText:
			return fault.Invalid(name, "token %d of %s needs the name of its model, and neither that nor its text may have more than %d bytes", i+1, name, maxBiasText)
		}
		if err := cmp.Or(fault.CheckUTF8(name, b.Text), fault.CheckUTF8(name, b.Model)); err != nil {
			return err
		}
	}
	return nil
}

func (l TextList) validate(name string, list []string) error {
	if len(list) > l.Most {
		return fault.Invalid(name, "%s has %d texts, and at most %d are looked for", name, len(list), l.Most)
	}
	for i, text := range list {
		if text == "" || len(text) > l.Bytes {
			return fault.Invalid(name, "text %d of %s has %d bytes, but it must have 1 to %d", i+1, name, len(text), l.Bytes)
		}
		if err := fault.CheckUTF8(name, text); err != nil {
			return err
		}
	}
	return nil
}

// Apply writes the settings into a request.
func (s Settings) Apply(r *infer.Request) {
	r.Params, r.MaxTokens, r.Stop, r.BannedStrings = s.Params, s.MaxTokens, s.Stop, s.BannedStrings
	if len(r.Messages) > 0 {
		r.TemplateVars = s.Thinking.variables()
		if s.ThinkingBudget > 0 {
			r.ReasoningBudget = &s.ThinkingBudget
		}
		s.offerTools(r)
		s.OutputFormat.constrain(r)
	}
}
