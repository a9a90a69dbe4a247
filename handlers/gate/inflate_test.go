package gate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
)

// A connection that breaks is the client's trouble, not that of gzip.
func TestBody_CompressedThatDoesNotArrive(t *testing.T) {
	broken := errors.New("broken pipe")
	sent := io.NopCloser(io.MultiReader(strings.NewReader(gzipped(t, "a body of which only half is there: it is cut off in the middle")[:30]), errReader{broken}))
	if _, err := io.ReadAll(newInflatedBody(sent, 1000)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// Whatever is sent compressed, what is read of it is bounded.
func FuzzCompressedBody(f *testing.F) {
	f.Add([]byte(gzipped(f, "hello")))
	f.Add([]byte(gzipped(f, strings.Repeat("x", 4096))))
	f.Add([]byte(gzipped(f, "")[:11]))
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

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
