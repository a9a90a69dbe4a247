package model

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// metadata reads an architecture's keys. The first error sticks.
type metadata struct {
	f      *gguf.File
	prefix string
	asked  map[string]bool // for which keys
	layers int             // of the model, 0 until they are known
	layer  int             // that is read: keys may have a value for each
	err    error
}

// key returns the key that the architecture has called name.
func (m *metadata) key(name string) string {
	m.asked[name] = true
	return m.prefix + "." + name
}

func (m *metadata) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// uint returns a number, the layer's own where a key has one for each.
func (m *metadata) uint(key string) (uint64, error) {
	if _, count, array, err := m.f.First(key, 0); err != nil || !array || count != m.layers || m.layers == 0 {
		return m.f.Uint(key)
	}
	list, err := m.f.Uints(key)
	if err != nil {
		return 0, err
	}
	return list[m.layer], nil
}

func (m *metadata) integer(name string, low, high int) int {
	v, err := m.uint(m.key(name))
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

func (m *metadata) optionalBool(name string, missing bool) bool {
	v, err := m.f.Bool(m.key(name))
	if errors.Is(err, gguf.ErrMissing) {
		return missing
	}
	if err != nil {
		m.fail(err)
	}
	return v
}

// pattern returns which of layers layers a key marks: it has a bool for each, or the length of a
// period of which all but the last are marked. period is that of a file without the key.
func (m *metadata) pattern(name string, layers, period int) []bool {
	values, count, array, err := m.f.First(m.key(name), layers)
	marks := make([]bool, layers)
	switch {
	case errors.Is(err, gguf.ErrMissing):
	case err != nil:
		m.fail(err)
	case !array:
		period = m.integer(name, 1, maxLayers)
	case count != layers:
		m.fail(fmt.Errorf("%s has %d values for %d layers", m.key(name), count, layers))
	}
	for i := range marks {
		marks[i] = i%period < period-1
		if array && i < len(values) {
			marks[i] = !slices.Contains(off, values[i])
		}
	}
	return marks
}

// consequential are keys that change what some architectures compute, each with the values
// that change nothing.
var consequential = map[string][]any{
	"attention.causal":                 {true},
	"attention.clamp_kqv":              off,
	"attention.kv_lora_rank":           off,
	"attention.q_lora_rank":            off,
	"attention.scale":                  off,
	"attention.shared_kv_layers":       off,
	"attention.sliding_window":         off,
	"attention.sliding_window_pattern": off,
	"attention.temperature_scale":      off,
	"attn_logit_softcapping":           off,
	"embedding_length_per_layer_input": off,
	"embedding_scale":                  offOrOne,
	"expert_count":                     off,
	"expert_gating_func":               {uint64(0), uint64(1)}, // softmax
	"expert_group_count":               {uint64(0), uint64(1)},
	"expert_shared_count":              off,
	"expert_weights_scale":             offOrOne,
	"final_logit_softcapping":          off,
	"full_attention_interval":          off,
	"leading_dense_block_count":        off,
	"logit_scale":                      offOrOne,
	"nextn_predict_layers":             off,
	"residual_scale":                   offOrOne,
	"rope.scaling.yarn_attn_factor":    offOrOne,
	"rope.scaling.yarn_ext_factor":     {float32(1)},
	"ssm.state_size":                   off,
	"use_parallel_residual":            off,
}

var (
	off      = []any{uint64(0), float32(0), false}
	offOrOne = []any{float32(0), float32(1)}
)

// refuseUnread fails if the file has a consequential key that nobody asked for.
func (m *metadata) refuseUnread() {
	for _, name := range slices.Sorted(maps.Keys(consequential)) {
		values, _, array, err := m.f.First(m.prefix+"."+name, 1)
		if err != nil || m.asked[name] || !array && slices.Contains(consequential[name], values[0]) {
			continue
		}
		var value any = values
		if !array {
			value = values[0]
		}
		m.fail(fmt.Errorf("%s.%s is %v, which the architecture %q does not support; answers without it would be wrong", m.prefix, name, value, m.prefix))
	}
}

func (m *metadata) rope(headDim, original int) device.RoPE {
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
	case kind == "yarn":
		m.yarn(&r, original)
	case kind != "none" && kind != "longrope": // whose factors are tensors
		m.fail(fmt.Errorf("%s is %q; supported are none, linear, longrope and yarn", m.key("rope.scaling.type"), kind))
	}
	if factor := m.optionalFloat("rope.scaling.attn_factor", 0, 1e6, 1); factor != 0 && factor != 1 {
		r.Magnitude = cmp.Or(r.Magnitude, 1) * float32(factor)
	}
	return r
}

// yarn reads the scaling of frequencies by YaRN: those that turn often within the original
// context stay, those that do not make one turn are scaled.
func (m *metadata) yarn(r *device.RoPE, original int) {
	factor := m.float("rope.scaling.factor", 1, 1e6)
	fast := m.optionalFloat("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32)
	slow := m.optionalFloat("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1)
	// The pair that makes so many turns within the original context.
	pair := func(turns float64) float64 {
		return float64(r.Dims) * math.Log(float64(original)/(turns*2*math.Pi)) / (2 * math.Log(r.Base))
	}
	r.Scale = 1 / factor
	low, high := pair(fast), pair(slow)
	// The published gpt-oss models mix the frequencies between these two as they come out, which
	// their files do not say.
	if m.optionalBool("rope.scaling.yarn_truncate", m.prefix != "gpt-oss" || original != 4096) {
		low, high = math.Floor(low), math.Ceil(high)
	}
	r.Low = max(low, 0)
	r.High = max(min(high, float64(r.Dims-1)), r.Low+1e-3)
	log := 0.1 * math.Log(factor)
	r.Magnitude = float32((1 + log) / (1 + log*m.optionalFloat("rope.scaling.yarn_log_multiplier", 0, 1e3, 0)))
}
