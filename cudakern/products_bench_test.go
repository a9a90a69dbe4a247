package cudakern_test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"m40-llm/cudakern"
)

// llama8B has the shapes of the weights of a layer of Llama 3.1 8B and of its output layer: (outputs, inputs).
var llama8B = []struct {
	name            string
	outputs, inputs int
}{
	{"qo", 4096, 4096}, {"kv", 1024, 4096}, {"gateup", 14336, 4096}, {"down", 4096, 14336}, {"head", 128256, 4096},
}

// BenchmarkProducts reports the rate at which products read their weights, which are random bits, and its
// share of the measured read bandwidth of the device. The products rotate over copies of the weights, more
// than 512 MB in all, so that no cache holds them. A graph has one product for each copy.
//
//	go test -run '^$' -bench 'Products/q4_0/.*/rows=1$' ./cudakern
func BenchmarkProducts(b *testing.B) {
	for _, name := range cudakern.WeightTypes() {
		for _, shape := range llama8B {
			for _, rows := range []int{1, 2, 4, 8, 16, 64, 128, 256, 512} {
				w := cudakern.Weights{Type: name, Outputs: shape.outputs, Inputs: shape.inputs}
				b.Run(fmt.Sprintf("%s/%s/rows=%d", name, shape.name, rows), func(b *testing.B) {
					benchProduct(b, w, rows)
				})
			}
		}
	}
}

func benchProduct(b *testing.B, w cudakern.Weights, rows int) {
	r := newRig(b)
	size, _, err := w.Bytes()
	r.must(err)
	copies := int(512<<20/size) + 1
	if rows > 8 {
		copies = 1 // bound by arithmetic, not by memory
	}
	k, err := cudakern.NewMatMul(r.c, w.Type)
	r.must(err)
	activation, err := cudakern.NewActivation(r.c, k.Kind(rows))
	r.must(err)

	weights := r.random(int64(copies) * size)
	x, prepared := r.random(int64(4*rows*w.Inputs)), r.alloc(activation.Bytes(w.Inputs, rows))
	dst, count := r.alloc(int64(4*rows*w.Outputs)), r.upload(int32Bytes(rows))
	r.must(activation.Enqueue(r.s, prepared, x, w.Inputs, count, rows))
	scratch := r.scratch(k, rows, cudakern.Product{W: w})
	r.must(r.s.Sync())

	each := r.each(b, copies, func(i int) {
		r.must(k.Enqueue(r.s, prepared, count, rows, false, scratch, cudakern.Product{Dst: dst, Weights: weights + cudakern.Ptr(int64(i)*size), W: w}))
	})
	plain, err := r.c.ReadBandwidth()
	r.must(err)
	b.ReportMetric(float64(size)/each/1e9, "GB/s")
	b.ReportMetric(100*float64(size)/each/plain, "%_of_read")
	b.ReportMetric(2*float64(rows)*float64(w.Outputs)*float64(w.Inputs)/each/1e9, "Gop/s")
	b.ReportMetric(each*1e6, "us/product")
	b.ReportMetric(0, "ns/op")
}

// each returns the seconds that one of times products takes, all of which enqueue puts into a graph.
func (r rig) each(b *testing.B, times int, enqueue func(i int)) float64 {
	r.must(r.s.BeginCapture())
	for i := range times {
		enqueue(i)
	}
	graph, err := r.s.EndCapture()
	r.must(err)
	products, err := graph.Instantiate()
	r.must(err)
	r.must(graph.Close())
	start, err := r.c.NewEvent()
	r.must(err)
	end, err := r.c.NewEvent()
	r.must(err)
	seconds, rounds := 0.0, 0
	for b.Loop() {
		r.must(r.s.Record(start))
		r.must(products.Launch(r.s))
		r.must(r.s.Record(end))
		r.must(end.Sync())
		d, err := end.Since(start)
		r.must(err)
		seconds, rounds = seconds+d.Seconds(), rounds+1
	}
	r.must(products.Close())
	return seconds / float64(rounds*times)
}

// BenchmarkExperts reports how long products with the experts of a layer of Qwen3-30B-A3B take, with the grouping and the
// quantised activations, by the size of groups (0: none), and the rate at which they read the experts that rows choose.
func BenchmarkExperts(b *testing.B) {
	for _, name := range []string{"q4_k", "q8_0"} {
		for _, m := range []mixture{{128, 8, 0, "randomly", 768, 2048, false}, {128, 8, 0, "randomly", 2048, 768, true}} {
			for _, m.rows = range []int{1, 4, 8, 16, 32, 64, 128, 256, 512} {
				for _, size := range []int{0, 4, 16, 64} {
					b.Run(fmt.Sprintf("%s/(%d,%d)/rows=%d/groups=%d", name, m.outputs, m.inputs, m.rows, size), func(b *testing.B) {
						benchExperts(b, name, m, size)
					})
				}
			}
		}
	}
}

func benchExperts(b *testing.B, name string, m mixture, size int) {
	r := newRig(b)
	k, err := cudakern.NewMatMul(r.c, name)
	r.must(err)
	if size > 0 && !slices.Contains(k.GroupSizes(), size) {
		b.Skip("the units have no such groups")
	}
	all := cudakern.Weights{Type: name, Outputs: m.experts * m.outputs, Inputs: m.inputs}
	bytes, _, err := all.Bytes()
	r.must(err)
	p := cudakern.ExpertProduct{W: cudakern.Weights{Type: name, Outputs: m.outputs, Inputs: m.inputs}, Experts: m.experts, Used: m.used, Own: m.own}
	p.Weights = r.random(bytes)
	p.Dst = r.alloc(int64(4 * m.rows * m.used * m.outputs))
	x := r.random(int64(4 * m.rows * m.used * m.inputs))
	const times = 12 // products with other routes, so that no cache has their weights
	chosen, launches := 0, make([]func(), times)
	for i := range times {
		p := p
		routes := m.routes(mathrand.New(mathrand.NewPCG(uint64(m.rows), uint64(i))))
		p.Routes = r.uploadRoutes(routes)
		launches[i] = r.expertLaunches(k, p, x, m.rows, m.rows, size)
		experts := map[int32]bool{}
		for pair := range m.rows * m.used {
			experts[m.expertOf(routes, pair)] = true
		}
		chosen += len(experts)
	}
	each := r.each(b, times, func(i int) { launches[i]() })
	plain, err := r.c.ReadBandwidth()
	r.must(err)
	read := float64(bytes) / float64(m.experts) * float64(chosen) / times
	b.ReportMetric(100*read/each/plain, "%_of_read")
	b.ReportMetric(each*1e6, "us/product")
	b.ReportMetric(0, "ns/op")
}

// random returns n bytes of device memory, filled with a repeating block of random bits.
func (r rig) random(n int64) cudakern.Ptr {
	r.Helper()
	p := r.alloc(n)
	part := make([]byte, min(n, 64<<20))
	rand.Read(part)
	for at := int64(0); at < n; at += int64(len(part)) {
		if at == 0 {
			r.must(r.s.Upload(p, part))
			continue
		}
		r.must(r.s.Copy(p+cudakern.Ptr(at), p, min(int64(len(part)), n-at)))
	}
	r.must(r.s.Sync())
	return p
}
