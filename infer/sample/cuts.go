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

// Basics returns p with the settings of stages that the order omits off. ok is false if other stages are on than
// top_k, top_p, min_p and temperature, in this order, and those that change logits.
func (p Params) Basics() (basics Params, ok bool) {
	order, err := p.order()
	if err != nil || p.Mirostat != 0 || p.DynatempRange > 0 || p.MinKeep > 0 {
		return Params{}, false
	}
	cuts, known := !p.greedy(order), []string{"top_k", "top_p", "min_p", "temperature"}
	on := func(stage string) bool {
		s := stageOf(stage)
		return s.cut != nil && cuts && s.on(&p) || stage == "temperature" && p.Temperature != 1
	}
	basics = p
	basics.TopK, basics.TopP, basics.MinP, basics.Temperature = 0, 1, 0, 1
	for _, stage := range order {
		if !on(stage) {
			continue
		}
		at := slices.Index(known, stage)
		if at < 0 {
			return Params{}, false
		}
		switch known = known[at+1:]; stage {
		case "top_k":
			basics.TopK = p.TopK
		case "top_p":
			basics.TopP = p.TopP
		case "min_p":
			basics.MinP = p.MinP
		case "temperature":
			basics.Temperature = p.Temperature
		}
	}
	return basics, true
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
