package engine

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"m40-llm/infer"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
)

// slowFile is a file of rows whose writes wait until the disk answers.
type slowFile struct {
	rowFile
	answers chan error // of one write each, until it is closed
	written atomic.Int64
	closed  atomic.Bool
}

func (f *slowFile) Write(p []byte) (int, error) {
	if err := <-f.answers; err != nil {
		return 0, err
	}
	f.written.Add(int64(len(p)))
	return f.rowFile.Write(p)
}

func (f *slowFile) Close() error {
	f.closed.Store(true)
	return f.rowFile.Close()
}

// slowDisk returns a bench whose comparisons use the file, with room for three rows in the queue.
func slowDisk(t *testing.T, set func(*bench, *Options)) (*bench, *slowFile) {
	t.Helper()
	f := &slowFile{answers: make(chan error)}
	return newBench(t, func(b *bench, o *Options) {
		o.rowsQueued = 3 * 4 * toyVocab
		o.openRows = func() (rowFile, error) {
			inner, err := temporaryFile()
			f.rowFile = inner
			return f, err
		}
		if set != nil {
			set(b, o)
		}
	}), f
}

func comparedWithOther(tokens []int32) infer.Request {
	r := request(tokens, 0)
	r.PromptLogProb, r.Against = true, "other"
	return r
}

func TestEngine_AnswersGoOnWhileTheDiskOfAComparisonIsSlow(t *testing.T) {
	want := newBench(t, nil).ask(comparedWithOther(span(10, 90)))
	for _, answers := range []int{1, 2} {
		steps := atomic.Int64{}
		b, disk := slowDisk(t, func(b *bench, o *Options) {
			o.Parallel, o.ChunkRows = answers, 16
			b.onStep = func(int, *device.Batch) error { steps.Add(1); return nil }
		})
		s := b.stream(comparedWithOther(span(10, 90)), nil)
		disk.answers <- nil // one row is written, and the next one waits
		for range 3 {
			if a := b.ask(request(span(40, 60), 5)); a.err != nil || len(a.tokens) != 5 {
				t.Fatalf("with %d at once, an answer beside it has %d tokens, %v", answers, len(a.tokens), a.err)
			}
		}
		if n := disk.written.Load(); n != 4*toyVocab {
			t.Errorf("%d bytes were written", n)
		}
		before := steps.Load()
		b.ask(request(span(40, 60), 1))
		if more := steps.Load() - before; more > 4 {
			t.Errorf("the comparison takes part in steps though its queue is full: %d steps for one token", more)
		}
		close(disk.answers)
		<-s.ended
		if got := s.reply; got.err != nil || !slices.EqualFunc(got.prompt, want.prompt, sameComparison) {
			t.Errorf("on a slow disk the comparison has %d tokens, %v, and others than on a fast one", len(got.prompt), got.err)
		}
	}
}

// sameComparison reports whether two tokens have the same scores by both models.
func sameComparison(a, b infer.Token) bool {
	if (a.Compared == nil) != (b.Compared == nil) || a.Compared != nil && *a.Compared != *b.Compared {
		return false
	}
	return a.ID == b.ID && a.LogProb == b.LogProb && a.Rank == b.Rank && a.Text == b.Text
}

// The queue holds as many rows as fit, and those of the step that filled it.
func TestEngine_AFullQueueStopsTheRowsOfItsComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := atomic.Int64{}
		b, disk := slowDisk(t, func(b *bench, o *Options) {
			o.Parallel, o.ChunkRows = 2, 8
			b.onStep = func(_ int, batch *device.Batch) error { rows.Add(int64(len(batch.Out))); return nil }
		})
		s := b.stream(comparedWithOther(span(10, 90)), nil)
		synctest.Wait()
		if n := rows.Load(); n < 3 || n > 3+8 {
			t.Errorf("%d rows were computed while the disk takes none", n)
		}
		for taken := int64(1); taken <= 20; taken++ {
			disk.answers <- nil
			synctest.Wait()
			if n := rows.Load() - taken; n > 3+8 {
				t.Fatalf("%d rows wait when the disk has taken %d", n, taken)
			}
		}
		close(disk.answers)
		<-s.ended
		if s.reply.err != nil || len(s.reply.prompt) != 80 {
			t.Errorf("%d tokens, %v", len(s.reply.prompt), s.reply.err)
		}
	})
}

func TestEngine_AnErrorOfTheDiskEndsItsComparisonAlone(t *testing.T) {
	b, disk := slowDisk(t, nil)
	s := b.stream(comparedWithOther(span(10, 90)), nil)
	disk.answers <- nil
	disk.answers <- errors.New("no space left on device")
	<-s.ended
	if s.reply.code() != fault.CodeInternal || !strings.Contains(s.reply.err.Error(), "no space left on device") || !strings.Contains(s.reply.err.Error(), os.TempDir()) {
		t.Errorf("got %v", s.reply.err)
	}
	if a := b.ask(request(span(10, 20), 2)); a.err != nil || len(a.tokens) != 2 {
		t.Errorf("the answer after it has %d tokens, %v", len(a.tokens), a.err)
	}
	if !disk.closed.Load() || b.compared.Load() != 0 {
		t.Errorf("the file is closed: %v, and %d bytes are counted", disk.closed.Load(), b.compared.Load())
	}
}

// A write that hangs delays neither the end of its comparison nor other answers, but its file is counted until then, and the
// engine closes after it.
func TestEngine_ACancelledComparisonKeepsItsFileUntilTheDiskHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk := slowDisk(t, nil)
		s := b.stream(comparedWithOther(span(10, 90)), nil)
		synctest.Wait()
		s.cancel()
		<-s.ended
		if a := b.ask(request(span(10, 20), 2)); a.err != nil || len(a.tokens) != 2 {
			t.Errorf("the answer after it has %d tokens, %v", len(a.tokens), a.err)
		}
		if disk.closed.Load() || b.compared.Load() == 0 {
			t.Error("the file was closed while a row is written to it")
		}
		closed := make(chan struct{})
		go func() { defer close(closed); b.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("the engine closed before the disk answered")
		default:
		}
		disk.answers <- io.ErrClosedPipe
		<-closed
		if !disk.closed.Load() || b.compared.Load() != 0 {
			t.Errorf("after Close the file is closed: %v, and %d bytes are counted", disk.closed.Load(), b.compared.Load())
		}
	})
}
