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

// metadata reads the keys of an architecture. It keeps the first error; later reads return
// values that are in range.
type metadata struct {
	f      *gguf.File
	prefix string
	read   map[string]bool // names of the keys that were read
	layers int             // number of layers, 0 before it is known
	layer  int             // current layer, for keys with a value for each layer
	err    error

	withHeads bool // multi-token prediction blocks are read as layers
}

// key returns the full key of name, with the architecture's prefix, and marks it as read.
func (m *metadata) key(name string) string {
	m.read[name] = true
	return m.prefix + "." + name
}

func (m *metadata) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// uint returns the value of key; if it is an array with a value for each layer, that of the
// current layer.
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

func (m *metadata) optionalInteger(name string, low, high, fallback int) int {
	if _, err := m.f.Uint(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return fallback
	}
	return m.integer(name, low, high)
}

func (m *metadata) float(name string, low, high float64) float64 {
	v, err := m.f.Float(m.key(name))
	if err != nil {
		m.fail(err)
		return low
	}
	// Negated, so that NaN is refused too.
	if !(v >= low && v <= high) {
		m.fail(fmt.Errorf("%s is %g, want %g to %g", m.key(name), v, low, high))
		return low
	}
	return v
}

func (m *metadata) optionalFloat(name string, low, high, fallback float64) float64 {
	if _, err := m.f.Float(m.key(name)); errors.Is(err, gguf.ErrMissing) {
		return fallback
	}
	return m.float(name, low, high)
}

func (m *metadata) optionalBool(name string, fallback bool) bool {
	v, err := m.f.Bool(m.key(name))
	if errors.Is(err, gguf.ErrMissing) {
		return fallback
	}
	if err != nil {
		m.fail(err)
	}
	return v
}

// layerFloats returns the value of a key for each layer: any number or -Inf.
func (m *metadata) layerFloats(name string, layers int) []float32 {
	values, err := m.f.Floats(m.key(name))
	if err == nil && len(values) != layers {
		err = fmt.Errorf("%s has %d values for %d layers", m.key(name), len(values), layers)
	}
	for i, v := range values {
		if err == nil && !(v <= math.MaxFloat32) { // negated, so that NaN is refused too
			err = fmt.Errorf("%s is %g for layer %d, want a number or -Inf", m.key(name), v, i)
		}
	}
	if err != nil {
		m.fail(err)
		return make([]float32, layers)
	}
	return values
}

// pattern returns which of layers layers a key marks. The key has a bool for each layer, or the
// length of a period in which all layers but the last are marked. A file without the key has the
// period period.
func (m *metadata) pattern(name string, layers, period int) []bool {
	values, count, array, err := m.f.First(m.key(name), layers)
	marks := make([]bool, layers)
	switch {
	case errors.Is(err, gguf.ErrMissing):
	case err != nil:
		m.fail(err)
	case !array:
		period = m.integer(name, 1, maxLayers)
	case count != layers && count != m.layers: // some have a value for multi-token prediction blocks too
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

// computationKeys are the keys that change what some architecture computes, each with the values
// that have no effect.
var computationKeys = map[string][]any{
	"attention.causal":                 {true},
	"attention.clamp_kqv":              off,
	"attention.kv_lora_rank":           off,
	"attention.indexer.head_count":     off,
	"attention.max_alibi_bias":         off,
	"attention.output_scale":           offOrOne,
	"attention.q_lora_rank":            off,
	"attention.rope_pattern":           {true},
	"attention.scale":                  off,
	"attention.shared_kv_layers":       off,
	"attention.sliding_window":         off,
	"attention.sliding_window_pattern": off,
	"attention.temperature_scale":      off,
	"attention.value_scale":            offOrOne,
	"activation_sparsity_scale":        off,
	"altup.num_inputs":                 {uint64(0), uint64(1)},
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
	"kda.gate_lower_bound":             off,
	"kda.head_dim":                     off,
	"kda.safe_gate":                    off,
	"leading_dense_block_count":        off,
	"logit_scale":                      offOrOne,
	"moe_latent_size":                  off,
	"nextn_predict_layers":             off,
	"residual_scale":                   offOrOne,
	"router_logit_softcapping":         off,
	"rope.scaling.alpha":               off,
	"rope.scaling.yarn_attn_factor":    offOrOne,
	"rope.scaling.yarn_ext_factor":     {float32(1)},
	"shortconv.l_cache":                off,
	"ssm.dt_b_c_rms":                   off,
	"ssm.state_size":                   off,
	"swiglu_clamp_exp":                 off,
	"swiglu_clamp_shexp":               off,
	"swin_norm":                        off,
	"use_parallel_residual":            off,
}

var (
	off      = []any{uint64(0), float32(0), false}
	offOrOne = []any{float32(0), float32(1)}
)

// refuseUnread fails if the file has one of computationKeys that the architecture did not read, with
// a value that changes results.
func (m *metadata) refuseUnread() {
	for _, name := range slices.Sorted(maps.Keys(computationKeys)) {
		values, _, array, err := m.f.First(m.prefix+"."+name, 1)
		if err != nil || m.read[name] || !array && slices.Contains(computationKeys[name], values[0]) {
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
	kind, err := gguf.Optional(m.f.Str, m.key("rope.scaling.type"), "linear")
	switch {
	case err != nil:
		m.fail(err)
	case kind == "linear": // old files have another key
		factor := m.optionalFloat("rope.scaling.factor", 0, 1e6, m.optionalFloat("rope.scale_linear", 0, 1e6, 1))
		r.Scale = 1 / cmp.Or(factor, 1)
	case kind == "yarn":
		m.yarn(&r, original)
	case kind != "none" && kind != "longrope": // the factors of longrope are tensors
		m.fail(fmt.Errorf("%s is %q; supported are none, linear, longrope and yarn", m.key("rope.scaling.type"), kind))
	}
	if factor := m.optionalFloat("rope.scaling.attn_factor", 0, 1e6, 1); factor != 0 && factor != 1 {
		r.Magnitude = cmp.Or(r.Magnitude, 1) * float32(factor)
	}
	return r
}

// yarn reads the frequency scaling of YaRN: pairs that rotate often within the original context
// keep their frequencies, pairs that do not complete one rotation are scaled.
func (m *metadata) yarn(r *device.RoPE, original int) {
	factor := m.float("rope.scaling.factor", 1, 1e6)
	fast := m.optionalFloat("rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32)
	slow := m.optionalFloat("rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1)
	// pair returns the index of the pair that completes this many rotations within the original
	// context.
	pair := func(turns float64) float64 {
		return float64(r.Dims) * math.Log(float64(original)/(turns*2*math.Pi)) / (2 * math.Log(r.Base))
	}
	r.Scale = 1 / factor
	low, high := pair(fast), pair(slow)
	// The published gpt-oss models do not round these bounds, but their files do not say so.
	if m.optionalBool("rope.scaling.yarn_truncate", nameOf(m.prefix) != "gpt-oss" || original != 4096) {
		low, high = math.Floor(low), math.Ceil(high)
	}
	r.Low = max(low, 0)
	r.High = max(min(high, float64(r.Dims-1)), r.Low+1e-3)
	log := 0.1 * math.Log(factor)
	r.Magnitude = float32(cmp.Or(m.yarnMagnitude(), (1+log)/(1+log*m.yarnLogMultiplier())))
}

// yarnMagnitude returns the factor of rotated elements that a file states instead of the one that follows
// from the frequency scaling; 0: none.
func (m *metadata) yarnMagnitude() float64 {
	return m.optionalFloat("rope.scaling.yarn_attn_factor", 0, 1e3, 0)
}

func (m *metadata) yarnLogMultiplier() float64 {
	return m.optionalFloat("rope.scaling.yarn_log_multiplier", 0, 1e3, 0)
}
