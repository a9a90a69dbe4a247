package cuda

import (
	"fmt"
	"slices"
	"time"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// launch is a launch of a program with what it reads.
type launch struct {
	cudakern.Launch
	weights int64      // bytes; of weights of experts, those of one expert
	experts int        // in the weights; 0: the launch reads all of them
	used    int        // experts of a row
	state   int64      // bytes of the recurrent state of a sequence, which it reads and writes
	attends *device.Op // the attention whose keys and values it reads, or nil

	operation operation // that it is a launch of
}

// addLaunches moves the recorded launches of op to the program's.
func (l *lowering) addLaunches(op operation) error {
	first := len(l.launches)
	for _, recorded := range l.recording.Launches {
		l.launches = append(l.launches, launch{Launch: recorded, operation: op})
	}
	l.recording.Launches = l.recording.Launches[:0]
	if first == len(l.launches) {
		return nil
	}
	last := &l.launches[len(l.launches)-1] // a product follows the launch that quantises its activations
	switch op.Kind {
	case device.OpMatMul, device.OpExpertMatMul:
		if op.mixture != nil { // of the gates and ups, and the one of the downs follows it
			if err := l.countWeights(last, op.mixture.down); err != nil {
				return err
			}
			last = &l.launches[len(l.launches)-2]
			op.also = []device.Op{op.mixture.up}
		}
		if err := l.countWeights(last, append([]device.Op{op.Op}, op.also...)...); err != nil {
			return err
		}
	case device.OpAttention:
		last.attends = &op.Op
	case device.OpConv:
		last.state = 4 * int64(device.ConvValues(op.W))
	case device.OpScan:
		last.state = 4 * int64(op.Scan.Values())
	}
	return nil
}

// countWeights adds the weights of products to what a launch reads.
func (l *lowering) countWeights(to *launch, products ...device.Op) error {
	for _, p := range products {
		bytes, err := l.device.WeightBytes(p.W.Type, p.W.Rows, p.W.Cols)
		if err != nil {
			return err
		}
		if p.Kind == device.OpExpertMatMul {
			bytes /= int64(p.Experts)
			to.experts, to.used = p.Experts, p.Dst.Cols/(p.W.Rows/p.Experts)
		}
		to.weights += bytes
	}
	return nil
}

// bytes returns how many bytes of weights and of the KV cache the launch reads for b, and how many of
// recurrent state it reads and writes.
func (l *launch) bytes(b *device.Batch) int64 {
	bytes := l.weights
	if l.experts > 0 {
		bytes *= int64(min(l.experts, l.used*len(b.Tokens)))
	}
	if l.state > 0 {
		bytes += 2 * l.state * sequences(b)
	}
	if l.attends == nil {
		return bytes
	}
	layout := l.attends.KV.Layout
	perPosition := layout.BlockBytes() / int64(layout.Layers*device.BlockSize)
	longest := map[int32]int64{} // positions of each sequence: rows of one share its blocks
	for i, pos := range b.Pos {
		positions := int64(pos) + 1
		if window := l.attends.Attention.Window; window > 0 {
			positions = min(positions, int64(window))
		}
		longest[b.Seq[i]] = max(longest[b.Seq[i]], positions)
	}
	for _, positions := range longest {
		bytes += positions * perPosition
	}
	return bytes
}

// sequences returns how many sequences have rows in b.
func sequences(b *device.Batch) int64 {
	seen := map[int32]bool{}
	for _, s := range b.Seq {
		seen[s] = true
	}
	return int64(len(seen))
}

// Profile implements device.Profiler.
func (x *executable) Profile(b *device.Batch, rounds int) (times []device.LaunchTime, err error) {
	defer mark(&err)
	if err := x.device.begin(); err != nil {
		return nil, err
	}
	if err := x.Run(b); err != nil {
		return nil, err
	}
	measured, err := x.runner().profile(rounds)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	for i := range x.launches {
		times = append(times, x.launches[i].time(b, measured[i]))
	}
	return times, nil
}

// time returns the median of what was measured of the launch.
func (l *launch) time(b *device.Batch, measured []time.Duration) device.LaunchTime {
	slices.Sort(measured)
	return device.LaunchTime{
		Kernel: l.Kernel.Name(), Grid: [3]int{max(l.Grid.X, 1), max(l.Grid.Y, 1), max(l.Grid.Z, 1)}, Bytes: l.bytes(b), Time: measured[len(measured)/2],
	}
}

// profile enqueues the launches one by one, with an event before and after each. The GPU is given the whole step first, so that the
// launches wait for it and not it for them.
func (x graphRunner) profile(rounds int) (measured [][]time.Duration, err error) {
	events := make([]*cudakern.Event, len(x.launches)+2)
	defer func() {
		for _, e := range events {
			if e == nil {
				continue
			}
			if closeErr := e.Close(); err == nil {
				err = closeErr
			}
		}
	}()
	for i := range events {
		if events[i], err = x.device.context.NewEvent(); err != nil {
			return nil, err
		}
	}
	measured = make([][]time.Duration, len(x.launches))
	for range rounds {
		if err := x.round(events, measured); err != nil {
			return nil, err
		}
	}
	return measured, nil
}

// round runs the step once and adds the time of each launch to measured. Nothing is between the first two events: their time is that of an event,
// which is subtracted from the others.
func (x graphRunner) round(events []*cudakern.Event, measured [][]time.Duration) error {
	s := x.device.stream
	if err := x.graph.Launch(s); err != nil {
		return err
	}
	if err := s.Record(events[0]); err != nil {
		return err
	}
	for i := range x.launches {
		if err := s.Record(events[i+1]); err != nil {
			return err
		}
		if err := x.launches[i].Enqueue(s); err != nil {
			return err
		}
	}
	if err := s.Record(events[len(events)-1]); err != nil {
		return err
	}
	if err := s.Sync(); err != nil {
		return err
	}
	between, err := events[1].Since(events[0])
	if err != nil {
		return err
	}
	for i := range x.launches {
		took, err := events[i+2].Since(events[i+1])
		if err != nil {
			return err
		}
		measured[i] = append(measured[i], max(0, took-between))
	}
	return nil
}
