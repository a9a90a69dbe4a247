package device

import "fmt"

// Pipelined is implemented by devices that can start steps without waiting for those before: a step ahead takes the
// tokens that the step before it drew on the device. Results are those of Run, to the bit.
type Pipelined interface {
	Device

	// Depth returns how many steps may be started and not waited for, after programs were compiled; 1: none are ahead.
	Depth() int

	// Start starts x, of this device, for b after the steps that were started before, and returns without waiting.
	// It fails with the error of Batch.Check if b is invalid. b may change afterwards.
	Start(x Executable, b *Batch) error

	// Wait returns when the results of the oldest step that was not waited for can be read by Candidates, Drawn, and
	// Read of logits, until the next Start.
	Wait() error

	// Drawn returns the token that row row of logits drew in the step that was last waited for.
	Drawn(logits Tensor, row int) (int32, error)
}

// MaxDraws is how many rows of a step may draw tokens.
const MaxDraws = 16

// Draw is how a device draws the token that follows an output row: what package sample does with top-k, top-p, min-p
// and temperature alone, in this order. The token is that of package sample, to the bit, if the candidates of the row
// suffice for it, and any token if not.
type Draw struct {
	Temperature float64 // 0: the likeliest token
	TopK        int     // 0: off
	TopP, MinP  float64 // 1 and 0: off
	Seed        int64
	Pos         int // of the token in its sequence
}

// checkDraws returns an error unless b draws tokens for all of its output rows, if for any, and has one row and one
// output row for each sequence if it is ahead.
func (b *Batch) checkDraws() error {
	if n := len(b.Draws); n > 0 && n != len(b.Out) || n > MaxDraws {
		return fmt.Errorf("batch draws %d tokens for %d output rows, want none or one each, at most %d", n, len(b.Out), MaxDraws)
	}
	for i, d := range b.Draws {
		if d.TopK < 0 || d.Pos < 0 || !(d.Temperature >= 0) || !(d.TopP >= 0) || !(d.MinP >= 0) {
			return fmt.Errorf("the settings with which output row %d draws a token are invalid: %+v", i, d)
		}
	}
	if n := len(b.Tokens); b.Ahead && (n > MaxDraws || n != len(b.Out)) {
		return fmt.Errorf("a batch ahead has %d rows and %d output rows, want as many, at most %d", n, len(b.Out), MaxDraws)
	}
	return nil
}
