// Package device is the boundary between the model and a processor.
//
// A model is written once, as calls on a [Program]: a small set of named
// operations on tensors. The calls only record. A [Device] compiles a recorded
// program and replays it for one [Batch] after another. Shapes are checked while
// recording, so a device need not check them again.
//
// # The contract of every device
//
// A row's result depends on that row alone: not on how many rows share the
// batch, how a prompt is split into chunks, where its KV blocks are, or the
// number of threads. Every output is accumulated in one fixed order. The suite in
// devicetest checks this for every device.
//
// A device is used by one goroutine at a time.
package device

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"m40-llm/infer/gguf"
)

// BlockSize is the number of positions in one KV cache block.
const BlockSize = 32

// MaxGroups is the number of cache groups that a program may have.
const MaxGroups = 8

// Tensor is a handle of memory that a device owns: a weight or an activation. The zero
// Tensor means "none".
type Tensor struct {
	ID   int32     // assigned by the device, from 1
	Type gguf.Type // activations are F32
	Rows int       // weight: outputs; activation: maximum rows of a batch
	Cols int       // weight: inputs; activation: width
}

// HasRows reports whether n values that begin at row row are one or more whole rows of t.
func (t Tensor) HasRows(row, n int) bool {
	return row >= 0 && row < t.Rows && n > 0 && n%t.Cols == 0 && n/t.Cols <= t.Rows-row
}

// None reports whether t is the zero Tensor.
func (t Tensor) None() bool { return t.ID == 0 }

// KVLayout describes a paged KV cache: Blocks blocks, each laid out as
// [layer][K|V][kv head][BlockSize][HeadDim]. A latent cache (multi-head latent attention) has no
// V: its values are the first Latent elements of its keys.
type KVLayout struct {
	Type    CacheType
	Group   int // cache group, an index into Batch.Tables: caches of one group have the same block tables
	Table   int // the most blocks of a block table, those outside a window included; 0: Blocks
	Blocks  int
	Layers  int
	KVHeads int
	HeadDim int
	Latent  int // elements of a value in a latent cache; 0: the cache is not latent
}

// Longest returns the most blocks of a block table.
func (l KVLayout) Longest() int { return cmp.Or(l.Table, l.Blocks) }

// ValueDim returns the number of elements in a head's value.
func (l KVLayout) ValueDim() int {
	if l.Latent > 0 {
		return l.Latent
	}
	return l.HeadDim
}

// Parts returns 1 for a latent cache, which has only keys, and 2 for any other.
func (l KVLayout) Parts() int {
	if l.Latent > 0 {
		return 1
	}
	return 2
}

// Bytes returns the size of the whole cache in bytes.
func (l KVLayout) Bytes() int64 { return int64(l.Blocks) * l.BlockBytes() }

// BlockBytes returns the size of one block over all layers, in bytes.
func (l KVLayout) BlockBytes() int64 {
	head := l.HeadBytes(0)
	if l.Parts() > 1 {
		head += l.HeadBytes(1)
	}
	return int64(l.Layers) * int64(l.KVHeads) * head
}

// CheckBlock returns an error unless the cache has the block and data has its size.
func (l KVLayout) CheckBlock(block int32, data []byte) error {
	if err := l.CheckIndex(block); err != nil {
		return err
	}
	if int64(len(data)) != l.BlockBytes() {
		return fmt.Errorf("a KV block has %d bytes, got %d", l.BlockBytes(), len(data))
	}
	return nil
}

// CheckIndex returns an error unless the cache has the block.
func (l KVLayout) CheckIndex(block int32) error {
	if block < 0 || int(block) >= l.Blocks {
		return fmt.Errorf("KV block %d is outside the cache of %d blocks", block, l.Blocks)
	}
	return nil
}

// KV is a handle of a KV cache that a device owns.
type KV struct {
	ID     int32 // assigned by the device, from 1
	Layout KVLayout
}

// Info describes a device to people and to the scheduler.
type Info struct {
	Kind    string `json:"kind"`            // cpu, cuda, ref
	Name    string `json:"name"`            // "AMD EPYC, 2 threads"
	Path    string `json:"path"`            // number path: the kernels that determine the bits of results; recorded with each answer: avx512vbmi, avx512vnni, avx512bw, avxvnni, avx2, f16c, avx, sse41, neon, portable, go
	Units   string `json:"units,omitempty"` // the instructions that compute products on this path, if there are several with the same bits
	Threads int    `json:"threads"`         // 0: not applicable
	Memory  int64  `json:"memory"`          // bytes that were free when the device was opened; 0: unknown

	// Notice is a sentence for the user, such as why a faster path is not used, or which weights
	// were converted.
	Notice string `json:"notice,omitempty"`

	// InFile is the reason why weights stay in the model file, where each step reads them, instead
	// of in copies that are faster to read; empty: there are copies.
	InFile string `json:"in_file,omitempty"`

	// Decode is how a GPU runs steps of few rows, and DecodeReason why, if not by default. They are known once programs
	// were compiled.
	Decode       Decode `json:"decode,omitempty"`
	DecodeReason string `json:"decode_reason,omitempty"`

	// StepRows is how many rows of a prompt the device should compute in one step, if that is more than by default; 0: the
	// default. Larger steps take more memory.
	StepRows int `json:"-"`

	// Prompts reports whether programs of PromptRows have other bits: the device computes rows of prompts faster than those of answers.
	Prompts bool `json:"-"`

	// Drafts reports whether it was measured that answers gain if several drafted tokens are checked in one step.
	Drafts bool `json:"-"`

	// StageBytes is how many bytes of Memory each part of a model takes in addition to its weights and cache, from part number
	// FewStages on. A device has several parts if layers between them are on another device.
	StageBytes int64 `json:"-"`

	// Dedicated reports whether Memory is for models alone: other programs need no part of it.
	Dedicated bool `json:"dedicated,omitempty"`
}

// FewStages is how many parts of a model do not count in Info.Memory: it leaves room for them.
const FewStages = 16

// Decode is how a GPU runs the launches of a step.
type Decode string

const (
	DecodeAuto       Decode = "auto"       // as is faster on the GPU, by measurements
	DecodeGraph      Decode = "graph"      // the launches of a graph
	DecodePersistent Decode = "persistent" // one resident kernel for all of a step of few rows, where it can
)

// DecodeChooser is implemented by devices that have several ways to run a step. Results have the same bits.
type DecodeChooser interface {
	// ChooseDecode chooses that of programs that are compiled later. Those that were compiled before can only change to
	// DecodeGraph and back.
	ChooseDecode(how Decode)
}

// Notices returns Notice and a sentence about InFile, without a full stop; empty: neither.
func (i Info) Notices() string {
	if i.InFile == "" {
		return i.Notice
	}
	return strings.TrimPrefix(i.Notice+"; the weights stay in the model file, which is slower: "+i.InFile, "; ")
}

// MaxCandidates is the number of tokens that a row of logits is reduced to.
const MaxCandidates = 256

// Candidates is what a sampler needs to know about a row of logits. A device that computes in
// the host's memory sets All, the row itself. Any other sets the remaining fields, to avoid a
// copy of the row: the likeliest tokens, and the sums over the whole vocabulary that turn logits
// into probabilities. Tokens whose logit is -Inf are excluded from the sums and the list.
type Candidates struct {
	All []float32 // (vocab) the row; nil: the fields below are set

	IDs    []int32   // the likeliest tokens, at most MaxCandidates, by descending logit, then ascending token
	Logits []float32 // of IDs
	Max    float32   // largest logit
	Mass   float64   // sum of exp(logit - Max)
	Dot    float64   // sum of exp(logit - Max) · (logit - Max), for the entropy
	Count  int       // tokens whose logit is not -Inf; if 0, only Bad is valid
	Bad    int32     // the lowest token whose logit is NaN or +Inf, -1 if there is none; if there is one, no other field is valid
}

// Device runs recorded programs. A device whose hardware or driver fails returns errors that
// match ErrFailed.
type Device interface {
	Info() Info

	// WeightBytes returns the bytes of device memory that Upload takes for a weight of shape
	// (rows, cols) in format t, converted if the device is a Converter. It fails with an error
	// that names the type if the device does not support t.
	WeightBytes(t gguf.Type, rows, cols int) (int64, error)

	// WorkBytes returns an upper bound of the device memory, in bytes, that programs
	// compiled together need besides their tensors and caches. It reads only shapes: the
	// tensors and caches need not be allocated.
	WorkBytes(programs ...*Program) int64

	// Upload copies or maps a weight of shape (rows, cols) in format t; data is laid out as
	// in the model file. data must stay valid and unchanged until Close, because the device
	// may keep a view of it. The Tensor has the type that the weight has on the device; see
	// Converter. Upload fails with an error that names the type if the device does not
	// support t.
	Upload(t gguf.Type, rows, cols int, data []byte) (Tensor, error)

	// Alloc allocates a zeroed float32 activation of shape (rows, cols).
	Alloc(rows, cols int) (Tensor, error)

	// AllocKV allocates a KV cache. It fails if the device has no kernels for its type.
	AllocKV(l KVLayout) (KV, error)

	// ReadKV copies block block of kv to dst, which has kv.Layout.BlockBytes bytes. The bytes have a
	// meaning for WriteKV of the same device on the same number path alone.
	ReadKV(dst []byte, kv KV, block int32) error

	// WriteKV sets block block of kv to src, as ReadKV has returned it. What follows computes the
	// same bits as if the block had been computed.
	WriteKV(kv KV, block int32, src []byte) error

	// AllocState allocates recurrent state. It fails if the device has no kernels for it.
	AllocState(l StateLayout) (State, error)

	// CopyState copies slot from of s to slot to.
	CopyState(s State, to, from int32) error

	// ReadState copies a slot of s to dst, which has s.Layout.SlotBytes() bytes. As with ReadKV, they have a
	// meaning for WriteState of the same device on the same number path alone.
	ReadState(dst []byte, s State, slot int32) error

	// WriteState sets a slot of s to src, as ReadState has returned it.
	WriteState(s State, slot int32, src []byte) error

	// Compile prepares p for replay. It returns p.Err, if there is one.
	Compile(p *Program) (Executable, error)

	// Candidates returns what a sampler needs to know about row row of logits after the last
	// Run. The program that ran must have recorded Candidates for logits. The slices are
	// valid until the next Run.
	Candidates(logits Tensor, row int) (Candidates, error)

	// Read copies len(dst) values of the activation t, whole rows beginning at row row, as
	// the last Run left them.
	Read(dst []float32, t Tensor, row int) error

	// Write sets len(src) values of the activation t, whole rows beginning at row row, as
	// input of the next Run.
	Write(t Tensor, row int, src []float32) error

	// Close frees everything the device owns. Calls after the first do nothing.
	Close() error
}

// Yielder is implemented by devices that may keep their hardware busy between two steps.
type Yielder interface {
	// Yield returns when other devices on the same hardware can compute. Steps that were started may still be computed.
	Yield() error
}

// Peer is implemented by devices that can copy activations from some other devices without a
// detour through the host's memory.
type Peer interface {
	// CopyFrom copies the first rows rows of src, an activation of from as its last Run left
	// it, to dst. copied is false if direct copies from that device are not possible.
	CopyFrom(dst Tensor, from Device, src Tensor, rows int) (copied bool, err error)
}

// Checker is implemented by devices that have kernels for some programs only.
type Checker interface {
	// Check returns an error that names the first operation of p that the device cannot compute,
	// or nil. It reads only shapes: the tensors and caches need not be allocated.
	Check(p *Program) error
}

// FileReader is implemented by devices that can compute with weights as they are in the mapped model
// file: with the same bits, but slower than with their own copies.
type FileReader interface {
	// KeepInFile makes Upload keep views of weights instead of copies, for the reason why, which
	// Info().InFile then gives. It must be called before the first Upload.
	KeepInFile(why string)
}

// Packer is implemented by devices that copy weights into a layout of their own, and can compute with them before that as
// they are in the mapped model file: with the same bits, but slower.
type Packer interface {
	// PackLater makes Upload keep views of weights, which Pack replaces. It must be called before the first Upload.
	PackLater()

	// Pack copies weights for about limit, while no Run is in progress. It calls release with each part of a view that is not
	// read any more, and returns how many bytes of copies are still missing. If memory is too short for them, the weights stay in
	// the file: then nothing is missing, and Info().InFile has the reason. Its errors are those of Upload.
	Pack(limit time.Duration, release func(view []byte)) (missing int64, err error)
}

// Releaser is implemented by devices whose KV caches take memory as blocks are written.
type Releaser interface {
	// ReleaseKV gives the memory of a block of kv back to the system, up to parts of pages, while no Run is in progress. What the block
	// holds is lost; it takes memory again when it is written.
	ReleaseKV(kv KV, block int32) error
}

// Reserver is implemented by devices that can allocate the memory of weights before they copy any, so that a model that does not fit
// is known before its file is read.
type Reserver interface {
	// Reserve is Upload, but Fill copies the weight if it is large. Programs with it can be compiled before, but not run.
	Reserve(t gguf.Type, rows, cols int, data []byte) (Tensor, error)

	// Fill copies a weight that Reserve has not copied. Its errors are those of Upload.
	Fill(w Tensor) error
}

// Streamer is implemented by devices that can compute with weights that stay in main memory, which they copy whenever a step needs them.
// Such weights are those of the parts 0, 1, 2 … of a model, which take turns at the regions of the device's memory that are reserved for them: with
// two, a part is copied while the one before it computes.
type Streamer interface {
	// ReserveStream allocates regions, at most as many as there are parts, of bytes bytes each: as many as the weights of the largest part take.
	// It must be called before Stream, once.
	ReserveStream(parts, regions int, bytes int64) error

	// Stream is Upload for a weight of a part, but copies only norms and biases. Weights of types that are converted are refused.
	Stream(part int, t gguf.Type, rows, cols int, data []byte) (Tensor, error)

	// AwaitPart waits until the weights of a part can be used: of part 0 first, then of the one after that of the call before, and after
	// the last of part 0 again. ReleasePart says that no step reads them any more.
	AwaitPart(part int) error
	ReleasePart(part int) error
}

// Converter is implemented by devices that keep weights of some types in another type.
type Converter interface {
	// Converts returns the type that weights of type t have on the device: t itself if it has
	// kernels for t, and if it does not support t.
	Converts(t gguf.Type) gguf.Type
}

// ErrUnreadable is wrapped by the error of an Upload whose data cannot be read, and by the error
// of a Run on a device that keeps a view of the data: the mapped model file was truncated, or its
// disk failed. The file must be opened again.
var ErrUnreadable = gguf.ErrUnreadable

// ErrFailed matches (errors.Is) every error of a device whose hardware or driver failed or ran
// out of memory, as opposed to errors for requests that the device does not support.
var ErrFailed = errors.New("the device failed")

// ErrMemory matches the errors among them of a device that ran out of memory.
var ErrMemory = errors.New("the device ran out of memory")

// Executable is a compiled program.
type Executable interface {
	// Run replays the program for one batch of at most Program.Rows rows and returns when
	// its results can be read. It fails with the error of Batch.Check if b is invalid.
	Run(b *Batch) error
}
