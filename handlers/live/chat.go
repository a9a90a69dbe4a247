package live

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// Limits of one chat. A model's context ends far before them.
const (
	maxMessages = 2000
	maxText     = 4 << 20 // bytes
)

// Chat is one conversation and the answer that runs in it, if one does.
type Chat struct {
	service *Service
	id      string

	mu       sync.Mutex
	seq      int64
	lastID   int64
	system   string
	messages []*turn
	run      *run
	dropped  bool
	used     time.Time
	recent   []Event // the last events, consecutive, the newest being seq
	subs     map[*Subscription]bool
}

// turn is a message that may still grow.
type turn struct {
	Message
	text  strings.Builder // of an answer; a question's text is in Message
	split splitter
}

// run is the answer being written. Its clock fields are the state of the phases.
type run struct {
	turn    *turn
	cancel  context.CancelFunc
	stopped bool
	started time.Time
	phase   infer.EventType // of the event seen last
	since   time.Time       // when the phase began
	first   time.Time       // first token
}

// Question is what a person sends.
type Question struct {
	Text     string
	System   string
	Settings Settings
}

// ID names the chat.
func (c *Chat) ID() string { return c.id }

// Title is the beginning of the first question, or empty.
func (c *Chat) Title() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.messages {
		if t.Role == RoleUser {
			return title(t.Text)
		}
	}
	return ""
}

func title(text string) string {
	const max = 80
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= max {
		return text
	}
	cut := string([]rune(text)[:max])
	if i := strings.LastIndexByte(cut, ' '); i > max/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// Send adds a question and begins the answer to it. It fails with a *Conflict
// while another answer runs, and with an *infer.Error if q is out of range.
func (c *Chat) Send(q Question) error {
	if err := q.validate(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.free("send"); err != nil {
		return err
	}
	if err := c.room(len(q.Text)); err != nil {
		return err
	}
	c.system = q.System
	c.addMessage(&turn{Message: Message{Role: RoleUser, Text: q.Text}})
	c.begin(q.Settings)
	return nil
}

func (q Question) validate() error {
	if strings.TrimSpace(q.Text) == "" {
		return invalid("text", "the message is empty")
	}
	for _, f := range []struct{ name, text string }{{"text", q.Text}, {"system", q.System}} {
		if !utf8.ValidString(f.text) {
			return invalid(f.name, "%s is not valid UTF-8", f.name)
		}
	}
	return q.Settings.Validate()
}

// Regenerate answers the last question again; the answer that was there goes.
func (c *Chat) Regenerate(system string, s Settings) error {
	if !utf8.ValidString(system) {
		return invalid("system", "system is not valid UTF-8")
	}
	if err := s.Validate(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.free("answer again"); err != nil {
		return err
	}
	if len(c.messages) == 0 {
		return invalid("", "there is no question to answer again")
	}
	c.system = system
	if last := c.messages[len(c.messages)-1]; last.Role == RoleModel {
		c.messages = c.messages[:len(c.messages)-1]
		c.publish(Event{Type: EventRemoved, ID: last.ID})
	}
	c.begin(s)
	return nil
}

// Stop ends the running answer and keeps its text. answer names the one that is
// meant, so that a late click cannot stop the next; 0 means whichever runs.
func (c *Chat) Stop(answer int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return &Conflict{Command: "stop", State: "idle"}
	}
	if answer != 0 && c.run.turn.ID != answer {
		return &Conflict{Command: "stop", State: string(c.run.turn.Answer.State), Answer: c.run.turn.ID}
	}
	c.run.stopped = true
	c.run.cancel()
	return nil
}

// Clear removes all messages.
func (c *Chat) Clear() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.free("clear"); err != nil {
		return err
	}
	c.messages = nil
	c.publish(Event{Type: EventCleared})
	return nil
}

// Subscribe begins to read after event since. The snapshot is nil if everything
// that followed since is still known and will be sent.
func (c *Chat) Subscribe(since int64) (*Subscription, *Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return nil, nil, ErrNotFound
	}
	opt := c.service.opt
	sub := &Subscription{chat: c, ready: make(chan struct{}, 1), maxEvents: opt.QueueEvents, maxBytes: opt.QueueBytes}
	var snapshot *Snapshot
	missed := c.seq - since
	resumes := since > 0 && missed >= 0 && missed <= int64(len(c.recent))
	if resumes {
		for _, e := range c.recent[len(c.recent)-int(missed):] {
			resumes = resumes && sub.put(e)
		}
	}
	if !resumes {
		sub.queue, sub.bytes, sub.err = nil, 0, nil
		snapshot = c.snapshot()
	}
	c.subs[sub] = true
	return sub, snapshot, nil
}

// free returns a *Conflict if an answer runs.
func (c *Chat) free(command string) error {
	switch {
	case c.dropped:
		return ErrNotFound
	case c.service.ctx.Err() != nil:
		return ErrClosed
	case c.run != nil:
		return &Conflict{Command: command, State: string(c.run.turn.Answer.State), Answer: c.run.turn.ID}
	}
	return nil
}

func (c *Chat) room(more int) error {
	total := more
	for _, t := range c.messages {
		total += len(t.Text) + t.text.Len()
	}
	if total > maxText || len(c.messages)+2 > maxMessages {
		return invalid("text", "this chat holds %d messages and %d KiB of text, and its limits are %d and %d KiB; start a new chat",
			len(c.messages), total>>10, maxMessages, maxText>>10)
	}
	return nil
}

func (c *Chat) addMessage(t *turn) {
	c.lastID++
	t.ID = c.lastID
	t.At = c.service.opt.Now()
	c.messages = append(c.messages, t)
	m := t.message()
	c.publish(Event{Type: EventMessage, ID: t.ID, Message: &m})
}

// begin starts the answer to what stands at the end of the chat.
func (c *Chat) begin(s Settings) {
	svc := c.service
	if s.Seed < 0 {
		s.Seed = svc.opt.Seed()
	}
	request := infer.Request{Messages: c.history(), Params: s.params(), MaxTokens: s.MaxTokens}
	status := svc.engine.Status()
	ctx, cancel := context.WithCancel(svc.ctx)
	now := svc.opt.Now()
	t := &turn{Message: Message{Role: RoleModel, Answer: &Answer{
		State:    Waiting,
		Settings: s,
		Model:    status.Model,
		Device:   status.Device.Name,
		Context:  status.ContextLength,
	}}}
	c.addMessage(t)
	r := &run{turn: t, cancel: cancel, started: now, since: now}
	c.run = r
	svc.wg.Go(func() {
		defer cancel()
		c.finish(r, c.generate(ctx, r, request))
	})
}

// history is the conversation as the engine gets it. A question whose answer
// ended before its first word is left out with it: templates want turns to
// alternate.
func (c *Chat) history() []chat.Message {
	var out []chat.Message
	if strings.TrimSpace(c.system) != "" {
		out = append(out, chat.Message{Role: "system", Content: c.system})
	}
	for i, t := range c.messages {
		if t.Role == RoleModel {
			if t.text.Len() > 0 {
				out = append(out, chat.Message{Role: "assistant", Content: t.text.String()})
			}
			continue
		}
		last := i == len(c.messages)-1
		if last || c.messages[i+1].text.Len() > 0 {
			out = append(out, chat.Message{Role: "user", Content: t.Text})
		}
	}
	return out
}

// generate feeds the engine's events into the chat. A panic on the way ends this
// answer, not the server.
func (c *Chat) generate(ctx context.Context, r *run, request infer.Request) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.service.opt.Log.Error("an answer panicked", "panic", p, "stack", string(debug.Stack()))
			err = &infer.Error{Code: infer.CodeInternal, Message: "the engine failed inside; the server's log says where"}
		}
	}()
	for e, err := range c.service.engine.Generate(ctx, request) {
		if err != nil {
			return err
		}
		c.apply(r, e)
	}
	return nil
}

// apply takes one event of the engine.
func (c *Chat) apply(r *run, e infer.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.service.opt.Now()
	r.enter(e.Type, now)
	a := r.turn.Answer
	switch {
	case e.Token != nil && !e.Token.Prompt:
		if a.State == Waiting {
			r.first = now
			a.State, a.Progress, a.Timings.First = Writing, nil, now.Sub(r.started)
		}
		a.Tokens++
		a.Timings.Decode = now.Sub(r.first)
		c.appendText(r.turn, e.Token.Text)
	case e.Done != nil:
		if e.Done.Text != "" {
			c.appendText(r.turn, e.Done.Text)
		}
		r.turn.settle(e.Done)
	case e.Queued != nil:
		c.wait(r, now, Progress{Queued: e.Queued})
	case e.Loading != nil:
		c.wait(r, now, Progress{Loading: e.Loading})
	case e.Prefill != nil:
		a.Prompt, a.Cached = e.Prefill.Total, e.Prefill.Cached
		c.wait(r, now, Progress{Prefill: e.Prefill})
	}
}

// enter books the time of the phase that ended, if e begins another.
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
	case infer.EventPrefill:
		t.Prefill += passed
	}
	r.phase, r.since = phase, now
}

func (c *Chat) wait(r *run, now time.Time, p Progress) {
	p.For = now.Sub(r.since)
	r.turn.Answer.Progress = &p
	c.publish(Event{Type: EventProgress, ID: r.turn.ID, Progress: &p})
}

// appendText adds what a token spelled, which may be nothing, and then every
// block that it finished.
func (c *Chat) appendText(t *turn, text string) {
	t.text.WriteString(text)
	a := t.Answer
	c.publish(Event{Type: EventText, ID: t.ID, Text: text, Tokens: a.Tokens, Decode: a.Timings.Decode, FirstToken: a.Timings.First})
	whole := t.text.String()
	for {
		begin := t.split.start
		end := t.split.next(whole)
		if end == 0 {
			return
		}
		a.Blocks = end
		c.publish(Event{Type: EventBlock, ID: t.ID, Text: whole[begin:end]})
	}
}

// settle books what the engine says at the end.
func (t *turn) settle(d *infer.Done) {
	a := t.Answer
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	a.State = Done
	a.Reason, a.ByContext, a.StopText, a.EndProb = d.Reason, d.ContextFull, d.StopString, d.EndProb
	a.Tokens, a.Prompt, a.Cached = d.Usage.CompletionTokens, d.Usage.PromptTokens, d.Usage.CachedTokens
	a.Settings.Seed = d.Receipt.Params.Seed
	a.Timings.Queue, a.Timings.Load = ms(d.Timings.Queue), ms(d.Timings.Load)
	a.Timings.Prefill, a.Timings.Decode = ms(d.Timings.Prefill), ms(d.Timings.Decode)
	if d.Receipt.Device != "" {
		a.Device = d.Receipt.Device
	}
}

// finish ends an answer with the engine's verdict.
func (c *Chat) finish(r *run, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := r.turn.Answer
	a.Progress = nil
	switch known := (*infer.Error)(nil); {
	case a.State == Done:
	case r.stopped, errors.Is(err, context.Canceled):
		a.State = Stopped
	case errors.As(err, &known):
		a.State, a.Error = Failed, known
	case err != nil:
		c.service.opt.Log.Error("an answer failed", "error", err)
		a.State, a.Error = Failed, &infer.Error{Code: infer.CodeInternal, Message: "the engine failed; the server's log says why"}
	default:
		a.State, a.Error = Failed, &infer.Error{Code: infer.CodeInternal, Message: "the engine ended the answer without saying why"}
	}
	c.run = nil
	m := r.turn.message()
	c.publish(Event{Type: EventEnd, ID: m.ID, Message: &m})
}

// message is a copy that can be handed out.
func (t *turn) message() Message {
	m := t.Message
	if t.Answer != nil {
		a := *t.Answer
		m.Answer, m.Text = &a, t.text.String()
	}
	return m
}

func (c *Chat) snapshot() *Snapshot {
	s := &Snapshot{ID: c.id, Seq: c.seq, System: c.system, Messages: make([]Message, len(c.messages))}
	for i, t := range c.messages {
		s.Messages[i] = t.message()
	}
	return s
}

// publish numbers an event, remembers it and gives it to every reader.
func (c *Chat) publish(e Event) {
	c.seq++
	e.First, e.Seq = c.seq, c.seq
	c.used = c.service.opt.Now()
	if max := c.service.opt.History; len(c.recent) >= 2*max {
		c.recent = append(c.recent[:0], c.recent[len(c.recent)-max:]...)
	}
	c.recent = append(c.recent, e)
	for sub := range c.subs {
		if !sub.put(e) {
			delete(c.subs, sub)
		}
	}
}

func (c *Chat) unsubscribe(s *Subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, s)
}

func (c *Chat) idle() (used time.Time, running, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.run != nil, len(c.subs) > 0
}

// drop ends every subscription to a chat that is no longer listed.
func (c *Chat) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = true
	if c.run != nil {
		c.run.cancel()
	}
	for sub := range c.subs {
		sub.fail(ErrGone)
	}
	clear(c.subs)
}
