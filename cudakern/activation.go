package cudakern

import (
	"fmt"
	"math"
	"slices"
)

// Activation quantises activations: it writes them in the format and layout that matrix products read. That is done
// once for all products with the same activations. The result of an RMSNorm or a GLU that
// only products read can be written quantised directly.
type Activation struct {
	plain, rmsNorm, glu, grouped *Function
	kind                         string
	overlaps                     bool
}

// Kinds of quantised activations: int16 with a scale for every 32 values, the same in the orders of matrix units that have rows of activations as rows or as
// columns, float32, or halves for matrix units.
const (
	kindI16       = "i16"
	kindS8        = "s8"
	kindS8Columns = "s8_columns"
	kindF32       = "f32"
	kindHalf      = "half"
)

// The orders of words in a unit of 4 rows: WHOLE_ORDER, HALVES_ORDER and BYTES_ORDER of mma_row.cuh.
const (
	wholeOrder  = iota // for quants of up to four bits with one scale in a block
	halvesOrder        // with two scales
	bytesOrder         // for quants of 8 bits
)

// kindsOfFour are the kinds that only products of few rows write and read, one for each order.
var kindsOfFour = []string{wholeOrder: "s8_four_whole", halvesOrder: "s8_four_halves", bytesOrder: "s8_four_bytes"}

// quantizedLayout is the layout of a kind: the bytes of a tile of 32 blocks of as many rows as are stored together.
type quantizedLayout struct {
	rows, bytes int
	from        int // the least capacity of launches that read it
}

// The bytes are 16 · I16_UNITS, 16 · F32_UNITS and 32 · S8_UNIT of activation.cuh, 32 · UNIT_BYTES of mma_row.cuh, and 16 · HALF_UNITS of
// image_half.cuh.
var quantizedLayouts = map[string]quantizedLayout{
	kindI16: {1, 16 * 152, 1}, kindF32: {1, 16 * 256, 1}, kindS8: {16, 32 * 1280, minMatrixRows}, kindS8Columns: {16, 32 * 1280, minMatrixRows},
	kindHalf:                {1, 2048, minHalfRows},
	kindsOfFour[wholeOrder]: {4, bytesOfFour, 3}, kindsOfFour[halvesOrder]: {4, bytesOfFour, 3}, kindsOfFour[bytesOrder]: {4, bytesOfFour, 3},
}

const bytesOfFour = 32 * 304

// NewActivation loads the kernels that write quantised activations of a kind; see MatMul.Kind.
func NewActivation(c *Context, kind string) (*Activation, error) {
	if quantizedLayouts[kind].bytes == 0 || slices.Contains(kindsOfFour, kind) {
		return nil, fmt.Errorf("no kernel writes activations of kind %q alone", kind)
	}
	module := "activation"
	if kind == kindHalf {
		module = "activation_half"
	}
	k := &Activation{kind: kind, overlaps: c.properties.overlaps()}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.plain, ""}, {&k.rmsNorm, "_rmsnorm"}, {&k.glu, "_glu"}, {&k.grouped, "_grouped"}} {
		var err error
		if *f.kernel, err = c.kernel(module, "activation_"+kind+f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Bytes returns the size of capacity quantised rows of cols activations, in bytes.
func (k *Activation) Bytes(cols, capacity int) int64 { return QuantizedBytes(k.kind, cols, capacity) }

// QuantizedBytes returns the size of capacity rows of cols activations, quantised to a kind, in bytes.
func QuantizedBytes(kind string, cols, capacity int) int64 {
	l := quantizedLayouts[kind]
	return int64(blocksFor(capacity, l.rows)) * int64(tilesFor(cols)) * int64(l.bytes)
}

// MaxQuantizedBytes is QuantizedBytes for the largest kind that products read.
func MaxQuantizedBytes(cols, capacity int) (most int64) {
	for kind, l := range quantizedLayouts {
		if capacity >= l.from {
			most = max(most, QuantizedBytes(kind, cols, capacity))
		}
	}
	return most
}

// Enqueue quantises x, rows of cols float32, to dst.
func (k *Activation) Enqueue(to Queue, dst, x Ptr, cols int, rows Ptr, capacity int) error {
	return k.launch(k.plain, to, 0, cols, capacity, dst, x, int32(cols), rows)
}

// EnqueueRMSNorm writes the quantised result of Norm.Enqueue.
func (k *Activation) EnqueueRMSNorm(to Queue, dst, x, w Ptr, cols int, eps float32, rows Ptr, capacity int) error {
	return k.launch(k.rmsNorm, to, normBytes, cols, capacity, dst, x, w, eps, int32(cols), rows)
}

// EnqueueGLU writes the quantised result of GLU.Enqueue.
func (k *Activation) EnqueueGLU(to Queue, dst, gate, up Ptr, g Gate, cols int, rows Ptr, capacity int) error {
	return k.launch(k.glu, to, 0, cols, capacity, dst, gate, up, int32(g), int32(cols), rows)
}

// EnqueueGrouped quantises the activations of the pairs of groups, a row for each of their slots, to dst. x
// has rows of cols float32: one for each row of the step, or with own one for each pair.
func (k *Activation) EnqueueGrouped(to Queue, dst, x Ptr, cols int, g Groups, own bool) error {
	sharing := g.Used
	if own {
		sharing = 1
	}
	return k.launch(k.grouped, to, 0, cols, g.Slots(), dst, x, int32(cols), int32(sharing), g.List, int32(g.most()), int32(g.Each))
}

func (k *Activation) launch(f *Function, to Queue, shared, cols, capacity int, args ...any) error {
	// The rows, or the slots of groups, are the first extent of the grid, which ends at 2³¹-1.
	if capacity < 1 || capacity > math.MaxInt32 || cols < 1 || tilesFor(cols) > 65535 {
		return fmt.Errorf("Activation cannot run over %d rows of %d", capacity, cols)
	}
	return f.early(k.overlaps && f != k.grouped, capacity).Launch(to, Dim3{X: capacity, Y: tilesFor(cols)}, Dim3{X: threads}, shared, args...)
}

// tilesFor returns the number of tiles that cover cols inputs: tile.cuh.
func tilesFor(cols int) int { return blocksFor(cols, blockInputs*tileBlocks) }
