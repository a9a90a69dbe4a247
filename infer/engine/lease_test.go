package engine

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"m40-llm/infer/lease"
)

// joinLeases returns a holder of table.
func joinLeases(t *testing.T, table *lease.Table) *lease.Holder {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range pair {
		file := os.NewFile(uintptr(fd), "leases")
		if ends[i], err = net.FileConn(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	t.Cleanup(func() { ends[1].Close() })
	table.Join(ends[0])
	return lease.NewHolder(ends[1])
}

func TestEngine_ATurnIsOverAfterTwoStepsIfAnotherEngineWaits(t *testing.T) {
	var table lease.Table
	mine, other := joinLeases(t, &table), joinLeases(t, &table)
	l := &loop{options: Options{Leases: mine}}
	mine.Take(lease.GPU, func(func(lease.Client) bool) {})
	for l.turn = range 5 {
		if l.turnIsOver() {
			t.Errorf("after %d steps, while nobody waits, the turn is over", l.turn)
		}
	}
	done := make(chan struct{})
	go func() {
		other.Take(lease.GPU, func(func(lease.Client) bool) {})
		close(done)
	}()
	for !mine.Wanted() {
		time.Sleep(time.Millisecond)
	}
	for l.turn = range 5 {
		if got := l.turnIsOver(); got != (l.turn >= 2) {
			t.Errorf("after %d steps, while another engine waits: the turn is over: %t", l.turn, got)
		}
	}
	mine.Release()
	<-done
	if l := (&loop{turn: 9}); l.turnIsOver() {
		t.Error("an engine that shares no device has turns")
	}
}
