package placement

import (
	"fmt"
	"maps"
	"slices"

	"m40-llm/infer/gguf"
	"m40-llm/infer/units"
)

// Converts returns the type that weights of a type have on a device; see device.Converter. nil: the
// device converts nothing.
type Converts func(t gguf.Type) gguf.Type

// Types are the types of a model's weights, with their sizes in bytes.
type Types map[gguf.Type]int64

// TypesOf returns the types of the tensors in f.
func TypesOf(f *gguf.File) Types {
	types := Types{}
	for _, t := range f.Tensors() {
		types[t.Type] += t.Size()
	}
	return types
}

// Converted describes the conversions of weights for a device that is called name, with the memory
// that they cost: "IQ3_S weights are converted to Q8_0 for the GPU and take 2.5 times as much
// memory there". It is empty if nothing is converted.
func (types Types) Converted(converts Converts, name string) string {
	if converts == nil {
		return ""
	}
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(types)) {
		if to := converts(t); to != t {
			parts = append(parts, fmt.Sprintf("%s weights are converted to %s for %s and take %.1f times as much memory there", t, to, name, ratio(t, to)))
		}
	}
	return units.List(parts)
}

// growth returns by how many times converted weights are larger than those of the file.
func (types Types) growth(converts Converts) float64 {
	if converts == nil {
		return 1
	}
	before, after := 0.0, 0.0
	for t, bytes := range types {
		before += float64(bytes)
		after += float64(bytes) * ratio(t, converts(t))
	}
	return after / before
}

// ratio returns the size of a weight of type b by that of one of type a.
func ratio(a, b gguf.Type) float64 {
	elementsA, bytesA := a.Block()
	elementsB, bytesB := b.Block()
	return float64(bytesB*elementsA) / float64(bytesA*elementsB)
}

// enlarge multiplies the sizes of d's weights, as if types were distributed evenly over its parts.
func (d *Device) enlarge(factor float64) {
	if factor == 1 {
		return
	}
	times := func(bytes int64) int64 { return int64(float64(bytes) * factor) }
	d.Weights, d.Parts.Embedding, d.Parts.Output = times(d.Weights), times(d.Parts.Embedding), times(d.Parts.Output)
	d.Parts.Layers, d.Parts.Experts = slices.Clone(d.Parts.Layers), slices.Clone(d.Parts.Experts)
	for _, parts := range [][]int64{d.Parts.Layers, d.Parts.Experts} {
		for i := range parts {
			parts[i] = times(parts[i])
		}
	}
}
