package cudakern

import "fmt"

// expertRow are the kernels of experts_row.cu.
type expertRow struct {
	glu rowKernel
	sum rowKernel
}

// mostUsedTogether is the most experts of a row in experts_row.cu, whose blocks have results of as many.
const mostUsedTogether = 16

// LoadMixtures loads the kernels for CanMix. Without it, and with weights that are not quantized, there are none; nor with Q8_0 and units xmad, where the products of gate and up
// have too few registers.
func (k *MatMul) LoadMixtures(c *Context) error {
	if k.kind != kindI16 || k.mixture != nil || k.weights == "q8_0" && c.Units == UnitsXMAD {
		return nil
	}
	module, units := "experts_row_"+k.weights, "i16"
	if c.Units != UnitsXMAD {
		module, units = "experts_exact_"+k.weights, "dp2a"
	}
	m, row := &expertRow{}, k.row[0]
	for _, kernel := range []struct {
		to   *rowKernel
		name string
	}{{&m.glu, "glu"}, {&m.sum, "sum"}} {
		f, err := c.kernel(module, fmt.Sprintf("matmul_%s_%s_experts_%s", k.weights, units, kernel.name))
		if err != nil {
			return err
		}
		if row.shareable > leastShared {
			if err := f.SetMaxShared(row.shareable); err != nil {
				return err
			}
		}
		f.overlaps = row.overlaps
		*kernel.to = rowKernel{f, 1, row.one.memory}
	}
	k.mixture = m
	return nil
}

// ExpertMixture is a mixture of experts: of each row the sum of its experts' products Down of a GLU of their products Gate and Up, each times the weight in the routes.
type ExpertMixture struct {
	Gate, Up, Down ExpertProduct // the Dst of Gate and Up are not used
	GLU            Gate
	Norm           Normalized // the rows
	Add            bool       // to what Down.Dst has, rows of Down.W.Outputs float32
}

// mostMixedRows is up to how many rows two launches compute a mixture: with 8 rows of 8 of 128 experts an H200 was faster by 10 to 18 % than with separate ones.
const mostMixedRows = 8

// CanMix reports whether EnqueueExpertGates with the weights of k, and EnqueueExpertSum with those of down, can compute a mixture for capacity rows with used of so many
// experts: few enough for each pair of a row and an expert to be computed by itself.
func (k *MatMul) CanMix(down *MatMul, width, inner, experts, used, capacity int) bool {
	if k.mixture == nil || down.mixture == nil || capacity > mostMixedRows || k.GroupSize(capacity, experts, used)+down.GroupSize(capacity, experts, used) > 0 || used > mostUsedTogether || !k.CanNormalize(inner, width, 1) {
		return false
	}
	return inner%bandOutputs == 0 && width%bandOutputs == 0 && down.mixture.sum.memory.of(used*tileInputs(inner)) <= min(down.row[0].shareable, mostRowShared)
}

// tileInputs returns the inputs that tiles of so many have.
func tileInputs(inputs int) int { return tilesFor(inputs) * tileBlocks * blockInputs }

// EnqueueExpertGates writes the GLU, quantised to ExpertKind, of the products gate and up of each pair of a row and one of its experts, for the first *rows of capacity rows. The
// bits are those of separate launches.
func (k *MatMul) EnqueueExpertGates(to Queue, dst Ptr, m ExpertMixture, rows Ptr, capacity int) error {
	for _, p := range []ExpertProduct{m.Gate, m.Up} {
		if err := k.checkExperts(p); err != nil {
			return err
		}
	}
	gate, up := m.Gate.W, m.Up.W
	if gate != up || m.Gate.Routes != m.Up.Routes || m.GLU > SquaredReLU || !k.CanMix(k, gate.Inputs, gate.Outputs, m.Gate.Experts, m.Gate.Used, capacity) {
		return fmt.Errorf("no kernel computes gate %d of %d rows of %d experts with products of (%d, %d) and (%d, %d)", m.GLU, capacity, m.Gate.Used, gate.Outputs, gate.Inputs, up.Outputs, up.Inputs)
	}
	return k.row[0].launchPairs(to, k.mixture.glu, blocksFor(gate.Outputs, rowOutputs), capacity*m.Gate.Used, gate.Inputs,
		dst, m.Gate.Weights, m.Up.Weights, int32(gate.Outputs), int32(m.GLU), m.Norm.X, m.Norm.W, m.Norm.Eps, int32(gate.Inputs),
		m.Gate.Routes, int32(m.Gate.Experts), int32(m.Gate.Used), rows)
}

// EnqueueExpertSum computes the sum of m, of what EnqueueExpertGates has written, with the weights of k.
func (k *MatMul) EnqueueExpertSum(to Queue, gated Ptr, m ExpertMixture, rows Ptr, capacity int) error {
	p := m.Down
	if err := k.checkExperts(p); err != nil {
		return err
	}
	if !k.CanMix(k, p.W.Outputs, p.W.Inputs, p.Experts, p.Used, capacity) {
		return fmt.Errorf("no kernel adds %d rows of products (%d, %d) of %d experts", capacity, p.W.Outputs, p.W.Inputs, p.Used)
	}
	bands := max(1, threads/32/p.Used) // of a group: Pairs of experts_row.cu
	return k.row[0].launchPairs(to, k.mixture.sum, blocksFor(p.W.Outputs/bandOutputs, bands), capacity, p.Used*tileInputs(p.W.Inputs),
		p.Dst, p.Weights, int32(p.W.Outputs), p.Routes, int32(p.Experts), int32(p.Used), gated, int32(p.W.Inputs), flag(m.Add), rows)
}

// launchPairs launches as many blocks as can run at the same time, at most one for each group, and at least one for each of pairs. staged is how many inputs a block has in its
// shared memory.
func (r *rowProduct) launchPairs(to Queue, k rowKernel, groups, pairs, staged int, args ...any) error {
	shared := k.memory.of(staged)
	blocks, err := k.Occupancy(threads, shared)
	if err != nil {
		return err
	}
	if blocks == 0 {
		return fmt.Errorf("no block with %d inputs fits on a multiprocessor", staged)
	}
	grid := Dim3{X: min(groups, max(1, blocks*r.multiprocessors/pairs)), Y: pairs}
	return k.launch(to, Launch{Grid: grid, Block: Dim3{X: threads}, Shared: shared}, args...)
}
