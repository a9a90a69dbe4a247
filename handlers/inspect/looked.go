package inspect

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/picture"
	"m40-llm/store"
)

// Where an answer looked: how much each part of a picture counts for its tokens. A part is left out of the picture, which the model
// encodes anew, and the tokens of the answer are scored after that prompt. The difference from their scores with the
// whole picture is what the part counts. The tokens are given, not drawn, so one pass scores all of them.

// Sight is what can be asked of the pictures before an answer.
type Sight struct {
	Pictures []SightPicture
	Loaded   bool // the model is loaded
}

// SightPicture is a picture of the messages before an answer.
type SightPicture struct {
	Hash          string
	Width, Height int
	Divisions     []Division // from the coarsest to that in which each part is one token
}

// Division divides a picture into parts: rectangles of whole tokens.
type Division struct {
	Rows, Columns int
	Prompts       int           // that are still to be scored for all parts, with that of the whole picture
	Takes         time.Duration // expected; 0: not known, because no part of such a picture was scored yet

	step          int // tokens of a side of each part, but the last ones
	width, height int // of the picture
	grid          infer.PictureGrid
}

// Parts returns how many parts there are.
func (d Division) Parts() int { return d.Rows * d.Columns }

// part returns part i of picture number n of a prompt, row by row.
func (d Division) part(n, i int) *infer.PicturePart {
	edge := func(tokens, of, pixels int) int { return min(tokens, of) * pixels / of }
	row, column := i/d.Columns, i%d.Columns
	p := &infer.PicturePart{Picture: n, X: edge(column*d.step, d.grid.Columns, d.width), Y: edge(row*d.step, d.grid.Rows, d.height)}
	p.Width = max(1, edge((column+1)*d.step, d.grid.Columns, d.width)-p.X)
	p.Height = max(1, edge((row+1)*d.step, d.grid.Rows, d.height)-p.Y)
	return p
}

// Edges returns the pixels at which the columns and the rows of parts end.
func (d Division) Edges() (columns, rows []int) {
	for i := range d.Columns {
		p := d.part(0, i)
		columns = append(columns, p.X+p.Width)
	}
	for i := range d.Rows {
		p := d.part(0, i*d.Columns)
		rows = append(rows, p.Y+p.Height)
	}
	return columns, rows
}

// Parts of the coarsest division, and of the finest.
const (
	fewParts = 16
	maxParts = 1024
)

// divisionsOf returns the divisions of a picture, each with parts of half the side of the one before.
func divisionsOf(grid infer.PictureGrid, width, height int) (list []Division) {
	parts := func(step int) (rows, columns int) {
		return (grid.Rows + step - 1) / step, (grid.Columns + step - 1) / step
	}
	step := 1
	for rows, columns := parts(step); rows*columns > fewParts; rows, columns = parts(step) {
		step *= 2
	}
	for ; step > 0; step /= 2 {
		if rows, columns := parts(step); rows*columns <= maxParts && rows <= height && columns <= width {
			list = append(list, Division{Rows: rows, Columns: columns, step: step, width: width, height: height, grid: grid})
		}
	}
	return list
}

// Looked is what the parts of a picture count for one token.
type Looked struct {
	Division
	Whole   float64   // log probability of the token with the whole picture
	Without []float64 // of each part: without it; NaN: not scored
}

// Look asks how much the parts of a picture count for an answer.
type Look struct {
	Answer   int64
	Token    int // of the answer, from 0; those before it are scored, too
	Picture  int // among those of all messages, from 0
	Division int // of Sight's
	Parts    int // at most so many parts that are not scored yet; 0: all
}

// LookProgress is how far a Look is: an event of the engine before the first part, or parts.
type LookProgress struct {
	Event       infer.Event
	Done, Total int           // parts
	Left        time.Duration // expected; 0: not known
}

const (
	noPictures   = "the prompt of this answer has no pictures"
	notLooked    = "what counts in this picture is not known for this token: ask for it"
	tokensAtOnce = 512 // of an answer that are scored, if the one that is asked for is among them
	looksAtOnce  = 4   // prompts; the engine computes them in the same steps
)

// lookKey names what was scored of a picture of an answer.
type lookKey struct {
	live.AnswerKey
	picture, step int
}

// lookScores are the scores of the first tokens of an answer, with a whole picture and without each part. A nil
// list is not known yet. Lists do not change.
type lookScores struct {
	tokens int
	whole  []float32
	parts  [][]float32
}

// paceKey is what the time of a part depends on, apart from the device and what else is computed.
type paceKey struct {
	model  string
	tokens int // of the prompt and the answer, in steps of a power of 2
	pixels int // of the picture, likewise
}

// looks are the scores of the pictures that were looked at last, the last one at the end, and how long their parts took.
type looks struct {
	mu   sync.Mutex
	list []lookEntry
	pace map[paceKey]time.Duration // of one part, while looksAtOnce are scored
}

type lookEntry struct {
	key    lookKey
	scores *lookScores
}

// maxLookScores is how many scores of all answers are stored, in addition to those of the last one: 32 MiB.
const maxLookScores = 8 << 20

func (l *looks) find(key lookKey) *lookScores {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.list {
		if e.key == key {
			l.list = append(slices.Delete(l.list, i, i+1), e)
			return &lookScores{e.scores.tokens, e.scores.whole, slices.Clone(e.scores.parts)}
		}
	}
	return nil
}

// keep sets the scores of the whole picture (part -1) or of a part, of parts.
func (l *looks) keep(key lookKey, parts, part int, scores []float32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.list, func(e lookEntry) bool { return e.key == key })
	if at >= 0 && l.list[at].scores.tokens != len(scores) {
		l.list = slices.Delete(l.list, at, at+1)
		at = -1
	}
	if at < 0 {
		l.list = append(l.list, lookEntry{key, &lookScores{tokens: len(scores), parts: make([][]float32, parts)}})
		at = len(l.list) - 1
		for total := l.size(); at > 0 && total > maxLookScores; at-- {
			total -= l.list[0].scores.size()
			l.list = slices.Delete(l.list, 0, 1)
		}
	}
	if scored := l.list[at].scores; part < 0 {
		scored.whole = scores
	} else {
		scored.parts[part] = scores
	}
}

// size returns how many scores there are when all parts are scored.
func (s *lookScores) size() int { return s.tokens * (len(s.parts) + 1) }

func (l *looks) size() (n int) {
	for _, e := range l.list {
		n += e.scores.size()
	}
	return n
}

func (l *looks) forget(chat string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(e lookEntry) bool { return e.key.Chat == chat })
}

// learn notes how long a part took.
func (l *looks) learn(key paceKey, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pace == nil || len(l.pace) > 64 {
		l.pace = map[paceKey]time.Duration{}
	}
	l.pace[key] = took
}

func (l *looks) paceOf(key paceKey) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pace[key]
}

// seen is an answer about pictures.
type seen struct {
	sight   *Sight
	request infer.Request // that scores its tokens, without them
	answer  *live.StoredAnswer
	key     live.AnswerKey
}

// pace returns what the time of a part of a picture depends on, if so many tokens of the answer are scored.
func (s *seen) pace(picture, tokens int) paceKey {
	p := s.sight.Pictures[picture]
	power := func(n int) int { return int(math.Round(math.Log2(float64(max(1, n))))) }
	return paceKey{s.answer.Model, power(s.answer.Prompt + tokens), power(p.Width * p.Height)}
}

// tokensFor returns how many tokens of the answer are scored for one of them.
func (s *seen) tokensFor(token int) int {
	return max(token+1, min(tokensAtOnce, len(s.answer.IDs)))
}

// readSight returns an answer with the pictures before it.
func (s *Service) readSight(ctx context.Context, who live.Principal, c *live.Chat, answer int64) (*seen, error) {
	a, err := s.storedTokens(ctx, who, c, answer)
	if err != nil {
		return nil, err
	}
	r, rendered, err := s.prompt(ctx, who, c, answer, a)
	if err != nil {
		return nil, err
	}
	if rendered == nil {
		return nil, fault.Invalid("answer", "%s", promptDiffers)
	}
	r.MaxTokens = 0
	status := s.engine.Status()
	loaded := status.Of(a.Model)
	v := &seen{sight: &Sight{Loaded: loaded != nil && loaded.State == infer.StateReady}, request: r, answer: a, key: live.AnswerKey{Chat: c.ID(), Answer: answer, Tokens: len(a.IDs)}}
	for _, m := range r.Messages {
		for _, data := range m.Pictures {
			info, err := picture.Inspect(data, attached.Limits())
			if err != nil {
				return nil, err
			}
			n := len(v.sight.Pictures)
			if n >= len(rendered.Grids) {
				return nil, fault.Invalid("answer", "the engine of this model does not say where the tokens of pictures lie, so none of their parts can be left out")
			}
			v.sight.Pictures = append(v.sight.Pictures, SightPicture{
				Hash: store.PictureHash(data), Width: info.Width, Height: info.Height, Divisions: divisionsOf(rendered.Grids[n], info.Width, info.Height),
			})
		}
	}
	if len(v.sight.Pictures) == 0 {
		return nil, fault.Invalid("answer", "%s", noPictures)
	}
	return v, nil
}

// Sight returns the pictures before an answer, and what it costs to see what counts in them for a token.
func (s *Service) Sight(ctx context.Context, who live.Principal, c *live.Chat, answer int64, token int) (*Sight, error) {
	if err := owned.Authorize(who, access.ActionRead, c.Object()); err != nil {
		return nil, err
	}
	v, err := s.readSight(ctx, who, c, answer)
	if err != nil {
		return nil, err
	}
	if err := v.checkToken(token); err != nil {
		return nil, err
	}
	tokens := v.tokensFor(token)
	for n, p := range v.sight.Pictures {
		for i := range p.Divisions {
			d := &p.Divisions[i]
			d.Prompts = d.Parts() + 1
			if known := s.looks.find(lookKey{v.key, n, d.step}); known != nil && known.tokens >= tokens {
				d.Prompts = missing(known)
			}
			d.Takes = s.looks.paceOf(v.pace(n, tokens)) * time.Duration(d.Prompts)
		}
	}
	return v.sight, nil
}

// missing returns how many prompts are still to be scored.
func missing(known *lookScores) (n int) {
	for _, part := range append(known.parts, known.whole) {
		if part == nil {
			n++
		}
	}
	return n
}

func (s *seen) checkToken(at int) error {
	if at < 0 || at >= len(s.answer.IDs) {
		return fault.Invalid("index", "the answer has no token %d: it has %d", at, len(s.answer.IDs))
	}
	return nil
}

// division returns the division of a Look.
func (s *seen) division(look Look) (d Division, err error) {
	if err := s.checkToken(look.Token); err != nil {
		return d, err
	}
	if look.Picture < 0 || look.Picture >= len(s.sight.Pictures) {
		return d, fault.Invalid("picture", "the prompt has no picture %d: it has %d", look.Picture, len(s.sight.Pictures))
	}
	list := s.sight.Pictures[look.Picture].Divisions
	if look.Division < 0 || look.Division >= len(list) {
		return d, fault.Invalid("division", "the picture has no division %d: it has %d", look.Division, len(list))
	}
	return list[look.Division], nil
}

// Looked returns what is known of a Look.
func (s *Service) Looked(ctx context.Context, who live.Principal, c *live.Chat, look Look) (*Looked, error) {
	if err := owned.Authorize(who, access.ActionRead, c.Object()); err != nil {
		return nil, err
	}
	v, err := s.readSight(ctx, who, c, look.Answer)
	if err != nil {
		return nil, err
	}
	return s.looked(v, look)
}

func (s *Service) looked(v *seen, look Look) (*Looked, error) {
	d, err := v.division(look)
	if err != nil {
		return nil, err
	}
	known := s.looks.find(lookKey{v.key, look.Picture, d.step})
	if known == nil || known.whole == nil || look.Token >= known.tokens {
		return nil, fault.Invalid("answer", notLooked)
	}
	out := &Looked{Division: d, Whole: float64(known.whole[look.Token])}
	for _, part := range known.parts {
		if part == nil {
			out.Without = append(out.Without, math.NaN())
		} else {
			out.Without = append(out.Without, float64(part[look.Token]))
		}
	}
	return out, nil
}

// Look scores the tokens of an answer without each part of a picture, but those that it knows already. report is called with how far
// that is, by one goroutine at a time. What is scored before ctx ends stays known.
func (s *Service) Look(ctx context.Context, who live.Principal, c *live.Chat, look Look, report func(LookProgress)) (*Looked, error) {
	if err := owned.Authorize(who, access.ActionAsk, c.Object()); err != nil {
		return nil, err
	}
	v, err := s.readSight(ctx, who, c, look.Answer)
	if err != nil {
		return nil, err
	}
	d, err := v.division(look)
	if err != nil {
		return nil, err
	}
	key, tokens := lookKey{v.key, look.Picture, d.step}, v.tokensFor(look.Token)
	known := s.looks.find(key)
	if known == nil || known.tokens < tokens {
		known = &lookScores{parts: make([][]float32, d.Parts())}
	} else {
		tokens = known.tokens
	}
	r := v.request
	r.PromptLogProb, r.Answered = true, v.answer.IDs[:tokens]
	ctx = activity.With(ctx, activity.Origin{Person: who.Owner, Chat: c.ID(), Replay: true})
	if known.whole == nil { // it loads model and tower, so that the times of the parts are those of parts
		scores, err := s.scoreAnswer(ctx, r, func(e infer.Event) { report(LookProgress{Event: e, Total: d.Parts()}) })
		if err != nil {
			return nil, err
		}
		s.looks.keep(key, d.Parts(), -1, scores)
	}
	var todo []int
	for i, part := range known.parts {
		if part == nil {
			todo = append(todo, i)
		}
	}
	done := d.Parts() - len(todo)
	if look.Parts > 0 {
		todo = todo[:min(look.Parts, len(todo))]
	}
	start := time.Now()
	var mu sync.Mutex
	scored := 0
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(looksAtOnce)
	for _, i := range todo {
		work.Go(func() error {
			r := r
			r.Sibling, r.LeftOut = i+1, d.part(look.Picture, i)
			scores, err := s.scoreAnswer(ctx, r, func(infer.Event) {})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			s.looks.keep(key, d.Parts(), i, scores)
			scored++
			each := time.Since(start) / time.Duration(scored)
			s.looks.learn(v.pace(look.Picture, tokens), each)
			report(LookProgress{Done: done + scored, Total: d.Parts(), Left: each * time.Duration(len(todo)-scored)})
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return s.looked(v, look)
}

// scoreAnswer returns the log probabilities of the tokens that r says are answered.
func (s *Service) scoreAnswer(ctx context.Context, r infer.Request, each func(infer.Event)) (scores []float32, err error) {
	err = s.chats.Contain(func() error {
		for e, err := range s.engine.Generate(ctx, r) {
			switch {
			case err != nil:
				return err
			case e.Token == nil:
				each(e)
			case e.Token.Prompt:
				scores = append(scores, float32(e.Token.LogProb))
			}
		}
		return nil
	})
	if err == nil && len(scores) != len(r.Answered) {
		err = fault.Errorf(fault.CodeInternal, "of %d tokens of the answer, the model scored %d", len(r.Answered), len(scores))
	}
	return scores, err
}
