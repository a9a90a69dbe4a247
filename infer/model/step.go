package model

import (
	"fmt"

	"m40-llm/infer/device"
)

// Ticket names a step that was submitted.
type Ticket uint64

// Result is a row of logits that a step leaves: of what follows position Pos of sequence Seq
// of its batch.
type Result struct {
	Seq, Pos int32
	Row      int // of Candidates and Logits
}

// Submit takes on a step over b, which must not change until Collect returns. It may return
// before anything is computed: all of today's devices compute in Collect.
func (m *Model) Submit(b *device.Batch) (Ticket, error) {
	if m.submitted != nil {
		return 0, fmt.Errorf("step %d is not collected", m.ticket)
	}
	m.submitted = b
	m.ticket++
	return m.ticket, nil
}

// Collect waits until a step is computed and returns its results in the order of their rows:
// one for each row in Out of its batch. A device that runs ahead can add those of positions
// that follow. They hold until the next Submit.
func (m *Model) Collect(t Ticket) ([]Result, error) {
	b := m.submitted
	if b == nil || t != m.ticket {
		return nil, fmt.Errorf("step %d is not one to collect, the last is %d", t, m.ticket)
	}
	m.submitted = nil
	if err := m.compute(b); err != nil {
		return nil, err
	}
	return Results(b), nil
}

// Results returns the results of a step that computes no more than its batch asks for.
func Results(b *device.Batch) (list []Result) {
	for i, row := range b.Out {
		list = append(list, Result{Seq: b.Seq[row], Pos: b.Pos[row], Row: i})
	}
	return list
}

// Forward submits a step and collects it: the KV cache holds its rows afterwards, and
// Candidates and Logits return the logits of the rows in b.Out.
func (m *Model) Forward(b *device.Batch) error {
	t, err := m.Submit(b)
	if err == nil {
		_, err = m.Collect(t)
	}
	return err
}
