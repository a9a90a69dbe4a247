package sample

// Choice is a sampled (or scored) token with what the samplers saw.
// Probabilities and logarithms are of the model's own distribution: softmax of
// the raw logits over the full vocabulary, before all stages.
type Choice struct {
	ID      int32       `json:"id"`
	LogProb float64     `json:"logprob"`          // natural logarithm; -9999 for a token whose logit is -Inf, which JSON cannot hold
	Rank    int         `json:"rank"`             // 0: the likeliest; of equal logits the lower id comes first
	PMax    float64     `json:"p_max"`            // probability of the likeliest token
	Entropy float64     `json:"entropy"`          // bits
	Stages  []Stage     `json:"stages,omitempty"` // in chain order, only stages that are on
	Top     []Candidate `json:"top,omitempty"`    // likeliest tokens, best first
}

// Stage is what one sampler of the chain did to the distribution it was given.
// Those that change logits remove no candidate; the mass they removed is what they
// moved from some tokens to others. (Both are one measure: the total variation
// distance between the distributions before and after the stage.)
type Stage struct {
	Name    string  `json:"name"`    // mask, logit_bias, mirostat or one of StageNames
	Kept    int     `json:"kept"`    // candidates left after it
	Removed float64 `json:"removed"` // probability mass it took away, of the mass it was given
}

// Candidate is one token of the model's own distribution.
type Candidate struct {
	ID      int32   `json:"id"`
	LogProb float64 `json:"logprob"`
}
