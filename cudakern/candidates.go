package cudakern

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxCandidates is the number of tokens that Candidates selects from a row.
const MaxCandidates = 256

// Candidates reduces rows of logits to what samplers need: the likeliest tokens, and the sums over
// the whole vocabulary that turn logits into probabilities.
type Candidates struct{ part, merge *Function }

// Distribution is the result of Candidates for a row of logits. Masked tokens, whose logit is -Inf,
// are excluded from the sums and the list.
type Distribution struct {
	Max    float32   // largest logit
	Mass   float64   // sum of exp(logit - Max)
	Dot    float64   // sum of exp(logit - Max) · (logit - Max)
	Count  int       // tokens that are not masked; if 0, only Bad is valid
	Bad    int32     // the lowest token whose logit is NaN or +Inf, -1 if there is none; if there is one, no other field is valid
	IDs    []int32   // the likeliest tokens, at most MaxCandidates, by descending logit, then ascending token
	Logits []float32 // of IDs

	Drawn int32 // the token that was drawn, by Draws; -1: none was
}

const (
	partLogits      = 4096 // logits of a row that one block reduces: candidates.cu
	partBytes       = 8*MaxCandidates + 32
	candidateHeader = 32
	candidateShared = 8*8*MaxCandidates + 8*2*threads // a list of each warp, and the sums of each thread
)

// CandidateBytes is the size of a row of results in device memory, in bytes.
const CandidateBytes = candidateHeader + 8*MaxCandidates

// NewCandidates loads the kernels.
func NewCandidates(c *Context) (*Candidates, error) {
	part, err := c.kernel("candidates", "candidates_part")
	if err != nil {
		return nil, err
	}
	merge, err := c.kernel("candidates", "candidates_merge")
	return &Candidates{part, merge}, err
}

// Workspace returns the bytes of device memory that Enqueue needs.
func (k *Candidates) Workspace(vocab, capacity int) int64 { return CandidateWorkspace(vocab, capacity) }

// CandidateWorkspace is Candidates.Workspace without loaded kernels.
func CandidateWorkspace(vocab, capacity int) int64 {
	return int64(capacity) * int64(blocksFor(vocab, partLogits)) * partBytes
}

// Enqueue reduces every row of logits, vocab float32, to CandidateBytes bytes at dst, which Decode
// reads, and draws tokens. workspace has Workspace(vocab, capacity) bytes that nothing else uses meanwhile.
func (k *Candidates) Enqueue(to Queue, dst, logits Ptr, vocab int, rows Ptr, capacity int, workspace Ptr, d Draws) error {
	if err := checkLaunch("Candidates", capacity, vocab); err != nil {
		return err
	}
	parts := blocksFor(vocab, partLogits)
	if parts > threads {
		return fmt.Errorf("cannot reduce a vocabulary of %d tokens, the limit is %d", vocab, threads*partLogits)
	}
	if err := k.part.Launch(to, Dim3{X: parts, Y: capacity}, Dim3{X: threads}, candidateShared,
		workspace, logits, int32(vocab), rows); err != nil {
		return err
	}
	return k.merge.Launch(to, Dim3{X: 1, Y: capacity}, Dim3{X: threads}, candidateShared,
		dst, workspace, int32(parts), rows, d.Count, d.Settings, d.Tokens)
}

// Decode reads one row of results.
func (k *Candidates) Decode(row []byte) (Distribution, error) {
	if len(row) != CandidateBytes {
		return Distribution{}, fmt.Errorf("a row of candidates has %d bytes, want %d", len(row), CandidateBytes)
	}
	word := func(at int) uint32 { return binary.NativeEndian.Uint32(row[at:]) }
	d := Distribution{
		Mass:  math.Float64frombits(binary.NativeEndian.Uint64(row)),
		Dot:   math.Float64frombits(binary.NativeEndian.Uint64(row[8:])),
		Max:   math.Float32frombits(word(16)),
		Count: int(int32(word(20))),
		Bad:   int32(word(24)),
		Drawn: int32(word(28)),
	}
	for i := range min(d.Count, MaxCandidates) {
		d.IDs = append(d.IDs, int32(word(candidateHeader+4*i)))
		d.Logits = append(d.Logits, math.Float32frombits(word(candidateHeader+4*MaxCandidates+4*i)))
	}
	return d, nil
}
