package cudakern

import "fmt"

// Recurrent are the operations with recurrent state: convolutions and scans.
type Recurrent struct {
	conv  *Function
	scans []*Function // by scanKeys
}

// scanKeys are the longest keys of the kernels, in elements.
var scanKeys = []int{64, 128, 256, 512}

// MaxScanKey is the longest key that a scan may have, in elements.
const MaxScanKey = 512

const (
	scanThreads = 128
	scanColumns = 4 // of one head that a warp computes
)

// NewRecurrent loads the kernels.
func NewRecurrent(c *Context) (*Recurrent, error) {
	conv, err := c.kernel("recurrent", "conv")
	if err != nil {
		return nil, err
	}
	k := &Recurrent{conv: conv}
	for _, keys := range scanKeys {
		scan, err := c.kernel("recurrent", fmt.Sprint("scan_k", keys))
		if err != nil {
			return nil, err
		}
		k.scans = append(k.scans, scan)
	}
	return k, nil
}

// State is the recurrent state of an operation: values of each slot of Values float32.
type State struct {
	Data   Ptr // the first value of the operation in slot 0
	Slots  int
	Values int
}

// sequences returns how many sequences a batch of up to capacity rows may have: each has a row and a slot.
func (s State) sequences(capacity int) int { return min(capacity, s.Slots) }

// EnqueueConv computes the causal depthwise convolution dst[c] = bias[c] + Σ_i w[c, i] · x[c] at the position
// span - 1 - i before the row's, rows of cols float32. w is (cols, span), bias may be 0. The state is span - 1
// rows of cols values. With silu, dst = SiLU(dst) follows.
func (k *Recurrent) EnqueueConv(to Queue, dst, x, w, bias Ptr, cols, span int, silu bool, s State, step Step, capacity int) error {
	if err := checkLaunch("Conv", s.sequences(capacity), cols); err != nil {
		return err
	}
	return k.conv.Launch(to, Dim3{X: blocksFor(cols, 32), Y: s.sequences(capacity)}, Dim3{X: threads}, 0,
		dst, x, w, bias, int32(cols), int32(span), flag(silu), s.Data, int64(s.Values), step.Pos, step.Order, step.Begin, step.Slots, step.Sequences)
}

// Scan describes a linear recurrence: Heads states of (KeyDim, ValueDim), where each of KeyHeads queries and
// keys belongs to the same number of heads. Rows have Decays decays of each head, 1 or KeyDim.
type Scan struct {
	Heads, KeyHeads, KeyDim, ValueDim, Decays int

	Tiled bool // head h has the key of head h modulo KeyHeads, instead of h / (Heads / KeyHeads)
	Delta bool // gated delta rule

	V, Decay, Step, Skip Ptr // Skip may be 0
}

// EnqueueScan computes the recurrence of the queries q and keys k.
func (k *Recurrent) EnqueueScan(to Queue, dst, q, key Ptr, a Scan, s State, step Step, capacity int) error {
	if err := checkLaunch("Scan", s.sequences(capacity), a.Heads*a.ValueDim); err != nil {
		return err
	}
	for i, longest := range scanKeys {
		if a.KeyDim > longest {
			continue
		}
		warps := a.Heads * blocksFor(a.ValueDim, scanColumns)
		return k.scans[i].Launch(to, Dim3{X: blocksFor(warps, scanThreads/32), Y: s.sequences(capacity)}, Dim3{X: scanThreads}, 0,
			dst, q, key, a.V, a.Decay, a.Step, a.Skip, int32(a.Heads), int32(a.KeyHeads), int32(a.KeyDim), int32(a.ValueDim), int32(a.Decays),
			flag(a.Tiled), flag(a.Delta), s.Data, int64(s.Values), step.Pos, step.Order, step.Begin, step.Slots, step.Sequences)
	}
	return fmt.Errorf("Scan has keys of %d elements, the limit is %d", a.KeyDim, MaxScanKey)
}
