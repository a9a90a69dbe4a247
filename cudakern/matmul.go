package cudakern

import "fmt"

// MatMul multiplies activations by weights of one type.
type MatMul struct {
	weights string
	image   string
	groups  []productGroup
	experts *Function
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

// Image is the kind of image of the activations that the product reads: see Activation.
func (k *MatMul) Image() string { return k.image }

// Product is one of up to MostProducts products with the same activations.
type Product struct {
	Dst     Ptr // rows of W.Outputs float32
	Weights Ptr // what a Loader made of W
	W       Weights
}

// productImages is how many images of activations a block of threads has: IMAGES of matmul.cu.
const productImages = 8

// MostProducts is how many products one launch computes.
const MostProducts = 3

// Enqueue computes Dst = x · wᵀ of every product, or Dst += x · wᵀ with add. x is the image
// of rows of W.Inputs activations.
func (k *MatMul) Enqueue(s *Stream, x Ptr, rows Ptr, capacity int, add bool, products ...Product) error {
	if len(products) < 1 || len(products) > MostProducts {
		return fmt.Errorf("%d products cannot be one launch, 1 to %d can", len(products), MostProducts)
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

	var each [MostProducts]Product
	blocks := 0
	for i, p := range products {
		if p.W.Type != k.weights {
			return fmt.Errorf("a product with %s weights was given %s", k.weights, p.W.Type)
		}
		if p.W.Inputs != inputs {
			return fmt.Errorf("products of %d and %d inputs cannot be one launch", inputs, p.W.Inputs)
		}
		if _, err := p.W.format(); err != nil {
			return err
		}
		each[i] = p
		blocks += blocksFor(p.W.Outputs, outputs)
	}
	if blocks > 65535 {
		return fmt.Errorf("products of more than %d outputs cannot be one launch", 65535*outputs)
	}
	if err := checkLaunch("MatMul", capacity, inputs); err != nil {
		return err
	}
	onto := int32(0)
	if add {
		onto = 1
	}
	return group.kernel.Launch(s, Dim3{X: blocksFor(capacity, group.rows), Y: blocks}, Dim3{X: threads}, shared,
		each[0].Dst, each[0].Weights, int32(each[0].W.Outputs), each[1].Dst, each[1].Weights, int32(each[1].W.Outputs),
		each[2].Dst, each[2].Weights, int32(each[2].W.Outputs), x, int32(inputs), onto, rows)
}
