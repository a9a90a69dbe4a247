package view

import (
	"math"

	"m40-llm/handlers/inspect"
)

// Scored are the tokens of a prompt that was scored. Where two models were compared, those of the answer
// follow, and there are the mean and the worst divergence.
type Scored struct {
	Prompt int           `json:"prompt"` // tokens of the prompt
	Tokens []ScoredToken `json:"tokens"`
	KL     *Divergence   `json:"kl,omitempty"`
}

// ScoredToken is a token of a text that was scored.
type ScoredToken struct {
	Token
	Compared *Compared `json:"compared,omitempty"`
}

// Compared is what the second model predicts in the place of a token.
type Compared struct {
	KL   float64 `json:"kl"` // divergence of its distribution from that of the first model, in nats, over the full vocabulary
	P    float64 `json:"p"`  // of the token
	Rank int     `json:"rank"`
}

// Divergence sums up the divergences of all tokens.
type Divergence struct {
	Mean  float64 `json:"mean"`  // nats
	Worst int     `json:"worst"` // the token with the largest
}

// ScoredOf describes scored tokens.
func ScoredOf(s *inspect.Scored) Scored {
	v := Scored{Prompt: s.Prompt, Tokens: make([]ScoredToken, len(s.Tokens))}
	sum, count := 0.0, 0
	for i, t := range s.Tokens {
		choice := t.Choice
		shown := inspect.Token{ID: t.ID, Text: string(t.Bytes)}
		if i > 0 { // nothing predicts the first one
			shown.Choice = &choice
		}
		v.Tokens[i].Token = TokenOf(&shown)
		c := t.Compared
		if c == nil {
			continue
		}
		v.Tokens[i].Compared = &Compared{KL: c.KL, P: math.Exp(c.LogProb), Rank: c.Rank}
		if v.KL == nil {
			v.KL = &Divergence{Worst: i}
		}
		if c.KL > s.Tokens[v.KL.Worst].Compared.KL {
			v.KL.Worst = i
		}
		sum += c.KL
		count++
		v.KL.Mean = sum / float64(count)
	}
	return v
}
