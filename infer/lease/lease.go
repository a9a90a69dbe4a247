// Package lease lets workers take turns at the devices of a machine: one that computes a step holds a lease of the devices of its model,
// so that the threads of the CPU are never used by two, and no step waits in the middle for another's.
//
// A [Holder], in a worker, keeps its lease until another worker asks for it: a model that answers alone asks once, and nothing is sent
// between its steps. If several want a device, the [Table], in the server, gives it to each for one step, in the order in which they asked.
// The lease of a worker that ends is free again.
package lease

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
)

// Devices is a set of devices, a bit each.
type Devices byte

// The devices of a machine.
const (
	CPU Devices = 1 << iota
	GPU         // all of them
)

// Messages. Those of a holder have a second byte: the devices.
const (
	wants    = 'W' // of a holder
	releases = 'R'
	grants   = 'G' // of the table
	asks     = 'A' // for the lease, after the running step
)

// Table is the server's end: who holds a lease, and who waits for one. The zero value is ready to use.
type Table struct {
	mu      sync.Mutex
	members []*member
	waiting []*member // the first who asked first
}

// member is a worker.
type member struct {
	conn  io.ReadWriteCloser
	held  Devices
	want  Devices // while it waits
	asked bool    // for what it holds
}

// Join adds the worker at the other end of conn, until that is closed.
func (t *Table) Join(conn io.ReadWriteCloser) {
	m := &member{conn: conn}
	t.mu.Lock()
	t.members = append(t.members, m)
	t.mu.Unlock()
	go t.serve(m)
}

func (t *Table) serve(m *member) {
	defer m.conn.Close()
	var message [2]byte
	for {
		_, err := io.ReadFull(m.conn, message[:])
		t.mu.Lock()
		if err != nil {
			m.held = 0
			t.members = slices.DeleteFunc(t.members, func(other *member) bool { return other == m })
			t.waiting = slices.DeleteFunc(t.waiting, func(other *member) bool { return other == m })
			t.grant()
			t.mu.Unlock()
			return
		}
		switch message[0] {
		case wants:
			m.want = Devices(message[1])
			t.waiting = append(t.waiting, m)
		case releases:
			m.held, m.asked = 0, false
		}
		t.grant()
		t.mu.Unlock()
	}
}

// grant gives leases to those who wait and whose devices are free, and asks for the others. Nobody overtakes one who waits for the same
// device. The caller has locked mu.
func (t *Table) grant() {
	var claimed Devices // by those before in the queue
	for _, m := range slices.Clone(t.waiting) {
		free := m.want&claimed == 0
		claimed |= m.want
		for _, other := range t.members {
			if other.held&m.want == 0 {
				continue
			}
			free = false
			if !other.asked {
				other.asked = true
				other.conn.Write([]byte{asks}) // a worker that has ended is noticed by its reader
			}
		}
		if free {
			m.held, m.asked = m.want, false
			t.waiting = slices.DeleteFunc(t.waiting, func(other *member) bool { return other == m })
			m.conn.Write([]byte{grants})
		}
	}
	// Those who got one now may be asked for it already.
	for _, m := range t.waiting {
		for _, other := range t.members {
			if other.held&m.want != 0 && !other.asked {
				other.asked = true
				other.conn.Write([]byte{asks})
			}
		}
	}
}

// Holder is a worker's end. Take and Release are called by one goroutine.
type Holder struct {
	conn io.ReadWriteCloser

	mu      sync.Mutex
	held    Devices
	busy    bool // a step is computed, or was granted
	asked   bool // somebody waits for what is held
	pending bool // held is wanted and not granted yet
	closed  bool
	granted chan struct{}
}

// NewHolder returns the holder whose table is at the other end of conn, which it takes over. A closed conn means that nobody else
// computes.
func NewHolder(conn io.ReadWriteCloser) *Holder {
	h := &Holder{conn: conn, granted: make(chan struct{}, 1)}
	go h.receive()
	return h
}

// Open returns the holder whose table is at the other end of the socket with file descriptor fd.
func Open(fd int) (*Holder, error) {
	file := os.NewFile(uintptr(fd), "leases")
	if file == nil {
		return nil, errors.New("the file descriptor of the leases is invalid")
	}
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("file descriptor %d is not the socket of the leases: %w", fd, err)
	}
	return NewHolder(conn), nil
}

func (h *Holder) receive() {
	var message [1]byte
	for {
		_, err := io.ReadFull(h.conn, message[:])
		h.mu.Lock()
		switch {
		case err != nil:
			h.closed = true
			close(h.granted)
			h.mu.Unlock()
			return
		case message[0] == grants:
			h.busy, h.asked, h.pending = true, false, false
			h.granted <- struct{}{}
		case message[0] == asks && h.pending: // for what was given back meanwhile
		case message[0] == asks && h.busy:
			h.asked = true
		case message[0] == asks:
			h.giveBack()
		}
		h.mu.Unlock()
	}
}

// giveBack gives the lease back. The caller has locked mu.
func (h *Holder) giveBack() {
	if h.held == 0 {
		return
	}
	h.held, h.asked = 0, false
	h.conn.Write([]byte{releases, 0})
}

// Take returns when the devices are this worker's for a step, and whether it had to ask for them.
func (h *Holder) Take(d Devices) (waited bool) {
	h.mu.Lock()
	if h.closed || h.held == d {
		h.busy = true
		h.mu.Unlock()
		return false
	}
	h.giveBack()
	h.held, h.pending = d, true
	h.conn.Write([]byte{wants, byte(d)})
	h.mu.Unlock()
	<-h.granted
	return true
}

// Release ends the step, and gives the devices to who waits for them.
func (h *Holder) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy = false
	if h.asked {
		h.giveBack()
	}
}

// Wanted reports whether another worker waits for the devices of the running step.
func (h *Holder) Wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked
}
