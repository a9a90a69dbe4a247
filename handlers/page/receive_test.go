package page

import (
	"errors"
	"io"
	"strings"
	"testing"

	"m40-llm/handlers/failure"
	"m40-llm/infer/fault"
)

func TestFilesThatAreImportedAtOnceHaveALimitTogether(t *testing.T) {
	var all imports
	all.bytes.Store(maxReceived - 10)
	if _, err := all.receive(strings.NewReader("more than ten bytes")); failure.Describe(err).Code != fault.CodeTooLargeForNow {
		t.Errorf("beside others that leave too little room: %v", err)
	}
	broken := errors.New("the connection broke")
	if _, err := all.receive(io.MultiReader(strings.NewReader("half"), brokenReader{broken})); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	r, err := all.receive(strings.NewReader("ten bytes!"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); string(got) != "ten bytes!" || err != nil {
		t.Errorf("received %q, %v", got, err)
	}
	if err := r.Close(); err != nil || all.bytes.Load() != maxReceived-10 {
		t.Errorf("%d bytes are counted when the file is closed (%v)", all.bytes.Load()-(maxReceived-10), err)
	}
}

type brokenReader struct{ error }

func (r brokenReader) Read([]byte) (int, error) { return 0, r.error }
