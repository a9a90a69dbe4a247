package setting

import (
	"errors"
	"math"
	"strings"
	"testing"

	"m40-llm/infer/fault"
)

func TestTheFirstFieldThatIsWrongIsNamed(t *testing.T) {
	if err := Default().Validate(); err != nil {
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
		{"a bias without the name of its model", "token_biases", func(s *Settings) { s.TokenBiases = []TokenBias{{ID: 1, Bias: 1}} }},
		{"a bias of a token below 0", "token_biases", func(s *Settings) { s.TokenBiases = []TokenBias{{ID: -1, Model: "m"}} }},
		{"a bias that is no number", "token_biases", func(s *Settings) { s.TokenBiases = []TokenBias{{Model: "m", Bias: math.NaN()}} }},
		{"a bias that is too large", "token_biases", func(s *Settings) { s.TokenBiases = []TokenBias{{Model: "m", Bias: 1001}} }},
		{"a biased token whose text is none", "token_biases", func(s *Settings) { s.TokenBiases = []TokenBias{{Model: "m", Text: "\xff"}} }},
		{"too many biased tokens", "token_biases", func(s *Settings) { s.TokenBiases = make([]TokenBias, MaxTokenBiases+1) }},
		{"a bias without the token's text", "logit_bias", func(s *Settings) { s.LogitBias = map[int32]float64{1: 1} }},
		{"a word for thinking that there is not", "thinking", func(s *Settings) { s.Thinking = "maybe" }},
		{"too many tokens", "max_tokens", func(s *Settings) { s.MaxTokens = MaxTokens + 1 }},
		{"an empty banned string", "banned_strings", func(s *Settings) { s.BannedStrings = []string{""} }},
		{"a breaker that is no text", "dry_sequence_breakers", func(s *Settings) { s.DryBreakers = []string{"\xff"} }},
		{"no tokens at all", "max_tokens", func(s *Settings) { s.MaxTokens = 0 }},
		{"a seed that a browser cannot hold", "seed", func(s *Settings) { s.Seed = MaxSeed + 1 }},
		{"an empty stop string", "stop", func(s *Settings) { s.Stop = []string{"a", ""} }},
		{"a stop string that is too long", "stop", func(s *Settings) { s.Stop = []string{strings.Repeat("a", Stops.Bytes+1)} }},
		{"neither paused nor not", "pause_repetition", func(s *Settings) { s.PauseRepetition = 2 }},
		{"a budget of thoughts below 0", "thinking_budget", func(s *Settings) { s.ThinkingBudget = -1 }},
		{"an unknown output format", "output_format", func(s *Settings) { s.OutputFormat.Type = "xml" }},
		{"a schema of text", "output_format", func(s *Settings) { s.OutputFormat.Schema = "{}" }},
		{"a grammar of a schema", "output_format", func(s *Settings) {
			s.OutputFormat = OutputFormat{Type: OutputSchema, Schema: "{}", Grammar: "root ::= \"a\""}
		}},
		{"an empty schema", "output_format", func(s *Settings) { s.OutputFormat.Type = OutputSchema }},
		{"a schema that is no JSON", "output_format", func(s *Settings) { s.OutputFormat = OutputFormat{Type: OutputSchema, Schema: "{\n]"} }},
		{"a schema that nothing matches", "output_format", func(s *Settings) { s.OutputFormat = OutputFormat{Type: OutputSchema, Schema: `{"type":"house"}`} }},
		{"a schema that cannot be enforced", "output_format", func(s *Settings) {
			s.OutputFormat = OutputFormat{Type: OutputSchema, Schema: `{"type":"object","if":{"required":["a"]}}`}
		}},
		{"an empty grammar", "output_format", func(s *Settings) { s.OutputFormat.Type = OutputGrammar }},
		{"a grammar without root", "output_format", func(s *Settings) { s.OutputFormat = OutputFormat{Type: OutputGrammar, Grammar: `a ::= "b"`} }},
		{"a schema that is too long", "output_format", func(s *Settings) {
			s.OutputFormat = OutputFormat{Type: OutputSchema, Schema: `{"title":"` + strings.Repeat("a", FormatBytes) + `"}`}
		}},
		{"a grammar that is no text", "output_format", func(s *Settings) { s.OutputFormat = OutputFormat{Type: OutputGrammar, Grammar: "root ::= \"\xff\""} }},
		{"a grammar of an answer that must be a call", "output_format", func(s *Settings) {
			s.OutputFormat, s.MustCall = OutputFormat{Type: OutputGrammar, Grammar: `root ::= "a"`}, 1
			s.Tools = `[{"type": "function", "function": {"name": "weather"}}]`
		}},
		{"neither a call nor none", "must_call", func(s *Settings) { s.MustCall = 2 }},
		{"tools that are no JSON", "tools", func(s *Settings) { s.Tools = "[" }},
		{"a stop string that is no text", "stop", func(s *Settings) { s.Stop = []string{"\xff"} }},
		{"too many stop strings", "stop", func(s *Settings) { s.Stop = strings.Split(strings.Repeat("a", Stops.Most+1), "") }},
	} {
		s := Default()
		c.change(&s)
		var wrong *fault.Error
		if err := s.Validate(); !errors.As(err, &wrong) || wrong.Param != c.field {
			t.Errorf("%s: %v, want an error about %s", c.name, err, c.field)
		}
	}
	s := Default()
	s.RepeatLastN, s.MaxTokens, s.Stop = -1, -1, strings.Split(strings.Repeat("a", Stops.Most), "")
	if err := s.Validate(); err != nil {
		t.Errorf("the ends of the ranges: %v", err)
	}
}
