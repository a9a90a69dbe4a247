package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/repetition"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/store"
)

// runningAnswer is the answer of a chat that is being written, and the last one while it has to be stored.
type runningAnswer struct {
	run     *run    // nil: none
	unsaved *ending // of the last answer, while the store has not taken it; nil: it has
}

// ending is the end of an answer that the store has not taken yet.
type ending struct {
	message int64
	finish  store.Finish
}

// run is an answer being written, of a chat or of a contact sheet. Its clock fields are the state of the
// phases. Who has the lock of the chat or the sheet may use it.
type run struct {
	service   *Service
	publish   func(Event) // reports each change of the answer
	turn      *turn
	base      Answer // what it had when it began: nothing, unless it is continued
	cancel    context.CancelFunc
	done      chan struct{} // closed when it has ended and is stored
	writer    int64         // whose message it answers; 0: the owner's
	stopped   bool
	settled   bool // the engine has reported how it ended
	repeats   *repetition.Finder
	pace      record.Pace
	arguments strings.Builder // of the call with which the answer ends
	warned    bool            // the answer was paused for the repetition that it is in, or was continued in it
	started   time.Time
	phase     infer.EventType // of the event seen last
	since     time.Time       // when the phase began
	first     time.Time       // first token of this run; zero before it
}

// stop ends the answer on behalf of a person.
func (r *run) stop() {
	r.stopped = true
	r.cancel()
}

// conflict is the error of a command that does not fit while the answer is written.
func (r *run) conflict(command string) error {
	return &owned.Conflict{Command: command, State: string(r.turn.Answer.State), Answer: r.turn.ID}
}

// newRun returns a run that begins now to write t, or to write on in it. cancel ends it.
func (s *Service) newRun(t *turn, publish func(Event), cancel context.CancelFunc) *run {
	now := s.opt.Now()
	r := &run{service: s, publish: publish, turn: t, base: *t.Answer, cancel: cancel, done: make(chan struct{}), started: now, since: now, repeats: repetition.New(t.ids)}
	r.warned = r.repeats.Repeated() > 0
	if t.Answer.Pace != nil {
		r.pace = t.Answer.Pace.Clone()
	}
	return r
}

// newAnswer returns an answer that is not written yet.
func (c *Chat) newAnswer(system string, s setting.Settings) *turn {
	if s.Seed < 0 {
		s.Seed = c.service.opt.Seed()
	}
	status := c.service.engine.Status()
	a := &Answer{State: Waiting, Settings: s}
	a.System, a.Context = system, status.ContextLength
	a.Receipt.Model, a.Receipt.Device = status.Model.Name, status.Device.Name
	if c.metadata.Model != "" && c.metadata.Model != status.Model.Name {
		a.Receipt.Model, a.Context = c.metadata.Model, status.Context(c.metadata.Model) // 0: it is still to be loaded
		if loaded := status.Of(c.metadata.Model); loaded != nil {
			a.Receipt.Device = loaded.Device.Name
		}
		if remote := status.RemoteModel(c.metadata.Model); remote != nil {
			a.Receipt.Device = remote.Upstream.Servers[0]
		}
	}
	a.Settings.LogitBias = s.BiasFor(a.Receipt.Model)
	return &turn{Message: Message{Role: RoleModel, Answer: a}}
}

// begin starts to write t, the end of the branch. If it has text, it is written on.
func (c *Chat) begin(t *turn) {
	svc, a := c.service, t.Answer
	request := c.request(c.branch[:len(c.branch)-1], t.request(), a.System)
	if request.Continue && a.Prefix+a.ReasoningPrefix == 0 {
		request.ContinuedTokens = t.ids[:len(t.ids):len(t.ids)]
	}
	a.Settings.Apply(&request)
	if request.ReasoningBudget != nil { // the continued tokens have used a part of it
		request.ReasoningBudget = new(max(0, *request.ReasoningBudget-len(t.ids)))
	}
	request.Rows, request.KVFile = true, c.kvFile()
	for _, end := range a.Receipt.BannedEnds {
		if end >= len(t.ids) {
			request.BannedEnds = append(request.BannedEnds, end-len(t.ids))
		}
	}
	if t.rows.list == nil {
		t.rows = tokenRows{first: len(t.ids)}
	}
	ctx, cancel := context.WithCancel(activity.With(svc.ctx, activity.Origin{Person: c.owner, Chat: c.id}))
	r := svc.newRun(t, c.publish, cancel)
	c.answer.run, c.replays.last = r, nil
	c.changed()
	svc.wg.Go(func() {
		defer close(r.done)
		defer cancel()
		err := svc.loadPictures(ctx, c.owner, c.id, &request)
		if err == nil {
			err = r.generate(ctx, &c.mu, request)
		}
		c.finish(r, err)
	})
}

// request asks for what follows turns, and the answer that is continued
// already. It has hashes in place of pictures: see loadPictures. In a raw chat that is one text: nothing is between the turns.
func (c *Chat) request(turns []*turn, continued chat.Message, system string) infer.Request {
	if c.metadata.Raw {
		var text strings.Builder
		for _, t := range turns {
			text.WriteString(t.Text)
			text.WriteString(t.text.String())
		}
		text.WriteString(continued.Content)
		return infer.Request{Model: c.metadata.Model, Client: c.owner, CacheScope: c.owner, Prompt: text.String()}
	}
	r := infer.Request{Model: c.metadata.Model, Client: c.owner, CacheScope: c.owner, Messages: history(turns, system), ParseReply: true}
	if continued.Content+continued.ReasoningContent != "" {
		r.Continue = true
		r.Messages = append(r.Messages, continued)
	}
	return r
}

// answerMessage is an answer as the engine gets it.
func answerMessage(reasoning, text string) chat.Message {
	return chat.Message{Role: "assistant", Content: text, ReasoningContent: reasoning}
}

// history is a conversation as the engine gets it. A question whose answer ended before
// its first word is left out with it: templates want turns to alternate.
func history(turns []*turn, system string) []chat.Message {
	var out []chat.Message
	if strings.TrimSpace(system) != "" {
		out = append(out, chat.Message{Role: "system", Content: system})
	}
	for i, t := range turns {
		if t.Role == RoleModel {
			m, call := t.request(), withResult(turns, i)
			if call != nil {
				m.ToolCalls = calls(call)
			}
			if t.length() > 0 || call != nil {
				out = append(out, m)
			}
			continue
		}
		if call := withResult(turns, i-1); call != nil {
			out = append(out, result(call, t.Text))
			continue
		}
		last := i == len(turns)-1
		if last || turns[i+1].length() > 0 || withResult(turns, i+1) != nil {
			out = append(out, attached.Message(t.Text, t.Pictures))
		}
	}
	return out
}

// generate applies the engine's events, each with the lock of what has the answer. A panic on the way
// ends this answer, not the server.
func (r *run) generate(ctx context.Context, lock sync.Locker, request infer.Request) error {
	return r.service.Contain(func() error {
		for e, err := range r.service.engine.Generate(ctx, request) {
			if err != nil {
				return err
			}
			r.take(lock, e)
		}
		return nil
	})
}

func (r *run) take(lock sync.Locker, e infer.Event) {
	lock.Lock()
	defer lock.Unlock()
	r.apply(e)
}

// Contain turns a panic of f into an error.
func (s *Service) Contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.opt.Log.Error("an answer panicked", "panic", p, "stack", string(debug.Stack()))
			err = &fault.Error{Code: fault.CodeInternal, Message: "the engine failed inside; the server's log says where"}
		}
	}()
	return f()
}

// apply takes one event of the engine.
func (r *run) apply(e infer.Event) {
	a := r.turn.Answer
	if e.IsNote() {
		if e.Prompt != nil {
			a.Notes = e.Prompt.Notes
		}
		return
	}
	now := r.service.opt.Now()
	r.enter(e.Type, now)
	switch {
	case e.Token != nil && !e.Token.Prompt:
		if a.State == Waiting {
			r.first = now
			a.State, a.Progress = Writing, nil
			if r.base.Usage.CompletionTokens == 0 {
				a.Timings.First = now.Sub(r.started)
			}
		}
		a.Usage.CompletionTokens++
		r.addToken(e.Token)
		a.Timings.Decode = r.base.Timings.Decode + now.Sub(r.first)
		r.pace.Add(a.Timings.Decode)
		r.write(e.Token.Text, e.Token.Reasoning)
		r.call(e.Token.Calls)
	case e.Done != nil:
		if e.Done.Text+e.Done.Reasoning != "" {
			r.write(e.Done.Text, e.Done.Reasoning)
		}
		r.call(e.Done.Calls)
		r.settle(e.Done, r.service.engine.Status())
	case e.Pictures != nil:
		r.wait(now, Progress{Pictures: e.Pictures})
	case e.Queued != nil:
		r.wait(now, Progress{Queued: e.Queued})
	case e.Loading != nil:
		r.wait(now, Progress{Loading: e.Loading})
	case e.Prefill != nil:
		r.prompted(e.Prefill.Total, e.Prefill.Cached)
		r.wait(now, Progress{Prefill: e.Prefill})
	}
}

// addToken adds a token to those of the answer. Where the engine does not say which token it is, the answer
// has none.
func (r *run) addToken(t *infer.Token) {
	a := r.turn.Answer
	if t.LogProb < 0 || t.ID >= 0 {
		a.LogProb += t.LogProb
		a.Scored++
	}
	if t.ID < 0 {
		return
	}
	r.turn.ids = append(r.turn.ids, t.ID)
	r.checkRepetition(t.ID)
	r.turn.rows.add(store.TokenRow{Row: t.Row, Changed: t.Changed})
}

// checkRepetition records whether the answer repeats itself, and pauses it if the settings say so.
func (r *run) checkRepetition(id int32) {
	a := r.turn.Answer
	r.repeats.Add(id)
	a.Repeated = r.repeats.Repeated()
	switch {
	case a.Repeated == 0:
		r.warned = false
	case !r.warned && a.Settings.PauseRepetition != 0:
		r.warned, a.Reason = true, infer.FinishRepetition
		r.stop()
	}
}

// enter records the time of the phase that ended, if e begins another.
func (r *run) enter(phase infer.EventType, now time.Time) {
	if phase == r.phase {
		return
	}
	t, passed := &r.turn.Answer.Timings, now.Sub(r.since)
	switch r.phase {
	case infer.EventQueued, "":
		t.Queue += passed
	case infer.EventLoading:
		t.Load += passed
	case infer.EventPictures, infer.EventPrefill:
		t.Prefill += passed
	}
	r.phase, r.since = phase, now
}

func (r *run) wait(now time.Time, p Progress) {
	p.For = now.Sub(r.since)
	r.turn.Answer.Progress = &p
	r.publish(Event{Type: EventProgress, ID: r.turn.ID, Progress: &p})
}

// write adds what a token spelled, which may be nothing, and then every block that it
// finished. The reasoning is a block that ends where the text goes on.
func (r *run) write(text, reasoning string) {
	t := r.turn
	a := t.Answer
	if reasoning != "" {
		if !a.Thinking && t.reasoning.Len() > 0 {
			reasoning = "\n\n" + reasoning // the model reasons again, after its text
		}
		a.Thinking = true
		t.reasoning.WriteString(reasoning)
	}
	grown := Event{Type: EventText, ID: t.ID, Reasoning: reasoning, Thinking: a.Thinking, Tokens: a.Usage.CompletionTokens, Repeated: a.Repeated, Decode: a.Timings.Decode, FirstToken: a.Timings.First, Row: t.rows.last()}
	if text == "" || reasoning != "" {
		r.publish(grown)
	}
	if text == "" {
		return
	}
	if a.Thinking {
		a.Thinking = false
		r.publish(Event{Type: EventBlock, ID: t.ID, Reasoning: t.reasoning.String(), Thinking: true})
	}
	t.text.WriteString(text)
	grown.Text, grown.Reasoning, grown.Thinking = text, "", false
	r.publish(grown)
	whole := t.text.String()
	for {
		begin := t.split.Open()
		end := t.split.Next(whole)
		if end == 0 {
			return
		}
		a.Blocks = end
		r.publish(Event{Type: EventBlock, ID: t.ID, Text: whole[begin:end]})
	}
}

// prompted records the size of the prompt. A continued answer keeps that of its beginning: the
// engine's prompt has what is among its tokens already.
func (r *run) prompted(total, cached int) {
	if u := &r.turn.Answer.Usage; r.base.Usage.CompletionTokens == 0 {
		u.PromptTokens, u.CachedTokens = total, cached
	}
}

// settle records what the engine reports at the end.
func (r *run) settle(d *infer.Done, status infer.Status) {
	r.settled = true
	a := r.turn.Answer
	first, model, device := a.Timings.First, a.Receipt.Model, a.Receipt.Device
	repeated, ends, pace := a.Repeated, a.Receipt.BannedEnds, a.Pace // those of the engine are counted from where it went on
	a.Answer.Answer = r.base.Answer.Answer.Then(d.Answer)
	a.Timings.First, a.Repeated, a.Receipt.BannedEnds, a.Pace = first, repeated, ends, pace
	a.Receipt.Model, a.Receipt.Device = cmp.Or(a.Receipt.Model, model), cmp.Or(a.Receipt.Device, device)
	a.Settings.Seed = d.Receipt.Params.Seed
	if a.Context == 0 {
		a.Context = status.Context(a.Receipt.Model)
	}
}

// finish ends an answer as the engine did, stores it, and publishes the end.
func (c *Chat) finish(r *run, err error) {
	defer c.mustExclude()()
	t := r.turn
	a := t.Answer
	// The end is published when it is stored: until then readers see an answer that runs.
	state, failure := r.verdict(err)
	if len(r.pace.Tokens) > 0 {
		a.Pace = &r.pace
	}
	end := t.end(state, failure)
	if err := end.Check(); err != nil {
		c.service.opt.Log.Error("an answer cannot be stored as the engine made it", "chat", c.id, "error", err)
		t.dropFigures(r.base)
		end = t.end(state, failure)
	}
	if err := end.Check(); err != nil {
		t.strip(r.base)
		state, failure = Failed, &fault.Error{Code: fault.CodeInternal, Message: fmt.Sprintf("the engine made what cannot be stored: %v; the text is kept as far as it can be", err)}
		end = t.end(state, failure)
	}
	c.answer.unsaved = &ending{t.ID, end}
	if err := c.settleEnding(); err != nil {
		c.service.opt.Log.Error("an answer could not be stored; this is tried again", "chat", c.id, "error", err)
	}
	thinking := a.Thinking
	a.State, a.Error, a.Progress, a.Thinking = state, failure, nil, false
	c.answer.run = nil
	m := t.message()
	c.publish(Event{Type: EventEnd, ID: m.ID, Message: &m, Thinking: thinking, Row: t.rows.last()})
	t.rows = tokenRows{}
	if c.metadata.Model == "" && a.State == Done { // no model was loaded when it was asked
		c.setModel(a.Receipt.Model)
	}
	c.changed()
}

// verdict says how an answer has ended.
func (r *run) verdict(err error) (AnswerState, *fault.Error) {
	known, isKnown := errors.AsType[*fault.Error](err)
	switch {
	case r.settled:
		return Done, nil
	case !r.stopped && r.service.ctx.Err() != nil && errors.Is(err, context.Canceled):
		return Interrupted, nil
	case errors.Is(err, activity.ErrStoppedByOwner):
		return Stopped, known
	case r.stopped, errors.Is(err, context.Canceled), errors.Is(err, activity.ErrStopped):
		return Stopped, nil
	case isKnown:
		return Failed, known
	case err != nil:
		r.service.opt.Log.Error("an answer failed", "error", err)
		return Failed, &fault.Error{Code: fault.CodeInternal, Message: "the engine failed; the server's log says why"}
	}
	return Failed, &fault.Error{Code: fault.CodeInternal, Message: "the engine ended the answer without saying why"}
}

// settleEnding stores the end of the last answer, if that is still to be done.
func (c *Chat) settleEnding() error {
	if c.answer.unsaved == nil {
		return nil
	}
	end := *c.answer.unsaved
	err := c.commit(context.Background(), func(ctx context.Context) error {
		_, err := c.messages.FinishAnswer(ctx, c.owner, c.id, end.message, end.finish)
		return err
	})
	// In these cases there is nothing left that could be stored.
	if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		c.answer.unsaved = nil
		return nil
	}
	return owned.StoreError(err)
}

// changed notifies those who show the list of chats that it has changed.
func (c *Chat) changed() {
	if !c.temporary || access.IsVisitor(c.owner) {
		c.service.List.Notify(c.owner)
	}
}
