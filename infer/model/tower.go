package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
)

// Tower encodes pictures: the vision tower and the projector of a companion (mmproj) file, which make of a picture
// the vectors that a language model reads in place of embeddings. It is used by one goroutine at a time.
type Tower struct {
	towerConfig
	dev      device.Device
	kv       device.KV
	rows     int // the most rows of a tile
	weights  map[string]device.Tensor
	table    []float32 // position embeddings that the host adds
	shift    []float32 // what the host subtracts of features, with the factors of the rest; nil: nothing
	factor   []float32
	patches  device.Tensor // (rows, 3 · patch · patch) input of the first stage
	added    device.Tensor // (rows, dim) position embeddings of a tile, if the host adds them
	features device.Tensor // (rows, dim) result of each stage
	stages   []towerStage  // one after the other
	outputs  []towerOutput // parts of a vector, in this order
}

// towerStage is a part of a tower that reads and writes the features.
type towerStage struct {
	record   func()
	run      device.Executable
	windowed bool // patches see those of their window alone
	ends     int  // number of the layer of which it is the last stage, from 1; 0: none
}

// towerOutput is what a part of each vector is computed by, of the features after a stage.
type towerOutput struct {
	after   int // the stage
	joined  device.Tensor
	vectors device.Tensor
	run     device.Executable
}

// towerConfig has the hyperparameters of a tower, by the keys of the companion file.
type towerConfig struct {
	family     *towerFamily
	side       int // pixels of the side of a picture, or the most of them
	patch      int // pixels of the side of a patch
	dim        int // width of the tower
	ffn        int // width of its feed-forward layers
	layers     int
	heads      int
	pool       int // patches of the side of a token
	eps        float32
	activation device.Activation // of its feed-forward layers; 0: quickGELU
	period     int               // every so many layers all patches see each other, in the others those of a window; 0: in all
	deepstack  []int             // layers whose results are added after the first layers of the language model
	text       int               // width of the language model
}

// quickGELU is x / (1 + e^-1.702x), which devices do not have as one operation.
const quickGELU device.Activation = 0

// towerFamily is what the families of towers differ in.
type towerFamily struct {
	see      Pictures                                   // but Rows
	shown    func(s picture.Size, tokens string) string // what the model reads for a picture, of the text of its tokens in a run, the first one; nil: these alone
	runs     func(s picture.Size) []int                 // how many tokens follow each other; nil: all
	pool     int                                        // the published towerConfig.pool
	poolKey  string                                     // of it; "": no other is possible
	varies   bool                                       // the size of pictures varies
	class    bool                                       // the first row is no patch
	blocks   bool                                       // the patches of a token follow each other
	signed   bool                                       // pixels are doubled, and less 1
	added    func(t *Tower, g grid) []float32           // position embeddings that the host adds; nil: none
	read     func(c *towerConfig, f *gguf.File) error   // further keys; nil: none
	record   func(r *towerRecording) []towerStage
	join     func(t *Tower, g grid, features []float32) []float32                       // the input of the projector, a row for each token
	joined   func(c *towerConfig) int                                                   // width of these rows
	project  func(r *towerRecording, joined device.Tensor, deepstack int) device.Tensor // deepstack: the layer, -1 for the result of the tower
	text     func(f *gguf.File) (width int, err error)
	unneeded []string // tensors, or beginnings of their names, that do not change vectors
}

// towerFamilies are the supported families by clip.projector_type.
var towerFamilies = map[string]*towerFamily{
	"gemma3":           &gemma3Tower,
	"gemma4v":          &gemma4Tower,
	"idefics3":         &idefics3Tower,
	"internvl":         &internvlTower,
	"lfm2":             &lfm2Tower,
	"mlp":              &llavaTower,
	"pixtral":          &pixtralTower,
	"qwen2vl_merger":   &qwen2Tower,
	"qwen2.5vl_merger": &qwen2Tower,
	"qwen3vl_merger":   &qwen3Tower,
}

// ReadTower returns the options for steps of the language model of with the pictures of a companion file, which have
// at most so many tokens, or why the two do not fit together.
func ReadTower(f *gguf.File, of *Config, most int) (Pictures, error) {
	c, err := readTower(f)
	if err != nil {
		return Pictures{}, err
	}
	if !of.ReadsPictures() {
		return Pictures{}, fmt.Errorf("models of the architecture %s read no pictures yet", of.Architecture)
	}
	if c.text != of.Dim {
		return Pictures{}, fmt.Errorf("its vectors have %d elements, those of the model %d: it belongs to another model", c.text, of.Dim)
	}
	if len(c.deepstack) != of.Deepstack {
		return Pictures{}, fmt.Errorf("its vectors are for %d layers of the model, which has %d for them: it belongs to another model", len(c.deepstack), of.Deepstack)
	}
	s := picture.Size{Width: c.side, Height: c.side}
	if c.family.varies {
		s.Width, s.Height = c.patch*c.pool, c.patch*c.pool
	}
	if _, err := LoadTower(f, &noDevice{}, s); err != nil { // names a tensor that is missing, or has another shape
		return Pictures{}, err
	}
	see := c.family.see
	see.family = c.family
	see.Rows = 1
	if see.Attend = see.Attend && of.PerLayerDim == 0; see.Attend {
		see.Rows = most
	}
	return see, nil
}

func readTower(f *gguf.File) (c towerConfig, err error) {
	projector, err := picture.Projector(f)
	if err != nil {
		return c, err
	}
	if c.family = towerFamilies[projector]; c.family == nil {
		return c, fmt.Errorf("the projector %q is not supported yet", projector)
	}
	var problems []error
	integer := func(key string, most uint64) int {
		n, err := f.Uint("clip.vision." + key)
		if err == nil && (n < 1 || n > most) {
			err = fmt.Errorf("clip.vision.%s is %d, want 1 to %d", key, n, most)
		}
		problems = append(problems, err)
		return int(min(n, most))
	}
	c.side, c.patch = integer("image_size", 16384), integer("patch_size", 256)
	c.dim, c.ffn = integer("embedding_length", 1<<16), integer("feed_forward_length", 1<<18)
	c.layers, c.heads = integer("block_count", 256), integer("attention.head_count", 1024)
	if c.pool = c.family.pool; c.family.poolKey != "" && f.Has("clip.vision."+c.family.poolKey) {
		c.pool = integer(c.family.poolKey, 64)
	}
	eps, err := f.Float("clip.vision.attention.layer_norm_epsilon")
	if err == nil && !(eps >= 0 && eps <= 1) {
		err = fmt.Errorf("clip.vision.attention.layer_norm_epsilon is %v, want 0 to 1", eps)
	}
	c.eps = float32(eps)
	problems = append(problems, err)
	gelu, err := gguf.Optional(f.Bool, "clip.use_gelu", false)
	problems = append(problems, err)
	silu, err := gguf.Optional(f.Bool, "clip.use_silu", false)
	switch problems = append(problems, err); {
	case gelu && silu:
		problems = append(problems, errors.New("clip.use_gelu and clip.use_silu are both true"))
	case gelu:
		c.activation = device.GELU
	case silu:
		c.activation = device.SiLU
	}
	if c.family.read != nil && errors.Join(problems...) == nil {
		problems = append(problems, c.family.read(&c, f))
	}
	if err := errors.Join(problems...); err != nil {
		return c, err
	}
	if !c.family.varies && c.side%(c.patch*c.pool) != 0 || c.dim%c.heads != 0 {
		return c, fmt.Errorf("pictures of %d pixels, patches of %d, %d a token, width %d and %d heads do not fit together", c.side, c.patch, c.pool, c.dim, c.heads)
	}
	c.text, err = c.family.text(f)
	return c, err
}

// grid is a tile in patches.
type grid struct{ rows, columns int }

func (g grid) patches() int { return g.rows * g.columns }

// gridOf returns the grid of a tile.
func (c *towerConfig) gridOf(t picture.Tile) grid { return grid{t.Height / c.patch, t.Width / c.patch} }

// rowsFor returns how many rows of the tower the largest tile of a picture has.
func (c *towerConfig) rowsFor(s picture.Size) (rows int) {
	for i := range max(1, s.Tiles) {
		rows = max(rows, c.rowsOf(c.gridOf(s.Tile(i))))
	}
	return rows
}

// tokens returns how many vectors a tile becomes.
func (c *towerConfig) tokens(g grid) int { return g.patches() / (c.pool * c.pool) }

// rowsOf returns how many rows of the tower a tile has.
func (c *towerConfig) rowsOf(g grid) int {
	if c.family.class {
		return g.patches() + 1
	}
	return g.patches()
}

// patchAt is a patch of a tile.
type patchAt struct{ row, column int }

// places returns the patches of a tile in their order in the tower.
func (c *towerConfig) places(g grid) (list []patchAt) {
	side := 1
	if c.family.blocks {
		side = c.pool
	}
	for block := range g.patches() / (side * side) {
		top, left := block/(g.columns/side)*side, block%(g.columns/side)*side
		for i := range side * side {
			list = append(list, patchAt{top + i/side, left + i%side})
		}
	}
	return list
}

// patchesOf returns the patches of a token, row by row, by their numbers in a tile without blocks.
func (c *towerConfig) patchesOf(g grid, token int) (list []int) {
	top, left := token/(g.columns/c.pool)*c.pool, token%(g.columns/c.pool)*c.pool
	for i := range c.pool * c.pool {
		list = append(list, (top+i/c.pool)*g.columns+left+i%c.pool)
	}
	return list
}

// joinPatches returns the features of the patches of each token, one patch after the other.
func joinPatches(t *Tower, g grid, features []float32) []float32 {
	if t.family.blocks {
		return features
	}
	joined := make([]float32, 0, len(features))
	for token := range t.tokens(g) {
		for _, patch := range t.patchesOf(g, token) {
			joined = append(joined, features[patch*t.dim:][:t.dim]...)
		}
	}
	return joined
}

// joinedPatches is the width of what joinPatches returns.
func joinedPatches(c *towerConfig) int { return c.pool * c.pool * c.dim }

// LoadTower loads the tower of the companion file f on dev, for pictures whose tiles are about as large as those of s. f must stay open
// until dev is closed. If it fails, dev may hold a part of it and should be closed.
func LoadTower(f *gguf.File, dev device.Device, s picture.Size) (*Tower, error) {
	c, err := readTower(f)
	if err != nil {
		return nil, err
	}
	t := &Tower{towerConfig: c, dev: dev, rows: c.rowsFor(s), weights: map[string]device.Tensor{}}
	if c.family.varies { // pictures that are little larger are expected
		t.rows = (t.rows + towerRowsStep - 1) / towerRowsStep * towerRowsStep
	}
	layout := device.KVLayout{Type: device.CacheOf(gguf.F32), Blocks: t.blocks(), Layers: 1, KVHeads: c.heads, HeadDim: c.dim / c.heads}
	if t.kv, err = dev.AllocKV(layout); err != nil {
		return nil, err
	}
	r := &towerRecording{t: t, f: f, rows: t.rows, used: map[string]bool{}}
	t.patches, t.features = r.buffer(3*c.patch*c.patch), r.buffer(c.dim)
	if c.family.added != nil {
		t.added = r.buffer(c.dim)
	}
	t.stages = c.family.record(r)
	for i := range t.stages {
		r.Program = device.NewProgram(t.rows, t.rows)
		t.stages[i].record()
		r.Results = append(r.Results, t.features)
		if t.stages[i].run, err = r.compile(); err != nil {
			return nil, err
		}
	}
	for _, layer := range append([]int{-1}, c.deepstack...) {
		if err := t.loadOutput(f, r, layer); err != nil {
			return nil, err
		}
	}
	return t, c.family.checkUsed(f, r.used)
}

// TowerBytes are what a tower takes of a device.
type TowerBytes struct {
	Weights int64
	Work    int64 // activations, keys and values of a layer, workspace of kernels
}

// Total returns all of them.
func (b TowerBytes) Total() int64 { return b.Weights + b.Work }

// UsualPicture returns the size of the pictures for which the tower of f gets memory before it encodes one: of those that vary, that of
// a photo as clients send it.
func UsualPicture(f *gguf.File, o picture.Options) (picture.Size, error) {
	p, err := picture.NewPreprocessor(f, o)
	if err != nil {
		return picture.Size{}, err
	}
	return p.Size(1024, 768)
}

// TowerBytesIn is TowerBytesOn for usual pictures.
func TowerBytesIn(f *gguf.File, dev device.Device) (TowerBytes, error) {
	s, err := UsualPicture(f, picture.Options{})
	if err != nil {
		return TowerBytes{}, err
	}
	return TowerBytesOn(dev, f, s)
}

// TowerBytesOn returns what the tower of f takes of dev, which it does not change, if it is loaded for pictures of size s. Without a dev
// weights count as they are in the file, and kernels need no workspace. It fails if dev lacks kernels.
func TowerBytesOn(dev device.Device, f *gguf.File, s picture.Size) (TowerBytes, error) {
	d := &noDevice{of: dev}
	if _, err := LoadTower(f, d, s); err != nil {
		return TowerBytes{}, err
	}
	if dev != nil {
		d.bytes.Work += dev.WorkBytes(d.programs...)
	}
	return d.bytes, nil
}

// noDevice has no memory: programs can be recorded with its tensors, and not run. It counts what they would take.
type noDevice struct {
	device.Device
	of       device.Device // whose weights are counted; nil: those of the file are
	tensors  int32
	programs []*device.Program
	bytes    TowerBytes
}

func (d *noDevice) tensor(t gguf.Type, rows, cols int) device.Tensor {
	d.tensors++
	return device.Tensor{ID: d.tensors, Type: t, Rows: rows, Cols: cols}
}

func (d *noDevice) Upload(t gguf.Type, rows, cols int, _ []byte) (device.Tensor, error) {
	bytes := int64(rows) * int64(t.RowBytes(cols))
	if d.of != nil {
		var err error
		if bytes, err = d.of.WeightBytes(t, rows, cols); err != nil {
			return device.Tensor{}, err
		}
		if c, ok := d.of.(device.Converter); ok {
			t = c.Converts(t)
		}
	}
	d.bytes.Weights += bytes
	return d.tensor(t, rows, cols), nil
}

func (d *noDevice) Alloc(rows, cols int) (device.Tensor, error) {
	d.bytes.Work += 4 * int64(rows) * int64(cols)
	return d.tensor(gguf.F32, rows, cols), nil
}

func (d *noDevice) AllocKV(l device.KVLayout) (device.KV, error) {
	d.bytes.Work += l.Bytes()
	return device.KV{ID: 1, Layout: l}, nil
}

func (d *noDevice) Compile(p *device.Program) (device.Executable, error) {
	d.programs = append(d.programs, p)
	if c, ok := d.of.(device.Checker); ok && p.Err() == nil {
		return nil, c.Check(p)
	}
	return nil, p.Err()
}

// towerRowsStep divides the rows for which a tower is loaded whose pictures vary in size.
const towerRowsStep = 1024

// loadOutput loads what projects the features after a layer, -1 for the last stage.
func (t *Tower) loadOutput(f *gguf.File, of *towerRecording, layer int) (err error) {
	tokens := t.rows / (t.pool * t.pool)
	r := &towerRecording{Program: device.NewProgram(tokens, tokens), t: t, f: f, rows: tokens, used: of.used}
	out := towerOutput{after: len(t.stages) - 1, joined: r.buffer(t.family.joined(&t.towerConfig))}
	if layer >= 0 {
		out.after = slices.IndexFunc(t.stages, func(s towerStage) bool { return s.ends == layer+1 })
	}
	out.vectors = t.family.project(r, out.joined, layer)
	r.Results = []device.Tensor{out.vectors}
	out.run, err = r.compile()
	t.outputs = append(t.outputs, out)
	return err
}

// checkUsed returns an error if f has a tensor of the tower that was not used: vectors without it would be wrong.
func (family *towerFamily) checkUsed(f *gguf.File, used map[string]bool) error {
	for _, t := range f.Tensors() {
		unneeded := func(prefix string) bool { return strings.HasPrefix(t.Name, prefix) }
		if !used[t.Name] && !slices.ContainsFunc(append([]string{"a.", "mm.a."}, family.unneeded...), unneeded) {
			return fmt.Errorf("tensor %s of the companion file is not supported; pictures without it would be seen wrongly", t.Name)
		}
	}
	return nil
}

// Fits reports whether the tower was loaded for tiles that are as large as those of s.
func (t *Tower) Fits(s picture.Size) bool { return t.rowsFor(s) <= t.rows }

// Encode returns the vectors of a picture, one after the other, as many as picture.Size has tokens. Each is as wide as the language
// model, once for its embedding and once for each layer of Config.Deepstack. It ends after the stage in which ctx does.
func (t *Tower) Encode(ctx context.Context, p *picture.Pixels) ([]float32, error) {
	return t.EncodeInTurns(ctx, p, func(f func() error) error { return f() })
}

// EncodeInTurns is Encode, but uses the device only in functions that it passes to turn, one after the other. A layer is several. turn
// calls its argument, or returns an error.
func (t *Tower) EncodeInTurns(ctx context.Context, p *picture.Pixels, turn func(func() error) error) ([]float32, error) {
	if !t.Fits(p.Size) {
		return nil, fmt.Errorf("the picture has tiles of %d patches, the tower was loaded for %d", t.rowsFor(p.Size), t.rows)
	}
	if n := p.Sum(picture.Tile.Values); len(p.Data) != n {
		return nil, fmt.Errorf("the picture has %d values, and its %d tiles %d", len(p.Data), p.Tiles, n)
	}
	width := len(t.outputs) * t.text
	vectors := make([]float32, p.Sum(picture.Tile.Tokens)*width)
	pixels, rest := p.Data, vectors
	for i := range p.Tiles {
		tile := p.Tile(i)
		if err := t.canRead(tile); err != nil {
			return nil, err
		}
		values, n := tile.Values(), tile.Tokens()*width
		if err := t.encodeTile(ctx, t.gridOf(tile), pixels[:values], rest[:n], turn); err != nil {
			return nil, err
		}
		pixels, rest = pixels[values:], rest[n:]
	}
	return vectors, nil
}

// canRead returns an error if a tile has a size that t does not read.
func (t *Tower) canRead(tile picture.Tile) error {
	g := t.gridOf(tile)
	switch {
	case !t.family.varies && (tile.Width != t.side || tile.Height != t.side):
		return fmt.Errorf("the picture has tiles of %d x %d pixels, the tower reads %d x %d", tile.Width, tile.Height, t.side, t.side)
	case tile.Width%(t.patch*t.pool) != 0 || tile.Height%(t.patch*t.pool) != 0 || t.tokens(g) != tile.Tokens():
		return fmt.Errorf("the picture has tiles of %d x %d pixels and %d tokens, which the tower cannot divide into tokens of %d patches of %d", tile.Width, tile.Height, tile.Tokens(), t.pool*t.pool, t.patch)
	}
	return nil
}

// encodeTile sets vectors to those of a tile of planes of red, green and blue.
func (t *Tower) encodeTile(ctx context.Context, g grid, pixels, vectors []float32, turn func(func() error) error) error {
	if err := turn(func() error { return t.write(g, pixels) }); err != nil {
		return err
	}
	all, windows := t.batch(g), (*device.Batch)(nil)
	for i, stage := range t.stages {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch := all
		if stage.windowed {
			if windows == nil {
				windows = t.windows(g)
			}
			batch = windows
		}
		if err := turn(func() error { return stage.run.Run(batch) }); err != nil {
			return err
		}
		for part, out := range t.outputs {
			if out.after != i {
				continue
			}
			if err := turn(func() error { return t.projectTile(g, out, part, vectors) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// projectTile sets a part of each vector.
func (t *Tower) projectTile(g grid, out towerOutput, part int, vectors []float32) error {
	features, err := t.result(g)
	if err != nil {
		return err
	}
	if err := t.dev.Write(out.joined, 0, t.family.join(t, g, features)); err != nil {
		return err
	}
	n := t.tokens(g)
	if err := out.run.Run(t.rowsBatch(n)); err != nil {
		return err
	}
	values := make([]float32, n*t.text)
	if err := t.dev.Read(values, out.vectors, 0); err != nil {
		return err
	}
	for i := range n {
		copy(vectors[(i*len(t.outputs)+part)*t.text:], values[i*t.text:][:t.text])
	}
	return nil
}

// write writes the inputs of the first stage for a tile.
func (t *Tower) write(g grid, pixels []float32) error {
	if err := t.dev.Write(t.patches, 0, t.unfold(g, pixels)); err != nil {
		return err
	}
	if t.added.None() {
		return nil
	}
	return t.dev.Write(t.added, 0, t.family.added(t, g))
}

// result returns the features of a tile.
func (t *Tower) result(g grid) ([]float32, error) {
	features := make([]float32, t.rowsOf(g)*t.dim)
	return features, t.dev.Read(features, t.features, 0)
}

// unfold returns the patches of a tile. Each has its planes one after the other.
func (t *Tower) unfold(g grid, pixels []float32) []float32 {
	patches := make([]float32, 0, t.rowsOf(g)*3*t.patch*t.patch)
	if t.family.class {
		patches = append(patches, make([]float32, 3*t.patch*t.patch)...)
	}
	width, height := g.columns*t.patch, g.rows*t.patch
	for _, at := range t.places(g) {
		for y := range 3 * t.patch {
			row := y/t.patch*height + at.row*t.patch + y%t.patch
			patches = append(patches, pixels[row*width+at.column*t.patch:][:t.patch]...)
		}
	}
	if t.family.signed {
		for i, v := range patches {
			patches[i] = 2*v - 1
		}
	}
	return patches
}

// blocks returns how many blocks of keys and values the rows take, also if each window begins a block.
func (t *Tower) blocks() int {
	blocks := (t.rows + device.BlockSize - 1) / device.BlockSize
	if t.period > 0 {
		blocks = 2*blocks + 4
	}
	return blocks
}

// batch returns the rows of a tile, which is one sequence. Their coordinates are their row and their column of patches.
func (t *Tower) batch(g grid) *device.Batch {
	b := t.rowsBatch(t.rowsOf(g))
	b.Coordinates = make([][]int32, 2)
	if t.family.class {
		b.Coordinates[0], b.Coordinates[1] = append(b.Coordinates[0], 0), append(b.Coordinates[1], 0)
	}
	for _, at := range t.places(g) {
		b.Coordinates[0], b.Coordinates[1] = append(b.Coordinates[0], int32(at.row)), append(b.Coordinates[1], int32(at.column))
	}
	return b
}

// rowsBatch returns rows of one sequence without coordinates.
func (t *Tower) rowsBatch(rows int) *device.Batch {
	b := &device.Batch{Tokens: make([]int32, rows), Seq: make([]int32, rows), Tables: [][][]int32{{nil}}}
	for i := range rows {
		b.Pos = append(b.Pos, int32(i))
	}
	for i := range (rows + device.BlockSize - 1) / device.BlockSize {
		b.Tables[0][0] = append(b.Tables[0][0], int32(i))
	}
	return b
}

// windowPixels is the side of a window, which no file has.
const windowPixels = 112

// windows returns the rows of a tile, each window of which is a sequence of its own.
func (t *Tower) windows(g grid) *device.Batch {
	b := t.batch(g)
	side := max(1, windowPixels/t.patch/t.pool) * t.pool
	across := (g.columns + side - 1) / side
	b.Tables[0] = make([][]int32, across*((g.rows+side-1)/side))
	next := int32(0) // block
	counts := make([]int32, len(b.Tables[0]))
	for i, at := range t.places(g) {
		window := at.row/side*across + at.column/side
		if counts[window]%device.BlockSize == 0 {
			b.Tables[0][window] = append(b.Tables[0][window], next)
			next++
		}
		b.Seq[i], b.Pos[i] = int32(window), counts[window]
		counts[window]++
	}
	return b
}

// towerRecording records a part of a tower. Its first error is that of compile.
type towerRecording struct {
	*device.Program
	t    *Tower
	f    *gguf.File
	rows int
	used map[string]bool // tensors of f
	err  error

	buffers map[bufferKey]device.Tensor // by name
}

func (r *towerRecording) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *towerRecording) compile() (device.Executable, error) {
	if r.err != nil {
		return nil, r.err
	}
	return r.t.dev.Compile(r.Program)
}

// buffer returns a new activation with cols columns.
func (r *towerRecording) buffer(cols int) device.Tensor {
	t, err := r.t.dev.Alloc(r.rows, cols)
	if err != nil {
		r.fail(err)
		return device.Tensor{Rows: r.rows, Cols: cols, Type: gguf.F32, ID: 1}
	}
	return t
}

// shared returns the activation called name with cols columns. Layers share it.
func (r *towerRecording) shared(name string, cols int) device.Tensor {
	key := bufferKey{name, cols}
	t, ok := r.buffers[key]
	if !ok {
		if r.buffers == nil {
			r.buffers = map[bufferKey]device.Tensor{}
		}
		t = r.buffer(cols)
		r.buffers[key] = t
	}
	return t
}

// matrix returns the weight called name, with rows outputs and cols inputs, as it is in the file.
func (r *towerRecording) matrix(name string, rows, cols int) device.Tensor {
	t, err := r.f.Tensor(name)
	if err == nil && t.Elements() != rows*cols {
		err = fmt.Errorf("tensor %s has the shape %v, want %d x %d", name, t.Shape, rows, cols)
	}
	if err != nil {
		r.fail(err)
		return device.Tensor{}
	}
	r.used[name] = true
	return r.upload(name, t.Type, rows, cols, t.Data)
}

// vector returns the weight called name, with cols values.
func (r *towerRecording) vector(name string, cols int) device.Tensor {
	values := r.values(name, cols)
	return r.upload(name, gguf.F32, 1, cols, bytesOf(values))
}

// values returns the n values of the tensor called name; none if it fails, because metadata may ask for more than there is memory.
func (r *towerRecording) values(name string, n int) []float32 {
	r.used[name] = true
	t, err := r.f.Tensor(name)
	if err == nil && t.Elements() != n {
		err = fmt.Errorf("tensor %s has the shape %v, want %d values", name, t.Shape, n)
	}
	if err != nil {
		r.fail(err)
		return nil
	}
	values := make([]float32, n)
	if err := gguf.Dequantize(t.Type, t.Data, values); err != nil {
		r.fail(err)
		return nil
	}
	return values
}

func (r *towerRecording) upload(name string, t gguf.Type, rows, cols int, data []byte) device.Tensor {
	if w, ok := r.t.weights[name]; ok || r.err != nil {
		return w
	}
	w, err := r.t.dev.Upload(t, rows, cols, data)
	if err != nil {
		r.fail(fmt.Errorf("tensor %s: %w", name, err))
	}
	r.t.weights[name] = w
	return w
}

// has reports whether the file has a tensor.
func (r *towerRecording) has(name string) bool {
	_, err := r.f.Tensor(name)
	return err == nil
}

// linear records dst = the product of x with the weight called name, plus its bias if it has one.
func (r *towerRecording) linear(dst device.Tensor, name string, x device.Tensor) {
	x = r.clamp(name+".input", x)
	r.MatMul(dst, r.matrix(name+".weight", dst.Cols, x.Cols), x)
	if r.has(name + ".bias") {
		r.AddBias(dst, r.vector(name+".bias", dst.Cols))
	}
	r.clampInPlace(name+".output", dst)
}

// norm records dst = the norm of each row of x, or of each head, with the weights called name: LayerNorm if there are biases, else
// RMSNorm.
func (r *towerRecording) norm(dst, x device.Tensor, name string, cols int) {
	w := r.vector(name+".weight", cols)
	if r.has(name + ".bias") {
		r.LayerNorm(dst, x, w, r.vector(name+".bias", cols), r.t.eps)
	} else {
		r.RMSNorm(dst, x, w, r.t.eps)
	}
}

// unweighted records dst = the RMSNorm of each cols values of x, without weights.
func (r *towerRecording) unweighted(dst, x device.Tensor, cols int) {
	r.RMSNorm(dst, x, r.constant(cols, 1), r.t.eps)
}

// constant returns a vector of cols equal values.
func (r *towerRecording) constant(cols int, value float32) device.Tensor {
	return r.upload(fmt.Sprintf("%d times %g", cols, value), gguf.F32, 1, cols, bytesOf(slices.Repeat([]float32{value}, cols)))
}

// twoLayers records GELU between two layers, and returns the result.
func (r *towerRecording) twoLayers(x device.Tensor, first, second string) device.Tensor {
	width, err := outputsOf(first + ".weight")(r.f)
	if err != nil {
		r.fail(err)
		return x
	}
	hidden, vectors := r.buffer(width), r.buffer(r.t.text)
	r.linear(hidden, first, x)
	r.Activate(hidden, hidden, device.ExactGELU)
	r.linear(vectors, second, hidden)
	return vectors
}

// outputsOf returns the width of what a tensor of the companion file computes.
func outputsOf(name string) func(f *gguf.File) (int, error) {
	return func(f *gguf.File) (int, error) {
		t, err := f.Tensor(name)
		if err != nil {
			return 0, err
		}
		if len(t.Shape) != 2 {
			return 0, fmt.Errorf("tensor %s has %d dimensions, want 2", name, len(t.Shape))
		}
		return t.Shape[1], nil
	}
}
