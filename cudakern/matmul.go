package cudakern

import (
	"fmt"
	"os"
	"slices"
)

// MatMul multiplies activations by weights of one type.
type MatMul struct {
	weights string
	kind    string
	groups  []productGroup // by from
	grouped []productGroup // of pairs with the same expert: from is how many experts must have on average
	experts productGroup
	row     []rowProduct
	mixture *expertRow // nil: not loaded, or there is none

	tileBytes int // of quantized weights; 0: of others
}

// productGroup is the kernel for launches of from rows or more.
type productGroup struct {
	from          int
	rows, outputs int // of a block
	kind          string
	threads       int // of a block
	memory        int // shared memory of a block in bytes; 0: for the quantised rows
	places        int // how many blocks run at the same time, if several can compute parts of the same results; else 0
	kernel        *Function
}

// Scratch is where blocks leave their parts of results for the one that adds them; launches at the same time need their own. Arrivals is zero, and
// launches leave it so.
type Scratch struct{ Sums, Arrivals Ptr }

// parts returns how many blocks should compute parts of the same results, where one each would be blocks blocks: as many as make the
// device busy for the shortest time, and the fewest of them.
func (g productGroup) parts(blocks, inputs int) int {
	best := 1
	if g.places == 0 {
		return best
	}
	time := func(parts int) float64 { return float64(blocksFor(blocks*parts, g.places)) / float64(parts) }
	for _, parts := range []int{2, 4} {
		if blocks*parts <= mostWaves*g.places && inputs >= parts*leastPart && time(parts) < time(best) {
			best = parts
		}
	}
	return best
}

// Parts of results are computed by at most mostWaves times the blocks that run at the same time, of at least leastPart inputs each.
const mostWaves, leastPart = 3, 512

// MostScratch returns the most that Scratch needs with these units on a device with p, in bytes.
func (p Properties) MostScratch(units Units) (sums, arrivals int64) {
	results := 64 * 64 * 3 // of a multiprocessor's blocks: three of 64 × 64, or one of 64 × 128
	if units == UnitsXMAD {
		results = 64 * 128 * 3
	}
	return int64(4 * mostWaves * p.SMs * results), int64(4 * mostWaves * p.SMs * 3)
}

// ScratchBytes returns how much of it products of capacity rows may need.
func (p Properties) ScratchBytes(units Units, capacity int) int64 {
	if from := fromManyRows(units); from == 0 || capacity < from {
		return 0
	}
	sums, arrivals := p.MostScratch(units)
	return sums + arrivals
}

// Units are the instructions for products on path i16. The bits of the results are the same with all.
type Units string

const (
	UnitsXMAD Units = "xmad" // 16 × 16 bits, on every GPU
	UnitsDP2A Units = "dp2a" // two products of 16 × 8 bits, from compute capability 6.1 on
	UnitsMMA  Units = "mma"  // as UnitsDP2A, and matrix units for products of many rows, from 8.0 on
)

// Units returns the fastest units of devices with p, or those that M40_LLM_CUDA_UNITS names, for comparisons.
func (p Properties) Units() Units {
	if forced := Units(os.Getenv("M40_LLM_CUDA_UNITS")); forced != "" {
		return forced
	}
	switch {
	case p.Major >= 8 && p.MaxShared >= mmaShared:
		return UnitsMMA
	case p.Major > 6 || p.Major == 6 && p.Minor >= 1:
		return UnitsDP2A
	}
	return UnitsXMAD
}

// ProductPath is the number path of matrix products with quantised weights. It determines the bits of the results;
// docs/gpu.md defines it.
const ProductPath = "i16"

// HalfPath is that of models with weights of which RoundsToHalves is true. The bits of their products also depend on the generation of the GPU.
const HalfPath = "i16, half"

// AttentionPath follows the path of models with an attention of which MatrixUnits is true.
const AttentionPath = ", matrix attention"

// RoundsToHalves reports whether products round activations to halves, for matrix units.
func (k *MatMul) RoundsToHalves() bool {
	return isHalf(k.weights) && k.groups[0].kind != k.group(minHalfRows).kind
}

// NewMatMul loads the kernels for a weight type.
func NewMatMul(c *Context, weights string) (*MatMul, error) {
	k := &MatMul{weights: weights, kind: kindF32}
	format, err := formatOf(weights)
	if err != nil {
		return nil, err
	}
	if isHalf(weights) && c.Units == UnitsMMA {
		return k, k.addHalf(c)
	}
	module, row, name := "matmul_"+weights, "row_"+weights, "float"
	if format.isQuantized() {
		k.kind, name = kindI16, "i16"
		k.tileBytes = int(format.bandBytes(tileBlocks * blockInputs))
		if c.Units == UnitsDP2A || c.Units == UnitsMMA {
			module, row, name = "exact_"+weights, "row_exact_"+weights, "dp2a"
		}
	}
	few := productGroup{outputs: bandOutputs * threads / 32, kind: k.kind, threads: threads}
	for _, g := range []struct{ from, rows int }{{1, 1}, {2, 2}, {3, 4}} {
		few.from, few.rows = g.from, g.rows
		if few.kernel, err = c.kernel(module, fmt.Sprintf("matmul_%s_%s_n%d", weights, name, g.rows)); err != nil {
			return nil, err
		}
		k.groups = append(k.groups, few)
	}
	few.from = groupFrom[few.rows]
	if few.kernel, err = c.kernel(module, fmt.Sprintf("matmul_%s_%s_grouped", weights, name)); err != nil {
		return nil, err
	}
	k.grouped = append(k.grouped, few)
	switch {
	case name == "dp2a" && c.Units == UnitsMMA:
		err = k.addMatrixUnits(c, format)
	case name == "i16":
		err = k.addMany(c)
	}
	if err != nil {
		return nil, err
	}
	k.experts = productGroup{rows: 1, outputs: few.outputs, kind: k.kind, threads: threads}
	if k.experts.kernel, err = c.kernel(module, fmt.Sprintf("matmul_%s_%s_experts", weights, name)); err != nil {
		return nil, err
	}
	k.row, err = k.newRowProducts(c, row, name)
	return k, err
}

// isHalf reports whether matrix units multiply weights of a type without quantising activations to integers.
func isHalf(weights string) bool { return weights == "f16" || weights == "bf16" }

// addHalf adds the kernels of half.cu and half_row.cu.
func (k *MatMul) addHalf(c *Context) (err error) {
	few := func(from, rows int, kind string) productGroup {
		const parts, stride = 4, fewOutputs + 1 // few_sums of half.cu
		return productGroup{from: from, rows: rows, outputs: fewOutputs, kind: kind, threads: threads, memory: 4 * parts * max(rows, 8) * stride}
	}
	tile := func(from, size, stages int) productGroup { // TileOf
		return productGroup{from: from, rows: size, outputs: size, kind: kindHalf, threads: threads / 2, memory: stages * size * 2 * 128}
	}
	n64 := tile(65, 64, 4)
	n64Grouped := n64
	n64Grouped.from = groupFrom[64]
	type kernel struct {
		to    *[]productGroup
		group productGroup
		name  string
	}
	all := []kernel{
		{&k.groups, few(1, 8, kindF32), "n8"},
		{&k.groups, few(minHalfRows, 16, kindHalf), "n16"},
		{&k.groups, tile(17, 32, 6), "n32"},
		{&k.groups, n64, "n64"},
		{&k.grouped, few(groupFrom[4], 4, kindF32), "n4_grouped"},
		{&k.grouped, few(groupFrom[16], 16, kindHalf), "n16_grouped"},
		{&k.grouped, n64Grouped, "n64_grouped"},
	}
	for _, g := range all {
		if g.group.kernel, err = c.kernel("half_"+k.weights, fmt.Sprintf("matmul_%s_half_%s", k.weights, g.name)); err != nil {
			return err
		}
		if err := g.group.kernel.SetMaxShared(g.group.memory); err != nil {
			return err
		}
		*g.to = append(*g.to, g.group)
	}
	k.experts = few(1, 1, kindF32)
	if k.experts.kernel, err = c.kernel("half_"+k.weights, fmt.Sprintf("matmul_%s_half_experts", k.weights)); err != nil {
		return err
	}
	k.row, err = k.newRowProducts(c, "row_half_"+k.weights, "half")
	return err
}

// addMany adds the kernel of matmul_many.cu.
func (k *MatMul) addMany(c *Context) (err error) {
	many := productGroup{from: fromManyRows(c.Units), rows: 64, outputs: 128, kind: k.kind, threads: 128, memory: manyShared}
	if many.kernel, err = c.kernel("many_"+k.weights, fmt.Sprintf("matmul_%s_many", k.weights)); err != nil {
		return err
	}
	if err := many.divide(c); err != nil {
		return err
	}
	k.groups = append(k.groups, many)
	return nil
}

// divide makes several blocks compute parts of the same results where one each would not make the device busy.
func (g *productGroup) divide(c *Context) error {
	blocks, err := g.kernel.Occupancy(g.threads, g.memory)
	g.places = blocks * c.properties.SMs
	return err
}

// addMatrixUnits adds the kernels of mma_few.cu and mma.cu. Those of 8 rows are for all rows of a step, not for groups of pairs.
func (k *MatMul) addMatrixUnits(c *Context, f weightFormat) (err error) {
	fromGrouped := groupFrom[16]
	if f.super > 0 {
		fromGrouped = 9 // up to 8 rows, computing factors from two scales took 16 rows of matrix units longer than dp2a takes for all
	}
	few := func(from, rows int) productGroup {
		stages := min(4, mmaShared/k.fewStage()) // FEW_STAGES of mma_few.cu
		return productGroup{from: from, rows: rows, outputs: fewOutputs, kind: kindS8Columns, threads: threads, memory: stages * k.fewStage()}
	}
	many, size := productGroup{from: fromManyRows(c.Units), rows: 64, outputs: 128, kind: kindS8, threads: threads, memory: mmaShared}, "mma"
	if c.properties.MaxShared >= largeShared {
		many.outputs, many.threads, many.memory, size = 64, threads/2, mmaSharedOfThree, "mma_large"
		if from, ok := fromManyRowsOf[k.weights]; ok {
			many.from = from
		}
	}
	manyGrouped := many
	manyGrouped.from = groupFrom[many.rows]
	for _, g := range []struct {
		to           *[]productGroup
		group        productGroup
		module, name string
	}{
		{&k.groups, few(minMatrixRows, 8), "few_" + k.weights, "few_n8"},
		{&k.groups, few(9, 16), "few_" + k.weights, "few_n16"},
		{&k.groups, many, size + "_" + k.weights, size},
		{&k.grouped, few(fromGrouped, 16), "few_" + k.weights, "few_grouped"},
		{&k.grouped, manyGrouped, size + "_" + k.weights, size + "_grouped"},
	} {
		if g.group.kernel, err = c.kernel(g.module, fmt.Sprintf("matmul_%s_%s", k.weights, g.name)); err != nil {
			return err
		}
		if err := g.group.kernel.SetMaxShared(g.group.memory); err != nil {
			return err
		}
		if g.name == size {
			if err := g.group.divide(c); err != nil {
				return err
			}
		}
		*g.to = append(*g.to, g.group)
	}
	return nil
}

// fewStage returns what a tile of fewOutputs outputs takes in shared memory: FEW_STAGE of mma_tiles.cuh.
func (k *MatMul) fewStage() int {
	const bands, shift = fewOutputs / bandOutputs, 16 // shift: SHIFT
	return bands * blocksFor(k.tileBytes+(bands-1)*shift, 128) * 128
}

// group returns the kernel for launches of capacity rows.
func (k *MatMul) group(capacity int) productGroup {
	i := len(k.groups) - 1
	for i > 0 && k.groups[i].from > capacity {
		i--
	}
	return k.groups[i]
}

// Kind returns the kind of activations that a product of capacity rows reads; see Activation.
func (k *MatMul) Kind(capacity int) string { return k.group(capacity).kind }

// Kinds returns the kinds of activations that products read.
func (k *MatMul) Kinds() (kinds []string) {
	for _, g := range k.groups {
		if !slices.Contains(kinds, g.kind) {
			kinds = append(kinds, g.kind)
		}
	}
	return kinds
}

// ExpertKind returns the kind of activations that EnqueueExperts reads.
func (k *MatMul) ExpertKind() string { return k.kind }

// Product is one of up to MaxProducts matrix products with the same activations.
type Product struct {
	Dst     Ptr // rows of W.Outputs float32
	Weights Ptr // written by Loader.Load
	W       Weights
}

// productTiles is the number of tiles of activations in the shared memory of a block: IMAGES of matmul.cu.
const productTiles = 8

// fromManyRows is the least capacity of launches with mma.cu and matmul_many.cu, whose blocks have 64 rows; 0: units have no such kernel. Capacities are powers of two, and
// a step may have little more than half as many rows. By the cycles of their instructions, a block is faster on sm_52 than groups of 4 rows if it has some 50 rows or more: on
// average, blocks have 48 with a capacity of 64 and 128, and 55 with 256.
func fromManyRows(units Units) int {
	return map[Units]int{UnitsMMA: 64, UnitsXMAD: 256}[units]
}

// fromManyRowsOf is fromManyRows where multiprocessors have room for three of mma.cu's blocks: up to twice or four times as many rows, blocks of 16 that copy
// the weights again are faster on an H200 (docs/gpu.md), where they are converted with little work.
var fromManyRowsOf = map[string]int{"q4_0": 256, "q8_0": 256, "q3_k": 128, "q4_k": 128, "q5_k": 128, "q6_k": 128}

// minMatrixRows is the fewest rows whose quantised activations matrix units multiply, minHalfRows that which read float16 activations: fewer are converted by products. largeShared is the shared memory that blocks may have on multiprocessors with room for three blocks
// of many rows. The others are FEW_OUTPUTS of mma_tiles.cuh, MMA_SHARED of mma.cu and MANY_SHARED of matmul_many.cu.
const (
	minMatrixRows    = 5
	minHalfRows      = 9
	largeShared      = 227 << 10
	fewOutputs       = 32
	mmaShared        = 99 << 10
	mmaSharedOfThree = 75 << 10
	manyShared       = 27 << 10
)

// shared returns the shared memory of a block for products of inputs inputs, in bytes.
func (g productGroup) shared(inputs int) int {
	if g.memory > 0 {
		return g.memory
	}
	perRow := productTiles / g.rows
	return ((g.rows-1)*perRow + min(perRow, tilesFor(inputs))) * quantizedLayouts[g.kind].bytes
}

// MaxProducts is the maximum number of products in one launch.
const MaxProducts = 3

// Scratch returns the sizes in bytes of what Enqueue needs for these products, 0 if nothing.
func (k *MatMul) Scratch(capacity int, products ...Product) (sums, arrivals int64) {
	group, outputs := k.group(capacity), 0
	for _, p := range products {
		outputs += blocksFor(p.W.Outputs, group.outputs)
	}
	blocks := blocksFor(capacity, group.rows) * outputs
	parts := group.parts(blocks, products[0].W.Inputs)
	if parts == 1 {
		return 0, 0
	}
	return int64(4*blocks*parts) * int64(group.rows*group.outputs), int64(4 * blocks)
}

// Enqueue computes Dst = x · wᵀ of every product, or Dst += x · wᵀ with add. x has the activations
// of rows of W.Inputs activations.
func (k *MatMul) Enqueue(to Queue, x Ptr, rows Ptr, capacity int, add bool, scratch Scratch, products ...Product) error {
	if len(products) < 1 || len(products) > MaxProducts {
		return fmt.Errorf("cannot launch %d products together, want 1 to %d", len(products), MaxProducts)
	}
	group := k.group(capacity)
	inputs := products[0].W.Inputs

	var each [MaxProducts]Product
	blocks := 0
	for i, p := range products {
		if p.W.Type != k.weights {
			return fmt.Errorf("a product with %s weights was given %s", k.weights, p.W.Type)
		}
		if p.W.Inputs != inputs {
			return fmt.Errorf("cannot launch products of %d and of %d inputs together", inputs, p.W.Inputs)
		}
		if _, err := p.W.format(); err != nil {
			return err
		}
		each[i] = p
		blocks += blocksFor(p.W.Outputs, group.outputs)
	}
	if blocks > 65535 {
		return fmt.Errorf("cannot launch products of more than %d outputs together", 65535*group.outputs)
	}
	if err := checkLaunch("MatMul", capacity, inputs); err != nil {
		return err
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	grid := Dim3{X: blocksFor(capacity, group.rows), Y: blocks}
	args := []any{each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), x, int32(inputs), onto, rows}
	if group.places > 0 {
		grid.Z = group.parts(grid.X*grid.Y, inputs)
		args = append(args, scratch.Sums, scratch.Arrivals)
	}
	return group.kernel.Launch(to, grid, Dim3{X: group.threads}, group.shared(inputs), args...)
}
