package sample

import (
	"reflect"
	"testing"
)

func TestBasics_AreTheSettingsOfTheStagesThatAreOn(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*Params)
		want *Params // TopK, TopP, MinP and Temperature; nil: other stages are on
	}{
		{"the default settings", func(*Params) {}, &Params{TopK: 40, TopP: 0.95, MinP: 0.05, Temperature: 0.7}},
		{"stages that the order omits", func(p *Params) { p.Samplers = []string{"top_p", "penalties"} }, &Params{TopP: 0.95, Temperature: 1}},
		{"another order", func(p *Params) { p.Samplers = []string{"temperature", "top_k"} }, nil},
		{"another order of stages that are off", func(p *Params) { p.Samplers, p.Temperature = []string{"temperature", "top_k"}, 1 }, &Params{TopK: 40, TopP: 1, Temperature: 1}},
		{"penalties", func(p *Params) { p.RepeatPenalty, p.DryMultiplier = 2, 1 }, &Params{TopK: 40, TopP: 0.95, MinP: 0.05, Temperature: 0.7}},
		{"typical_p", func(p *Params) { p.TypicalP = 0.5 }, nil},
		{"typical_p at temperature 0", func(p *Params) { p.TypicalP, p.Temperature = 0.5, 0 }, &Params{TopP: 1}},
		{"top_n_sigma", func(p *Params) { p.TopNSigma = 1 }, nil},
		{"xtc", func(p *Params) { p.XTCProbability = 0.1 }, nil},
		{"xtc with a threshold that nothing reaches twice", func(p *Params) { p.XTCProbability, p.XTCThreshold = 0.1, 0.6 }, &Params{TopK: 40, TopP: 0.95, MinP: 0.05, Temperature: 0.7}},
		{"a dynamic temperature", func(p *Params) { p.DynatempRange = 0.1 }, nil},
		{"mirostat", func(p *Params) { p.Mirostat = 2 }, nil},
		{"a least number of candidates", func(p *Params) { p.MinKeep = 3 }, nil},
		{"an unknown stage", func(p *Params) { p.Samplers = []string{"top_z"} }, nil},
	} {
		p := DefaultParams()
		tt.set(&p)
		got, ok := p.Basics()
		if ok != (tt.want != nil) {
			t.Errorf("%s: other stages are on: %v", tt.name, !ok)
		}
		if tt.want == nil || !ok {
			continue
		}
		want := p
		want.TopK, want.TopP, want.MinP, want.Temperature = tt.want.TopK, tt.want.TopP, tt.want.MinP, tt.want.Temperature
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}
