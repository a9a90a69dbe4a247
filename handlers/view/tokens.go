package view

import (
	"encoding/binary"
	"math"
	"strings"

	"m40-llm/handlers/inspect"
	"m40-llm/infer/sample"
)

// Candidates are what the samplers that remove candidates got for a token: its logits after bias and
// penalties.
type Candidates struct {
	Logits []byte  `json:"logits"` // of the likeliest tokens, the likeliest first, minus the logit of mass 1: 32-bit floats, little endian
	Count  int     `json:"count"`  // tokens of the vocabulary, without masked ones
	Mass   float64 `json:"mass"`   // sum over all of them of exp(logit)
}

// CandidatesOf returns those of a stored row; nil if row is none.
func CandidatesOf(row []byte) *Candidates {
	r, err := sample.ParseRow(row)
	if err != nil {
		return nil
	}
	c := &Candidates{Count: r.Count, Mass: r.Mass}
	for _, logit := range r.Logits {
		c.Logits = binary.LittleEndian.AppendUint32(c.Logits, math.Float32bits(logit-r.Max))
	}
	return c
}

// Token is a token of an answer. Without Known, it has no figures: its row is not stored.
type Token struct {
	ID      int32   `json:"id"`
	Text    string  `json:"text"` // invalid UTF-8 is replaced
	Known   bool    `json:"known,omitempty"`
	P       float64 `json:"p"`                 // its probability in the model's own distribution
	AtMost  bool    `json:"at_most,omitempty"` // P is the largest that it can have
	Rank    int     `json:"rank"`              // 0: the likeliest
	Entropy float64 `json:"entropy"`           // bits
}

// TokenDetail is one token with the candidates in its place.
type TokenDetail struct {
	Token
	Total        int           `json:"total"` // tokens of the answer
	Bytes        []byte        `json:"bytes"`
	Alternatives []Alternative `json:"alternatives,omitempty"` // by the model's own distribution, the likeliest first
	Candidates   *Candidates   `json:"candidates,omitempty"`
}

// Alternative is a token that could have come.
type Alternative struct {
	ID   int32   `json:"id"`
	Text string  `json:"text"`
	P    float64 `json:"p"`
}

// TokenOf describes a token without its candidates.
func TokenOf(t *inspect.Token) Token {
	v := Token{ID: t.ID, Text: strings.ToValidUTF8(t.Text, "\uFFFD")}
	if c := t.Choice; c != nil {
		v.Known, v.P, v.AtMost, v.Rank, v.Entropy = true, math.Exp(c.LogProb), t.AtMost, c.Rank, c.Entropy
	}
	return v
}

// TokenDetailOf describes a token of an answer of total tokens.
func TokenDetailOf(t *inspect.Token, total int) TokenDetail {
	v := TokenDetail{Token: TokenOf(t), Total: total, Bytes: []byte(t.Text)}
	if t.Choice == nil {
		return v
	}
	for i, c := range t.Choice.Top {
		v.Alternatives = append(v.Alternatives, Alternative{ID: c.ID, Text: strings.ToValidUTF8(t.Tops[i], "\uFFFD"), P: math.Exp(c.LogProb)})
	}
	v.Candidates = CandidatesOf(t.Row)
	return v
}
