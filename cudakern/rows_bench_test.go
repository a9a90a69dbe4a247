package cudakern_test

import (
	"fmt"
	"testing"

	"m40-llm/cudakern"
)

// The shape of an 8B model of the Llama family.
const (
	benchHeads, benchKVHeads, benchHeadDim = 32, 8, 128
	benchWidth, benchFFN, benchVocab       = 4096, 14336, 128256
)

// benchMemory is the size of the data that a benchmark cycles through, more than any cache.
const benchMemory = 1 << 29

// repeated measures a captured graph with launches calls of enqueue, and reports the device time of one
// call.
func repeated(b *testing.B, e *testDevice, launches int, enqueue func(i int) error) (seconds float64) {
	e.Must(e.Stream.BeginCapture())
	for i := range launches {
		e.Must(enqueue(i))
	}
	graph, err := e.Stream.EndCapture()
	e.Must(err)
	run, err := graph.Instantiate()
	e.Must(err)
	begin, err := e.NewEvent()
	e.Must(err)
	end, err := e.NewEvent()
	e.Must(err)

	e.Must(run.Launch(e.Stream))
	e.Must(e.Stream.Record(begin))
	calls := 0
	for b.Loop() {
		e.Must(run.Launch(e.Stream))
		calls += launches
	}
	e.Must(e.Stream.Record(end))
	e.Must(e.Stream.Sync())
	took, err := end.Since(begin)
	e.Must(err)
	seconds = took.Seconds() / float64(calls)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(seconds*1e6, "µs")
	return seconds
}

// zeros allocates device memory of zeros.
func (e *testDevice) zeros(bytes int64) cudakern.Ptr {
	p := e.Buffer(int(bytes))
	e.Must(e.Stream.Fill(p, 0, bytes))
	return p
}

// BenchmarkAttention measures one layer. share is the rate at which it reads the keys and values of its
// sequences, each counted once, divided by the read bandwidth of the device.
//
//	go test -run '^$' -bench 'Attention|Rows' ./cudakern
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct {
		name              string
		rows, sequences   int
		context, capacity int
	}{
		{"one row at 128", 1, 1, 128, 1},
		{"one row at 2k", 1, 1, 2048, 1},
		{"one row at 8k", 1, 1, 8192, 1},
		{"one row at 32k", 1, 1, 32768, 1},
		{"4 rows of 4 sequences at 2k", 4, 4, 2048, 4},
		{"4 rows of 4 sequences at 8k", 4, 4, 8192, 4},
		{"8 rows of 8 sequences at 2k", 8, 8, 2048, 8},
		{"16 rows of 16 sequences at 2k", 16, 16, 2048, 16},
		{"512 rows of a prompt up to 2k", 512, 1, 2048, 512},
		{"512 rows of a prompt up to 8k", 512, 1, 8192, 512},
	} {
		for _, typ := range []cudakern.CacheType{f16Cache, q8Cache, q8q4Cache, q4Cache} {
			b.Run(fmt.Sprintf("%s/cache %d", c.name, typ), func(b *testing.B) {
				e := device(b)
				const cols = benchKVHeads * benchHeadDim
				perPosition := int64(rowBytes(typ.Keys, cols) + rowBytes(typ.Values, cols))
				perLayer := int64(c.sequences*c.context) * perPosition
				layers := int(max(1, benchMemory/perLayer))
				cache := cudakern.Cache{Type: typ, Layers: layers, KVHeads: benchKVHeads, HeadDim: benchHeadDim}
				cache.Data = e.zeros(perLayer * int64(layers))

				k, err := cudakern.NewAttention(e.Context, typ, benchHeads, benchKVHeads, benchHeadDim, 0, false)
				e.Must(err)
				var tables, pos, seq []int32
				for i := range c.sequences * c.context / 32 {
					tables = append(tables, int32(i))
				}
				for r := range c.rows {
					s := r * c.sequences / c.rows
					last := c.rows/c.sequences - 1 - r%(c.rows/c.sequences)
					pos, seq = append(pos, int32(c.context-1-last)), append(seq, int32(s))
				}
				step := cudakern.Step{Rows: e.Upload([]int32{int32(c.rows)}), Pos: e.Upload(pos), Last: e.Upload(pos), Seq: e.Upload(seq), Tables: e.Upload(tables), Stride: c.context / 32, Blocks: c.context / 32}
				workspace := e.zeros(max(4, k.Workspace(c.capacity, step.Stride)))
				arrivals := e.zeros(cudakern.AttentionArrivals(benchHeads))
				size := int64(c.capacity * benchHeads * benchHeadDim * 4)
				dst, q := e.zeros(size), e.zeros(size)
				p := cudakern.AttentionParams{
					Dst: dst, Q: q, Cache: cache, Scale: 0.0884, Before: allPositions,
					Step: step, Capacity: c.capacity, Workspace: workspace, Arrivals: arrivals,
				}
				seconds := repeated(b, e, layers, func(i int) error {
					p.Layer = i
					return k.EnqueueByHeads(e.Stream, p)
				})
				wall, err := e.ReadBandwidth()
				e.Must(err)
				b.ReportMetric(float64(perLayer)/seconds/1e9, "GB/s")
				b.ReportMetric(float64(perLayer)/seconds/wall, "share")
				// A score and a weighted value for each position that a row attends to.
				seen := 0
				for _, p := range pos {
					seen += int(p) + 1
				}
				b.ReportMetric(4*float64(seen*benchHeads*benchHeadDim)/seconds/1e12, "TFLOPS")
			})
		}
	}
}

// BenchmarkRows measures the kernels that process rows independently.
func BenchmarkRows(b *testing.B) {
	for _, rows := range []int{1, 8, 512} {
		for _, c := range []struct {
			name string
			make func(e *testDevice, step cudakern.Step) (enqueue func(int) error, err error)
		}{
			{"RMSNorm", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewNorm(e.Context)
				x, w := e.zeros(int64(4*rows*benchWidth)), e.zeros(4*benchWidth)
				return func(int) error {
					return k.Enqueue(e.Stream, x, x, w, cudakern.Parts{Heads: 1, Cols: benchWidth, Weights: 1}, 1e-5, step.Rows, rows)
				}, err
			}},
			{"Add", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewAddRows(e.Context)
				x := e.zeros(int64(4 * rows * benchWidth))
				return func(int) error { return k.Enqueue(e.Stream, x, x, benchWidth, step.Rows, rows) }, err
			}},
			{"SwiGLU", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewGLU(e.Context)
				x := e.zeros(int64(4 * rows * benchFFN))
				return func(int) error { return k.Enqueue(e.Stream, x, x, x, cudakern.SiLU, benchFFN, step.Rows, rows) }, err
			}},
			{"RoPE", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewRoPE(e.Context)
				if err != nil {
					return nil, err
				}
				table, err := cudakern.AngleTable(frequencies(benchHeadDim, 5e5, 1, nil))
				x, angleTable := e.zeros(int64(4*rows*benchWidth)), e.uploadBytes(table)
				return func(int) error {
					return k.Enqueue(e.Stream, x, benchWidth, benchHeadDim, benchHeadDim, true, angleTable, 1, step, rows)
				}, err
			}},
			{"StoreKV", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewStoreKV(e.Context, f16Cache)
				x := e.zeros(int64(4 * rows * benchKVHeads * benchHeadDim))
				cache := cudakern.Cache{Type: f16Cache, Layers: 1, KVHeads: benchKVHeads, HeadDim: benchHeadDim}
				cache.Data = e.zeros(int64(step.Stride) * 2 * 32 * benchKVHeads * benchHeadDim * 2)
				return func(int) error { return k.Enqueue(e.Stream, cache, 0, x, x, step, rows) }, err
			}},
			{"Embed", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewEmbed(e.Context, "q4_k")
				if err != nil {
					return nil, err
				}
				size, _, err := cudakern.Weights{Type: "q4_k", Outputs: 512, Inputs: benchWidth}.Bytes()
				table, dst := e.zeros(size), e.zeros(int64(4*rows*benchWidth))
				return func(int) error { return k.Enqueue(e.Stream, dst, table, benchWidth, step, rows) }, err
			}},
			{"Candidates", func(e *testDevice, step cudakern.Step) (func(int) error, error) {
				k, err := cudakern.NewCandidates(e.Context)
				if err != nil {
					return nil, err
				}
				outs := min(rows, 8)
				logits, dst := e.zeros(int64(4*outs*benchVocab)), e.zeros(int64(outs*cudakern.CandidateBytes))
				workspace, count := e.zeros(k.Workspace(benchVocab, outs)), e.Upload([]int32{int32(outs)})
				return func(int) error {
					return k.Enqueue(e.Stream, dst, logits, benchVocab, count, outs, workspace, cudakern.Draws{})
				}, err
			}},
		} {
			b.Run(fmt.Sprintf("%s of %d rows", c.name, rows), func(b *testing.B) {
				e := device(b)
				var tokens, pos []int32
				for r := range rows {
					tokens, pos = append(tokens, int32(r)), append(pos, int32(r))
				}
				tables := make([]int32, blocksOf(rows))
				for i := range tables {
					tables[i] = int32(i)
				}
				step := cudakern.Step{Rows: e.Upload([]int32{int32(rows)}), Tokens: e.Upload(tokens), Pos: e.Upload(pos),
					Seq: e.Upload(make([]int32, rows)), Tables: e.Upload(tables), Stride: len(tables), Blocks: len(tables)}
				enqueue, err := c.make(e, step)
				e.Must(err)
				repeated(b, e, 100, enqueue)
			})
		}
	}
}

func blocksOf(positions int) int { return (positions + 31) / 32 }
