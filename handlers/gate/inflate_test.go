package gate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
	"m40-llm/infer/fixtures"
)

// A connection that breaks is the client's trouble, not that of gzip.
func TestBody_CompressedThatDoesNotArrive(t *testing.T) {
	broken := errors.New("broken pipe")
	sent := io.NopCloser(io.MultiReader(strings.NewReader(fixtures.Gzip(t, "a body of which only half is there: it is cut off in the middle")[:30]), errReader{broken}))
	if _, err := io.ReadAll(newInflatedBody(sent, 1000)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// Of a bomb no more is decompressed than shows that it is one, and hardly any memory is taken.
func TestBody_BombTakesNoMemory(t *testing.T) {
	size := int64(64 << 20)
	if fixtures.Torture() {
		size = 1 << 30
	}
	var bomb bytes.Buffer
	w, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for range size >> 20 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := io.Copy(io.Discard, newInflatedBody(io.NopCloser(&bomb), 8<<20))
	runtime.ReadMemStats(&after)
	if f := failure.Describe(err); f.Code != "body_too_large" || n > minCheckedInflation {
		t.Errorf("%d bytes were read, then %v", n, err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
		t.Errorf("%d bytes were allocated", taken)
	} else {
		t.Logf("of %d MiB %d KiB were read; %d KiB were allocated", size>>20, n>>10, taken>>10)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Whatever is sent compressed, what is read of it is bounded.
func FuzzCompressedBody(f *testing.F) {
	f.Add([]byte(fixtures.Gzip(f, "hello")))
	f.Add([]byte(fixtures.Gzip(f, strings.Repeat("x", 4096))))
	f.Add([]byte(fixtures.Gzip(f, "")[:11]))
	f.Fuzz(func(t *testing.T, sent []byte) {
		const limit = 4096
		data, err := io.ReadAll(newInflatedBody(io.NopCloser(bytes.NewReader(sent)), limit))
		if len(data) > limit {
			t.Errorf("%d bytes were read", len(data))
		}
		if f := failure.Describe(err); err != nil && f.Status >= 500 {
			t.Errorf("the error is %v", err)
		}
	})
}
