package model

import (
	"errors"
	"fmt"

	"m40-llm/infer/gguf"
)

// Pooling is how the vectors of the tokens of a text become the embedding of the text.
type Pooling int

// Values of the key pooling_type, and how they are called.
const (
	PoolNone  Pooling = iota // the model computes logits instead of embeddings
	PoolMean                 // the mean over all tokens
	PoolFirst                // the first token, CLS
	PoolLast                 // the last token

	poolRank // a classifier scores a pair of texts; Config.Pooling then is that of the pair's tokens
)

func (p Pooling) String() string {
	return [...]string{"none", "mean", "cls", "last", "rank"}[p]
}

// Needs reports whether the pooling of a text of n tokens reads the vector of its token at pos.
func (p Pooling) Needs(pos, n int) bool {
	return p == PoolMean || p == PoolFirst && pos == 0 || p == PoolLast && pos == n-1
}

// Embeds reports whether the model computes vectors of texts, and no logits: embeddings, or what its classifier reads.
func (c *Config) Embeds() bool { return c.Pooling != PoolNone }

// VectorDim returns the width of embeddings.
func (c *Config) VectorDim() int {
	dim := c.Dim
	for _, width := range c.Dense {
		if width > 0 {
			dim = width
		}
	}
	return dim
}

// IsBidirectional reports whether tokens attend to those after them, so that a text has to be
// computed in one step.
func (c *Config) IsBidirectional() bool {
	return len(c.Layers) > 0 && c.Layers[0].Bidirectional
}

// pooling reads how an embedding model pools. Without the key, or with 0, encoders take the mean, as
// sentence-transformers does, and other models compute logits.
func (m *metadata) pooling(encoder bool) Pooling {
	p := Pooling(m.optionalInteger("pooling_type", 0, int(poolRank), 0))
	if p == PoolNone && encoder {
		return PoolMean
	}
	return p
}

// tensorRows returns the outputs of a matrix in the file; 0: the file lacks it.
func (m *metadata) tensorRows(name string) int {
	t, err := m.f.Tensor(name)
	if errors.Is(err, gguf.ErrMissing) {
		return 0
	}
	shape := t.Shape
	if err == nil && (len(shape) == 0 || len(shape) > 2) {
		err = fmt.Errorf("tensor %s has %d dimensions, want 2", name, len(shape))
	}
	if err != nil {
		m.fail(err)
		return 0
	}
	rows := 1
	if len(shape) == 2 {
		rows = shape[1]
	}
	if rows < 1 || rows > maxDim {
		m.fail(fmt.Errorf("tensor %s has %d rows, want 1 to %d", name, rows, maxDim))
		return 0
	}
	return rows
}

func tokenTypeRows(c *Config, _ *Layer) int { return c.TokenTypes }

// firstTokenType is the width of the model if it has token types.
func firstTokenType(c *Config, _ *Layer) int {
	if c.TokenTypes == 0 {
		return 0
	}
	return c.Dim
}

func dense2Rows(c *Config, _ *Layer) int { return c.Dense[0] }
func dense3Rows(c *Config, _ *Layer) int { return c.Dense[1] }

// dense3Cols is the width of what the second dense layer reads.
func dense3Cols(c *Config, _ *Layer) int {
	if c.Dense[0] > 0 {
		return c.Dense[0]
	}
	return c.Dim
}

// denseLayers are those that sentence-transformers puts after the output norm.
var denseLayers = []tensor{
	{slot: dense2, name: "dense_2.weight", shape: shape{dense2Rows, dim}, part: lastStage},
	{slot: dense3, name: "dense_3.weight", shape: shape{dense3Rows, dense3Cols}, part: lastStage},
}
