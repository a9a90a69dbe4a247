package cudakern

import "fmt"

// MatMul multiplies activations by weights of one type.
type MatMul struct {
	weights string
	image   string
	groups  []productGroup
	experts *Function
}

// productGroup is the kernel that computes up to rows rows at once.
type productGroup struct {
	rows   int
	kernel *Function
}

// productPaths has the number paths of quantised weights by minimum compute capability: matmul.cu.
var productPaths = []struct {
	major int
	path  string
}{
	{5, "i16"},   // sm_5x and sm_6x multiply 16-bit halves of registers at full rate
	{7, "magic"}, // later GPUs do not; float arithmetic is faster there
}

// ProductPath returns the number path of matrix products with quantised weights on devices with p:
// i16 or magic. It determines the bits of the results.
func (p Properties) ProductPath() string {
	path := productPaths[0].path
	for _, from := range productPaths {
		if p.Major >= from.major {
			path = from.path
		}
	}
	return path
}

// NewMatMul loads the kernels for a weight type; path is i16 or magic.
func NewMatMul(c *Context, weights, path string) (*MatMul, error) {
	k := &MatMul{weights: weights, image: imageF32}
	format, err := formatOf(weights)
	if err != nil {
		return nil, err
	}
	if !format.isQuantized() {
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
	k.experts, err = c.kernel("matmul_"+weights, fmt.Sprintf("matmul_%s_%s_experts", weights, path))
	return k, err
}

// Image returns the kind of image that the product reads; see Activation.
func (k *MatMul) Image() string { return k.image }

// Product is one of up to MaxProducts matrix products with the same activations.
type Product struct {
	Dst     Ptr // rows of W.Outputs float32
	Weights Ptr // written by Loader.Load
	W       Weights
}

// productImages is the number of image tiles in the shared memory of a block: IMAGES of matmul.cu.
const productImages = 8

// MaxProducts is the maximum number of products in one launch.
const MaxProducts = 3

// Enqueue computes Dst = x · wᵀ of every product, or Dst += x · wᵀ with add. x is the image
// of rows of W.Inputs activations.
func (k *MatMul) Enqueue(to Queue, x Ptr, rows Ptr, capacity int, add bool, products ...Product) error {
	if len(products) < 1 || len(products) > MaxProducts {
		return fmt.Errorf("cannot launch %d products together, want 1 to %d", len(products), MaxProducts)
	}
	group := k.groups[len(k.groups)-1]
	for _, g := range k.groups {
		if g.rows >= capacity {
			group = g
			break
		}
	}
	inputs := products[0].W.Inputs
	perRow := productImages / group.rows
	shared := ((group.rows-1)*perRow + min(perRow, tilesFor(inputs))) * imageBytes[k.image]
	const outputs = bandOutputs * threads / 32 // of a block

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
		blocks += blocksFor(p.W.Outputs, outputs)
	}
	if blocks > 65535 {
		return fmt.Errorf("cannot launch products of more than %d outputs together", 65535*outputs)
	}
	if err := checkLaunch("MatMul", capacity, inputs); err != nil {
		return err
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	return group.kernel.Launch(to, Dim3{X: blocksFor(capacity, group.rows), Y: blocks}, Dim3{X: threads}, shared,
		each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), x, int32(inputs), onto, rows)
}
