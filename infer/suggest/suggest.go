// Package suggest is a short list of models to begin with, and which of them suit a machine. It
// knows no network: sizes and digests are those that were published when the list was made, and
// whoever downloads one of them looks it up first.
package suggest

import (
	"fmt"
	"slices"
	"sync"

	"m40-llm/infer/bench"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// Model is a model of the list.
type Model struct {
	Name       string // to pull it
	Title      string
	Family     string
	License    string
	Parameters string
	Quant      string
	Size       int64  // bytes of its file
	SHA256     string // of its file, in hexadecimal

	shape string // name of its shape in package bench
}

// models are files that their makers published, with their sizes and digests, smallest first.
var models = []Model{
	{"Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen3 0.6B", "Qwen 3", "Apache 2.0", "0.6 B", "Q8_0", 639446688, "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031", "qwen3-0.6b"},
	{"Qwen/Qwen3-1.7B-GGUF:Q8_0", "Qwen3 1.7B", "Qwen 3", "Apache 2.0", "1.7 B", "Q8_0", 1834426016, "061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a", "qwen3-1.7b"},
	{"Qwen/Qwen3-4B-GGUF:Q4_K_M", "Qwen3 4B", "Qwen 3", "Apache 2.0", "4 B", "Q4_K_M", 2497280256, "7485fe6f11af29433bc51cab58009521f205840f5b4ae3a32fa7f92e8534fdf5", "qwen3-4b"},
	{"Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen3 8B", "Qwen 3", "Apache 2.0", "8 B", "Q4_K_M", 5027783488, "d98cdcbd03e17ce47681435b5150e34c1417f50b5c0019dd560e4882c5745785", "qwen3-8b"},
	{"Qwen/Qwen3-14B-GGUF:Q4_K_M", "Qwen3 14B", "Qwen 3", "Apache 2.0", "14 B", "Q4_K_M", 9001752960, "500a8806e85ee9c83f3ae08420295592451379b4f8cf2d0f41c15dffeb6b81f0", "qwen3-14b"},
}

// context is the length that these models were trained on, in tokens.
const context = 32768

// Suggestion is a model of the list on a machine.
type Suggestion struct {
	Model
	placement.Estimate
}

// most is the number of suggestions.
const most = 3

// slowest is the number of tokens per second that a suggested model must be expected to give.
const slowest = 4

// Read bandwidths of the memory of old machines, in bytes per second. They are assumed, because nothing
// can be measured while a page waits.
const (
	oldCPU = 20e9
	oldGPU = 100e9
)

// For returns up to three models for a machine, the largest first: of those that fit with a context
// of usual length and are not too slow, the largest and the next smaller ones; if none does, the smallest.
func For(m placement.Machine) ([]Suggestion, error) {
	m.ReadBandwidth = nil
	for _, d := range m.Devices {
		if d.Dedicated {
			m.ReadBandwidth = append(m.ReadBandwidth, oldGPU)
		} else {
			m.ReadBandwidth = append(m.ReadBandwidth, oldCPU)
		}
	}
	var fitting []Suggestion
	var smallest Suggestion
	for i, candidate := range models {
		shape, err := shapeOf(i)
		if err != nil {
			return nil, err
		}
		s := Suggestion{candidate, shape.Estimate(m)}
		slow := s.TokensPerSecond < slowest
		s.TokensPerSecond = 0 // it is not measured
		if i == 0 {
			smallest = s
		}
		if !slow && s.Fit.Context >= min(s.Fit.Trained, placement.CommonContext) && !s.Fit.InFile {
			fitting = append(fitting, s)
		}
	}
	if len(fitting) == 0 {
		return []Suggestion{smallest}, nil
	}
	fitting = fitting[max(0, len(fitting)-most):]
	slices.Reverse(fitting)
	return fitting, nil
}

var (
	mu    sync.Mutex
	known = map[int]*placement.Shape{}
)

// shapeOf returns the shape of models[i]: that of a file with these tensors in one format, scaled
// to the size of the file.
func shapeOf(i int) (*placement.Shape, error) {
	mu.Lock()
	defer mu.Unlock()
	if known[i] != nil {
		return known[i], nil
	}
	f, err := bench.Header(models[i].shape, "q8_0", context)
	if err != nil {
		return nil, err
	}
	c, err := model.ReadConfig(f)
	if err != nil {
		return nil, fmt.Errorf("the shape of %s: %w", models[i].Title, err)
	}
	shape, err := placement.ShapeOf(f, c)
	if err != nil {
		return nil, err
	}
	format := gguf.Q8_0
	if models[i].Quant == "Q4_K_M" {
		format = gguf.Q4_K
	}
	known[i] = shape.Scaled(float64(models[i].Size)/float64(model.WeightBytes(f)), format)
	return known[i], nil
}
