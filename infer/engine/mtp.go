package engine

import (
	"math"
	"slices"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/model"
)

// The multi-token prediction block of a file, a head (model.Head), guesses a token from the state of the model after the last token that was
// computed, and the token that follows it; and further ones from its own states. It reads pairs of them, of the last headPrompt tokens of a prompt
// and of the answer: the state of each position with the token after it. Its K and V at position i are those of pair i
// from the first one that it has read. Where states are missing, because a prefix was cached or steps were computed ahead, it
// begins again; that changes what it guesses, and no answer.

const (
	// headPrompt is how many tokens of a prompt a head reads at most. Reading all would take as long as a layer of the model does.
	headPrompt = 512

	// headContext is how many pairs a head has in its cache for each answer. It begins again when there are more.
	headContext = 2048

	// headRows is how many pairs a step of a head reads at most.
	headRows = 64
)

// headDrafter is the drafter of a head.
type headDrafter struct {
	head   *model.Head
	states func(dst []float32, first int) error // of the rows of the model's last step
	vocab  int
	now    func() time.Time

	read  map[*sequence]*readPairs
	slots []*sequence // each has the blocks of headContext pairs
	batch device.Batch
	input []float32

	perToken, perUnread average
}

// readPairs is what a head has read of a sequence.
type readPairs struct {
	slot   int
	first  int         // position of the first pair
	done   int         // pairs that were read
	states [][]float32 // of the positions after those
}

// end returns the first position whose state is not known.
func (r *readPairs) end() int { return r.first + r.done + len(r.states) }

// headed is a forwarder whose model may have a head.
type headed interface {
	Head() *model.Head
	States(dst []float32, first int) error
}

// headOptions returns the sizes of the head of m, without the format of its KV cache; zero: it has none, or drafts come from elsewhere.
func (l *loop) headOptions(m *openModel) (o model.HeadOptions, why string) {
	if d := l.options.Draft; d != DraftAuto && d != DraftMTP || m.config.Embeds() {
		return o, ""
	}
	if _, err := model.ReadHead(m.file); err != nil {
		if l.options.Draft == DraftMTP {
			why = "no tokens are drafted: " + err.Error()
		}
		return o, why
	}
	slots := min(l.options.Parallel, draftRows)
	return model.HeadOptions{Blocks: slots * headContext / device.BlockSize, MaxRows: headRows, MaxOut: slots}, ""
}

// headBytes returns what the head of m takes of the memory of dev; 0: there is none.
func (l *loop) headBytes(m *openModel, dev device.Device, o model.HeadOptions) int64 {
	if o.Blocks == 0 {
		return 0
	}
	c, err := model.ReadHead(m.file)
	if err != nil {
		return 0
	}
	bytes, err := model.HeadBytes(m.file, c, dev, o)
	if err != nil {
		return 0 // loading it reports it
	}
	return bytes + 4*int64(l.sched.limits.Rows)*int64(m.config.Dim)
}

// newHeadDrafter returns the drafter of the head of r; nil if it has none.
func (l *loop) newHeadDrafter(r *loadedModel, o model.HeadOptions) *headDrafter {
	f, ok := r.forward.(headed)
	if !ok || f.Head() == nil {
		return nil
	}
	return &headDrafter{
		head: f.Head(), states: f.States, vocab: r.model.config.Vocab, now: l.options.Now,
		read: map[*sequence]*readPairs{}, slots: make([]*sequence, o.Blocks*device.BlockSize/headContext),
	}
}

func (d *headDrafter) cost() (token, unread time.Duration) {
	return d.perToken.value, d.perUnread.value
}

func (d *headDrafter) unread(q *sequence) int {
	if r := d.read[q]; r != nil {
		return len(r.states)
	}
	return 0
}

func (d *headDrafter) release(q *sequence) {
	if r := d.read[q]; r != nil {
		d.slots[r.slot] = nil
		delete(d.read, q)
	}
}

// observe takes the states of n positions of q from position from on, whose rows are those of the model's last step from row on.
func (d *headDrafter) observe(q *sequence, from, row, n int) error {
	if late := q.prompt - headPrompt - from; late > 0 {
		from, row, n = from+late, row+late, n-late
	}
	n = min(n, len(q.tokens)-from)
	if n <= 0 {
		return nil
	}
	r := d.read[q]
	if r == nil {
		slot := slices.Index(d.slots, nil)
		if slot < 0 {
			return nil
		}
		r = &readPairs{slot: slot, first: from}
		d.read[q], d.slots[slot] = r, q
	}
	switch {
	case from < r.first || from > r.end():
		*r = readPairs{slot: r.slot, first: from}
	case from < r.first+r.done:
		r.done, r.states = from-r.first, nil
	default:
		r.states = r.states[:from-r.first-r.done]
	}
	dim := d.head.Dim()
	values := make([]float32, n*dim)
	if err := d.states(values, row); err != nil {
		return err
	}
	for i := range n {
		r.states = append(r.states, values[i*dim:(i+1)*dim:(i+1)*dim])
	}
	if more := len(r.states) - headPrompt; more > 0 {
		*r = readPairs{slot: r.slot, first: r.first + r.done + more, states: slices.Clone(r.states[more:])}
	}
	return nil
}

// draft reads the pairs that are new, and guesses one token for all of asks in each step.
func (d *headDrafter) draft(asks []*draftAsk) error {
	begin := d.now()
	var live []*draftAsk
	unread := 0
	for _, ask := range asks {
		r, q := d.read[ask.seq], ask.seq
		if r == nil || ask.most <= 0 || r.end() < len(q.tokens)-1 {
			continue
		}
		if more := r.end() - (len(q.tokens) - 1); more > 0 { // the last tokens were retracted
			if more >= len(r.states) {
				continue
			}
			r.states = r.states[:len(r.states)-more]
		}
		if len(r.states) == 0 {
			continue
		}
		if r.done+len(r.states)+ask.most > headContext {
			r.first, r.done = r.first+r.done, 0
		}
		unread += len(r.states)
		live = append(live, ask)
	}
	live = live[:min(len(live), d.head.MaxOut())]
	last, err := d.readUp(live)
	if err != nil {
		return err
	}
	if between := d.now(); unread > len(live)*draftRows {
		d.perUnread.add(between.Sub(begin) / time.Duration(unread))
		begin = between // reading a prompt is no part of a draft
	}
	drafted := 0
	for i := 1; len(live) > 0; i++ {
		drafted += len(live)
		var next []*draftAsk
		var states [][]float32
		for at, ask := range live {
			if len(ask.tokens) == i && i < ask.most {
				next, states = append(next, ask), append(states, last[at])
			}
		}
		if live = next; len(live) == 0 {
			break
		}
		d.begin()
		for at, ask := range live {
			r := d.read[ask.seq]
			d.add(r, r.done+i-1, ask.tokens[i-1:i], states[at:at+1], true)
		}
		if last, err = d.forward(live); err != nil {
			return err
		}
	}
	if drafted > 0 {
		d.perToken.add(d.now().Sub(begin) / time.Duration(drafted))
	}
	return nil
}

// readUp reads the pairs that are new, and takes the first token of each draft. It returns the state of the head after each.
func (d *headDrafter) readUp(asks []*draftAsk) (last [][]float32, err error) {
	last = make([][]float32, len(asks))
	for done := 0; done < len(asks); {
		d.begin()
		var ended []*draftAsk
		var at []int
		for i, ask := range asks {
			r, q := d.read[ask.seq], ask.seq
			n := min(len(r.states), d.head.MaxRows()-len(d.batch.Tokens))
			if n == 0 {
				continue
			}
			from := r.first + r.done
			d.add(r, r.done, q.tokens[from+1:from+1+n], r.states[:n], n == len(r.states))
			r.states, r.done = r.states[n:], r.done+n
			if len(r.states) == 0 {
				ended, at = append(ended, ask), append(at, i)
			}
		}
		states, err := d.forward(ended)
		if err != nil {
			return nil, err
		}
		for k, i := range at {
			last[i] = states[k]
		}
		done += len(ended)
	}
	return last, nil
}

// begin empties the batch.
func (d *headDrafter) begin() {
	b := &d.batch
	b.Tokens, b.Pos, b.Seq, b.States, b.Out, b.Tables = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.States[:0], b.Out[:0], [][][]int32{nil}
	d.input = d.input[:0]
}

// add adds pairs of states and tokens of r, the first of which is pair from, to the batch, with the logits of the last one if out is set.
func (d *headDrafter) add(r *readPairs, from int, tokens []int32, states [][]float32, out bool) {
	b := &d.batch
	seq := int32(len(b.Tables[0]))
	for i, id := range tokens {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, id), append(b.Pos, int32(from+i)), append(b.Seq, seq)
		d.input = append(d.input, states[i]...)
	}
	if out {
		b.Out = append(b.Out, int32(len(b.Tokens)-1))
	}
	table := make([]int32, headContext/device.BlockSize)
	for i := range table {
		table[i] = int32(r.slot*len(table) + i)
	}
	b.Tables[0], b.States = append(b.Tables[0], table), append(b.States, 0)
}

// forward computes the batch, adds a token to the draft of each of asks, those with logits, and returns the states after them.
func (d *headDrafter) forward(asks []*draftAsk) (states [][]float32, err error) {
	if err := d.head.Forward(&d.batch, d.input); err != nil {
		return nil, err
	}
	for i, ask := range asks {
		c, err := d.head.Candidates(i)
		if err != nil {
			return nil, err
		}
		if id := likeliest(c); id >= 0 {
			ask.tokens = append(ask.tokens, id)
		}
		state := make([]float32, d.head.Dim())
		if err := d.head.State(state, i); err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, nil
}

// likeliest returns the likeliest token of a row; -1 if its logits are not finite.
func likeliest(c device.Candidates) int32 {
	if c.All == nil {
		if len(c.IDs) == 0 || c.Bad >= 0 {
			return -1
		}
		return c.IDs[0]
	}
	id, best := int32(-1), float32(math.Inf(-1))
	for k, v := range c.All {
		if v > best {
			best, id = v, int32(k)
		}
	}
	return id
}
