package model

import (
	"fmt"

	"m40-llm/infer/device"
)

// Ticket identifies a submitted step.
type Ticket uint64

// Result is a row of logits that a step computed, for the token after position Pos of sequence
// Seq of its batch.
type Result struct {
	Seq, Pos int32
	Row      int // argument of Candidates and Logits
}

// Submit starts a step over b, which must not change until Collect returns. It may return before
// anything is computed: all devices so far compute in Collect. Only one step can be submitted at
// a time.
func (m *Model) Submit(b *device.Batch) (Ticket, error) {
	if m.submitted != nil {
		return 0, fmt.Errorf("step %d has not been collected yet", m.ticket)
	}
	m.submitted = b
	m.ticket++
	return m.ticket, nil
}

// Collect waits until step t is computed and returns its results in the order of their rows: one
// for each row in Out of its batch. A device that computes ahead may add results for the
// positions that follow. Results are valid until the next Submit.
func (m *Model) Collect(t Ticket) ([]Result, error) {
	b := m.submitted
	if b == nil || t != m.ticket {
		return nil, fmt.Errorf("cannot collect step %d, the last submitted step is %d", t, m.ticket)
	}
	m.submitted = nil
	if err := m.compute(b); err != nil {
		return nil, err
	}
	return Results(b), nil
}

// Results returns the results of a step over b that computes nothing ahead.
func Results(b *device.Batch) (list []Result) {
	for i, row := range b.Out {
		list = append(list, Result{Seq: b.Seq[row], Pos: b.Pos[row], Row: i})
	}
	return list
}

// Forward submits and collects a step over b. Afterwards the KV cache holds its rows, and
// Candidates and Logits return the logits of the rows in b.Out.
func (m *Model) Forward(b *device.Batch) error {
	t, err := m.Submit(b)
	if err == nil {
		_, err = m.Collect(t)
	}
	return err
}
