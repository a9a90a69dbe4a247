package cudakern

import (
	"fmt"
	"math"
	"slices"
)

// Activation converts activations to an image: the layout that matrix products read. An image is
// written once for all products with the same activations. The result of an RMSNorm or a GLU that
// only products read can be written as an image directly.
type Activation struct {
	plain, rmsNorm, glu, grouped *Function
	image                        string
	overlaps                     bool
}

// Kinds of images: int16 with a scale for every 32 values, the same in the orders of matrix units that have rows of activations as rows or as
// columns, or float32; for matrix units halves, or bfloat16 and another one for what they lack.
const (
	imageI16       = "i16"
	imageS8        = "s8"
	imageS8Columns = "s8_columns"
	imageF32       = "f32"
	imageHalf      = "half"
	imageBFloats   = "bfloats"
)

// The orders of words in a unit of 4 rows: WHOLE_ORDER, HALVES_ORDER and BYTES_ORDER of mma_row.cuh.
const (
	wholeOrder  = iota // for quants of up to four bits with one scale in a block
	halvesOrder        // with two scales
	bytesOrder         // for quants of 8 bits
)

// imagesOfFour are the kinds that only products of few rows write and read, one for each order.
var imagesOfFour = []string{wholeOrder: "s8_four_whole", halvesOrder: "s8_four_halves", bytesOrder: "s8_four_bytes"}

// imageLayout is the layout of a kind of image: the bytes of a tile of 32 blocks of as many rows as are stored together.
type imageLayout struct {
	rows, bytes int
	from        int // the least capacity of launches that read it
}

// The bytes are 16 · I16_UNITS, 16 · F32_UNITS and 32 · S8_UNIT of activation.cuh, 32 · UNIT_BYTES of mma_row.cuh, and 16 · HALF_UNITS of
// image_half.cuh for each value.
var imageLayouts = map[string]imageLayout{
	imageI16: {1, 16 * 152, 1}, imageF32: {1, 16 * 256, 1}, imageS8: {16, 32 * 1280, minMatrixRows}, imageS8Columns: {16, 32 * 1280, minMatrixRows},
	imageHalf: {1, 2048, minImageRows}, imageBFloats: {1, 4096, minImageRows},
	imagesOfFour[wholeOrder]: {4, bytesOfFour, 3}, imagesOfFour[halvesOrder]: {4, bytesOfFour, 3}, imagesOfFour[bytesOrder]: {4, bytesOfFour, 3},
}

const bytesOfFour = 32 * 304

// NewActivation loads the kernels that write images of a kind; see MatMul.Image.
func NewActivation(c *Context, image string) (*Activation, error) {
	if imageLayouts[image].bytes == 0 || slices.Contains(imagesOfFour, image) {
		return nil, fmt.Errorf("no kernel writes images of kind %q alone", image)
	}
	module := "activation"
	if image == imageHalf || image == imageBFloats {
		module = "activation_half"
	}
	k := &Activation{image: image, overlaps: c.properties.overlaps()}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.plain, ""}, {&k.rmsNorm, "_rmsnorm"}, {&k.glu, "_glu"}, {&k.grouped, "_grouped"}} {
		var err error
		if *f.kernel, err = c.kernel(module, "activation_"+image+f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Bytes returns the size of the image of capacity rows of cols activations, in bytes.
func (k *Activation) Bytes(cols, capacity int) int64 { return ImageBytes(k.image, cols, capacity) }

// ImageBytes returns the size of an image of a kind, of capacity rows of cols activations, in bytes.
func ImageBytes(kind string, cols, capacity int) int64 {
	l := imageLayouts[kind]
	return int64(blocksFor(capacity, l.rows)) * int64(tilesFor(cols)) * int64(l.bytes)
}

// MaxImageBytes is ImageBytes for the largest kind of image that products read.
func MaxImageBytes(cols, capacity int) (most int64) {
	for kind, l := range imageLayouts {
		if capacity >= l.from {
			most = max(most, ImageBytes(kind, cols, capacity))
		}
	}
	return most
}

// Enqueue writes the image of x, rows of cols float32, to dst.
func (k *Activation) Enqueue(to Queue, dst, x Ptr, cols int, rows Ptr, capacity int) error {
	return k.launch(k.plain, to, 0, cols, capacity, dst, x, int32(cols), rows)
}

// EnqueueRMSNorm writes the image of the result of Norm.Enqueue.
func (k *Activation) EnqueueRMSNorm(to Queue, dst, x, w Ptr, cols int, eps float32, rows Ptr, capacity int) error {
	return k.launch(k.rmsNorm, to, normBytes, cols, capacity, dst, x, w, eps, int32(cols), rows)
}

// EnqueueGLU writes the image of the result of GLU.Enqueue.
func (k *Activation) EnqueueGLU(to Queue, dst, gate, up Ptr, g Gate, cols int, rows Ptr, capacity int) error {
	return k.launch(k.glu, to, 0, cols, capacity, dst, gate, up, int32(g), int32(cols), rows)
}

// EnqueueGrouped writes the image of the activations of the pairs of groups, a row for each of their slots, to dst. x
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
