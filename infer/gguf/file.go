// Package gguf reads model files in the GGUF format, versions 2 and 3, little-endian.
//
// Files are untrusted. Parse and Open validate the whole header: sizes are computed with
// overflow checks (only in size.go), no declared count causes an allocation before it was
// checked, and every tensor is inside the file, aligned, and overlaps no other. Afterwards
// the Data of a Tensor has exactly the size of its Type and Shape. The Type
// may be an unknown one, so that the rest of the file can be shown: see Type.Known.
//
// The meaning of the metadata is not validated: a key may be missing or have another type
// than expected, for which a getter returns an error.
package gguf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrMissing is wrapped by errors for a key or tensor that is not in the file.
var ErrMissing = errors.New("missing")

// ErrUnreadable is wrapped by the errors of Guard and Fetch.
var ErrUnreadable = errors.New("the file was cut short or its disk failed while it was in use")

// File is a GGUF file, or all files of a split model. Its header is a copy in memory; the Data
// of its tensors are views into the mapped files. It is safe for concurrent use, but no method
// may be called after or during Close.
type File struct {
	head    []byte    // the header; of a split model those of all its files
	size    int       // bytes of all files
	maps    []mapping // of the files; empty after Parse and ReadHeader
	version uint32

	keys   []string
	values map[string]value

	tensors []Tensor
	begins  []uint64       // offsets of their data in the file
	index   map[string]int // index in tensors by name
}

// mapping is a file in memory.
type mapping struct {
	path string
	data []byte
}

// Open opens the file at path, which must be a regular file or a symbolic link to one. It
// reads the header and maps the data of the tensors. If the file is truncated later, reading
// tensors faults, see Guard: model files should be replaced, not overwritten.
//
// If the file is part of a split model, Open opens all its files, which lie in the same folder,
// see Parts.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if _, part, count, ok := PartName(path); err != nil && ok {
		return nil, fmt.Errorf("file %d of %d of a split model: %w", part, count, err)
	}
	if err != nil {
		return nil, err
	}
	count, err := f.SplitCount()
	if err != nil || count > 1 {
		f.Close()
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case count > 1:
		return openSplit(path, count)
	}
	return f, nil
}

// openOne opens one file, which may be one of a split model.
func openOne(path string) (*File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return OpenFile(file)
}

// OpenFile is like Open for an open file, but does not look for other files of a split model. The
// caller may close file when OpenFile returns.
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
		return nil, fmt.Errorf("the file has %d bytes, more than this system can map", info.Size())
	}
	f, err := ReadHeader(file, size)
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("failed to map %d bytes: %w", size, err)
	}
	f.maps = []mapping{{file.Name(), data}}
	f.viewTensors(data)
	return f, nil
}

// ReadHeader reads only the header of a file of size bytes; its tensors have no Data. It reads
// the header twice, so that memory for it is allocated only after it was validated.
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

// Guard calls read, which may read the Data of f's tensors in this goroutine, and returns its
// error. If reading the data faults, because the file was truncated or its disk failed, Guard
// returns an error that names the file and wraps ErrUnreadable.
func (f *File) Guard(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if fault, ok := p.(interface{ Addr() uintptr }); ok {
			i := slices.IndexFunc(f.maps, func(m mapping) bool { return m.holds(fault.Addr()) })
			if i >= 0 {
				err = fmt.Errorf("%s: %w", f.maps[i].path, ErrUnreadable)
				return
			}
		}
		panic(p)
	}()
	return read()
}

// holds reports whether an address is in the memory map.
func (m mapping) holds(address uintptr) bool {
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
	return address >= begin && address < begin+uintptr(len(m.data))
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

// Close unmaps the files. The Data of the tensors must not be used afterwards.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, unix.Munmap(m.data))
	}
	f.maps, f.head = nil, nil
	return errors.Join(errs...)
}

// faultAround is for how many bytes, aligned to as many, Linux maps pages around one that is read.
const faultAround = 64 << 10

// Release drops the pages of data from memory, if they are those of the mapped file, with those that were mapped
// when its first and its last page were read. They are read from the file again when they are used.
func (f *File) Release(data []byte) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	i := slices.IndexFunc(f.maps, func(m mapping) bool { return m.holds(at) })
	if len(data) == 0 || i < 0 {
		return
	}
	all := f.maps[i].data
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(all)))
	first, last := max(begin, at&^(faultAround-1)), (at+uintptr(len(data))+faultAround-1)&^(faultAround-1)
	_ = unix.Madvise(all[first-begin:min(int(last-begin), len(all))], unix.MADV_DONTNEED) // only a hint
}

// Fetch reads a tensor's data from disk into memory, so that later users do not wait for it. After
// each piece of 16 MiB it calls read with the number of bytes in memory, and returns its error. For
// a File from Parse it calls read once.
func (f *File) Fetch(t Tensor, read func(bytes int64) error) error {
	const piece = 16 << 20
	if len(f.maps) == 0 || len(t.Data) == 0 {
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

// Size returns the size of the file in bytes; of a split model, of all its files.
func (f *File) Size() int64 { return int64(f.size) }

// Header returns the header: all metadata and the list of tensors. Together with Size it
// identifies a model. The caller must not modify it.
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
	Shape []int  // 1 to 4 dimensions, fastest-varying first: a matrix is (columns, rows)
	Data  []byte // view into the file, which may be unaligned

	extent int // bytes up to the next tensor or the end of the file; only of an unknown type
}

// Size returns the size of the tensor in bytes; if its type is unknown, of the part of the file that it
// can have.
func (t Tensor) Size() int64 {
	if !t.Type.Known() {
		return int64(t.extent)
	}
	n, _ := tensorBytes(t.Type, t.Shape)
	return int64(n)
}

// Slice returns n of the tensor's rows from row first on; of a vector, elements. The result has no Data
// if the tensor has none.
func (t Tensor) Slice(first, n int) Tensor {
	last := len(t.Shape) - 1
	row := 1
	for _, d := range t.Shape[:last] {
		row *= d
	}
	from, to := int(t.Type.RowBytes(first*row)), int(t.Type.RowBytes((first+n)*row))
	t.Shape = append(slices.Clone(t.Shape[:last]), n)
	if t.Data != nil { // else only the header was read
		t.Data = t.Data[from:to]
	}
	return t
}

// Elements returns the number of elements of the tensor.
func (t Tensor) Elements() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}
