package page

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"m40-llm/handlers/failure"
)

// importTime is how long a file that is imported may take to arrive.
const importTime = 10 * time.Minute

// receive reads all of body into a file that goes when it is closed. An import holds up
// others, so it begins only then, however slowly its file arrives. The limits of bodies bound
// the file.
func receive(body io.Reader) (*os.File, error) {
	file, err := os.CreateTemp("", "m40-llm-import-")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name()) // it stays open
	if _, err = io.Copy(file, &timedReader{body, time.Now().Add(importTime)}); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = failure.New(failure.DiskFull, "nothing was changed: there is no room for the file in %s; make room and try again", os.TempDir())
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// timedReader reads until a point in time.
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
