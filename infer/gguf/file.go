// Package gguf reads model files in the GGUF format, versions 2 and 3, little-endian.
//
// A file is untrusted input. Parse checks everything that the header declares before
// it returns: every size is computed with overflow checks (size.go is the only place
// that does), nothing is allocated because a count asks for it, and every tensor lies
// inside the file, aligned and apart from the others. After that, a Tensor's Data has
// exactly the bytes that its Type and Shape call for.
//
// What the header means is for the caller to check: a key can be missing or have
// another type than expected, so every getter can fail, and none guesses.
package gguf

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrMissing is wrapped by the error for a key or tensor that is not in the file.
var ErrMissing = errors.New("missing")

// File is a GGUF file. Its tensors are views into the file's bytes. Its methods may be
// called from several goroutines at once, Close after all others.
type File struct {
	data    []byte
	mapped  bool
	version uint32
	header  int // bytes in front of the tensors' data

	keys   []string
	values map[string]value

	tensors []Tensor
	index   map[string]int // of tensors by name
}

// Open maps the file at path. Only a regular file will do, directly or behind a
// symbolic link. Its bytes are read when they are used: if the file is cut short
// meanwhile, reading it faults. Model files should be replaced, not rewritten.
func Open(path string) (*File, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(data)
	if err != nil {
		if data != nil {
			unix.Munmap(data)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.mapped = true
	return f, nil
}

func mapFile(path string) ([]byte, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file but %s", path, describe(info.Mode()))
	}
	size, ok := toInt(uint64(info.Size()))
	if !ok {
		return nil, fmt.Errorf("%s: %d bytes are more than this system can map", path, info.Size())
	}
	if size == 0 {
		return nil, nil // cannot be mapped; Parse says what is wrong
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: failed to map %d bytes: %w", path, size, err)
	}
	return data, nil
}

func describe(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&os.ModeNamedPipe != 0:
		return "a named pipe"
	case m&os.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// Close unmaps the file. Tensors' Data must not be used after it.
func (f *File) Close() error {
	data := f.data
	f.data = nil
	if !f.mapped || data == nil {
		return nil
	}
	return unix.Munmap(data)
}

// Release takes the pages of t's data out of this process's memory, if the file is mapped. They
// are read from the file again when they are used.
func (f *File) Release(t Tensor) {
	if !f.mapped || len(t.Data) == 0 {
		return
	}
	page := unix.Getpagesize()
	first, last := (t.begin+page-1)/page*page, (t.begin+len(t.Data))/page*page
	if first < last {
		_ = unix.Madvise(f.data[first:last], unix.MADV_DONTNEED) // advice
	}
}

// Version returns the version of the format, 2 or 3.
func (f *File) Version() uint32 { return f.version }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return int64(len(f.data)) }

// Header returns the bytes in front of the tensors' data: all metadata and the list
// of tensors. With the size they tell one model from another without reading it
// whole. They must not be changed, or used after Close.
func (f *File) Header() []byte { return f.data[:f.header] }

// Keys returns the metadata keys in file order.
func (f *File) Keys() []string { return f.keys }

// Tensors returns the tensors in file order.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor called name, or an error that wraps ErrMissing.
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, fmt.Errorf("tensor %.80q: %w", name, ErrMissing)
	}
	return f.tensors[i], nil
}

// Tensor is a named array of numbers.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int  // 1 to 4 dimensions, the fastest first: a matrix is (columns, rows)
	Data  []byte // as it lies in the file, at any alignment that the file chose
	begin int    // of Data in the file
}

// Elements returns how many numbers the tensor has.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
