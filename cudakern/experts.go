package cudakern

import "fmt"

// Experts has the operations of mixtures of experts except matrix products.
type Experts struct{ route, count, group, bias, sum *Function }

// MaxExperts is the limit of the kernel route: 32 lanes with a bit mask of 32 experts each.
const MaxExperts = 1024

// NewExperts loads the kernels.
func NewExperts(c *Context) (*Experts, error) {
	k := &Experts{}
	for _, f := range []struct {
		kernel *(*Function)
		name   string
	}{{&k.route, "route"}, {&k.count, "count_pairs"}, {&k.group, "group_pairs"}, {&k.bias, "expert_bias"}, {&k.sum, "expert_sum"}} {
		var err error
		if *f.kernel, err = c.kernel("experts", f.name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Score is the function from logits to scores.
type Score int32

const (
	Softmax      Score = iota
	SigmoidScore       // of each logit
	SparseMixer        // the softmax over the logits near the largest that is not chosen yet
)

// Routing says how a router chooses experts by their scores.
type Routing struct {
	Experts, Used      int
	Score              Score
	Margin             float32 // how far a logit may be from the largest with SparseMixer, as a part of it
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
	return k.route.Launch(to, Dim3{X: capacity}, Dim3{X: 32}, 4*(r.Experts+r.Groups+2*r.Used), routes, logits, r.Bias, r.Factors, int32(r.Experts), int32(r.Used),
		int32(r.Score), r.Margin, flag(r.ByLogits), int32(r.Groups), int32(r.GroupsUsed), flag(r.Normalize), r.Scale, rows)
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

// EnqueueExperts computes a product with the weights of experts. x has the quantised activations of rows of
// W.Inputs activations, or of as many times Used with Own; pairs is where EnqueueCount has put
// their number.
func (k *MatMul) EnqueueExperts(to Queue, x, pairs Ptr, capacity int, p ExpertProduct) error {
	if err := k.checkExperts(p); err != nil {
		return err
	}
	return k.experts.kernel.Launch(to, Dim3{X: capacity * p.Used, Y: p.blocks(k.experts.outputs)}, Dim3{X: k.experts.threads}, k.experts.shared(p.W.Inputs),
		p.Dst, p.Weights, int32(p.W.Outputs), p.Routes, int32(p.Experts), int32(p.Used), x, int32(p.W.Inputs), flag(p.Own), pairs)
}

func (k *MatMul) checkExperts(p ExpertProduct) error {
	if p.W.Type != k.weights {
		return fmt.Errorf("a product with %s weights was given %s", k.weights, p.W.Type)
	}
	if p.Used < 1 || p.Experts < p.Used {
		return fmt.Errorf("a product cannot use %d of %d experts", p.Used, p.Experts)
	}
	_, err := p.W.format()
	return err
}

// blocks returns how many blocks of outputs outputs compute those of an expert, which may begin and end inside of a band.
func (p ExpertProduct) blocks(outputs int) int {
	bands := blocksFor(p.W.Outputs, bandOutputs)
	if p.W.Outputs%bandOutputs != 0 {
		bands++
	}
	return blocksFor(bands*bandOutputs, outputs)
}

// Groups are the pairs of a step's rows and their experts, sorted by expert, in groups of up to Each pairs with the same
// expert, so that a product reads the weights of an expert once for a group. Which groups there are is known on
// the device only.
type Groups struct {
	List Ptr // Bytes bytes, written by Experts.EnqueueGroups
	Each int

	Experts, Used int
	Capacity      int // most rows of a step
}

// most returns the largest number of groups of a step. All groups of an expert but one are full.
func (g Groups) most() int {
	pairs := g.Capacity * g.Used
	return (pairs + min(g.Experts, pairs)*(g.Each-1)) / g.Each
}

// Slots returns the largest number of places for pairs in the groups of a step.
func (g Groups) Slots() int { return g.most() * g.Each }

// Bytes returns the size of the list in bytes.
func (g Groups) Bytes() int64 { return 4 * int64(1+g.most()+g.Slots()) }

// EnqueueGroups writes the list of g by the routes of rows; with routes 0, every row uses all experts.
func (k *Experts) EnqueueGroups(to Queue, g Groups, routes Ptr, rows Ptr) error {
	if g.Each < 1 || g.Used < 1 || g.Experts < g.Used || g.Experts > MaxGroupedExperts {
		return fmt.Errorf("cannot group the rows of %d of %d experts by %d, the limit is %d experts", g.Used, g.Experts, g.Each, MaxGroupedExperts)
	}
	if err := checkLaunch("Groups", g.Capacity, g.Experts); err != nil {
		return err
	}
	return k.group.Launch(to, Dim3{X: 1}, Dim3{X: 1024}, 4*g.Experts, g.List, routes, int32(g.Experts), int32(g.Used), int32(g.Each), int32(g.most()), rows)
}

// MaxGroupedExperts is the limit of EnqueueGroups: the shared memory of a block has a count for each expert.
const MaxGroupedExperts = (48 << 10) / 4

// groupFrom is how many pairs experts must have on average for groups of the size; matrix units with super-blocks
// have a limit of their own, see addMatrixUnits. maxUngrouped is the number of rows up to which there are no groups: the
// answers of one to four chats.
var groupFrom = map[int]int{4: 1, 16: minMatrixRows, 64: 48}

const maxUngrouped = 4

// GroupSizes returns the numbers of pairs that groups can have.
func (k *MatMul) GroupSizes() (sizes []int) {
	for _, g := range k.grouped {
		sizes = append(sizes, g.rows)
	}
	return sizes
}

// GroupSize returns how many pairs groups should have for the products of capacity rows with used of so many
// experts; 0: EnqueueExperts is faster than EnqueueGrouped. It depends on the capacity only, not on the routes, but
// the bits of the results do not depend on it.
func (k *MatMul) GroupSize(capacity, experts, used int) (size int) {
	if capacity <= maxUngrouped || experts > MaxGroupedExperts {
		return 0
	}
	for _, g := range k.grouped {
		if capacity*used >= g.from*experts {
			size = g.rows
		}
	}
	return size
}

// GroupKind returns the kind of activations that EnqueueGrouped reads for groups of a size; see Activation.
func (k *MatMul) GroupKind(size int) string { return k.groupOf(size).kind }

func (k *MatMul) groupOf(size int) (group productGroup) {
	for _, g := range k.grouped {
		if g.rows == size {
			group = g
		}
	}
	return group
}

// EnqueueGrouped is EnqueueExperts for the pairs of groups, whose quantised activations are x; the results have the same bits and
// places.
func (k *MatMul) EnqueueGrouped(to Queue, x Ptr, g Groups, p ExpertProduct) error {
	if err := k.checkExperts(p); err != nil {
		return err
	}
	group := k.groupOf(g.Each)
	if group.kernel == nil || p.Experts != g.Experts || p.Used != g.Used {
		return fmt.Errorf("groups of %d rows of %d of %d experts do not fit a product with %d of %d", g.Each, g.Used, g.Experts, p.Used, p.Experts)
	}
	return group.kernel.Launch(to, Dim3{X: g.most(), Y: p.blocks(group.outputs)}, Dim3{X: group.threads}, group.shared(p.W.Inputs),
		p.Dst, p.Weights, int32(p.W.Outputs), g.List, int32(g.most()), x, int32(p.W.Inputs))
}

// MaxExpertBytes returns the largest number of bytes that the quantised activations and the lists of groups of a product need, for
// capacity rows of inputs values, or with own of as many for each of their used experts.
func MaxExpertBytes(inputs, capacity, experts, used int, own bool) int64 {
	rows := capacity
	if own {
		rows *= used
	}
	most := MaxQuantizedBytes(inputs, rows)
	for each, from := range groupFrom {
		g := Groups{Each: each, Experts: experts, Used: used, Capacity: capacity}
		if capacity > maxUngrouped && capacity*used >= from*experts {
			most = max(most, MaxQuantizedBytes(inputs, g.Slots())+g.Bytes())
		}
	}
	return most
}
