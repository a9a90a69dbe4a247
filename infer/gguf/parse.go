package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
)

// Limits on what a header may declare. Real files stay far below them: the largest
// models have a few thousand tensors.
const (
	maxKeys      = 65536
	maxTensors   = 65536
	maxKeyBytes  = 64 << 10
	maxString    = 1 << 20
	maxDims      = 4
	maxAlignment = 65536
	maxHeader    = 128 << 20 // bytes; those of the largest vocabularies are a quarter of it

	defaultAlignment = 32
	alignmentKey     = "general.alignment"
)

// FormatError says why bytes are not a GGUF file that this package reads.
type FormatError struct {
	Offset int // where in the file the fault is
	Reason string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Offset) }

// Parse reads a file that is in memory. It keeps data, which must not change.
func Parse(data []byte) (*File, error) {
	f := &File{data: data}
	offsets, alignment, err := f.parse(&cursor{data: data, size: len(data)})
	if err != nil {
		return nil, err
	}
	if err := f.placeTensors(alignment, offsets); err != nil {
		return nil, err
	}
	return f, nil
}

// parse reads the header, and returns where in the data section the tensors lie.
func (f *File) parse(c *cursor) (offsets []uint64, alignment uint64, err error) {
	f.values, f.index = map[string]value{}, map[string]int{}
	tensors, keys, err := f.parseHeader(c)
	if err != nil {
		return nil, 0, err
	}
	for i := range keys {
		if err := f.parseKey(c); err != nil {
			return nil, 0, fmt.Errorf("metadata key %d of %d: %w", i+1, keys, err)
		}
	}
	if alignment, err = f.alignment(c); err != nil {
		return nil, 0, err
	}
	for i := range tensors {
		offset, err := f.parseTensor(c)
		if err != nil {
			return nil, 0, fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
		offsets = append(offsets, offset)
	}
	f.head = c.read()
	return offsets, alignment, nil
}

// parseHeader reads the first 24 bytes.
func (f *File) parseHeader(c *cursor) (tensors, keys uint64, err error) {
	if err := c.load(min(c.size, 8)); err != nil {
		return 0, 0, err
	}
	if len(c.data) < 4 || string(c.data[:4]) != "GGUF" {
		return 0, 0, c.fail("not a GGUF file: %s", start(c.data))
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
		return 0, 0, c.fail("GGUF version 1 is not supported, only 2 and 3; convert the file anew")
	default:
		return 0, 0, c.fail("GGUF version %d is not supported, only 2 and 3", f.version)
	}
	if tensors, err = c.count("tensors", maxTensors); err != nil {
		return 0, 0, err
	}
	keys, err = c.count("metadata keys", maxKeys)
	return tensors, keys, err
}

// start describes the first bytes of a file that has the wrong ones.
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

func (f *File) alignment(c *cursor) (uint64, error) {
	v, ok := f.values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	if v.kind != kindUint32 {
		return 0, &TypeError{Key: alignmentKey, Found: v.String(), Wanted: kindUint32.String()}
	}
	a := uint64(binary.LittleEndian.Uint32(c.data[v.start:]))
	if a == 0 || a&(a-1) != 0 || a > maxAlignment {
		return 0, &FormatError{v.start, fmt.Sprintf("%s is %d, want a power of two up to %d", alignmentKey, a, maxAlignment)}
	}
	return a, nil
}

// parseTensor reads what the header says about a tensor, all but its Data, and returns
// its offset in the data section.
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

// placeTensors gives every tensor its Data: views into the data section, which starts
// at the first aligned byte behind the header.
func (f *File) placeTensors(alignment uint64, offsets []uint64) error {
	headerEnd := len(f.head)
	section, ok := alignUp(uint64(headerEnd), alignment)
	if len(f.tensors) == 0 {
		return nil // then a file may end with its header
	}
	size := uint64(len(f.data))
	ends := make([]uint64, len(f.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		bytes, fits := tensorBytes(t.Type, t.Shape)
		begin, okBegin := add(section, offsets[i])
		end, okEnd := add(begin, bytes)
		switch {
		case offsets[i]%alignment != 0:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf("its offset %d is not a multiple of the alignment %d", offsets[i], alignment)})
		case !fits:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf("the size of shape %v in type %s overflows", t.Shape, t.Type)})
		case !ok || !okBegin || !okEnd || end > size:
			return fmt.Errorf("tensor %.80q: %w", t.Name, &FormatError{headerEnd, fmt.Sprintf(
				"its %d bytes at offset %d of the data section, which starts at byte %d, do not lie in the file of %d bytes; was the download cut short?", bytes, offsets[i], section, size)})
		}
		t.Data, t.begin = f.data[begin:end:end], int(begin)
		offsets[i], ends[i] = begin, end
	}
	return f.checkOverlap(offsets, ends)
}

func (f *File) checkOverlap(begins, ends []uint64) error {
	order := make([]int, len(begins))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(a, b int) bool { return begins[order[a]] < begins[order[b]] })
	for k := 1; k < len(order); k++ {
		if prev, next := order[k-1], order[k]; begins[next] < ends[prev] {
			return fmt.Errorf("tensor %.80q: %w", f.tensors[next].Name,
				&FormatError{int(begins[next]), fmt.Sprintf("overlaps tensor %.80q, which ends at byte %d", f.tensors[prev].Name, ends[prev])})
		}
	}
	return nil
}

// cursor reads a header. What has been read lies before pos.
type cursor struct {
	data []byte // as much of the file as was needed until now, or all of it
	size int    // of the file
	file io.ReaderAt
	pos  int
}

// load has the first end bytes of the file in data; there are as many.
func (c *cursor) load(end int) error {
	if end <= len(c.data) {
		return nil
	}
	if end > maxHeader {
		return c.fail("the header has more than %d bytes, which no model needs", maxHeader)
	}
	have := len(c.data)
	more := make([]byte, min(max(end, 2*have, 64<<10), maxHeader, c.size))
	copy(more, c.data)
	n, err := c.file.ReadAt(more[have:], int64(have))
	if n < len(more)-have {
		c.pos = have + n
		return c.fail("the file cannot be read further: %v; is it being written?", err)
	}
	c.data = more
	return nil
}

// read returns what has been read, and keeps no more of the file than that.
func (c *cursor) read() []byte {
	if c.file == nil {
		return c.data[:c.pos:c.pos]
	}
	return bytes.Clone(c.data[:c.pos])
}

func (c *cursor) fail(format string, args ...any) *FormatError {
	return &FormatError{Offset: c.pos, Reason: fmt.Sprintf(format, args...)}
}

// need reports an error unless n more bytes follow.
func (c *cursor) need(n uint64, what string) error {
	if rest := uint64(c.size - c.pos); n > rest {
		return c.fail("the file ends too early: %s takes %d bytes and %d are left", what, n, rest)
	}
	return c.load(c.pos + int(n))
}

func (c *cursor) u32(what string) (uint32, error) {
	if err := c.need(4, what); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint32(c.data[c.pos:])
	c.pos += 4
	return v, nil
}

func (c *cursor) u64(what string) (uint64, error) {
	if err := c.need(8, what); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(c.data[c.pos:])
	c.pos += 8
	return v, nil
}

// count reads the number of things of a kind.
func (c *cursor) count(what string, most uint64) (uint64, error) {
	n, err := c.u64("the number of " + what)
	if err == nil && n > most {
		c.pos -= 8
		err = c.fail("%d %s are declared, at most %d are read", n, what, most)
	}
	return n, err
}

// text reads a string, without copying it.
func (c *cursor) text(what string, most uint64) ([]byte, error) {
	n, err := c.u64("a string's length") // no concatenation: vocabularies come through here
	if err != nil {
		return nil, err
	}
	if n > most {
		c.pos -= 8
		return nil, c.fail("%s is declared to have %d bytes, at most %d are read", what, n, most)
	}
	if err := c.need(n, what); err != nil {
		return nil, err
	}
	s := c.data[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return s, nil
}

func (c *cursor) str(what string, most uint64) (string, error) {
	s, err := c.text(what, most)
	return string(s), err
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
			return nil, c.fail("dimension %d is %d", i+1, d)
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
	if !t.Known() {
		c.pos -= 4
		return 0, c.fail("its type %d is unknown", n)
	}
	if elements, _ := t.Block(); uint64(shape[0])%elements != 0 {
		c.pos -= 4
		return 0, c.fail("has rows of %d elements, and type %s needs a multiple of %d", shape[0], t, elements)
	}
	return t, nil
}
