package models

import (
	"context"
	"fmt"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// Sight returns a *fault.Error if the model called name is known to read no pictures. It names one that does, if there is one.
// What models of other engines can do is known of other m40-llm alone, so the engine of others decides.
func (s *Service) Sight(ctx context.Context, name string) error {
	list, err := s.List(ctx)
	if err != nil {
		return nil // the engine says so itself
	}
	at := slices.IndexFunc(list, func(m infer.ModelInfo) bool { return m.Name == name })
	if at < 0 || Sees(&list[at]) {
		return nil
	}
	return fault.Invalid("pictures", "the model %q cannot see pictures: %s", name, Seeing(list))
}

// Sees reports whether a model may read pictures.
func Sees(m *infer.ModelInfo) bool {
	return m.Vision || m.Upstream != nil && !m.Upstream.Exact
}

// Seeing returns what to do for pictures, as the end of a sentence: it names a model of list that reads them, if there is one.
func Seeing(list []infer.ModelInfo) string {
	for _, m := range list {
		if m.Vision && m.Error == "" && m.Writes() {
			return fmt.Sprintf("choose %q, which can, or remove them", m.Name)
		}
	}
	return "remove them, or put a model with its companion file (mmproj) into the models folder"
}
