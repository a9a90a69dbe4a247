package resident

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"m40-llm/cudakern"
)

// ring is a ring of commands to a resident kernel and a ring of their results, in mapped page-locked memory.
// ring.cuh has the kernel's side, the protocol and its memory order. It is used by one goroutine at a time.
type ring struct {
	host   *cudakern.Host
	at     cudakern.Ptr // for the kernel
	memory []byte
	head   *ringHost
	tail   *ringDevice
	poison bool // overwrite memory that the other side may not read, so that tests notice if it does

	next   uint32 // number of the next command
	oldest uint32 // of the oldest command whose result was not taken
}

// ringLayout is the size of a ring.
type ringLayout struct {
	Slots        int // commands whose results were not taken, at most; a power of two
	CommandWords int // data of a command, at most
	ResultWords  int // data of a result, at most
}

// command is what a kernel is to do. Its meaning is that of the kernel.
type command struct {
	Kind, Program uint32
	Args          [4]uint32
}

// result is the answer to a command.
type result struct {
	Number uint32 // of the command
	State  resultState
	Data   []uint32 // valid until the next Push
}

// resultState says how a command has ended: enum ResultState of ring.cuh.
type resultState uint32

const (
	resultDone      resultState = 1 + iota
	resultCancelled             // it was not executed
	resultFailed                // as the kernel defines it
)

// errRingFull is the error of a push before the oldest result was taken.
var errRingFull = errors.New("the ring of commands is full: take a result first")

// The structs of ring.cuh.
type (
	ringHost struct {
		slots, commandBytes, resultBytes uint32
		launch, first, most, idle        uint32
		_                                [9]uint32
		cancel, leave                    uint32
		_                                [14]uint32
	}
	ringDevice struct {
		beat, at, next, reason, left uint32
		_                            [27]uint32
	}
	ringCommand struct {
		number, kind, program, words uint32
		args                         [4]uint32
	}
	ringResult struct {
		number, state, words, _ uint32
		args                    [4]uint32
	}
	ringOrder struct {
		leave, number, kind, program, words uint32
		args                                [4]uint32
		_                                   [3]uint32
	}
)

// orderBytes is the size of struct Order in device memory, in bytes.
const orderBytes = int(unsafe.Sizeof(ringOrder{}))

const ringHeaderBytes = 256

// newRing allocates a ring whose first command has the number first.
func newRing(c *cudakern.Context, l ringLayout, first uint32) (*ring, error) {
	if l.Slots < 1 || bits.OnesCount(uint(l.Slots)) != 1 || l.CommandWords < 0 || l.ResultWords < 0 {
		return nil, fmt.Errorf("a ring of %d commands of %d words with results of %d words is invalid: the number of commands must be a power of two", l.Slots, l.CommandWords, l.ResultWords)
	}
	// Entries begin in lines of 128 bytes.
	size := func(header uintptr, words int) int { return (int(header) + 4*words + 127) &^ 127 }
	command, result := size(unsafe.Sizeof(ringCommand{}), l.CommandWords), size(unsafe.Sizeof(ringResult{}), l.ResultWords)
	h, at, err := c.AllocMapped(ringHeaderBytes + l.Slots*(command+result))
	if err != nil {
		return nil, err
	}
	r := &ring{host: h, at: at, memory: h.Bytes(), next: first, oldest: first, poison: c.Emulated()}
	clear(r.memory[:ringHeaderBytes])
	r.head = (*ringHost)(unsafe.Pointer(&r.memory[0]))
	r.tail = (*ringDevice)(unsafe.Pointer(&r.memory[unsafe.Sizeof(ringHost{})]))
	r.head.slots, r.head.commandBytes, r.head.resultBytes = uint32(l.Slots), uint32(command), uint32(result)
	r.head.cancel = first - 1
	r.tail.next = first
	for i := range uint32(l.Slots) { // the numbers that the slots would have had before
		c, _ := r.command(first + i)
		c.number = first + i - uint32(l.Slots)
		s, _ := r.result(first + i)
		s.number = c.number
	}
	return r, nil
}

// Close frees the memory. No kernel may use the ring.
func (r *ring) Close() error { return r.host.Close() }

// Pending returns how many commands have no result that was taken.
func (r *ring) Pending() int { return int(r.next - r.oldest) }

// Push writes a command with data, and returns its number. It fails with errRingFull, or if data is too long.
func (r *ring) Push(c command, data []uint32) (uint32, error) {
	if r.next-r.oldest == r.head.slots {
		return 0, errRingFull
	}
	to, room := r.command(r.next)
	if len(data) > len(room) {
		return 0, fmt.Errorf("a command has %d words of data, the ring has room for %d", len(data), len(room))
	}
	_, old := r.result(r.next)
	r.spoil(old)
	to.kind, to.program, to.words, to.args = c.Kind, c.Program, uint32(len(data)), c.Args
	copy(room, data)
	n := r.next
	r.next++
	atomic.StoreUint32(&to.number, n)
	return n, nil
}

// Take returns the result of the oldest command that has none taken, and whether there is one.
func (r *ring) Take() (result, bool) {
	from, data := r.result(r.oldest)
	if r.oldest == r.next || atomic.LoadUint32(&from.number) != r.oldest {
		return result{}, false
	}
	_, old := r.command(r.oldest)
	r.spoil(old)
	r.oldest++
	return result{Number: from.number, State: resultState(from.state), Data: data[:min(int(from.words), len(data))]}, true
}

// answered reports whether the result of a command has arrived, which was pushed and whose result was not taken.
func (r *ring) answered(number uint32) bool {
	from, _ := r.result(number)
	return atomic.LoadUint32(&from.number) == number
}

// Cancel makes the kernel answer the commands so far with resultCancelled, except those that it has started.
func (r *ring) Cancel() { atomic.StoreUint32(&r.head.cancel, r.next-1) }

// spoil overwrites data that neither side may read now.
func (r *ring) spoil(data []uint32) {
	for i := range data {
		if !r.poison {
			return
		}
		data[i] = 0xffffffff
	}
}

// command returns the slot of a command, and its data.
func (r *ring) command(number uint32) (*ringCommand, []uint32) {
	at := ringHeaderBytes + uint64(number%r.head.slots)*uint64(r.head.commandBytes)
	entry := r.memory[at:][:r.head.commandBytes]
	return (*ringCommand)(unsafe.Pointer(&entry[0])), wordsOf(entry[unsafe.Sizeof(ringCommand{}):])
}

// result returns the slot of a result, and its data.
func (r *ring) result(number uint32) (*ringResult, []uint32) {
	at := ringHeaderBytes + uint64(r.head.slots)*uint64(r.head.commandBytes) + uint64(number%r.head.slots)*uint64(r.head.resultBytes)
	entry := r.memory[at:][:r.head.resultBytes]
	return (*ringResult)(unsafe.Pointer(&entry[0])), wordsOf(entry[unsafe.Sizeof(ringResult{}):])
}

func wordsOf(data []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/4)
}

func wordBytes(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}
