package cudakern

import (
	"errors"
	"fmt"
	"slices"
)

// rowProduct are the kernels of matmul_row.cu, for products of up to rows rows.
type rowProduct struct {
	rows            int
	norm, glu, one  rowKernel
	ofUnits         rowKernel // one, of activations of kindsOfFour; without a Function if there is none
	overlaps        bool      // launches do
	spread          int       // more shared memory than two blocks on a multiprocessor can have; 0: not known
	shareable       int       // the most shared memory of a block
	multiprocessors int
}

// rowKernel is one of them.
type rowKernel struct {
	*Function
	teams  int // of a block, of threads threads each: TEAMS in matmul_row.cu
	memory rowMemory
}

// rowMemory is the shared memory of a block in bytes: for results, for each tile of activations, and, in the ring, for a tile of weights for
// each warp.
type rowMemory struct{ results, tile, stage int }

// of returns the memory that a block needs without the ring.
func (m rowMemory) of(inputs int) int { return m.results + m.tile*tilesFor(inputs) }

// newRowProducts loads the kernels, those for fewer rows first. units is part of their names.
func (k *MatMul) newRowProducts(c *Context, module, units string) (all []rowProduct, err error) {
	for _, n := range []struct {
		rows   int
		suffix string
	}{{1, ""}, {2, "_n2"}, {4, "_n4"}} {
		if n.rows > 1 && c.Units == UnitsXMAD {
			break // the limit would be arithmetic; the modules of path i16 lack these kernels
		}
		r, err := k.newRowProduct(c, module, units, n.suffix, n.rows)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func (k *MatMul) newRowProduct(c *Context, module, units, suffix string, rows int) (r rowProduct, err error) {
	r.rows, r.multiprocessors, r.shareable = rows, c.properties.SMs, max(c.properties.MaxShared, leastShared)
	r.overlaps = c.properties.overlaps() && units != "i16" // units xmad have no code for such devices
	if r.overlaps && r.shareable >= spreadShared {
		r.spread = spreadShared
	}
	const results = 4 * 2 * 2 * rowOutputs // of RowMemory in matmul_row.cu, for a row
	r.one = rowKernel{nil, 1, rowMemory{rows * (normBytes + results), rows * quantizedLayouts[k.kind].bytes, k.tileBytes * threads / 32}}
	r.norm = r.one
	type load struct {
		to                  *rowKernel
		module, units, name string
	}
	loads := []load{{&r.one, module, units, "one"}}
	if rows == 4 && units == "dp2a" && c.Units == UnitsMMA && c.properties.MaxShared >= largeShared {
		const sums = 4 * threads / 32 * rowOutputs
		kernel := func(teams int) rowKernel {
			return rowKernel{nil, teams, rowMemory{rows * (normBytes + teams*(results+sums)), bytesOfFour, teams * k.fewStage()}}
		}
		r.norm, r.ofUnits = kernel(2), kernel(1)
		module, units = "row_mma_"+k.weights, "mma"
		loads = append(loads, load{&r.ofUnits, module, units, "one"})
	}
	r.glu = r.norm
	for _, kernel := range append(loads, load{&r.norm, module, units, "norm"}, load{&r.glu, module, units, "glu"}) {
		f, err := c.kernel(kernel.module, fmt.Sprintf("matmul_%s_%s_%s%s", k.weights, kernel.units, kernel.name, suffix))
		if err != nil {
			return r, err
		}
		if r.shareable > leastShared {
			if err := f.SetMaxShared(r.shareable); err != nil {
				return r, err
			}
		}
		f.divides, f.overlaps = true, r.overlaps
		kernel.to.Function = f
	}
	return r, nil
}

// leastShared is the shared memory that every block may have.
const leastShared = 48 << 10

// mostRowShared is how much shared memory a block of a product may have without a ring: two of them fit on a multiprocessor.
const mostRowShared = 96 << 10

// spreadShared is more than half of the shared memory of a multiprocessor of compute capability 9.0 and 10.0, 228 KB.
const spreadShared = 115 << 10

// Normalized are rows of activations, RMSNorm(x) · W, that a product computes itself.
type Normalized struct {
	X, W Ptr // rows of float32; a weight vector
	Eps  float32
}

// mostTiles returns how many tiles of activations a product of rows rows can normalize: MOST_TILES and MOST_TILES_OF_4 of matmul_row.cu.
func mostTiles(rows int) int {
	if rows > 2 {
		return 4
	}
	return 6
}

// CanNormalize reports whether EnqueueNormalized and EnqueueGated should compute products of capacity rows of inputs activations. With
// very many outputs, a launch for the norm and as many blocks as there are groups are as fast.
func (k *MatMul) CanNormalize(outputs, inputs, capacity int) bool {
	r := k.rowProduct(capacity)
	if r == nil || outputs > 32768 || inputs <= 0 || inputs%4 != 0 || tilesFor(inputs) > mostTiles(r.rows) {
		return false
	}
	_, fits := r.stages(r.norm, inputs, false)
	return fits
}

// rowProduct returns the kernels for capacity rows, nil if there are none.
func (k *MatMul) rowProduct(capacity int) *rowProduct {
	i := slices.IndexFunc(k.row, func(r rowProduct) bool { return capacity <= r.rows })
	if i < 0 || capacity < 1 {
		return nil
	}
	return &k.row[i]
}

// SameKind reports whether products of few rows with weights of two types read the same kind of activations.
func SameKind(a, b string) bool {
	first, err := formatOf(a)
	second, otherErr := formatOf(b)
	return err == nil && otherErr == nil && first.isQuantized() == second.isQuantized()
}

// EnqueueNormalized computes Dst = n · wᵀ of every product, for the first *rows of capacity rows. No Dst may be n.X. The results
// have the bits of Activation.EnqueueRMSNorm and Enqueue.
func (k *MatMul) EnqueueNormalized(to Queue, n Normalized, rows Ptr, capacity int, products ...Product) error {
	if len(products) < 1 || len(products) > MaxProducts {
		return fmt.Errorf("cannot launch %d products together, want 1 to %d", len(products), MaxProducts)
	}
	r, err := k.checkRows(capacity, products...)
	if err != nil {
		return err
	}
	var each [MaxProducts]Product
	groups := 0
	for i, p := range products {
		each[i] = p
		groups += blocksFor(p.W.Outputs, rowOutputs)
	}
	inputs := products[0].W.Inputs
	return r.launch(to, r.norm, groups, inputs,
		each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), n.X, n.W, n.Eps, int32(inputs), rows)
}

// GatedKind returns the kind of activations that EnqueueGated should write for a product of capacity rows of inputs activations, by EnqueueOne.
func (k *MatMul) GatedKind(inputs, capacity int) string {
	if r := k.rowProduct(capacity); r != nil && r.ofUnits.Function != nil {
		if _, fits := r.stages(r.ofUnits, inputs, false); fits {
			return kindsOfFour[k.order()]
		}
	}
	return k.Kind(capacity)
}

// order returns that of the units that products with these weights read.
func (k *MatMul) order() int {
	switch k.weights {
	case "q2_k", "q3_k", "q6_k":
		return halvesOrder
	case "q8_0":
		return bytesOrder
	}
	return wholeOrder
}

// EnqueueGated writes the quantised GLU g of the products n · gateᵀ and n · upᵀ, for the first *rows of capacity rows: of a kind that GatedKind
// returns for the product that reads them, which has a type of weights with SameKind. The bits are those of separate launches. The Dst of both products are not used.
func (k *MatMul) EnqueueGated(to Queue, dst Ptr, kind string, n Normalized, g Gate, rows Ptr, capacity int, gate, up Product) error {
	r, err := k.checkRows(capacity, gate, up)
	if err != nil {
		return err
	}
	order := slices.Index(kindsOfFour, kind)
	if order >= 0 && r.ofUnits.Function == nil || order < 0 && kind != k.Kind(capacity) {
		return fmt.Errorf("no product of %d rows with %s weights writes activations of kind %q", capacity, k.weights, kind)
	}
	if gate.W.Outputs != up.W.Outputs || g > SquaredReLU {
		return fmt.Errorf("no kernel computes gate %d of products of %d and of %d outputs", g, gate.W.Outputs, up.W.Outputs)
	}
	args := []any{dst, gate.Weights, up.Weights, int32(gate.W.Outputs), int32(g), n.X, n.W, n.Eps, int32(gate.W.Inputs), rows}
	if r.ofUnits.Function != nil {
		args = append(args, int32(order))
	}
	return r.launch(to, r.glu, blocksFor(gate.W.Outputs, rowOutputs), gate.W.Inputs, args...)
}

// TakesOne reports whether EnqueueOne can compute a product of capacity rows of inputs activations.
func (k *MatMul) TakesOne(inputs, capacity int) bool {
	r := k.rowProduct(capacity)
	if r == nil {
		return false
	}
	_, fits := r.stages(r.one, inputs, false)
	return fits
}

// Overlaps reports whether launches of products of few rows begin while launches before them are running.
func (k *MatMul) Overlaps() bool { return k.row[0].overlaps }

// EnqueueOne computes what Enqueue does for one product of capacity rows, with the same bits. In a graph it takes as long, unless it overlaps. x is an
// activations of kind Kind(capacity), or, if EnqueueGated has written it, GatedKind.
func (k *MatMul) EnqueueOne(to Queue, x Ptr, kind string, rows Ptr, capacity int, add bool, p Product) error {
	ofUnits := kind != k.Kind(capacity)
	if p.W.Type != k.weights || ofUnits && kind != k.GatedKind(p.W.Inputs, capacity) || !ofUnits && !k.TakesOne(p.W.Inputs, capacity) {
		return fmt.Errorf("no product of %d rows with %s weights has %d inputs of %s in activations of kind %q", capacity, k.weights, p.W.Inputs, p.W.Type, kind)
	}
	if _, err := p.W.format(); err != nil {
		return err
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	r := k.rowProduct(capacity)
	kernel := r.one
	if ofUnits {
		kernel = r.ofUnits
	}
	return r.launch(to, kernel, blocksFor(p.W.Outputs, rowOutputs), p.W.Inputs,
		p.Dst, p.Weights, int32(p.W.Outputs), x, int32(p.W.Inputs), onto, rows)
}

// checkRows returns the kernels for products of capacity rows that they normalize, or an error if no launch computes these together.
func (k *MatMul) checkRows(capacity int, products ...Product) (*rowProduct, error) {
	inputs := products[0].W.Inputs
	for _, p := range products {
		if p.W.Type != k.weights || p.W.Inputs != inputs {
			return nil, fmt.Errorf("a product with %s weights of %d inputs was given %s of %d", k.weights, inputs, p.W.Type, p.W.Inputs)
		}
		if _, err := p.W.format(); err != nil {
			return nil, err
		}
	}
	if !k.CanNormalize(products[0].W.Outputs, inputs, capacity) {
		return nil, fmt.Errorf("no product normalizes %d rows of %d", capacity, inputs)
	}
	return k.rowProduct(capacity), nil
}

// rowOutputs is GROUP_OUTPUTS of matmul_row.cu, the outputs that a block computes at a time.
const rowOutputs = bandOutputs * threads / 32

// stages returns for how many tiles each warp has space in the ring of k, and whether the shared memory of a block suffices. Two
// teams run on a multiprocessor if it suffices for both, unless one is to be alone there.
func (r *rowProduct) stages(k rowKernel, inputs int, alone bool) (stages int, fits bool) {
	m := k.memory
	used := m.of(inputs)
	if r.rows == 1 || !r.overlaps || m.stage == 0 {
		return 0, used <= min(r.shareable, mostRowShared)
	}
	const fewest, mostOfTwo, most = 2, 4, 6 // of Ring in matmul_row.cu
	space := r.shareable
	if k.teams == 1 {
		space = (space - reservedShared) / 2
	}
	if stages = (space - used) / m.stage; !alone && stages >= fewest {
		return min(stages, mostOfTwo), true
	}
	stages = (r.shareable - used) / m.stage
	return min(stages, most), stages >= fewest
}

// spreads reports whether a launch of so many groups should have one block on each multiprocessor.
func (r *rowProduct) spreads(groups int) bool { return r.spread > 0 && groups <= r.multiprocessors }

// launch launches as many blocks as can run at the same time, at most one for each group of outputs. args lack the last one, the
// stages.
func (r *rowProduct) launch(to Queue, k rowKernel, groups, inputs int, args ...any) error {
	alone := (k.Function == r.one.Function || k.Function == r.ofUnits.Function) && r.spreads(groups)
	stages, _ := r.stages(k, inputs, alone)
	shared, spread, block := k.memory.of(inputs)+stages*k.memory.stage, 0, k.teams*threads
	if alone {
		spread = r.spread
	}
	blocks, err := k.Occupancy(block, max(shared, spread))
	if err != nil {
		return err
	}
	if blocks == 0 {
		return errors.New("no block of a product of few rows fits on a multiprocessor")
	}
	grid := Dim3{X: min(groups, blocks*r.multiprocessors)}
	return k.launch(to, Launch{Grid: grid, Block: Dim3{X: block}, Shared: shared, Spread: spread}, append(args, int32(stages))...)
}

// reservedShared is the shared memory that a multiprocessor has for a second block in addition to that for one alone.
const reservedShared = 1 << 10
