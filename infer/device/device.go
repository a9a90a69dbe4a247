// Package device is the boundary between the model and a processor.
//
// A model is written once, as calls on a [Program]: a small set of named
// operations on tensors. The calls record; nothing runs. A [Device] compiles a
// recorded program and replays it for one [Batch] after another. Shapes are
// checked while recording, so a device may trust them.
//
// # What every device owes
//
// A row's result depends on that row alone: not on how many rows share the
// batch, in which chunks a prompt was fed, where its KV blocks lie, or on the
// number of threads. Every output is accumulated in one fixed order. The suite in
// devicetest holds every device to this.
//
// A device is used by one goroutine at a time.
package device

import (
	"errors"

	"m40-llm/infer/gguf"
)

// BlockSize is the number of positions in one KV cache block.
const BlockSize = 32

// Tensor names memory that a device owns: a weight or an activation. The zero
// Tensor means "none".
type Tensor struct {
	ID   int32     // the device's own number, from 1
	Type gguf.Type // activations are F32
	Rows int       // weight: outputs; activation: most rows a batch can have
	Cols int       // weight: inputs; activation: width
}

// HasRows reports whether n values from row row on are whole rows of t, one at least.
func (t Tensor) HasRows(row, n int) bool {
	return row >= 0 && row < t.Rows && n > 0 && n%t.Cols == 0 && n/t.Cols <= t.Rows-row
}

// None reports whether t names no tensor.
func (t Tensor) None() bool { return t.ID == 0 }

// KVLayout describes a paged KV cache: Blocks blocks, each laid out as
// [layer][K|V][kv head][BlockSize][HeadDim]. A latent cache has no V: its values are the first
// Latent elements of its keys.
type KVLayout struct {
	Type    gguf.Type // F16 or F32
	Blocks  int
	Layers  int
	KVHeads int
	HeadDim int
	Latent  int // 0: not latent
}

// ValueDim returns the width of a head's value.
func (l KVLayout) ValueDim() int {
	if l.Latent > 0 {
		return l.Latent
	}
	return l.HeadDim
}

// Parts returns 1 where there are only keys, otherwise 2.
func (l KVLayout) Parts() int {
	if l.Latent > 0 {
		return 1
	}
	return 2
}

// Bytes returns the size of the whole cache.
func (l KVLayout) Bytes() int64 { return int64(l.Blocks) * l.BlockBytes() }

// BlockBytes returns the size of one block over all layers.
func (l KVLayout) BlockBytes() int64 {
	_, b := l.Type.Block()
	return int64(l.Layers) * int64(l.Parts()) * int64(l.KVHeads) * BlockSize * int64(l.HeadDim) * int64(b)
}

// KV names a KV cache that a device owns.
type KV struct {
	ID     int32
	Layout KVLayout
}

// Info describes a device to people and to the scheduler.
type Info struct {
	Kind    string `json:"kind"`    // cpu, cuda, ref
	Name    string `json:"name"`    // "AMD EPYC, 2 threads"
	Path    string `json:"path"`    // number path, stored with each answer: avx512vnni, avx2, portable, go
	Threads int    `json:"threads"` // 0 where it means nothing
	Memory  int64  `json:"memory"`  // bytes the device could still take when it was opened; 0: unknown

	// Notice is what a person should know of it, such as why it is not another one.
	Notice string `json:"notice,omitempty"`

	// Dedicated says that Memory is there for models: other programs need no part of it.
	Dedicated bool `json:"dedicated,omitempty"`
}

// MostCandidates is the number of tokens that a row of logits is reduced to.
const MostCandidates = 256

// Candidates is what a sampler needs of a row of logits: the row itself, where it lies in
// the host's memory, or else, so that a row need not be copied from a device with a
// memory of its own, the likeliest tokens and the sums over the whole vocabulary that
// make probabilities of logits. A token whose logit is -Inf is in no sum and no list.
type Candidates struct {
	All []float32 // (vocab); nil: what follows holds

	IDs    []int32   // the likeliest, at most MostCandidates: the largest logit first, of equal ones the lowest token
	Logits []float32 // theirs
	Max    float32   // largest logit
	Mass   float64   // sum of exp(logit - Max)
	Dot    float64   // sum of exp(logit - Max) · (logit - Max)
	Count  int       // of tokens whose logit is not -Inf
	Bad    int32     // the lowest token whose logit is NaN or +Inf, or -1. With one, or if Count is 0, nothing else holds
}

// Device runs recorded programs.
type Device interface {
	Info() Info

	// WeightBytes returns what Upload of a weight of shape (rows, cols) in format t takes
	// of the device's memory. It fails with an error that names the type if the device
	// has no kernel for t.
	WeightBytes(t gguf.Type, rows, cols int) (int64, error)

	// WorkBytes returns what programs that are compiled together take of the device's
	// memory, at most, beside the tensors and caches that they name. Only shapes count:
	// none of what is named need be there.
	WorkBytes(programs ...*Program) int64

	// Upload takes a weight of shape (rows, cols) in format t, as it lies in the
	// model file. data must stay valid and unchanged until Close; the device may
	// keep a view of it or repack a copy. It fails with an error that names the
	// type if the device has no kernel for t.
	Upload(t gguf.Type, rows, cols int, data []byte) (Tensor, error)

	// Alloc makes a zeroed float32 activation of shape (rows, cols).
	Alloc(rows, cols int) (Tensor, error)

	// AllocKV makes a KV cache.
	AllocKV(l KVLayout) (KV, error)

	// Compile prepares p for replay.
	Compile(p *Program) (Executable, error)

	// Candidates returns what a sampler needs of row row of logits, as the last Run left
	// it. The program that ran must have recorded Candidates of them. What is returned
	// holds until the next Run.
	Candidates(logits Tensor, row int) (Candidates, error)

	// Read copies the rows of the activation t from row row on that fill dst, as the last Run
	// left them.
	Read(dst []float32, t Tensor, row int) error

	// Write sets the rows of the activation t from row row on that src holds, for a Run that
	// reads them.
	Write(t Tensor, row int, src []float32) error

	// Close frees everything the device owns.
	Close() error
}

// Peer is a device that some others can copy activations to without the host.
type Peer interface {
	// CopyFrom copies the first rows rows of src, an activation of from as its last Run left
	// it, to dst. copied is false if it cannot copy from that device.
	CopyFrom(dst Tensor, from Device, src Tensor, rows int) (copied bool, err error)
}

// ErrUnreadable is wrapped by the error of an Upload whose data cannot be read, and of a Run
// of a device that keeps a view of it: a mapped model file was cut short, or its disk
// failed. The file must be opened anew.
var ErrUnreadable = gguf.ErrUnreadable

// ErrFailed is, for errors.Is, every error of a device whose hardware or driver failed or
// ran out of memory, as opposed to one that was asked for what it cannot do.
var ErrFailed = errors.New("the device failed")

// Executable is a compiled program.
type Executable interface {
	// Run replays the program for one batch of at most Program.Rows rows and
	// returns when its results can be read.
	Run(b *Batch) error
}
