package model

import (
	"fmt"
	"math"
	"slices"

	"m40-llm/infer/gguf"
)

// Classifier is the head of a model that ranks texts. It computes the score of a document for a query from the pooled vector of both. The
// host computes it, once for each pair, since it follows the pooling. It is immutable.
type Classifier struct {
	dim    int
	labels int // 1: a score; 2: yes and no

	dense, denseBias []float32               // (dim, dim), (dim); dense nil: only the output follows
	activate         func(x float64) float64 // after dense
	norm, normBias   []float32               // (dim), a LayerNorm after activate; nil: none
	eps              float64                 // of norm
	out, outBias     []float32               // (labels, dim), (labels)
}

// Ranks reports whether the model scores documents for a query, and computes neither logits nor embeddings.
func (c *Config) Ranks() bool { return c.Labels > 0 }

// classifierLayers are the layers after the pooling of a model that ranks texts: the last one, and in many models one before it.
var classifierLayers = []tensor{
	{slot: classifierDense, name: "cls.weight", shape: shape{classifierDim, dim}, part: onHost, optional: true},
	{slot: classifierDenseBias, name: "cls.bias", shape: shape{classifierDim}, part: onHost, optional: true},
	{slot: classifierNorm, name: "cls.norm.weight", shape: shape{classifierDim}, part: onHost, optional: true},
	{slot: classifierNormBias, name: "cls.norm.bias", shape: shape{classifierDim}, part: onHost, optional: true},
	{slot: classifierOut, name: "cls.output.weight", shape: shape{labels, dim}, part: onHost},
	{slot: classifierOutBias, name: "cls.output.bias", shape: shape{labels}, part: onHost, optional: true},
}

func labels(c *Config, _ *Layer) int { return c.Labels }

// classifierDim is the width of the model if it has a classifier.
func classifierDim(c *Config, _ *Layer) int {
	if !c.Ranks() {
		return 0
	}
	return c.Dim
}

// classifier reads the outputs of the classifier of a model that ranks texts: an encoder that has one, or another model whose pooling says
// so. Others than encoders pool the last token, unless the file says otherwise.
func (m *metadata) classifier(c *Config, arch architecture) {
	const name = "cls.output.weight"
	switch rows := m.tensorRows(name); {
	case !arch.ranks() && c.Pooling == poolRank:
		m.fail(fmt.Errorf("%s is %d: models of the architecture %q that rank texts are not supported", m.key("pooling_type"), poolRank, m.prefix))
	case rows == 0 && c.Pooling == poolRank:
		m.fail(fmt.Errorf("%s is %d, but the file has no classifier, %s", m.key("pooling_type"), poolRank, name))
	case rows == 0 || !arch.ranks() || !arch.encoder && c.Pooling != poolRank:
		return
	case rows > 2 || rows == 2 && arch.encoder:
		m.fail(fmt.Errorf("tensor %s has %d rows: models that classify texts are not supported, only those that rank them by one score", name, rows))
	default:
		switch c.Labels = rows; {
		case !arch.encoder:
			c.Pooling = PoolLast
		case arch.geluHead:
			c.Pooling = PoolMean
		default:
			c.Pooling = PoolFirst
		}
		c.Pooling = Pooling(m.optionalInteger("classifier.pooling_type", int(PoolMean), int(PoolLast), int(c.Pooling)))
		return
	}
	c.Pooling = PoolNone
}

// ranks reports whether models of the architecture may have a classifier.
func (a *architecture) ranks() bool {
	return slices.ContainsFunc(a.tensors, func(t tensor) bool { return t.slot == classifierOut })
}

// ReadClassifier reads the classifier of the model in f, which ranks texts.
func ReadClassifier(f *gguf.File, c Config) (*Classifier, error) {
	tensors, err := c.find(f)
	if err != nil {
		return nil, err
	}
	h := &Classifier{dim: c.Dim, labels: c.Labels, eps: float64(c.Eps), activate: math.Tanh}
	if architectures[c.Architecture].geluHead {
		h.activate = func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }
	}
	to := map[slot]*[]float32{
		classifierDense: &h.dense, classifierDenseBias: &h.denseBias, classifierNorm: &h.norm, classifierNormBias: &h.normBias,
		classifierOut: &h.out, classifierOutBias: &h.outBias,
	}
	for _, t := range tensors {
		if values := to[t.slot]; values != nil {
			*values = make([]float32, t.rows*t.cols)
			if err := gguf.Dequantize(t.Type, t.Data, *values); err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
		}
	}
	return h, nil
}

// GivesProbabilities reports whether scores are probabilities, instead of logits.
func (h *Classifier) GivesProbabilities() bool { return h.labels == 2 }

// Score returns the score of a pair, higher for a document that fits better. vector is the pooled vector of the pair, of Config.VectorDim elements. It
// may be called from any goroutine.
func (h *Classifier) Score(vector []float32) float64 {
	x := make([]float64, len(vector))
	for i, v := range vector {
		x[i] = float64(v)
	}
	if h.dense != nil {
		x = affine(h.dense, h.denseBias, h.dim, x)
		for i, v := range x {
			x[i] = h.activate(v)
		}
	}
	if h.norm != nil {
		h.normalize(x)
	}
	logits := affine(h.out, h.outBias, h.labels, x)
	if h.GivesProbabilities() {
		return 1 / (1 + math.Exp(logits[1]-logits[0])) // softmax
	}
	return logits[0]
}

// normalize replaces x by its LayerNorm.
func (h *Classifier) normalize(x []float64) {
	mean, variance := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	scale := 1 / math.Sqrt(variance+h.eps)
	for i, v := range x {
		x[i] = (v - mean) * scale * float64(h.norm[i])
		if h.normBias != nil {
			x[i] += float64(h.normBias[i])
		}
	}
}

// affine returns w·x + bias for w of rows rows; a nil bias is 0.
func affine(w, bias []float32, rows int, x []float64) []float64 {
	y := make([]float64, rows)
	for r := range y {
		sum := 0.0
		for i, v := range w[r*len(x) : (r+1)*len(x)] {
			sum += float64(v) * x[i]
		}
		if bias != nil {
			sum += float64(bias[r])
		}
		y[r] = sum
	}
	return y
}
