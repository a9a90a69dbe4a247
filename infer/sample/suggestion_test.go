package sample

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestSuggestionsReplaceWhatIsUnset(t *testing.T) {
	var s Suggestion
	s.Add("temp", "temperature", 1)
	s.Add("top_k", "top_k", 64)
	s.Add("last", "repeat_last_n", -1)
	s.Order("sequence", []string{"top_k", "temp"})
	want := DefaultParams()
	want.Temperature, want.TopK, want.RepeatLastN, want.Samplers = 1, 64, -1, []string{"top_k", "temp"}
	if got := s.Apply(DefaultParams(), SuggestionNames()); !reflect.DeepEqual(got, want) || got.Validate() != nil {
		t.Errorf("got %+v, %v", got, got.Validate())
	}
	want.Temperature, want.Samplers = 0.7, nil
	if got := s.Apply(DefaultParams(), []string{"top_k", "repeat_last_n", "min_p"}); !reflect.DeepEqual(got, want) {
		t.Errorf("of three names: got %+v", got)
	}
	var nothing *Suggestion
	if got := nothing.Apply(want, SuggestionNames()); !reflect.DeepEqual(got, want) || !nothing.Empty() || s.Empty() {
		t.Errorf("nothing suggested: got %+v", got)
	}
}

func TestSuggestionsOutOfRangeAreIgnored(t *testing.T) {
	for _, c := range []struct {
		name  string
		value float64
		want  string
	}{
		{"temperature", -1, "temp is ignored: temperature is -1: must be from 0 to 20"},
		{"temperature", math.NaN(), "temp is ignored: temperature is NaN"},
		{"top_k", 1e300, "temp is ignored: top_k is 1e+300"},
		{"top_k", 1.5, "temp is ignored: top_k is 1.5: must be a whole number"},
		{"mirostat", 1, "temp is ignored: mirostat is 1: must be 0 (off) or 2"},
		{"repeat_penalty", 0, "temp is ignored: repeat_penalty is 0"},
	} {
		var s Suggestion
		if s.Add("temp", c.name, c.value); len(s.Ignored) != 1 || !strings.Contains(s.Ignored[0], c.want) || !s.Empty() {
			t.Errorf("%s %g: %+v", c.name, c.value, s)
		}
	}
	var s Suggestion
	if s.Order("sequence", []string{"top_k", "magic"}); len(s.Ignored) != 1 || !strings.Contains(s.Ignored[0], `sequence is ignored: samplers is "magic"`) || !s.Empty() {
		t.Errorf("an unknown sampler: %+v", s)
	}
}

func TestFillGivesDefaultsToWhatIsUnset(t *testing.T) {
	p := Unset()
	p.Temperature, p.TopK, p.DryBreakers = 0, 0, []string{}
	unset := p.Fill()
	want := DefaultParams()
	want.Temperature, want.TopK, want.DryBreakers = 0, 0, []string{}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v", p)
	}
	if len(unset) != len(SuggestionNames())-2 || strings.Contains(strings.Join(unset, " "), "temperature") {
		t.Errorf("unset are %q", unset)
	}
}
