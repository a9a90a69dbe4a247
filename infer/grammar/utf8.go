package grammar

import "unicode/utf8"

// emitSet writes the instructions that read one character of set as UTF-8.
func (c *compiler) emitSet(set []runeRange, next int32) (int32, error) {
	w := setWriter{compiler: c, next: next}
	var root []byteRange
	for _, r := range set {
		for _, part := range sameLength(r) {
			var low, high [utf8.UTFMax]byte
			n := utf8.EncodeRune(low[:], part.low)
			utf8.EncodeRune(high[:], part.high)
			var err error
			if root, err = w.add(root, low[:n], high[:n]); err != nil {
				return 0, err
			}
		}
	}
	return w.write(root)
}

// sameLength splits a range into ranges whose characters have the same length in UTF-8.
func sameLength(r runeRange) (parts []runeRange) {
	for _, last := range []rune{0x7f, 0x7ff, 0xffff, utf8.MaxRune} {
		if r.low <= last {
			parts = append(parts, runeRange{r.low, min(r.high, last)})
			if r.high <= last {
				break
			}
			r.low = last + 1
		}
	}
	return parts
}

// setWriter writes the ranges of a set, in ascending order, as a tree of bytes. Lead bytes
// that any continuation bytes may follow share the instructions of these. Until a range is
// written, its out may be negative: -1-i for inner node i of the tree.
type setWriter struct {
	*compiler
	next  int32
	inner [][]byteRange
	any   [utf8.UTFMax]int32 // by n: the instruction that reads any n continuation bytes; 0 if not written yet
}

// write writes the instruction that reads ranges, after those of the nodes below.
func (w *setWriter) write(ranges []byteRange) (int32, error) {
	for i, r := range ranges {
		if r.out < 0 {
			out, err := w.write(w.inner[-1-r.out])
			if err != nil {
				return 0, err
			}
			ranges[i].out = out
		}
	}
	return w.read(ranges)
}

// add appends the encodings from low to high, which have the same length, to ranges.
func (w *setWriter) add(ranges []byteRange, low, high []byte) ([]byteRange, error) {
	if len(low) == 1 {
		return join(ranges, byteRange{low[0], high[0], w.next}), nil
	}
	first, last := low[0], high[0]
	if first == last {
		return w.branch(ranges, first, low[1:], high[1:])
	}
	var err error
	if !all(low[1:], 0x80) {
		if ranges, err = w.branch(ranges, first, low[1:], repeat(0xbf, len(low)-1)); err != nil {
			return nil, err
		}
		first++
	}
	partial := !all(high[1:], 0xbf)
	if partial {
		last--
	}
	if first <= last {
		rest, err := w.continuation(len(low) - 1)
		if err != nil {
			return nil, err
		}
		ranges = join(ranges, byteRange{first, last, rest})
	}
	if partial {
		return w.branch(ranges, high[0], repeat(0x80, len(low)-1), high[1:])
	}
	return ranges, nil
}

// branch appends the encodings that begin with the byte first and continue from low to high.
// If the last range has the same byte, they are added to its node.
func (w *setWriter) branch(ranges []byteRange, first byte, low, high []byte) ([]byteRange, error) {
	if all(low, 0x80) && all(high, 0xbf) {
		rest, err := w.continuation(len(low))
		return join(ranges, byteRange{first, first, rest}), err
	}
	if n := len(ranges); n > 0 && ranges[n-1].low == first {
		in := -1 - ranges[n-1].out
		inner, err := w.add(w.inner[in], low, high)
		w.inner[in] = inner
		return ranges, err
	}
	inner, err := w.add(nil, low, high)
	w.inner = append(w.inner, inner)
	return append(ranges, byteRange{first, first, -int32(len(w.inner))}), err
}

// continuation returns the instruction that reads n continuation bytes.
func (w *setWriter) continuation(n int) (at int32, err error) {
	if n == 0 {
		return w.next, nil
	}
	if w.any[n] == 0 {
		rest, err := w.continuation(n - 1)
		if err != nil {
			return 0, err
		}
		if w.any[n], err = w.read([]byteRange{{0x80, 0xbf, rest}}); err != nil {
			return 0, err
		}
	}
	return w.any[n], nil
}

// join appends r, or extends the last range if r is adjacent and has the same out.
func join(ranges []byteRange, r byteRange) []byteRange {
	if n := len(ranges); n > 0 && ranges[n-1].out == r.out && int(ranges[n-1].high)+1 == int(r.low) {
		ranges[n-1].high = r.high
		return ranges
	}
	return append(ranges, r)
}

func all(bytes []byte, b byte) bool {
	for _, other := range bytes {
		if other != b {
			return false
		}
	}
	return true
}

func repeat(b byte, n int) []byte {
	bytes := make([]byte, n)
	for i := range bytes {
		bytes[i] = b
	}
	return bytes
}
