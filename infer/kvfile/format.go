package kvfile

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// magic begins a file. Its last byte is the version of the format.
const magic = "m40 kv\x00\x01"

// headerSize is the size of the header in bytes, a multiple of a page.
const headerSize = 4096

// Sizes that a header may name, far above any real ones, so that no sum of them overflows.
const (
	maxBlockBytes = 1 << 30
	maxPositions  = 1 << 10
)

// header is the header of a file.
type header struct {
	blockBytes, positions int
	key                   [32]byte // SHA-256 of Identity.Key
	model                 string
}

func (id Identity) header() header {
	return header{id.BlockBytes, id.Positions, sha256.Sum256([]byte(id.Key)), id.Model[:min(len(id.Model), maxName)]}
}

// encode returns the headerSize bytes of the header.
func (h header) encode() []byte {
	b := append(make([]byte, 0, headerSize), magic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.blockBytes))
	b = binary.LittleEndian.AppendUint32(b, uint32(h.positions))
	b = append(b, h.key[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.model)))
	b = append(b, h.model...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)[:headerSize]
}

// parseHeader returns the header in b, which has headerSize bytes.
func parseHeader(b []byte) (h header, ok bool) {
	const fixed = len(magic) + 4 + 4 + 32 + 4
	if string(b[:len(magic)]) != magic {
		return header{}, false
	}
	at := b[len(magic):]
	h.blockBytes, h.positions = int(binary.LittleEndian.Uint32(at)), int(binary.LittleEndian.Uint32(at[4:]))
	copy(h.key[:], at[8:])
	n := int(binary.LittleEndian.Uint32(at[40:]))
	if n > maxName || h.blockBytes < 1 || h.blockBytes > maxBlockBytes || h.positions < 1 || h.positions > maxPositions {
		return header{}, false
	}
	h.model = string(b[fixed : fixed+n])
	return h, sha256.Sum256(b[:fixed+n]) == [32]byte(b[fixed+n:])
}

// recordHead returns the bytes of a record before its block.
func (h header) recordHead() int64 { return int64(4*h.positions) + 8 + 32 }

func (h header) recordSize() int64 { return h.recordHead() + int64(h.blockBytes) }

// at returns where record i begins.
func (h header) at(i int) int64 { return headerSize + int64(i)*h.recordSize() }

// record is a record without its block.
type record struct {
	tokens []byte
	sum    uint32 // CRC-32C of the block
	chain  [32]byte
}

// record returns the record whose head is b.
func (h header) record(b []byte) (r record) {
	r.tokens = b[:4*h.positions]
	r.sum = binary.LittleEndian.Uint32(b[4*h.positions:])
	copy(r.chain[:], b[4*h.positions+8:])
	return r
}

func (r record) encode() []byte {
	b := append([]byte(nil), r.tokens...)
	b = binary.LittleEndian.AppendUint32(b, r.sum)
	b = append(b, 0, 0, 0, 0)
	return append(b, r.chain[:]...)
}

// next returns the chain of r behind a record with the chain before.
func (r record) next(before [32]byte) [32]byte {
	b := append(before[:], r.tokens...)
	return sha256.Sum256(binary.LittleEndian.AppendUint32(b, r.sum))
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
