package sample

import (
	"maps"
	"math"
	"slices"
	"testing"
)

// letters is a Vocabulary in which token 0 is a, token 1 b and so on.
type letters int

func (v letters) Size() int             { return int(v) }
func (v letters) Piece(id int32) []byte { return []byte{byte('a' + id)} }

// spell returns the tokens of a text in letters.
func spell(text string) (ids []int32) {
	for _, c := range text {
		ids = append(ids, c-'a')
	}
	return ids
}

// left returns the probabilities that a chain draws from, by token; 0 for removed ones.
func left(t *testing.T, p Params, probs []float64, history string) []float64 {
	t.Helper()
	logits := make([]float32, len(probs))
	for i, q := range probs {
		logits[i] = float32(math.Log(q))
	}
	c, err := NewChain(p, letters(len(probs)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Next(Input{Row: RowOf(logits), History: spell(history)}); err != nil {
		t.Fatal(err)
	}
	c.pool.ensure(c.pool.count)
	after := make([]float64, len(probs))
	for _, a := range c.pool.head {
		after[a.id] = a.weight / c.pool.mass
	}
	return after
}

// The distributions and the expected results are those of llama.cpp's tests.
func TestStages_MatchLlamaCpp(t *testing.T) {
	rising := []float64{0.1, 0.2, 0.3, 0.4}
	falling := []float64{0.4, 0.3, 0.2, 0.1}
	four := []float64{0.25, 0.25, 0.25, 0.25}
	five := []float64{0.2, 0.2, 0.2, 0.2, 0.2}
	xtc := func(threshold float64) func(*Params) {
		return func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, threshold }
	}
	dry := func(multiplier, base float64, allowed, lastN int, breakers ...string) func(*Params) {
		return func(p *Params) {
			p.DryMultiplier, p.DryBase, p.DryAllowedLength, p.DryPenaltyLastN, p.DryBreakers = multiplier, base, allowed, lastN, breakers
		}
	}
	penalties := func(repeat, frequency, presence float64) func(*Params) {
		return func(p *Params) { p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty = repeat, frequency, presence }
	}
	for name, tt := range map[string]struct {
		probs   []float64
		history string
		set     func(*Params)
		want    []float64
	}{
		"temperature 1":                    {rising, "", func(p *Params) { p.Temperature = 1 }, rising},
		"temperature 0":                    {rising, "", func(p *Params) { p.Temperature = 0 }, []float64{0, 0, 0, 1}},
		"top_k 1":                          {rising, "", func(p *Params) { p.TopK = 1 }, []float64{0, 0, 0, 1}},
		"top_k 3":                          {rising, "", func(p *Params) { p.TopK = 3 }, []float64{0, 0.22222, 0.33333, 0.44444}},
		"top_k 4":                          {rising, "", func(p *Params) { p.TopK = 4 }, rising},
		"top_p 0":                          {rising, "", func(p *Params) { p.TopP = 0 }, []float64{0, 0, 0, 1}},
		"top_p 0.7":                        {rising, "", func(p *Params) { p.TopP = 0.69999 }, []float64{0, 0, 0.428571, 0.571429}},
		"top_p 0.8":                        {rising, "", func(p *Params) { p.TopP = 0.8 }, []float64{0, 0.22222, 0.33333, 0.44444}},
		"min_p 0.24":                       {rising, "", func(p *Params) { p.MinP = 0.24 }, rising},
		"min_p 0.26":                       {rising, "", func(p *Params) { p.MinP = 0.26 }, []float64{0, 0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9}},
		"min_p 0.49":                       {rising, "", func(p *Params) { p.MinP = 0.49 }, []float64{0, 0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9}},
		"min_p 0.51":                       {rising, "", func(p *Params) { p.MinP = 0.51 }, []float64{0, 0, 0.3 / 0.7, 0.4 / 0.7}},
		"min_p 0.76":                       {rising, "", func(p *Params) { p.MinP = 0.76 }, []float64{0, 0, 0, 1}},
		"xtc of four":                      {falling, "", xtc(0.09), []float64{0, 0, 0, 1}},
		"xtc of three":                     {falling, "", xtc(0.19), []float64{0, 0, 0.2 / 0.3, 0.1 / 0.3}},
		"xtc of two":                       {falling, "", xtc(0.29), []float64{0, 0.3 / 0.6, 0.2 / 0.6, 0.1 / 0.6}},
		"xtc of one":                       {falling, "", xtc(0.39), falling},
		"typical_p of a dominant token":    {[]float64{0.97, 0.01, 0.01, 0.01}, "", func(p *Params) { p.TypicalP = 0.5 }, []float64{1, 0, 0, 0}},
		"typical_p of the rest":            {[]float64{0.4, 0.2, 0.2, 0.2}, "", func(p *Params) { p.TypicalP = 0.5 }, []float64{0, 1. / 3, 1. / 3, 1. / 3}},
		"repeat_penalty of one":            {five, "a", penalties(50, 0, 0), []float64{0, 0.25, 0.25, 0.25, 0.25}},
		"repeat_penalty of three":          {five, "abc", penalties(50, 0, 0), []float64{0, 0, 0, 0.5, 0.5}},
		"repeat_penalty counts none twice": {five, "abcaa", penalties(50, 0, 0), []float64{0, 0, 0, 0.5, 0.5}},
		"presence and frequency":           {five, "a", penalties(1, 5, 5), []float64{0.000011, 0.249997, 0.249997, 0.249997, 0.249997}},
		"presence and frequency of three":  {five, "abc", penalties(1, 5, 5), []float64{0.000023, 0.000023, 0.000023, 0.499966, 0.499966}},
		"presence and frequency count":     {five, "abcaa", penalties(1, 5, 5), []float64{0, 0.000023, 0.000023, 0.499977, 0.499977}},
		"dry without a repetition":         {four, "ab", dry(1, 1.1, 2, 4), four},
		"dry":                              {four, "abcab", dry(1, 1.1, 2, 5), []float64{0.296923, 0.296923, 0.109232, 0.296923}},
		"dry of a token that is a breaker": {five, "abdeab", dry(1, 1.1, 2, 6, "d"), five},
		"dry with a multiplier":            {five, "abcab", dry(2, 1.1, 2, 5), []float64{0.241818, 0.241818, 0.032727, 0.241818, 0.241818}},
		"dry of what is allowed":           {five, "abcdeab", dry(1, 1.1, 4, 7), five},
		"top_n_sigma 1":                    {rising, "", func(p *Params) { p.TopNSigma = 1 }, []float64{0, 0, 0.428571, 0.571429}},
		"top_n_sigma 3":                    {rising, "", func(p *Params) { p.TopNSigma = 3 }, rising},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			for id, got := range left(t, p, tt.probs, tt.history) {
				if !(math.Abs(got-tt.want[id]) <= 1e-5) {
					t.Errorf("token %d: got %v, want %v", id, got, tt.want[id])
				}
			}
		})
	}
}

func TestStages_MatchHandComputedDistributions(t *testing.T) {
	// Entropy of 0.9 and 0.1, as a share of that of 0.5 and 0.5.
	lopsided := -(0.9*math.Log(0.9) + 0.1*math.Log(0.1)) / math.Ln2
	at := func(temperature float64, probs ...float64) []float64 {
		sum := 0.0
		for i, q := range probs {
			probs[i] = math.Pow(q, 1/temperature)
			sum += probs[i]
		}
		for i := range probs {
			probs[i] /= sum
		}
		return probs
	}
	dynamic := func(temperature, spread, exponent float64) func(*Params) {
		return func(p *Params) { p.Temperature, p.DynatempRange, p.DynatempExponent = temperature, spread, exponent }
	}
	for name, tt := range map[string]struct {
		probs []float64
		set   func(*Params)
		want  []float64
	}{
		"xtc at exactly the threshold":                {[]float64{0.5, 0.5}, func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, 0.5 }, []float64{0, 1}},
		"xtc keeps the least likely of equal ones":    {[]float64{0.25, 0.25, 0.25, 0.25}, func(p *Params) { p.XTCProbability = 1 }, []float64{0, 0, 0, 1}},
		"xtc that leaves candidates of weight 0":      {[]float64{1, 1e-320}, func(p *Params) { p.XTCProbability, p.XTCThreshold = 1, 0 }, []float64{0, 1}},
		"xtc with probability 0":                      {[]float64{0.5, 0.5}, func(p *Params) { p.XTCProbability = 1e-12 }, []float64{0.5, 0.5}},
		"xtc that would leave fewer than min_keep":    {[]float64{0.4, 0.4, 0.1, 0.1}, func(p *Params) { p.XTCProbability, p.XTCThreshold, p.MinKeep = 1, 0.3, 4 }, []float64{0.4, 0.4, 0.1, 0.1}},
		"xtc that leaves min_keep":                    {[]float64{0.4, 0.4, 0.1, 0.1}, func(p *Params) { p.XTCProbability, p.XTCThreshold, p.MinKeep = 1, 0.3, 3 }, []float64{0, 0.4 / 0.6, 0.1 / 0.6, 0.1 / 0.6}},
		"top_p and min_keep":                          {[]float64{0.5, 0.3, 0.2}, func(p *Params) { p.TopP, p.MinKeep = 0.1, 2 }, []float64{0.625, 0.375, 0}},
		"min_p and min_keep":                          {[]float64{0.5, 0.3, 0.2}, func(p *Params) { p.MinP, p.MinKeep = 1, 2 }, []float64{0.625, 0.375, 0}},
		"typical_p and min_keep":                      {[]float64{0.5, 0.3, 0.2}, func(p *Params) { p.TypicalP, p.MinKeep = 0, 2 }, []float64{0.625, 0.375, 0}},
		"min_keep above the number of candidates":     {[]float64{0.5, 0.3, 0.2}, func(p *Params) { p.TopP, p.MinP, p.TypicalP, p.MinKeep = 0, 1, 0, math.MaxInt32 }, []float64{0.5, 0.3, 0.2}},
		"top_n_sigma of equal ones":                   {[]float64{0.5, 0.5}, func(p *Params) { p.TopNSigma = 0.1 }, []float64{0.5, 0.5}},
		"a dynamic temperature at its highest":        {[]float64{0.25, 0.25, 0.25, 0.25}, dynamic(1, 0.5, 1), []float64{0.25, 0.25, 0.25, 0.25}},
		"a dynamic temperature between":               {[]float64{0.9, 0.1}, dynamic(1, 0.5, 1), at(0.5+lopsided, 0.9, 0.1)},
		"a dynamic temperature between, to a power":   {[]float64{0.9, 0.1}, dynamic(1, 0.5, 3), at(0.5+math.Pow(lopsided, 3), 0.9, 0.1)},
		"a dynamic temperature to the power 0":        {[]float64{0.9, 0.1}, dynamic(1, 0.5, 0), at(1.5, 0.9, 0.1)},
		"a dynamic temperature does not go below 0":   {[]float64{0.9, 0.1}, dynamic(0.5, 2, 1), at(2.5*lopsided, 0.9, 0.1)},
		"a dynamic temperature of a certain token":    {[]float64{1, 1e-320}, dynamic(0.5, 2, 1), []float64{1, 0}},
		"a dynamic temperature about 0 is not greedy": {[]float64{0.9, 0.1}, dynamic(0, 2, 1), at(2*lopsided, 0.9, 0.1)},
		"a dynamic temperature of one candidate": {[]float64{0.9, 0.1}, func(p *Params) {
			p.TopK, p.DynatempRange = 1, 0.5
		}, []float64{1, 0}},
		"top_p after temperature": {[]float64{0.5, 0.3, 0.2}, func(p *Params) {
			p.Temperature, p.TopP, p.Samplers = 0.5, 0.65, []string{"temperature", "top_p"}
		}, []float64{1, 0, 0}},
		"top_p before temperature": {[]float64{0.5, 0.3, 0.2}, func(p *Params) {
			p.Temperature, p.TopP = 0.5, 0.65
		}, []float64{0.25 / 0.34, 0.09 / 0.34, 0}},
		"a stage that is left out": {[]float64{0.5, 0.3, 0.2}, func(p *Params) {
			p.Temperature, p.TopK, p.Samplers = 0, 2, []string{"top_k"}
		}, []float64{0.625, 0.375, 0}},
		"a bias needs no place in the order": {[]float64{0.5, 0.25, 0.25}, func(p *Params) {
			p.LogitBias, p.Samplers = map[int32]float64{2: math.Ln2}, []string{"top_p"}
		}, []float64{0.4, 0.2, 0.4}},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			for id, got := range left(t, p, tt.probs, "") {
				if !(math.Abs(got-tt.want[id]) <= 1e-6) {
					t.Errorf("token %d: got %v, want %v", id, got, tt.want[id])
				}
			}
		})
	}
}

// Uses more tokens than initialHead, so that sums are updated instead of recomputed.
func TestStages_WorkAfterEditsOfFewLogits(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*Params)
		want int32
	}{
		"a sorted head is sorted again": {func(p *Params) {
			p.Temperature, p.PresencePenalty, p.TopK, p.Samplers = 0.9, 0.01, 1, []string{"temperature", "penalties", "top_k"}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			tt.set(&p)
			if got := mustNext(t, mustChain(t, p, 300), make([]float32, 300), []int32{0}, 0, 0); got.ID != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestTypicalP_TakesTheFirstOfEqualCandidates(t *testing.T) {
	for i := range 50 {
		p := off()
		p.PresencePenalty, p.TopNSigma, p.TypicalP = 99, 0.1, 0
		logits := make([]float32, 300)
		logits[0] = float32(i) / 64 // the likeliest before the penalties
		got := mustNext(t, mustChain(t, p, 300), logits, []int32{0}, 0, 0)
		if got.ID != 1 || got.Stages[1].Kept != 299 {
			t.Errorf("%v: %+v", logits[0], got)
		}
	}
}

func TestXTC_RunsWithItsProbability(t *testing.T) {
	p := off()
	p.XTCProbability, p.XTCThreshold = 0.3, 0.2
	c := mustChain(t, p, 2)
	const draws = 20000
	came := 0
	for pos := range draws {
		if mustNext(t, c, []float32{1, 1}, nil, pos, 0).Stages[0].Kept == 1 {
			came++
		}
	}
	if share := float64(came) / draws; math.Abs(share-0.3) > 0.01 { // three standard deviations
		t.Errorf("XTC ran for %v of the draws, want 0.3", share)
	}
}

func TestMirostat_AdjustsMuAfterEachToken(t *testing.T) {
	logits := make([]float32, 4)
	for i, q := range []float64{0.5, 0.25, 0.125, 0.125} { // surprises 1, 2, 3, 3
		logits[i] = float32(math.Log(q))
	}
	p := off()
	p.Mirostat, p.MirostatTau, p.MirostatEta, p.Seed = 2, 1.01, 0.5, 3
	p.TopK, p.TopP, p.MinP, p.TypicalP, p.TopNSigma, p.XTCProbability = 1, 0.1, 0.9, 0.1, 0.1, 1 // mirostat replaces them
	chain := mustChain(t, p, 4)
	var choices []Choice
	t.Run("mu follows the surprise of drawn tokens", func(t *testing.T) {
		mu := 2.02
		for pos := range 40 {
			got := mustNext(t, chain, logits, nil, 10+pos, 0)
			kept := 1
			for kept < 4 && []float64{1, 2, 3, 3}[kept] <= mu {
				kept++
			}
			if len(got.Stages) != 1 || got.Stages[0].Name != "mirostat" || got.Stages[0].Kept != kept {
				t.Fatalf("position %d: stages %+v, want %d kept for %v bits", pos, got.Stages, kept, mu)
			}
			mass := []float64{0.5, 0.75, 0.875, 1}[kept-1]
			surprise := -math.Log2([]float64{0.5, 0.25, 0.125, 0.125}[got.ID] / mass)
			mu -= 0.5 * (surprise - 1.01)
			choices = append(choices, got)
		}
	})
	again := func(t *testing.T, from, to int) {
		t.Helper()
		for pos := from; pos < to; pos++ {
			if got := mustNext(t, chain, logits, nil, 10+pos, 0); got.ID != choices[pos].ID || got.Stages[0] != choices[pos].Stages[0] {
				t.Fatalf("position %d: got %+v, want %+v as before", pos, got, choices[pos])
			}
		}
	}
	t.Run("a rewound answer continues with its mu", func(t *testing.T) {
		again(t, 17, 40)
		again(t, 39, 40)
		again(t, 0, 40)
	})
	t.Run("a position not reached before starts at 2*tau", func(t *testing.T) {
		for _, pos := range []int{100, 5} {
			if got := mustNext(t, chain, logits, nil, pos, 0); got.Stages[0].Kept != 2 {
				t.Errorf("position %d: %+v", pos, got.Stages)
			}
		}
	})
	t.Run("a failed row does not change mu", func(t *testing.T) {
		mustNext(t, chain, logits, nil, 10, 0)
		if _, err := next(chain, []float32{nan, 0, 0, 0}, nil, 11, 0); err == nil {
			t.Fatal("no error")
		}
		again(t, 1, 40)
	})
}

func TestDry_FindsTheLongestRepetitions(t *testing.T) {
	for name, tt := range map[string]struct {
		history  string
		allowed  int
		lastN    int
		breakers []string
		want     map[string]int // next token: length of the repetition it would continue
	}{
		"no history":          {"", 1, -1, nil, nil},
		"one token":           {"a", 0, -1, nil, nil},
		"nothing repeated":    {"abcdef", 1, -1, nil, nil},
		"several occurrences": {"abccbcyabc", 1, -1, nil, map[string]int{"c": 3, "b": 1, "y": 2}},
		"several occurrences, the short ones allowed":   {"abccbcyabc", 2, -1, nil, map[string]int{"c": 3, "y": 2}},
		"a length of 0 counts all but the first":        {"abc", 0, -1, nil, map[string]int{"b": 0, "c": 0}},
		"overlapping":                                   {"aaaaa", 2, -1, nil, map[string]int{"a": 4}},
		"overlapping with a period":                     {"ababab", 2, -1, nil, map[string]int{"a": 4}},
		"the window shortens a repetition":              {"xyzabxyz", 2, 7, nil, map[string]int{"a": 2}},
		"the window excludes a repetition":              {"xyzabxyz", 2, 5, nil, nil},
		"a window longer than the history":              {"xyzabxyz", 2, 100, nil, map[string]int{"a": 3}},
		"a breaker ends a repetition":                   {"qxyzaqxyz", 2, -1, []string{"x"}, map[string]int{"a": 2}},
		"the last breaker counts":                       {"qxyzaqxyz", 1, -1, []string{"q", "y"}, map[string]int{"a": 1}},
		"a breaker at the end leaves no repetition":     {"xyzabxyz", 1, -1, []string{"z"}, nil},
		"a breaker as next token is not penalised":      {"xyzabxyz", 2, -1, []string{"a"}, nil},
		"a breaker of several tokens":                   {"vwxyzavwxyz", 1, -1, []string{"wx"}, map[string]int{"a": 2}},
		"only the last token of such a breaker ends it": {"vwxyzawqxyz", 1, -1, []string{"wx"}, map[string]int{"a": 3}},
		"a token that only begins a breaker is not one": {"xyzabxyz", 2, -1, []string{"ab"}, map[string]int{"a": 3}},
		"a breaker longer than the history":             {"xyxy", 1, -1, []string{"xyxyxyxyx"}, map[string]int{"x": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			p := off()
			p.DryMultiplier, p.DryAllowedLength, p.DryPenaltyLastN, p.DryBreakers = 1, tt.allowed, tt.lastN, tt.breakers
			d := newDry(p, letters(26))
			d.longest = make([]int32, 26)
			for range 2 { // the second time with reused buffers
				if err := d.find(spell(tt.history)); err != nil {
					t.Fatal(err)
				}
				got := map[string]int{}
				for _, id := range d.penalised {
					got[string(letters(26).Piece(id))] = int(d.longest[id]) - 1
					d.longest[id] = 0
				}
				if !maps.Equal(got, tt.want) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestDry_PenaltyGrowsWithTheLength(t *testing.T) {
	p := off()
	p.DryMultiplier, p.DryBase, p.DryAllowedLength = 0.5, 2, 3
	for name, tt := range map[string]struct {
		history string
		base    float64
		want    [5]float32
	}{
		"as long as is allowed":    {"abceabc", 2, [5]float32{4: -0.5}},
		"one token longer":         {"dabcedabc", 2, [5]float32{4: -1}},
		"a base of 1":              {"dabcedabc", 1, [5]float32{4: -0.5}},
		"past the range of floats": {string(slices.Repeat([]byte("a"), 1200)), 100, [5]float32{0: -math.MaxFloat32}},
	} {
		t.Run(name, func(t *testing.T) {
			p.DryBase = tt.base
			c, err := NewChain(p, letters(5))
			if err != nil {
				t.Fatal(err)
			}
			if got := penalised(t, c, Input{Row: RowOf(make([]float32, 5)), History: spell(tt.history)}); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
