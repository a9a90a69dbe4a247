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
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Suffixes of the files of an incomplete download, which are next to the model file. None
// ends in .gguf, so none is listed as a model.
const (
	partialSuffix = ".partial"
	journalSuffix = ".partial.json"
	newSuffix     = ".partial.json.new"
)

// journalEvery is the interval at which the journal is written. A crash loses what was
// downloaded since.
const journalEvery = time.Second

// partial is a file that is being downloaded. It is created with its full length, as a sparse
// file, and locked against other processes. The journal next to it records how many bytes were
// synced to disk.
type partial struct {
	root  *os.Root
	name  string // of the model file, inside root
	file  *os.File
	want  infer.Download
	total int64     // bytes of all files of the model
	hash  hash.Hash // of the bytes before offset

	// Several connections write, and saveEvery writes the journal.
	mu        sync.Mutex
	etag      string // of the file on the server; empty if it has no strong one
	offset    int64  // bytes from the beginning that were downloaded
	ahead     []span // those downloaded after offset, in order, none adjacent to another
	saved     int64  // bytes in the journal, those ahead included
	savedSome bool   // the journal has bytes ahead
}

// journal describes the download of a partial file.
type journal struct {
	Name   string `json:"name,omitempty"` // as requested
	Source string `json:"source"`
	Size   int64  `json:"size"`
	Total  int64  `json:"total,omitempty"` // bytes of all files of the model
	SHA256 string `json:"sha256,omitempty"`
	ETag   string `json:"etag,omitempty"`
	Offset int64  `json:"offset"`
	Ahead  []span `json:"ahead,omitempty"` // downloaded after Offset
}

// resumes reports whether d continues the download that j describes.
func (j journal) resumes(d infer.Download) bool {
	same := j.SHA256 == d.SHA256 && j.SHA256 != "" || d.SHA256 == "" && j.Source == d.Source && j.ETag != ""
	return same && j.Size == d.Size && j.Offset >= 0 && j.Offset <= j.Size && j.done() > 0 && j.validAhead()
}

// done returns the number of downloaded bytes.
func (j journal) done() int64 { return j.Offset + length(j.Ahead) }

// validAhead reports whether the spans are in order, apart and inside the file.
func (j journal) validAhead() bool {
	end := j.Offset
	for _, s := range j.Ahead {
		if s.From <= end || s.To <= s.From || s.To > j.Size {
			return false
		}
		end = s.To
	}
	return true
}

// length returns the number of bytes in spans.
func length(spans []span) (n int64) {
	for _, s := range spans {
		n += s.To - s.From
	}
	return n
}

func readJournal(root *os.Root, name string) (j journal) {
	f, err := root.OpenFile(name+journalSuffix, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return journal{}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil || json.Unmarshal(data, &j) != nil {
		return journal{} // the download restarts
	}
	return j
}

// openPartial opens and locks the partial file of d, a file of a model of total bytes, which it
// creates if needed. The caller calls close.
func openPartial(root *os.Root, d infer.Download, total int64) (*partial, error) {
	if err := root.MkdirAll(path.Dir(d.File), 0o700); err != nil {
		return nil, fmt.Errorf("failed to create the folder of the model: %w", err)
	}
	file, err := lockPartial(root, d.File)
	if err != nil {
		return nil, err
	}
	return &partial{root: root, name: d.File, file: file, want: d, total: total, hash: sha256.New()}, nil
}

// lockPartial opens the partial file of a model with an exclusive lock.
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
			err = fmt.Errorf("%s exists and is not a regular file; remove it", name+partialSuffix)
		}
		if err != nil {
			file.Close()
			return nil, err
		}
		// Between opening and locking, another process may have renamed or removed the
		// file.
		if named, err := root.Stat(name + partialSuffix); err == nil && os.SameFile(opened, named) {
			return file, nil
		}
		file.Close()
	}
}

// resume continues after the bytes in the journal, which it reads for the hash, or resets the
// file if they do not belong to this download. progress receives the number of bytes read.
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
	p.offset, p.ahead, p.etag = j.Offset, j.Ahead, j.ETag
	p.saved, p.savedSome = j.done(), len(j.Ahead) > 0
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
			return fmt.Errorf("failed to read the bytes already downloaded: %w", err)
		}
		progress(done)
	}
	return nil
}

// reset discards the downloaded bytes. It removes the journal first, which must never
// describe bytes that were overwritten.
func (p *partial) reset() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.root.Remove(p.name + journalSuffix); err == nil {
		err = p.syncFolder()
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to remove the journal of the last download: %w", err)
	}
	p.hash.Reset()
	p.offset, p.ahead, p.saved, p.savedSome, p.etag = 0, nil, 0, false, ""
	if err := p.file.Truncate(0); err != nil {
		return fmt.Errorf("failed to empty the partial file: %w", err)
	}
	if err := p.file.Truncate(p.want.Size); err != nil {
		return fmt.Errorf("failed to extend the partial file to %d bytes: %w", p.want.Size, err)
	}
	return nil
}

// allocated returns the bytes that the file occupies on disk.
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

// writeAt stores downloaded bytes that are at offset at of the file.
func (p *partial) writeAt(b []byte, at int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.file.WriteAt(b, at)
	if hashErr := p.extend(b[:n], at); hashErr != nil {
		return hashErr
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("the disk of the models folder is full after %d of %d bytes: free some space, then pull again to resume", p.offset+length(p.ahead), p.want.Size)
	}
	if err != nil {
		return fmt.Errorf("failed to write the partial file: %w", err)
	}
	return nil
}

// extend records that the bytes b at offset at are in the file.
func (p *partial) extend(b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	if at != p.offset {
		p.ahead = merged(p.ahead, span{at, at + int64(len(b))})
		return nil
	}
	p.hash.Write(b)
	p.offset += int64(len(b))
	if len(p.ahead) == 0 || p.ahead[0].From != p.offset {
		return nil
	}
	next := p.ahead[0]
	if _, err := io.Copy(p.hash, io.NewSectionReader(p.file, next.From, next.To-next.From)); err != nil {
		return fmt.Errorf("failed to read the bytes already downloaded: %w", err)
	}
	p.offset, p.ahead = next.To, p.ahead[1:]
	return nil
}

// merged returns spans, which are in order, with one more that overlaps none of them.
func merged(spans []span, s span) []span {
	i := slices.IndexFunc(spans, func(other span) bool { return other.From >= s.To })
	if i < 0 {
		i = len(spans)
	}
	spans = slices.Insert(slices.Clone(spans), i, s)
	if i+1 < len(spans) && spans[i].To == spans[i+1].From {
		spans[i].To = spans[i+1].To
		spans = slices.Delete(spans, i+1, i+2)
	}
	if i > 0 && spans[i-1].To == spans[i].From {
		spans[i-1].To = spans[i].To
		spans = slices.Delete(spans, i, i+1)
	}
	return spans
}

// done returns the number of downloaded bytes.
func (p *partial) done() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.offset + length(p.ahead)
}

// missing returns the bytes that were not downloaded.
func (p *partial) missing() (spans []span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.offset
	for _, s := range append(slices.Clone(p.ahead), span{p.want.Size, p.want.Size}) {
		if at < s.From {
			spans = append(spans, span{at, s.From})
		}
		at = s.To
	}
	return spans
}

// dropAhead forgets the bytes downloaded after offset, for one connection that downloads them
// again. The journal must not describe them any more.
func (p *partial) dropAhead() error {
	p.mu.Lock()
	dropped, inJournal := len(p.ahead) > 0, p.savedSome
	p.ahead = nil
	p.mu.Unlock()
	if !dropped && !inJournal {
		return nil
	}
	return p.save()
}

// tag returns the ETag of the file that is downloaded.
func (p *partial) tag() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.etag
}

// setETag records the ETag of the file that is downloaded from now on.
func (p *partial) setETag(etag string) {
	p.mu.Lock()
	p.etag = etag
	p.mu.Unlock()
}

// saveEvery writes the journal at an interval until stop is called. It ignores errors, which
// the final save reports.
func (p *partial) saveEvery(every time.Duration) (stop func()) {
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

// save syncs the downloaded bytes to disk and writes the journal.
func (p *partial) save() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.offset + length(p.ahead)
	if done == p.saved {
		return nil
	}
	data, err := json.Marshal(journal{p.want.Name, p.want.Source, p.want.Size, p.total, p.want.SHA256, p.etag, p.offset, p.ahead})
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
		return fmt.Errorf("failed to write the journal of the download: %w", err)
	}
	p.saved, p.savedSome = done, len(p.ahead) > 0
	return nil
}

// makeRoom drops the last bytes from the beginning, and all after them, so that the journal can be
// written on a full disk. If that fails too, the previous journal remains, unless it describes
// dropped bytes. Only close may be called afterwards.
func (p *partial) makeRoom() {
	const room = 64 << 10
	switch {
	case len(p.ahead) == 0 && !p.savedSome && p.offset-room <= p.saved, p.offset <= room:
		return // the previous journal has almost as many bytes
	case p.savedSome && p.root.Remove(p.name+journalSuffix) != nil:
		return
	}
	if p.file.Truncate(p.offset-room) != nil || p.file.Truncate(p.want.Size) != nil {
		return
	}
	p.ahead, p.saved = nil, -1
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

// header parses the header of the model. It returns an error while bytes of the header are
// missing. The caller closes the result.
func (p *partial) header() (*gguf.File, error) {
	f, err := gguf.OpenFile(p.file)
	if err != nil {
		return nil, fmt.Errorf("the downloaded file is not a valid model file: %w", err)
	}
	if int64(len(f.Header())) > p.offset {
		f.Close()
		return nil, errors.New("the header is not complete")
	}
	return f, nil
}

// sha256 returns the SHA-256 of the downloaded bytes in hexadecimal.
func (p *partial) sha256() string { return hex.EncodeToString(p.hash.Sum(nil)) }

// commit atomically and durably renames the file to the model file.
func (p *partial) commit() error {
	err := p.file.Sync()
	if err == nil {
		err = p.root.Rename(p.name+partialSuffix, p.name)
	}
	if err == nil {
		err = p.file.Chmod(0o444) // not before the rename: a partial file must be writable
	}
	if err == nil {
		err = p.syncFolder()
	}
	if err != nil {
		return fmt.Errorf("failed to rename the downloaded file to the model file: %w", err)
	}
	p.root.Remove(p.name + journalSuffix) // if this fails, the next pull of the file removes it
	return nil
}

// discard removes the partial file and its journal.
func (p *partial) discard() error {
	return errors.Join(removeIfExists(p.root, p.name+journalSuffix), removeIfExists(p.root, p.name+newSuffix), removeIfExists(p.root, p.name+partialSuffix))
}

func removeIfExists(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncFolder syncs the file's folder and its parents up to the models folder.
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

// close closes the file, which releases the lock.
func (p *partial) close() { p.file.Close() }
