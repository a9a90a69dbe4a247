package sample

// Choice is a sampled (or scored) token. Its probabilities are those of the model's own
// distribution: softmax of the raw logits over the full vocabulary, before all stages.
type Choice struct {
	ID      int32       `json:"id"`               // -1: not known, as another engine chose it that has no ids
	LogProb float64     `json:"logprob"`          // natural logarithm; -9999 for a token whose logit is -Inf, which JSON cannot represent
	Rank    int         `json:"rank"`             // 0: the likeliest; of equal logits the lower id ranks first
	PMax    float64     `json:"p_max"`            // probability of the likeliest token
	Entropy float64     `json:"entropy"`          // bits
	Stages  []Stage     `json:"stages,omitempty"` // in chain order, without those that are off
	Top     []Candidate `json:"top,omitempty"`    // likeliest tokens, the likeliest first

	// With Input.Store: the row as ParseRow reads it, and, if the stages before the first one that is
	// neither mask, logit_bias, penalties nor dry changed logits, the row after them.
	Row     []byte `json:"row,omitempty"`
	Changed []byte `json:"changed,omitempty"`

	// With Input.Follow: the probability of each of its tokens, first in the model's own distribution and
	// then after each of Stages, 0 for a removed token and -1 for one that is not known; and the draw.
	Followed [][]float64 `json:"followed,omitempty"`
	Drawn    *Drawn      `json:"drawn,omitempty"`
}

// Stage reports what one stage did to its input distribution. For a stage that changes
// logits and removes no candidate, Removed is the mass it moved between tokens. (In both
// cases it is the total variation distance between the distributions before and after.)
type Stage struct {
	Name    string  `json:"name"`    // mask, logit_bias, mirostat or one of StageNames
	Kept    int     `json:"kept"`    // number of candidates after the stage
	Removed float64 `json:"removed"` // share of the input's probability mass that was removed or moved
}

// Drawn says from how many tokens a chain began, and which part of the probability the random number of
// its draw hit: From <= U < To, but for rounding, where To - From is the probability of the chosen token
// among the candidates that were left.
type Drawn struct {
	Of   int     `json:"of"`
	U    float64 `json:"u"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// Candidate is a token with its probability in the model's own distribution.
type Candidate struct {
	ID      int32   `json:"id"`
	LogProb float64 `json:"logprob"` // as in Choice
}
