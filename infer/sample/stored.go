package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// StoredCandidates is the largest number of candidates that a stored row has.
const StoredCandidates = 256

// ErrNotStored is returned by the Fetch of a row that was stored: a chain needs logits of tokens
// that are not among its candidates. One step of the model computes them.
var ErrNotStored = errors.New("this needs logits that were not stored")

// A stored row is, all integers being unsigned varints:
//
//	count     logits of the row that are not -Inf
//	max       as in Row, 4 bytes, little endian as all that follow. Changes of logits may leave the largest below it
//	mass, dot as in Row, 8 bytes each
//	n         candidates that follow, 1 to StoredCandidates
//	first     the logit of the first, 4 bytes: the order-preserving bits that a rank key has
//	n-1 times the difference of these bits from those of the candidate before
//	width     bits of an id, 1 to 31, one byte
//	n times   an id, width bits each, from the lowest bit of each byte on
//
// Logits and sums are exact, so that a chain chooses as it did from the row itself, if it needs no
// other tokens. 256 candidates of a vocabulary of 128,000 take about 1.2 kB.

// appendRow appends the likeliest tokens of the row that d is the softmax of, at most n of them.
func (t *table) appendRow(dst []byte, d distribution, n int, r *ranker) []byte {
	keys := t.best(n, r)
	keys = keys[:min(n, len(keys))]
	dst = binary.AppendUvarint(dst, uint64(d.count))
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(d.max)))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(d.mass))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(d.dot))
	dst = binary.AppendUvarint(dst, uint64(len(keys)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(keys[0]>>32))
	var all uint32
	for i, key := range keys {
		if i > 0 {
			dst = binary.AppendUvarint(dst, keys[i-1]>>32-key>>32)
		}
		all |= uint32(keyID(key))
	}
	width := max(1, bits.Len32(all))
	dst = append(dst, byte(width))
	buffer, held := uint64(0), 0
	for _, key := range keys {
		buffer |= uint64(keyID(key)) << held
		for held += width; held >= 8; held -= 8 {
			dst = append(dst, byte(buffer))
			buffer >>= 8
		}
	}
	if held > 0 {
		dst = append(dst, byte(buffer))
	}
	return dst
}

// ParseRow returns the row that stored has. Its Fetch returns ErrNotStored. It returns an error for
// bytes that are no stored row; a chain checks whether the candidates are a distribution.
func ParseRow(stored []byte) (Row, error) {
	d := rowDecoder{rest: stored}
	r := Row{Fetch: notStored, stored: true}
	r.Count = int(d.uvarint(math.MaxInt32))
	r.Max = math.Float32frombits(d.uint32())
	r.Mass = math.Float64frombits(d.uint64())
	r.Dot = math.Float64frombits(d.uint64())
	n := int(d.uvarint(StoredCandidates))
	key := uint64(d.uint32())
	for i := 0; i < n && d.err == nil; i++ {
		if i > 0 {
			key -= d.uvarint(key)
		}
		r.Logits = append(r.Logits, keyLogit(key<<32))
	}
	d.ids(&r, n)
	switch {
	case d.err != nil:
		return Row{}, d.err
	case n == 0:
		return Row{}, errors.New("a stored row has no candidates")
	case len(d.rest) > 0:
		return Row{}, fmt.Errorf("%d bytes follow a stored row", len(d.rest))
	}
	r.rebase()
	return r, nil
}

func notStored() ([]float32, error) { return nil, ErrNotStored }

// rebase makes the sums those relative to the largest logit, which changes of logits may have left
// below the one that the sums were relative to.
func (r *Row) rebase() {
	if above := float64(r.Max) - float64(r.Logits[0]); above > 0 && above < 700 {
		r.Mass, r.Dot = r.Mass*math.Exp(above), (r.Dot+above*r.Mass)*math.Exp(above)
		r.Dot = math.Min(0, r.Dot)
		r.Max = r.Logits[0]
	}
}

// rowDecoder reads a stored row. After an error, everything that it reads is 0.
type rowDecoder struct {
	rest []byte
	err  error
}

func (d *rowDecoder) take(n int) []byte {
	if d.err == nil && len(d.rest) < n {
		d.err = fmt.Errorf("a stored row ends %d bytes too early", n-len(d.rest))
	}
	if d.err != nil {
		return make([]byte, n)
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *rowDecoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *rowDecoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *rowDecoder) uvarint(most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	x, n := binary.Uvarint(d.rest)
	if n <= 0 || x > most {
		d.err = fmt.Errorf("a stored row has a number that is not from 0 to %d", most)
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

// ids reads the n ids of r.
func (d *rowDecoder) ids(r *Row, n int) {
	width := int(d.take(1)[0])
	if d.err == nil && (width < 1 || width > 31) {
		d.err = fmt.Errorf("a stored row has ids of %d bits: must be from 1 to 31", width)
	}
	if d.err != nil {
		return
	}
	packed := d.take((n*width + 7) / 8)
	buffer, held := uint64(0), 0
	for range n {
		for ; held < width; held += 8 {
			buffer |= uint64(packed[0]) << held
			packed = packed[1:]
		}
		r.IDs = append(r.IDs, int32(buffer&(1<<width-1)))
		buffer >>= width
		held -= width
	}
}
