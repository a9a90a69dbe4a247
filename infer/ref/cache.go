package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// cache is a paged KV cache. An F16 cache stores float32 values rounded to float16.
type cache struct {
	device.KVLayout
	blocks [][]float32 // each [layer][K|V][kv head][position in block][dim]; nil until first used
}

const (
	keys   = 0
	values = 1
)

func newCache(l device.KVLayout) (cache, error) {
	if l.Type != gguf.F32 && l.Type != gguf.F16 {
		return cache{}, fmt.Errorf("KV cache type %s is not supported; supported are F16 and F32", l.Type)
	}
	return cache{KVLayout: l, blocks: make([][]float32, l.Blocks)}, nil
}

// at returns the key or value (kind) of a head at position pos of the sequence with this block
// table.
func (c *cache) at(layer, kind, head int, table []int32, pos int) []float32 {
	block := c.block(table[pos/device.BlockSize])
	i := (layer*c.Parts()+min(kind, c.Parts()-1))*c.KVHeads + head
	i = (i*device.BlockSize + pos%device.BlockSize) * c.HeadDim
	return block[i : i+c.HeadDim]
}

// block returns the values of a block.
func (c *cache) block(id int32) []float32 {
	if c.blocks[id] == nil {
		c.blocks[id] = make([]float32, c.Layers*c.Parts()*c.KVHeads*device.BlockSize*c.HeadDim)
	}
	return c.blocks[id]
}

// encode writes the values of a block to dst, in the cache's type.
func (c *cache) encode(dst []byte, id int32) {
	for i, x := range c.block(id) {
		if c.Type == gguf.F16 {
			binary.LittleEndian.PutUint16(dst[2*i:], gguf.F32ToF16(x))
		} else {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
	}
}

// decode sets the values of a block to those that encode has written.
func (c *cache) decode(id int32, src []byte) {
	values := c.block(id)
	for i := range values {
		if c.Type == gguf.F16 {
			values[i] = gguf.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		} else {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}

func (c *cache) store(layer int, table []int32, pos int, k, v []float32) {
	for h := range c.KVHeads {
		for i := range c.HeadDim {
			c.at(layer, keys, h, table, pos)[i] = c.round(k[h*c.HeadDim+i])
			if c.Latent == 0 {
				c.at(layer, values, h, table, pos)[i] = c.round(v[h*c.HeadDim+i])
			}
		}
	}
}

func (c *cache) round(x float32) float32 {
	if c.Type == gguf.F16 {
		return gguf.F16ToF32(gguf.F32ToF16(x))
	}
	return x
}

// attend: dst = softmax(capped(q·kᵀ·scale)) · v for every query head, over the positions from first
// to last; the row's own is pos. sinks has a score for each head, or is nil.
func (c *cache) attend(dst, q, sinks []float32, layer int, a device.Attention, table []int32, first, last, pos int) {
	weights := make([]float64, last+1)
	for h := range a.Heads {
		kvHead := h / (a.Heads / c.KVHeads)
		query := q[h*c.HeadDim : (h+1)*c.HeadDim]

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
