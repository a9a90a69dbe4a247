package resident

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"m40-llm/cudakern"
)

// BenchmarkBarrier measures a barrier of as many blocks as the device has multiprocessors, and of twice as many.
func BenchmarkBarrier(b *testing.B) {
	e := device(b)
	kernel, barrier := e.Kernel("residenttest", "resident_meet"), e.barrier(0)
	events := [2]*cudakern.Event{}
	for i := range events {
		var err error
		events[i], err = e.NewEvent()
		e.Must(err)
	}
	for _, each := range []int{1, 2} {
		blocks := each * e.Properties().SMs
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			e.Must(resetBarrier(e.Stream, barrier, 0))
			e.Must(e.Stream.Record(events[0]))
			e.Must(kernel.Launch(e.Stream, cudakern.Dim3{X: blocks}, cudakern.Dim3{X: 256}, 0, barrier, int32(b.N)))
			e.Must(e.Stream.Record(events[1]))
			e.Must(e.barrierError(barrier))
			took, err := events[1].Since(events[0])
			e.Must(err)
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/barrier")
		})
	}
}

// BenchmarkRing measures a command and its result, one after the other: ns/op from Push to the end of Wait.
func BenchmarkRing(b *testing.B) {
	e := device(b)
	a := e.answering(answersWith{blocks: e.Properties().SMs})
	for _, words := range []int{1, testWords} {
		for _, ahead := range []int{1, testSlots} {
			b.Run(fmt.Sprintf("words=%d/ahead=%d", words, ahead), func(b *testing.B) {
				data := make([]uint32, words)
				begin := cpuTime()
				for range b.N {
					if a.Pending() == ahead {
						_, err := a.Wait()
						e.Must(err)
					}
					a.add(1, 1, data...)
				}
				for a.Pending() > 0 {
					_, err := a.Wait()
					e.Must(err)
				}
				b.ReportMetric(float64((cpuTime()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
	e.Must(a.Yield())
}

// BenchmarkCommandsOf measures what the host's waiting adds to commands of some length: ns/op, compared with the time on the
// device for that many barriers, and the time of the CPU.
func BenchmarkCommandsOf(b *testing.B) {
	e := device(b)
	a := e.answering(answersWith{blocks: e.Properties().SMs})
	for _, rounds := range []uint32{300, 3000} {
		b.Run(fmt.Sprintf("barriers=%d", rounds), func(b *testing.B) {
			begin := cpuTime()
			for range b.N {
				a.add(1, rounds)
				_, err := a.Wait()
				e.Must(err)
			}
			b.ReportMetric(float64((cpuTime()-begin).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	e.Must(a.Yield())
}

// BenchmarkCancel measures the time from Cancel to the last result of four commands of about a millisecond each, and
// BenchmarkYield the time until the kernel has left, and of the next command after that.
func BenchmarkCancel(b *testing.B) {
	e := device(b)
	a := e.answering(answersWith{blocks: e.Properties().SMs})
	var longest, sum time.Duration
	for range b.N {
		for range testSlots {
			a.add(1, 1000)
		}
		time.Sleep(500 * time.Microsecond)
		begin := time.Now()
		a.Cancel()
		for a.Pending() > 0 {
			_, err := a.Wait()
			e.Must(err)
		}
		took := time.Since(begin)
		longest, sum = max(longest, took), sum+took
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs/cancel")
	b.ReportMetric(float64(longest.Microseconds()), "µs/longest")
	e.Must(a.Yield())
}

func BenchmarkYield(b *testing.B) {
	e := device(b)
	a := e.answering(answersWith{blocks: e.Properties().SMs})
	var leaving, coming time.Duration
	for range b.N {
		begin := time.Now()
		a.add(1, 1)
		_, err := a.Wait()
		e.Must(err)
		coming += time.Since(begin)
		begin = time.Now()
		e.Must(a.Yield())
		leaving += time.Since(begin)
	}
	b.ReportMetric(float64(leaving.Microseconds())/float64(b.N), "µs/yield")
	b.ReportMetric(float64(coming.Microseconds())/float64(b.N), "µs/start")
	atomic.StoreUint32(a.goOn, 1)
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
