package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// Steps are started without waiting for those before: the stream has them in their order, so that one copy of the
// inputs, the activations and the results on the GPU suffices. What the host writes and reads has a slot for each of
// the steps that may be started: the inputs, the results, and an event after them. A step ahead copies the tokens
// that the step before drew into its inputs. It would overwrite the logits of that step, so they are copied first.

// depth is how many steps may be started and not waited for.
const depth = 5

// flight is a step that was started.
type flight struct {
	number int             // of the steps of the device, from 0
	outs   int             // output rows
	drawn  int             // those that drew a token
	saved  bool            // the logits are copied
	copied *cudakern.Event // when they are; nil: with the results
	runner runner
}

func (f flight) slot() int { return f.number % depth }

// runner runs the steps of a program.
type runner interface {
	// start starts a step. The first ahead rows have the tokens that the step before drew; inputs has the rest.
	start(f *flight, inputs []byte, ahead int) error

	// wait returns when the results are in the slot of the step.
	wait(f flight) error

	// profile runs the last step again, rounds times, and returns the times of each launch.
	profile(rounds int) ([][]time.Duration, error)
}

// runner returns what runs the steps of x.
func (x *executable) runner() runner {
	if x.resident != nil && x.device.residents.chosen != device.DecodeGraph {
		return x.resident
	}
	return graphRunner{x}
}

// pipeline is the state of the steps.
type pipeline struct {
	started []flight // and not waited for, the oldest first
	current flight   // the one that was last waited for
	next    int      // number of the next one

	done [depth]*cudakern.Event // by slot: the results of the step are on the host
	copy [depth]*cudakern.Event // by slot: its logits were copied
	side *cudakern.Stream       // reads copies of logits while steps are computed

	drawn cudakern.Ptr // device.MaxDraws tokens that the last step drew
}

// openPipeline allocates what all programs share.
func (d *cuda) openPipeline() (err error) {
	for i := range depth {
		if d.done[i], err = d.context.NewBarrier(); err != nil {
			return err
		}
		d.close = append(d.close, d.done[i].Close)
		if d.copy[i], err = d.context.NewBarrier(); err != nil {
			return err
		}
		d.close = append(d.close, d.copy[i].Close)
	}
	if d.side, err = d.context.NewStream(cudakern.PriorityHigh); err != nil {
		return err
	}
	d.close = append(d.close, d.side.Close)
	d.drawn, err = d.zeroed(word * device.MaxDraws)
	return err
}

// Depth implements device.Pipelined.
func (d *cuda) Depth() int { return depth }

// Start implements device.Pipelined.
func (d *cuda) Start(e device.Executable, b *device.Batch) (err error) {
	defer mark(&err)
	if d.context == nil {
		return errClosed
	}
	x, ok := e.(*executable)
	if !ok || x.device != d {
		return errors.New("cuda: the program does not belong to this device")
	}
	if err = b.Check(x.limits); err == nil {
		err = x.start(b)
	}
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// start enqueues a step.
func (x *executable) start(b *device.Batch) error {
	d, n := x.device, len(x.device.started)
	f := flight{number: d.next, outs: len(b.Out), drawn: len(b.Draws), runner: x.runner()}
	switch {
	case n >= min(depth, len(x.inputs.hosts)):
		return fmt.Errorf("%d steps were started and not waited for", n)
	case b.Ahead && (n == 0 || d.started[n-1].drawn != len(b.Tokens)):
		return fmt.Errorf("the step before draws no tokens for %d rows", len(b.Tokens))
	}
	words, err := x.inputs.write(b, f.slot())
	if err != nil {
		return err
	}
	if n > 0 && !d.started[n-1].saved {
		if err := d.saveLogits(&d.started[n-1]); err != nil {
			return err
		}
	}
	for _, r := range d.reduced {
		r.copied[f.slot()] = 0
	}
	ahead := 0 // rows
	if b.Ahead {
		ahead = len(b.Tokens)
	}
	if err = f.runner.start(&f, words, ahead); err == nil {
		d.started, d.next = append(d.started, f), d.next+1
	}
	return err
}

// graphRunner launches the graph of a program for each step.
type graphRunner struct{ *executable }

func (x graphRunner) start(f *flight, inputs []byte, ahead int) error {
	d, s := x.device, x.device.stream
	if err := d.begin(); err != nil {
		return err
	}
	if err := s.Upload(x.inputs.step.Rows, inputs); err != nil {
		return err
	}
	if ahead > 0 {
		if err := s.Copy(x.inputs.step.Tokens, d.drawn, int64(word*ahead)); err != nil {
			return err
		}
	}
	if err := x.graph.Launch(s); err != nil {
		return err
	}
	for _, r := range x.reduced {
		if err := r.download(s, f.slot(), f.outs); err != nil {
			return err
		}
	}
	return s.Record(d.done[f.slot()])
}

func (x graphRunner) wait(f flight) error { return x.device.done[f.slot()].Sync() }

// saveLogits copies the logits of the newest step, because the next one overwrites them.
func (d *cuda) saveLogits(f *flight) error {
	for _, r := range d.reduced {
		if rows := r.copied[f.slot()]; rows > 0 {
			if err := d.stream.Copy(r.savedAt(f.slot()), r.logits, 4*int64(rows)*int64(r.vocab)); err != nil {
				return err
			}
		}
	}
	f.saved, f.copied = true, d.copy[f.slot()]
	return d.stream.Record(f.copied)
}

// Wait implements device.Pipelined.
func (d *cuda) Wait() (err error) {
	defer mark(&err)
	switch {
	case d.context == nil:
		return errClosed
	case len(d.started) == 0:
		return errors.New("cuda: no step was started")
	}
	d.current = d.started[0]
	d.started = slices.Delete(d.started, 0, 1)
	if err := d.current.runner.wait(d.current); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	return nil
}

// Drawn implements device.Pipelined.
func (d *cuda) Drawn(logits device.Tensor, row int) (int32, error) {
	found, err := d.decode(logits, row)
	if err == nil && found.Drawn < 0 {
		err = fmt.Errorf("cuda: row %d of tensor %d drew no token", row, logits.ID)
	}
	return found.Drawn, err
}

// readSaved reads rows of logits of the step that was last waited for from their copy. read is false if there is none,
// because no other step was started.
func (d *cuda) readSaved(dst []float32, t device.Tensor, row int) (read bool, err error) {
	r := d.reduced[t.ID]
	if !d.current.saved || r == nil {
		return false, nil
	}
	if rows := len(dst) / t.Cols; row+rows > r.copied[d.current.slot()] {
		return false, fmt.Errorf("the last step computed no logits for rows %d to %d", row, row+rows-1)
	}
	at := r.savedAt(d.current.slot()) + cudakern.Ptr(4*row*t.Cols)
	if d.current.copied != nil {
		err = d.side.Wait(d.current.copied)
	}
	if err == nil {
		err = d.side.Download(bytesOf(dst), at)
	}
	if err == nil {
		err = d.side.Sync()
	}
	return true, err
}

// drawOf returns the settings of d for the kernel.
func drawOf(d device.Draw) cudakern.Draw {
	draw := cudakern.Draw{TopK: int32(min(d.TopK, math.MaxInt32)), TopP: d.TopP, MinP: d.MinP, Seed: uint64(d.Seed), Pos: int32(d.Pos)}
	if d.Temperature > 0 {
		draw.Inverse = min(1/d.Temperature, math.MaxFloat64)
	}
	return draw
}
