package sample

import (
	"fmt"
	"math"
)

// Number describes a numeric setting of Params: its range and its presentation to users.
type Number struct {
	Name     string // JSON name
	Min, Max float64
	Whole    bool    // the value is an integer
	Off      float64 // value that disables the setting; NaN: none
	About    string  // description, one line

	DependsOn string // setting that must be on for this one to have an effect; empty: none
	Truncates bool   // belongs to a stage that removes candidates, which mirostat replaces

	real  func(*Params) *float64
	whole func(*Params) *int
}

// Get returns the value of the setting in p.
func (n Number) Get(p *Params) float64 {
	if n.Whole {
		return float64(*n.whole(p))
	}
	return *n.real(p)
}

// Set sets the setting in p to v, which must be an integer if Whole is true.
func (n Number) Set(p *Params, v float64) {
	if n.Whole {
		*n.whole(p) = int(v)
	} else {
		*n.real(p) = v
	}
}

// Idle reports whether the setting has no effect in p.
func (n Number) Idle(p *Params) bool {
	if n.DependsOn != "" {
		for _, other := range numbers {
			if other.Name == n.DependsOn && other.Idle(p) {
				return true
			}
		}
	}
	return n.Get(p) == n.Off
}

func (n Number) check(p *Params) error {
	v := n.Get(p)
	switch {
	case inRange(v, n.Min, n.Max):
		return nil
	case n.Whole:
		return &FieldError{n.Name, *n.whole(p), fmt.Sprintf("must be from %d to %d", int(n.Min), int(n.Max))}
	}
	return &FieldError{n.Name, v, fmt.Sprintf("must be from %v to %v", n.Min, n.Max)}
}

// Numbers returns all numeric settings but the seed, the common ones first. The caller must
// not modify the slice.
func Numbers() []Number { return numbers[:] }

var none = math.NaN()

var numbers = [...]Number{
	{Name: "temperature", Min: 0, Max: 20, Off: none, real: func(p *Params) *float64 { return &p.Temperature },
		About: "Low: the likeliest tokens. High: rarer ones too. 0: always the likeliest"},
	{Name: "top_k", Min: 0, Max: math.MaxInt32, Whole: true, Off: 0, Truncates: true, whole: func(p *Params) *int { return &p.TopK },
		About: "Keeps this many of the likeliest tokens"},
	{Name: "top_p", Min: 0, Max: 1, Off: 1, Truncates: true, real: func(p *Params) *float64 { return &p.TopP },
		About: "Keeps the likeliest tokens until their probabilities add up to this"},
	{Name: "min_p", Min: 0, Max: 1, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.MinP },
		About: "Keeps tokens at least this likely, relative to the likeliest"},
	{Name: "repeat_penalty", Min: 0.01, Max: 100, Off: 1, real: func(p *Params) *float64 { return &p.RepeatPenalty },
		About: "Makes tokens that were used lately less likely"},

	{Name: "top_n_sigma", Min: 0, Max: 100, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.TopNSigma },
		About: "Keeps tokens whose logit is at most this many standard deviations below the best"},
	{Name: "typical_p", Min: 0, Max: 1, Off: 1, Truncates: true, real: func(p *Params) *float64 { return &p.TypicalP },
		About: "Keeps the tokens whose surprise is nearest to the average, up to this share"},
	{Name: "min_keep", Min: 0, Max: math.MaxInt32, Whole: true, Off: 0, Truncates: true, whole: func(p *Params) *int { return &p.MinKeep },
		About: "The samplers that cut by probability leave at least this many tokens"},

	{Name: "xtc_probability", Min: 0, Max: 1, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.XTCProbability },
		About: "How often the likeliest tokens are left out, so that a good but rarer one comes"},
	{Name: "xtc_threshold", Min: 0, Max: 1, Off: none, DependsOn: "xtc_probability", Truncates: true, real: func(p *Params) *float64 { return &p.XTCThreshold },
		About: "Of the tokens at least this likely, XTC leaves the least likely one"},
	{Name: "dynatemp_range", Min: 0, Max: 20, Off: 0, real: func(p *Params) *float64 { return &p.DynatempRange },
		About: "Temperature goes this far up where the model is unsure, and down where it is sure"},
	{Name: "dynatemp_exponent", Min: 0, Max: 100, Off: none, DependsOn: "dynatemp_range", real: func(p *Params) *float64 { return &p.DynatempExponent },
		About: "Above 1, only where the model is very unsure does the temperature go up"},
	{Name: "mirostat", Min: 0, Max: 2, Whole: true, Off: 0, whole: func(p *Params) *int { return &p.Mirostat },
		About: "Keeps the surprise of the text even, in place of the samplers that cut"},
	{Name: "mirostat_tau", Min: 0, Max: 100, Off: none, DependsOn: "mirostat", real: func(p *Params) *float64 { return &p.MirostatTau },
		About: "The surprise that mirostat aims at, in bits for each token"},
	{Name: "mirostat_eta", Min: 0, Max: 100, Off: none, DependsOn: "mirostat", real: func(p *Params) *float64 { return &p.MirostatEta },
		About: "How fast mirostat corrects itself"},

	{Name: "repeat_last_n", Min: -1, Max: math.MaxInt32, Whole: true, Off: 0, whole: func(p *Params) *int { return &p.RepeatLastN },
		About: "How many of the last tokens the three penalties look at; -1 for all, 0 for none"},
	{Name: "presence_penalty", Min: -100, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.PresencePenalty },
		About: "Makes tokens less likely that stand in the window at all; below 0 likelier"},
	{Name: "frequency_penalty", Min: -100, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.FrequencyPenalty },
		About: "Makes tokens less likely for each time they stand in the window; below 0 likelier"},
	{Name: "dry_multiplier", Min: 0, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.DryMultiplier },
		About: "Makes a token less likely that would repeat a passage, the longer the passage"},
	{Name: "dry_base", Min: 1, Max: 100, Off: none, DependsOn: "dry_multiplier", real: func(p *Params) *float64 { return &p.DryBase },
		About: "The penalty of DRY grows by this factor with each token of the passage"},
	{Name: "dry_allowed_length", Min: 0, Max: math.MaxInt32, Whole: true, Off: none, DependsOn: "dry_multiplier", whole: func(p *Params) *int { return &p.DryAllowedLength },
		About: "Passages of up to this many tokens may be repeated"},
	{Name: "dry_penalty_last_n", Min: -1, Max: math.MaxInt32, Whole: true, Off: 0, DependsOn: "dry_multiplier", whole: func(p *Params) *int { return &p.DryPenaltyLastN },
		About: "How many of the last tokens DRY looks at; -1 for all, 0 for none"},
}
