package view

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"m40-llm/handlers/inspect"
	"m40-llm/infer/sample"
	"m40-llm/web/lang"
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

// stageNames are what people call the stages that Params.Samplers does not list.
var stageNames = map[string]string{"mask": lang.Key("Banned text"), "logit_bias": lang.Key("Bias"), "mirostat": "Mirostat"}

// StagesOf describes the way of a token.
func StagesOf(ctx context.Context, m *inspect.Microscope) Stages {
	v := Stages{Source: m.Source, Reason: lang.Message(ctx, m.Reason), Ask: m.NeedsAsk, Loaded: m.Loaded}
	if m.Choice == nil {
		return v
	}
	v.Drawn = m.Choice.Drawn
	v.Stages = []Stage{{Name: lang.T(ctx, "Model"), Kept: m.Choice.Drawn.Of}}
	for _, s := range m.Choice.Stages {
		v.Stages = append(v.Stages, Stage{
			Name: lang.T(ctx, cmp.Or(stageNames[s.Name], sample.StageLabel(s.Name))), Value: stageValue(s.Name, m.Params), Kept: s.Kept, Removed: s.Removed,
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

// stageValue returns the settings that say how strong a stage is.
func stageValue(name string, p sample.Params) string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	switch {
	case name == "temperature" && p.DynatempRange != 0:
		return number(p.Temperature) + " ± " + number(p.DynatempRange)
	case name == "mirostat":
		return number(p.MirostatTau)
	}
	var on []string
	for _, n := range sample.StageNumbers(name) {
		switch v := n.Get(&p); {
		case v == n.Off:
		case n.Whole:
			on = append(on, strconv.Itoa(int(v)))
		default:
			on = append(on, number(v))
		}
	}
	return strings.Join(on, ", ")
}
