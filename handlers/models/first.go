package models

import (
	"cmp"
	"context"
	"slices"

	"m40-llm/infer"
)

// First returns the model that the chats of a person begin with who has chosen one, or none if that is empty: that one if it
// can chat now, else that of Options.First, else the best that can. The name is empty if no model can chat, or they cannot be listed. Which model is loaded
// does not matter, except between equals: requests of programs change that.
func (s *Service) First(ctx context.Context, chosen string) string {
	list, err := s.List(ctx)
	if err != nil {
		return ""
	}
	list = slices.DeleteFunc(slices.Clone(list), func(m infer.ModelInfo) bool { return m.Error != "" || !m.Writes() })
	if len(list) == 0 {
		return ""
	}
	here := func(name string) bool {
		return slices.ContainsFunc(list, func(m infer.ModelInfo) bool { return m.Name == name })
	}
	if here(chosen) {
		return chosen
	}
	if s.opt.First != nil {
		if name := s.opt.First(); here(name) {
			return name
		}
	}
	loaded := s.opt.Engine.Status().Model.Name
	return slices.MaxFunc(list, func(a, b infer.ModelInfo) int { return compareForChat(a, b, loaded) }).Name
}

// compareForChat is positive if a is the better model for a chat. What a model can do decides, then where its weights
// are, then how many parameters it has.
func compareForChat(a, b infer.ModelInfo, loaded string) int {
	return cmp.Or(
		prefer(a, b, func(m infer.ModelInfo) bool { return m.Fit == nil || m.Fit.Context > 0 }),
		prefer(a, b, func(m infer.ModelInfo) bool { return m.Upstream == nil || m.Upstream.Problem == "" }),
		prefer(a, b, func(m infer.ModelInfo) bool { return !m.Demo }),
		prefer(a, b, func(m infer.ModelInfo) bool { return !m.Continues && m.TemplateProblem == "" }),
		prefer(a, b, func(m infer.ModelInfo) bool { return m.Fit == nil || !m.Fit.InFile }),
		cmp.Compare(a.Parameters, b.Parameters),
		prefer(a, b, func(m infer.ModelInfo) bool { return m.Name == loaded }),
	)
}

// prefer is positive if a alone has a property, and negative if b alone has it.
func prefer(a, b infer.ModelInfo, has func(infer.ModelInfo) bool) int {
	switch {
	case has(a) == has(b):
		return 0
	case has(a):
		return 1
	}
	return -1
}
