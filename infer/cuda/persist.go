package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"m40-llm/cudakern"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
)

// persistRows is the most rows of a program that the resident kernel runs: larger ones are bound by arithmetic, not by
// the time between launches.
const persistRows = 4

// ChooseDecode implements device.DecodeChooser.
func (d *cuda) ChooseDecode(how device.Decode) { d.chosen = how }

// persist makes x a program of the resident kernel, or says in Info why graphs run it.
func (d *cuda) persist(x *executable, p *device.Program) error {
	if p.Rows > persistRows {
		return nil
	}
	reason := d.decodeReason()
	if reason == "" {
		var err error
		if x.walk, err = d.newWalk(x, p); err != nil {
			var refused refusal
			if !errors.As(err, &refused) {
				return err
			}
			reason = refused.Error()
		}
	}
	d.info.Decode, d.info.DecodeReason = device.DecodePersistent, ""
	if reason != "" {
		d.info.Decode, d.info.DecodeReason = device.DecodeGraph, reason
	}
	return nil
}

// decodeReason returns why graphs are chosen, or "".
func (d *cuda) decodeReason() string {
	switch d.chosen {
	case device.DecodePersistent:
		return ""
	case device.DecodeGraph:
		return "chosen by --decode"
	}
	switch measured[d.info.Name].decode {
	case device.DecodePersistent:
		return ""
	case device.DecodeGraph:
		return "faster on this GPU than the resident kernel, by measurements"
	}
	return "the resident kernel was not measured on this GPU"
}

// measured is what was measured, by name of the GPU: which way to decode is faster (docs/gpu.md), and whether answers gain by prompt lookup
// (docs/performance.md).
var measured = map[string]struct {
	decode device.Decode
	drafts bool
}{
	"NVIDIA H100 80GB HBM3": {device.DecodeGraph, true},
	"NVIDIA H200":           {device.DecodeGraph, true},
}

// refusal is why a program cannot be run by the resident kernel.
type refusal struct{ string }

func (r refusal) Error() string { return r.string }

// newWalk returns the launches of x in device memory.
func (d *cuda) newWalk(x *executable, p *device.Program) (*cudakern.Walk, error) {
	kernel, err := d.persistKernel(p)
	if err != nil {
		return nil, err
	}
	var launches []*cudakern.Launch
	for i := range x.launches {
		launches = append(launches, &x.launches[i].Launch)
	}
	scratch, err := d.workspace("phases", cudakern.MissingBytes(len(launches)))
	if err != nil {
		return nil, err
	}
	missing, err := kernel.Missing(d.stream, launches, scratch)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, refusal{"the resident kernel has no " + strings.Join(missing, ", ")}
	}
	memory, err := d.walkMemory(x, p)
	if err != nil {
		return nil, err
	}
	w, records, err := kernel.Walk(d.phases(x.launches))
	if err != nil {
		return nil, refused(err)
	}
	at, err := d.copyToDevice(records)
	if err != nil {
		return nil, err
	}
	if err := w.Add(d.stream, at, memory); err != nil {
		return nil, refused(err)
	}
	return w, w.Reside(d.stream, d.limits)
}

// walkMemory returns what the resident kernel reads and writes for x beside its launches.
func (d *cuda) walkMemory(x *executable, p *device.Program) (cudakern.WalkMemory, error) {
	in := x.inputs
	m := cudakern.WalkMemory{Inputs: in.step.Rows, Tokens: in.step.Tokens, Drawn: d.drawn, CommandWords: len(in.hosts[0].Bytes()) / word, Slots: depth}
	switch len(x.reduced) {
	case 0:
		return m, nil
	case 1:
		r := x.reduced[0]
		m.Results, m.Logits, m.Kept, m.KeptRows, m.Vocab, m.Outs = r.at, r.logits, r.kept, r.keptRows, r.vocab, p.Out
		return m, nil
	}
	return m, refusal{fmt.Sprintf("the resident kernel has one list of candidates, the program %d", len(x.reduced))}
}

// hasResident reports whether the resident kernel has a type of KV caches.
func hasResident(t cudakern.CacheType) bool {
	return t == cudakern.CacheOf(cudakern.FormatF16) || t.Quantized()
}

// persistKernel returns the resident kernel for the weights of p.
func (d *cuda) persistKernel(p *device.Program) (*cudakern.Persist, error) {
	if i := slices.IndexFunc(p.Ops, func(op device.Op) bool { return op.Kind == device.OpStoreKV && !hasResident(cacheType(op.KV.Layout)) }); i >= 0 {
		return nil, refusal{fmt.Sprintf("the resident kernel has no KV cache of format %s", p.Ops[i].KV.Layout.Type)}
	}
	i := slices.IndexFunc(p.Ops, func(op device.Op) bool { return op.Kind == device.OpMatMul })
	if i < 0 {
		return nil, refusal{"the program has no matrix product"}
	}
	weights := p.Ops[i].W.Type
	if k := d.persistent[weights]; k != nil {
		return k, nil
	}
	memory, err := d.memory.alloc(cudakern.PersistBytes)
	if err != nil {
		return nil, err
	}
	k, err := cudakern.NewPersist(d.context, kernelName(weights), memory)
	if err != nil {
		return nil, refused(err)
	}
	if d.persistent == nil {
		d.persistent = map[gguf.Type]*cudakern.Persist{}
	}
	d.persistent[weights] = k
	d.close = append(d.close, k.Close)
	return k, nil
}

// refused returns err as a refusal, unless it is of the driver.
func refused(err error) error {
	if _, ok := errors.AsType[*cudakern.Error](err); ok {
		return err
	}
	return refusal{err.Error()}
}

// phases returns the launches for the resident kernel.
func (d *cuda) phases(launches []launch) []cudakern.Phase {
	phases := make([]cudakern.Phase, len(launches))
	since := 0 // first launch behind the last one at which blocks meet
	for i := range launches {
		phases[i] = cudakern.Phase{Launch: &launches[i].Launch, Keeps: launches[i].keeps}
		if i+1 == len(launches) || slices.ContainsFunc(launches[since:i+1], launches[i+1].touches.conflicts) {
			phases[i].Meets, since = true, i+1
		}
	}
	return phases
}

// touches are what the launches of an operation read and write: IDs of activations, and the memory below.
type touches struct{ reads, writes []int32 }

const (
	imageMemory     int32 = -1 - iota // images of activations
	cacheMemory                       // KV caches
	attentionMemory                   // workspace of attention
	candidateMemory                   // workspace of candidates and their results
	otherMemory                       // of all other operations
)

// touchesOf returns what the launches of op touch.
func touchesOf(op operation) (t touches) {
	add := func(op device.Op) {
		t.reads = append(t.reads, op.X.ID, op.Y.ID, op.Dst.ID)
		t.writes = append(t.writes, op.Dst.ID)
	}
	add(op.Op)
	for _, other := range op.also {
		add(other)
	}
	if op.producer != nil {
		add(*op.producer)
	}
	if op.keys != nil {
		add(*op.keys)
	}
	if op.mixture != nil {
		add(op.mixture.sum)
	}
	if op.rope != nil {
		add(*op.rope)
	}
	if op.stores != nil {
		stored := touchesOf(*op.stores)
		t.reads, t.writes = append(t.reads, stored.reads...), append(t.writes, stored.writes...)
	}
	switch op.Kind {
	case device.OpEmbed, device.OpRMSNorm, device.OpAddBias, device.OpRoPE, device.OpGLU, device.OpAdd, device.OpScale, device.OpGatherRows:
	case device.OpMatMul:
		t.writes = append(t.writes, imageMemory)
	case device.OpStoreKV:
		t.writes = append(t.writes, cacheMemory)
	case device.OpAttention:
		t.reads = append(t.reads, cacheMemory)
		t.writes = append(t.writes, attentionMemory, imageMemory)
	case device.OpCandidates:
		t.writes = append(t.writes, candidateMemory)
	default:
		t.reads, t.writes = append(t.reads, otherMemory), append(t.writes, otherMemory)
	}
	t.reads = slices.DeleteFunc(t.reads, func(id int32) bool { return id == 0 })
	t.writes = slices.DeleteFunc(t.writes, func(id int32) bool { return id == 0 })
	return t
}

// conflicts reports whether the order of a launch that touches t and of l matters.
func (t touches) conflicts(l launch) bool {
	overlap := func(a, b []int32) bool {
		return slices.ContainsFunc(a, func(id int32) bool { return slices.Contains(b, id) })
	}
	return overlap(t.writes, l.touches.writes) || overlap(t.writes, l.touches.reads) || overlap(t.reads, l.touches.writes)
}
