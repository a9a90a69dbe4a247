package cudakern

import (
	"errors"
	"fmt"
	"strings"
)

// rowProduct are the kernels of matmul_row.cu, for products of one row.
type rowProduct struct {
	norm, glu, one  *Function
	overlaps        bool // launches do
	most            int  // shared memory that a block of one can have
	spread          int  // more shared memory than two blocks on a multiprocessor can have; 0: not known
	multiprocessors int
}

// newRowProduct loads the kernels; name is what their names begin with.
func newRowProduct(c *Context, module, name string) (k rowProduct, err error) {
	k.multiprocessors, k.most = c.Properties().SMs, min(mostRowShared, max(48<<10, c.properties.MaxShared))
	k.overlaps = c.properties.overlaps() && !strings.HasSuffix(name, "_i16") // units xmad have no code for such devices
	for to, what := range map[**Function]string{&k.norm: "_norm", &k.glu: "_glu", &k.one: "_one"} {
		if *to, err = c.kernel(module, name+what); err != nil {
			return k, err
		}
		(*to).divides, (*to).overlaps = true, k.overlaps
	}
	if k.overlaps && c.properties.MaxShared >= spreadShared {
		k.spread = spreadShared
	}
	if most := max(k.spread, k.most); most > 48<<10 {
		err = k.one.SetMaxShared(most)
	}
	return k, err
}

// mostRowShared is how much shared memory a block of a product of one row may have: two of them fit on a multiprocessor.
const mostRowShared = 96 << 10

// spreadShared is more than half of the shared memory of a multiprocessor of compute capability 9.0 and 10.0, 228 KB.
const spreadShared = 115 << 10

// Normalized is a row of activations, RMSNorm(X) · W, that a product computes itself.
type Normalized struct {
	X, W Ptr // a row of float32; a weight vector
	Eps  float32
}

// maxRowTiles is MOST_TILES of matmul_row.cu.
const maxRowTiles = 6

// CanNormalize reports whether EnqueueNormalized and EnqueueGated should compute products of capacity rows of inputs activations. With
// very many outputs, a launch for the norm and as many blocks as there are groups are as fast.
func CanNormalize(outputs, inputs, capacity int) bool {
	return outputs <= 32768 && capacity == 1 && inputs > 0 && inputs%4 == 0 && tilesFor(inputs) <= maxRowTiles
}

// SameImage reports whether products of one row with weights of two types read the same kind of image.
func SameImage(a, b string) bool {
	first, err := formatOf(a)
	second, otherErr := formatOf(b)
	return err == nil && otherErr == nil && first.isQuantized() == second.isQuantized()
}

// EnqueueNormalized computes Dst = n · wᵀ of every product, of one row, or none if *rows is 0. No Dst may be n.X. The results
// have the bits of Activation.EnqueueRMSNorm and Enqueue.
func (k *MatMul) EnqueueNormalized(to Queue, n Normalized, rows Ptr, products ...Product) error {
	if len(products) < 1 || len(products) > MaxProducts {
		return fmt.Errorf("cannot launch %d products together, want 1 to %d", len(products), MaxProducts)
	}
	if err := k.checkRow(products...); err != nil {
		return err
	}
	var each [MaxProducts]Product
	groups := 0
	for i, p := range products {
		each[i] = p
		groups += blocksFor(p.W.Outputs, rowOutputs)
	}
	inputs := products[0].W.Inputs
	return k.launchRow(to, k.row.norm, groups, inputs,
		each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), n.X, n.W, n.Eps, int32(inputs), rows)
}

// EnqueueGated writes the image of the GLU g of the products n · gateᵀ and n · upᵀ, of one row: that of kind Image(1). The bits
// are those of separate launches. The Dst of both products are not used.
func (k *MatMul) EnqueueGated(to Queue, image Ptr, n Normalized, g Gate, rows Ptr, gate, up Product) error {
	if err := k.checkRow(gate, up); err != nil {
		return err
	}
	if gate.W.Outputs != up.W.Outputs || g > SquaredReLU {
		return fmt.Errorf("no kernel computes gate %d of products of %d and of %d outputs", g, gate.W.Outputs, up.W.Outputs)
	}
	return k.launchRow(to, k.row.glu, blocksFor(gate.W.Outputs, rowOutputs), gate.W.Inputs,
		image, gate.Weights, up.Weights, int32(gate.W.Outputs), int32(g), n.X, n.W, n.Eps, int32(gate.W.Inputs), rows)
}

// TakesOne reports whether EnqueueOne can compute a product of capacity rows of inputs activations.
func (k *MatMul) TakesOne(inputs, capacity int) bool {
	return capacity == 1 && k.rowShared(inputs) <= k.row.most
}

// Overlaps reports whether launches of products of one row begin while launches before them are running.
func (k *MatMul) Overlaps() bool { return k.row.overlaps }

// EnqueueOne computes what Enqueue does for one product of one row, with the same bits. In a graph it takes as long, unless it overlaps.
func (k *MatMul) EnqueueOne(to Queue, x, rows Ptr, add bool, p Product) error {
	if p.W.Type != k.weights || !k.TakesOne(p.W.Inputs, 1) {
		return fmt.Errorf("no product of one row with %s weights has %d inputs of %s", k.weights, p.W.Inputs, p.W.Type)
	}
	if _, err := p.W.format(); err != nil {
		return err
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	return k.launchRow(to, k.row.one, blocksFor(p.W.Outputs, rowOutputs), p.W.Inputs, p.Dst, p.Weights, int32(p.W.Outputs), x, int32(p.W.Inputs), onto, rows)
}

// checkRow returns an error if no launch computes products together from a row that it normalizes.
func (k *MatMul) checkRow(products ...Product) error {
	inputs := products[0].W.Inputs
	for _, p := range products {
		if p.W.Type != k.weights || p.W.Inputs != inputs {
			return fmt.Errorf("a product with %s weights of %d inputs was given %s of %d", k.weights, inputs, p.W.Type, p.W.Inputs)
		}
		if _, err := p.W.format(); err != nil {
			return err
		}
	}
	if !CanNormalize(products[0].W.Outputs, inputs, 1) {
		return fmt.Errorf("no product normalizes a row of %d", inputs)
	}
	return nil
}

// rowOutputs is GROUP_OUTPUTS of matmul_row.cu, the outputs that a block computes at a time.
const rowOutputs = bandOutputs * threads / 32

// rowShared returns the shared memory of a block in bytes: RowMemory of matmul_row.cu.
func (k *MatMul) rowShared(inputs int) int {
	const results = 4 * 2 * 2 * rowOutputs
	return normBytes + results + tilesFor(inputs)*imageBytes[k.image]
}

// launchRow launches as many blocks as can run at the same time, at most one for each group of outputs.
func (k *MatMul) launchRow(to Queue, f *Function, groups, inputs int, args ...any) error {
	shared, spread := k.rowShared(inputs), 0
	if f == k.row.one && groups <= k.row.multiprocessors {
		spread = k.row.spread // one block on each multiprocessor
	}
	blocks, err := f.Occupancy(threads, max(shared, spread))
	if err != nil {
		return err
	}
	if blocks == 0 {
		return errors.New("no block of a product of one row fits on a multiprocessor")
	}
	return f.launch(to, Launch{Grid: Dim3{X: min(groups, blocks*k.row.multiprocessors)}, Block: Dim3{X: threads}, Shared: shared, Spread: spread}, args...)
}
