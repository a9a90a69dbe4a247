package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// A draft model guesses the tokens of a larger one with the same vocabulary. It has a KV cache of its own, in which prompts
// are shared as in that of the model, and a context of its own: a sequence that is longer has no drafts. It reads the tokens of a sequence
// when it is asked for a draft, and takes the likeliest token of each row. What it has guessed wrong is overwritten.

// draftModel is the drafter of a draft model.
type draftModel struct {
	model   *openModel
	dev     device.Device
	forward forwarder
	plan    placement.Plan
	blocks  *blocks
	limits  limits
	vocab   int // tokens that the model has, too
	now     func() time.Time

	read  map[*sequence]*readTokens
	slots []*sequence // of recurrent state: sequence i has slots 2i and 2i+1; nil: the model has none
	batch device.Batch

	perToken, perUnread average
}

// readTokens is what a draft model has read of a sequence.
type readTokens struct {
	table   blockTable
	tokens  []int32 // whose K and V are in table; those of the last draft may be others than the sequence got
	slot    int32   // of the recurrent state after the first stateAt tokens; the next slot is for those of a draft
	stateAt int
}

// average is a moving average of times.
type average struct{ value time.Duration }

func (a *average) add(d time.Duration) {
	if a.value == 0 {
		a.value = d
	}
	a.value += (min(d, 4*a.value) - a.value) / 8
}

// draftShare is the part of a device's memory that the KV cache of a draft model takes, at most.
const draftShare = 8

// draftLimits returns the limits of steps of a draft model.
func (l *loop) draftLimits() limits {
	answers := min(l.options.Parallel, draftRows)
	return limits{Answers: answers, Rows: 256, Logits: answers}
}

// draftNeeds returns the memory of dev that the draft model m takes, with a context for that of the model next to it, which is trained on
// context positions.
func (l *loop) draftNeeds(m *openModel, dev device.Device, context int) (bytes int64, positions int, err error) {
	size, err := placement.DeviceOf(m.file, m.config, dev, l.cache, placement.StepLimits(l.draftLimits()))
	if err != nil {
		return 0, 0, err
	}
	sizes := placement.ModelOf(m.config, l.cache)
	block := size.Block
	for _, n := range sizes.Cache {
		block += n
	}
	if l.options.ContextLength > 0 {
		context = l.options.ContextLength
	}
	positions = min(context, m.config.ContextLength)
	if size.Memory > 0 {
		positions = min(positions, int(size.Memory/draftShare/max(1, block))*device.BlockSize)
	}
	blocks := int64(positions+device.BlockSize-1) / device.BlockSize
	state := int64(2*l.draftLimits().Answers) * m.config.StateLayout(1).Bytes()
	return size.Weights + size.Scratch + blocks*block + state, positions, nil
}

// draftsFor returns the draft model for m as the options say; nil: none. The caller releases it. why says why m has none that was asked for.
func (l *loop) draftsFor(m *openModel) (draft *openModel, why string) {
	if isDraftWord(l.options.Draft) || m.config.Embeds() {
		return nil, ""
	}
	draft, err := l.models.acquire(l.ctx, l.options.Draft, "")
	if err == nil {
		if err = draft.mayDraftFor(m); err == nil {
			return draft, ""
		}
		l.models.release(draft)
	}
	return nil, fmt.Sprintf("the model %s drafts no tokens: %s", l.options.Draft, fault.Of(fault.CodeModelFile, err).Message)
}

// mayDraftFor returns an error if m has not the tokens of target.
func (m *openModel) mayDraftFor(target *openModel) error {
	if m.config.Embeds() {
		return fmt.Errorf("it computes embeddings and writes no text")
	}
	if m.hash == target.hash {
		return fmt.Errorf("it is the model itself; name a smaller one")
	}
	a, b := m.tokenizer, target.tokenizer
	for id := range int32(min(a.VocabSize(), b.VocabSize())) {
		if got, want := string(a.Piece(id, true)), string(b.Piece(id, true)); got != want {
			return fmt.Errorf("its token %d is %q, that of %s is %q; a draft model needs the same vocabulary", id, got, target.info.Name, want)
		}
		if a.IsEnd(id) != b.IsEnd(id) {
			return fmt.Errorf("its token %d, %q, ends an answer in one of the two models alone; a draft model needs the same vocabulary", id, a.Piece(id, true))
		}
	}
	if n := min(a.VocabSize(), b.VocabSize()); a.VocabSize() != b.VocabSize() {
		longer := a
		if b.VocabSize() > n {
			longer = b
		}
		// Some families pad their larger models with tokens that nothing uses.
		for id := int32(n); int(id) < longer.VocabSize(); id++ {
			if piece := string(longer.Piece(id, true)); piece != "" && !strings.Contains(strings.ToLower(piece), "pad") && !strings.Contains(strings.ToLower(piece), "unused") {
				return fmt.Errorf("token %d, %q, is in one of the two models alone; a draft model needs the same vocabulary", id, piece)
			}
		}
	}
	return nil
}

// loadDrafts loads the draft model m on a device of its own, alongside target.
func (l *loop) loadDrafts(m *openModel, target *loadedModel) (d *draftModel, err error) {
	dev, err := l.options.OpenDevice(m.file)
	if err != nil {
		return nil, err
	}
	defer func() {
		if d == nil { // an error, or a panic
			l.close([]device.Device{dev})
		}
	}()
	_, context, err := l.draftNeeds(m, dev, target.plan.Context)
	if err != nil {
		return nil, err
	}
	steps := l.draftLimits()
	size, err := placement.DeviceOf(m.file, m.config, dev, l.cache, placement.StepLimits(steps))
	if err != nil {
		return nil, err
	}
	plan, err := placement.Place(placement.ModelOf(m.config, l.cache), []placement.Device{size}, placement.Limits{Context: context, Answers: 1, Rows: steps.Rows})
	if err != nil {
		return nil, err
	}
	states := 0
	if m.config.StateLayout(1).Bytes() > 0 {
		states = 2 * steps.Answers
	}
	forward, err := l.load(l.ctx, m.file, []model.Stage{{Device: dev, Layers: len(m.config.Layers)}}, model.Options{
		CacheType: l.cache, Blocks: plan.Blocks, States: states, MaxRows: steps.Rows, MaxOut: steps.Logits, Context: plan.Context, GroupBlocks: plan.GroupBlocks(),
	})
	if err != nil {
		return nil, err
	}
	var groups []groupSize
	for _, g := range plan.Groups {
		groups = append(groups, groupSize{g.Blocks, g.Window})
	}
	d = &draftModel{
		model: m, dev: dev, forward: forward, plan: plan, limits: steps, now: l.options.Now, read: map[*sequence]*readTokens{},
		blocks: newBlocks(device.BlockSize, steps.Rows, groups...), vocab: min(m.config.Vocab, target.model.config.Vocab),
	}
	if states > 0 {
		d.slots = make([]*sequence, steps.Answers)
	}
	return d, nil
}

// addDraftModel loads the draft model of the loaded model, if there is to be one. If that fails, the model has none, and its notice says why.
func (l *loop) addDraftModel(r *loadedModel, m *openModel, why string) {
	if m != nil {
		err := contain(l.options.Logger, func() error {
			return readable(m.file, func() (err error) {
				r.draft, err = l.loadDrafts(m, r)
				return err
			})
		})
		if err != nil {
			why = fmt.Sprintf("the model %s drafts no tokens: it cannot be loaded: %s", m.info.Name, err)
			l.models.release(m)
		} else {
			l.options.Logger.Info("draft model loaded", "model", m.info.Name, "context", r.draft.plan.Context)
		}
	}
	if why != "" {
		r.info.Notice = strings.TrimPrefix(r.info.Notice+"; "+why, "; ")
	}
}

func (d *draftModel) cost() (token, unread time.Duration) { return d.perToken.value, d.perUnread.value }

func (d *draftModel) unread(q *sequence) int {
	n := 0
	if r := d.read[q]; r != nil {
		n = commonPrefix(r.tokens, q.tokens)
	}
	return len(q.tokens) - n
}

func (d *draftModel) release(q *sequence) {
	r := d.read[q]
	if r == nil {
		return
	}
	d.blocks.close(&r.table, r.tokens)
	if d.slots != nil {
		d.slots[r.slot/2] = nil
	}
	delete(d.read, q)
}

// draft reads what is new of the sequences, and computes the likeliest tokens after them, one for all of asks in each step.
func (d *draftModel) draft(asks []*draftAsk) error {
	begin, unread := d.now(), 0
	live := slices.DeleteFunc(slices.Clone(asks), func(ask *draftAsk) bool { return ask.most == 0 || !d.prepare(ask) })
	live = live[:min(len(live), d.limits.Answers)]
	for _, ask := range live {
		unread += len(ask.seq.tokens) - len(d.read[ask.seq].tokens)
	}
	if err := d.readUp(live); err != nil {
		return err
	}
	between, drafted := d.now(), 0
	if unread > len(live)*draftRows {
		d.perUnread.add(between.Sub(begin) / time.Duration(unread))
		begin = between // reading a prompt is no part of a draft
	}
	for i := 1; len(live) > 0; i++ {
		drafted += len(live)
		live = slices.DeleteFunc(live, func(ask *draftAsk) bool { return len(ask.tokens) == 0 || i >= ask.most })
		if len(live) == 0 {
			break
		}
		d.begin()
		for _, ask := range live {
			r := d.read[ask.seq]
			r.tokens = append(r.tokens, ask.tokens[i-1])
			d.add(r, len(r.tokens)-1, len(r.tokens), true, r.slot+1)
		}
		if err := d.forwardBatch(); err != nil {
			return err
		}
		for at, ask := range live {
			if err := d.take(ask, at); err != nil {
				return err
			}
		}
	}
	if drafted > 0 {
		d.perToken.add(d.now().Sub(begin) / time.Duration(drafted))
	}
	return nil
}

// prepare gives ask memory for its tokens and its draft. It returns false if it can have none.
func (d *draftModel) prepare(ask *draftAsk) bool {
	q := ask.seq
	if len(q.pictures) > 0 || len(q.tokens)+ask.most > d.plan.Context || slices.ContainsFunc(q.tokens[d.readOf(q):], func(id int32) bool { return int(id) >= d.vocab }) {
		return false
	}
	r := d.read[q]
	if r == nil {
		slot := int32(noSlot)
		if d.slots != nil {
			i := slices.Index(d.slots, nil)
			if i < 0 {
				return false
			}
			slot = int32(2 * i)
		}
		reusable := len(q.tokens) - 1
		if d.slots != nil {
			reusable = 0
		}
		table, cached, ok := d.blocks.open(q.tokens, reusable, q.audience)
		if !ok {
			return false
		}
		r = &readTokens{table: table, tokens: slices.Clone(q.tokens[:cached]), slot: slot}
		if d.read[q] = r; d.slots != nil {
			d.slots[slot/2] = q
		}
	}
	// The row of the last token is always computed, for its logits.
	n := min(commonPrefix(r.tokens, q.tokens), len(q.tokens)-1)
	if d.slots != nil && n < r.stateAt {
		n = 0
	} else if d.slots != nil {
		n = r.stateAt
	}
	if n < len(r.tokens) {
		if kept := d.blocks.truncate(&r.table, n); kept < n && d.slots != nil {
			n = d.blocks.truncate(&r.table, 0)
		} else {
			n = kept
		}
		r.tokens = r.tokens[:n]
	}
	if !d.blocks.grow(&r.table, len(q.tokens), len(r.tokens)) {
		d.release(q)
		return false
	}
	ask.most = min(ask.most, 1+d.blocks.extra(&r.table, len(q.tokens), ask.most-1, len(r.tokens)))
	return true
}

// readOf returns how many of the first tokens of q were read.
func (d *draftModel) readOf(q *sequence) int {
	if r := d.read[q]; r != nil {
		return commonPrefix(r.tokens, q.tokens)
	}
	return 0
}

// readUp computes the rows of all tokens that are new, and takes the first token of each draft.
func (d *draftModel) readUp(asks []*draftAsk) error {
	for done := 0; done < len(asks); {
		d.begin()
		var ended []*draftAsk
		for _, ask := range asks {
			r, q := d.read[ask.seq], ask.seq
			from := len(r.tokens)
			to := min(len(q.tokens), from+d.limits.Rows-len(d.batch.Tokens))
			if from == to {
				continue
			}
			r.tokens = append(r.tokens, q.tokens[from:to]...)
			d.add(r, from, to, to == len(q.tokens), r.slot)
			if to == len(q.tokens) {
				ended = append(ended, ask)
			}
		}
		if err := d.forwardBatch(); err != nil {
			return err
		}
		for i, ask := range ended {
			if err := d.take(ask, i); err != nil {
				return err
			}
			r := d.read[ask.seq]
			d.blocks.commit(&r.table, r.tokens)
			if r.stateAt = len(r.tokens); d.slots != nil && ask.most > 1 {
				if err := d.forward.CopyState(r.slot+1, r.slot); err != nil {
					return err
				}
			}
		}
		done += len(ended)
	}
	return nil
}

// begin empties the batch.
func (d *draftModel) begin() {
	b := &d.batch
	b.Tokens, b.Pos, b.Seq, b.States, b.Out = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.States[:0], b.Out[:0]
	b.Tables = make([][][]int32, len(d.blocks.pools))
}

// add adds the rows of positions from to to-1 of r to the batch, with the logits of the last one if out is set.
func (d *draftModel) add(r *readTokens, from, to int, out bool, slot int32) {
	b := &d.batch
	seq := int32(len(b.States))
	for pos := from; pos < to; pos++ {
		b.Tokens, b.Pos, b.Seq = append(b.Tokens, r.tokens[pos]), append(b.Pos, int32(pos)), append(b.Seq, seq)
	}
	if out {
		b.Out = append(b.Out, int32(len(b.Tokens)-1))
	}
	for g, held := range r.table.groups {
		b.Tables[g] = append(b.Tables[g], held.ids)
	}
	b.States = append(b.States, slot)
}

// forwardBatch computes the batch.
func (d *draftModel) forwardBatch() error {
	return readable(d.model.file, func() error {
		t, err := d.forward.Submit(&d.batch)
		if err == nil {
			_, err = d.forward.Collect(t)
		}
		return err
	})
}

// take adds the likeliest token of row i of the logits to the draft of ask, unless the model lacks it.
func (d *draftModel) take(ask *draftAsk, i int) error {
	c, err := d.forward.Candidates(i)
	if err != nil {
		return err
	}
	id := likeliest(c)
	if id < 0 || int(id) >= d.vocab {
		ask.most = len(ask.tokens)
		return nil
	}
	ask.tokens = append(ask.tokens, id)
	return nil
}
