// Package lease lets workers take turns at the devices of a machine: one that computes a step holds a lease of the devices of its model,
// so that the threads of the CPU are never used by two, and no step waits in the middle for another's. Whoever uses GPUs alone may hand them
// over while its last step is computed.
//
// A [Holder], in a worker, keeps its lease until another worker asks for it: a model that answers alone asks once, and nothing is sent
// between its steps. If several want a device, the [Table], in the server, gives it for one step to the one whose step serves the client with
// the fewest steps so far, among equals to the one who asked first: a person whose answers are written by two models gets no more of the
// device than another with one. The lease of a worker that ends is free again.
package lease

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
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

// Client is a hash of the name of a client.
type Client uint32

// ClientOf returns the Client called name.
func ClientOf(name string) Client {
	h := fnv.New32a()
	io.WriteString(h, name)
	return Client(h.Sum32())
}

// maxClients is how many clients of a step count, and maxCounted of how many clients steps are counted.
const (
	maxClients = 255
	maxCounted = 1 << 12
)

// Messages. Those of a holder have two more bytes: the devices, and how many clients follow, of four bytes each.
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
	waiting []*member // the next one first

	steps map[Client]int64 // of each client, while several workers want a device
	now   int64            // steps of the client for whom the last lease was given
}

// member is a worker.
type member struct {
	conn  io.ReadWriteCloser
	held  Devices
	want  Devices // while it waits, as clients
	serve []Client
	asked bool // for what it holds
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
	for {
		message, clients, err := receive(m.conn)
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
			m.want, m.serve = Devices(message[1]), clients
			t.enter(m)
		case releases:
			m.held, m.asked = 0, false
		}
		t.grant()
		t.mu.Unlock()
	}
}

// receive reads a message of a holder.
func receive(conn io.Reader) (message [3]byte, clients []Client, err error) {
	if _, err = io.ReadFull(conn, message[:]); err == nil && message[2] > 0 {
		clients = make([]Client, message[2])
		err = binary.Read(conn, binary.LittleEndian, clients)
	}
	return message, clients, err
}

// enter lets m wait. Its clients have at least as many steps as the one who was served last, so that who comes late makes up for nothing.
// The caller has locked mu.
func (t *Table) enter(m *member) {
	if t.steps == nil || len(t.steps) > maxCounted {
		t.steps, t.now = map[Client]int64{}, 0
	}
	for _, c := range m.serve {
		t.steps[c] = max(t.steps[c], t.now)
	}
	t.waiting = append(t.waiting, m)
}

// served returns the steps of the client of m with the fewest.
func (t *Table) served(m *member) int64 {
	if len(m.serve) == 0 {
		return t.now
	}
	least := t.steps[m.serve[0]]
	for _, c := range m.serve {
		least = min(least, t.steps[c])
	}
	return least
}

// grant gives leases to those who wait and whose devices are free, and asks for the others. No one overtakes one who waits for the same
// device. The caller has locked mu.
func (t *Table) grant() {
	slices.SortStableFunc(t.waiting, func(a, b *member) int { return cmp.Compare(t.served(a), t.served(b)) })
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
			m.held, m.asked, t.now = m.want, false, t.served(m)
			for _, c := range m.serve {
				t.steps[c]++
			}
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

// NewHolder returns the holder whose table is at the other end of conn, which it takes over. A closed conn means that no one else
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
	h.conn.Write([]byte{releases, 0, 0})
}

// Take returns when the devices are this worker's for a step, and whether it had to ask for them. clients yields the clients that the
// step serves.
func (h *Holder) Take(d Devices, clients iter.Seq[Client]) (waited bool) {
	h.mu.Lock()
	if h.closed || h.held == d {
		h.busy = true
		h.mu.Unlock()
		return false
	}
	h.giveBack()
	h.held, h.pending = d, true
	h.conn.Write(wish(d, clients))
	h.mu.Unlock()
	<-h.granted
	return true
}

// wish returns the message of a holder who wants devices.
func wish(d Devices, clients iter.Seq[Client]) []byte {
	seen := map[Client]bool{}
	message := []byte{wants, byte(d), 0}
	for c := range clients {
		if !seen[c] && message[2] < maxClients {
			seen[c] = true
			message = binary.LittleEndian.AppendUint32(message, uint32(c))
			message[2]++
		}
	}
	return message
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
