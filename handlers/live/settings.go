package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"m40-llm/infer"
	"m40-llm/infer/sample"
)

// Settings are the values that a person sets for an answer. JSON is decoded over
// DefaultSettings: what was stored before a field existed has its default.
type Settings struct {
	sample.Params          // without LogitBias
	Stop          []string `json:"stop,omitempty"`           // texts that end the answer
	BannedStrings []string `json:"banned_strings,omitempty"` // texts that it never contains
	Thinking      Thinking `json:"thinking,omitempty"`
	MaxTokens     int      `json:"max_tokens"` // -1: until the context is full

	PauseRepetition int `json:"pause_repetition,omitempty"` // 1: an answer that repeats itself is paused; 0: readers are told alone

	Tools    string `json:"tools,omitempty"`     // definitions of the tools that the model may call, a JSON array
	MustCall int    `json:"must_call,omitempty"` // 1: the answer to a question is a call of one of Tools
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

// DefaultSettings are what the page shows before a person touches it.
func DefaultSettings() Settings { return Settings{Params: sample.DefaultParams(), MaxTokens: 512} }

// Validate returns an *infer.Error that names the first field out of range.
func (s Settings) Validate() error {
	var wrong *sample.FieldError
	switch err := s.Params.Validate(); {
	case errors.As(err, &wrong):
		return invalid(wrong.Field, "%s", wrong)
	case s.Seed > MaxSeed:
		return invalid("seed", "seed is %d, but it must be from -1 to %d", s.Seed, int64(MaxSeed))
	case len(s.LogitBias) > 0:
		return invalid("logit_bias", "logit_bias is no setting of a chat; ask through the API to use it")
	case s.MaxTokens == 0:
		return invalid("max_tokens", "max_tokens is 0, but an answer needs at least 1 token; -1 means until the context is full")
	case s.MaxTokens < -1 || s.MaxTokens > MaxTokens:
		return invalid("max_tokens", "max_tokens is %d, but it must be from -1 to %d", s.MaxTokens, MaxTokens)
	case s.PauseRepetition != 0 && s.PauseRepetition != 1:
		return invalid("pause_repetition", "pause_repetition is %d, but it must be 0 (off) or 1", s.PauseRepetition)
	case s.MustCall != 0 && s.MustCall != 1:
		return invalid("must_call", "must_call is %d, but it must be 0 (off) or 1", s.MustCall)
	case s.Thinking != "" && s.Thinking.variables() == nil:
		return invalid("thinking", "thinking is %q, but it must be on, off, low, medium or high, or be left out", string(s.Thinking))
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
	return checkTools(s.Tools)
}

func (l TextList) validate(name string, list []string) error {
	if len(list) > l.Most {
		return invalid(name, "%s has %d texts, and at most %d are looked for", name, len(list), l.Most)
	}
	for i, text := range list {
		if text == "" || len(text) > l.Bytes {
			return invalid(name, "text %d of %s has %d bytes, but it must have 1 to %d", i+1, name, len(text), l.Bytes)
		}
		if err := checkUTF8(name, text); err != nil {
			return err
		}
	}
	return nil
}

// ask writes the settings into a request.
func (s Settings) ask(r *infer.Request) {
	r.Params, r.MaxTokens, r.Stop, r.BannedStrings = s.Params, s.MaxTokens, s.Stop, s.BannedStrings
	if len(r.Messages) > 0 {
		r.TemplateVars = s.Thinking.variables()
		s.offerTools(r)
	}
}

func invalid(param, format string, args ...any) *infer.Error {
	return &infer.Error{Code: infer.CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

// inside puts the place of a value in front of the field that an error names.
func inside(err error, place string) error {
	wrong, ok := errors.AsType[*infer.Error](err)
	if !ok {
		return err
	}
	moved := *wrong
	moved.Param = place + "." + moved.Param
	return &moved
}
