package sample

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestValidate_RejectsSettingsOutsideTheirRange(t *testing.T) {
	type set = func(*Params)
	for name, tt := range map[string]struct {
		set     set
		field   string // empty: allowed
		errText string
	}{
		"the defaults": {func(p *Params) {}, "", ""},
		"every field at its lowest": {func(p *Params) {
			*p = Params{RepeatPenalty: 0.01, RepeatLastN: -1, PresencePenalty: -100, FrequencyPenalty: -100, LogitBias: map[int32]float64{0: -1000},
				DryBase: 1, DryPenaltyLastN: -1, Seed: -1}
		}, "", ""},
		"every field at its highest": {func(p *Params) {
			*p = Params{Temperature: 20, DynatempRange: 20, DynatempExponent: 100, TopK: math.MaxInt32, TopP: 1, MinP: 1, TypicalP: 1,
				TopNSigma: 100, MinKeep: math.MaxInt32, Mirostat: 2, MirostatTau: 100, MirostatEta: 100, XTCProbability: 1, XTCThreshold: 1,
				RepeatPenalty: 100, RepeatLastN: math.MaxInt32, PresencePenalty: 100, FrequencyPenalty: 100,
				LogitBias: map[int32]float64{math.MaxInt32: 1000}, DryMultiplier: 100, DryBase: 100, DryAllowedLength: math.MaxInt32,
				DryPenaltyLastN: math.MaxInt32, DryBreakers: slices.Repeat([]string{strings.Repeat("x", 40)}, 64), Samplers: StageNames(), Seed: math.MaxInt64}
		}, "", ""},
		"a negative temperature":          {func(p *Params) { p.Temperature = -0.1 }, "temperature", "temperature is -0.1: must be from 0 to 20"},
		"a temperature that is NaN":       {func(p *Params) { p.Temperature = math.NaN() }, "temperature", "temperature is NaN"},
		"an infinite temperature":         {func(p *Params) { p.Temperature = math.Inf(1) }, "temperature", "temperature is +Inf"},
		"a negative top_k":                {func(p *Params) { p.TopK = -1 }, "top_k", "top_k is -1: must be from 0 to 2147483647"},
		"a top_k past int32":              {func(p *Params) { p.TopK = 1 << 31 }, "top_k", "2147483648"},
		"a top_p above 1":                 {func(p *Params) { p.TopP = 1.5 }, "top_p", "top_p is 1.5: must be from 0 to 1"},
		"a top_p that is NaN":             {func(p *Params) { p.TopP = math.NaN() }, "top_p", "NaN"},
		"a negative min_p":                {func(p *Params) { p.MinP = -1 }, "min_p", "from 0 to 1"},
		"a min_p that is NaN":             {func(p *Params) { p.MinP = math.NaN() }, "min_p", "NaN"},
		"a typical_p above 1":             {func(p *Params) { p.TypicalP = 2 }, "typical_p", "from 0 to 1"},
		"a repeat_penalty of 0":           {func(p *Params) { p.RepeatPenalty = 0 }, "repeat_penalty", "repeat_penalty is 0: must be from 0.01 to 100"},
		"a negative repeat_penalty":       {func(p *Params) { p.RepeatPenalty = -1 }, "repeat_penalty", "-1"},
		"an infinite repeat_penalty":      {func(p *Params) { p.RepeatPenalty = math.Inf(1) }, "repeat_penalty", "+Inf"},
		"a repeat_last_n below -1":        {func(p *Params) { p.RepeatLastN = -2 }, "repeat_last_n", "from -1 to"},
		"a huge presence_penalty":         {func(p *Params) { p.PresencePenalty = 1e9 }, "presence_penalty", "from -100 to 100"},
		"an infinite frequency_penalty":   {func(p *Params) { p.FrequencyPenalty = math.Inf(-1) }, "frequency_penalty", "-Inf"},
		"a negative dynatemp_range":       {func(p *Params) { p.DynatempRange = -1 }, "dynatemp_range", "from 0 to 20"},
		"a dynatemp_exponent that is NaN": {func(p *Params) { p.DynatempExponent = math.NaN() }, "dynatemp_exponent", "NaN"},
		"a negative top_n_sigma":          {func(p *Params) { p.TopNSigma = -1 }, "top_n_sigma", "from 0 to 100"},
		"a negative min_keep":             {func(p *Params) { p.MinKeep = -1 }, "min_keep", "from 0 to 2147483647"},
		"the first mirostat":              {func(p *Params) { p.Mirostat = 1 }, "mirostat", "mirostat is 1: must be 0 (off) or 2"},
		"an infinite mirostat_tau":        {func(p *Params) { p.MirostatTau = math.Inf(1) }, "mirostat_tau", "from 0 to 100"},
		"a negative mirostat_eta":         {func(p *Params) { p.MirostatEta = -1 }, "mirostat_eta", "from 0 to 100"},
		"an xtc_probability above 1":      {func(p *Params) { p.XTCProbability = 1.1 }, "xtc_probability", "from 0 to 1"},
		"an xtc_threshold above 1":        {func(p *Params) { p.XTCThreshold = 1.1 }, "xtc_threshold", "from 0 to 1"},
		"a negative dry_multiplier":       {func(p *Params) { p.DryMultiplier = -1 }, "dry_multiplier", "from 0 to 100"},
		"a dry_base below 1":              {func(p *Params) { p.DryBase = 0.5 }, "dry_base", "dry_base is 0.5: must be from 1 to 100"},
		"a negative dry_allowed_length":   {func(p *Params) { p.DryAllowedLength = -1 }, "dry_allowed_length", "from 0 to"},
		"a dry_penalty_last_n below -1":   {func(p *Params) { p.DryPenaltyLastN = -2 }, "dry_penalty_last_n", "from -1 to"},
		"too many breakers":               {func(p *Params) { p.DryBreakers = make([]string, 65) }, "dry_sequence_breakers", "65 texts: give at most 64"},
		"an empty breaker":                {func(p *Params) { p.DryBreakers = []string{"a", ""} }, "dry_sequence_breakers", "text 2 has 0 bytes: must be from 1 to 40"},
		"a breaker of 41 bytes":           {func(p *Params) { p.DryBreakers = []string{strings.Repeat("x", 41)} }, "dry_sequence_breakers", "text 1 has 41 bytes"},
		"an unknown stage":                {func(p *Params) { p.Samplers = []string{"top_k", "top_q"} }, "samplers", `samplers is "top_q": unknown stage; the stages are penalties, dry, `},
		"a stage with a very long name":   {func(p *Params) { p.Samplers = []string{strings.Repeat("x", 1e6)} }, "samplers", `xxx": unknown stage`},
		"a stage listed twice":            {func(p *Params) { p.Samplers = []string{"min_p", "top_k", "min_p"} }, "samplers", `samplers is "min_p": a stage may be listed only once`},
		"a stage and its alias":           {func(p *Params) { p.Samplers = []string{"temp", "temperature"} }, "samplers", `samplers is "temperature": a stage may be listed`},
		"the stages backwards, with aliases": {func(p *Params) {
			p.Samplers = []string{"temp", "xtc", "min_p", "top_p", "typ_p", "top_k", "top_n_sigma", "dry", "penalties"}
		}, "", ""},
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
				t.Fatalf("got %v (%T), want a *FieldError", err, err)
			}
			if field.Field != tt.field || !strings.Contains(err.Error(), tt.errText) {
				t.Errorf("got %q for field %q, want %q for field %q", err, field.Field, tt.errText, tt.field)
			}
			if _, err := NewChain(p, vocabulary(100)); !errors.As(err, &field) || field.Field != tt.field {
				t.Errorf("NewChain: %v", err)
			}
		})
	}
}

func TestNewChain_RejectsSettingsThatDoNotFitTheVocabulary(t *testing.T) {
	for name, tt := range map[string]struct {
		set     func(*Params)
		vocab   int
		errText string
	}{
		"a seed that was not drawn":           {func(p *Params) { p.Seed = -1 }, 10, "seed is -1: must be drawn before sampling"},
		"a bias past the end of a vocabulary": {func(p *Params) { p.LogitBias = map[int32]float64{1: 1, 10: 1} }, 10, "logit_bias is 10: the model has no such token; its last id is 9"},
		"an empty vocabulary":                 {func(p *Params) {}, 0, "a vocabulary of 0 tokens"},
		"a negative vocabulary":               {func(p *Params) { p.PresencePenalty = 1 }, -1, "a vocabulary of -1 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			if _, err := NewChain(p, vocabulary(tt.vocab)); err == nil || !strings.Contains(err.Error(), tt.errText) {
				t.Errorf("got %v, want %q", err, tt.errText)
			}
		})
	}
}

// Settings that Validate accepts must sample a token that is not masked, or return
// ErrNotFinite or ErrMasked.
func FuzzNext(f *testing.F) {
	rows := [][]byte{
		floatBytes(0.5, -inf, -math.MaxFloat32, -20, -1, 0, 1, 20),
		floatBytes(math.MaxFloat32, -math.MaxFloat32, 0.5, 0.5, 0.5, 1e-45),
		floatBytes(1, nan, 2), floatBytes(inf, 0), floatBytes(-inf), {},
	}
	for i, seed := range []string{
		`{}`, `{"temperature":0}`, `{"temperature":5e-324,"top_k":1}`, `{"temperature":1e308}`, `{"top_p":0,"min_p":1,"typical_p":0}`,
		`{"top_k":-1}`, `{"repeat_penalty":0.01,"repeat_last_n":-1,"presence_penalty":-100,"frequency_penalty":100}`,
		`{"logit_bias":{"0":-1000,"7":1000}}`, `{"logit_bias":{"8":1}}`, `{"logit_bias":{"-1":1}}`, `{"seed":-1}`, `{"seed":9223372036854775807}`,
		`{"temperature":null}`, `{"top_p":1e-300,"temperature":20}`, `{"min_p":1e-320}`, `[]`,
		`{"top_n_sigma":1,"min_keep":3,"xtc_probability":1,"xtc_threshold":0}`, `{"dynatemp_range":3,"dynatemp_exponent":0.1,"temperature":0}`,
		`{"mirostat":2,"mirostat_tau":100,"mirostat_eta":100}`, `{"dry_multiplier":100,"dry_base":100,"dry_allowed_length":0,"dry_sequence_breakers":[" 3","0 3"]}`,
		`{"samplers":["temp","xtc","penalties","dry","top_p","typ_p"],"temperature":1e-300,"repeat_penalty":100,"dry_multiplier":1,"typical_p":0.5,"top_k":0}`,
		`{"samplers":["top_k","top_k"]}`, `{"samplers":["?"]}`,
	} {
		f.Add([]byte(seed), rows[i%len(rows)], uint64(i)*0x9e3779b97f4a7c15)
	}
	f.Fuzz(func(t *testing.T, data, row []byte, mask uint64) {
		p := DefaultParams()
		p.Seed = 0
		if json.Unmarshal(data, &p) != nil {
			return
		}
		invalid := p.Validate()
		logits := make([]float32, min(len(row)/4, 500))
		for i := range logits {
			logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
		c, err := NewChain(p, vocabulary(len(logits)))
		if invalid != nil && err == nil {
			t.Fatalf("NewChain accepted settings that Validate rejects: %v", invalid)
		}
		if err != nil {
			var field *FieldError
			if !errors.As(err, &field) && len(logits) > 0 {
				t.Fatalf("got %v, want a *FieldError", err)
			}
			return
		}
		var history []int32
		for i := range 12 { // 0 1 2 3 0 1 2 3 0 1 2 3, if the vocabulary is large enough
			history = append(history, int32(i%min(4, len(logits))))
		}
		asked := 0
		for pos := range 4 {
			in := Input{Row: RowOf(logits), History: history, Pos: pos, Top: 8}
			if _, err := softmax(logits); err == nil && pos%2 == 1 {
				in.Row = reduced(logits, 5, &asked)
			}
			if pos >= 2 && mask != 0 {
				in.Mask = Mask{mask, mask}
			}
			choice, err := c.Next(in)
			if err != nil {
				if !errors.Is(err, ErrNotFinite) && !(in.Mask != nil && errors.Is(err, ErrMasked)) {
					t.Fatal(err)
				}
				continue
			}
			if logits[choice.ID] == -inf || !in.Mask.Allows(choice.ID) {
				t.Fatalf("chose masked token %d", choice.ID)
			}
			for _, s := range choice.Stages {
				if s.Kept < 1 || !inRange(s.Removed, 0, 1) {
					t.Fatalf("impossible stages %+v", choice.Stages)
				}
			}
			if _, err := json.Marshal(choice); err != nil {
				t.Fatalf("%+v: %v", choice, err)
			}
		}
	})
}

func floatBytes(row ...float32) (b []byte) {
	for _, x := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}
