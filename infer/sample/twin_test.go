package sample

import (
	"cmp"
	"math"
	"slices"
)

// twin is the chain as one would write it with no thought of speed: the whole
// vocabulary is sorted, every distribution is normalised in full, and what a stage
// removed is the total variation distance computed from its definition.
func twin(p Params, logits []float32, history []int32, pos int) Choice {
	type token struct {
		id int32
		x  float64 // logit after penalties
		y  float64 // the same after temperature
		q  float64 // probability
	}
	canonical := func(a, b token) int { return cmp.Or(cmp.Compare(b.x, a.x), cmp.Compare(a.id, b.id)) }
	normalise := func(c []token) {
		slices.SortFunc(c, canonical)
		sum := 0.0
		for i := range c {
			c[i].q = math.Exp(c[i].y - c[0].y)
			sum += c[i].q
		}
		for i := range c {
			c[i].q /= sum
		}
	}

	var all []token
	for id, x := range logits {
		if !math.IsInf(float64(x), -1) {
			all = append(all, token{id: int32(id), x: float64(x), y: float64(x)})
		}
	}
	normalise(all)
	var choice Choice
	choice.PMax = all[0].q
	for _, t := range all {
		if t.q > 0 {
			choice.Entropy -= t.q * math.Log2(t.q)
		}
	}

	// stage runs f on the candidates left by the last one and takes note.
	pool := slices.Clone(all)
	stage := func(on bool, name string, f func([]token) []token) {
		if !on {
			return
		}
		before := map[int32]float64{}
		for _, t := range pool {
			before[t.id] = t.q
		}
		pool = f(pool)
		normalise(pool)
		distance := 0.0
		for _, t := range pool {
			distance += math.Abs(t.q - before[t.id])
			delete(before, t.id)
		}
		for _, q := range before {
			distance += q
		}
		choice.Stages = append(choice.Stages, Stage{name, len(pool), distance / 2})
	}

	penalised := p.RepeatLastN != 0 && (p.RepeatPenalty != 1 || p.PresencePenalty != 0 || p.FrequencyPenalty != 0)
	stage(penalised || len(p.LogitBias) > 0, "penalties", func(c []token) []token {
		window := history
		if p.RepeatLastN >= 0 && p.RepeatLastN < len(history) {
			window = history[len(history)-p.RepeatLastN:]
		}
		for i := range c {
			n := 0
			for _, id := range window {
				if id == c[i].id {
					n++
				}
			}
			x := c[i].x + p.LogitBias[c[i].id]
			if n > 0 && x > 0 {
				x = x/p.RepeatPenalty - p.PresencePenalty - float64(n)*p.FrequencyPenalty
			} else if n > 0 {
				x = x*p.RepeatPenalty - p.PresencePenalty - float64(n)*p.FrequencyPenalty
			}
			c[i].x = float64(float32(x))
			c[i].y = c[i].x
		}
		return c
	})
	greedy := p.Temperature == 0
	stage(p.TopK > 0 && !greedy, "top_k", func(c []token) []token {
		return c[:min(p.TopK, len(c))]
	})
	stage(p.TypicalP < 1 && !greedy, "typical_p", func(c []token) []token {
		entropy := 0.0
		for _, t := range c {
			if t.q > 0 {
				entropy -= t.q * math.Log(t.q)
			}
		}
		// -ln(q), from the logits: exact where q underflows.
		surprise := func(t token) float64 { return c[0].x - t.x - math.Log(c[0].q) }
		slices.SortStableFunc(c, func(a, b token) int {
			da, db := surprise(a)-entropy, surprise(b)-entropy
			order := canonical(a, b)
			if da < 0 && db < 0 {
				order = -order // outwards from the entropy
			}
			return cmp.Or(cmp.Compare(math.Abs(da), math.Abs(db)), order)
		})
		sum := 0.0
		for i, t := range c {
			if sum += t.q; sum > p.TypicalP {
				return c[:i+1]
			}
		}
		return c
	})
	stage(p.TopP < 1 && !greedy, "top_p", func(c []token) []token {
		sum := 0.0
		for i, t := range c {
			if sum += t.q; sum >= p.TopP {
				return c[:i+1]
			}
		}
		return c
	})
	stage(p.MinP > 0 && !greedy, "min_p", func(c []token) []token {
		return slices.DeleteFunc(c, func(t token) bool { return t.q < p.MinP*c[0].q })
	})
	stage(p.Temperature != 1, "temperature", func(c []token) []token {
		if greedy {
			return c[:1]
		}
		best := c[0].x // subtracted first, or a tiny temperature makes it infinite
		for i := range c {
			c[i].y = (c[i].x - best) / p.Temperature
		}
		return c
	})

	normalise(pool)
	u, sum := uniform(p.Seed, pos), 0.0
	for _, t := range pool {
		if t.q == 0 {
			break
		}
		choice.ID = t.id
		if sum += t.q; sum > u {
			break
		}
	}
	choice.Rank = slices.IndexFunc(all, func(t token) bool { return t.id == choice.ID })
	choice.LogProb = math.Log(all[choice.Rank].q)
	return choice
}
