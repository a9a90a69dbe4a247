package cudakern_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"m40-llm/cudakern"
)

func TestMemoryReadAddsUpEveryWord(t *testing.T) {
	r := newRig(t)
	k, err := cudakern.NewMemoryRead(r.c)
	r.must(err)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, units := range []int{1, 255, 256 * k.Sums() * 5, 256*k.Sums()*4 + 77} {
		data := make([]byte, 16*units)
		want := uint32(0)
		for i := 0; i < len(data); i += 4 {
			word := rng.Uint32()
			binary.NativeEndian.PutUint32(data[i:], word)
			want += word
		}
		sums := r.alloc(int64(4 * k.Sums()))
		r.must(k.Enqueue(r.s, sums, r.upload(data), int64(len(data))))
		got := uint32(0)
		out := r.download(sums, 4*k.Sums())
		for i := 0; i < len(out); i += 4 {
			got += binary.NativeEndian.Uint32(out[i:])
		}
		if got != want {
			t.Errorf("the words of %d units add up to %#x, want %#x", units, got, want)
		}
	}
	if err := k.Enqueue(r.s, r.alloc(4), r.alloc(16), 8); err == nil {
		t.Error("half a unit was read")
	}
}

func TestReadBandwidth(t *testing.T) {
	rate, err := newRig(t).c.ReadBandwidth()
	if err != nil || !(rate > 1e6) {
		t.Errorf("got %g bytes/s, %v", rate, err)
	}
}
