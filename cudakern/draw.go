package cudakern

import (
	"encoding/binary"
	"math"
)

// Draws is the memory of the tokens that Candidates draws. The zero value draws none.
type Draws struct {
	Count    Ptr // (1) int32: the first rows, for which a token is drawn
	Settings Ptr // (count) DrawBytes each, aligned to 8: what Draw.Put writes
	Tokens   Ptr // (count) int32: where the tokens are written to
}

// Draw is how the token that follows a row is drawn from its candidates: with top-k, top-p, min-p and temperature, in
// this order, and the random number of package sample for a seed and a position.
type Draw struct {
	TopK       int32   // 0: off
	TopP, MinP float64 // 1 and 0: off
	Inverse    float64 // 1 / temperature; 0: the likeliest token
	Seed       uint64
	Pos        int32 // of the token in its sequence
}

// DrawBytes is the size of a Draw in device memory.
const DrawBytes = 40

// Put writes d to the first DrawBytes bytes of to.
func (d Draw) Put(to []byte) {
	order := binary.NativeEndian
	order.PutUint64(to, math.Float64bits(d.TopP))
	order.PutUint64(to[8:], math.Float64bits(d.MinP))
	order.PutUint64(to[16:], math.Float64bits(d.Inverse))
	order.PutUint64(to[24:], d.Seed)
	order.PutUint32(to[32:], uint32(d.TopK))
	order.PutUint32(to[36:], uint32(d.Pos))
}
