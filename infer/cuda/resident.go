package cuda

import (
	"fmt"
	"time"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// The resident kernel (persist.go) is launched in the stream of all steps, by the first step that it is to compute, and stays
// on the GPU: further steps are commands in its ring, without a call of the driver. What is enqueued in the stream behind it would wait
// until it leaves, and calls that wait for the whole GPU, such as those that allocate, would too. So each call of the device
// but those of its steps begins with yield. The kernel then leaves behind the steps that were started, and the next step starts it
// again, behind whatever is in the stream by then.

// residentLimits are when the kernel leaves by itself, and when it is given up. Between two tokens of an answer the host needs less than
// a millisecond; starting the kernel takes as long as some barriers. A kernel that computes tells of progress every 20 ms.
var residentLimits = cudakern.ResidenceLimits{Commands: 1 << 16, Idle: 5 * time.Millisecond, Hang: 30 * time.Second}

// resides reports whether the resident kernel runs x.
func (x *executable) resides() bool { return x.walk != nil && x.device.chosen != device.DecodeGraph }

// push gives the resident kernel a step.
func (x *executable) push(f *flight, inputs []byte, ahead int) error {
	d, own := x.device, x.walk.Kernel()
	for _, k := range d.persistent {
		if k != own && k.Residence != nil {
			if err := leave(k); err != nil {
				return err
			}
		}
	}
	command, err := x.walk.Push(cudakern.StepCommand{Ahead: ahead, Outs: f.outs, Slot: f.slot()}, inputs)
	f.ran, f.command, f.kept = x, command, true
	for _, r := range x.reduced {
		r.copied[f.slot()] = f.outs
	}
	return err
}

// take waits for the results of a step of the resident kernel, and copies them to where those of graphs are.
func (d *cuda) take(f flight) error {
	result, err := f.ran.walk.Kernel().Wait()
	switch {
	case err != nil:
		return err
	case result.Number != f.command || result.State != cudakern.ResultDone:
		return fmt.Errorf("the resident kernel answers step %d with result %d in state %d", f.command, result.Number, result.State)
	}
	for _, r := range f.ran.reduced {
		copy(r.hosts[f.slot()].Bytes(), bytesOf(result.Data))
	}
	return nil
}

// yield makes the resident kernel leave, behind the steps that were started.
func (d *cuda) yield() error {
	for _, k := range d.persistent {
		if k.Residence != nil {
			if err := leave(k); err != nil {
				return err
			}
		}
	}
	return nil
}

func leave(k *cudakern.Persist) error {
	if err := k.Drain(); err != nil {
		return err
	}
	return k.Yield()
}

// stop makes the resident kernel leave without the steps that it has not begun, before the device is closed.
func (d *cuda) stop() error {
	for _, k := range d.persistent {
		if k.Residence != nil {
			k.Cancel()
		}
	}
	return d.yield()
}
