package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// executable is a program captured as one CUDA graph.
type executable struct {
	device *cuda
	limits device.Limits
	inputs *inputs

	launches []launch
	graph    *cudakern.Executable // of launches
	resident *residentProgram     // of launches; nil: the graph runs them

	reduced []*reduced // candidates that every step copies to the host
}

// Run starts a step and waits for it.
func (x *executable) Run(b *device.Batch) error {
	if n := len(x.device.started); n > 0 {
		return fmt.Errorf("cuda: %d steps were started and not waited for", n)
	}
	if err := x.device.Start(x, b); err != nil {
		return err
	}
	return x.device.Wait()
}

// Compile captures p as a CUDA graph.
func (d *cuda) Compile(p *device.Program) (_ device.Executable, err error) {
	defer mark(&err)
	if err := d.begin(); err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if p.Rows <= 0 || p.Out > p.Rows {
		return nil, fmt.Errorf("cuda: a program for %d rows and the logits of %d is invalid", p.Rows, p.Out)
	}
	x, err := d.compile(p)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return x, nil
}

func (d *cuda) compile(p *device.Program) (*executable, error) {
	x := &executable{device: d, limits: p.Limits()}
	longest := 0 // block table
	for _, op := range p.Ops {
		longest = max(longest, op.KV.Layout.Longest())
	}
	var err error
	if x.inputs, err = d.inputsOf(p, longest); err != nil {
		return nil, err
	}
	progress := p.Progress
	if progress == nil || d.context.Properties().HasCode() {
		progress = func(done, total int) {}
	}
	if err := d.kernels.load(p, progress); err != nil {
		return nil, err
	}
	d.info.Path = d.kernels.path()
	l := lowering{device: d, exe: x, step: x.inputs.step, rows: x.inputs.step.Rows, capacity: p.Rows, out: p.Out, prompt: p.Of == device.PromptRows, answers: p.Of == device.AnswerRows}
	l.resident = d.wantsResident(p.Rows)
	for _, op := range fuse(p, &l) {
		if err := l.lower(op); err != nil {
			return nil, fmt.Errorf("operation %d, %s: %w", op.at, op.Kind, err)
		}
	}
	if d.loader != nil {
		if err := d.loader.Sync(); err != nil {
			return nil, fmt.Errorf("weights: %w", err)
		}
	}
	x.launches = l.launches
	if x.graph, err = d.capture(x.launches); err != nil {
		return nil, err
	}
	d.close = append(d.close, x.graph.Close)
	return x, d.offer(x, p)
}

// capture captures launches as a graph.
func (d *cuda) capture(launches []launch) (*cudakern.Executable, error) {
	runtime.LockOSThread() // a capture must end on the thread that began it
	defer runtime.UnlockOSThread()
	if err := d.stream.BeginCapture(); err != nil {
		return nil, err
	}
	var failed error
	for i := range launches {
		if failed = launches[i].Enqueue(d.stream); failed != nil {
			break
		}
	}
	graph, err := d.stream.EndCapture()
	if failed != nil {
		err = failed
	}
	if graph == nil {
		return nil, err
	}
	var x *cudakern.Executable
	if err == nil {
		x, err = graph.Instantiate()
	}
	if closeErr := graph.Close(); err == nil && closeErr != nil {
		x.Close()
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// cache returns the cache that named is a handle of.
func (d *cuda) cache(named device.KV) (cudakern.Cache, error) {
	if named.ID < 1 || int(named.ID) > len(d.kvs) || d.kvs[named.ID-1].KV != named {
		return cudakern.Cache{}, fmt.Errorf("KV cache %d does not belong to this device", named.ID)
	}
	return d.kvs[named.ID-1].cache, nil
}

// angleTable returns the address of the angle table of r; the first call computes it.
func (d *cuda) angleTable(r device.RoPE) (cudakern.Ptr, error) {
	key := r
	key.HeadDim, key.NeoX, key.Magnitude, key.Axis = 0, false, 0, 0 // angles do not depend on these
	if at := d.rotations[key]; at != 0 {
		return at, nil
	}
	var factors []float32
	if !r.Factors.None() {
		w, err := d.weight(r.Factors)
		if err != nil {
			return 0, err
		}
		for i := range r.Dims / 2 {
			factors = append(factors, math.Float32frombits(binary.LittleEndian.Uint32(w.raw[4*i:])))
		}
	}
	table, err := cudakern.AngleTable(r.Frequencies(factors))
	if err != nil {
		return 0, err
	}
	at, err := d.copyToDevice(table)
	if err == nil {
		d.rotations[key] = at
	}
	return at, err
}

// workspace returns at least n bytes of GPU memory for one kind of kernel. Programs share it, because
// only one runs at a time. A later program may get a larger one; programs compiled before keep using
// the old one.
func (d *cuda) workspace(kind string, n int64) (cudakern.Ptr, error) {
	if r := d.workspaces[kind]; n == 0 || r.bytes >= n {
		return r.at, nil
	}
	at, err := d.memory.alloc(n)
	if err != nil {
		return 0, fmt.Errorf("workspace: %w", err)
	}
	d.workspaces[kind] = region{at, n}
	return at, nil
}

// zeroedWorkspace is like workspace, but the memory is zero, and kernels leave it so.
func (d *cuda) zeroedWorkspace(kind string, n int64) (cudakern.Ptr, error) {
	old := d.workspaces[kind].at
	at, err := d.workspace(kind, n)
	if err != nil || at == old {
		return at, err
	}
	if err := d.stream.Fill(at, 0, n); err != nil {
		return 0, fmt.Errorf("workspace: %w", err)
	}
	return at, nil
}
