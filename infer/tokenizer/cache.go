package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// pieceCache caches the tokens of short pieces, because most words of a text repeat. A
// piece hashes to one slot and replaces the piece stored there. It is safe for concurrent
// use.
type pieceCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedPiece]
}

const (
	cacheSlots     = 1 << 14
	maxCachedBytes = 24
	maxCachedIDs   = 24
)

type cachedPiece struct {
	text  [maxCachedBytes]byte
	ids   [maxCachedIDs]int32
	bytes uint8
	count uint8
}

func newPieceCache() *pieceCache { return &pieceCache{seed: maphash.MakeSeed()} }

func (c *pieceCache) slot(piece string) *atomic.Pointer[cachedPiece] {
	return &c.slots[maphash.String(c.seed, piece)%cacheSlots]
}

// get returns the cached tokens of a piece, which the caller must not modify.
func (c *pieceCache) get(piece string) ([]int32, bool) {
	if len(piece) > maxCachedBytes {
		return nil, false
	}
	p := c.slot(piece).Load()
	if p == nil || string(p.text[:p.bytes]) != piece {
		return nil, false
	}
	return p.ids[:p.count], true
}

func (c *pieceCache) put(piece string, ids []int32) {
	if len(piece) > maxCachedBytes || len(ids) > maxCachedIDs {
		return
	}
	p := &cachedPiece{bytes: uint8(len(piece)), count: uint8(len(ids))}
	copy(p.text[:], piece)
	copy(p.ids[:], ids)
	c.slot(piece).Store(p)
}
