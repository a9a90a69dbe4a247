package cudakern

import "fmt"

// Experts has the operations of mixtures of experts except matrix products.
type Experts struct{ route, count, bias, sum *Function }

// MaxExperts is the limit of the kernel route: 32 lanes with a bit mask of 32 experts each.
const MaxExperts = 1024

// NewExperts loads the kernels.
func NewExperts(c *Context) (*Experts, error) {
	k := &Experts{}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.route, "route"}, {&k.count, "count_pairs"}, {&k.bias, "expert_bias"}, {&k.sum, "expert_sum"}} {
		var err error
		if *f.kernel, err = c.kernel("experts", f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Routing says how a router chooses experts by their scores, the sigmoids or the softmax of the
// logits.
type Routing struct {
	Experts, Used      int
	Sigmoid            bool    // scores are sigmoids instead of the softmax
	ByLogits           bool    // rank experts by logits instead of scores plus Bias
	Normalize          bool    // divide the weights by their sum
	Scale              float32 // factor of the weights
	Bias, Factors      Ptr     // Experts float32, added to scores for the choice; factors of the weights; or 0
	Groups, GroupsUsed int     // choose only from the GroupsUsed best groups; GroupsUsed 0: from all
}

// EnqueueRoute computes the routes of rows of r.Experts logits: the numbers of the r.Used
// experts with the largest scores, then their weights.
func (k *Experts) EnqueueRoute(to Queue, routes, logits Ptr, r Routing, rows Ptr, capacity int) error {
	if r.Experts > MaxExperts || r.Used < 1 || r.Used > r.Experts {
		return fmt.Errorf("cannot route to %d of %d experts, the limit is %d experts", r.Used, r.Experts, MaxExperts)
	}
	if err := checkLaunch("Route", capacity, r.Experts); err != nil {
		return err
	}
	return k.route.Launch(to, Dim3{X: capacity}, Dim3{X: 32}, 4*(r.Experts+r.Groups), routes, logits, r.Bias, r.Factors, int32(r.Experts), int32(r.Used),
		flag(r.Sigmoid), flag(r.ByLogits), int32(r.Groups), int32(r.GroupsUsed), flag(r.Normalize), r.Scale, rows)
}

func flag(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

// EnqueueBias computes part i of x += bias[routes[i]] for the used experts of every row. bias is
// (experts, each) float32.
func (k *Experts) EnqueueBias(to Queue, x, bias, routes Ptr, experts, used, each int, rows Ptr, capacity int) error {
	if err := checkLaunch("ExpertBias", capacity, used*each); err != nil {
		return err
	}
	return k.bias.Launch(to, Dim3{X: blocksFor(used*each, threads), Y: capacity}, Dim3{X: threads}, 0,
		x, bias, routes, int32(experts), int32(used), int32(each), rows)
}

// EnqueueCount computes pairs = rows · used, the number of rows of expert products.
func (k *Experts) EnqueueCount(to Queue, pairs Ptr, used int, rows Ptr) error {
	return k.count.Launch(to, Dim3{X: 1}, Dim3{X: 32}, 0, pairs, int32(used), rows)
}

// EnqueueSum computes dst = Σ weight[i] of routes · part i of x over the used experts of every row,
// rows of cols float32.
func (k *Experts) EnqueueSum(to Queue, dst, x, routes Ptr, used, cols int, rows Ptr, capacity int) error {
	if err := checkLaunch("ExpertSum", capacity, cols); err != nil {
		return err
	}
	return k.sum.Launch(to, Dim3{X: blocksFor(cols, threads), Y: capacity}, Dim3{X: threads}, 0,
		dst, x, routes, int32(used), int32(cols), rows)
}

// ExpertProduct is a product of rows with the weights of the experts in their routes.
type ExpertProduct struct {
	Dst     Ptr     // rows of Used · W.Outputs float32
	Weights Ptr     // what a Loader made of the weights of Experts experts, one after the other
	W       Weights // of one expert
	Experts int
	Used    int
	Routes  Ptr  // rows of 2 · Used float32; 0: every row uses all experts
	Own     bool // each row has Used inputs, one for each of its experts
}

// EnqueueExperts computes a product with the weights of experts. x is the image of rows of
// W.Inputs activations, or of as many times Used with Own; pairs is where EnqueueCount has put
// their number.
func (k *MatMul) EnqueueExperts(to Queue, x, pairs Ptr, capacity int, p ExpertProduct) error {
	if p.W.Type != k.weights {
		return fmt.Errorf("a product with %s weights was given %s", k.weights, p.W.Type)
	}
	if _, err := p.W.format(); err != nil {
		return err
	}
	if p.Used < 1 || p.Experts < p.Used {
		return fmt.Errorf("a product cannot use %d of %d experts", p.Used, p.Experts)
	}
	const outputs = bandOutputs * threads / 32 // of a block
	// An expert's outputs may begin and end inside of a band.
	bands := blocksFor(p.W.Outputs, bandOutputs) + 1
	shared := min(productImages, tilesFor(p.W.Inputs)) * imageBytes[k.image]
	return k.experts.Launch(to, Dim3{X: capacity * p.Used, Y: blocksFor(bands*bandOutputs, outputs)}, Dim3{X: threads}, shared,
		p.Dst, p.Weights, int32(p.W.Outputs), p.Routes, int32(p.Experts), int32(p.Used), x, int32(p.W.Inputs), flag(p.Own), pairs)
}
