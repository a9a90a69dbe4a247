package cudakern

import "fmt"

// MatMul multiplies activations by weights of one type.
type MatMul struct {
	weights string
	image   string
	groups  []productGroup
}

// productGroup is the product of up to rows rows at once.
type productGroup struct {
	rows   int
	kernel *Function
}

// The number path of quantised weights from a compute capability on: matmul.cu.
var productPaths = []struct {
	major int
	path  string
}{
	{5, "i16"},   // sm_5x and sm_6x multiply halves of registers at full rate
	{7, "magic"}, // later ones do not, but have as much float arithmetic
}

// ProductPath returns the number path of products with quantised weights on devices like
// p: i16 or magic. It decides every bit of the results.
func (p Properties) ProductPath() string {
	path := productPaths[0].path
	for _, from := range productPaths {
		if p.Major >= from.major {
			path = from.path
		}
	}
	return path
}

// NewMatMul loads the kernels for weights of a type; path is i16 or magic.
func NewMatMul(c *Context, weights, path string) (*MatMul, error) {
	k := &MatMul{weights: weights, image: imageF32}
	if weights == "f32" || weights == "f16" {
		path = "float"
	} else if path == "i16" {
		k.image = imageI16
	}
	for _, rows := range []int{1, 2, 4} {
		f, err := c.kernel("matmul_"+weights, fmt.Sprintf("matmul_%s_%s_n%d", weights, path, rows))
		if err != nil {
			return nil, err
		}
		k.groups = append(k.groups, productGroup{rows, f})
	}
	return k, nil
}

// Image is the kind of image of the activations that the product reads: see Activation.
func (k *MatMul) Image() string { return k.image }

// Enqueue computes dst = x · wᵀ, rows of w.Outputs float32. weights is what a Loader made of
// w, x the image of rows of w.Inputs activations.
func (k *MatMul) Enqueue(s *Stream, dst, weights Ptr, w Weights, x Ptr, rows Ptr, capacity int) error {
	if w.Type != k.weights {
		return fmt.Errorf("a product with %s weights was given %s", k.weights, w.Type)
	}
	if _, err := w.format(); err != nil {
		return err
	}
	if err := checkLaunch("MatMul", capacity, w.Inputs); err != nil {
		return err
	}
	group := k.groups[len(k.groups)-1]
	for _, g := range k.groups {
		if g.rows >= capacity {
			group = g
			break
		}
	}
	const images, warps = 8, threads / 32
	each := images / group.rows
	shared := ((group.rows-1)*each + min(each, tilesFor(w.Inputs))) * imageBytes[k.image]
	return group.kernel.Launch(s, Dim3{X: blocksFor(capacity, group.rows), Y: blocksFor(w.Outputs, bandOutputs*warps)}, Dim3{X: threads}, shared,
		dst, weights, x, int32(w.Outputs), int32(w.Inputs), rows)
}
