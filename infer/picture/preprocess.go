package picture

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
	"m40-llm/infer/units"
)

// Options are limits of a family that a companion file does not hold. Families whose pictures have a fixed size
// ignore them. 0 means the published default.
type Options struct {
	MinTokens int // tokens that a small picture is enlarged to; qwen, and lfm2 for a picture that is not cut
	MaxTokens int // tokens that a large picture is shrunk to; qwen and gemma4, and lfm2 for the overview and for each of the squares

	// Within is how many tokens a picture has at most where a family can shrink it further than it has to: qwen, gemma4, pixtral, lfm2, and
	// idefics3 and internvl, which have one square at least. 0: no further.
	Within int
}

// tokens returns the limits, with a family's defaults for those that are not set.
func (o Options) tokens(p *parameters, least, most int) (int, int) {
	if o.MaxTokens != 0 {
		most = o.MaxTokens
	}
	least = min(least, most)
	if o.MinTokens != 0 {
		least = o.MinTokens
	}
	if o.Within > 0 && o.Within < most {
		least, most = min(least, o.Within), o.Within
	}
	if least < 1 || least > most || most > maxTokens {
		p.fail("a picture's least and most tokens are %d and %d, and must be in this order and from 1 to %d", least, most, maxTokens)
	}
	return least, most
}

// maxTokens bounds Options.
const maxTokens = 1 << 17

// Size says what a picture of some width and height becomes.
type Size struct {
	Tiles                 int // pictures that the tower reads: the parts row by row, then the overview; 1 if it is not cut
	TileRows, TileColumns int // how it is cut; 0 if it is not
	Width, Height         int // pixels of each tile
	Rows, Columns         int // tokens of each tile
	Overview              Tile
	Tokens                int // of all tiles: rows of the language model that are replaced
}

// Tile is the size of a picture that the tower reads. The zero value of Size.Overview is the size of the other tiles.
type Tile struct {
	Width, Height int // pixels
	Rows, Columns int // tokens
}

// Tokens returns how many tokens the tile is.
func (t Tile) Tokens() int { return t.Rows * t.Columns }

// Values returns how many values the pixels of the tile have.
func (t Tile) Values() int { return 3 * t.Width * t.Height }

// Tile returns the size of tile i.
func (s Size) Tile(i int) Tile {
	if i == s.Tiles-1 && s.Overview != (Tile{}) {
		return s.Overview
	}
	return Tile{s.Width, s.Height, s.Rows, s.Columns}
}

// TilePixels returns how many pixels the largest tile has.
func (s Size) TilePixels() int {
	last := s.Tile(s.Tiles - 1)
	return max(s.Width*s.Height, last.Width*last.Height)
}

// Sum returns the sum of what of returns for each tile.
func (s Size) Sum(of func(Tile) int) (sum int) {
	for i := range s.Tiles {
		sum += of(s.Tile(i))
	}
	return sum
}

// Pixels are what a vision tower reads.
type Pixels struct {
	Size
	Data []float32 // of each tile [3][Height][Width]: planes of red, green and blue, rows from the top
	Hash [32]byte  // of the pixels, their shape and how they were made: equal pictures have equal hashes
}

// Preprocessor makes Pixels of pictures as one model's companion file wants them. It is safe for concurrent use.
type Preprocessor struct {
	projector string
	rule      rule
	values    [3][256]float32 // normalised values of the 8-bit ones, per channel
	identity  []byte          // what Hash covers besides pixels: projector, mean, std
}

// rule is how a family brings a picture to size.
type rule interface {
	// size returns what a picture of width x height pixels becomes, or why the family cannot read it.
	size(width, height int) (Size, error)
	// most returns the most tokens that a picture becomes.
	most() int
	// tiles resizes and cuts the picture as size returned.
	tiles(img *Image, s Size) []*Image
}

// rules has the families by clip.projector_type. Each reads its parameters from the companion.
var rules = map[string]func(*parameters, Options) rule{
	"gemma3":           newGemma3,
	"gemma4v":          newGemma4,
	"idefics3":         newIdefics3,
	"internvl":         newInternVL,
	"lfm2":             newLFM2,
	"mlp":              newLLaVA,
	"pixtral":          newPixtral,
	"qwen2vl_merger":   newQwen2,
	"qwen2.5vl_merger": newQwen2,
	"qwen3vl_merger":   newQwen3,
}

// NewPreprocessor reads how pictures are prepared from the metadata of a companion (mmproj) file. An error names the
// projector that is not supported, or the key that is missing or wrong.
func NewPreprocessor(companion *gguf.File, options Options) (*Preprocessor, error) {
	projector, err := Projector(companion)
	if err != nil {
		return nil, err
	}
	newRule, ok := rules[projector]
	if !ok {
		return nil, fmt.Errorf("the companion's projector %q is not supported; these are: %s", projector, strings.Join(slices.Sorted(maps.Keys(rules)), ", "))
	}
	p := &parameters{file: companion}
	pre := &Preprocessor{projector: projector, rule: newRule(p, options)}
	mean, std := p.channels("clip.vision.image_mean"), p.deviations("clip.vision.image_std")
	if p.err != nil {
		return nil, fmt.Errorf("the companion file cannot be used: %w", p.err)
	}
	pre.normalise(mean, std)
	return pre, nil
}

// Projector returns the projector of a companion file, which names its family.
func Projector(companion *gguf.File) (string, error) {
	if companion.Has("clip.vision.projector_type") {
		return companion.Str("clip.vision.projector_type")
	}
	projector, err := companion.Str("clip.projector_type")
	if llava, _ := companion.Bool("clip.has_llava_projector"); llava && errors.Is(err, gguf.ErrMissing) {
		return "mlp", nil // files of LLaVA are older than the key
	}
	return projector, err
}

func (p *Preprocessor) normalise(mean, std [3]float32) {
	p.identity = []byte(p.projector + "\x00")
	for c := range 3 {
		for v := range 256 {
			p.values[c][v] = (float32(float64(v)*(1.0/255)) - mean[c]) / std[c]
		}
		p.identity, _ = binary.Append(p.identity, binary.LittleEndian, []float32{mean[c], std[c]})
	}
}

// Size returns what a picture of width x height pixels becomes, without its pixels.
func (p *Preprocessor) Size(width, height int) (Size, error) {
	if width < 1 || height < 1 {
		return Size{}, fmt.Errorf("a picture of %d x %d pixels has no size", width, height)
	}
	s, err := p.rule.size(width, height)
	if err != nil {
		return Size{}, err
	}
	if n := s.Sum(Tile.Values) / 3; n > maxTowerPixels {
		return Size{}, fmt.Errorf("the picture of %d x %d pixels becomes %s pixels, more than the limit of %s; send one whose sides differ less", width, height, units.Quantity(int64(n)), units.Quantity(maxTowerPixels))
	}
	s.Tokens = s.Sum(Tile.Tokens)
	return s, nil
}

// Most returns the most tokens that a picture becomes.
func (p *Preprocessor) Most() int { return p.rule.most() }

// maxTowerPixels bounds what one picture becomes: somewhat more than the largest published limit, 16,777,216 pixels.
const maxTowerPixels = 20_000_000

// Prepare resizes, cuts and normalises a picture. It does not change img.
func (p *Preprocessor) Prepare(img *Image) (*Pixels, error) {
	s, err := p.Size(img.Width, img.Height)
	if err != nil {
		return nil, err
	}
	out := &Pixels{Size: s, Data: make([]float32, 0, s.Sum(Tile.Values))}
	hash := sha256.New()
	hash.Write(p.identity)
	binary.Write(hash, binary.LittleEndian, []int64{int64(s.Tiles), int64(s.TileRows), int64(s.TileColumns), int64(s.Width), int64(s.Height)})
	if o := s.Overview; o != (Tile{}) {
		binary.Write(hash, binary.LittleEndian, []int64{int64(o.Width), int64(o.Height)})
	}
	for _, tile := range p.rule.tiles(img, s) {
		hash.Write(tile.Pix)
		for c := range 3 {
			for i := c; i < len(tile.Pix); i += 3 {
				out.Data = append(out.Data, p.values[c][tile.Pix[i]])
			}
		}
	}
	hash.Sum(out.Hash[:0])
	return out, nil
}
