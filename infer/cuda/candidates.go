package cuda

import (
	"fmt"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// reduced is the result of OpCandidates for the rows of an activation: on the GPU and, after a Run,
// in page-locked host memory. A step copies the results of all rows at once, so that reading them
// needs no driver call.
type reduced struct {
	at     cudakern.Ptr
	host   *cudakern.Host
	rows   int // most
	copied int // rows that the last Run copied to the host
}

// candidates adds the launch that reduces the rows of op.X.
func (l *lowering) candidates(op operation, at operands) error {
	d, reduce := l.device, l.device.kernels.reduce
	r, err := d.reducedOf(op.X)
	if err != nil {
		return err
	}
	vocab := op.X.Cols
	workspace, err := d.workspace("candidates", reduce.Workspace(vocab, l.capacity))
	if err != nil {
		return err
	}
	l.exe.reduced = append(l.exe.reduced, r)
	return reduce.Enqueue(&l.recording, r.at, at.x, vocab, l.rows, l.capacity, workspace)
}

// reducedOf returns the memory for the candidates of logits, which all programs share.
func (d *cuda) reducedOf(logits device.Tensor) (*reduced, error) {
	if r := d.reduced[logits.ID]; r != nil {
		return r, nil
	}
	bytes := int64(logits.Rows) * cudakern.CandidateBytes
	r := &reduced{rows: logits.Rows}
	var err error
	if r.at, err = d.memory.alloc(bytes); err == nil {
		r.host, err = d.allocHost(int(bytes))
	}
	if err != nil {
		return nil, fmt.Errorf("candidates of %d rows: %w", logits.Rows, err)
	}
	d.reduced[logits.ID] = r
	return r, nil
}

// download enqueues the copy of the first rows results in s.
func (r *reduced) download(s *cudakern.Stream, rows int) error {
	r.copied = 0
	if err := s.Download(r.host.Bytes()[:rows*cudakern.CandidateBytes], r.at); err != nil {
		return err
	}
	r.copied = rows
	return nil
}

func (d *cuda) Candidates(logits device.Tensor, row int) (device.Candidates, error) {
	if d.context == nil {
		return device.Candidates{}, errClosed
	}
	if _, err := d.activation(logits); err != nil {
		return device.Candidates{}, fmt.Errorf("cuda: %w", err)
	}
	r := d.reduced[logits.ID]
	if r == nil || row < 0 || row >= r.copied {
		return device.Candidates{}, fmt.Errorf("cuda: the last step computed no candidates for row %d of tensor %d", row, logits.ID)
	}
	found, err := d.kernels.reduce.Decode(r.host.Bytes()[row*cudakern.CandidateBytes:][:cudakern.CandidateBytes])
	if err != nil {
		return device.Candidates{}, fmt.Errorf("cuda: %w", err)
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
