package cudakern

import (
	"fmt"
	"maps"
	"slices"
)

// Activation prepares activations for the products: it makes an image, once for all
// products with them. What nothing but products needs of an RMSNorm or a GLU becomes an
// image at once.
type Activation struct {
	plain, rmsNorm, glu *Function
	image               string
}

// Images of activations: int16 numbers with a scale for every 32, or float32.
const (
	imageI16 = "i16"
	imageF32 = "f32"
)

// Bytes of the image of a tile of 32 blocks: 16 · I16_UNITS and F32_UNITS of activation.cuh.
var imageBytes = map[string]int{imageI16: 16 * 152, imageF32: 16 * 272}

// NewActivation loads the kernel that makes images of a kind: see MatMul.Image.
func NewActivation(c *Context, image string) (*Activation, error) {
	if imageBytes[image] == 0 {
		return nil, fmt.Errorf("there is no image of activations called %q", image)
	}
	k := &Activation{image: image}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.plain, ""}, {&k.rmsNorm, "_rmsnorm"}, {&k.glu, "_glu"}} {
		var err error
		if *f.kernel, err = c.kernel("activation", "activation_"+image+f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Bytes returns the size of the image of capacity rows of cols activations.
func (k *Activation) Bytes(cols, capacity int) int64 {
	return int64(capacity) * int64(tilesFor(cols)) * int64(imageBytes[k.image])
}

// MostImageBytes is Bytes for images of the kind that takes the most.
func MostImageBytes(cols, capacity int) int64 {
	return int64(capacity) * int64(tilesFor(cols)) * int64(slices.Max(slices.Collect(maps.Values(imageBytes))))
}

// Enqueue makes the image dst of x, rows of cols float32.
func (k *Activation) Enqueue(s *Stream, dst, x Ptr, cols int, rows Ptr, capacity int) error {
	return k.launch(k.plain, s, 0, cols, capacity, dst, x, int32(cols), rows)
}

// EnqueueRMSNorm makes the image of what RMSNorm.Enqueue would compute.
func (k *Activation) EnqueueRMSNorm(s *Stream, dst, x, w Ptr, cols int, eps float32, rows Ptr, capacity int) error {
	return k.launch(k.rmsNorm, s, normBytes, cols, capacity, dst, x, w, eps, int32(cols), rows)
}

// EnqueueGLU makes the image of what GLU.Enqueue would compute.
func (k *Activation) EnqueueGLU(s *Stream, dst, gate, up Ptr, g Gate, cols int, rows Ptr, capacity int) error {
	return k.launch(k.glu, s, 0, cols, capacity, dst, gate, up, int32(g), int32(cols), rows)
}

func (k *Activation) launch(f *Function, s *Stream, shared, cols, capacity int, args ...any) error {
	if err := checkLaunch("Activation", capacity, cols); err != nil {
		return err
	}
	return f.Launch(s, Dim3{X: capacity, Y: tilesFor(cols)}, Dim3{X: threads}, shared, args...)
}

// tilesFor returns the number of tiles that cols inputs are cut into: tile.cuh.
func tilesFor(cols int) int { return blocksFor(cols, blockInputs*tileBlocks) }
