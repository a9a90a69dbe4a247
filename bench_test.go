package main

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/model"
)

// BenchmarkGuide measures the built-in model on this machine's processor. share is
// what decode reads of weights and cache, over what the machine can read: a model
// this small stays in the processor's caches, so it may exceed 1.
func BenchmarkGuide(b *testing.B) {
	wall := readBandwidth()
	const prompt = 256
	b.Run("prefill 256", func(b *testing.B) {
		m := openGuide(b)
		for b.Loop() {
			forward(b, m, 0, prompt)
		}
		b.ReportMetric(prompt*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
		b.ReportMetric(0, "ns/op")
	})
	for _, sequences := range []int{1, 8} {
		b.Run(map[int]string{1: "decode", 8: "decode of 8 chats"}[sequences], func(b *testing.B) {
			m := openGuide(b)
			forward(b, m, 0, prompt)
			pos := 0
			for b.Loop() {
				decode(b, m, sequences, prompt+pos%64)
				pos++
			}
			steps := float64(b.N) / b.Elapsed().Seconds()
			kv := m.Config().KVLayout(gguf.F16, 1).BlockBytes() / device.BlockSize * prompt * int64(sequences)
			read := steps * float64(int64(len(guide.Model))+kv) / 1e9
			b.ReportMetric(steps*float64(sequences), "tok/s")
			b.ReportMetric(read, "GB/s")
			b.ReportMetric(wall, "wall-GB/s")
			b.ReportMetric(read/wall, "share")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func openGuide(b *testing.B) *model.Model {
	b.Helper()
	f, err := gguf.Parse(guide.Model)
	if err != nil {
		b.Fatal(err)
	}
	dev, err := cpu.Open(0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.Close() })
	m, err := model.Load(context.Background(), f, dev, model.Options{CacheType: gguf.F16, Blocks: 16, MaxRows: 256, MaxOut: 16})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// blockTable spans all blocks of the cache. Several sequences may share it here: what
// they write is of no interest, how long it takes is.
var blockTable = []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// forward computes the rows of one sequence from position start on, and the logits of
// the last.
func forward(b *testing.B, m *model.Model, start, rows int) {
	batch := &device.Batch{Tables: [][]int32{blockTable}, Out: []int32{int32(rows - 1)}}
	for i := range rows {
		batch.Tokens = append(batch.Tokens, int32(i))
		batch.Pos = append(batch.Pos, int32(start+i))
		batch.Seq = append(batch.Seq, 0)
	}
	if err := m.Forward(batch); err != nil {
		b.Fatal(err)
	}
}

// decode computes one row for each sequence, with its logits.
func decode(b *testing.B, m *model.Model, sequences, pos int) {
	batch := &device.Batch{}
	for i := range sequences {
		batch.Tables = append(batch.Tables, blockTable)
		batch.Tokens = append(batch.Tokens, int32(i))
		batch.Pos = append(batch.Pos, int32(pos))
		batch.Seq = append(batch.Seq, int32(i))
		batch.Out = append(batch.Out, int32(i))
	}
	if err := m.Forward(batch); err != nil {
		b.Fatal(err)
	}
}

// readBandwidth is how many GB a second all cores together read from memory, the best
// of several passes: a search for a byte that is not there, in vector instructions.
func readBandwidth() (best float64) {
	const size = 512 << 20
	memory := bytes.Repeat([]byte{1}, size)
	cores := runtime.GOMAXPROCS(0)
	for range 8 {
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range cores {
			wg.Go(func() { bytes.IndexByte(memory[i*size/cores:(i+1)*size/cores], 0) })
		}
		wg.Wait()
		best = max(best, size/time.Since(begin).Seconds()/1e9)
	}
	return best
}
