package model

import (
	"context"
	"errors"
	"fmt"

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
	weights  map[string]device.Tensor
	patches  device.Tensor       // (patches, 3 · patch · patch) input of tower
	features device.Tensor       // (patches, dim) its result
	joined   device.Tensor       // (tokens, …) input of projector
	vectors  device.Tensor       // (tokens, text) its result
	tower    []device.Executable // one after the other
	projects device.Executable
}

// towerConfig has the hyperparameters of a tower, by the keys of the companion file.
type towerConfig struct {
	family *towerFamily
	side   int // pixels of the side of a picture
	patch  int // pixels of the side of a patch
	dim    int // width of the tower
	ffn    int // width of its feed-forward layers
	layers int
	heads  int
	pool   int // patches of the side of a token
	eps    float32
	text   int // width of the language model
}

// towerFamily is what the families of towers differ in.
type towerFamily struct {
	see     Pictures                                           // but Rows
	pool    int                                                // the published towerConfig.pool
	record  func(r *towerRecording, x device.Tensor) []func()  // the stages of the tower, each recorded into r.Program
	join    func(c *towerConfig, features []float32) []float32 // the input of the projector, of the result of the tower
	project func(r *towerRecording, joined device.Tensor) device.Tensor
	joined  func(c *towerConfig) int // width of what join returns
	text    func(f *gguf.File) (width int, err error)
}

// towerFamilies are the supported families by clip.projector_type.
var towerFamilies = map[string]*towerFamily{
	"gemma3": &gemma3Tower,
}

// ReadTower returns the options for steps of the language model of with the pictures of a companion file, or why the two do
// not fit together.
func ReadTower(f *gguf.File, of *Config) (Pictures, error) {
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
	see := c.family.see
	see.Rows = c.tokens()
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
	c.side, c.patch = integer("image_size", 4096), integer("patch_size", 256)
	c.dim, c.ffn = integer("embedding_length", 1<<16), integer("feed_forward_length", 1<<18)
	c.layers, c.heads = integer("block_count", 256), integer("attention.head_count", 1024)
	if c.pool = c.family.pool; f.Has("clip.vision.projector.scale_factor") {
		c.pool = integer("projector.scale_factor", 64)
	}
	eps, err := f.Float("clip.vision.attention.layer_norm_epsilon")
	c.eps = float32(eps)
	if problems = append(problems, err); errors.Join(problems...) != nil {
		return c, errors.Join(problems...)
	}
	if c.side%(c.patch*c.pool) != 0 || c.dim%c.heads != 0 {
		return c, fmt.Errorf("pictures of %d pixels, patches of %d, %d a token, width %d and %d heads do not fit together", c.side, c.patch, c.pool, c.dim, c.heads)
	}
	c.text, err = c.family.text(f)
	return c, err
}

// grid returns how many patches a side of a picture has.
func (c *towerConfig) grid() int { return c.side / c.patch }

// tokens returns how many vectors a picture becomes.
func (c *towerConfig) tokens() int { n := c.grid() / c.pool; return n * n }

// LoadTower loads the tower of the companion file f on dev. f must stay open until dev is closed. If it fails, dev may hold
// a part of it and should be closed.
func LoadTower(f *gguf.File, dev device.Device) (*Tower, error) {
	c, err := readTower(f)
	if err != nil {
		return nil, err
	}
	n := c.grid() * c.grid()
	t := &Tower{towerConfig: c, dev: dev, weights: map[string]device.Tensor{}}
	layout := device.KVLayout{Type: gguf.F32, Blocks: (n + device.BlockSize - 1) / device.BlockSize, Layers: 1, KVHeads: c.heads, HeadDim: c.dim / c.heads}
	if t.kv, err = dev.AllocKV(layout); err != nil {
		return nil, err
	}
	r := &towerRecording{t: t, f: f, rows: n}
	t.patches, t.features = r.buffer(3*c.patch*c.patch), r.buffer(c.dim)
	for _, record := range c.family.record(r, t.patches) {
		r.Program = device.NewProgram(n, n)
		record()
		r.Results = []device.Tensor{t.features}
		stage, err := r.compile()
		if err != nil {
			return nil, err
		}
		t.tower = append(t.tower, stage)
	}
	r = &towerRecording{Program: device.NewProgram(c.tokens(), c.tokens()), t: t, f: f, rows: c.tokens()}
	t.joined = r.buffer(c.family.joined(&c))
	t.vectors = c.family.project(r, t.joined)
	r.Results = []device.Tensor{t.vectors}
	t.projects, err = r.compile()
	return t, err
}

// Encode returns the vectors of a picture, one after the other, as many as picture.Size has tokens. It ends after the layer
// in which ctx does.
func (t *Tower) Encode(ctx context.Context, p *picture.Pixels) ([]float32, error) {
	var vectors []float32
	plane := 3 * p.Width * p.Height
	if p.Width != t.side || p.Height != t.side || len(p.Data) != p.Tiles*plane {
		return nil, fmt.Errorf("the picture has %d tiles of %d x %d pixels, the tower reads %d x %d", p.Tiles, p.Width, p.Height, t.side, t.side)
	}
	for i := range p.Tiles {
		features, err := t.encodeTile(ctx, p.Data[i*plane:][:plane])
		if err != nil {
			return nil, err
		}
		joined := t.family.join(&t.towerConfig, features)
		if err := t.dev.Write(t.joined, 0, joined); err != nil {
			return nil, err
		}
		if err := t.projects.Run(t.batch(t.tokens())); err != nil {
			return nil, err
		}
		part := make([]float32, t.tokens()*t.text)
		if err := t.dev.Read(part, t.vectors, 0); err != nil {
			return nil, err
		}
		vectors = append(vectors, part...)
	}
	return vectors, nil
}

// encodeTile returns the result of the tower for a picture of planes of red, green and blue.
func (t *Tower) encodeTile(ctx context.Context, pixels []float32) ([]float32, error) {
	n := t.grid() * t.grid()
	if err := t.dev.Write(t.patches, 0, t.unfold(pixels)); err != nil {
		return nil, err
	}
	batch := t.batch(n)
	for _, stage := range t.tower {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := stage.Run(batch); err != nil {
			return nil, err
		}
	}
	features := make([]float32, n*t.dim)
	return features, t.dev.Read(features, t.features, 0)
}

// unfold returns the patches of a picture, row by row. Each has its planes one after the other.
func (t *Tower) unfold(pixels []float32) []float32 {
	patches := make([]float32, 0, len(pixels))
	for at := range t.grid() * t.grid() {
		left, top := at%t.grid()*t.patch, at/t.grid()*t.patch
		for y := range 3 * t.patch {
			row := y/t.patch*t.side + top + y%t.patch
			patches = append(patches, pixels[row*t.side+left:][:t.patch]...)
		}
	}
	return patches
}

// batch returns rows of one sequence, a picture.
func (t *Tower) batch(rows int) *device.Batch {
	b := &device.Batch{Tokens: make([]int32, rows), Seq: make([]int32, rows), Tables: [][][]int32{{nil}}}
	for i := range rows {
		b.Pos = append(b.Pos, int32(i))
	}
	for i := range t.kv.Layout.Blocks {
		b.Tables[0][0] = append(b.Tables[0][0], int32(i))
	}
	return b
}

// towerRecording records a part of a tower. Its first error is that of compile.
type towerRecording struct {
	*device.Program
	t    *Tower
	f    *gguf.File
	rows int
	err  error
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
	return r.upload(name, t.Type, rows, cols, t.Data)
}

// vector returns the weight called name, with cols values.
func (r *towerRecording) vector(name string, cols int) device.Tensor {
	values := r.values(name, cols)
	return r.upload(name, gguf.F32, 1, cols, bytesOf(values))
}

// values returns the n values of the tensor called name.
func (r *towerRecording) values(name string, n int) []float32 {
	values := make([]float32, n)
	t, err := r.f.Tensor(name)
	if err == nil && t.Elements() != n {
		err = fmt.Errorf("tensor %s has the shape %v, want %d values", name, t.Shape, n)
	}
	if err == nil {
		err = gguf.Dequantize(t.Type, t.Data, values)
	}
	if err != nil {
		r.fail(err)
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

// linear records the product of x with the weight called name, which has a bias, and returns the result.
func (r *towerRecording) linear(dst device.Tensor, name string, x device.Tensor) {
	r.MatMul(dst, r.matrix(name+".weight", dst.Cols, x.Cols), x)
	r.AddBias(dst, r.vector(name+".bias", dst.Cols))
}

// norm records dst = the LayerNorm of x with the weights called name.
func (r *towerRecording) norm(dst, x device.Tensor, name string) {
	r.LayerNorm(dst, x, r.vector(name+".weight", x.Cols), r.vector(name+".bias", x.Cols), r.t.eps)
}
