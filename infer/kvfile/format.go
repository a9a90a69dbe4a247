package kvfile

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// magic begins a file. Its last byte is the version of the format.
const magic = "m40 kv\x00\x03"

// headerSize is the size of the header in bytes, a multiple of a page.
const headerSize = 4096

// Sizes that a header may name, far above any real ones, so that no sum of them overflows.
const (
	MaxBlockBytes = 1 << 30
	maxPositions  = 1 << 10
	maxGroups     = 32
)

// Groups is a set of cache groups.
type Groups uint32

// Has reports whether group is in g.
func (g Groups) Has(group int) bool { return g>>group&1 > 0 }

// With returns g with group.
func (g Groups) With(group int) Groups { return g | 1<<group }

// header is the header of a file.
type header struct {
	blockBytes []int // of a block of each cache group
	state      bool  // the last group is recurrent state
	positions  int
	key        [32]byte // SHA-256 of Identity.Key
	model      string
}

func (id Identity) header() header {
	return header{id.BlockBytes, id.State, id.Positions, sha256.Sum256([]byte(id.Key)), id.Model[:min(len(id.Model), maxName)]}
}

// encode returns the headerSize bytes of the header.
func (h header) encode() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.positions))
	b = append(b, h.key[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.blockBytes)))
	for _, n := range h.blockBytes {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = binary.LittleEndian.AppendUint32(b, h.flags())
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.model)))
	b = append(b, h.model...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)[:headerSize]
}

// flags has bit 0 set if the last group is recurrent state.
func (h header) flags() uint32 {
	if h.state {
		return 1
	}
	return 0
}

// parseHeader returns the header in b, which has headerSize bytes.
func parseHeader(b []byte) (h header, ok bool) {
	if string(b[:len(magic)]) != magic {
		return header{}, false
	}
	rest := b[len(magic):]
	next := func() int {
		n := int(binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
		return n
	}
	h.positions = next()
	rest = rest[copy(h.key[:], rest):]
	groups := next()
	ok = groups >= 1 && groups <= maxGroups && h.positions >= 1 && h.positions <= maxPositions
	for range min(groups, maxGroups) {
		n := next()
		ok = ok && n >= 1 && n <= MaxBlockBytes
		h.blockBytes = append(h.blockBytes, n)
	}
	flags := next()
	h.state = flags == 1
	n := next()
	if !ok || flags > 1 || n > maxName {
		return header{}, false
	}
	h.model = string(rest[:n])
	return h, sha256.Sum256(b[:len(b)-len(rest)+n]) == [32]byte(rest[n:])
}

// recordHead returns the bytes of a record before its blocks.
func (h header) recordHead() int64 { return int64(4*h.positions) + 8 + 32 }

// recordSize returns the bytes of a record with blocks of the groups has.
func (h header) recordSize(has Groups) int64 {
	size := h.recordHead()
	for g, n := range h.blockBytes {
		if has.Has(g) {
			size += int64(n)
		}
	}
	return size
}

// record is a record without its blocks.
type record struct {
	tokens []byte
	sum    uint32 // CRC-32C of the blocks
	has    Groups // those of which it has a block
	chain  [32]byte
}

// valid reports whether r follows a record whose chain is before.
func (h header) valid(r record, before [32]byte) bool {
	return r.next(before) == r.chain && r.has < 1<<len(h.blockBytes)
}

// record returns the record whose head is b.
func (h header) record(b []byte) (r record) {
	r.tokens = b[:4*h.positions]
	r.sum = binary.LittleEndian.Uint32(b[4*h.positions:])
	r.has = Groups(binary.LittleEndian.Uint32(b[4*h.positions+4:]))
	copy(r.chain[:], b[4*h.positions+8:])
	return r
}

func (r record) encode() []byte {
	b := append([]byte(nil), r.tokens...)
	b = binary.LittleEndian.AppendUint32(b, r.sum)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.has))
	return append(b, r.chain[:]...)
}

// next returns the chain of r, which follows a record whose chain is before.
func (r record) next(before [32]byte) [32]byte {
	b := append(before[:], r.tokens...)
	b = binary.LittleEndian.AppendUint32(b, r.sum)
	return sha256.Sum256(binary.LittleEndian.AppendUint32(b, uint32(r.has)))
}

func chainOf(head []byte) [32]byte { return sha256.Sum256(head) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

func encodeTokens(tokens []int32) []byte {
	b := make([]byte, 0, 4*len(tokens))
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return b
}
