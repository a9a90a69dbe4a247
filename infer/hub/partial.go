package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Names of what a download that is not complete leaves beside the model's place. None
// ends in .gguf, so none is ever taken for a model.
const (
	partialSuffix = ".partial"
	journalSuffix = ".partial.json"
	newSuffix     = ".partial.json.new"
)

// journalEvery is how often the journal is written anew: what a kill costs.
const journalEvery = time.Second

// partial is a file that is being downloaded. It has its full length from the start,
// with a hole where bytes are missing, and a lock, so that two downloads of one file do
// not mix. The journal beside it says which bytes are on the disk for sure.
type partial struct {
	root *os.Root
	name string // of the model file, inside root
	file *os.File
	want infer.Download
	hash hash.Hash // of the bytes in front of offset

	// One goroutine alone changes what is here, and keep notes it from another.
	mu     sync.Mutex
	etag   string // of the file at the server; empty if it has no strong one
	offset int64  // bytes that are here
	saved  int64  // bytes that the journal knows of
}

// journal says what a partial file is a part of.
type journal struct {
	Name   string `json:"name,omitempty"` // as it was asked for
	Source string `json:"source"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	ETag   string `json:"etag,omitempty"`
	Offset int64  `json:"offset"`
}

// resumes reports whether the bytes that j speaks of are the beginning of d.
func (j journal) resumes(d infer.Download) bool {
	same := j.SHA256 == d.SHA256 && j.SHA256 != "" || d.SHA256 == "" && j.Source == d.Source && j.ETag != ""
	return same && j.Size == d.Size && j.Offset > 0 && j.Offset <= j.Size
}

func readJournal(root *os.Root, name string) (j journal) {
	f, err := root.OpenFile(name+journalSuffix, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return journal{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil || json.Unmarshal(data, &j) != nil {
		return journal{} // the download starts anew
	}
	return j
}

// openPartial opens and locks what is here of d, or starts it.
func openPartial(root *os.Root, d infer.Download) (*partial, error) {
	if err := root.MkdirAll(path.Dir(d.File), 0o700); err != nil {
		return nil, fmt.Errorf("failed to make the model's folder: %w", err)
	}
	file, err := lockPartial(root, d.File)
	if err != nil {
		return nil, err
	}
	return &partial{root: root, name: d.File, file: file, want: d, hash: sha256.New()}, nil
}

// lockPartial opens the partial file of a model for this process alone.
func lockPartial(root *os.Root, name string) (*os.File, error) {
	for {
		file, err := root.OpenFile(name+partialSuffix, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, fmt.Errorf("failed to open the partial file: %w", err)
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		opened, statErr := file.Stat()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			err = fmt.Errorf("%s is being pulled by another m40-llm; wait for it or stop it", name)
		case err != nil:
			err = fmt.Errorf("failed to lock the partial file: %w", err)
		case statErr != nil:
			err = statErr
		case !opened.Mode().IsRegular():
			err = fmt.Errorf("%s is in the way: it is no regular file", name+partialSuffix)
		}
		if err != nil {
			file.Close()
			return nil, err
		}
		// Between opening and locking, the one that had the lock may have made the file
		// a model, or removed it.
		if named, err := root.Stat(name + partialSuffix); err == nil && os.SameFile(opened, named) {
			return file, nil
		}
		file.Close()
	}
}

// resume takes over the bytes of an earlier try, reading them for the hash, or starts
// anew. progress is told the bytes read.
func (p *partial) resume(ctx context.Context, progress func(done int64)) error {
	j := readJournal(p.root, p.name)
	stat, err := p.file.Stat()
	if err != nil {
		return err
	}
	if !j.resumes(p.want) || stat.Size() != p.want.Size {
		return p.reset()
	}
	if err := hashFile(ctx, p.hash, p.file, j.Offset, progress); err != nil {
		return err
	}
	p.offset, p.saved, p.etag = j.Offset, j.Offset, j.ETag
	return nil
}

// hashFile adds the first n bytes of f to h.
func hashFile(ctx context.Context, h hash.Hash, f io.ReaderAt, n int64, progress func(done int64)) error {
	r := io.NewSectionReader(f, 0, n)
	for done := int64(0); done < n; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		got, err := io.CopyN(h, r, min(n-done, 8<<20))
		done += got
		if err != nil {
			return fmt.Errorf("failed to read what is here already: %w", err)
		}
		progress(done)
	}
	return nil
}

// reset starts anew. The journal goes first: it must never speak of bytes that others
// have taken the place of.
func (p *partial) reset() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.root.Remove(p.name + journalSuffix); err == nil {
		err = p.syncFolder()
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to remove the journal of the last try: %w", err)
	}
	p.hash.Reset()
	p.offset, p.saved, p.etag = 0, 0, ""
	if err := p.file.Truncate(0); err != nil {
		return fmt.Errorf("failed to empty the partial file: %w", err)
	}
	if err := p.file.Truncate(p.want.Size); err != nil {
		return fmt.Errorf("failed to make room for %d bytes: %w", p.want.Size, err)
	}
	return nil
}

// allocated returns the bytes that the file takes on the disk.
func (p *partial) allocated() int64 {
	stat, err := p.file.Stat()
	if err != nil {
		return 0
	}
	if s, ok := stat.Sys().(*syscall.Stat_t); ok {
		return min(int64(s.Blocks)*512, p.want.Size)
	}
	return 0
}

// Write appends b.
func (p *partial) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.file.WriteAt(b, p.offset)
	p.hash.Write(b[:n])
	p.offset += int64(n)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return n, fmt.Errorf("the disk of the models folder is full after %d of %d bytes: make room, and pulling it again goes on from there", p.offset, p.want.Size)
	}
	if err != nil {
		return n, fmt.Errorf("failed to write the partial file: %w", err)
	}
	return n, nil
}

// belongsTo notes the ETag of the file that the bytes to come are of.
func (p *partial) belongsTo(etag string) {
	p.mu.Lock()
	p.etag = etag
	p.mu.Unlock()
}

// keep notes what is here again and again until stop is called, also while no bytes
// come. A failure is left to the last save to report.
func (p *partial) keep(every time.Duration) (stop func()) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.save()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// save notes what is here, after it has reached the disk.
func (p *partial) save() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.offset == p.saved {
		return nil
	}
	data, err := json.Marshal(journal{p.want.Name, p.want.Source, p.want.Size, p.want.SHA256, p.etag, p.offset})
	if err == nil {
		err = p.file.Sync()
	}
	if err == nil {
		err = writeSynced(p.root, p.name+newSuffix, data)
	}
	if err == nil {
		err = p.root.Rename(p.name+newSuffix, p.name+journalSuffix)
	}
	if err != nil {
		return fmt.Errorf("failed to note how far the download is: %w", err)
	}
	p.saved = p.offset
	return nil
}

// makeRoom gives up the last bytes for a journal that found no room on a full disk. Where
// that fails too, the journal of before stays. Only close may follow.
func (p *partial) makeRoom() {
	const room = 64 << 10
	if p.offset-room <= p.saved {
		return // the journal of before knows of nearly as much
	}
	if p.file.Truncate(p.offset-room) != nil || p.file.Truncate(p.want.Size) != nil {
		return
	}
	p.offset -= room
	p.save()
}

func writeSynced(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// header parses what is here of the model. It fails as long as bytes of the header are
// missing. The caller closes what it returns.
func (p *partial) header() (*gguf.File, error) {
	f, err := gguf.OpenFile(p.file)
	if err != nil {
		return nil, fmt.Errorf("what came is no valid model file: %w", err)
	}
	if int64(len(f.Header())) > p.offset {
		f.Close()
		return nil, errors.New("the header is not complete")
	}
	return f, nil
}

// sum returns the SHA-256 of what is here.
func (p *partial) sum() string { return hex.EncodeToString(p.hash.Sum(nil)) }

// commit makes the file the model, at once and for good.
func (p *partial) commit() error {
	err := p.file.Sync()
	if err == nil {
		err = p.root.Rename(p.name+partialSuffix, p.name)
	}
	if err == nil {
		err = p.file.Chmod(0o444) // not before: a partial file has to be opened for writing
	}
	if err == nil {
		err = p.syncFolder()
	}
	if err != nil {
		return fmt.Errorf("failed to put the model in its place: %w", err)
	}
	p.root.Remove(p.name + journalSuffix) // if this fails, the next pull of the file does it
	return nil
}

// discard removes what is here.
func (p *partial) discard() error {
	return errors.Join(removeIfThere(p.root, p.name+journalSuffix), removeIfThere(p.root, p.name+newSuffix), removeIfThere(p.root, p.name+partialSuffix))
}

func removeIfThere(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder makes names durable, up to the models folder.
func (p *partial) syncFolder() error {
	for dir := path.Dir(p.name); ; dir = path.Dir(dir) {
		f, err := p.root.Open(dir)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return fmt.Errorf("failed to sync the folder %q: %w", dir, err)
		}
		if dir == "." {
			return nil
		}
	}
}

// close gives up the lock.
func (p *partial) close() { p.file.Close() }
