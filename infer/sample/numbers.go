package sample

import (
	"fmt"
	"math"
)

// Number describes a numeric setting of Params: its range and its presentation to users. Flags of commands, the settings
// of the page, and what other engines are sent are made of it.
type Number struct {
	Name     string // JSON name
	Min, Max float64
	Whole    bool    // the value is an integer
	Off      float64 // value that disables the setting; NaN: none
	Label    string  // what people call it
	About    string  // description, one line
	Slider   Slider

	DependsOn string // setting that must be on for this one to have an effect; empty: none
	Truncates bool   // belongs to a stage that removes candidates, which mirostat replaces

	real  func(*Params) *float64
	whole func(*Params) *int
}

// Groups of settings. Those of Everyday are always visible.
const (
	Everyday   = ""
	Cutting    = "Cutting"
	Variety    = "Variety"
	Repetition = "Repetition"
)

// Slider is the control of a setting. Its ends cover the useful values.
type Slider struct {
	Group        string
	Lo, Hi, Step float64
	Digits       int     // decimals shown
	Logarithmic  bool    // the axis is logarithmic
	OffAt        float64 // value shown as the word Off
	Off          string  // empty: no value is shown as a word
	On           float64 // of a switch, in place of a slider: the value when it is on
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
func (n Number) Idle(p *Params) bool { return n.WithoutSampler(p) || n.Get(p) == n.Off }

// WithoutSampler reports whether the setting that this one depends on is off in p.
func (n Number) WithoutSampler(p *Params) bool {
	for _, other := range Numbers() {
		if other.Name == n.DependsOn {
			return other.Idle(p)
		}
	}
	return false
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
	{Name: "temperature", Label: "Temperature", Min: 0, Max: 20, Off: none, real: func(p *Params) *float64 { return &p.Temperature },
		About:  "Low: the likeliest tokens. High: rarer ones too. 0: always the likeliest",
		Slider: Slider{Hi: 2, Step: 0.01, Digits: 2, Off: "always the likeliest"}},
	{Name: "top_k", Label: "Top-k", Min: 0, Max: math.MaxInt32, Whole: true, Off: 0, Truncates: true, whole: func(p *Params) *int { return &p.TopK },
		About:  "Keeps this many of the likeliest tokens",
		Slider: Slider{Lo: 1, Hi: 1000, Step: 1, Logarithmic: true, Off: "off"}},
	{Name: "top_p", Label: "Top-p", Min: 0, Max: 1, Off: 1, Truncates: true, real: func(p *Params) *float64 { return &p.TopP },
		About:  "Keeps the likeliest tokens until their probabilities add up to this",
		Slider: Slider{Hi: 1, Step: 0.01, Digits: 2, OffAt: 1, Off: "off"}},
	{Name: "min_p", Label: "Min-p", Min: 0, Max: 1, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.MinP },
		About:  "Keeps tokens at least this likely, relative to the likeliest",
		Slider: Slider{Hi: 0.3, Step: 0.005, Digits: 3, Off: "off"}},
	{Name: "repeat_penalty", Label: "Repeat penalty", Min: 0.01, Max: 100, Off: 1, real: func(p *Params) *float64 { return &p.RepeatPenalty },
		About:  "Makes tokens that were used lately less likely",
		Slider: Slider{Lo: 1, Hi: 1.5, Step: 0.01, Digits: 2, OffAt: 1, Off: "off"}},

	{Name: "top_n_sigma", Label: "Top-nσ", Min: 0, Max: 100, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.TopNSigma },
		About:  "Keeps tokens whose logit is at most this many standard deviations below the best",
		Slider: Slider{Group: Cutting, Hi: 4, Step: 0.05, Digits: 2, Off: "off"}},
	{Name: "typical_p", Label: "Typical-p", Min: 0, Max: 1, Off: 1, Truncates: true, real: func(p *Params) *float64 { return &p.TypicalP },
		About:  "Keeps the tokens whose surprise is nearest to the average, up to this share",
		Slider: Slider{Group: Cutting, Hi: 1, Step: 0.01, Digits: 2, OffAt: 1, Off: "off"}},
	{Name: "min_keep", Label: "Min-keep", Min: 0, Max: math.MaxInt32, Whole: true, Off: 0, Truncates: true, whole: func(p *Params) *int { return &p.MinKeep },
		About:  "The samplers that cut by probability leave at least this many tokens",
		Slider: Slider{Group: Cutting, Hi: 20, Step: 1, Off: "off"}},

	{Name: "xtc_probability", Label: "XTC probability", Min: 0, Max: 1, Off: 0, Truncates: true, real: func(p *Params) *float64 { return &p.XTCProbability },
		About:  "How often the likeliest tokens are left out, so that a good but rarer one comes",
		Slider: Slider{Group: Variety, Hi: 1, Step: 0.01, Digits: 2, Off: "off"}},
	{Name: "xtc_threshold", Label: "XTC threshold", Min: 0, Max: 1, Off: none, DependsOn: "xtc_probability", Truncates: true, real: func(p *Params) *float64 { return &p.XTCThreshold },
		About:  "Of the tokens at least this likely, XTC leaves the least likely one",
		Slider: Slider{Group: Variety, Hi: 0.5, Step: 0.01, Digits: 2}},
	{Name: "dynatemp_range", Label: "Dynamic temperature", Min: 0, Max: 20, Off: 0, real: func(p *Params) *float64 { return &p.DynatempRange },
		About:  "Temperature goes this far up where the model is unsure, and down where it is sure",
		Slider: Slider{Group: Variety, Hi: 2, Step: 0.01, Digits: 2, Off: "off"}},
	{Name: "dynatemp_exponent", Label: "Dynamic temperature exponent", Min: 0, Max: 100, Off: none, DependsOn: "dynatemp_range", real: func(p *Params) *float64 { return &p.DynatempExponent },
		About:  "Above 1, only where the model is very unsure does the temperature go up",
		Slider: Slider{Group: Variety, Hi: 4, Step: 0.05, Digits: 2}},
	{Name: "mirostat", Label: "Mirostat 2", Min: 0, Max: 2, Whole: true, Off: 0, whole: func(p *Params) *int { return &p.Mirostat },
		About:  "Keeps the surprise of the text even, in place of the samplers that cut",
		Slider: Slider{Group: Variety, Hi: 2, On: 2, Off: "off"}},
	{Name: "mirostat_tau", Label: "Mirostat target", Min: 0, Max: 100, Off: none, DependsOn: "mirostat", real: func(p *Params) *float64 { return &p.MirostatTau },
		About:  "The surprise that mirostat aims at, in bits for each token",
		Slider: Slider{Group: Variety, Hi: 10, Step: 0.1, Digits: 1}},
	{Name: "mirostat_eta", Label: "Mirostat learning rate", Min: 0, Max: 100, Off: none, DependsOn: "mirostat", real: func(p *Params) *float64 { return &p.MirostatEta },
		About:  "How fast mirostat corrects itself",
		Slider: Slider{Group: Variety, Hi: 1, Step: 0.01, Digits: 2}},

	{Name: "presence_penalty", Label: "Presence penalty", Min: -100, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.PresencePenalty },
		About:  "Makes tokens less likely that stand in the window at all; below 0 likelier",
		Slider: Slider{Group: Repetition, Lo: -2, Hi: 2, Step: 0.01, Digits: 2, Off: "off"}},
	{Name: "frequency_penalty", Label: "Frequency penalty", Min: -100, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.FrequencyPenalty },
		About:  "Makes tokens less likely for each time they stand in the window; below 0 likelier",
		Slider: Slider{Group: Repetition, Lo: -2, Hi: 2, Step: 0.01, Digits: 2, Off: "off"}},
	{Name: "repeat_last_n", Label: "Penalty window", Min: -1, Max: math.MaxInt32, Whole: true, Off: 0, whole: func(p *Params) *int { return &p.RepeatLastN },
		About:  "How many of the last tokens the three penalties look at; -1 for all, 0 for none",
		Slider: Slider{Group: Repetition, Lo: 1, Hi: 4096, Step: 1, Logarithmic: true, OffAt: -1, Off: "all tokens"}},
	{Name: "dry_multiplier", Label: "DRY", Min: 0, Max: 100, Off: 0, real: func(p *Params) *float64 { return &p.DryMultiplier },
		About:  "Makes a token less likely that would repeat a passage, the longer the passage",
		Slider: Slider{Group: Repetition, Hi: 2, Step: 0.05, Digits: 2, Off: "off"}},
	{Name: "dry_base", Label: "DRY base", Min: 1, Max: 100, Off: none, DependsOn: "dry_multiplier", real: func(p *Params) *float64 { return &p.DryBase },
		About:  "The penalty of DRY grows by this factor with each token of the passage",
		Slider: Slider{Group: Repetition, Lo: 1, Hi: 4, Step: 0.05, Digits: 2}},
	{Name: "dry_allowed_length", Label: "DRY allowed length", Min: 0, Max: math.MaxInt32, Whole: true, Off: none, DependsOn: "dry_multiplier", whole: func(p *Params) *int { return &p.DryAllowedLength },
		About:  "Passages of up to this many tokens may be repeated",
		Slider: Slider{Group: Repetition, Hi: 20, Step: 1}},
	{Name: "dry_penalty_last_n", Label: "DRY window", Min: -1, Max: math.MaxInt32, Whole: true, Off: 0, DependsOn: "dry_multiplier", whole: func(p *Params) *int { return &p.DryPenaltyLastN },
		About:  "How many of the last tokens DRY looks at; -1 for all, 0 for none",
		Slider: Slider{Group: Repetition, Lo: 1, Hi: 4096, Step: 1, Logarithmic: true, OffAt: -1, Off: "all tokens"}},
}
