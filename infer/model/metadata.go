package model

import (
	"errors"
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// metadata reads an architecture's keys. The first error sticks.
type metadata struct {
	f      *gguf.File
	prefix string
	err    error
}

func (m *metadata) key(name string) string { return m.prefix + "." + name }

func (m *metadata) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *metadata) integer(name string, low, high int) int {
	v, err := m.f.Uint(m.key(name))
	if err != nil {
		m.fail(err)
		return low
	}
	if v < uint64(low) || v > uint64(high) {
		m.fail(fmt.Errorf("%s is %d, want %d to %d", m.key(name), v, low, high))
		return low
	}
	return int(v)
}

func (m *metadata) optionalInteger(name string, low, high, missing int) int {
	if _, err := m.f.Uint(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return missing
	}
	return m.integer(name, low, high)
}

func (m *metadata) float(name string, low, high float64) float64 {
	v, err := m.f.Float(m.key(name))
	if err != nil {
		m.fail(err)
		return low
	}
	// A NaN fails the comparison.
	if !(v >= low && v <= high) {
		m.fail(fmt.Errorf("%s is %g, want %g to %g", m.key(name), v, low, high))
		return low
	}
	return v
}

func (m *metadata) optionalFloat(name string, low, high, missing float64) float64 {
	if _, err := m.f.Float(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return missing
	}
	return m.float(name, low, high)
}

// refuse fails if an integer key is there and not 0.
func (m *metadata) refuse(name, why string) {
	if v := m.optionalInteger(name, 0, math.MaxInt32, 0); v != 0 {
		m.fail(fmt.Errorf("%s is %d: %s", m.key(name), v, why))
	}
}

func (m *metadata) rope(headDim int) device.RoPE {
	r := device.RoPE{
		HeadDim: headDim,
		Dims:    m.optionalInteger("rope.dimension_count", 2, max(2, headDim), headDim),
		Base:    m.optionalFloat("rope.freq_base", 1, 1e12, 10000),
		Scale:   1,
	}
	if r.Dims%2 != 0 {
		m.fail(fmt.Errorf("%s is %d, want an even number", m.key("rope.dimension_count"), r.Dims))
	}
	kind, err := m.f.Str(m.key("rope.scaling.type"))
	if errors.Is(err, gguf.ErrMissing) {
		kind, err = "none", nil
	}
	switch {
	case err != nil:
		m.fail(err)
	case kind == "linear":
		r.Scale = 1 / m.float("rope.scaling.factor", 1e-3, 1e6)
	case kind != "none":
		m.fail(fmt.Errorf("%s is %q; supported are none and linear", m.key("rope.scaling.type"), kind))
	}
	return r
}
