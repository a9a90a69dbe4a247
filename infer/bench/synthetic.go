package bench

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"m40-llm/infer/gguf"
)

// shape has the dimensions of a published model.
type shape struct {
	architecture            string
	dim, layers             int
	heads, kvHeads, headDim int
	hidden, vocab           int
	tied                    bool // the output layer is the embedding table
	ropeBase                float32
	mixture                 mixture
	hybrid                  hybrid
}

// hybrid are the layers with recurrent state of a model in which only each interval-th has attention.
type hybrid struct {
	interval    int // 0: all layers have attention
	inner       int // width of the values of all heads
	heads, keys int // heads of values, and of keys
	state       int // width of a key
}

// attends reports whether layer i has attention.
func (h hybrid) attends(i int) bool { return h.interval == 0 || (i+1)%h.interval == 0 }

// convKernel is how many positions the convolutions of hybrids span.
const convKernel = 4

// mixture are the experts of a layer.
type mixture struct {
	experts, used int // 0: the layer is dense
	hidden        int // of an expert
}

var dense = mixture{}

var shapes = map[string]shape{
	"tiny":       {"llama", 256, 2, 4, 2, 64, 512, 512, true, 1e4, dense, hybrid{}},
	"llama-15m":  {"llama", 288, 6, 6, 6, 48, 768, 32000, true, 1e4, dense, hybrid{}},
	"llama-110m": {"llama", 768, 12, 12, 12, 64, 2048, 32000, true, 1e4, dense, hybrid{}},
	"qwen-0.5b":  {"qwen2", 896, 24, 14, 2, 64, 4864, 151936, true, 1e6, dense, hybrid{}},
	"llama-1b":   {"llama", 2048, 16, 32, 8, 64, 8192, 128256, true, 5e5, dense, hybrid{}},
	"llama-3b":   {"llama", 3072, 28, 24, 8, 128, 8192, 128256, true, 5e5, dense, hybrid{}},
	"qwen3-0.6b": {"qwen3", 1024, 28, 16, 8, 128, 3072, 151936, true, 1e6, dense, hybrid{}},
	"qwen3-1.7b": {"qwen3", 2048, 28, 16, 8, 128, 6144, 151936, true, 1e6, dense, hybrid{}},
	"qwen3-4b":   {"qwen3", 2560, 36, 32, 8, 128, 9728, 151936, true, 1e6, dense, hybrid{}},
	"qwen3-8b":   {"qwen3", 4096, 36, 32, 8, 128, 12288, 151936, false, 1e6, dense, hybrid{}},
	"qwen3-14b":  {"qwen3", 5120, 40, 40, 8, 128, 17408, 151936, false, 1e6, dense, hybrid{}},
	"mistral-7b": {"llama", 4096, 32, 32, 8, 128, 14336, 32000, false, 1e6, dense, hybrid{}},
	"llama-8b":   {"llama", 4096, 32, 32, 8, 128, 14336, 128256, false, 5e5, dense, hybrid{}},

	// Layers with recurrent state: gated delta nets, and Mamba-2.
	"qwen3.5-0.8b": {"qwen35", 1024, 24, 8, 2, 256, 3584, 248320, true, 1e7, dense, hybrid{4, 2048, 16, 16, 128}},
	"granite4-1b":  {"granitehybrid", 1536, 40, 12, 4, 128, 4096, 100352, true, 1e4, dense, hybrid{10, 3072, 48, 1, 128}},

	"qwen3-30b-a3b": {"qwen3moe", 2048, 48, 32, 4, 128, 6144, 151936, false, 1e6, mixture{128, 8, 768}, hybrid{}},

	// Six of the 48 layers, so that the weights fit into the memory of a small machine.
	"qwen3-30b-a3b-6l": {"qwen3moe", 2048, 6, 32, 4, 128, 6144, 151936, false, 1e6, mixture{128, 8, 768}, hybrid{}},
}

// Shapes returns the names of the shapes that Synthetic supports.
func Shapes() []string { return slices.Sorted(maps.Keys(shapes)) }

// Quants returns the names of the weight formats that Synthetic supports.
func Quants() (names []string) {
	for _, t := range gguf.Types() {
		if t.IsRandomizable() {
			names = append(names, strings.ToLower(t.String()))
		}
	}
	slices.Sort(names)
	return names
}

// typeOf returns the weight format called name.
func typeOf(name string) (gguf.Type, error) {
	for _, t := range gguf.Types() {
		if t.IsRandomizable() && strings.EqualFold(t.String(), name) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("weight format %q is not supported; supported are %s", name, strings.Join(Quants(), ", "))
}

// alignment is the alignment of tensors in bytes.
const alignment = 32

// tensor describes a tensor to fill with random values.
type tensor struct {
	name       string
	experts    int // 0: a matrix or a vector
	rows, cols int // rows 0: a vector
	typ        gguf.Type
	size       float64 // magnitude of its values; 0: close to 1, for norms; below 0: all are size
	at         int     // offset in the data section
}

func (t tensor) bytes() int { return max(t.experts, 1) * max(t.rows, 1) * t.typ.RowBytes(t.cols) }

// Synthetic returns a model with random weights in memory, which runs as fast as a published
// model of the same shape. It has no vocabulary. The same seed gives the same weights on every
// machine. free is the available memory in bytes; 0: unknown.
func Synthetic(shapeName, quantName string, seed uint64, free int64) (*gguf.File, error) {
	data, err := SyntheticFile(shapeName, quantName, seed, free)
	if err != nil {
		return nil, err
	}
	return gguf.Parse(data)
}

// SyntheticFile returns the content of a GGUF file with the model of Synthetic.
func SyntheticFile(shapeName, quantName string, seed uint64, free int64) ([]byte, error) {
	s, typ, err := named(shapeName, quantName)
	if err != nil {
		return nil, err
	}
	tensors := s.tensors(typ)
	for _, t := range tensors {
		if elements, _ := t.typ.Block(); t.cols%int(elements) != 0 {
			return nil, fmt.Errorf("%s cannot be in %s: its rows of %d values are not whole blocks of %d; use q8_0 or q4_0", shapeName, quantName, t.cols, elements)
		}
	}
	header := s.header(shapeName, tensors, syntheticContext)
	last := tensors[len(tensors)-1]
	size := len(header) + last.at + last.bytes()
	if free > 0 && int64(size) > free {
		return nil, fmt.Errorf("%s in %s needs %.1f GB of memory, but %.1f GB are free; choose a format with fewer bits or a smaller shape", shapeName, quantName, float64(size)/1e9, float64(free)/1e9)
	}
	data := make([]byte, size)
	copy(data, header)
	draw(data[len(header):], tensors, seed)
	return data, nil
}

// syntheticContext is the context of synthetic models, in tokens: as long as one may want to measure.
const syntheticContext = 1 << 17

// named returns the shape and the format of weights of these names.
func named(shapeName, quantName string) (shape, gguf.Type, error) {
	s, ok := shapes[strings.ToLower(shapeName)]
	if !ok {
		return s, 0, fmt.Errorf("shape %q does not exist; the shapes are %s", shapeName, strings.Join(Shapes(), ", "))
	}
	typ, err := typeOf(quantName)
	return s, typ, err
}

// Header returns a model of a published shape and context without its weights.
func Header(shapeName, quantName string, context int) (*gguf.File, error) {
	s, typ, err := named(shapeName, quantName)
	if err != nil {
		return nil, err
	}
	tensors := s.tensors(typ)
	header := s.header(shapeName, tensors, context)
	last := tensors[len(tensors)-1]
	return gguf.ReadHeader(withoutWeights(header), len(header)+last.at+last.bytes())
}

// withoutWeights is a file with a header, and zeros after it.
type withoutWeights []byte

func (h withoutWeights) ReadAt(p []byte, at int64) (int, error) {
	clear(p[copy(p, h[min(at, int64(len(h))):]):])
	return len(p), nil
}

// tensors returns the tensors of the model with their offsets.
func (s shape) tensors(typ gguf.Type) (list []tensor) {
	at := 0
	place := func(name string, experts, rows, cols int, typ gguf.Type, size float64) {
		t := tensor{name, experts, rows, cols, typ, size, at}
		list = append(list, t)
		at += (t.bytes() + alignment - 1) / alignment * alignment
	}
	add := func(name string, rows, cols int, typ gguf.Type, size float64) { place(name, 0, rows, cols, typ, size) }
	matrix := func(name string, rows, cols int) { add(name, rows, cols, typ, 1/math.Sqrt(float64(cols))) }
	matrices := func(name string, rows, cols int) {
		place(name, s.mixture.experts, rows, cols, typ, 1/math.Sqrt(float64(cols)))
	}
	matrix("token_embd.weight", s.vocab, s.dim)
	for i := range s.layers {
		name := func(part string) string { return fmt.Sprintf("blk.%d.%s", i, part) }
		add(name("attn_norm.weight"), 0, s.dim, gguf.F32, 0)
		if s.hybrid.interval > 0 {
			s.addHybrid(i, func(part string, rows, cols int, typ gguf.Type, size float64) { add(name(part), rows, cols, typ, size) }, typ)
			continue
		}
		matrix(name("attn_q.weight"), s.heads*s.headDim, s.dim)
		matrix(name("attn_k.weight"), s.kvHeads*s.headDim, s.dim)
		matrix(name("attn_v.weight"), s.kvHeads*s.headDim, s.dim)
		matrix(name("attn_output.weight"), s.dim, s.heads*s.headDim)
		if s.architecture == "qwen2" {
			add(name("attn_q.bias"), 0, s.heads*s.headDim, gguf.F32, 0.02)
			add(name("attn_k.bias"), 0, s.kvHeads*s.headDim, gguf.F32, 0.02)
			add(name("attn_v.bias"), 0, s.kvHeads*s.headDim, gguf.F32, 0.02)
		}
		if strings.HasPrefix(s.architecture, "qwen3") {
			add(name("attn_q_norm.weight"), 0, s.headDim, gguf.F32, 0)
			add(name("attn_k_norm.weight"), 0, s.headDim, gguf.F32, 0)
		}
		add(name("ffn_norm.weight"), 0, s.dim, gguf.F32, 0)
		if m := s.mixture; m.experts > 0 {
			add(name("ffn_gate_inp.weight"), m.experts, s.dim, gguf.F32, 1/math.Sqrt(float64(s.dim)))
			matrices(name("ffn_gate_exps.weight"), m.hidden, s.dim)
			matrices(name("ffn_up_exps.weight"), m.hidden, s.dim)
			matrices(name("ffn_down_exps.weight"), s.dim, m.hidden)
			continue
		}
		matrix(name("ffn_gate.weight"), s.hidden, s.dim)
		matrix(name("ffn_up.weight"), s.hidden, s.dim)
		matrix(name("ffn_down.weight"), s.dim, s.hidden)
	}
	add("output_norm.weight", 0, s.dim, gguf.F32, 0)
	if !s.tied {
		matrix("output.weight", s.vocab, s.dim)
	}
	return list
}

// addHybrid adds the tensors of layer i of a hybrid, except the norm before it.
func (s shape) addHybrid(i int, add func(part string, rows, cols int, typ gguf.Type, size float64), typ gguf.Type) {
	h, delta := s.hybrid, s.architecture == "qwen35"
	matrix := func(part string, rows, cols int) { add(part, rows, cols, typ, 1/math.Sqrt(float64(cols))) }
	convolved := 2*h.keys*h.state + h.inner
	switch {
	case h.attends(i):
		queries := s.heads * s.headDim
		if delta { // with gates
			queries *= 2
			add("attn_q_norm.weight", 0, s.headDim, gguf.F32, 0)
			add("attn_k_norm.weight", 0, s.headDim, gguf.F32, 0)
		}
		matrix("attn_q.weight", queries, s.dim)
		matrix("attn_k.weight", s.kvHeads*s.headDim, s.dim)
		matrix("attn_v.weight", s.kvHeads*s.headDim, s.dim)
		matrix("attn_output.weight", s.dim, s.heads*s.headDim)
	case delta:
		matrix("attn_qkv.weight", convolved, s.dim)
		matrix("attn_gate.weight", h.inner, s.dim)
		matrix("ssm_alpha.weight", h.heads, s.dim)
		matrix("ssm_beta.weight", h.heads, s.dim)
		add("ssm_norm.weight", 0, h.inner/h.heads, gguf.F32, 0)
	default:
		matrix("ssm_in.weight", h.inner+convolved+h.heads, s.dim)
		add("ssm_conv1d.bias", 0, convolved, gguf.F32, 0.02)
		add("ssm_d", 0, h.heads, gguf.F32, 0)
		add("ssm_norm.weight", 0, h.inner, gguf.F32, 0)
	}
	if !h.attends(i) {
		add("ssm_conv1d.weight", convolved, convKernel, gguf.F32, 0.5)
		add("ssm_a", 0, h.heads, gguf.F32, -1)
		add("ssm_dt.bias", 0, h.heads, gguf.F32, 0.5)
		matrix("ssm_out.weight", s.dim, h.inner)
	}
	norm := "ffn_norm.weight"
	if delta {
		norm = "post_attention_norm.weight"
	}
	add(norm, 0, s.dim, gguf.F32, 0)
	matrix("ffn_gate.weight", s.hidden, s.dim)
	matrix("ffn_up.weight", s.hidden, s.dim)
	matrix("ffn_down.weight", s.dim, s.hidden)
}

// header returns the GGUF header, padded to the data section.
func (s shape) header(name string, tensors []tensor, context int) []byte {
	le := binary.LittleEndian
	m := s.metadata(name, context)
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = append(le.AppendUint64(b, uint64(m.count)), m.keys...)
	for _, t := range tensors {
		b = appendText(b, t.name)
		dims := slices.DeleteFunc([]int{t.cols, t.rows, t.experts}, func(n int) bool { return n == 0 })
		b = le.AppendUint32(b, uint32(len(dims)))
		for _, n := range dims {
			b = le.AppendUint64(b, uint64(n))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.typ)), uint64(t.at))
	}
	return append(b, make([]byte, (alignment-len(b)%alignment)%alignment)...)
}

// metadata returns the keys of the header.
func (s shape) metadata(name string, context int) *metadata {
	m := &metadata{prefix: s.architecture + "."}
	m.str("general.architecture", s.architecture)
	m.str("general.name", "random "+name)
	m.str("tokenizer.ggml.model", "no_vocab") // some programs need the key
	m.integer("vocab_size", s.vocab)
	m.integer("context_length", context)
	m.integer("embedding_length", s.dim)
	m.integer("block_count", s.layers)
	m.integer("feed_forward_length", s.hidden)
	m.integer("attention.head_count", s.heads)
	if h := s.hybrid; h.interval > 0 && s.architecture != "qwen35" { // 0 in layers without attention
		heads := make([]int, s.layers)
		for i := range heads {
			if h.attends(i) {
				heads[i] = s.kvHeads
			}
		}
		m.integers("attention.head_count_kv", heads)
	} else {
		m.integer("attention.head_count_kv", s.kvHeads)
	}
	m.integer("attention.key_length", s.headDim)
	m.integer("attention.value_length", s.headDim)
	m.integer("rope.dimension_count", s.headDim)
	if h := s.hybrid; h.interval > 0 {
		m.integer("ssm.conv_kernel", convKernel)
		m.integer("ssm.inner_size", h.inner)
		m.integer("ssm.state_size", h.state)
		m.integer("ssm.time_step_rank", h.heads)
		m.integer("ssm.group_count", h.keys)
		if s.architecture == "qwen35" {
			m.integer("full_attention_interval", h.interval)
		}
	}
	if x := s.mixture; x.experts > 0 {
		m.integer("expert_count", x.experts)
		m.integer("expert_used_count", x.used)
		m.integer("expert_feed_forward_length", x.hidden)
	}
	m.float("rope.freq_base", s.ropeBase)
	m.float("attention.layer_norm_rms_epsilon", 1e-5)
	return m
}

// metadata is the keys of a GGUF header as they are written.
type metadata struct {
	prefix string // of the names of numbers
	keys   []byte
	count  int
}

// Types of values in GGUF.
const (
	kindUint32  = 4
	kindFloat32 = 6
	kindString  = 8
	kindArray   = 9
)

// appendText appends a string after its length.
func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (m *metadata) key(name string, kind uint32) {
	m.keys = binary.LittleEndian.AppendUint32(appendText(m.keys, name), kind)
	m.count++
}

func (m *metadata) str(name, value string) {
	m.key(name, kindString)
	m.keys = appendText(m.keys, value)
}

func (m *metadata) integer(name string, value int) {
	m.key(m.prefix+name, kindUint32)
	m.keys = binary.LittleEndian.AppendUint32(m.keys, uint32(value))
}

func (m *metadata) integers(name string, values []int) {
	m.key(m.prefix+name, kindArray)
	m.keys = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(m.keys, kindUint32), uint64(len(values)))
	for _, value := range values {
		m.keys = binary.LittleEndian.AppendUint32(m.keys, uint32(value))
	}
}

func (m *metadata) float(name string, value float32) {
	m.key(m.prefix+name, kindFloat32)
	m.keys = binary.LittleEndian.AppendUint32(m.keys, math.Float32bits(value))
}

// draw fills data with random weights. Each piece has its own random generator, so that the
// result does not depend on the number of threads.
func draw(data []byte, tensors []tensor, seed uint64) {
	const rowsAtOnce = 256
	type piece struct {
		data   []byte
		tensor tensor
	}
	pieces := make(chan piece)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range pieces {
				offset := uint64(cap(data) - cap(p.data))
				p.tensor.fill(p.data, rand.NewPCG(seed, offset))
			}
		})
	}
	for _, t := range tensors {
		row := t.typ.RowBytes(t.cols)
		for begin := 0; begin < t.bytes(); begin += rowsAtOnce * row {
			end := min(begin+rowsAtOnce*row, t.bytes())
			pieces <- piece{data[t.at+begin : t.at+end], t}
		}
	}
	close(pieces)
	workers.Wait()
}

// fill sets data, a part of the tensor, to random values.
func (t tensor) fill(data []byte, random *rand.PCG) {
	le := binary.LittleEndian
	if t.size == 0 {
		for ; len(data) > 0; data = data[4:] {
			le.PutUint32(data, math.Float32bits(1+float32(int32(random.Uint64()))/(1<<34)))
		}
		return
	}
	if t.size < 0 {
		for ; len(data) > 0; data = data[4:] {
			le.PutUint32(data, math.Float32bits(float32(t.size)))
		}
		return
	}
	whole := len(data) / 8 * 8
	for i := 0; i < whole; i += 8 {
		le.PutUint64(data[i:], random.Uint64())
	}
	for i := whole; i < len(data); i++ {
		data[i] = byte(random.Uint64())
	}
	if err := gguf.SetRandomScale(t.typ, data, t.size); err != nil {
		panic(err) // typeOf has checked the type
	}
}
