package sample

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// naiveToken is a candidate of a naiveChain.
type naiveToken struct {
	id int32
	x  float64 // logit of the model, after changes
	y  float64 // x divided by the temperature
	q  float64 // probability
}

func naiveOrder(a, b naiveToken) int { return cmp.Or(cmp.Compare(b.x, a.x), cmp.Compare(a.id, b.id)) }

func naiveNormalise(c []naiveToken) {
	slices.SortFunc(c, naiveOrder)
	sum := 0.0
	for i := range c {
		c[i].q = math.Exp(c[i].y - c[0].y)
		sum += c[i].q
	}
	for i := range c {
		c[i].q /= sum
	}
}

func naiveEntropy(c []naiveToken) (nats float64) {
	for _, t := range c {
		if t.q > 1e-303 { // smaller ones are 0, as in expNeg
			nats -= t.q * math.Log(t.q)
		}
	}
	return nats
}

// naiveChain is a straightforward implementation of Chain: it sorts the whole vocabulary,
// normalises every distribution, and computes what a stage removed from the definition of
// the total variation distance.
type naiveChain struct {
	Params
	vocab Vocabulary
	mu    float64 // of Mirostat; NaN before the first token
}

func newTwin(p Params, v Vocabulary) *naiveChain { return &naiveChain{p, v, math.NaN()} }

func (w *naiveChain) next(in Input) Choice {
	var all []naiveToken
	for id, x := range in.Row.logits {
		if !math.IsInf(float64(x), -1) {
			all = append(all, naiveToken{id: int32(id), x: float64(x), y: float64(x)})
		}
	}
	naiveNormalise(all)
	choice := Choice{PMax: all[0].q, Entropy: naiveEntropy(all) / math.Ln2}

	// stage runs f on the candidates that the previous stage left, and reports it.
	pool := slices.Clone(all)
	follow := func() {
		list := make([]float64, len(in.Follow))
		for i, id := range in.Follow {
			for _, t := range pool {
				if t.id == id {
					list[i] = t.q
				}
			}
		}
		choice.Followed = append(choice.Followed, list)
	}
	follow()
	stage := func(on bool, name string, f func([]naiveToken) []naiveToken) {
		if !on {
			return
		}
		before := map[int32]float64{}
		for _, t := range pool {
			before[t.id] = t.q
		}
		pool = f(pool)
		naiveNormalise(pool)
		distance := 0.0
		for _, t := range pool {
			distance += math.Abs(t.q - before[t.id])
			delete(before, t.id)
		}
		for _, q := range before {
			distance += q
		}
		choice.Stages = append(choice.Stages, Stage{name, len(pool), distance / 2})
		follow()
	}
	// change sets new logits. f receives them divided by the temperature; any is true if
	// f changes a token, even one that is not a candidate.
	inverse := 1.0 // of the temperature
	change := func(any bool, f func(id int32, x float64) float64) func([]naiveToken) []naiveToken {
		clamp := func(x, limit float64) float64 { return max(-limit, min(limit, x)) }
		return func(c []naiveToken) []naiveToken {
			for i, t := range c {
				if !any {
					break
				}
				x := f(t.id, t.x)
				if inverse != 1 {
					quotient := clamp(t.x*inverse, math.MaxFloat64)
					x = t.x + (f(t.id, quotient)-quotient)/inverse
				}
				c[i].x = float64(float32(clamp(x, math.MaxFloat32)))
			}
			slices.SortFunc(c, naiveOrder)
			for i := range c {
				c[i].y = (c[i].x - c[0].x) * inverse
			}
			return c
		}
	}

	u, coin := uniforms(w.Seed, in.Pos)
	stage(in.Mask != nil, "mask", func(c []naiveToken) []naiveToken {
		return slices.DeleteFunc(c, func(t naiveToken) bool { return !in.Mask.Allows(t.id) })
	})
	stage(len(w.LogitBias) > 0, "logit_bias", change(true, func(id int32, x float64) float64 { return x + w.LogitBias[id] }))
	order := w.Samplers
	if len(order) == 0 {
		order = strings.Fields("penalties dry top_n_sigma top_k typical_p top_p min_p xtc temperature")
	}
	hot := slices.Contains(order, "temperature") || slices.Contains(order, "temp")
	cuts := w.Mirostat == 0 && !(hot && w.Temperature == 0 && w.DynatempRange == 0)
	for _, name := range order {
		switch name {
		case "penalties":
			on := w.RepeatLastN != 0 && (w.RepeatPenalty != 1 || w.PresencePenalty != 0 || w.FrequencyPenalty != 0)
			stage(on, "penalties", change(len(in.History) > 0, func(id int32, x float64) float64 { return w.penalise(in.History, id, x) }))
		case "dry":
			penalties := w.dry(in.History)
			on := w.DryMultiplier != 0 && w.DryPenaltyLastN != 0
			stage(on, "dry", change(len(penalties) > 0, func(id int32, x float64) float64 { return x - penalties[id] }))
		case "top_n_sigma":
			stage(cuts && w.TopNSigma > 0, "top_n_sigma", func(c []naiveToken) []naiveToken {
				mean, variance := 0.0, 0.0
				for _, t := range c {
					mean += t.x / float64(len(c))
				}
				for _, t := range c {
					variance += (t.x - mean) * (t.x - mean) / float64(len(c))
				}
				floor := c[0].x - w.TopNSigma*math.Sqrt(variance)
				return slices.DeleteFunc(c, func(t naiveToken) bool { return t.x < floor })
			})
		case "top_k":
			stage(cuts && w.TopK > 0, "top_k", func(c []naiveToken) []naiveToken { return c[:min(w.TopK, len(c))] })
		case "typical_p", "typ_p":
			stage(cuts && w.TypicalP < 1, "typical_p", func(c []naiveToken) []naiveToken { return w.typical(c) })
		case "top_p":
			stage(cuts && w.TopP < 1, "top_p", func(c []naiveToken) []naiveToken {
				sum := 0.0
				for i, t := range c {
					if sum += t.q; sum >= w.TopP && i+1 >= w.MinKeep {
						return c[:i+1]
					}
				}
				return c
			})
		case "min_p":
			stage(cuts && w.MinP > 0, "min_p", func(c []naiveToken) []naiveToken {
				for i, t := range c {
					if t.q < w.MinP*c[0].q && i >= w.MinKeep {
						return c[:i]
					}
				}
				return c
			})
		case "xtc":
			stage(cuts && w.XTCProbability > 0 && w.XTCThreshold <= 0.5, "xtc", func(c []naiveToken) []naiveToken {
				above := 0
				for _, t := range c {
					if t.q >= w.XTCThreshold {
						above++
					}
				}
				if coin >= w.XTCProbability || above < 2 || len(c)-above+1 < w.MinKeep {
					return c
				}
				return c[above-1:]
			})
		case "temperature", "temp":
			stage(w.Temperature != 1 || w.DynatempRange > 0, "temperature", func(c []naiveToken) []naiveToken {
				t := w.Temperature
				if w.DynatempRange > 0 {
					if len(c) == 1 {
						return c
					}
					low, high := math.Max(0, t-w.DynatempRange), t+w.DynatempRange
					t = low + (high-low)*math.Pow(math.Min(1, naiveEntropy(c)/math.Log(float64(len(c)))), w.DynatempExponent)
				}
				if w.DynatempRange == 0 && t == 0 {
					return c[:1]
				}
				inverse = math.Min(1/t, math.MaxFloat64)
				best := c[0].x // subtracted first, because dividing by a tiny temperature may overflow
				for i := range c {
					c[i].y = (c[i].x - best) * inverse
				}
				return c
			})
		}
	}
	if math.IsNaN(w.mu) {
		w.mu = 2 * w.MirostatTau
	}
	stage(w.Mirostat == 2 && !(hot && w.Temperature == 0 && w.DynatempRange == 0), "mirostat", func(c []naiveToken) []naiveToken {
		logMass := 0.0
		for _, t := range c {
			logMass += math.Exp(t.y - c[0].y)
		}
		logMass = math.Log(logMass)
		for i, t := range c {
			if surprise := (logMass + c[0].y - t.y) / math.Ln2; i > 0 && surprise > w.mu {
				return c[:i]
			}
		}
		return c
	})

	naiveNormalise(pool)
	sum, chosen := 0.0, pool[0]
	for _, t := range pool {
		if t.q == 0 {
			break
		}
		chosen = t
		if sum += t.q; sum > u {
			break
		}
	}
	if len(in.Follow) > 0 {
		choice.Drawn = &Drawn{U: u, From: sum - chosen.q, To: sum}
	}
	w.mu -= w.MirostatEta * (-math.Log2(chosen.q) - w.MirostatTau)
	choice.ID = chosen.id
	choice.Rank = slices.IndexFunc(all, func(t naiveToken) bool { return t.id == choice.ID })
	choice.LogProb = math.Log(all[choice.Rank].q)
	return choice
}

func (w *naiveChain) penalise(history []int32, id int32, x float64) float64 {
	window := history
	if w.RepeatLastN >= 0 && w.RepeatLastN < len(history) {
		window = history[len(history)-w.RepeatLastN:]
	}
	n := 0
	for _, other := range window {
		if other == id {
			n++
		}
	}
	switch {
	case n == 0:
		return x
	case x > 0:
		return x/w.RepeatPenalty - w.PresencePenalty - float64(n)*w.FrequencyPenalty
	}
	return x*w.RepeatPenalty - w.PresencePenalty - float64(n)*w.FrequencyPenalty
}

// dry tries every position at which a repetition of the end of the window may end.
func (w *naiveChain) dry(history []int32) map[int32]float64 {
	// breaks reports whether a breaker ends in the last of some tokens.
	breaks := func(tokens []int32) bool {
		text := ""
		for _, id := range tokens[:len(tokens)-1] {
			text += string(w.vocab.Piece(id))
		}
		begin := len(text)
		text += string(w.vocab.Piece(tokens[len(tokens)-1]))
		return slices.ContainsFunc(w.DryBreakers, func(b string) bool {
			at := strings.LastIndex(text, b)
			return at >= 0 && at+len(b) > begin
		})
	}
	limit := 0
	for limit < len(history) && !breaks(history[:len(history)-limit]) {
		limit++
	}
	window := history
	if w.DryPenaltyLastN >= 0 && w.DryPenaltyLastN < len(history) {
		window = history[len(history)-w.DryPenaltyLastN:]
	}
	penalties := map[int32]float64{}
	for next := 1; next < len(window); next++ {
		n := 0
		for n < min(limit, next) && window[next-1-n] == window[len(window)-1-n] {
			n++
		}
		if id := window[next]; n >= w.DryAllowedLength && !breaks([]int32{id}) {
			penalty := w.DryMultiplier * math.Pow(w.DryBase, float64(n-w.DryAllowedLength))
			penalties[id] = math.Max(penalties[id], math.Min(penalty, math.MaxFloat32))
		}
	}
	return penalties
}

func (w *naiveChain) typical(c []naiveToken) []naiveToken {
	entropy := naiveEntropy(c)
	// The surprise -ln(q) is computed from the logits, because q may underflow. That of
	// equal tokens is exactly the entropy.
	excess := func(t naiveToken) float64 {
		return math.Round((c[0].y-t.y-math.Log(c[0].q)-entropy)*1e11) / 1e11
	}
	best := slices.Clone(c)
	slices.SortStableFunc(best, func(a, b naiveToken) int {
		da, db := excess(a), excess(b)
		order := naiveOrder(a, b)
		if da < 0 && db < 0 {
			order = -order // by distance from the entropy
		}
		return cmp.Or(cmp.Compare(math.Abs(da), math.Abs(db)), order)
	})
	sum := 0.0
	for i, t := range best {
		if sum += t.q; sum > w.TypicalP && i+1 >= w.MinKeep {
			return best[:i+1]
		}
	}
	return best
}
