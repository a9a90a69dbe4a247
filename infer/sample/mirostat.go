package sample

import "math"

// mirostat is the stage of Mirostat 2 (Basu and others, "Mirostat: a neural text
// decoding algorithm that directly controls perplexity", 2021): it cuts what is more
// surprising than mu bits, and moves mu so that the surprise of what is drawn comes
// near to tau.
type mirostat struct {
	tau, eta float64
	first    int       // position of mu[0]
	mu       []float64 // bits; of each position from the first on, as it was before a token was drawn for it
}

// at returns mu for the token at a position. It goes on where the chain has drawn the
// token before, and begins anew everywhere else. A position that comes again takes
// up mu as it was.
func (m *mirostat) at(pos int) float64 {
	i := pos - m.first
	if i < 0 || i >= len(m.mu) {
		m.first, m.mu, i = pos, append(m.mu[:0], 2*m.tau), 0
	}
	m.mu = m.mu[:i+1]
	return m.mu[i]
}

// drawn learns from a token with this probability among those that were left.
func (m *mirostat) drawn(probability float64) {
	surprise := -math.Log2(probability)
	m.mu = append(m.mu, m.mu[len(m.mu)-1]-m.eta*(surprise-m.tau))
}
