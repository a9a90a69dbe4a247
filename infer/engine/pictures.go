package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/picture"
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
// begins after the text before, and the text after it goes on max(n, m) later.
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

// answerID is what numbers of tokens have in addition where the KV cache has to tell rows of an answer from those of a prompt: more than
// any vocabulary has.
const answerID = 1 << 30

// ids returns what the KV cache knows the first n positions by.
func (q *sequence) ids(n int) []int32 {
	answer := n
	if q.promptsApart {
		answer = min(n, q.answerRows())
	}
	if len(q.pictures) == 0 && answer == n {
		return q.tokens[:n]
	}
	ids := slices.Clone(q.tokens[:n])
	for pos := answer; pos < n; pos++ {
		ids[pos] |= answerID
	}
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
	token   int32 // that is in the prompt for each row of a picture
	prepare map[chat.Detail]*picture.Preprocessor
	limits  picture.Options

	open         func(*gguf.File) (device.Device, error)         // on the CPU
	openFirst    func(*gguf.File) (device.Device, error)         // on the first device of models; nil: the tower is on the CPU
	betweenSteps func(ctx context.Context, f func() error) error // runs f in the loop
	notice       func(why string)                                // logs that a picture is encoded on the CPU
	planned      atomic.Pointer[towerPlace]                      // by the plan of the model; nil: it was not loaded
	bytes        map[string]model.TowerBytes                     // that the tower takes, by the name of the device; owned by the loop
	held         atomic.Int64                                    // bytes that the tower has of the first device

	turn        chan struct{} // has an element while a picture is encoded; guards what follows
	device      device.Device // nil: no picture was encoded yet
	tower       *model.Tower
	at          towerPlace // where it is
	tooLarge    int        // pixels from which on pictures do not fit on the first device; 0: none was
	whyTooLarge string
}

// openVision opens the companion file of m. If it cannot be used, the model reads text alone, and blind says why.
func (l *openModels) openVision(m *openModel) {
	if m.info.Companion == "" || l.openTower == nil {
		return
	}
	v, err := m.readVision(m.info.Companion, l.limits)
	if err != nil {
		m.blind = err.Error()
		return
	}
	v.open, v.openFirst, v.betweenSteps, v.turn = l.openTower, l.openFirst, l.betweenSteps, make(chan struct{}, 1)
	v.bytes = map[string]model.TowerBytes{}
	v.notice = func(why string) { l.log.Warn("pictures are encoded on the CPU", "model", m.info.Name, "reason", why) }
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
	v := &vision{file: file, limits: o}
	v.hash = headerHash(v.file)
	if v.prepare, err = preprocessors(v.file, o); err != nil {
		return nil, err
	}
	if v.sees, err = model.ReadTower(v.file, &m.config, v.prepare[chat.Full].Most()); err != nil {
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

// How many tokens a picture has at most in less than full detail, and which share of the most that it can have.
const (
	lowTokens, lowShare       = 256, 4
	mediumTokens, mediumShare = 1024, 2
)

// preprocessors returns what prepares pictures in each detail.
func preprocessors(companion *gguf.File, o picture.Options) (map[chat.Detail]*picture.Preprocessor, error) {
	full, err := picture.NewPreprocessor(companion, o)
	if err != nil {
		return nil, err
	}
	all := map[chat.Detail]*picture.Preprocessor{chat.Full: full}
	for d, most := range map[chat.Detail]int{
		chat.Low:    max(1, min(lowTokens, full.Most()/lowShare)),
		chat.Medium: max(1, min(mediumTokens, full.Most()/mediumShare)),
	} {
		o.Within = most
		if all[d], err = picture.NewPreprocessor(companion, o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// close frees what v has opened. v may be nil.
func (v *vision) close() {
	if v == nil {
		return
	}
	v.closeTower()
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

// picturesOf returns how the prompt of r shows the pictures of its messages. Where these have any, it replaces what looks like the mark
// of one in messages without.
func (m *openModel) picturesOf(r *infer.Request) (chatformat.Pictures, error) {
	files, _ := r.AllPictures()
	if len(files) == 0 {
		return chatformat.Pictures{}, nil
	}
	sizes, err := m.pictureSizes(r)
	if err != nil {
		return chatformat.Pictures{}, err
	}
	see := m.vision.sees
	pictures := chatformat.Pictures{Placeholder: see.Placeholder}
	for _, size := range sizes {
		pictures.Texts = append(pictures.Texts, see.Text(size))
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		if message := &r.Messages[i]; len(message.Pictures) == 0 {
			message.Content = chat.WithoutPictureMarks(message.Content)
		}
	}
	return pictures, nil
}

// rawPrompt returns the prompt of r with what the model reads for its pictures.
func (m *openModel) rawPrompt(r *infer.Request) (string, error) {
	if len(r.Pictures) == 0 {
		return r.Prompt, nil
	}
	sizes, err := m.pictureSizes(r)
	if err != nil {
		return "", err
	}
	texts := strings.Split(r.Prompt, chat.PictureMark)
	var b strings.Builder
	b.WriteString(texts[0])
	for i, size := range sizes {
		b.WriteString(m.vision.sees.RawText(size))
		b.WriteString(texts[i+1])
	}
	return b.String(), nil
}

// pictureSizes returns what the pictures of r become, or why m cannot read them.
func (m *openModel) pictureSizes(r *infer.Request) (sizes []picture.Size, err error) {
	files, field := r.AllPictures()
	if len(files) > 0 && m.vision == nil {
		why := "it has no companion file (mmproj) for them"
		if m.blind != "" {
			why = m.blind
		}
		return nil, fault.Invalid(field, "the model %q cannot see pictures: %s; remove them, or choose another model", m.info.Name, why)
	}
	for i, p := range files {
		size, err := m.vision.sizeOf(p)
		if err != nil {
			return nil, fault.Invalid(field, "picture %d: %s", i+1, err)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// sizeOf returns what a picture becomes.
func (v *vision) sizeOf(p infer.Picture) (picture.Size, error) {
	info, err := picture.Inspect(p.File, picture.DefaultLimits)
	if err != nil {
		return picture.Size{}, err
	}
	return v.prepare[p.Detail].Size(info.Width, info.Height)
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
	files, field := r.AllPictures()
	sizes, err := m.pictureSizes(&r)
	if err != nil {
		return nil, err
	}
	for i, p := range files[min(1, len(files)):] { // encode decodes the first one before it reports it
		if _, err := decoding.Decode(ctx, p.File, picture.DefaultLimits); err != nil {
			return nil, pictureError(ctx, field, i+2, err)
		}
	}
	next := 0 // position from which the next picture is looked for
	for i, p := range files {
		runs, ok := m.vision.find(tokens, next, sizes[i])
		if !ok {
			return nil, fault.Invalid(field, "picture %d has no place in the prompt: a text has that of a control token", i+1)
		}
		encoded, err := m.vision.encode(ctx, p, leftOut(r, i), seen, func() bool { return report(infer.Pictures{Done: i, Total: len(files)}) })
		if err != nil {
			return nil, pictureError(ctx, field, i+1, err)
		}
		for _, span := range runs {
			span.seenPicture, span.width, span.attend = encoded, len(encoded.vectors)/sizes[i].Tokens, m.vision.sees.Attend
			if m.config.HasCoordinates() {
				span.columns = sizes[i].Columns
			}
			spans, next = append(spans, span), span.end()
		}
	}
	if len(spans) > 0 && slices.Contains(tokens[next:], m.vision.token) {
		return nil, fault.Invalid(field, "a text has that of the control token %s", m.vision.sees.Token)
	}
	if len(spans) > 0 && r.PromptLogProb && len(r.Answered) == 0 {
		return nil, fault.Invalid("prompt_logprob", "prompts with pictures cannot be scored")
	}
	return spans, nil
}

// pictureError returns the error of a request for that of one of its pictures.
func pictureError(ctx context.Context, field string, number int, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok || ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fault.Invalid(field, "picture %d: %s", number, err)
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

// leftOut returns the part of a picture of r that the model does not see; nil: it sees all of it.
func leftOut(r infer.Request, picture int) *infer.PicturePart {
	if r.LeftOut == nil || r.LeftOut.Picture != picture {
		return nil
	}
	return r.LeftOut
}

// encode returns a picture, without a part unless that is nil, with its vectors. Those of a picture that was encoded before are at
// hand. It calls report when the picture is decoded, and ends if that returns false.
func (v *vision) encode(ctx context.Context, of infer.Picture, without *infer.PicturePart, seen *seenPictures, report func() bool) (*seenPicture, error) {
	img, err := decoding.Decode(ctx, of.File, picture.DefaultLimits)
	if err != nil {
		return nil, err
	}
	if p := without; p != nil {
		if err := img.LeaveOut(p.X, p.Y, p.Width, p.Height); err != nil {
			return nil, err
		}
	}
	pixels, err := v.prepare[of.Detail].Prepare(img)
	if err != nil {
		return nil, err
	}
	if !report() {
		return nil, context.Canceled
	}
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	at := v.where(pixels.Size)
	if p := seen.find(pictureKey{v.identity(at), pixels.Hash}); p != nil {
		return p, nil
	}
	var vectors []float32
	err = readable(v.file, func() (err error) {
		if at, err = v.load(pixels.Size); err == nil {
			vectors, err = v.tower.EncodeInTurns(ctx, pixels, v.turns(ctx))
		}
		return err
	})
	if err != nil {
		v.closeTower() // its device may have failed
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fault.Of(fault.CodeDevice, err)
	}
	if slices.ContainsFunc(vectors, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }) {
		return nil, fault.Errorf(fault.CodeNotFinite, "a picture has vectors that are not finite; the companion file may be damaged")
	}
	return seen.add(pictureKey{v.identity(at), pixels.Hash}, vectors, pixels.Tokens), nil
}

// seenPictures are the pictures that were encoded last, of all models. Their vectors are cached within a limit, their numbers
// for longer: a picture whose number is forgotten gets another one.
type seenPictures struct {
	mu    sync.Mutex
	next  int32 // number of the first row of the next picture; below 0, and falling
	clock int64
	known map[pictureKey]*knownPicture
}

// pictureKey is the identity of a picture: the file that encodes it, and its pixels.
type pictureKey struct {
	companion string // with where its tower is
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
