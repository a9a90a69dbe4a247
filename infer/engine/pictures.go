package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
	"m40-llm/infer/talk"
	"m40-llm/infer/tokenizer"
)

// A picture is a span of a sequence: rows with vectors of the model's tower in place of embeddings. It is encoded
// before its request is queued, on a device of its own, while the loop goes on. The KV cache knows its rows by numbers
// below 0 in place of tokens, which no other picture has.

// pictureSpan is a picture in a sequence, or a part of one: rows that follow each other.
type pictureSpan struct {
	*seenPicture
	at, rows int  // its first position, and how many it has
	before   int  // rows of the picture in spans before
	width    int  // values of a row
	attend   bool // its rows see each other, so that one step computes them
	columns  int  // of the rows of a picture whose rows have coordinates; 0: they have none
}

func (p pictureSpan) end() int { return p.at + p.rows }

// vectorsOf returns the vectors of n rows of the span.
func (p pictureSpan) vectorsOf(first, n int) []float32 {
	return p.vectors[(p.before+first)*p.width:][:n*p.width]
}

// coordinates returns the time, the row and the column of a position. Those of text are the same. A picture of n rows and m columns
// begins behind the text before, and the text behind it goes on max(n, m) later.
func (q *sequence) coordinates(pos int) [device.MaxAxes]int32 {
	shift := 0
	for _, p := range q.pictures {
		if pos < p.at {
			break
		}
		if pos < p.end() {
			start, i := p.at+shift, pos-p.at
			return [device.MaxAxes]int32{int32(start), int32(start + i/p.columns), int32(start + i%p.columns)}
		}
		shift += max(p.columns, p.rows/p.columns) - p.rows
	}
	return [device.MaxAxes]int32{int32(pos + shift), int32(pos + shift), int32(pos + shift)}
}

// hasCoordinates reports whether rows of q from position pos on have coordinates that are not their position.
func (q *sequence) hasCoordinates(pos int) bool {
	return len(q.pictures) > 0 && q.pictures[0].columns > 0 && pos > q.pictures[0].at
}

// ids returns what the KV cache knows the first n positions by.
func (q *sequence) ids(n int) []int32 {
	if len(q.pictures) == 0 {
		return q.tokens[:n]
	}
	ids := slices.Clone(q.tokens[:n])
	for _, p := range q.pictures {
		for pos := p.at; pos < min(n, p.end()); pos++ {
			ids[pos] = p.first - int32(p.before+pos-p.at)
		}
	}
	return ids
}

// withWholePictures returns rows, the rows of q in a step, or more or fewer so that they end in no picture whose rows see
// each other. They become no more than most, and may become 0.
func (q *sequence) withWholePictures(rows, most int) int {
	for _, p := range q.pictures {
		if end := q.computed + rows; !p.attend || end <= p.at || end >= p.end() {
			continue
		}
		if rows = p.end() - q.computed; rows > most {
			rows = max(0, p.at-q.computed)
		}
		break
	}
	return rows
}

// fillPictures sets the inputs of a step, and its ends if it has any.
func fillPictures(b *device.Batch, plan []scheduled) {
	b.Inputs, b.Ends = b.Inputs[:0], b.Ends[:0]
	first := 0 // row of the part
	for _, part := range plan {
		for _, p := range part.seq.pictures {
			from, to := max(p.at, part.from), min(p.end(), part.from+part.rows)
			if from >= to {
				continue
			}
			if len(b.Inputs) == 0 {
				b.Ends = append(b.Ends, b.Pos...)
			}
			row := first + from - part.from
			b.Inputs = append(b.Inputs, device.Input{Row: row, Values: p.vectorsOf(from-p.at, to-from)})
			for i := range to - from {
				if p.attend {
					b.Ends[row+i] = int32(p.end() - 1)
				}
			}
		}
		first += part.rows + len(part.draft)
	}
	fillCoordinates(b, plan)
}

// fillCoordinates sets the coordinates of a step, if rows have any that are not their position.
func fillCoordinates(b *device.Batch, plan []scheduled) {
	b.Coordinates = b.Coordinates[:0]
	if !slices.ContainsFunc(plan, func(part scheduled) bool {
		return part.seq.hasCoordinates(part.from + part.rows + len(part.draft))
	}) {
		return
	}
	axes := make([][]int32, device.MaxAxes)
	for i, pos := range b.Pos {
		for axis, at := range plan[b.Seq[i]].seq.coordinates(int(pos)) {
			axes[axis] = append(axes[axis], at)
		}
	}
	b.Coordinates = axes
}

// vision is what lets a model read pictures.
type vision struct {
	file    *gguf.File // the companion
	hash    string     // of its header and size
	sees    model.Pictures
	token   int32 // that stands for each row of a picture
	prepare *picture.Preprocessor

	turn   chan struct{} // has an element while a picture is encoded; guards what follows
	open   func(*gguf.File) (device.Device, error)
	device device.Device // nil: no picture was encoded yet
	tower  *model.Tower
}

// openVision opens the companion file of m. If it cannot be used, the model reads text alone, and blind says why.
func (m *openModel) openVision(open func(*gguf.File) (device.Device, error), o picture.Options) {
	if m.info.Companion == "" || open == nil {
		return
	}
	v, err := m.readVision(m.info.Companion, o)
	if err != nil {
		m.blind = err.Error()
		return
	}
	v.open, v.turn = open, make(chan struct{}, 1)
	m.vision = v
}

func (m *openModel) readVision(path string, o picture.Options) (_ *vision, err error) {
	file, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the companion file %s cannot be used: %w", filepath.Base(path), err)
			file.Close()
		}
	}()
	v := &vision{file: file}
	v.hash = headerHash(v.file)
	if v.prepare, err = picture.NewPreprocessor(v.file, o); err != nil {
		return nil, err
	}
	if v.sees, err = model.ReadTower(v.file, &m.config, v.prepare.Most()); err != nil {
		return nil, err
	}
	ids, err := m.tokenizer.Encode(context.Background(), v.sees.Token, tokenizer.Options{ParseSpecial: true})
	if err == nil && len(ids) != 1 {
		err = fmt.Errorf("the vocabulary of the model has no token %s", v.sees.Token)
	}
	if err != nil {
		return nil, err
	}
	v.token = ids[0]
	return v, nil
}

// close frees what v has opened. v may be nil.
func (v *vision) close() {
	if v == nil {
		return
	}
	if v.device != nil {
		v.device.Close()
	}
	v.file.Close()
}

// sees returns how steps of m have pictures.
func (m *openModel) sees() model.Pictures {
	if m.vision == nil {
		return model.Pictures{}
	}
	return m.vision.sees
}

// pictureRows returns how many rows a step needs for a picture; 0: it may be divided.
func (m *openModel) pictureRows() int {
	if s := m.sees(); s.Attend {
		return s.Rows
	}
	return 0
}

// picturesOf returns how the prompt of r shows its pictures. Where r has pictures, it replaces what looks like the mark of one in
// messages without any.
func (m *openModel) picturesOf(r *infer.Request) (talk.Pictures, error) {
	if !slices.ContainsFunc(r.Messages, func(message chat.Message) bool { return len(message.Pictures) > 0 }) {
		return talk.Pictures{}, nil
	}
	if m.vision == nil {
		why := "it has no companion file (mmproj) for them"
		if m.blind != "" {
			why = m.blind
		}
		return talk.Pictures{}, infer.Invalid("messages", "the model %q cannot see pictures: %s; remove them, or choose another model", m.info.Name, why)
	}
	see := m.vision.sees
	pictures := talk.Pictures{Placeholder: see.Placeholder}
	r.Messages = slices.Clone(r.Messages)
	number := 0
	for i := range r.Messages {
		message := &r.Messages[i]
		if len(message.Pictures) == 0 {
			message.Content = chat.WithoutPictureMarks(message.Content)
			continue
		}
		for _, data := range message.Pictures {
			number++
			size, err := m.vision.sizeOf(data)
			if err != nil {
				return talk.Pictures{}, infer.Invalid("messages", "picture %d: %s", number, err)
			}
			pictures.Texts = append(pictures.Texts, see.Text(size))
		}
	}
	return pictures, nil
}

// sizeOf returns what a picture file becomes.
func (v *vision) sizeOf(data []byte) (picture.Size, error) {
	info, err := picture.Inspect(data, picture.DefaultLimits)
	if err != nil {
		return picture.Size{}, err
	}
	return v.prepare.Size(info.Width, info.Height)
}

// decoding bounds the memory of pictures that are decoded at the same time.
var decoding = picture.NewBudget(int64(picture.DefaultLimits.Memory))

// contextBefore returns the context of m, if it is loaded, or the largest that it may get; 0: not known.
func (e *Engine) contextBefore(m *openModel) int {
	now := e.Status()
	if now.State == infer.StateReady && now.Model.Name == m.info.Name {
		return now.ContextLength
	}
	return max(now.Setup.ContextLength, m.config.ContextLength)
}

// look encodes the pictures of r, whose prompt is tokens, and returns where they are in it. It reports each before it is encoded,
// and ends when that returns false. Nothing is reported if one of them cannot be decoded.
func (m *openModel) look(ctx context.Context, r infer.Request, tokens []int32, seen *seenPictures, report func(infer.Pictures) bool) (spans []pictureSpan, err error) {
	next, number := 0, 0 // position from which the next picture is looked for; pictures so far
	all := 0
	for _, message := range r.Messages {
		for _, data := range message.Pictures {
			if all++; all == 1 {
				continue // encode decodes it before it reports it
			}
			if _, err := decoding.Decode(ctx, data, picture.DefaultLimits); err != nil {
				return nil, pictureError(ctx, all, err)
			}
		}
	}
	for _, message := range r.Messages {
		for _, data := range message.Pictures {
			number++
			size, err := m.vision.sizeOf(data)
			if err != nil {
				return nil, infer.Invalid("messages", "picture %d: %s", number, err)
			}
			runs, ok := m.vision.find(tokens, next, size)
			if !ok {
				return nil, infer.Invalid("messages", "picture %d has no place in the prompt: a message has the text of a control token", number)
			}
			encoded, err := m.vision.encode(ctx, data, seen, func() bool { return report(infer.Pictures{Done: number - 1, Total: all}) })
			if err != nil {
				return nil, pictureError(ctx, number, err)
			}
			for _, span := range runs {
				span.seenPicture, span.width, span.attend = encoded, len(encoded.vectors)/size.Tokens, m.vision.sees.Attend
				if m.config.HasCoordinates() {
					span.columns = size.Columns
				}
				spans, next = append(spans, span), span.end()
			}
		}
	}
	if len(spans) > 0 && slices.Contains(tokens[next:], m.vision.token) {
		return nil, infer.Invalid("messages", "a message has the text of the control token %s", m.vision.sees.Token)
	}
	if len(spans) > 0 && r.PromptLogProb {
		return nil, infer.Invalid("prompt_logprob", "prompts with pictures cannot be scored")
	}
	return spans, nil
}

// pictureError returns the error of a request for that of one of its pictures.
func pictureError(ctx context.Context, number int, err error) error {
	if _, ok := errors.AsType[*infer.Error](err); ok || ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return infer.Invalid("messages", "picture %d: %s", number, err)
}

// find returns the rows of a picture of that size in a prompt, of which those before next are of other pictures. ok is false if they are
// not there.
func (v *vision) find(tokens []int32, next int, size picture.Size) (runs []pictureSpan, ok bool) {
	before := 0
	for _, rows := range v.sees.Runs(size) {
		at := slices.Index(tokens[next:], v.token)
		if at < 0 || next+at+rows > len(tokens) {
			return nil, false
		}
		at += next
		next = at + rows
		if slices.ContainsFunc(tokens[at:next], func(id int32) bool { return id != v.token }) {
			return nil, false
		}
		runs = append(runs, pictureSpan{at: at, rows: rows, before: before})
		before += rows
	}
	return runs, true
}

// encode returns a picture with its vectors. Those of a picture that was encoded before are at hand. It calls report when the
// picture is decoded, and ends if that returns false.
func (v *vision) encode(ctx context.Context, data []byte, seen *seenPictures, report func() bool) (*seenPicture, error) {
	img, err := decoding.Decode(ctx, data, picture.DefaultLimits)
	if err != nil {
		return nil, err
	}
	pixels, err := v.prepare.Prepare(img)
	if err != nil {
		return nil, err
	}
	if !report() {
		return nil, context.Canceled
	}
	key := pictureKey{v.hash, pixels.Hash}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p := seen.find(key); p != nil {
		return p, nil
	}
	var vectors []float32
	err = readable(v.file, func() (err error) {
		if err = v.load(pixels.Size); err == nil {
			vectors, err = v.tower.Encode(ctx, pixels)
		}
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, infer.AsError(infer.CodeDevice, err)
	}
	if slices.ContainsFunc(vectors, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }) {
		return nil, infer.Errorf(infer.CodeNotFinite, "a picture has vectors that are not finite; the companion file may be damaged")
	}
	return seen.add(key, vectors, pixels.Tokens), nil
}

// load opens the device of the tower when the first picture is encoded, and again when one is larger than those before.
func (v *vision) load(s picture.Size) (err error) {
	if v.tower != nil && v.tower.Fits(s) {
		return nil
	}
	if v.device != nil {
		v.device.Close()
		v.device, v.tower = nil, nil
	}
	dev, err := v.open(v.file)
	if err != nil {
		return err
	}
	tower, err := model.LoadTower(v.file, dev, s)
	if err != nil {
		dev.Close()
		return err
	}
	v.device, v.tower = dev, tower
	return nil
}

// seenPictures are the pictures that were encoded last, of all models. Their vectors are kept within a limit, their numbers
// for longer: a picture whose number is forgotten gets another one.
type seenPictures struct {
	mu    sync.Mutex
	next  int32 // number of the first row of the next picture; below 0, and falling
	clock int64
	known map[pictureKey]*knownPicture
}

// pictureKey is the identity of a picture: the file that encodes it, and its pixels.
type pictureKey struct {
	companion string
	pixels    [32]byte
}

// seenPicture is an encoded picture. It does not change.
type seenPicture struct {
	first   int32 // number of its first row; those of the others follow downwards
	vectors []float32
}

type knownPicture struct {
	first int32
	used  int64        // on the clock of seenPictures
	seen  *seenPicture // nil: its vectors were dropped
}

// Limits of seenPictures.
const (
	maxKnown   = 1 << 14
	maxVectors = 64 << 20 // values of all vectors: 256 MiB
)

func newSeenPictures() *seenPictures {
	return &seenPictures{next: -1, known: map[pictureKey]*knownPicture{}}
}

// find returns a picture whose vectors are at hand, or nil.
func (s *seenPictures) find(key pictureKey) *seenPicture {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[key]
	if known == nil {
		return nil
	}
	s.clock++
	known.used = s.clock
	return known.seen
}

// add adds the vectors of a picture of so many rows.
func (s *seenPictures) add(key pictureKey, vectors []float32, rows int) *seenPicture {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[key]
	if known == nil {
		known = &knownPicture{first: s.next}
		s.next -= int32(rows)
		s.known[key] = known
	}
	s.clock++
	known.used, known.seen = s.clock, &seenPicture{known.first, vectors}
	s.drop()
	return known.seen
}

// drop drops the vectors and the numbers of the pictures that were used least recently, beyond the limits.
func (s *seenPictures) drop() {
	values := 0
	for _, k := range s.known {
		if k.seen != nil {
			values += len(k.seen.vectors)
		}
	}
	for values > maxVectors || len(s.known) > maxKnown {
		var key pictureKey
		var oldest *knownPicture
		for other, k := range s.known {
			if k.used < s.clock && (len(s.known) > maxKnown || k.seen != nil) && (oldest == nil || k.used < oldest.used) {
				key, oldest = other, k
			}
		}
		if oldest == nil {
			return
		}
		if oldest.seen != nil {
			values -= len(oldest.seen.vectors)
			oldest.seen = nil
		}
		if len(s.known) > maxKnown {
			delete(s.known, key)
		}
	}
}
