package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Limits of a header, far above published files: the largest models have a few thousand
// tensors.
const (
	maxKeys      = 65536
	maxTensors   = 65536
	maxKeyBytes  = 64 << 10
	maxString    = 1 << 20
	maxDims      = 4
	maxAlignment = 65536
	maxHeader    = 128 << 20 // bytes; headers with the largest vocabularies have a quarter of it

	defaultAlignment = 32
	alignmentKey     = "general.alignment"
)

// FormatError is returned for data that is not a valid or supported GGUF file.
type FormatError struct {
	Offset int // of the fault in the file
	Reason string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset) }

// Parse parses a file in memory. It keeps data, which the caller must not modify.
func Parse(data []byte) (*File, error) {
	f := &File{size: len(data)}
	if err := f.read(data); err != nil {
		return nil, err
	}
	f.viewTensors(data)
	return f, nil
}

// read parses the header at the start of head.
func (f *File) read(head []byte) error {
	c := &cursor{data: head, size: f.size}
	offsets, err := f.parse(c)
	if err != nil {
		return err
	}
	f.head = head[:c.pos:c.pos]
	return f.placeTensors(offsets)
}

// parse parses the header and returns the offsets of the tensors in the data section.
func (f *File) parse(c *cursor) (offsets []uint64, err error) {
	f.values, f.index = map[string]value{}, map[string]int{}
	tensors, keys, err := f.parseHeader(c)
	if err != nil {
		return nil, err
	}
	for i := range keys {
		if err := f.parseKey(c); err != nil {
			return nil, fmt.Errorf("metadata key %d of %d: %w", i+1, keys, err)
		}
	}
	for i := range tensors {
		offset, err := f.parseTensor(c)
		if err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
		offsets = append(offsets, offset)
	}
	return offsets, nil
}

// parseHeader parses magic, version, number of tensors and number of keys: 24 bytes.
func (f *File) parseHeader(c *cursor) (tensors, keys uint64, err error) {
	first, err := c.ahead(min(c.size, 8))
	if err != nil {
		return 0, 0, err
	}
	if !bytes.HasPrefix(first, []byte("GGUF")) {
		return 0, 0, c.fail("not a GGUF file: %s", start(first))
	}
	c.pos = 4
	if f.version, err = c.u32("the version"); err != nil {
		return 0, 0, err
	}
	switch {
	case f.version == 2 || f.version == 3:
	case f.version != 0 && f.version&0xffff == 0:
		return 0, 0, c.fail("big-endian GGUF files are not supported; get the little-endian one")
	case f.version == 1:
		return 0, 0, c.fail("GGUF version 1 is not supported, only 2 and 3; convert the model again")
	default:
		return 0, 0, c.fail("GGUF version %d is not supported, only 2 and 3", f.version)
	}
	if tensors, err = c.count("tensors", maxTensors); err != nil {
		return 0, 0, err
	}
	keys, err = c.count("metadata keys", maxKeys)
	return tensors, keys, err
}

// start describes the first bytes of a file without the magic.
func start(data []byte) string {
	if len(data) == 0 {
		return "it is empty"
	}
	return fmt.Sprintf("starts with %q", data[:min(len(data), 8)])
}

func (f *File) parseKey(c *cursor) error {
	key, err := c.str("the key", maxKeyBytes)
	if err != nil {
		return err
	}
	if _, ok := f.values[key]; ok {
		return fmt.Errorf("%.80q: %w", key, c.fail("is there twice"))
	}
	v, err := c.value()
	if err != nil {
		return fmt.Errorf("%.80q: %w", key, err)
	}
	f.keys = append(f.keys, key)
	f.values[key] = v
	return nil
}

// alignment returns the alignment of tensors in bytes.
func (f *File) alignment() (uint64, error) {
	v, ok := f.values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	if v.kind != kindUint32 {
		return 0, &TypeError{Key: alignmentKey, Found: v.String(), Wanted: kindUint32.String()}
	}
	a := uint64(binary.LittleEndian.Uint32(f.head[v.start:]))
	if a == 0 || a&(a-1) != 0 || a > maxAlignment {
		return 0, &FormatError{v.start, fmt.Sprintf("%s is %d, want a power of two up to %d", alignmentKey, a, maxAlignment)}
	}
	return a, nil
}

// parseTensor parses the header entry of a tensor and returns its offset in the data section.
func (f *File) parseTensor(c *cursor) (offset uint64, err error) {
	t := Tensor{}
	if t.Name, err = c.str("the name", maxKeyBytes); err != nil {
		return 0, err
	}
	if _, ok := f.index[t.Name]; ok {
		return 0, fmt.Errorf("%.80q: %w", t.Name, c.fail("is there twice"))
	}
	if t.Shape, err = c.shape(); err == nil {
		t.Type, err = c.tensorType(t.Shape)
	}
	if err == nil {
		offset, err = c.u64("the offset")
	}
	if err != nil {
		return 0, fmt.Errorf("%.80q: %w", t.Name, err)
	}
	f.index[t.Name] = len(f.tensors)
	f.tensors = append(f.tensors, t)
	return offset, nil
}

// placeTensors computes the offsets of the tensors in the file. The data section starts at the
// first aligned byte after the header.
func (f *File) placeTensors(offsets []uint64) error {
	alignment, err := f.alignment()
	if err != nil {
		return err
	}
	headerEnd := len(f.head)
	section, ok := alignUp(uint64(headerEnd), alignment)
	if len(f.tensors) == 0 {
		return nil // a file without tensors may end after its header
	}
	size := uint64(f.size)
	ends := make([]uint64, len(f.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		bytes, fits := tensorBytes(t.Type, t.Shape) // 0 of an unknown type
		begin, okBegin := add(section, offsets[i])
		end, okEnd := add(begin, bytes)
		switch {
		case offsets[i]%alignment != 0:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf("its offset %d is not a multiple of the alignment %d", offsets[i], alignment)})
		case !fits:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf("the size of shape %v in type %s overflows", t.Shape, t.Type)})
		case !ok || !okBegin || !okEnd || end > size:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf(
				"its %d bytes at offset %d of the data section, which starts at byte %d, exceed the file of %d bytes; was the download cut short?", bytes, offsets[i], section, size)})
		}
		offsets[i], ends[i] = begin, end
	}
	f.begins = offsets
	order := make([]int, len(offsets))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return offsets[order[a]] < offsets[order[b]] })
	f.setExtents(order)
	return f.checkOverlap(order, ends)
}

// setExtents sets the extents of tensors of unknown types. order has the tensors by offset.
func (f *File) setExtents(order []int) {
	next := uint64(f.size)
	for _, i := range slices.Backward(order) {
		if t := &f.tensors[i]; !t.Type.Known() {
			t.extent = int(next - f.begins[i])
		}
		next = f.begins[i]
	}
}

// viewTensors sets the Data of the tensors to views into data, which is the whole file.
func (f *File) viewTensors(data []byte) {
	for i := range f.tensors {
		t, begin := &f.tensors[i], int(f.begins[i])
		end := begin + int(t.Size())
		t.Data = data[begin:end:end]
	}
}

// checkOverlap returns an error if a tensor begins before the one in front of it ends. order has the
// tensors by offset.
func (f *File) checkOverlap(order []int, ends []uint64) error {
	begins := f.begins
	for k := 1; k < len(order); k++ {
		if prev, next := order[k-1], order[k]; begins[next] < ends[prev] {
			return fmt.Errorf("tensor %.80q: %w", f.tensors[next].Name,
				&FormatError{int(begins[next]), fmt.Sprintf("overlaps tensor %.80q, which ends at byte %d", f.tensors[prev].Name, ends[prev])})
		}
	}
	return nil
}

// cursor reads a header from memory, or from a file through a buffer.
type cursor struct {
	data []byte // bytes of the file from base on; without file, the whole header
	base int
	size int         // of the file
	file io.ReaderAt // nil: data is the whole header
	pos  int         // offset of the next byte in the file
}

const window = 64 << 10

// ahead returns the next n bytes without advancing. The file must have them. They are valid
// until the next call.
func (c *cursor) ahead(n int) ([]byte, error) {
	if have := max(0, c.base+len(c.data)-c.pos); n > have {
		if err := c.slide(n, have); err != nil {
			return nil, err
		}
	}
	return c.data[c.pos-c.base:][:n], nil
}

// slide moves the buffer to pos, of which it already has have bytes, and fills it with at least
// n bytes.
func (c *cursor) slide(n, have int) error {
	if err := c.reach(c.pos + n); err != nil {
		return err
	}
	next := c.data[:cap(c.data)]
	if len(next) < n {
		next = make([]byte, max(window, n))
	}
	copy(next, c.data[len(c.data)-have:])
	next = next[:min(len(next), c.size-c.pos)]
	if got, err := c.file.ReadAt(next[have:], int64(c.pos+have)); got < len(next)-have {
		return c.unreadable(c.pos+have+got, err)
	}
	c.data, c.base = next, c.pos
	return nil
}

// reach returns an error if the header must not extend to end.
func (c *cursor) reach(end int) error {
	switch {
	case c.file == nil && end > len(c.data):
		return c.fail("the header changed while it was read; is the file being written?")
	case end > maxHeader:
		return c.fail("the header has more than %d bytes, the supported maximum", maxHeader)
	}
	return nil
}

func (c *cursor) unreadable(at int, err error) error {
	c.pos = at
	return c.fail("the file cannot be read further: %v; is it being written?", err)
}

func (c *cursor) fail(format string, args ...any) *FormatError {
	return &FormatError{Offset: c.pos, Reason: fmt.Sprintf(format, args...)}
}

// take returns the next n bytes, valid until the next call, and advances past them.
func (c *cursor) take(n uint64, what string) ([]byte, error) {
	if err := c.follow(n, what); err != nil {
		return nil, err
	}
	data, err := c.ahead(int(n))
	c.pos += len(data)
	return data, err
}

// skip advances past n bytes without reading them.
func (c *cursor) skip(n uint64, what string) error {
	err := c.follow(n, what)
	if err == nil {
		err = c.reach(c.pos + int(n))
	}
	if err == nil {
		c.pos += int(n)
	}
	return err
}

// follow returns an error unless the file has n more bytes.
func (c *cursor) follow(n uint64, what string) error {
	if rest := uint64(c.size - c.pos); n > rest {
		return c.fail("the file ends too early: %s has %d bytes, but only %d are left", what, n, rest)
	}
	return nil
}

func (c *cursor) u32(what string) (uint32, error) {
	data, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(data), nil
}

func (c *cursor) u64(what string) (uint64, error) {
	data, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(data), nil
}

// count reads a number of tensors or keys.
func (c *cursor) count(what string, most uint64) (uint64, error) {
	n, err := c.u64("the number of " + what)
	if err == nil && n > most {
		c.pos -= 8
		err = c.fail("%d %s are declared, at most %d are supported", n, what, most)
	}
	return n, err
}

// length reads the length of a string.
func (c *cursor) length(what string, most uint64) (uint64, error) {
	n, err := c.u64("a string's length") // a constant text: this runs for each token of a vocabulary
	if err == nil && n > most {
		c.pos -= 8
		err = c.fail("%s is declared with %d bytes, at most %d are supported", what, n, most)
	}
	return n, err
}

func (c *cursor) str(what string, most uint64) (string, error) {
	n, err := c.length(what, most)
	if err != nil {
		return "", err
	}
	s, err := c.take(n, what)
	return string(s), err
}

// skipText advances past a string and returns the length of its text.
func (c *cursor) skipText(what string) (int, error) {
	n, err := c.length(what, maxString)
	if err == nil {
		err = c.skip(n, what)
	}
	return int(n), err
}

func (c *cursor) shape() ([]int, error) {
	n, err := c.u32("the number of dimensions")
	if err != nil {
		return nil, err
	}
	if n == 0 || n > maxDims {
		c.pos -= 4
		return nil, c.fail("has %d dimensions, want 1 to %d", n, maxDims)
	}
	shape := make([]int, n)
	for i := range shape {
		d, err := c.u64("a dimension")
		if err != nil {
			return nil, err
		}
		var ok bool
		if shape[i], ok = toInt(d); !ok || d == 0 {
			c.pos -= 8
			return nil, c.fail("dimension %d is %d, want 1 or more", i+1, d)
		}
	}
	return shape, nil
}

func (c *cursor) tensorType(shape []int) (Type, error) {
	n, err := c.u32("the type")
	if err != nil {
		return 0, err
	}
	t := Type(n)
	if !t.Known() && !t.IsNewer() && !t.IsRemoved() {
		c.pos -= 4
		return 0, c.fail("its type %d is unknown", n)
	}
	if elements, _ := t.Block(); elements > 0 && uint64(shape[0])%elements != 0 {
		c.pos -= 4
		return 0, c.fail("has rows of %d elements, but type %s needs a multiple of %d", shape[0], t, elements)
	}
	return t, nil
}
