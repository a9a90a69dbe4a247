package sample

import (
	"fmt"
	"math"
	"slices"
)

// Suggestion are the settings that a model's file suggests, and nil none.
type Suggestion struct {
	Values   map[string]float64 `json:"values,omitempty"`   // by the names of Numbers, in their ranges
	Samplers []string           `json:"samplers,omitempty"` // as in Params
	Ignored  []string           `json:"ignored,omitempty"`  // what the file suggests and cannot be used, as sentences
}

// Add adds a number that the file has under key, or why it is ignored.
func (s *Suggestion) Add(key, name string, value float64) {
	i := slices.IndexFunc(numbers[:], func(n Number) bool { return n.Name == name })
	n, p := numbers[i], DefaultParams()
	if n.Whole && value != math.Trunc(value) {
		s.Ignore(key, &FieldError{name, value, "must be a whole number"})
		return
	}
	if !inRange(value, n.Min, n.Max) { // before Set, which could overflow
		s.Ignore(key, &FieldError{name, value, fmt.Sprintf("must be from %v to %v", n.Min, n.Max)})
		return
	}
	n.Set(&p, value)
	if err := p.Validate(); err != nil {
		s.Ignore(key, err)
		return
	}
	if s.Values == nil {
		s.Values = map[string]float64{}
	}
	s.Values[name] = value
}

// Order sets the samplers that the file has under key, or why they are ignored.
func (s *Suggestion) Order(key string, samplers []string) {
	if _, err := (Params{Samplers: samplers}).order(); err != nil {
		s.Ignore(key, err)
		return
	}
	s.Samplers = samplers
}

// Ignore records why the value under key is ignored.
func (s *Suggestion) Ignore(key string, why error) {
	s.Ignored = append(s.Ignored, fmt.Sprintf("%s is ignored: %s", key, why))
}

// Empty reports whether the file suggests nothing that can be used.
func (s *Suggestion) Empty() bool { return s == nil || len(s.Values) == 0 && len(s.Samplers) == 0 }

// Apply returns p with what the file suggests, of the settings called names only.
func (s *Suggestion) Apply(p Params, names []string) Params {
	if s == nil {
		return p
	}
	for _, n := range numbers {
		if v, ok := s.Values[n.Name]; ok && slices.Contains(names, n.Name) {
			n.Set(&p, v)
		}
	}
	if len(s.Samplers) > 0 && slices.Contains(names, "samplers") {
		p.Samplers = slices.Clone(s.Samplers)
	}
	return p
}

// SuggestionNames are the names of the settings that Apply can change.
func SuggestionNames() []string {
	names := []string{"samplers"}
	for _, n := range numbers {
		names = append(names, n.Name)
	}
	return names
}

// Unset returns settings without values: JSON is decoded over them, and Fill then tells the settings
// that it has from those that it lacks.
func Unset() Params {
	p := Params{Seed: -1}
	for _, n := range numbers {
		if n.Whole {
			*n.whole(&p) = math.MinInt
		} else {
			*n.real(&p) = math.NaN()
		}
	}
	return p
}

// Fill gives the settings without a value those of DefaultParams, and returns their names.
func (p *Params) Fill() (unset []string) {
	defaults := DefaultParams()
	for _, n := range numbers {
		if n.Whole && *n.whole(p) != math.MinInt || !n.Whole && !math.IsNaN(*n.real(p)) {
			continue
		}
		n.Set(p, n.Get(&defaults))
		unset = append(unset, n.Name)
	}
	if len(p.Samplers) == 0 {
		unset = append(unset, "samplers")
	}
	if p.DryBreakers == nil {
		p.DryBreakers = defaults.DryBreakers
	}
	return unset
}
