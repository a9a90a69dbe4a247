package cudakern_test

import (
	"crypto/rand"
	"fmt"
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
//	go test -run '^$' -bench 'Products/i16/q4_0/.*/rows=1$' ./cudakern
func BenchmarkProducts(b *testing.B) {
	for _, path := range []string{"i16", "magic"} {
		for _, name := range cudakern.WeightTypes() {
			if elements, _ := weightTypes[name].Block(); path == "magic" && elements == 1 {
				continue // floats have only one path
			}
			for _, shape := range llama8B {
				for _, rows := range []int{1, 2, 4, 8, 512} {
					w := cudakern.Weights{Type: name, Outputs: shape.outputs, Inputs: shape.inputs}
					b.Run(fmt.Sprintf("%s/%s/%s/rows=%d", path, name, shape.name, rows), func(b *testing.B) {
						benchProduct(b, w, path, rows)
					})
				}
			}
		}
	}
}

func benchProduct(b *testing.B, w cudakern.Weights, path string, rows int) {
	r := newRig(b)
	size, _, err := w.Bytes()
	r.must(err)
	copies := int(512<<20/size) + 1
	if rows > 8 {
		copies = 1 // bound by arithmetic, not by memory
	}
	k, err := cudakern.NewMatMul(r.c, w.Type, path)
	r.must(err)
	image, err := cudakern.NewActivation(r.c, k.Image(rows))
	r.must(err)

	weights := r.random(int64(copies) * size)
	x, prepared := r.random(int64(4*rows*w.Inputs)), r.alloc(image.Bytes(w.Inputs, rows))
	dst, count := r.alloc(int64(4*rows*w.Outputs)), r.upload(int32Bytes(rows))
	r.must(image.Enqueue(r.s, prepared, x, w.Inputs, count, rows))
	r.must(r.s.Sync())

	r.must(r.s.BeginCapture())
	for i := range copies {
		r.must(k.Enqueue(r.s, prepared, count, rows, false, cudakern.Product{Dst: dst, Weights: weights + cudakern.Ptr(int64(i)*size), W: w}))
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

	seconds, times := 0.0, 0
	for b.Loop() {
		r.must(r.s.Record(start))
		r.must(products.Launch(r.s))
		r.must(r.s.Record(end))
		r.must(end.Sync())
		d, err := end.Since(start)
		r.must(err)
		seconds, times = seconds+d.Seconds(), times+copies
	}
	plain, err := r.c.ReadBandwidth()
	r.must(err)
	each := seconds / float64(times)
	b.ReportMetric(float64(size)/each/1e9, "GB/s")
	b.ReportMetric(100*float64(size)/each/plain, "%_of_read")
	b.ReportMetric(2*float64(rows)*float64(w.Outputs)*float64(w.Inputs)/each/1e9, "Gop/s")
	b.ReportMetric(each*1e6, "us/product")
	b.ReportMetric(0, "ns/op")
	r.must(products.Close())
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
