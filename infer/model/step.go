package model

import (
	"errors"
	"fmt"
	"slices"

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

// submission is a step that has not been collected yet.
type submission struct {
	ticket Ticket
	batch  *device.Batch
}

// pipelined returns the device if the model is on one alone that can compute steps ahead, else nil.
func (m *Model) pipelined() device.Pipelined {
	if len(m.stages) > 1 {
		return nil
	}
	d, _ := m.stages[0].dev.(device.Pipelined)
	return d
}

// Depth returns how many steps may be submitted and not collected: more than 1 if the device computes steps ahead.
func (m *Model) Depth() int {
	if d := m.pipelined(); d != nil {
		return d.Depth()
	}
	return 1
}

// Submit starts a step over b, which must not change until Collect returns. A device that computes steps ahead begins
// at once; any other computes in Collect. At most Depth steps can be submitted at a time.
func (m *Model) Submit(b *device.Batch) (Ticket, error) {
	if len(m.submitted) >= m.Depth() {
		return 0, fmt.Errorf("step %d has not been collected yet", m.submitted[0].ticket)
	}
	if d := m.pipelined(); d != nil && !hasPictures(b) {
		m.out = 0
		x, err := m.stages[0].programOf(b, m.options.MaxRows)
		if err != nil {
			return 0, err
		}
		if err := d.Start(x, b); err != nil {
			return 0, err
		}
	} else if b.Ahead {
		return 0, errors.New("no device of the model computes steps ahead")
	}
	m.ticket++
	m.submitted = append(m.submitted, submission{m.ticket, b})
	return m.ticket, nil
}

// Collect waits until step t, the oldest that was submitted, is computed and returns its results in the order of their
// rows: one for each row in Out of its batch. Results are valid until the next Submit.
func (m *Model) Collect(t Ticket) ([]Result, error) {
	if len(m.submitted) == 0 || t != m.submitted[0].ticket {
		return nil, fmt.Errorf("cannot collect step %d: it is not the oldest of %d that were submitted", t, len(m.submitted))
	}
	b := m.submitted[0].batch
	m.submitted = slices.Delete(m.submitted, 0, 1)
	if d := m.pipelined(); d != nil && !hasPictures(b) {
		m.out = 0
		if err := d.Wait(); err != nil {
			return nil, err
		}
		m.out = len(b.Out)
	} else if err := m.compute(b); err != nil {
		return nil, err
	}
	return Results(b), nil
}

// Drawn returns the token that row b.Out[i] of the last collected step drew on the device.
func (m *Model) Drawn(i int) (int32, error) {
	last, err := m.logits(i)
	if err != nil {
		return 0, err
	}
	d := m.pipelined()
	if d == nil {
		return 0, errors.New("no device of the model draws tokens")
	}
	return d.Drawn(last.buffers.Logits, i)
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
