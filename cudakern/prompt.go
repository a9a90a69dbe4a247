package cudakern

import "fmt"

// PromptMatMul multiplies the activations of rows of prompts by weights of one type in matrix units: weights and activations are rounded to halves, and
// sums are float32. It is for many rows, and its bits are not those of MatMul; they do not depend on the number of rows, or on the other ones.
type PromptMatMul struct {
	weights string
	halves  *Function // rounds weights; nil: they are F16
	tiles   []productGroup
}

// MaxHalfBytes is up to how many bytes of rounded weights products that are launched together may have. Single ones may have more.
const MaxHalfBytes = 256 << 20

// PromptPath follows the path of models with weights that PromptMatMul multiplies.
const PromptPath = ", half prompts"

// HasPromptMatMul reports whether there are kernels for weights of a type: for GPUs with which they were measured, that have as many results of halves with
// sums in float32 in a clock as others have of integers only.
func HasPromptMatMul(c *Context, weights string) bool {
	_, err := formatOf(weights)
	return err == nil && weights != "f32" && c.HasPromptMatMuls()
}

// HasPromptMatMuls reports whether HasPromptMatMul is true for any weights.
func (c *Context) HasPromptMatMuls() bool {
	return c.Units == UnitsMMA && c.properties.overlaps() && c.properties.MaxShared >= largeShared
}

// NewPromptMatMul loads the kernels for a weight type.
func NewPromptMatMul(c *Context, weights string) (k *PromptMatMul, err error) {
	if !HasPromptMatMul(c, weights) {
		return nil, fmt.Errorf("rows of prompts have no kernel of their own for %s weights here", weights)
	}
	const outputs, line = 128, 128 // OUTPUTS and LINE of Tile
	k = &PromptMatMul{weights: weights}
	for _, t := range []struct{ from, rows, threads, stages int }{{1, 64, 128, 4}, {129, 128, 128, 3}} {
		g := productGroup{from: t.from, rows: t.rows, outputs: outputs, kind: kindHalf, threads: t.threads, memory: t.stages * (outputs + t.rows) * line}
		if g.kernel, err = c.kernel("prompt_f16", fmt.Sprint("matmul_prompt_n", t.rows)); err != nil {
			return nil, err
		}
		if err := g.kernel.SetMaxShared(g.memory); err != nil {
			return nil, err
		}
		k.tiles = append(k.tiles, g)
	}
	if weights != "f16" {
		k.halves, err = c.kernel("halves_"+weights, "halves_"+weights)
	}
	return k, err
}

// Kind returns the kind of activations that products read; see Activation.
func (k *PromptMatMul) Kind() string { return kindHalf }

// HalfBytes returns how many bytes Enqueue needs for rounded weights; 0: none.
func (k *PromptMatMul) HalfBytes(products ...Product) int64 {
	if k.halves == nil {
		return 0
	}
	var all, most int64
	for _, p := range products {
		n := halfBytes(p.W)
		all, most = all+n, max(most, n)
	}
	if all <= MaxHalfBytes {
		return all
	}
	return most
}

// MostHalfBytes returns the most bytes that products of w may need for rounded weights, alone or with others of its size.
func MostHalfBytes(w Weights) int64 {
	one := halfBytes(w)
	return max(one, min(MaxProducts*one, MaxHalfBytes))
}

// halfBytes returns the size of w in F16 on the device, in bytes.
func halfBytes(w Weights) int64 {
	return int64(blocksFor(w.Outputs, bandOutputs)) * int64(blocksFor(w.Inputs, blockInputs)) * bandOutputs * blockInputs * 2
}

// Enqueue computes Dst = x · wᵀ of every product, or Dst += x · wᵀ with add. x has rows of W.Inputs activations of Kind, halves has HalfBytes bytes.
func (k *PromptMatMul) Enqueue(to Queue, x, rows Ptr, capacity int, add bool, halves Ptr, products ...Product) error {
	if len(products) < 1 || len(products) > MaxProducts {
		return fmt.Errorf("cannot launch %d products together, want 1 to %d", len(products), MaxProducts)
	}
	var all int64
	for _, p := range products {
		if p.W.Type != k.weights || p.W.Inputs != products[0].W.Inputs {
			return fmt.Errorf("cannot launch products of %d inputs with %s weights and of %d inputs with %s weights together", products[0].W.Inputs, k.weights, p.W.Inputs, p.W.Type)
		}
		all += halfBytes(p.W)
	}
	if k.halves == nil || all <= MaxHalfBytes {
		return k.enqueue(to, x, rows, capacity, add, halves, products)
	}
	for i := range products {
		if err := k.enqueue(to, x, rows, capacity, add, halves, products[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// enqueue is Enqueue for products whose rounded weights are in halves at the same time.
func (k *PromptMatMul) enqueue(to Queue, x, rows Ptr, capacity int, add bool, halves Ptr, products []Product) error {
	inputs := products[0].W.Inputs
	if err := checkLaunch("PromptMatMul", capacity, inputs); err != nil {
		return err
	}
	tile := k.tiles[0]
	if capacity >= k.tiles[1].from {
		tile = k.tiles[1]
	}
	var each [MaxProducts]Product
	blocks := 0
	for i, p := range products {
		blocks += blocksFor(p.W.Outputs, tile.outputs)
		if each[i] = p; k.halves == nil {
			continue
		}
		each[i].Weights = halves
		warps := blocksFor(p.W.Outputs, bandOutputs) * bandOutputs * tilesFor(inputs)
		if err := k.halves.Launch(to, Dim3{X: blocksFor(warps, threads/32)}, Dim3{X: threads}, 0, halves, p.Weights, int32(p.W.Outputs), int32(inputs)); err != nil {
			return err
		}
		halves += Ptr(halfBytes(p.W))
	}
	if blocks > 65535 {
		return fmt.Errorf("cannot launch products of more than %d outputs together", 65535*tile.outputs)
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	return tile.kernel.Launch(to, Dim3{X: blocksFor(capacity, tile.rows), Y: blocks}, Dim3{X: tile.threads}, tile.memory,
		each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), x, int32(inputs), onto, rows)
}
