package live

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

func TestSettings_TheFirstFieldThatIsWrongIsNamed(t *testing.T) {
	if err := DefaultSettings().Validate(); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	for _, c := range []struct {
		name, field string
		change      func(*Settings)
	}{
		{"a temperature that is no number", "temperature", func(s *Settings) { s.Temperature = math.NaN() }},
		{"a top-k below 0", "top_k", func(s *Settings) { s.TopK = -1 }},
		{"a top-p above 1", "top_p", func(s *Settings) { s.TopP = 1.01 }},
		{"a min-p below 0", "min_p", func(s *Settings) { s.MinP = -0.1 }},
		{"a typical-p above 1", "typical_p", func(s *Settings) { s.TypicalP = 2 }},
		{"a repeat penalty of 0", "repeat_penalty", func(s *Settings) { s.RepeatPenalty = 0 }},
		{"a window below the whole context", "repeat_last_n", func(s *Settings) { s.RepeatLastN = -2 }},
		{"a presence penalty above 100", "presence_penalty", func(s *Settings) { s.PresencePenalty = 101 }},
		{"a frequency penalty below -100", "frequency_penalty", func(s *Settings) { s.FrequencyPenalty = -101 }},
		{"an unknown stage", "samplers", func(s *Settings) { s.Samplers = []string{"top_z"} }},
		{"the first mirostat", "mirostat", func(s *Settings) { s.Mirostat = 1 }},
		{"a bias, which the page cannot show", "logit_bias", func(s *Settings) { s.LogitBias = map[int32]float64{1: 1} }},
		{"a word for thinking that there is not", "thinking", func(s *Settings) { s.Thinking = "maybe" }},
		{"too many tokens", "max_tokens", func(s *Settings) { s.MaxTokens = MaxTokens + 1 }},
		{"an empty banned string", "banned_strings", func(s *Settings) { s.BannedStrings = []string{""} }},
		{"a breaker that is no text", "dry_sequence_breakers", func(s *Settings) { s.DryBreakers = []string{"\xff"} }},
		{"no tokens at all", "max_tokens", func(s *Settings) { s.MaxTokens = 0 }},
		{"a seed that a browser cannot hold", "seed", func(s *Settings) { s.Seed = MaxSeed + 1 }},
		{"an empty stop string", "stop", func(s *Settings) { s.Stop = []string{"a", ""} }},
		{"a stop string that is too long", "stop", func(s *Settings) { s.Stop = []string{strings.Repeat("a", Stops.Bytes+1)} }},
		{"neither paused nor not", "pause_repetition", func(s *Settings) { s.PauseRepetition = 2 }},
		{"neither a call nor none", "must_call", func(s *Settings) { s.MustCall = 2 }},
		{"tools that are no JSON", "tools", func(s *Settings) { s.Tools = "[" }},
		{"a stop string that is no text", "stop", func(s *Settings) { s.Stop = []string{"\xff"} }},
		{"too many stop strings", "stop", func(s *Settings) { s.Stop = strings.Split(strings.Repeat("a", Stops.Most+1), "") }},
	} {
		s := DefaultSettings()
		c.change(&s)
		var wrong *infer.Error
		if err := s.Validate(); !errors.As(err, &wrong) || wrong.Param != c.field {
			t.Errorf("%s: %v, want an error about %s", c.name, err, c.field)
		}
	}
	s := DefaultSettings()
	s.RepeatLastN, s.MaxTokens, s.Stop = -1, -1, strings.Split(strings.Repeat("a", Stops.Most), "")
	if err := s.Validate(); err != nil {
		t.Errorf("the ends of the ranges: %v", err)
	}
}

func TestSettings_AllOfThemReachTheEngineAndTheReceipt(t *testing.T) {
	db := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: db})
	want := Settings{
		Params: sample.Params{
			Temperature: 1.1, DynatempRange: 0.3, DynatempExponent: 1.5, TopK: 7, TopP: 0.8, MinP: 0.02, TypicalP: 0.7, TopNSigma: 1.5, MinKeep: 2,
			Mirostat: 2, MirostatTau: 4, MirostatEta: 0.2, XTCProbability: 0.5, XTCThreshold: 0.2, RepeatPenalty: 1.2, RepeatLastN: -1,
			PresencePenalty: -0.5, FrequencyPenalty: 0.25, DryMultiplier: 0.8, DryBase: 2, DryAllowedLength: 3, DryPenaltyLastN: 512,
			DryBreakers: []string{"\n"}, Samplers: []string{"top_k", "temperature"}, Seed: 5,
		},
		Stop: []string{"\nYou:", "\t\\"}, BannedStrings: []string{"shivers"}, Thinking: ThinkingOff, MaxTokens: 33, PauseRepetition: 1, Tools: weather, MustCall: 1,
	}
	for _, v := range []reflect.Value{reflect.ValueOf(want), reflect.ValueOf(want.Params)} {
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "LogitBias" {
				t.Errorf("%s is not set: the test does not see it", name)
			}
		}
	}
	c, err := s.Start(context.Background(), me, Question{Text: "one", Settings: want}, false)
	must(t, err)
	a := <-engine.asked
	variables := map[string]json.RawMessage{"enable_thinking": json.RawMessage("false"), "thinking": json.RawMessage("false")}
	if r := a.request; !reflect.DeepEqual(r.Params, want.Params) || !reflect.DeepEqual(r.Stop, want.Stop) || !reflect.DeepEqual(r.BannedStrings, want.BannedStrings) || !reflect.DeepEqual(r.TemplateVars, variables) || r.MaxTokens != 33 || string(r.Tools) != weather || r.ToolChoice != infer.ToolChoiceRequired {
		t.Errorf("the engine was asked with %+v", r)
	}
	a.write("Yes.")
	a.finish()
	settle(c)
	if r, err := c.Recipe(context.Background(), me, 2); err != nil || !reflect.DeepEqual(r.TemplateVars, variables) || !reflect.DeepEqual(r.BannedStrings, want.BannedStrings) {
		t.Errorf("the recipe is %+v, %v", r, err)
	}
	_, list, err := s.Tree(t.Context(), me, c.ID())
	must(t, err)
	if got := fromStore(list[1]).Answer.Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("the answer keeps %+v, want %+v", got, want)
	}
}

func TestSettings_OlderReceiptsHaveTheDefaultsOfLaterFields(t *testing.T) {
	old := json.RawMessage(`{"temperature":0.3,"top_k":20,"top_p":0.9,"min_p":0,"repeat_penalty":1.1,"max_tokens":99,"seed":4}`)
	got := fromStore(store.Message{ID: 2, Role: store.RoleAssistant, State: store.Done, Answer: &store.Answer{Settings: old, Seed: 4}}).Answer.Settings
	want := DefaultSettings()
	want.Temperature, want.TopK, want.TopP, want.MinP, want.RepeatPenalty, want.MaxTokens, want.Seed = 0.3, 20, 0.9, 0, 1.1, 99, 4
	if !reflect.DeepEqual(got, want) {
		t.Errorf("an old receipt reads as %+v, want %+v", got, want)
	}
}
