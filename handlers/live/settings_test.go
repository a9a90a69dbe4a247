package live

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

func TestSettings_AllOfThemReachTheEngineAndTheReceipt(t *testing.T) {
	db := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: db})
	want := setting.Settings{
		Params: sample.Params{
			Temperature: 1.1, DynatempRange: 0.3, DynatempExponent: 1.5, TopK: 7, TopP: 0.8, MinP: 0.02, TypicalP: 0.7, TopNSigma: 1.5, MinKeep: 2,
			Mirostat: 2, MirostatTau: 4, MirostatEta: 0.2, XTCProbability: 0.5, XTCThreshold: 0.2, RepeatPenalty: 1.2, RepeatLastN: -1,
			PresencePenalty: -0.5, FrequencyPenalty: 0.25, DryMultiplier: 0.8, DryBase: 2, DryAllowedLength: 3, DryPenaltyLastN: 512,
			DryBreakers: []string{"\n"}, Samplers: []string{"top_k", "temperature"}, Seed: 5,
		},
		Stop: []string{"\nYou:", "\t\\"}, BannedStrings: []string{"shivers"}, Thinking: setting.ThinkingOff, MaxTokens: 33, ThinkingBudget: 90, PauseRepetition: 1, Tools: weather, MustCall: 1,
		OutputFormat: setting.OutputFormat{Type: setting.OutputSchema, Schema: `{"type":"object"}`},
		TokenBiases:  []setting.TokenBias{{ID: 7, Text: " fox", Model: engine.Status().Model.Name, Bias: -2}, {ID: 8, Text: " cat", Model: "another", Bias: 1}},
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
	want.LogitBias = map[int32]float64{7: -2} // the other one is a token of another model
	variables := map[string]json.RawMessage{"enable_thinking": json.RawMessage("false"), "thinking": json.RawMessage("false")}
	if r := a.request; !reflect.DeepEqual(r.Params, want.Params) || !reflect.DeepEqual(r.Stop, want.Stop) || !reflect.DeepEqual(r.BannedStrings, want.BannedStrings) || !reflect.DeepEqual(r.TemplateVars, variables) || r.MaxTokens != 33 || r.ReasoningBudget == nil || *r.ReasoningBudget != 90 || string(r.Tools) != weather || string(r.JSONSchema) != `{"type":"object"}` || r.ContinueForm || r.ToolChoice != infer.ToolChoiceRequired {
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
	want := setting.Default()
	want.Temperature, want.TopK, want.TopP, want.MinP, want.RepeatPenalty, want.MaxTokens, want.Seed = 0.3, 20, 0.9, 0, 1.1, 99, 4
	if !reflect.DeepEqual(got, want) {
		t.Errorf("an old receipt reads as %+v, want %+v", got, want)
	}
}
