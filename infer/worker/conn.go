package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A server and its worker are connected by pairs of unix sockets. The server creates a pair for
// each connection and passes one end to the worker over the control socket, which the worker
// inherits. So no socket has a name that another process could connect to, and nothing is left in
// the file system. The control socket also tells the worker that its server has ended.

// ControlFD is the worker's file descriptor of the control socket: the first after the
// three that every process has.
const ControlFD = 3

// LeasesFD is the worker's file descriptor of the socket by which it takes turns at devices, if Options.Join is set.
const LeasesFD = 4

// socketPair returns two connected sockets: one to use and one to pass on, which the caller
// closes then. No child process inherits either.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("failed to make a pair of sockets: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "socket")
	if ours, err = unixConn(os.NewFile(uintptr(fds[0]), "socket")); err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// unixConn takes over f.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("not a unix socket")
	}
	return unix, nil
}

// control is the server's end of the control socket.
type control struct {
	conn *net.UnixConn

	mu   sync.Mutex // held while a socket is passed
	open map[*dialed]bool
}

// dialed is a connection that control tracks while it is open.
type dialed struct {
	net.Conn
	control *control
}

func (d *dialed) Close() error {
	d.control.mu.Lock()
	delete(d.control.open, d)
	d.control.mu.Unlock()
	return d.Conn.Close()
}

// cut closes all connections, as the end of the worker would. What the worker has sent and
// was not read yet is lost.
func (c *control) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for d := range c.open {
		d.Conn.Close()
	}
}

// passTime bounds the wait for a worker that accepts no connections because it hangs.
const passTime = 5 * time.Second

// dial makes a connection to the worker. It does not wait until the worker takes it.
func (c *control) dial(context.Context) (net.Conn, error) {
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.conn.SetWriteDeadline(time.Now().Add(passTime))
	if err == nil {
		// A message on a stream socket needs at least one byte of data to carry a descriptor.
		_, _, err = c.conn.WriteMsgUnix([]byte{0}, syscall.UnixRights(int(theirs.Fd())), nil)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	if c.open == nil {
		c.open = map[*dialed]bool{}
	}
	d := &dialed{conn, c}
	c.open[d] = true
	return d, nil
}

// Listen returns the listener of a worker whose control socket is fd. Its Accept fails
// once the server has ended.
func Listen(fd int) (net.Listener, error) {
	conn, err := unixConn(os.NewFile(uintptr(fd), "control"))
	if err != nil {
		return nil, fmt.Errorf("file descriptor %d is not the control socket: %w", fd, err)
	}
	return &listener{conn}, nil
}

type listener struct{ control *net.UnixConn }

var errNoSocket = errors.New("the server passed no socket")

func (l *listener) Accept() (net.Conn, error) {
	var data [1]byte
	rights := make([]byte, syscall.CmsgSpace(4)) // one descriptor
	n, held, _, _, err := l.control.ReadMsgUnix(data[:], rights)
	if err != nil || n == 0 {
		return nil, errors.Join(net.ErrClosed, err)
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:held])
	if err == nil && len(messages) != 1 {
		err = errNoSocket
	}
	if err != nil {
		return nil, err
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err == nil && len(fds) != 1 {
		err = errNoSocket
	}
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fds[0])
	return unixConn(os.NewFile(uintptr(fds[0]), "socket"))
}

func (l *listener) Close() error   { return l.control.Close() }
func (l *listener) Addr() net.Addr { return l.control.LocalAddr() }
