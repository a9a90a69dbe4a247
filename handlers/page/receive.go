package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"m40-llm/infer/fault"
)

const (
	importTime  = 10 * time.Minute // how long a file may take to arrive
	maxReceived = 1 << 30          // bytes of all files that are being imported
)

// imports counts the bytes of the files that are being imported.
type imports struct{ bytes atomic.Int64 }

// received is a file that is being imported, stored in a temporary file without a name.
type received struct {
	file  *os.File
	all   *imports
	bytes int64
}

// receive stores body in a temporary file, which Close deletes. An import blocks others, so it
// begins only after its file has arrived. The body has been limited by the gate.
func (i *imports) receive(body io.Reader) (*received, error) {
	file, err := os.CreateTemp("", "m40-llm-import-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name()) // the open file stays usable
	r := &received{file: file, all: i}
	if _, err = io.Copy(r, &timedReader{body, time.Now().Add(importTime)}); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = fault.Errorf(fault.CodeDiskFull, "nothing was changed: the disk of %s has no space for the file; free some space and try again", os.TempDir())
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Write implements io.Writer. It fails if all files that are being imported exceed maxReceived.
func (r *received) Write(p []byte) (int, error) {
	r.bytes += int64(len(p))
	if r.all.bytes.Add(int64(len(p))) > maxReceived {
		return 0, fault.Errorf(fault.CodeTooLargeForNow, "nothing was changed: other files are being imported, and together they would exceed %d bytes; try again when they are finished", maxReceived)
	}
	return r.file.Write(p)
}

// Read implements io.Reader.
func (r *received) Read(p []byte) (int, error) { return r.file.Read(p) }

// Close removes the file.
func (r *received) Close() error {
	r.all.bytes.Add(-r.bytes)
	return r.file.Close()
}

// timedReader returns an error after a point in time.
type timedReader struct {
	from io.Reader
	end  time.Time
}

func (r *timedReader) Read(p []byte) (int, error) {
	if time.Now().After(r.end) {
		return 0, fmt.Errorf("the file took more than %v to arrive: %w", importTime, os.ErrDeadlineExceeded)
	}
	return r.from.Read(p)
}
