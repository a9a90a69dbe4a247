package cudakern

import "fmt"

// Experts has the operations of mixtures of experts beside products.
type Experts struct{ route, count, sum *Function }

// mostExperts is how many bits a lane of route has, times the lanes.
const mostExperts = 1024

// NewExperts loads the kernels.
func NewExperts(c *Context) (*Experts, error) {
	k := &Experts{}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.route, "route"}, {&k.count, "count_pairs"}, {&k.sum, "expert_sum"}} {
		var err error
		if *f.kernel, err = c.kernel("experts", f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// EnqueueRoute computes the routes of rows of experts logits: the numbers of the used
// largest, then softmax of all logits at them, divided by their sum with normalize, times
// scale.
func (k *Experts) EnqueueRoute(s *Stream, routes, logits Ptr, experts, used int, normalize bool, scale float32, rows Ptr, capacity int) error {
	if experts > mostExperts || used < 1 || used > experts {
		return fmt.Errorf("Route cannot choose %d of %d experts, at most %d can be chosen from", used, experts, mostExperts)
	}
	if err := checkLaunch("Route", capacity, experts); err != nil {
		return err
	}
	divide := int32(0)
	if normalize {
		divide = 1
	}
	return k.route.Launch(s, Dim3{X: capacity}, Dim3{X: 32}, 0, routes, logits, int32(experts), int32(used), divide, scale, rows)
}

// EnqueueCount computes pairs = rows · used, the rows of products with used experts each.
func (k *Experts) EnqueueCount(s *Stream, pairs Ptr, used int, rows Ptr) error {
	return k.count.Launch(s, Dim3{X: 1}, Dim3{X: 32}, 0, pairs, int32(used), rows)
}

// EnqueueSum computes dst = the sum of the used parts of x times their weights in routes,
// rows of cols float32.
func (k *Experts) EnqueueSum(s *Stream, dst, x, routes Ptr, used, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("ExpertSum", capacity, cols); err != nil {
		return err
	}
	return k.sum.Launch(s, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, routes, int32(used), int32(cols), rows)
}

// ExpertProduct is a product of rows with the weights of the experts in their routes.
type ExpertProduct struct {
	Dst     Ptr     // rows of Used · W.Outputs float32
	Weights Ptr     // what a Loader made of the weights of Experts experts, one after the other
	W       Weights // of one expert
	Experts int
	Used    int
	Routes  Ptr  // rows of 2 · Used float32
	Own     bool // each row has Used inputs, one for each of its experts
}

// EnqueueExperts computes a product with the weights of experts. x is the image of rows of
// W.Inputs activations, or of as many times Used with Own; pairs is where EnqueueCount has put
// their number.
func (k *MatMul) EnqueueExperts(s *Stream, x, pairs Ptr, capacity int, p ExpertProduct) error {
	if p.W.Type != k.weights {
		return fmt.Errorf("a product with %s weights was given %s", k.weights, p.W.Type)
	}
	if _, err := p.W.format(); err != nil {
		return err
	}
	if p.Used < 1 || p.Experts < p.Used {
		return fmt.Errorf("a product cannot use %d of %d experts", p.Used, p.Experts)
	}
	own := int32(0)
	if p.Own {
		own = 1
	}
	const outputs = bandOutputs * threads / 32 // of a block
	// An expert's outputs may begin and end inside of a band.
	bands := blocksFor(p.W.Outputs, bandOutputs) + 1
	shared := min(productImages, tilesFor(p.W.Inputs)) * imageBytes[k.image]
	return k.experts.Launch(s, Dim3{X: capacity * p.Used, Y: blocksFor(bands*bandOutputs, outputs)}, Dim3{X: threads}, shared,
		p.Dst, p.Weights, int32(p.W.Outputs), p.Routes, int32(p.Experts), int32(p.Used), x, int32(p.W.Inputs), own, pairs)
}
