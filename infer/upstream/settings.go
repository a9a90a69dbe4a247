package upstream

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/sample"
)

// setting is a setting of the samplers and how OpenAI-compatible engines call it.
type setting struct {
	name   string   // in sample.Params, in JSON
	fields []string // those that engines have for it, the first that an engine knows is used
	value  func(p *sample.Params) any
	off    func(p *sample.Params)      // makes it have no effect
	on     func(p *sample.Params) bool // reports whether the sampler that it belongs to is on; nil: it switches one itself
}

// settings are those that an engine may lack. One that switches a sampler is always sent, because the engine may have
// been started with another value; one of a sampler that is off is not.
var settings = func() []setting {
	list := []setting{
		{name: "dry_sequence_breakers", fields: []string{"dry_sequence_breakers"}, value: func(p *sample.Params) any { return breakers(p.DryBreakers) }, off: func(*sample.Params) {}, on: func(p *sample.Params) bool { return p.DryMultiplier != 0 }},
		{name: "samplers", fields: []string{"samplers"}, value: func(p *sample.Params) any { return stages(p.Samplers) }, off: func(p *sample.Params) { p.Samplers = nil }},
	}
	for _, n := range sample.Numbers() {
		list = append(list, numeric(n))
	}
	return list
}()

// numeric returns a setting that is a number. One that has no effect by itself depends on what switches its sampler.
func numeric(n sample.Number) setting {
	s := setting{name: n.Name, fields: []string{n.Name}, off: func(*sample.Params) {}, value: func(p *sample.Params) any {
		if n.Whole {
			return int(n.Get(p))
		}
		return n.Get(p)
	}}
	switch off, neutral := map[string]float64{"temperature": 1, "dynatemp_exponent": 1}[n.Name]; {
	case neutral:
		s.off = func(p *sample.Params) { n.Set(p, off) }
	case n.DependsOn == "" && n.Name != "repeat_last_n":
		s.off = func(p *sample.Params) { n.Set(p, n.Off) }
	}
	if n.DependsOn != "" {
		s.on = func(p *sample.Params) bool { return !n.WithoutSampler(p) }
	}
	switch n.Name {
	case "repeat_penalty":
		s.fields = append(s.fields, "repetition_penalty")
	case "repeat_last_n":
		s.on = penaltiesOn
	}
	return s
}

func penaltiesOn(p *sample.Params) bool {
	return p.RepeatPenalty != 1 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

// stages returns the stages of a chain with llama-server's names; nil for the default order.
func stages(names []string) any {
	if len(names) == 0 {
		return nil
	}
	list := slices.Clone(names)
	for i, name := range list {
		if name == "typical_p" {
			list[i] = "typ_p"
		}
	}
	return list
}

// breakers returns the texts that end a repetition. llama-server refuses an empty list, and ignores an empty text.
func breakers(texts []string) []string {
	if len(texts) == 0 {
		return []string{""}
	}
	return texts
}

// bound is the values of a field that an engine accepts.
type bound struct{ min, max float64 }

// leastTopP is sent for a top_p of 0, which engines refuse: no more than the likeliest token fits into it either.
const leastTopP = 1e-6

// common are the values that OpenAI-compatible engines accept, as OpenAI's description and vLLM have them.
var common = map[string]bound{
	"temperature": {0, 2}, "top_p": {leastTopP, 1}, "min_p": {0, 1}, "presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2},
	"repetition_penalty": {0.01, 2}, "logit_bias": {-100, 100},
}

// inRange returns v, or the value of field that is nearest to it and that the engine accepts.
func (k *kind) inRange(field string, v float64) float64 {
	if b, bounded := common[field]; bounded && !k.llama {
		v = min(b.max, max(b.min, v))
	}
	if b, described := k.bounds[field]; described {
		v = min(b.max, max(b.min, v))
	}
	return v
}

// unknownWindow is how many tokens are sent for all if the engine's context is not known: engines allocate as many.
const unknownWindow = 1 << 17

// fit returns p with the values that the engine accepts which are nearest to those in p. context is that of the model,
// or 0.
func (k *kind) fit(p sample.Params, context int) sample.Params {
	for _, s := range settings {
		field := k.field(s)
		for _, n := range sample.Numbers() {
			if n.Name == s.name && !n.Whole && field != "" {
				n.Set(&p, k.inRange(field, n.Get(&p)))
			}
		}
	}
	all := cmp.Or(context, unknownWindow)
	p.RepeatLastN, p.DryPenaltyLastN = window(p.RepeatLastN, all), window(p.DryPenaltyLastN, all)
	if len(p.LogitBias) > 0 {
		p.LogitBias = maps.Clone(p.LogitBias)
		for id, bias := range p.LogitBias {
			p.LogitBias[id] = k.inRange("logit_bias", bias)
		}
	}
	return p
}

// window returns the number of tokens of a window that is n tokens, or all for -1.
func window(n, all int) int {
	if n < 0 {
		return all
	}
	return min(n, all)
}

// field returns the engine's name of a setting; empty: it has none.
func (k *kind) field(s setting) string {
	if at := slices.IndexFunc(s.fields, func(f string) bool { return k.has(f) }); at >= 0 {
		return s.fields[at]
	}
	return ""
}

// sent returns the value of a setting as the engine takes it. Engines agree only in that -1 means a top_k that
// is off, llama-server has -1 for top_n_sigma too.
func (k *kind) sent(s setting, p *sample.Params) any {
	switch {
	case s.name == "top_k" && p.TopK == 0 && !k.llama:
		return -1
	case s.name == "top_n_sigma" && p.TopNSigma == 0 && k.llama:
		return -1
	}
	return s.value(p)
}

// seed returns a seed as the engine takes it. llama-server's have 32 bits, of which the largest number means
// a random one.
func (k *kind) seed(seed int64) int64 {
	if k.llama {
		return seed % math.MaxUint32
	}
	return seed
}

// addSettings adds the settings that the server knows, with values that it accepts. used gets these, and settings that
// the server does not have are without effect there.
func (c *call) addSettings(k *kind, context int, r *infer.Request) {
	fitted := k.fit(r.Params, context)
	seed, last, dry := c.used.Seed, c.used.RepeatLastN, c.used.DryPenaltyLastN
	c.used = fitted
	c.used.Seed, c.used.RepeatLastN, c.used.DryPenaltyLastN = seed, last, dry
	for _, s := range settings {
		field := k.field(s)
		switch {
		case field == "":
			s.off(&c.used)
		case slices.Contains(r.Unset, s.name): // the engine has what the model's maker recommends
		case s.on != nil && !s.on(&fitted):
		default:
			if value := k.sent(s, &fitted); value != nil {
				c.body[field] = value
			}
		}
	}
	if len(fitted.LogitBias) > 0 {
		c.body["logit_bias"] = fitted.LogitBias
	}
}
