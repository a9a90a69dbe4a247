package sample

import (
	"math"
	"slices"
	"testing"
)

// candidatesOf returns candidates with the given descending probabilities, and the scale of
// their weights.
func candidatesOf(probs ...float64) ([]candidate, scale) {
	s := scale{top: float64(float32(math.Log(probs[0]))), inverse: 1}
	c := make([]candidate, len(probs))
	for i, p := range probs {
		c[i] = candidate{id: int32(i), logit: float32(math.Log(p))}
		c[i].weight = p / probs[0]
	}
	return c, s
}

func TestPenalise_ChangesLogitsByCount(t *testing.T) {
	for name, tt := range map[string]struct {
		logit                       float64
		count                       int
		repeat, presence, frequency float64
		want                        float64
	}{
		"a token outside the window keeps its logit":    {3, 0, 2, 5, 5, 3},
		"a positive logit is divided":                   {3, 1, 2, 0, 0, 1.5},
		"a negative logit is multiplied":                {-3, 1, 2, 0, 0, -6},
		"a zero logit does not change":                  {0, 1, 2, 0, 0, 0},
		"the repeat penalty does not count occurrences": {3, 7, 2, 0, 0, 1.5},
		"presence counts once":                          {3, 7, 1, 0.5, 0, 2.5},
		"frequency counts each":                         {3, 7, 1, 0, 0.5, -0.5},
		"presence and frequency come after repeat":      {3, 2, 2, 0.5, 0.25, 0.5},
		"negative penalties raise logits":               {3, 2, 0.5, -1, -2, 11},
	} {
		t.Run(name, func(t *testing.T) {
			if got := penalise(tt.logit, tt.count, tt.repeat, tt.presence, tt.frequency); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestPenalties_CountOnlyTheWindow(t *testing.T) {
	history := []int32{0, 1, 1, 2, 3, 3, 3}
	for name, tt := range map[string]struct {
		lastN int
		want  [5]float32 // with a frequency penalty of 1
	}{
		"off":                     {0, [5]float32{}},
		"the last token":          {1, [5]float32{3: -1}},
		"the last four":           {4, [5]float32{2: -1, 3: -3}},
		"as long as the history":  {7, [5]float32{-1, -2, -1, -3, 0}},
		"longer than the history": {100, [5]float32{-1, -2, -1, -3, 0}},
		"the whole history":       {-1, [5]float32{-1, -2, -1, -3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			p.FrequencyPenalty, p.RepeatLastN = 1, tt.lastN
			c := mustChain(t, p, 5)
			for range 2 { // the second time with reused buffers
				got := penalised(t, c, Input{Row: RowOf(make([]float32, 5)), History: history})
				if got != tt.want {
					t.Errorf("%v, want %v", got, tt.want)
				}
			}
		})
	}
}

// penalised returns the logits of five tokens after a chain.
func penalised(t *testing.T, c *Chain, in Input) (logits [5]float32) {
	t.Helper()
	if _, err := c.Next(in); err != nil {
		t.Fatal(err)
	}
	c.pool.ensure(5)
	for _, a := range c.pool.head {
		logits[a.id] = a.logit
	}
	return logits
}

func TestTopP_KeepsTheLikeliestUpToTheMass(t *testing.T) {
	c, _ := candidatesOf(0.4, 0.3, 0.2, 0.1) // weights 1, 0.75, 0.5, 0.25: sums are exact
	for name, tt := range map[string]struct {
		target  float64
		kept    int
		reached bool
	}{
		"a target of 0 keeps the first":        {0, 1, true},
		"the first alone reaches it":           {1, 1, true},
		"the crossing candidate is included":   {1.01, 2, true},
		"a sum equal to the target reaches it": {1.75, 2, true},
		"all of them reach it":                 {2.5, 4, true},
		"all of them do not reach it":          {2.6, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			if kept, reached := topP(c, tt.target, 0); kept != tt.kept || reached != tt.reached {
				t.Errorf("got %d, %v; want %d, %v", kept, reached, tt.kept, tt.reached)
			}
		})
	}
}

func TestMinP_KeepsCandidatesRelativeToTheLikeliest(t *testing.T) {
	c, _ := candidatesOf(0.4, 0.3, 0.2, 0.1)
	for name, tt := range map[string]struct {
		p    float64
		kept int
	}{
		"just below the last":             {0.24, 4},
		"equal to the last keeps it":      {0.25, 4},
		"just above the last":             {0.26, 3},
		"just above the third":            {0.51, 2},
		"just above the second":           {0.76, 1},
		"as likely as the first and ties": {1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := pool{head: slices.Clone(c), count: len(c), mass: 2.5}
			if p.minP(tt.p, 0); p.count != tt.kept {
				t.Errorf("got %d candidates, want %d", p.count, tt.kept)
			}
		})
	}
	t.Run("keeps all that tie with the first", func(t *testing.T) {
		c, _ := candidatesOf(0.3, 0.3, 0.3, 0.1)
		p := pool{head: c, count: len(c), mass: 10.0 / 3}
		if p.minP(1, 0); p.count != 3 {
			t.Errorf("got %d candidates, want 3", p.count)
		}
	})
}

// The comments give the entropy in nats and the surprises.
func TestTypicalP_KeepsTheNearestToTheEntropy(t *testing.T) {
	for name, tt := range map[string]struct {
		probs    []float64
		p        float64
		from, to int
	}{
		"a dominant token is the typical one":                   {[]float64{0.97, 0.01, 0.01, 0.01}, 0.5, 0, 1},   // 0.17: surprises 0.03, 4.6
		"the likeliest can be atypical":                         {[]float64{0.4, 0.2, 0.2, 0.2}, 0.5, 1, 4},       // 1.33: 0.92, 1.61
		"the rest are added if the typical ones do not suffice": {[]float64{0.4, 0.2, 0.2, 0.2}, 0.61, 0, 4},      // the others are 0.6
		"a mass equal to the share is not above it":             {[]float64{0.25, 0.25, 0.25, 0.25}, 0.5, 0, 3},   // exact in floating point
		"equal ones are taken from the first":                   {[]float64{0.25, 0.25, 0.25, 0.25}, 0, 0, 1},     // 1.39, all
		"a share of 0 keeps the nearest":                        {[]float64{0.5, 0.3, 0.2}, 0, 1, 2},              // 1.03: 0.69, 1.20, 1.61
		"the range grows towards the nearer side":               {[]float64{0.5, 0.3, 0.2}, 0.31, 0, 2},           // 0.34 against 0.58
		"the likeliest is taken where it is the nearest":        {[]float64{0.8, 0.1, 0.06, 0.04}, 0, 0, 1},       // 0.71: 0.22, 2.30
		"one candidate is typical":                              {[]float64{0.3}, 0, 0, 1},                        // 0
		"a share just below 1 keeps all":                        {[]float64{0.5, 0.3, 0.2}, 0.9999, 0, 3},         //
		"of equal surprises the lowest id goes first":           {[]float64{0.6, 0.1, 0.1, 0.1, 0.1}, 0.65, 0, 2}, // 1.23: 0.51, 2.30
	} {
		t.Run(name, func(t *testing.T) {
			c, s := candidatesOf(tt.probs...)
			if from, to := typicalP(c, s, tt.p, 0); from != tt.from || to != tt.to {
				t.Errorf("got %d:%d, want %d:%d", from, to, tt.from, tt.to)
			}
		})
	}
}

func TestTypicalP_TakesTheLikelierOfTwoEquallyNearCandidates(t *testing.T) {
	// The entropy is 0.75/2: both surprises differ from it by the same amount.
	c := []candidate{{0, 0, 1}, {1, -0.75, 0.5}, {2, -0.75, 0.5}}
	if from, to := typicalP(c, scale{inverse: 1}, 0, 0); from != 0 || to != 1 {
		t.Errorf("got %d:%d, want 0:1", from, to)
	}
}

func TestMovedMass_IsTheTotalVariationDistance(t *testing.T) {
	c, one := candidatesOf(0.5, 0.25, 0.25)
	at := func(temperature float64) (scale, float64) {
		s := scale{one.top, 1 / temperature}
		mass := 0.0
		for i := range c {
			mass += s.weight(c[i].logit)
		}
		return s, mass
	}
	before, massBefore := at(1)
	for name, tt := range map[string]struct {
		temperature float64
		want        float64
	}{
		"a lower temperature adds to the first":     {0.5, 4.0/6 - 0.5},
		"a higher temperature takes from the first": {2, 0.5 - 1/(1+math.Sqrt2)},
		"no change moves nothing":                   {1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			after, massAfter := at(tt.temperature)
			got, complete := movedMass(c, before, massBefore, after, massAfter)
			if !complete || math.Abs(got-tt.want) > 1e-7 {
				t.Errorf("got %v (complete: %v), want %v", got, complete, tt.want)
			}
			if _, complete := movedMass(c[:1], before, massBefore, after, massAfter); complete != (tt.want == 0) {
				t.Errorf("with the first candidate alone complete is %v", complete)
			}
		})
	}
}

func TestPick_ReturnsTheCandidateAtTheTarget(t *testing.T) {
	c, _ := candidatesOf(0.4, 0.3, 0.2, 0.1)
	c = append(c, candidate{id: 9}) // weight 0
	for name, tt := range map[string]struct {
		target float64
		index  int
		ok     bool
	}{
		"0 selects the first":                           {0, 0, true},
		"just below the weight of the first selects it": {0.999, 0, true},
		"the weight of the first selects the second":    {1, 1, true},
		"within the last":                               {2.4, 3, true},
		"the total weight selects none":                 {2.5, 0, false},
		"the smallest number selects the first":         {math.SmallestNonzeroFloat64, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			if i, ok := pick(c, tt.target); i != tt.index || ok != tt.ok {
				t.Errorf("got index %d, %v; want %d, %v", i, ok, tt.index, tt.ok)
			}
		})
	}
}

func TestPool_DrawBeyondTheSumReturnsTheLastCandidateWithWeight(t *testing.T) {
	c, s := candidatesOf(0.5, 0.5)
	c = append(c, candidate{id: 9, logit: -1e6})
	p := pool{head: c, count: len(c), mass: 3, scale: s} // a mass above the sum, as by a rounding error
	if c := p.draw(0.99); c.id != 1 {
		t.Errorf("got token %d, want 1", c.id)
	}
}
