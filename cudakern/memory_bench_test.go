package cudakern_test

import (
	"fmt"
	"runtime"
	"testing"

	"m40-llm/cudakern"
)

// BenchmarkDriverMemory reports what the driver takes of the memory of a GPU beside allocations: for the code of modules, for each of many
// small allocations, and for each graph of so many launches when it is instantiated and when it is launched first.
//
//	go test -run '^$' -bench DriverMemory -benchtime 1x ./cudakern
func BenchmarkDriverMemory(b *testing.B) {
	r := newRig(b)
	free := func() int64 {
		n, _, err := r.c.MemInfo()
		r.must(err)
		return n
	}
	report := func(b *testing.B, before int64, n int) {
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(before-free())/float64(n), "bytes")
	}
	for _, name := range []string{"memory", "rope", "rmsnorm", "candidates", "experts", "row_mma_q4_k", "few_q4_k", "mma_q4_k", "mma_large_q4_k", "mma_large_q6_k", "attention_f16_d128", "attention_heads"} {
		b.Run("module="+name, func(b *testing.B) {
			before := free()
			if _, err := r.c.Family(name); err != nil {
				b.Skip(err)
			}
			report(b, before, 1)
		})
	}
	for _, size := range []int64{1 << 20, 5 << 20, 33 << 20} {
		b.Run(fmt.Sprintf("allocation=%d", size), func(b *testing.B) {
			before := free()
			for range 20 {
				r.alloc(size)
			}
			report(b, before, 20)
		})
	}
	k, err := cudakern.NewMemoryRead(r.c)
	r.must(err)
	const bytes = 1 << 12
	sums, src := r.alloc(int64(4*k.Sums())), r.random(bytes)
	for _, launches := range []int{1, 10, 100} {
		for _, graphs := range []int{1, 10, 100} {
			name := fmt.Sprintf("launches=%d/graphs=%d", launches, graphs)
			var made []*cudakern.Executable
			b.Run(name+"/instantiated", func(b *testing.B) {
				runtime.LockOSThread() // a capture must end on the thread that began it
				defer runtime.UnlockOSThread()
				before := free()
				for range graphs {
					r.must(r.s.BeginCapture())
					for range launches {
						r.must(k.Enqueue(r.s, sums, src, bytes))
					}
					g, err := r.s.EndCapture()
					r.must(err)
					x, err := g.Instantiate()
					r.must(err)
					r.must(g.Close())
					made = append(made, x)
				}
				report(b, before, graphs)
			})
			b.Run(name+"/launched", func(b *testing.B) {
				before := free()
				for _, x := range made {
					r.must(x.Launch(r.s))
				}
				r.must(r.s.Sync())
				report(b, before, graphs)
			})
			for _, x := range made {
				r.must(x.Close())
			}
		}
	}
}
