package sample

import (
	"maps"
	"slices"
)

// changesLogits reports whether a stage changes the logits of some tokens, and removes no candidate.
func changesLogits(stage string) bool {
	return stage == "logit_bias" || stage == "penalties" || stage == "dry"
}

// Cuts returns p without the stages that change logits, for a row that they have changed already (see
// Choice.Changed). ok is false if others come before them, or if mirostat is on, which depends on the
// tokens drawn before.
func (p Params) Cuts() (cuts Params, ok bool) {
	order, err := p.order()
	if err != nil || p.Mirostat != 0 {
		return Params{}, false
	}
	first := slices.IndexFunc(order, func(stage string) bool { return !changesLogits(stage) })
	if first < 0 {
		first = len(order)
	}
	cuts, cuts.LogitBias, cuts.Samplers = p, nil, order[first:]
	if len(cuts.Samplers) == 0 { // an empty list is the default order
		cuts.Samplers, cuts.Temperature, cuts.DynatempRange = []string{"temperature"}, 1, 0
	}
	return cuts, !slices.ContainsFunc(order[first:], changesLogits)
}

// NeedsHistory reports whether a stage depends on the tokens before the one that is sampled.
func (p Params) NeedsHistory() bool {
	order, _ := p.order()
	return slices.Contains(order, "penalties") && newPenalties(p) != nil ||
		slices.Contains(order, "dry") && p.DryMultiplier != 0 && p.DryPenaltyLastN != 0
}

// SameChanges reports whether p and q change logits in the same way.
func (p Params) SameChanges(q Params) bool {
	order := func(p Params) []string {
		all, _ := p.order()
		return slices.DeleteFunc(slices.Clone(all), func(stage string) bool { return !changesLogits(stage) })
	}
	return slices.Equal(order(p), order(q)) && maps.Equal(p.LogitBias, q.LogitBias) && slices.Equal(p.DryBreakers, q.DryBreakers) &&
		p.RepeatPenalty == q.RepeatPenalty && p.RepeatLastN == q.RepeatLastN && p.PresencePenalty == q.PresencePenalty && p.FrequencyPenalty == q.FrequencyPenalty &&
		p.DryMultiplier == q.DryMultiplier && p.DryBase == q.DryBase && p.DryAllowedLength == q.DryAllowedLength && p.DryPenaltyLastN == q.DryPenaltyLastN
}
