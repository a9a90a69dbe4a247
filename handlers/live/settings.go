package live

import (
	"errors"
	"fmt"
	"math"

	"m40-llm/infer"
	"m40-llm/infer/sample"
)

// Settings are the values that a person sets for an answer. JSON is decoded over
// DefaultSettings: what was stored before a field existed has its default.
type Settings struct {
	Temperature      float64  `json:"temperature"`
	TopK             int      `json:"top_k"`
	TopP             float64  `json:"top_p"`
	MinP             float64  `json:"min_p"`
	TypicalP         float64  `json:"typical_p"`
	RepeatPenalty    float64  `json:"repeat_penalty"`
	RepeatLastN      int      `json:"repeat_last_n"` // window of the three penalties; -1: the whole context
	PresencePenalty  float64  `json:"presence_penalty"`
	FrequencyPenalty float64  `json:"frequency_penalty"`
	Stop             []string `json:"stop,omitempty"` // texts that end the answer
	MaxTokens        int      `json:"max_tokens"`     // -1: until the context is full
	Seed             int64    `json:"seed"`           // -1: a new one for each answer
}

// MaxSeed is the largest seed that survives a browser's numbers.
const MaxSeed = 1<<53 - 1

// Limits of Settings.Stop.
const (
	MaxStops     = 16
	MaxStopBytes = 256
)

// DefaultSettings are what the page shows before a person touches it.
func DefaultSettings() Settings {
	p := sample.DefaultParams()
	return Settings{
		Temperature:      p.Temperature,
		TopK:             p.TopK,
		TopP:             p.TopP,
		MinP:             p.MinP,
		TypicalP:         p.TypicalP,
		RepeatPenalty:    p.RepeatPenalty,
		RepeatLastN:      p.RepeatLastN,
		PresencePenalty:  p.PresencePenalty,
		FrequencyPenalty: p.FrequencyPenalty,
		MaxTokens:        512,
		Seed:             p.Seed,
	}
}

// Validate returns an *infer.Error that names the first field out of range.
func (s Settings) Validate() error {
	real := func(name string, v, lo, hi float64) error {
		if math.IsNaN(v) || v < lo || v > hi {
			return invalid(name, "%s is %v, but it must be from %v to %v", name, v, lo, hi)
		}
		return nil
	}
	whole := func(name string, v, lo, hi int64) error {
		if v < lo || v > hi {
			return invalid(name, "%s is %d, but it must be from %d to %d", name, v, lo, hi)
		}
		return nil
	}
	if s.MaxTokens == 0 {
		return invalid("max_tokens", "max_tokens is 0, but an answer needs at least 1 token; -1 means until the context is full")
	}
	for _, err := range []error{
		real("temperature", s.Temperature, 0, 2),
		whole("top_k", int64(s.TopK), 0, 1000),
		real("top_p", s.TopP, 0, 1),
		real("min_p", s.MinP, 0, 1),
		real("typical_p", s.TypicalP, 0, 1),
		real("repeat_penalty", s.RepeatPenalty, 1, 2),
		whole("repeat_last_n", int64(s.RepeatLastN), -1, 1<<20),
		real("presence_penalty", s.PresencePenalty, -2, 2),
		real("frequency_penalty", s.FrequencyPenalty, -2, 2),
		whole("max_tokens", int64(s.MaxTokens), -1, 1<<20),
		whole("seed", s.Seed, -1, MaxSeed),
	} {
		if err != nil {
			return err
		}
	}
	return validateStop(s.Stop)
}

func validateStop(list []string) error {
	if len(list) > MaxStops {
		return invalid("stop", "there are %d stop strings, and at most %d are looked for", len(list), MaxStops)
	}
	for i, text := range list {
		if text == "" || len(text) > MaxStopBytes {
			return invalid("stop", "stop string %d has %d bytes, but it must have 1 to %d", i+1, len(text), MaxStopBytes)
		}
		if err := checkUTF8("stop", text); err != nil {
			return err
		}
	}
	return nil
}

// params returns s as the engine wants it.
func (s Settings) params() sample.Params {
	p := sample.DefaultParams()
	p.Temperature = s.Temperature
	p.TopK = s.TopK
	p.TopP = s.TopP
	p.MinP = s.MinP
	p.TypicalP = s.TypicalP
	p.RepeatPenalty = s.RepeatPenalty
	p.RepeatLastN = s.RepeatLastN
	p.PresencePenalty = s.PresencePenalty
	p.FrequencyPenalty = s.FrequencyPenalty
	p.Seed = s.Seed
	return p
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
