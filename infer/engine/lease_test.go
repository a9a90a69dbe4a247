package engine

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"m40-llm/infer"
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

func TestEngine_AGPUIsHandedOverWhenTheLastStepOfATurnIsSubmitted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		devices []string
		steps   int
		want    bool
	}{
		{"a GPU after two steps", []string{"cuda"}, 2, true},
		{"a GPU after one step", []string{"cuda"}, 1, false},
		{"two GPUs after two steps", []string{"cuda", "cuda"}, 2, true},
		{"the CPU, whose cores two engines would share", []string{"cpu"}, 2, false},
		{"a GPU and the CPU", []string{"cuda", "cpu"}, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var table lease.Table
			mine, other := joinLeases(t, &table), joinLeases(t, &table)
			l := &loop{options: Options{Leases: mine}, loaded: &loadedModel{}}
			for _, kind := range tt.devices {
				l.loaded.memory = append(l.loaded.memory, infer.MemoryUse{Kind: kind})
			}
			l.takeTurn()
			l.handOver()
			if l.handed {
				t.Error("it is handed over while nobody waits")
			}
			got := make(chan struct{})
			go func() {
				other.Take(l.loaded.leased(), func(func(lease.Client) bool) {})
				close(got)
			}()
			for !mine.Wanted() {
				time.Sleep(time.Millisecond)
			}
			l.turn, l.flights = tt.steps, make([]*flight, tt.steps)
			l.handOver()
			if l.handed != tt.want {
				t.Fatalf("handed over: %t", l.handed)
			}
			if tt.want {
				<-got
				if !l.turnIsOver() {
					t.Error("another step may be submitted, though another engine has the device")
				}
				other.Release()
			}
			l.flights = nil
			l.endTurn()
			<-got
			other.Release()
			l.takeTurn()
			if l.handed || l.turn != 0 {
				t.Errorf("the next turn begins after %d steps, handed over: %t", l.turn, l.handed)
			}
		})
	}
}
