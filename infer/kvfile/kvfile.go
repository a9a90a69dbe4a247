// Package kvfile stores the KV caches of chats in files, so that a chat that is opened again needs no
// prefill.
//
// # Format
//
// A file is a header of fixed size and records, one for each complete block of tokens, in the order of
// their positions. A record has the blocks of one or more cache groups: those of a group with a sliding
// window are not there if they were outside it when the record was written.
//
//	header  magic, positions in a block, SHA-256 of Identity.Key, bytes of a block of each group, whether
//	        the last is recurrent state, name of the model, SHA-256 of all that
//	record  tokens (little-endian int32), CRC-32C of the blocks, the groups (a bit for each), chain, the
//	        blocks
//
// The chain of a record is the SHA-256 of the chain before it, the tokens, the CRC and the groups; before
// the first record it is the header's. So a record counts only where it was written, after the same
// records.
//
// A file is only appended to and truncated. What a crash leaves incomplete, and whatever else is damaged,
// foreign or hostile, ends the valid part of the file: the sizes of blocks are the program's, and blocks
// are used only if their chain and CRC are right.
//
// # Who writes
//
// A file that exists may be written, and only then: one process creates it empty with [Dir.Allow] and
// deletes it with [Dir.Remove]; the other opens it with [Dir.Open]. What is written to a file while it is
// deleted is gone with it.
package kvfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suffix ends the names of files.
const suffix = ".kv"

// maxName is the longest name of a model that a header has, in bytes.
const maxName = 1024

// Dir is a folder of files. Its methods may be called by any goroutine and process.
type Dir struct{ path string }

// OpenDir returns the folder at path. It creates the folder if there is none.
func OpenDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the folder for KV caches: %w", err)
	}
	return &Dir{path}, nil
}

// file returns the path of the file called name. Names are the ids of chats.
func (d *Dir) file(name string) (string, error) {
	valid := name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
	if !valid {
		return "", fmt.Errorf("the KV cache %q has no valid name: it must be 1 to 64 of a-z, 0-9, _ and -", name)
	}
	return filepath.Join(d.path, name+suffix), nil
}

// Allow creates an empty file called name if there is none.
func (d *Dir) Allow(name string) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove deletes the file called name, if there is one.
func (d *Dir) Remove(name string) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Stored describes a file.
type Stored struct {
	Name      string
	Model     string // name of the model; empty: the file holds nothing
	Key       string // Identity.Hash
	Positions int    // in complete records, which need not be valid, up to the last with recurrent state if the model has any; List does not count them
	Bytes     int64
	Used      time.Time
}

// List describes all files. It reads their headers.
func (d *Dir) List() ([]Stored, error) {
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	var list []Stored
	for _, f := range files {
		if s, err := d.stored(f.Name, false); err == nil && s.Name != "" {
			list = append(list, s)
		}
	}
	return list, nil
}

// files returns the name, size and time of all files, without what their headers say.
func (d *Dir) files() (list []Stored, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), suffix)
		info, err := e.Info()
		if ours && err == nil && info.Mode().IsRegular() { // else it was just deleted, or is none of ours
			list = append(list, Stored{Name: name, Bytes: info.Size(), Used: info.ModTime()})
		}
	}
	return list, nil
}

// Stored describes the file called name; the zero Stored if there is none.
func (d *Dir) Stored(name string) (Stored, error) { return d.stored(name, true) }

// stored describes the file called name, with its positions if count is set.
func (d *Dir) stored(name string, count bool) (s Stored, err error) {
	f, info, err := d.open(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Stored{}, nil
	}
	if err != nil {
		return Stored{}, err
	}
	defer f.Close()
	s = Stored{Name: name, Bytes: info.Size(), Used: info.ModTime()}
	head := make([]byte, headerSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return s, nil
	}
	if h, ok := parseHeader(head); ok {
		s.Model, s.Key = h.model, fmt.Sprintf("%x", h.key)
		if count {
			s.Positions = h.countRecords(f, s.Bytes) * h.positions
		}
	}
	return s, nil
}

// countRecords returns how many records of a file of size bytes are complete and can be used: where the model has
// recurrent state, those up to the last record with it.
func (h header) countRecords(f *os.File, size int64) (usable int) {
	head := make([]byte, h.recordHead())
	for at, n := int64(headerSize), 1; ; n++ {
		if _, err := f.ReadAt(head, at); err != nil {
			return usable
		}
		has := h.record(head).has
		if at += h.recordSize(has); at > size {
			return usable
		}
		if !h.state || has.Has(len(h.blockBytes)-1) {
			usable = n
		}
	}
}

// open opens a regular file.
func (d *Dir) open(name string, flag int) (*os.File, fs.FileInfo, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, flag|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Size returns the bytes of all files together.
func (d *Dir) Size() (total int64, err error) {
	list, err := d.files()
	for _, s := range list {
		total += s.Bytes
	}
	return total, err
}

// Evict deletes the least recently used files until all together have at most limit bytes. Empty files
// stay.
func (d *Dir) Evict(limit int64) error {
	list, err := d.files()
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b Stored) int { return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(a.Name, b.Name)) })
	var total int64
	for _, s := range list {
		if total += s.Bytes; total > limit && s.Bytes > 0 {
			total -= s.Bytes
			err = errors.Join(err, d.Remove(s.Name))
		}
	}
	return err
}

// RemoveIf deletes the files for which remove returns true.
func (d *Dir) RemoveIf(remove func(Stored) bool) error {
	list, err := d.List()
	if err != nil {
		return err
	}
	for _, s := range list {
		if remove(s) {
			err = errors.Join(err, d.Remove(s.Name))
		}
	}
	return err
}

// Free returns the bytes that can still be written to the disk of the folder.
func (d *Dir) Free() (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// Identity is what a KV cache belongs to. A block is the same bits wherever all of it is the same.
type Identity struct {
	Model      string // its name, for those who delete the model
	Key        string // model file, format of the cache, devices, number paths, program
	BlockBytes []int  // of a block of each cache group, over all its layers; at most MaxBlockBytes
	State      bool   // the last of the groups is recurrent state after the tokens of a record
	Positions  int    // tokens of a block
}

// RecordBytes returns the bytes that a record with blocks of the groups has takes in a file.
func (id Identity) RecordBytes(has Groups) int64 { return id.header().recordSize(has) }

// DataBytes returns the bytes of blocks of the groups has.
func (id Identity) DataBytes(has Groups) int {
	return int(id.RecordBytes(has) - id.header().recordHead())
}

// Hash returns the SHA-256 of Key in hexadecimal digits.
func (id Identity) Hash() string { return fmt.Sprintf("%x", id.header().key) }

// File is an open file. It is used by one goroutine at a time.
type File struct {
	dir    *Dir
	f      *os.File
	head   header
	chains [][32]byte // of the header and of the valid records
	tokens []int32    // of the valid records
	has    []Groups   // of the valid records
	ends   []int64    // where each of the valid records ends
	why    string     // why the rest of the file is not valid; empty: there is no rest
}

// Open opens the file called name for the cache that id identifies, and reads what its records are, but not
// their blocks. It returns an error that matches fs.ErrNotExist if there is none.
func (d *Dir) Open(name string, id Identity) (*File, error) {
	f, info, err := d.open(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	file := &File{dir: d, f: f, head: id.header()}
	file.why = file.scan(info.Size())
	return file, nil
}

// Discarded returns why a part of the file is not valid; empty: all of it is.
func (f *File) Discarded() string { return f.why }

// Blocks returns the number of valid records.
func (f *File) Blocks() int { return max(0, len(f.chains)-1) }

// Has returns the groups of which record i has a block.
func (f *File) Has(i int) Groups { return f.has[i] }

// at returns where record i begins.
func (f *File) at(i int) int64 {
	if i == 0 {
		return headerSize
	}
	return f.ends[i-1]
}

// Match returns how many blocks the file has of tokens, from the first on.
func (f *File) Match(tokens []int32) int {
	n := 0
	for n < min(len(tokens), len(f.tokens)) && tokens[n] == f.tokens[n] {
		n++
	}
	return n / f.head.positions
}

// ErrDamaged is returned for a block whose checksum is wrong.
var ErrDamaged = errors.New("a block of the stored KV cache is damaged")

// Read reads the blocks of record i, which must be below Blocks, to dst: DataBytes(Has(i)) bytes, in the
// order of the groups.
func (f *File) Read(i int, dst []byte) error {
	at := f.at(i)
	record := make([]byte, f.head.recordHead())
	if _, err := f.f.ReadAt(record, at); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := f.f.ReadAt(dst, at+int64(len(record))); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r := f.head.record(record)
	if r.sum != checksum(dst) || r.chain != f.chains[i+1] || !f.head.valid(r, f.chains[i]) {
		return ErrDamaged
	}
	return nil
}

// Truncate keeps the first n records.
func (f *File) Truncate(n int) error {
	if n >= f.Blocks() && f.why == "" {
		return nil
	}
	n = min(n, f.Blocks())
	size := f.at(n)
	if n == 0 {
		size = 0
		f.chains = nil
	}
	f.chains, f.tokens, f.why = f.chains[:min(len(f.chains), n+1)], f.tokens[:n*f.head.positions], ""
	f.has, f.ends = f.has[:n], f.ends[:n]
	return f.f.Truncate(size)
}

// Append adds a record of the next tokens, with blocks of the groups has: data, in the order of the groups.
func (f *File) Append(tokens []int32, has Groups, data []byte) error {
	if err := f.Truncate(f.Blocks()); err != nil { // what is not valid
		return err
	}
	if len(f.chains) == 0 {
		head := f.head.encode()
		if _, err := f.f.WriteAt(head, 0); err != nil {
			return err
		}
		f.chains = [][32]byte{chainOf(head)}
	}
	r := record{tokens: encodeTokens(tokens), sum: checksum(data), has: has}
	r.chain = r.next(f.chains[len(f.chains)-1])
	at := f.at(f.Blocks())
	// The blocks first: the record does not count without its head.
	if _, err := f.f.WriteAt(data, at+f.head.recordHead()); err != nil {
		return err
	}
	if _, err := f.f.WriteAt(r.encode(), at); err != nil {
		return err
	}
	f.chains, f.tokens = append(f.chains, r.chain), append(f.tokens, tokens...)
	f.has, f.ends = append(f.has, has), append(f.ends, at+f.head.recordSize(has))
	return nil
}

// Bytes returns the size of the valid part of the file.
func (f *File) Bytes() int64 { return f.at(f.Blocks()) }

// Touch makes the file the most recently used one.
func (f *File) Touch() error {
	now := time.Now()
	if err := os.Chtimes(f.f.Name(), now, now); !errors.Is(err, fs.ErrNotExist) { // else it was deleted meanwhile
		return err
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// scan reads the header and the heads of all records, and returns why the rest is not valid.
func (f *File) scan(size int64) (why string) {
	if size == 0 {
		return ""
	}
	head := make([]byte, headerSize)
	if _, err := f.f.ReadAt(head, 0); err != nil {
		return "its header is incomplete"
	}
	_, ok := parseHeader(head)
	switch {
	case !ok:
		return "its header is damaged, or of another version of this program"
	case !bytes.Equal(head, f.head.encode()):
		return "it is of another model, another format of the cache, another device or another version of this program"
	}
	f.chains = append(f.chains, chainOf(head))
	record := make([]byte, f.head.recordHead())
	for at := int64(headerSize); at < size; at = f.Bytes() {
		if _, err := f.f.ReadAt(record, at); err != nil {
			if errors.Is(err, io.EOF) {
				return "its last block is incomplete"
			}
			return err.Error()
		}
		r := f.head.record(record)
		if !f.head.valid(r, f.chains[len(f.chains)-1]) {
			return fmt.Sprintf("block %d is damaged", f.Blocks())
		}
		end := at + f.head.recordSize(r.has)
		if end > size {
			return "its last block is incomplete"
		}
		f.has, f.ends = append(f.has, r.has), append(f.ends, end)
		f.chains = append(f.chains, r.chain)
		for t := range slices.Chunk(r.tokens, 4) {
			f.tokens = append(f.tokens, int32(binary.LittleEndian.Uint32(t)))
		}
	}
	return ""
}
