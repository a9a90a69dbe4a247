package cpu

/*
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"unsafe"

	"m40-llm/infer/device"
)

type executable struct {
	device  *cpu
	program *C.struct_program
	limits  device.Limits
}

// Phases returns the number of phases, each of which ends before the next begins.
func (e *executable) Phases() int { return int(e.program.n_phases) }

// Helped returns how many items of phases threads of the device have completed for late ones.
func (e *executable) Helped() int { return int(C.engine_helped(e.device.engine)) }

func (e *executable) Run(b *device.Batch) error {
	d := e.device
	if d.engine == nil {
		return errClosed
	}
	if err := b.Check(e.limits); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	d.tables, d.tableAt, d.last = d.tables[:0], d.tableAt[:0], b.LastPos(d.last[:0])
	for _, tables := range b.Tables[:len(e.limits.Blocks)] {
		for _, table := range tables[:len(b.Tables[0])] {
			d.tableAt = append(d.tableAt, int32(len(d.tables)))
			d.tables = append(d.tables, table...)
		}
	}
	d.coordinates = d.coordinates[:0]
	for _, axis := range b.Coordinates[:e.limits.Axes] {
		d.coordinates = append(d.coordinates, axis...)
	}
	scratch := C.struct_scratch{
		quant:            (*C.uint8_t)(d.quant.data),
		attention:        (*C.float)(d.attention.data),
		attention_stride: C.size_t(d.attention.bytes / 4 / int64(d.info.Threads)),
		groups:           (*C.int32_t)(d.groups.data),
		panels:           (*C.uint8_t)(d.panels.data),
		panels_stride:    C.size_t(d.panels.bytes / int64(d.info.Threads)),
	}
	read := C.engine_run(d.engine, e.program, scratch, C.int32_t(len(b.Tokens)), ints(b.Tokens), ints(b.Pos), ints(b.Seq), ints(d.last),
		C.int32_t(len(b.Out)), ints(b.Out), C.int32_t(len(b.Tables[0])), ints(d.tables), ints(d.tableAt), ints(b.States), ints(d.coordinates))
	if read == 0 {
		return fmt.Errorf("cpu: %w", device.ErrUnreadable)
	}
	return nil
}

func ints(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(s)) }

// Compile lowers p to phases.
func (d *cpu) Compile(p *device.Program) (device.Executable, error) {
	if d.engine == nil {
		return nil, errClosed
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if p.Rows <= 0 || p.Out > p.Rows {
		return nil, fmt.Errorf("cpu: a program for %d rows and the logits of %d is invalid", p.Rows, p.Out)
	}
	l := lowering{
		device: d,
		exe:    executable{device: d, limits: p.Limits()},
		angles: map[device.RoPE]angles{},
	}
	for i, op := range p.Ops {
		if op.Kind == device.OpRoPE {
			if err := l.prepareAngles(op.RoPE); err != nil {
				return nil, fmt.Errorf("cpu: operation %d, %s: %w", i, op.Kind, err)
			}
		}
	}
	for i, op := range p.Ops {
		if err := l.lower(op); err != nil {
			return nil, fmt.Errorf("cpu: operation %d, %s: %w", i, op.Kind, err)
		}
	}
	if err := l.finish(); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	l.placeWeights()
	return &l.exe, nil
}

// lowering turns recorded operations into phases. Consecutive operations on single rows share a
// phase, so that one thread runs all of them on a row while the row is in its cache. A matrix product
// shares a phase with the products before it if they have the same input.
type lowering struct {
	device   *cpu
	exe      executable
	ops      []C.struct_op
	phases   []C.struct_phase
	angles   map[device.RoPE]angles // by anglesOf
	gathered bool

	quantized int32 // ID of the activation that scratch has quantised; 0: none
	grouped   int32 // ID of the routes that scratch has rows grouped by; 0: none
	quant     int64 // bytes of scratch
	attention int64 // floats of scratch per thread
	groups    int64 // bytes of scratch
	panel     int64 // bytes of the largest panel of weights that are not packed
}

// angles are the frequencies of a RoPE, and the table of cosines and sines that each run fills once.
type angles struct {
	freqs *C.double
	table *C.float
}

// anglesOf returns r reduced to the fields that its angles depend on.
func anglesOf(r device.RoPE) device.RoPE {
	r.HeadDim, r.NeoX = 0, false
	return r
}

func (l *lowering) prepareAngles(r device.RoPE) error {
	key := anglesOf(r)
	if _, ok := l.angles[key]; ok {
		return nil
	}
	var factors []float32
	if !r.Factors.None() {
		w, err := l.device.tensor(r.Factors)
		if err != nil {
			return err
		}
		factors = unsafe.Slice((*float32)(w.data), r.Dims/2)
	}
	freqBytes, tableBytes := angleBytes(l.exe.limits.Rows, r.Dims)
	freqs, err := l.device.alloc(freqBytes)
	if err != nil {
		return fmt.Errorf("frequencies: %w", err)
	}
	table, err := l.device.alloc(tableBytes)
	if err != nil {
		return fmt.Errorf("RoPE table: %w", err)
	}
	copy(unsafe.Slice((*float64)(freqs), r.Dims/2), r.Frequencies(factors))
	l.angles[key] = angles{(*C.double)(freqs), (*C.float)(table)}
	l.rowOp(C.struct_op{
		kind: C.OP_ANGLES, dims: C.int32_t(r.Dims), axis: C.int32_t(r.Axis), freqs: (*C.double)(freqs), angles: (*C.float)(table), scale: C.float(cmp.Or(r.Magnitude, 1)),
	})
	return nil
}

// angleBytes returns the sizes of the frequencies and of the table of a RoPE, in bytes.
func angleBytes(rows, dims int) (freqs, table int64) {
	return 8 * int64(dims/2), 4 * int64(rows) * int64(dims)
}

// quantBytes returns the size of an activation quantised to int8, in bytes.
func quantBytes(rows, cols int) int64 { return int64(rows) * int64(C.quant_bytes(C.int(cols))) }

// groupBytes returns the size of struct groups for op, an OpExpertMatMul, in bytes.
func groupBytes(rows int, op device.Op) int64 {
	return 4 * int64(C.groups_ints(C.int(rows), C.int(usedExperts(op)), C.int(op.Experts)))
}

// attentionFloats returns the scratch of a thread for op, an OpAttention, in floats.
func attentionFloats(op device.Op) int64 {
	kv := op.KV.Layout
	_, after := op.Attention.Reach()
	group := C.int(op.Attention.Heads / kv.KVHeads)
	return int64(C.attention_floats(C.attention_rows(group, after > 0), group, C.int(kv.HeadDim)))
}

// operands returns a struct op with the tensors of op.
func (l *lowering) operands(op device.Op) (c C.struct_op, err error) {
	for _, t := range []struct {
		named device.Tensor
		to    **C.float
	}{{op.Dst, &c.y}, {op.X, &c.x}, {op.Y, &c.z}} {
		if t.named.None() {
			continue
		}
		a, err := l.device.activation(t.named)
		if err != nil {
			return c, err
		}
		*t.to = (*C.float)(a.data)
	}
	if !op.W.None() {
		w, err := l.device.tensor(op.W)
		if err != nil {
			return c, err
		}
		c.w, c._type = (*C.uint8_t)(w.data), C.int32_t(w.Type)
		c.w_stride, c.w_rows = C.size_t(w.Type.RowBytes(w.Cols)), C.int32_t(w.Rows)
		if bytes := panelBytes(w.Type, w.Cols); w.inFile {
			c.in_file = 1
			c.copy, c.copy_stride, c.copied = (*C.uint8_t)(w.copy), C.size_t(bytes), C.int32_t(w.copied)
			l.panel = max(l.panel, bytes)
		} else if bytes > 0 {
			c.w_stride = C.size_t(bytes)
		}
	}
	c.cols, c.eps = C.int32_t(op.Dst.Cols), C.float(op.Eps)
	return c, nil
}

// lowerings adds each kind of operation to the phases; c has its tensors. Most are operations on
// single rows.
var lowerings = map[device.OpKind]func(l *lowering, c C.struct_op, op device.Op) error{
	device.OpEmbed:           (*lowering).embed,
	device.OpEmbedPositions:  (*lowering).embed,
	device.OpRMSNorm:         (*lowering).norm,
	device.OpLayerNorm:       (*lowering).norm,
	device.OpScaleByPosition: (*lowering).scaleByPosition,
	device.OpMatMul:          (*lowering).matMul,
	device.OpAddBias:         plain(C.OP_ADD_BIAS),
	device.OpRoPE:            (*lowering).rope,
	device.OpStoreKV:         (*lowering).storeKV,
	device.OpAttention:       (*lowering).attend,
	device.OpGLU:             (*lowering).glu,
	device.OpAdd:             plain(C.OP_ADD),
	device.OpScale:           (*lowering).scale,
	device.OpGatherRows:      (*lowering).gatherRows,
	device.OpCandidates:      func(*lowering, C.struct_op, device.Op) error { return nil }, // cpu.Candidates reads the row
	device.OpRoute:           (*lowering).route,
	device.OpExpertMatMul:    (*lowering).expertMatMul,
	device.OpExpertBias:      (*lowering).expertBias,
	device.OpExpertSum:       (*lowering).expertSum,
	device.OpGate:            (*lowering).gate,
	device.OpMultiply:        (*lowering).multiply,
	device.OpCopy:            (*lowering).copyColumns,
	device.OpMix:             (*lowering).mix,
	device.OpMatchRMS:        (*lowering).matchRMS,
	device.OpSparsify:        (*lowering).sparsify,
	device.OpConv:            (*lowering).conv,
	device.OpScan:            (*lowering).scan,
}

// lower adds op to the phases.
func (l *lowering) lower(op device.Op) error {
	lower, ok := lowerings[op.Kind]
	if !ok {
		return errors.New("the operation has no kernel")
	}
	c, err := l.operands(op)
	if err != nil {
		return err
	}
	return lower(l, c, op)
}

// plain lowers operations on single rows that have no parameters besides their tensors.
func plain(kind C.int32_t) func(*lowering, C.struct_op, device.Op) error {
	return func(l *lowering, c C.struct_op, op device.Op) error {
		c.kind = kind
		return l.onRows(c, op)
	}
}

// onRows adds op, an operation on single rows.
func (l *lowering) onRows(c C.struct_op, op device.Op) error {
	l.rowOp(c)
	l.wrote(op.Dst)
	return nil
}

func (l *lowering) embed(c C.struct_op, op device.Op) error {
	c.kind = C.OP_EMBED
	c.by_position = flag(op.Kind == device.OpEmbedPositions)
	return l.onRows(c, op)
}

func (l *lowering) norm(c C.struct_op, op device.Op) error {
	c.kind, c.head_dim, c.outs = C.OP_RMS_NORM, C.int32_t(op.W.Cols), C.int32_t(op.W.Rows)
	if op.Kind == device.OpLayerNorm {
		c.kind = C.OP_LAYER_NORM
	}
	var err error
	if c.bias, err = l.vector(op.Bias); err != nil {
		return err
	}
	return l.onRows(c, op)
}

func (l *lowering) scaleByPosition(c C.struct_op, op device.Op) error {
	c.kind, c.scale, c.outs = C.OP_SCALE_BY_POSITION, C.float(op.Factor), C.int32_t(op.Period)
	return l.onRows(c, op)
}

func (l *lowering) rope(c C.struct_op, op device.Op) error {
	c.kind = C.OP_ROPE
	c.dims, c.head_dim, c.neox = C.int32_t(op.RoPE.Dims), C.int32_t(op.RoPE.HeadDim), flag(op.RoPE.NeoX)
	c.angles = l.angles[anglesOf(op.RoPE)].table
	return l.onRows(c, op)
}

func (l *lowering) storeKV(c C.struct_op, op device.Op) error {
	c.kind, c.cols = C.OP_STORE_KV, C.int32_t(op.X.Cols)
	if err := l.cache(&c, op); err != nil {
		return err
	}
	return l.onRows(c, op)
}

func (l *lowering) attend(c C.struct_op, op device.Op) error {
	c.kind = C.OP_ATTENTION
	if err := l.cache(&c, op); err != nil {
		return err
	}
	var err error
	if c.sinks, err = l.vector(op.Attention.Sinks); err != nil {
		return err
	}
	c.heads, c.scale = C.int32_t(op.Attention.Heads), C.float(op.Attention.Scale)
	c.cap, c.max_bias = C.float(op.Attention.Cap), C.float(op.Attention.MaxBias)
	before, after := op.Attention.Reach()
	c.before, c.after = C.int32_t(before), C.int32_t(after)
	l.attention = max(l.attention, attentionFloats(op))
	l.newPhase(C.PHASE_ATTENTION, c)
	l.wrote(op.Dst)
	return nil
}

func (l *lowering) glu(c C.struct_op, op device.Op) error {
	activation, ok := map[device.Activation]C.int32_t{
		device.SiLU: C.SILU, device.GELU: C.GELU, device.ClampedSwiGLU: C.CLAMPED_SWIGLU, device.SquaredReLU: C.SQUARED_RELU, device.ExactGELU: C.EXACT_GELU,
		device.Identity: C.IDENTITY, device.Sigmoid: C.SIGMOID, device.Softplus: C.SOFTPLUS, device.Exp: C.EXP,
	}[op.GLU]
	if !ok {
		return fmt.Errorf("activation %d has no kernel", op.GLU)
	}
	c.kind, c.activation = C.OP_GLU, activation
	if l.followsConv(op, c) {
		return nil
	}
	return l.onRows(c, op)
}

func (l *lowering) scale(c C.struct_op, op device.Op) error {
	c.kind, c.scale, c.cap = C.OP_SCALE, C.float(op.Factor), C.float(op.Cap)
	return l.onRows(c, op)
}

// gatherRows adds a phase of its own, because it reads rows that other threads write before and
// after it.
func (l *lowering) gatherRows(c C.struct_op, op device.Op) error {
	c.kind = C.OP_GATHER_ROWS
	l.gathered, l.quantized, l.grouped = true, 0, 0
	l.newPhase(C.PHASE_ROWS, c)
	return nil
}

func (l *lowering) route(c C.struct_op, op device.Op) error {
	r := op.Routing
	if r.Experts > C.MAX_EXPERTS {
		return fmt.Errorf("has %d experts, the limit is %d", r.Experts, int(C.MAX_EXPERTS))
	}
	c.kind = C.OP_ROUTE
	c.experts, c.used, c.scale, c.normalize = C.int32_t(r.Experts), C.int32_t(r.Used), C.float(r.Scale), flag(r.Normalize)
	c.sigmoid, c.by_logits = flag(r.Score == device.ScoreSigmoid), flag(r.RanksByLogits())
	if r.Score == device.ScoreSparseMixer {
		c.margin = C.float(device.SparseMixerMargin)
	}
	if !r.Ungrouped() {
		c.groups, c.groups_used = C.int32_t(r.Groups), C.int32_t(r.GroupsUsed)
	}
	var err error
	if c.bias, err = l.vector(r.Bias); err != nil {
		return err
	}
	if c.factors, err = l.vector(r.Scales); err != nil {
		return err
	}
	return l.onRows(c, op)
}

// vector returns the data of an F32 weight, nil if named is none.
func (l *lowering) vector(named device.Tensor) (*C.float, error) {
	if named.None() {
		return nil, nil
	}
	w, err := l.device.tensor(named)
	return (*C.float)(w.data), err
}

func (l *lowering) expertMatMul(c C.struct_op, op device.Op) error {
	c.experts, c.used, c.own = C.int32_t(op.Experts), C.int32_t(usedExperts(op)), flag(op.X.Cols > op.W.Cols)
	l.group(c, op)
	return l.matMul(c, op)
}

// usedExperts returns the number of experts that a row uses in op, an OpExpertMatMul.
func usedExperts(op device.Op) int {
	if op.Y.None() {
		return op.Experts
	}
	return op.Y.Cols / 2
}

func (l *lowering) expertBias(c C.struct_op, op device.Op) error {
	c.kind, c.experts, c.used = C.OP_EXPERT_BIAS, C.int32_t(op.Experts), C.int32_t(op.Y.Cols/2)
	return l.onRows(c, op)
}

func (l *lowering) gate(c C.struct_op, op device.Op) error {
	c.kind, c.outs = C.OP_GATE, C.int32_t(op.X.Cols)
	return l.onRows(c, op)
}

func (l *lowering) multiply(c C.struct_op, op device.Op) error {
	c.kind, c.outs = C.OP_MULTIPLY, C.int32_t(op.W.Cols)
	return l.onRows(c, op)
}

func (l *lowering) copyColumns(c C.struct_op, op device.Op) error {
	columns := op.Columns
	c.kind, c.outs = C.OP_COPY, C.int32_t(op.X.Cols)
	c.parts, c.from, c.to, c.width = C.int32_t(columns.Parts), C.int32_t(columns.From), C.int32_t(columns.To), C.int32_t(columns.Width)
	return l.onRows(c, op)
}

func (l *lowering) mix(c C.struct_op, op device.Op) error {
	c.kind, c.outs = C.OP_MIX, C.int32_t(op.X.Cols)
	c.to, c.width = C.int32_t(op.Columns.To), C.int32_t(op.Columns.Width)
	return l.onRows(c, op)
}

func (l *lowering) matchRMS(c C.struct_op, op device.Op) error {
	c.kind, c.head_dim = C.OP_MATCH_RMS, C.int32_t(op.X.Cols)
	return l.onRows(c, op)
}

func (l *lowering) sparsify(c C.struct_op, op device.Op) error {
	c.kind, c.scale = C.OP_SPARSIFY, C.float(op.Factor)
	return l.onRows(c, op)
}

func (l *lowering) expertSum(c C.struct_op, op device.Op) error {
	c.kind, c.used = C.OP_EXPERT_SUM, C.int32_t(op.Y.Cols/2)
	return l.onRows(c, op)
}

func flag(is bool) C.int32_t {
	if is {
		return 1
	}
	return 0
}

// group adds a phase that groups rows by the experts of op, unless scratch has them already.
func (l *lowering) group(c C.struct_op, op device.Op) {
	l.groups = max(l.groups, groupBytes(l.exe.limits.Rows, op))
	if l.grouped != op.Y.ID || op.Y.None() {
		l.newPhase(C.PHASE_GROUP, C.struct_op{kind: C.OP_GROUP, x: c.z, experts: c.experts, used: c.used})
		l.grouped = op.Y.ID
	}
}

// matMul adds a matrix product. Before it comes the quantisation of x, if the weights are quantised
// and scratch does not have x already.
func (l *lowering) matMul(c C.struct_op, op device.Op) error {
	if elements, _ := op.W.Type.Block(); elements > 1 {
		l.quant = max(l.quant, quantBytes(l.exe.limits.Rows, op.X.Cols))
		if l.quantized != op.X.ID {
			l.rowOp(C.struct_op{kind: C.OP_QUANTIZE, cols: C.int32_t(op.X.Cols), x: c.x})
			l.quantized = op.X.ID
		}
	}
	outs := op.W.Rows / max(op.Experts, 1)
	c.kind, c.cols, c.outs = C.OP_MATMUL, C.int32_t(op.W.Cols), C.int32_t(outs)
	c.chunk = C.int32_t(chunk(outs, int(op.W.Type.RowBytes(op.W.Cols)), l.exe.limits.Rows, l.device.info.Threads))
	items := (c.outs + c.chunk - 1) / c.chunk
	cost := C.int64_t(op.Dst.Cols) * C.int64_t(op.W.Cols)

	if l.sharesInput(c) {
		last := &l.phases[len(l.phases)-1]
		l.ops = append(l.ops, c)
		last.last++
		last.items += items
		last.cost += cost
	} else {
		l.newPhase(C.PHASE_MATMUL, c)
		last := &l.phases[len(l.phases)-1]
		last.items, last.cost = items, cost
	}
	l.wrote(op.Dst)
	return nil
}

// sharesInput reports whether c can join the last phase: its products have the same input as c and
// other outputs.
func (l *lowering) sharesInput(c C.struct_op) bool {
	if len(l.phases) == 0 {
		return false
	}
	last := l.phases[len(l.phases)-1]
	if last.kind != C.PHASE_MATMUL {
		return false
	}
	for _, other := range l.ops[last.first:last.last] {
		if other.x != c.x || other.y == c.y || other.z != c.z || other.experts != c.experts {
			return false
		}
	}
	return true
}

// chunk returns how many rows of a weight a thread takes at a time, a multiple of a panel. They fit
// in the L2 cache with the activations, so that the weights are read from memory once for all rows
// of a batch, and leave enough chunks for all threads.
func chunk(outs, rowBytes, rows, threads int) int {
	cached := 64 << 10
	if rows > 8 {
		cached = 256 << 10 // reading activations takes longer than reading weights
	}
	n := min(cached/max(rowBytes, 1), outs/(4*threads))
	return max(n/C.PANEL*C.PANEL, C.PANEL)
}

func (l *lowering) cache(c *C.struct_op, op device.Op) error {
	id := op.KV.ID
	if id < 1 || int(id) > len(l.device.kvs) || l.device.kvs[id-1].KV != op.KV {
		return fmt.Errorf("KV cache %d does not belong to this device", id)
	}
	layout := op.KV.Layout
	c._type, c.value_type = C.int32_t(layout.Type.Keys), C.int32_t(layout.Type.Values)
	if layout.RotatesKeys() {
		c.rotates = 1
	}
	for part := range layout.Parts() {
		c.kv_bytes[part] = C.size_t(layout.HeadBytes(part))
	}
	c.kv = (*C.uint8_t)(l.device.kvs[id-1].data)
	c.layers, c.layer, c.group = C.int32_t(layout.Layers), C.int32_t(op.Layer), C.int32_t(layout.Group)
	c.kv_heads, c.head_dim = C.int32_t(layout.KVHeads), C.int32_t(layout.HeadDim)
	c.parts_kv, c.value_dim = C.int32_t(layout.Parts()), C.int32_t(layout.ValueDim())
	return nil
}

// rowOp adds an operation on single rows to the last phase if that has such operations, or else to a
// new phase.
func (l *lowering) rowOp(c C.struct_op) {
	if n := len(l.phases); n > 0 && l.phases[n-1].kind == C.PHASE_ROWS && l.ops[len(l.ops)-1].kind != C.OP_GATHER_ROWS {
		l.ops = append(l.ops, c)
		l.phases[n-1].last++
		return
	}
	l.newPhase(C.PHASE_ROWS, c)
}

func (l *lowering) newPhase(kind C.int32_t, c C.struct_op) {
	first := C.int32_t(len(l.ops))
	l.ops = append(l.ops, c)
	phase := C.struct_phase{kind: kind, first: first, last: first + 1}
	if l.gathered {
		phase.gathered = 1
	}
	l.phases = append(l.phases, phase)
}

// wrote records that t changes: scratch derived from its old values is no longer valid.
func (l *lowering) wrote(t device.Tensor) {
	if t.ID == l.quantized {
		l.quantized = 0
	}
	if t.ID == l.grouped {
		l.grouped = 0
	}
}

// finish copies the operations and phases to C memory and grows scratch to the sizes they need.
func (l *lowering) finish() error {
	d := l.device
	if err := d.quant.grow(l.quant); err != nil {
		return fmt.Errorf("quantised activations: %w", err)
	}
	if err := d.groups.grow(l.groups); err != nil {
		return fmt.Errorf("rows grouped by expert: %w", err)
	}
	if err := d.panels.grow((l.panel + line - 1) / line * line * int64(d.info.Threads)); err != nil {
		return fmt.Errorf("panels of weights: %w", err)
	}
	if err := d.attention.grow(4 * l.attention * int64(d.info.Threads)); err != nil {
		return fmt.Errorf("attention scores: %w", err)
	}
	program, err := d.alloc(int64(unsafe.Sizeof(C.struct_program{})))
	if err != nil {
		return err
	}
	l.exe.program = (*C.struct_program)(program)
	if l.exe.program.ops, err = copyToC(d, l.ops); err != nil {
		return err
	}
	if l.exe.program.phases, err = copyToC(d, l.phases); err != nil {
		return err
	}
	l.exe.program.n_phases = C.int32_t(len(l.phases))
	d.compiled = append(d.compiled, unsafe.Slice(l.exe.program.ops, len(l.ops)))
	return nil
}

func copyToC[T any](d *cpu, from []T) (*T, error) {
	if len(from) == 0 {
		return nil, nil
	}
	var one T
	p, err := d.alloc(int64(len(from)) * int64(unsafe.Sizeof(one)))
	if err != nil {
		return nil, err
	}
	copy(unsafe.Slice((*T)(p), len(from)), from)
	return (*T)(p), nil
}
