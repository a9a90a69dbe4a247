package sample

import "math"

// mirostat is the state of Mirostat 2 (Basu et al., "Mirostat: a neural text decoding
// algorithm that directly controls perplexity", 2021): it removes candidates with more than
// mu bits of surprise, and adjusts mu so that the surprise of drawn tokens approaches tau.
type mirostat struct {
	tau, eta float64
	first    int       // position of mu[0]
	mu       []float64 // bits; for each position from first on, the value before a token was drawn there
}

// muAt returns mu for the token at a position. A position drawn before, or following the
// last one, continues from the stored values; any other position starts at 2*tau.
func (m *mirostat) muAt(pos int) float64 {
	i := pos - m.first
	if i < 0 || i >= len(m.mu) {
		m.first, m.mu, i = pos, append(m.mu[:0], 2*m.tau), 0
	}
	m.mu = m.mu[:i+1]
	return m.mu[i]
}

// update adjusts mu after a token was drawn; probability is relative to the candidates kept.
func (m *mirostat) update(probability float64) {
	surprise := -math.Log2(probability)
	m.mu = append(m.mu, m.mu[len(m.mu)-1]-m.eta*(surprise-m.tau))
}
