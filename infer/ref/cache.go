package ref

import (
	"encoding/binary"
	"math"
	"slices"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// cache is a paged KV cache. What counts are the bytes of its blocks; values are what they decode to.
type cache struct {
	device.KVLayout
	blocks []block
}

// block is a block of a cache: its bytes as in KVLayout, and their values [layer][K|V][kv head][position in block][dim]. Both are nil
// until the block is first used.
type block struct {
	bytes  []byte
	values []float32
}

const (
	keys   = 0
	values = 1
)

func newCache(l device.KVLayout) (cache, error) {
	if err := l.CheckType(); err != nil {
		return cache{}, err
	}
	return cache{KVLayout: l, blocks: make([]block, l.Blocks)}, nil
}

// at returns the key or value (kind) of a head at position pos of the sequence with this block
// table.
func (c *cache) at(layer, kind, head int, table []int32, pos int) []float32 {
	_, values := c.row(layer, kind, head, table, pos)
	return values
}

// row returns the bytes of what at returns, too.
func (c *cache) row(layer, kind, head int, table []int32, pos int) ([]byte, []float32) {
	b, kind := c.block(table[pos/device.BlockSize]), min(kind, c.Parts()-1)
	of, n := c.typeOf(kind), c.HeadDim
	i := ((layer*c.Parts()+kind)*c.KVHeads+head)*device.BlockSize + pos%device.BlockSize
	before := int64(layer*c.KVHeads) * (c.HeadBytes(keys) + int64(c.Parts()-1)*c.HeadBytes(values))
	before += int64(kind*c.KVHeads)*c.HeadBytes(keys) + int64(head)*c.HeadBytes(kind)
	at := int(before) + pos%device.BlockSize*of.RowBytes(n)
	return b.bytes[at : at+of.RowBytes(n)], b.values[i*n : i*n+n]
}

// typeOf returns the type of keys or values.
func (c *cache) typeOf(kind int) gguf.Type {
	if kind == keys {
		return c.Type.Keys
	}
	return c.Type.Values
}

// block returns a block, which is zeros before it was written.
func (c *cache) block(id int32) *block {
	b := &c.blocks[id]
	if b.bytes == nil {
		b.bytes = make([]byte, c.BlockBytes())
		b.values = make([]float32, c.Layers*c.Parts()*c.KVHeads*device.BlockSize*c.HeadDim)
	}
	return b
}

// decode sets the values of a block to those of its bytes.
func (c *cache) decode(b *block) {
	from, to := b.bytes, b.values
	for range c.Layers {
		for kind := range c.Parts() {
			n := c.KVHeads * device.BlockSize * c.HeadDim
			dequantize(c.typeOf(kind), from, to[:n])
			from, to = from[c.KVHeads*int(c.HeadBytes(kind)):], to[n:]
		}
	}
}

// dequantize sets dst to the values in src, which is as long or longer.
func dequantize(t gguf.Type, src []byte, dst []float32) {
	if err := gguf.Dequantize(t, src[:t.RowBytes(len(dst))], dst); err != nil {
		panic(err) // the type was checked
	}
}

func (c *cache) store(layer int, table []int32, pos int, k, v []float32) {
	for kind, x := range [][]float32{k, v}[:c.Parts()] {
		for h := range c.KVHeads {
			bytes, values := c.row(layer, kind, h, table, pos)
			part := slices.Clone(x[h*c.HeadDim : (h+1)*c.HeadDim])
			if kind == keys && c.RotatesKeys() {
				rotate(part, 1)
			}
			encode(c.typeOf(kind), bytes, part)
			dequantize(c.typeOf(kind), bytes, values)
		}
	}
}

// rotate multiplies each block of 32 elements by the Hadamard matrix and by factor: see device.KVLayout.RotatesKeys.
func rotate(x []float32, factor float32) {
	for block := range slices.Chunk(x, 32) {
		for step := 1; step < 32; step *= 2 {
			for i := range block {
				if i&step == 0 {
					block[i], block[i+step] = block[i]+block[i+step], block[i]-block[i+step]
				}
			}
		}
		for i := range block {
			block[i] *= factor
		}
	}
}

// encode writes values to dst in a type of a cache: see device.CacheType.
func encode(t gguf.Type, dst []byte, x []float32) {
	switch t {
	case gguf.F32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case gguf.F16:
		for i, v := range x {
			binary.LittleEndian.PutUint16(dst[2*i:], gguf.F32ToF16(v))
		}
	case gguf.Q8_0:
		for ; len(x) > 0; x, dst = x[32:], dst[34:] {
			m := max(largest(x[:32], 1), largest(x[:32], -1))
			scale, factor := scaleOf(m, 127)
			binary.LittleEndian.PutUint16(dst, scale)
			for i, v := range x[:32] {
				dst[2+i] = byte(code(v, factor))
			}
		}
	case gguf.Q4_0:
		for ; len(x) > 0; x, dst = x[32:], dst[18:] {
			positive, negative := largest(x[:32], 1), largest(x[:32], -1)
			scale, factor := scaleOf(max(positive, negative), 8)
			if positive > negative {
				scale, factor = scale^0x8000, -factor // the code of the largest is 0, as that of the least would be
			}
			binary.LittleEndian.PutUint16(dst, scale)
			for i := range 16 {
				dst[2+i] = byte(min(15, code(x[i], factor)+8)) | byte(min(15, code(x[16+i], factor)+8))<<4
			}
		}
	}
}

// code returns x · factor, rounded; 0 for whatever x if factor is 0.
func code(x, factor float32) int8 {
	if factor == 0 {
		return 0
	}
	return int8(math.RoundToEven(float64(x * factor)))
}

// largest returns the largest of sign · x, or a NaN if there is one.
func largest(x []float32, sign float32) float32 {
	m := sign * x[0]
	for _, v := range x {
		m = max(m, sign*v)
	}
	return m
}

// scaleOf returns the scale of a block whose largest magnitude m has the code steps or -steps, as F16, and the factor that makes codes
// of its elements.
func scaleOf(m, steps float32) (scale uint16, factor float32) {
	factor = steps / m
	switch {
	case factor > 0 && !math.IsInf(float64(factor), 0):
		return gguf.F32ToF16(m / steps), factor
	case m < 1:
		return 0, 0
	}
	return 0x7e00, 0 // a NaN
}

// attend: dst = softmax(capped(q·kᵀ·scale)) · v for every query head, over the positions from first
// to last; the row's own is pos. sinks has a score for each head, or is nil.
func (c *cache) attend(dst, q, sinks []float32, layer int, a device.Attention, table []int32, first, last, pos int) {
	weights := make([]float64, last+1)
	for h := range a.Heads {
		kvHead := h / (a.Heads / c.KVHeads)
		query := slices.Clone(q[h*c.HeadDim : (h+1)*c.HeadDim])
		if c.RotatesKeys() {
			rotate(query, 1.0/32)
		}

		top := math.Inf(-1)
		if sinks != nil {
			top = float64(sinks[h])
		}
		for p := first; p <= last; p++ {
			weights[p] = capped(dot(query, c.at(layer, keys, kvHead, table, p))*float64(a.Scale), float64(a.Cap))
			if a.MaxBias > 0 {
				weights[p] -= a.Slope(h) * math.Abs(float64(pos-p))
			}
			top = max(top, weights[p])
		}
		sum := 0.0
		if sinks != nil {
			sum = math.Exp(float64(sinks[h]) - top)
		}
		for p := first; p <= last; p++ {
			weights[p] = math.Exp(weights[p] - top)
			sum += weights[p]
		}
		for i := range c.ValueDim() {
			mean := 0.0
			for p := first; p <= last; p++ {
				mean += weights[p] * float64(c.at(layer, values, kvHead, table, p)[i])
			}
			dst[h*c.ValueDim()+i] = float32(mean / sum)
		}
	}
}
