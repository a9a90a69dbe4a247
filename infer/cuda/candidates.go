package cuda

import (
	"fmt"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// reduced is the result of OpCandidates for the rows of an activation: on the GPU and, after a step,
// in page-locked host memory, in the slot of the step. A step copies the results of all rows at once, so that
// reading them needs no driver call.
type reduced struct {
	at     cudakern.Ptr
	hosts  [depth]*cudakern.Host
	copied [depth]int // rows that the step in the slot copied to the host
	rows   int        // most

	// The logits that the results are of, and copies of them by slot: of the steps after which another one was started.
	logits    cudakern.Ptr
	vocab     int
	saved     cudakern.Ptr
	savedRows int // of a slot
}

// candidates adds the launch that reduces the rows of op.X.
func (l *lowering) candidates(op operation, at operands) error {
	d, reduce := l.device, l.device.kernels.reduce
	r, err := d.reducedOf(op.X)
	if err != nil {
		return err
	}
	vocab, draws := op.X.Cols, l.exe.inputs.draws
	draws.Tokens = d.drawn
	workspace, err := d.workspace("candidates", reduce.Workspace(vocab, l.capacity))
	if err != nil {
		return err
	}
	l.exe.reduced = append(l.exe.reduced, r)
	return reduce.Enqueue(&l.recording, r.at, at.x, vocab, l.rows, l.capacity, workspace, draws)
}

// reducedOf returns the memory for the candidates of logits, which all programs share.
func (d *cuda) reducedOf(logits device.Tensor) (*reduced, error) {
	if r := d.reduced[logits.ID]; r != nil {
		return r, nil
	}
	x, err := d.activation(logits)
	if err != nil {
		return nil, err
	}
	bytes := int64(logits.Rows) * cudakern.CandidateBytes
	r := &reduced{rows: logits.Rows, logits: x.rows, vocab: logits.Cols, savedRows: savedRows(logits)}
	r.at, err = d.memory.alloc(bytes)
	for i := 0; i < depth && err == nil; i++ {
		r.hosts[i], err = d.allocHost(int(bytes))
	}
	if err == nil {
		r.saved, err = d.memory.alloc(savedBytes(logits))
	}
	if err != nil {
		return nil, fmt.Errorf("candidates of %d rows: %w", logits.Rows, err)
	}
	d.reduced[logits.ID] = r
	return r, nil
}

// savedRows is how many rows of logits are copied to a slot, at most.
func savedRows(logits device.Tensor) int { return min(logits.Rows, device.MaxDraws) }

// savedBytes is the size of the copies of logits, for all slots.
func savedBytes(logits device.Tensor) int64 {
	return depth * 4 * int64(savedRows(logits)) * int64(logits.Cols)
}

// savedAt returns where the copy of a slot begins.
func (r *reduced) savedAt(slot int) cudakern.Ptr {
	return r.saved + cudakern.Ptr(slot*4*r.savedRows*r.vocab)
}

// download enqueues the copy of the first rows results to the host memory of a slot.
func (r *reduced) download(s *cudakern.Stream, slot, rows int) error {
	if err := s.Download(r.hosts[slot].Bytes()[:rows*cudakern.CandidateBytes], r.at); err != nil {
		return err
	}
	r.copied[slot] = rows
	return nil
}

// decode returns the result of a row of logits in the step that was last waited for.
func (d *cuda) decode(logits device.Tensor, row int) (cudakern.Distribution, error) {
	if d.context == nil {
		return cudakern.Distribution{}, errClosed
	}
	if _, err := d.activation(logits); err != nil {
		return cudakern.Distribution{}, fmt.Errorf("cuda: %w", err)
	}
	r, slot := d.reduced[logits.ID], d.current.slot()
	if r == nil || row < 0 || row >= r.copied[slot] {
		return cudakern.Distribution{}, fmt.Errorf("cuda: the last step computed no candidates for row %d of tensor %d", row, logits.ID)
	}
	found, err := d.kernels.reduce.Decode(r.hosts[slot].Bytes()[row*cudakern.CandidateBytes:][:cudakern.CandidateBytes])
	if err != nil {
		return found, fmt.Errorf("cuda: %w", err)
	}
	return found, nil
}

func (d *cuda) Candidates(logits device.Tensor, row int) (device.Candidates, error) {
	found, err := d.decode(logits, row)
	if err != nil {
		return device.Candidates{}, err
	}
	return device.Candidates{
		IDs:    found.IDs,
		Logits: found.Logits,
		Max:    found.Max,
		Mass:   found.Mass,
		Dot:    found.Dot,
		Count:  found.Count,
		Bad:    found.Bad,
	}, nil
}
