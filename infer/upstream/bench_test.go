package upstream

import (
	"bufio"
	"net/http"
	"testing"
)

// BenchmarkRouter passes on answers of a thousand tokens, one after another, and reports tokens per second.
func BenchmarkRouter(b *testing.B) {
	const tokens = 1000
	s := newStandIn(b, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := bufio.NewWriterSize(w, 32<<10)
		for range tokens {
			out.WriteString("data: " + word(" word") + "\n\n")
		}
		out.WriteString("data: " + stopChunk + "\n\ndata: [DONE]\n\n")
		out.Flush()
	})
	r := routerTo(b, s)
	asked, n := question("Hi"), 0
	for b.Loop() {
		for e, err := range r.Generate(b.Context(), asked) {
			if err != nil {
				b.Fatal(err)
			}
			if e.Token != nil {
				n++
			}
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
}
