package sample

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Params are the sampler settings of one request. Validate says which values
// are allowed.
type Params struct {
	Temperature      float64           `json:"temperature"`          // 0: greedy
	TopK             int               `json:"top_k"`                // 0: off
	TopP             float64           `json:"top_p"`                // 1: off
	MinP             float64           `json:"min_p"`                // 0: off
	TypicalP         float64           `json:"typical_p"`            // 1: off
	RepeatPenalty    float64           `json:"repeat_penalty"`       // 1: off
	RepeatLastN      int               `json:"repeat_last_n"`        // window of the three penalties in tokens; 0: off, -1: whole context
	PresencePenalty  float64           `json:"presence_penalty"`     // 0: off
	FrequencyPenalty float64           `json:"frequency_penalty"`    // 0: off
	LogitBias        map[int32]float64 `json:"logit_bias,omitempty"` // added to the logits of these tokens
	Seed             int64             `json:"seed"`                 // -1: drawn for each answer
}

// DefaultParams are the settings used where neither the request nor a preset
// says anything.
func DefaultParams() Params {
	return Params{Temperature: 0.7, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 1, RepeatPenalty: 1, RepeatLastN: 64, Seed: -1}
}

// FieldError is a setting outside its range.
type FieldError struct {
	Field   string // JSON name
	Value   any
	Problem string // the allowed range
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v: %s", e.Field, e.Value, e.Problem)
}

// maxBias bans or forces a token at any sensible temperature, and still leaves a
// float32 logit its fourth decimal.
const maxBias = 1000

// Validate returns a *FieldError for the first setting that is not a number or
// lies outside its range.
func (p Params) Validate() error {
	for _, f := range []struct {
		name     string
		value    float64
		min, max float64
	}{
		{"temperature", p.Temperature, 0, 100},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"typical_p", p.TypicalP, 0, 1},
		{"repeat_penalty", p.RepeatPenalty, 0.01, 100},
		{"presence_penalty", p.PresencePenalty, -100, 100},
		{"frequency_penalty", p.FrequencyPenalty, -100, 100},
	} {
		if !within(f.value, f.min, f.max) {
			return &FieldError{f.name, f.value, fmt.Sprintf("must be from %v to %v", f.min, f.max)}
		}
	}
	for _, f := range []struct {
		name  string
		value int
		min   int
	}{
		{"top_k", p.TopK, 0},
		{"repeat_last_n", p.RepeatLastN, -1},
	} {
		if f.value < f.min || f.value > math.MaxInt32 {
			return &FieldError{f.name, f.value, fmt.Sprintf("must be from %d to %d", f.min, math.MaxInt32)}
		}
	}
	if p.Seed < -1 {
		return &FieldError{"seed", p.Seed, "must be 0 or more, or -1 to have one drawn"}
	}
	for _, id := range slices.Sorted(maps.Keys(p.LogitBias)) {
		if id < 0 {
			return &FieldError{"logit_bias", id, "token ids are 0 or more"}
		}
		if bias := p.LogitBias[id]; !within(bias, -maxBias, maxBias) {
			return &FieldError{"logit_bias", bias, fmt.Sprintf("the bias of token %d must be from %d to %d", id, -maxBias, maxBias)}
		}
	}
	return nil
}

// within is false for NaN.
func within(x, min, max float64) bool { return x >= min && x <= max }
