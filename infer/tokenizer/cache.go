package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// pieceCache keeps the tokens of short pieces: most of a text is words met before. A
// piece has one place, and takes it from another. It is safe for concurrent use.
type pieceCache struct {
	seed   maphash.Seed
	places [cachedPieces]atomic.Pointer[cachedPiece]
}

const (
	cachedPieces     = 1 << 14
	cachedPieceBytes = 24
	cachedPieceIDs   = 24
)

type cachedPiece struct {
	text  [cachedPieceBytes]byte
	ids   [cachedPieceIDs]int32
	bytes uint8
	count uint8
}

func newPieceCache() *pieceCache { return &pieceCache{seed: maphash.MakeSeed()} }

func (c *pieceCache) place(piece string) *atomic.Pointer[cachedPiece] {
	return &c.places[maphash.String(c.seed, piece)%cachedPieces]
}

// get returns the tokens of a piece, which must not be changed.
func (c *pieceCache) get(piece string) ([]int32, bool) {
	if len(piece) > cachedPieceBytes {
		return nil, false
	}
	p := c.place(piece).Load()
	if p == nil || string(p.text[:p.bytes]) != piece {
		return nil, false
	}
	return p.ids[:p.count], true
}

func (c *pieceCache) put(piece string, ids []int32) {
	if len(piece) > cachedPieceBytes || len(ids) > cachedPieceIDs {
		return
	}
	p := &cachedPiece{bytes: uint8(len(piece)), count: uint8(len(ids))}
	copy(p.text[:], piece)
	copy(p.ids[:], ids)
	c.place(piece).Store(p)
}
