package engine

import (
	"slices"
	"strings"
	"time"

	"m40-llm/infer/record"
)

// Drafts: speculative decoding. A drafter guesses tokens that may follow a sequence. A step computes rows for them too,
// and each row is sampled as if it were alone in a step of its own, with the answer's chain and the random numbers of its
// position. As long as the token that is drawn is the drafted one, the row after it is that of the next token; from the
// first other token on, rows count for nothing, and the next step overwrites their K and V. A recurrent state is set back to what it
// was before the step, and the rows that count are computed again with the next one. So an answer is the same with
// drafts and without, to the bits of its log-probabilities.
//
// There are several ways to draft: lookup.go, mtp.go, draftmodel.go. Which of them drafts how many tokens of an answer, if any,
// follows from what they gain: see choose. Rows for drafts are added to steps with few rows, which cost little more than one
// on a device that is limited by reading weights. So with many answers at once none are drafted.

// way is a way to draft.
type way int

const (
	wayNone way = iota
	wayLookup
	wayMTP
	wayModel
	ways // number of ways
)

const (
	// maxDraft is the most tokens of a draft.
	maxDraft = 8

	// draftRows is how many rows a step has at most if some of them are for drafts. On a CPU more rows cost
	// nearly as much for each token as steps without drafts do.
	draftRows = 1 + maxDraft
)

// drafter guesses the next tokens of sequences, in one way.
type drafter interface {
	// draft sets the tokens of each of asks. Their sequences are as they were in the call before, except that some tokens
	// at the end may have been replaced and some added.
	draft(asks []*draftAsk) error

	// cost returns in what time one token of a draft is computed, alongside others, and a token of a sequence that the drafter has not
	// read yet; 0: not known.
	cost() (token, unread time.Duration)

	// unread returns how many tokens of q the drafter has to read before it can draft.
	unread(q *sequence) int

	// release forgets q, which has ended or lost its memory.
	release(q *sequence)
}

// draftAsk asks a drafter for at most most tokens that follow those of seq.
type draftAsk struct {
	seq    *sequence
	most   int
	tokens []int32
	part   int // of the plan
}

// drafts is what drafts the next tokens of one sequence, and what came of it.
type drafts struct {
	end      int // tokens that the sequence has at most
	expects  int // tokens that its answer is expected to have
	lookup   *lookup
	names    [ways]string // of ways
	mayAsk   [ways]bool   // ways that may be used, but for lookup
	isForced bool         // whether there are drafts whatever they cost
	ends     func(draft []int32) []int32

	rates  [ways]rate
	idle   int           // tokens since a draft was last made, of a way that costs time
	shadow []int32       // a draft that was made to learn how often it is right, without rows
	from   int           // tokens that the sequence had then
	by     way           // of the shadow
	steps  time.Duration // in which the answer had steps
	gained time.Duration // that it would have had more without drafts; below 0: less

	drafted, accepted [ways]int // tokens: computed in rows of their own, and used
}

// newDrafts returns drafts of a sequence that has at most end tokens.
func newDrafts(end int) *drafts { return &drafts{end: end} }

// record returns the counts.
func (d *drafts) record() (r record.Lookup) {
	var by []string
	for w := range ways {
		r.Drafted += d.drafted[w]
		r.Accepted += d.accepted[w]
		if d.drafted[w] > 0 {
			by = append(by, d.names[w])
		}
	}
	r.By = strings.Join(by, ", ")
	if r.Drafted > 0 && d.steps > 0 {
		r.Gain = max(0, float64(d.steps+d.gained)/float64(d.steps))
	}
	return r
}

// room returns how many tokens of a draft are worth a row, of at most most.
func (d *drafts) room(tokens, most int) int { return max(0, min(most, maxDraft, d.end-tokens-1)) } // the row before the draft gives a token too

// learn compares the last shadow with what followed.
func (d *drafts) learn(tokens []int32, all *[ways]rate) {
	if d.shadow == nil || len(tokens) == d.from {
		return
	}
	for i, id := range tokens[min(d.from, len(tokens)):] {
		if i == len(d.shadow) {
			break
		}
		right := id == d.shadow[i]
		d.count(d.by, right, all)
		if !right {
			break
		}
	}
	d.shadow = nil
}

// count records whether a drafted token was right.
func (d *drafts) count(w way, right bool, all *[ways]rate) {
	d.rates[w].count(right, 1.0/16)
	all[w].count(right, 1.0/128)
}

// addDrafts adds rows for drafts to a step. They take no rows from others, and no memory that is held by
// another sequence or reserved for one.
func (s *scheduler) addDrafts(plan []scheduled) {
	left, rows := min(draftRows, s.limits.Rows, s.limits.Logits), 0
	for _, part := range plan {
		rows += part.rows
	}
	left -= rows
	var asks [ways][]*draftAsk
	answers := len(plan)
	for i := range plan {
		q := plan[i].seq
		d := q.drafts
		if d == nil || !q.decodes() || len(q.tokens) == q.prompt { // the first token is not to wait for a draft
			continue
		}
		d.learn(q.tokens, &s.rates)
		most := s.undoable(q, d.room(len(q.tokens), left/(len(plan)-i)))
		found := d.lookUp(q.tokens, most, &s.rates)
		by, n, isShadow := s.choose(q, answers, rows, most, len(found))
		switch {
		case by == wayLookup:
			s.give(&plan[i], by, found[:n])
			n = len(plan[i].draft)
		case by != wayNone:
			ask := &draftAsk{seq: q, most: n, part: i}
			if isShadow {
				d.by, d.from, ask.part, n = by, len(q.tokens), -1, 0
			}
			asks[by] = append(asks[by], ask)
		}
		rows += n
		left -= n
	}
	for w, list := range asks {
		s.ask(way(w), list, plan)
	}
}

// ask asks the drafter of a way, and adds its drafts to plan.
func (s *scheduler) ask(by way, asks []*draftAsk, plan []scheduled) {
	if len(asks) == 0 {
		return
	}
	if err := s.drafters[by].draft(asks); err != nil {
		s.draftFailed(by, err)
		return
	}
	for _, ask := range asks {
		if d := ask.seq.drafts; ask.part < 0 {
			d.shadow, d.idle = ask.tokens, 0
		} else {
			d.idle = 0
			s.give(&plan[ask.part], by, ask.tokens)
		}
	}
}

// give makes draft the draft of a part, as far as there is memory for its rows and its answer could have its tokens.
func (s *scheduler) give(part *scheduled, by way, draft []int32) {
	q := part.seq
	if q.drafts.ends != nil {
		draft = q.drafts.ends(draft)
	}
	part.draft, part.by = draft[:s.blocks.extra(&q.table, len(q.tokens), len(draft), q.computed)], by
	if s.states != nil && len(part.draft) > 0 {
		s.keepState(q)
	}
	q.drafts.drafted[by] += len(part.draft)
}

// accept records that the first n tokens of the draft of part were drawn, so that their K and V count, and releases
// the memory of the others. The sequence has its new tokens; if some were retracted, it is rewound
// afterwards.
func (s *scheduler) accept(part scheduled, n int) {
	q := part.seq
	q.drafts.accepted[part.by] += n
	if part.by != wayLookup { // which learns by itself
		for range n {
			q.drafts.count(part.by, true, &s.rates)
		}
		if n < len(part.draft) {
			q.drafts.count(part.by, false, &s.rates)
		}
	}
	s.sharing.accepted(n)
	if s.states != nil && n < len(part.draft) {
		if len(q.tokens) > part.from {
			s.undo(q, part.from)
		}
		return
	}
	if q.computed += n; q.computed > len(q.tokens) {
		return
	}
	s.saveState(q)
	s.blocks.commit(&q.table, q.ids(q.computed))
	s.blocks.cut(&q.table, len(q.tokens))
	s.blocks.reserve(&q.table, len(q.tokens)) // what was taken for the draft instead
}

// undoable returns how many tokens, at most most, may be drafted for q so that its recurrent state can be set back. A draft ends where
// a snapshot is due, and other sequences have slots first.
func (s *scheduler) undoable(q *sequence, most int) int {
	if s.states == nil || most <= 0 {
		return most
	}
	if len(s.waiting) > 0 || s.limits.Rows < s.limits.Answers+maxDraft || slices.ContainsFunc(s.blocks.pools, func(p *pool) bool { return p.window > 0 }) || q.spare == noSlot && s.states.idle() < 3 {
		s.releaseSpare(q)
		return 0
	}
	size := s.states.block
	return min(most, (size-len(q.tokens)%size)%size)
}

// keepState keeps the recurrent state of q as it is before the next step.
func (s *scheduler) keepState(q *sequence) {
	if q.spare == noSlot {
		q.spare = s.states.take(noSlot)
	}
	s.states.copies = append(s.states.copies, stateCopy{q.spare, q.slot})
}

// undo sets q back to its first tokens, those before the last step: what the step computed of its recurrent state is after
// a wrong draft. The next step computes the tokens again, to the same bits. If the draft of that is wrong, too, all of them are computed once
// more, until no rows are left for a draft.
func (s *scheduler) undo(q *sequence, tokens int) {
	s.states.copies = append(s.states.copies, stateCopy{q.slot, q.spare})
	s.blocks.cut(&q.table, len(q.tokens))
	s.blocks.reserve(&q.table, len(q.tokens))
	q.computed = tokens
	q.again = q.missing()
}

// releaseSpare frees the slot with the state of q before its last draft.
func (s *scheduler) releaseSpare(q *sequence) {
	if q.spare != noSlot {
		s.states.release(q.spare)
		q.spare = noSlot
	}
}

// forgetDrafts releases what drafters hold of q.
func (s *scheduler) forgetDrafts(q *sequence) {
	for _, d := range s.drafters {
		if d != nil {
			d.release(q)
		}
	}
}

// draftFailed stops the drafts of a way whose device failed. Answers go on without them.
func (s *scheduler) draftFailed(by way, err error) {
	s.drafters[by], s.draftErr = nil, err
}

// draftsDue reports whether a draft for q, in a step of so many answers, would not be empty, so that it is worth more than a step ahead.
func (s *scheduler) draftsDue(q *sequence, answers int) bool {
	d := q.drafts
	d.learn(q.tokens, &s.rates)
	found := 0
	if d.lookUp(q.tokens, 0, &s.rates); d.lookup != nil && d.lookup.at > 0 {
		found = d.lookup.trust
	}
	most := min(draftRows-answers, s.limits.Rows-answers, s.limits.Logits-answers) / max(1, answers)
	by, n, _ := s.choose(q, answers, answers, d.room(len(q.tokens), most), d.room(len(q.tokens), min(found, most)))
	return by != wayNone && n > 0
}

// fitDrafts decides what may draft the next tokens of a: what its request says, or else the options, or else what gains.
func (l *loop) fitDrafts(a *answer) {
	before := a.drafts // of another model, or of the time before a restart
	if a.drafts = nil; !a.kind.drafts() {
		return
	}
	d := newDrafts(a.prompt + a.limit)
	d.expects = l.lengths.expected(a.limit)
	if l.looksUp(a) {
		d.lookup = newLookup(d.end)
	}
	d.isForced = l.options.Draft != DraftAuto || a.request.PromptLookup != nil && *a.request.PromptLookup
	d.names[wayLookup], d.names[wayMTP] = DraftLookup, DraftMTP
	some := d.lookup != nil
	for w, drafter := range l.sched.drafters {
		if drafter != nil && (a.request.PromptLookup == nil || !*a.request.PromptLookup) {
			d.mayAsk[w], some = true, true
		}
	}
	if l.loaded.draft != nil {
		d.names[wayModel] = l.loaded.draft.model.info.Name
	}
	if !some {
		return
	}
	if d.mayAsk[wayMTP] {
		a.proposal = nil // the head needs the states of all steps
	}
	d.ends = a.draftEnd
	if a.drafts = d; before != nil {
		d.drafted, d.accepted = before.drafted, before.accepted
	}
}

// looksUp reports whether the next tokens of a are drafted by prompt lookup: if its request says so, or else the
// options, or else where it was measured to gain.
func (l *loop) looksUp(a *answer) bool {
	switch on := a.request.PromptLookup; {
	case on != nil:
		return *on
	case l.options.Draft != DraftAuto && l.options.Draft != "":
		return l.options.Draft == DraftLookup
	}
	return l.loaded.info.Drafts
}

// draftEnd returns draft up to the first token that cannot follow: that the grammar of the answer does not allow, or that
// ends the answer, which the row before it shows.
func (a *answer) draftEnd(draft []int32) []int32 {
	if !a.request.IgnoreEOS {
		if i := slices.IndexFunc(draft, a.model.tokenizer.IsEnd); i >= 0 {
			draft = draft[:i]
		}
	}
	return draft[:a.constraint.admits(a.length(), draft)]
}
