package sample

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Params are the sampler settings of one request. Validate checks the ranges.
type Params struct {
	Temperature      float64 `json:"temperature"`       // 0: greedy
	DynatempRange    float64 `json:"dynatemp_range"`    // temperature varies by plus or minus this with the entropy; 0: off
	DynatempExponent float64 `json:"dynatemp_exponent"` // exponent of the relative entropy

	TopK           int     `json:"top_k"`           // 0: off
	TopP           float64 `json:"top_p"`           // 1: off
	MinP           float64 `json:"min_p"`           // 0: off
	TypicalP       float64 `json:"typical_p"`       // 1: off
	TopNSigma      float64 `json:"top_n_sigma"`     // standard deviations; 0: off
	MinKeep        int     `json:"min_keep"`        // least number of candidates that top_p, min_p, typical_p and xtc leave
	Mirostat       int     `json:"mirostat"`        // 0: off, 2: replaces the stages that remove candidates
	MirostatTau    float64 `json:"mirostat_tau"`    // target surprise in bits
	MirostatEta    float64 `json:"mirostat_eta"`    // learning rate
	XTCProbability float64 `json:"xtc_probability"` // 0: off
	XTCThreshold   float64 `json:"xtc_threshold"`   // above 0.5: off

	RepeatPenalty    float64           `json:"repeat_penalty"`       // 1: off
	RepeatLastN      int               `json:"repeat_last_n"`        // window of the three penalties in tokens; 0: off, -1: whole context
	PresencePenalty  float64           `json:"presence_penalty"`     // 0: off
	FrequencyPenalty float64           `json:"frequency_penalty"`    // 0: off
	LogitBias        map[int32]float64 `json:"logit_bias,omitempty"` // added to the logits of these tokens

	DryMultiplier    float64  `json:"dry_multiplier"` // 0: off
	DryBase          float64  `json:"dry_base"`
	DryAllowedLength int      `json:"dry_allowed_length"`    // tokens; longer repetitions are penalised
	DryPenaltyLastN  int      `json:"dry_penalty_last_n"`    // window in tokens; 0: off, -1: whole context
	DryBreakers      []string `json:"dry_sequence_breakers"` // texts that end a repetition

	Samplers []string `json:"samplers,omitempty"` // stages in the order in which they run; omitted ones are off; empty: StageNames
	Seed     int64    `json:"seed"`               // -1: random for each answer
}

// DefaultParams returns the settings for what neither the request nor a preset sets.
func DefaultParams() Params {
	return Params{
		Temperature: 0.7, DynatempExponent: 1, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 1,
		MirostatTau: 5, MirostatEta: 0.1, XTCThreshold: 0.1, RepeatPenalty: 1, RepeatLastN: 64,
		DryBase: 1.75, DryAllowedLength: 2, DryPenaltyLastN: -1, DryBreakers: []string{"\n", ":", "\"", "*"}, Seed: -1,
	}
}

// Truncates reports whether a stage removes candidates. Mirostat replaces such stages.
func Truncates(stage string) bool { return stageOf(stage).cut != nil }

// StageNames returns the stages that Samplers may list, in the default order.
func StageNames() []string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// StageLabel returns what people call a stage.
func StageLabel(stage string) string { return stageOf(stage).label }

// StageNumbers returns the settings that say how strong a stage is.
func StageNumbers(stage string) (list []Number) {
	for _, name := range stageOf(stage).strength {
		list = append(list, numbers[slices.IndexFunc(numbers[:], func(n Number) bool { return n.Name == name })])
	}
	return list
}

func stageOf(name string) stageKind {
	at := slices.IndexFunc(stages[:], func(s stageKind) bool { return s.name == name })
	if at < 0 {
		return stageKind{}
	}
	return stages[at]
}

// stageAliases maps llama.cpp's other names of stages.
var stageAliases = map[string]string{"typ_p": "typical_p", "temp": "temperature"}

// order returns the stages of the chain in their order, or a *FieldError for an unknown or
// repeated name.
func (p Params) order() ([]string, error) {
	known := StageNames()
	if len(p.Samplers) == 0 {
		return known, nil
	}
	var order []string
	for _, name := range p.Samplers {
		if full, ok := stageAliases[name]; ok {
			name = full
		}
		if !slices.Contains(known, name) {
			return nil, &FieldError{"samplers", fmt.Sprintf("%.40q", name), "unknown stage; the stages are " + strings.Join(known, ", ")}
		}
		if slices.Contains(order, name) {
			return nil, &FieldError{"samplers", fmt.Sprintf("%q", name), "a stage may be listed only once; the stages are " + strings.Join(known, ", ")}
		}
		order = append(order, name)
	}
	return order, nil
}

// greedy reports whether the temperature stage leaves only the largest logit.
func (p Params) greedy(order []string) bool {
	return p.Temperature == 0 && p.DynatempRange == 0 && slices.Contains(order, "temperature")
}

// FieldError is returned for a setting outside its range.
type FieldError struct {
	Field   string // JSON name
	Value   any
	Problem string // the allowed range
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s is %v: %s", e.Field, e.Value, e.Problem)
}

// MaxBias is large enough to ban or force a token at any sensible temperature, and small
// enough for a float32 logit to keep four decimals.
const MaxBias = 1000

// Limits of dry_sequence_breakers, well above common use.
const (
	maxBreakers     = 64
	maxBreakerBytes = 40
)

// Validate returns a *FieldError for the first setting that is NaN or outside its range.
func (p Params) Validate() error {
	for _, n := range numbers {
		if err := n.check(&p); err != nil {
			return err
		}
	}
	if p.Mirostat != 0 && p.Mirostat != 2 {
		return &FieldError{"mirostat", p.Mirostat, "must be 0 (off) or 2"}
	}
	if n := len(p.DryBreakers); n > maxBreakers {
		return &FieldError{"dry_sequence_breakers", fmt.Sprintf("%d texts", n), fmt.Sprintf("give at most %d", maxBreakers)}
	}
	for i, text := range p.DryBreakers {
		if text == "" || len(text) > maxBreakerBytes {
			return &FieldError{"dry_sequence_breakers", fmt.Sprintf("%.40q", text), fmt.Sprintf("text %d has %d bytes: must be from 1 to %d", i+1, len(text), maxBreakerBytes)}
		}
	}
	if _, err := p.order(); err != nil {
		return err
	}
	if p.Seed < -1 {
		return &FieldError{"seed", p.Seed, "must be 0 or more, or -1 to have one drawn"}
	}
	for _, id := range slices.Sorted(maps.Keys(p.LogitBias)) {
		if id < 0 {
			return &FieldError{"logit_bias", id, "token ids are 0 or more"}
		}
		if bias := p.LogitBias[id]; !inRange(bias, -MaxBias, MaxBias) {
			return &FieldError{"logit_bias", bias, fmt.Sprintf("the bias of token %d must be from %d to %d", id, -MaxBias, MaxBias)}
		}
	}
	return nil
}

// inRange returns false for NaN.
func inRange(x, min, max float64) bool { return x >= min && x <= max }
