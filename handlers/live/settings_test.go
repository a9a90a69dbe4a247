package live

import (
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
		{"a repeat penalty below 1", "repeat_penalty", func(s *Settings) { s.RepeatPenalty = 0.9 }},
		{"a window below the whole context", "repeat_last_n", func(s *Settings) { s.RepeatLastN = -2 }},
		{"a presence penalty above 2", "presence_penalty", func(s *Settings) { s.PresencePenalty = 2.1 }},
		{"a frequency penalty below -2", "frequency_penalty", func(s *Settings) { s.FrequencyPenalty = -2.1 }},
		{"no tokens at all", "max_tokens", func(s *Settings) { s.MaxTokens = 0 }},
		{"a seed that a browser cannot hold", "seed", func(s *Settings) { s.Seed = MaxSeed + 1 }},
		{"an empty stop string", "stop", func(s *Settings) { s.Stop = []string{"a", ""} }},
		{"a stop string that is too long", "stop", func(s *Settings) { s.Stop = []string{strings.Repeat("a", MaxStopBytes+1)} }},
		{"a stop string that is no text", "stop", func(s *Settings) { s.Stop = []string{"\xff"} }},
		{"too many stop strings", "stop", func(s *Settings) { s.Stop = strings.Split(strings.Repeat("a", MaxStops+1), "") }},
	} {
		s := DefaultSettings()
		c.change(&s)
		var wrong *infer.Error
		if err := s.Validate(); !errors.As(err, &wrong) || wrong.Param != c.field {
			t.Errorf("%s: %v, want an error about %s", c.name, err, c.field)
		}
	}
	s := DefaultSettings()
	s.RepeatLastN, s.MaxTokens, s.Stop = -1, -1, strings.Split(strings.Repeat("a", MaxStops), "")
	if err := s.Validate(); err != nil {
		t.Errorf("the ends of the ranges: %v", err)
	}
}

func TestSettings_AllOfThemReachTheEngineAndTheReceipt(t *testing.T) {
	kept := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: kept})
	want := Settings{
		Temperature: 1.1, TopK: 7, TopP: 0.8, MinP: 0.02, TypicalP: 0.7, RepeatPenalty: 1.2, RepeatLastN: -1,
		PresencePenalty: -0.5, FrequencyPenalty: 0.25, Stop: []string{"\nYou:", "\t\\"}, MaxTokens: 33, Seed: 5,
	}
	c, err := s.Start(Question{Text: "one", Settings: want}, false)
	must(t, err)
	a := <-engine.asked
	params := sample.DefaultParams()
	params.Temperature, params.TopK, params.TopP, params.MinP, params.TypicalP, params.RepeatPenalty, params.RepeatLastN = 1.1, 7, 0.8, 0.02, 0.7, 1.2, -1
	params.PresencePenalty, params.FrequencyPenalty, params.Seed = -0.5, 0.25, 5
	if r := a.request; !reflect.DeepEqual(r.Params, params) || !reflect.DeepEqual(r.Stop, want.Stop) || r.MaxTokens != 33 {
		t.Errorf("the engine was asked with %+v", r)
	}
	a.finish()
	settle(c)
	_, list, err := s.Tree(t.Context(), c.ID())
	must(t, err)
	if got := fromStore(list[1]).Answer.Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("the answer keeps %+v, want %+v", got, want)
	}
}

func TestSettings_OlderReceiptsHaveTheDefaultsOfLaterFields(t *testing.T) {
	old := json.RawMessage(`{"temperature":0.3,"top_k":20,"top_p":0.9,"min_p":0,"repeat_penalty":1.1,"max_tokens":99,"seed":4}`)
	got := fromStore(store.Message{ID: 2, Role: store.RoleAssistant, State: store.Done, Answer: &store.Answer{Settings: old, Seed: 4}}).Answer.Settings
	want := Settings{Temperature: 0.3, TopK: 20, TopP: 0.9, TypicalP: 1, RepeatPenalty: 1.1, RepeatLastN: 64, MaxTokens: 99, Seed: 4}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("an old receipt reads as %+v, want %+v", got, want)
	}
}
