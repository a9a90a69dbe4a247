package sample

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParams_Validate(t *testing.T) {
	type set = func(*Params)
	for name, tt := range map[string]struct {
		set   set
		field string // empty: allowed
		says  string
	}{
		"the defaults": {func(p *Params) {}, "", ""},
		"every field at its lowest": {func(p *Params) {
			*p = Params{RepeatPenalty: 0.01, RepeatLastN: -1, PresencePenalty: -100, FrequencyPenalty: -100, LogitBias: map[int32]float64{0: -1000}, Seed: -1}
		}, "", ""},
		"every field at its highest": {func(p *Params) {
			*p = Params{100, math.MaxInt32, 1, 1, 1, 100, math.MaxInt32, 100, 100, map[int32]float64{math.MaxInt32: 1000}, math.MaxInt64}
		}, "", ""},
		"a negative temperature":         {func(p *Params) { p.Temperature = -0.1 }, "temperature", "temperature is -0.1: must be from 0 to 100"},
		"a temperature that is NaN":      {func(p *Params) { p.Temperature = math.NaN() }, "temperature", "temperature is NaN"},
		"an infinite temperature":        {func(p *Params) { p.Temperature = math.Inf(1) }, "temperature", "temperature is +Inf"},
		"a negative top_k":               {func(p *Params) { p.TopK = -1 }, "top_k", "top_k is -1: must be from 0 to 2147483647"},
		"a top_k past int32":             {func(p *Params) { p.TopK = 1 << 31 }, "top_k", "2147483648"},
		"a top_p above 1":                {func(p *Params) { p.TopP = 1.5 }, "top_p", "top_p is 1.5: must be from 0 to 1"},
		"a top_p that is NaN":            {func(p *Params) { p.TopP = math.NaN() }, "top_p", "NaN"},
		"a negative min_p":               {func(p *Params) { p.MinP = -1 }, "min_p", "from 0 to 1"},
		"a min_p that is NaN":            {func(p *Params) { p.MinP = math.NaN() }, "min_p", "NaN"},
		"a typical_p above 1":            {func(p *Params) { p.TypicalP = 2 }, "typical_p", "from 0 to 1"},
		"a repeat_penalty of 0":          {func(p *Params) { p.RepeatPenalty = 0 }, "repeat_penalty", "repeat_penalty is 0: must be from 0.01 to 100"},
		"a negative repeat_penalty":      {func(p *Params) { p.RepeatPenalty = -1 }, "repeat_penalty", "-1"},
		"an infinite repeat_penalty":     {func(p *Params) { p.RepeatPenalty = math.Inf(1) }, "repeat_penalty", "+Inf"},
		"a repeat_last_n below -1":       {func(p *Params) { p.RepeatLastN = -2 }, "repeat_last_n", "from -1 to"},
		"a huge presence_penalty":        {func(p *Params) { p.PresencePenalty = 1e9 }, "presence_penalty", "from -100 to 100"},
		"an infinite frequency_penalty":  {func(p *Params) { p.FrequencyPenalty = math.Inf(-1) }, "frequency_penalty", "-Inf"},
		"a seed below -1":                {func(p *Params) { p.Seed = -2 }, "seed", "seed is -2: must be 0 or more, or -1 to have one drawn"},
		"a bias of a negative token":     {func(p *Params) { p.LogitBias = map[int32]float64{-5: 1} }, "logit_bias", "-5"},
		"a bias that is NaN":             {func(p *Params) { p.LogitBias = map[int32]float64{7: math.NaN()} }, "logit_bias", "the bias of token 7 must be from -1000 to 1000"},
		"an infinite bias":               {func(p *Params) { p.LogitBias = map[int32]float64{7: math.Inf(-1)} }, "logit_bias", "-Inf"},
		"of two bad biases the lower id": {func(p *Params) { p.LogitBias = map[int32]float64{9: 2000, 3: -3000, 5: 1} }, "logit_bias", "token 3"},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultParams()
			tt.set(&p)
			err := p.Validate()
			if tt.field == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var field *FieldError
			if !errors.As(err, &field) {
				t.Fatalf("%v (%T) is no *FieldError", err, err)
			}
			if field.Field != tt.field || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q of field %q, want %q in field %q", err, field.Field, tt.says, tt.field)
			}
			if _, err := NewChain(p, 100); !errors.As(err, &field) || field.Field != tt.field {
				t.Errorf("NewChain: %v", err)
			}
		})
	}
}

func TestNewChain_RefusesWhatValidateCannotSee(t *testing.T) {
	for name, tt := range map[string]struct {
		set   func(*Params)
		vocab int
		says  string
	}{
		"a seed that was not drawn":           {func(p *Params) { p.Seed = -1 }, 10, "seed is -1: must be drawn before sampling"},
		"a bias past the end of a vocabulary": {func(p *Params) { p.LogitBias = map[int32]float64{1: 1, 10: 1} }, 10, "logit_bias is 10: the model has no such token; ids end at 9"},
		"an empty vocabulary":                 {func(p *Params) {}, 0, "a vocabulary of 0 tokens"},
		"a negative vocabulary":               {func(p *Params) { p.PresencePenalty = 1 }, -1, "a vocabulary of -1 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			if _, err := NewChain(p, tt.vocab); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// What Validate lets through must sample: no panic, no error, no masked token.
func FuzzParams(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"temperature":0}`, `{"temperature":5e-324,"top_k":1}`, `{"temperature":1e308}`, `{"top_p":0,"min_p":1,"typical_p":0}`,
		`{"top_k":-1}`, `{"repeat_penalty":0.01,"repeat_last_n":-1,"presence_penalty":-100,"frequency_penalty":100}`,
		`{"logit_bias":{"0":-1000,"7":1000}}`, `{"logit_bias":{"8":1}}`, `{"logit_bias":{"-1":1}}`, `{"seed":-1}`, `{"seed":9223372036854775807}`,
		`{"temperature":null}`, `{"top_p":1e-300,"temperature":100}`, `{"min_p":1e-320}`, `[]`,
	} {
		f.Add([]byte(seed), uint16(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, shape uint16) {
		p := DefaultParams()
		p.Seed = 0
		if json.Unmarshal(data, &p) != nil {
			return
		}
		invalid := p.Validate()
		logits := make([]float32, 8)
		for i := range logits {
			logits[i] = []float32{-inf, -math.MaxFloat32, -20, -1, 0, 1, 20, math.MaxFloat32}[(int(shape)>>i+i)%8]
		}
		logits[shape%8] = 0.5
		c, err := NewChain(p, len(logits))
		if invalid != nil && err == nil {
			t.Fatalf("a chain of refused settings: %v", invalid)
		}
		if err != nil {
			var field *FieldError
			if !errors.As(err, &field) {
				t.Fatalf("%v is no *FieldError", err)
			}
			return
		}
		for pos := range 4 {
			choice, err := c.Next(logits, []int32{0, 3, 3, 7}, pos, 8)
			if err != nil {
				t.Fatal(err)
			}
			if logits[choice.ID] == -inf {
				t.Fatalf("chose masked token %d", choice.ID)
			}
			if _, err := json.Marshal(choice); err != nil {
				t.Fatalf("%+v: %v", choice, err)
			}
		}
	})
}
