package view

import (
	"slices"
	"strconv"
	"strings"

	"m40-llm/handlers/inspect"
	"m40-llm/infer/sample"
)

// Stages is the way of a token through the samplers. Without a source, reason says why it is not known;
// ask says that one step of the model shows it, and loaded that the model is loaded.
type Stages struct {
	Source inspect.Source `json:"source,omitempty"`
	Reason string         `json:"reason,omitempty"`
	Ask    bool           `json:"ask,omitempty"`
	Loaded bool           `json:"loaded,omitempty"`
	Stages []Stage        `json:"stages,omitempty"` // the first is the model's own distribution
	Tokens []StageToken   `json:"tokens,omitempty"` // the chosen one, then the likeliest in their order at the end
	Drawn  *sample.Drawn  `json:"drawn,omitempty"`
}

// Stage is one column of the microscope.
type Stage struct {
	Name    string  `json:"name"`
	Value   string  `json:"value,omitempty"` // of its setting
	Kept    int     `json:"kept"`            // candidates after it
	Removed float64 `json:"removed"`         // share of the probability that it removed, or moved
	Moves   bool    `json:"moves,omitempty"` // it removes no candidate
}

// StageToken is one row of the microscope.
type StageToken struct {
	ID   int32     `json:"id"`
	Text string    `json:"text"`
	P    []float64 `json:"p"` // after each stage; 0: removed; -1: less than what is stored
}

// stageNames are what people call the stages.
var stageNames = map[string]string{
	"mask": "Banned text", "logit_bias": "Bias", "penalties": "Penalties", "dry": "DRY", "top_n_sigma": "Top-n-sigma", "top_k": "Top-k",
	"typical_p": "Typical-p", "top_p": "Top-p", "min_p": "Min-p", "xtc": "XTC", "temperature": "Temperature", "mirostat": "Mirostat",
}

// StagesOf describes the way of a token.
func StagesOf(m *inspect.Microscope) Stages {
	v := Stages{Source: m.Source, Reason: m.Reason, Ask: m.NeedsAsk, Loaded: m.Loaded}
	if m.Choice == nil {
		return v
	}
	v.Drawn = m.Choice.Drawn
	v.Stages = []Stage{{Name: "Model", Kept: m.Choice.Drawn.Of}}
	for _, s := range m.Choice.Stages {
		v.Stages = append(v.Stages, Stage{
			Name: stageNames[s.Name], Value: stageValue(s.Name, m.Params), Kept: s.Kept, Removed: s.Removed,
			Moves: s.Name == "logit_bias" || s.Name == "penalties" || s.Name == "dry" || s.Name == "temperature" && (m.Params.Temperature > 0 || m.Params.DynatempRange > 0),
		})
	}
	for i, id := range m.IDs {
		t := StageToken{ID: id, Text: strings.ToValidUTF8(m.Texts[i], "\uFFFD")}
		for _, list := range m.Choice.Followed {
			t.P = append(t.P, list[i])
		}
		v.Tokens = append(v.Tokens, t)
	}
	slices.SortStableFunc(v.Tokens[1:], func(a, b StageToken) int { return compareWays(a.P, b.P) })
	return v
}

// compareWays puts first what is likelier after the last stage in which the two differ.
func compareWays(a, b []float64) int {
	for i := len(a) - 1; i >= 0; i-- {
		switch {
		case a[i] > b[i]:
			return -1
		case a[i] < b[i]:
			return 1
		}
	}
	return 0
}

// stageValue returns the setting of a stage.
func stageValue(name string, p sample.Params) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	switch name {
	case "penalties":
		var on []string
		if p.RepeatPenalty != 1 {
			on = append(on, number(p.RepeatPenalty))
		}
		if p.PresencePenalty != 0 {
			on = append(on, number(p.PresencePenalty))
		}
		if p.FrequencyPenalty != 0 {
			on = append(on, number(p.FrequencyPenalty))
		}
		return strings.Join(on, ", ")
	case "dry":
		return number(p.DryMultiplier)
	case "top_n_sigma":
		return number(p.TopNSigma)
	case "top_k":
		return strconv.Itoa(p.TopK)
	case "typical_p":
		return number(p.TypicalP)
	case "top_p":
		return number(p.TopP)
	case "min_p":
		return number(p.MinP)
	case "xtc":
		return number(p.XTCThreshold)
	case "temperature":
		if p.DynatempRange != 0 {
			return number(p.Temperature) + " ± " + number(p.DynatempRange)
		}
		return number(p.Temperature)
	case "mirostat":
		return number(p.MirostatTau)
	}
	return ""
}
