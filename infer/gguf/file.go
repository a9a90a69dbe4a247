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
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrMissing is wrapped by the error for a key or tensor that is not in the file.
var ErrMissing = errors.New("missing")

// ErrUnreadable is wrapped by the errors of Guard and Fetch.
var ErrUnreadable = errors.New("the file was cut short or its disk failed while it was in use")

// File is a GGUF file. All that its header says is in memory and stays as it was when the
// file was opened; its tensors are views into the file's bytes. Its methods may be called
// from several goroutines at once, Close after all others.
type File struct {
	path    string // "" for one that was not opened but parsed
	head    []byte // the bytes in front of the tensors' data
	size    int    // bytes
	data    []byte // all of them; nil if only the header was read
	mapped  bool   // data is
	version uint32

	keys   []string
	values map[string]value

	tensors []Tensor
	index   map[string]int // of tensors by name
}

// Open opens the file at path. Only a regular file will do, directly or behind a
// symbolic link. The header is read, and the data of the tensors mapped: if the file is
// cut short meanwhile, reading them faults, see Guard. Model files should be replaced, not
// rewritten.
func Open(path string) (*File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return OpenFile(file)
}

// OpenFile is Open for a file that the caller has opened, and closes whenever it likes.
func OpenFile(file *os.File) (*File, error) {
	f, err := openFile(file)
	if path := (*fs.PathError)(nil); err != nil && !errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", file.Name(), err)
	}
	return f, err
}

func openFile(file *os.File) (*File, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file but %s", describe(info.Mode()))
	}
	size, ok := toInt(uint64(info.Size()))
	if !ok {
		return nil, fmt.Errorf("%d bytes are more than this system can map", info.Size())
	}
	f, err := ReadHeader(file, size)
	if err != nil {
		return nil, err
	}
	f.path = file.Name()
	f.data, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("failed to map %d bytes: %w", size, err)
	}
	f.mapped = true
	f.viewTensors()
	return f, nil
}

// ReadHeader reads no more than the header of a file of size bytes, so that its tensors have no
// Data. It goes over the header twice: what one declares takes no memory before all of it is
// known to be sound.
func ReadHeader(file io.ReaderAt, size int) (*File, error) {
	end := &cursor{size: size, file: file}
	if _, err := new(File).parse(end); err != nil {
		return nil, err
	}
	head := make([]byte, end.pos)
	if n, err := file.ReadAt(head, 0); n < len(head) {
		return nil, end.unreadable(n, err)
	}
	f := &File{size: size}
	return f, f.read(head)
}

// Guard calls read, which may read the data of f's tensors in this goroutine, and returns
// its error. If some of the data is gone, Guard returns an error that names the file and
// wraps ErrUnreadable.
func (f *File) Guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok && f.holds(fault.Addr()) {
			err = fmt.Errorf("%s: %w", f.path, ErrUnreadable)
			return
		}
		panic(p)
	}()
	return read()
}

// holds reports whether a mapped file lies at an address.
func (f *File) holds(address uintptr) bool {
	if !f.mapped {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(f.data)))
	return address >= begin && address < begin+uintptr(len(f.data))
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
	f.data, f.head = nil, nil
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

// Fetch reads a tensor's data from the disk, so that nobody who uses it waits for that. It
// calls read after each piece, with the bytes of the tensor that are in memory then; an error
// of read ends it and is returned. Of data that was parsed in memory there is one piece.
func (f *File) Fetch(t Tensor, read func(bytes int64) error) error {
	const piece = 16 << 20
	if !f.mapped || len(t.Data) == 0 {
		return read(int64(len(t.Data)))
	}
	for done := 0; done < len(t.Data); {
		end := min(done+piece, len(t.Data))
		if err := readIn(t.Data[done:end]); err != nil {
			return fmt.Errorf("tensor %.80q: %w", t.Name, err)
		}
		done = end
		if err := read(int64(done)); err != nil {
			return err
		}
	}
	return nil
}

// Version returns the version of the format, 2 or 3.
func (f *File) Version() uint32 { return f.version }

// Size returns the size of the file in bytes.
func (f *File) Size() int64 { return int64(f.size) }

// Header returns the bytes in front of the tensors' data: all metadata and the list
// of tensors. With the size they tell one model from another without reading it
// whole. They must not be changed.
func (f *File) Header() []byte { return f.head }

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

// Size returns how many bytes the tensor has in the file.
func (t Tensor) Size() int64 {
	n, _ := tensorBytes(t.Type, t.Shape)
	return int64(n)
}

// Elements returns how many numbers the tensor has.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
