package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"m40-llm/infer/chat"
	"m40-llm/store"
)

// Limits of the branch of a chat. A model's context ends far before them.
const (
	maxMessages = 2000
	maxText     = 4 << 20 // bytes
)

// Chat is one conversation: the branch of it that is shown, and the answer that runs in
// it, if one does. Other branches are where the messages are kept.
type Chat struct {
	service   *Service
	messages  messages
	id        string
	owner     string
	temporary bool

	commands chan struct{} // holds a value during a command, or the end of an answer, with its commit; comes before mu

	mu       sync.Mutex // never held while the store works
	changing bool       // a command is carried out
	started  bool       // it has its first question, and is where the messages are stored
	seq      int64
	metadata store.Metadata // as it is stored, but Settings, which panel has, and Placement
	panel    Panel
	path     []*turn // from the first message to the leaf
	run      *run
	replay   *replay // that runs
	replayed *Replay // the last one
	unsaved  *ending // of the last answer, while it could not be stored
	dropped  bool
	used     time.Time
	recent   []Event // the last events, consecutive, the newest being seq
	subs     map[*Subscription]bool
	counted  counted
}

// turn is a message that may still grow.
type turn struct {
	Message
	text      strings.Builder // of an answer; a question's text is in Message
	reasoning strings.Builder // of an answer
	split     splitter
	ids       []int32 // tokens of an answer
	saved     int     // bytes of both that are stored
}

// length is how many bytes the model wrote.
func (t *turn) length() int { return t.text.Len() + t.reasoning.Len() }

// said is the answer as the engine gets it.
func (t *turn) said() chat.Message { return answerMessage(t.reasoning.String(), t.text.String()) }

// begun is what a person wrote of an answer that was continued.
func (t *turn) begun() chat.Message {
	first := func(text *strings.Builder, bytes int) string {
		return strings.ToValidUTF8(text.String()[:min(bytes, text.Len())], "")
	}
	return answerMessage(first(&t.reasoning, t.Answer.BegunReasoning), first(&t.text, t.Answer.Begun))
}

// ending is the end of an answer that the store did not take.
type ending struct {
	message int64
	finish  store.Finish
}

// Question is what a person sends.
type Question struct {
	Text     string
	System   string
	Settings Settings

	// Of the chat that begins with it.
	store.Opening        // without Model: the one that is loaded now
	Preset        string // of the panel
}

// ID names the chat.
func (c *Chat) ID() string { return c.id }

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

// The commands. Each fails with a *Conflict while an answer runs, with an *infer.Error
// if what it is given is wrong, and with an error of the store if that could not keep
// the change, which then is not made. What they return without error is kept.

// command begins a command that needs the chat for itself, and returns what ends it. It waits
// for the one before until ctx ends; whoever reads the chat does not wait.
func (c *Chat) command(ctx context.Context, who Principal, what Action, name string) (done func(), err error) {
	if err := c.may(who, what); err != nil {
		return nil, err
	}
	select {
	case c.commands <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	done = c.alone()
	if err := c.free(name); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// exclude waits for the command that is being carried out, and returns what lets the next begin.
func (c *Chat) exclude() (done func()) {
	c.commands <- struct{}{}
	return c.alone()
}

// alone takes mu for who has put its value into commands.
func (c *Chat) alone() (done func()) {
	c.mu.Lock()
	c.changing = true
	return func() {
		c.changing = false
		c.mu.Unlock()
		<-c.commands
	}
}

// commit calls the store within a command, without mu. What has begun is carried out: ctx
// may end meanwhile.
func (c *Chat) commit(ctx context.Context, call func(context.Context) error) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	return call(context.WithoutCancel(ctx))
}

// Send adds a question to the end of the branch and begins the answer to it.
func (c *Chat) Send(ctx context.Context, who Principal, q Question) error {
	if err := q.validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, ActionAsk, "send")
	if err != nil {
		return err
	}
	defer done()
	return c.ask(ctx, c.leaf(), q)
}

// Edit asks q in place of a question of the branch, as another version of it.
func (c *Chat) Edit(ctx context.Context, who Principal, question int64, q Question) error {
	if err := q.validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, ActionAsk, "ask something else")
	if err != nil {
		return err
	}
	defer done()
	at, err := c.find("message", question, RoleUser)
	if err != nil {
		return err
	}
	return c.ask(ctx, c.path[at].Parent, q)
}

// Regenerate begins another version of an answer of the branch; 0 means the last one,
// or the answer to the last question if that has none.
func (c *Chat) Regenerate(ctx context.Context, who Principal, answer int64, system string, s Settings) error {
	if err := checkUTF8("system", system); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, ActionAsk, "answer again")
	if err != nil {
		return err
	}
	defer done()
	if len(c.path) == 0 {
		return invalid("", "there is no question to answer again")
	}
	question := c.path[len(c.path)-1]
	if answer != 0 || question.Role == RoleModel {
		at, err := c.find("answer", answer, RoleModel)
		if err != nil {
			return err
		}
		if at == 0 {
			return invalid("answer", "message %d answers no question", c.path[at].ID)
		}
		question = c.path[at-1]
	}
	panel := Panel{s, c.panel.Preset}
	t := c.newAnswer(system, s)
	record := store.NewAnswer{Parent: question.ID, Answer: t.record(), Change: c.panelChange(panel, system)}
	var added store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		added, err = c.messages.AddAnswer(ctx, c.owner, c.id, record)
		return err
	})
	if err != nil {
		return storeError(err)
	}
	c.setPanel(panel, system)
	c.answer(t, added)
	return nil
}

// Rewrite adds a version of an answer of the branch that a person wrote.
func (c *Chat) Rewrite(ctx context.Context, who Principal, answer int64, text, reasoning string) error {
	if err := checkText(text + reasoning); err != nil {
		return err
	}
	done, err := c.command(ctx, who, ActionChange, "edit")
	if err != nil {
		return err
	}
	defer done()
	at, err := c.find("answer", answer, RoleModel)
	if err != nil {
		return err
	}
	if err := c.room(at, len(text)+len(reasoning)); err != nil {
		return err
	}
	rewritten := store.NewMessage{Parent: c.path[at].Parent, Role: store.RoleAssistant, Text: text, Reasoning: reasoning}
	var added store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		added, err = c.messages.AddMessage(ctx, c.owner, c.id, rewritten)
		return err
	})
	if err != nil {
		return storeError(err)
	}
	c.place(fromStore(added))
	return nil
}

// Continue writes on in the last answer of the branch. With a negative seed the answer
// keeps its own, and goes on as if it had not ended.
func (c *Chat) Continue(ctx context.Context, who Principal, answer int64, s Settings) error {
	if err := s.Validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, ActionAsk, "continue")
	if err != nil {
		return err
	}
	defer done()
	at, err := c.find("answer", answer, RoleModel)
	if err != nil {
		return err
	}
	if at != len(c.path)-1 {
		return invalid("answer", "message %d is not the last one: only the last answer can be continued", c.path[at].ID)
	}
	old := c.path[at]
	tokens, err := c.tokens(ctx, old)
	if err != nil {
		return storeError(err)
	}
	panel := Panel{s, c.panel.Preset}
	change := c.panelChange(panel, c.metadata.System)
	if s.Seed < 0 && !old.Answer.Rewritten {
		s.Seed = old.Answer.Settings.Seed
	}
	t := c.newAnswer(old.Answer.System, s)
	a := t.Answer
	if old.Answer.Rewritten {
		a.System = c.metadata.System
	}
	a.Begun, a.BegunReasoning, a.Edited = old.Answer.Begun, old.Answer.BegunReasoning, old.Answer.Edited || old.Answer.Rewritten
	if len(tokens) == 0 || a.Receipt.Model != old.Answer.Receipt.Model {
		// What there is are no tokens of this model.
		tokens, a.Begun, a.BegunReasoning = nil, old.text.Len(), old.reasoning.Len()
	}
	a.Usage, a.Timings = old.Answer.Usage, old.Answer.Timings
	err = c.commit(ctx, func(ctx context.Context) error {
		return c.messages.ContinueAnswer(ctx, c.owner, c.id, old.ID, store.NewAnswer{Answer: t.record(), Change: change})
	})
	if err != nil {
		return storeError(err)
	}
	c.setPanel(panel, c.metadata.System)
	old.Answer, old.ids = a, tokens
	c.reopen(old)
	m := old.message()
	c.publish(Event{Type: EventMessage, ID: old.ID, Message: &m})
	c.begin(old)
	return nil
}

// tokens returns those of an answer that is continued.
func (c *Chat) tokens(ctx context.Context, t *turn) (ids []int32, err error) {
	if t.ids != nil || t.Answer.Rewritten {
		return t.ids, nil
	}
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		ids, err = c.messages.Tokens(ctx, c.owner, c.id, t.ID)
		return err
	})
	return ids, err
}

// reopen finds the blocks of an answer that is about to grow again.
func (c *Chat) reopen(t *turn) {
	t.split, t.Answer.Blocks = splitter{}, 0
	for end := t.split.next(t.text.String()); end != 0; end = t.split.next(t.text.String()) {
		t.Answer.Blocks = end
	}
	t.Answer.Thinking = t.text.Len() == 0 && t.reasoning.Len() > 0
}

// Select shows a version of a message, and what was shown below it last. Version 0
// means the message itself, wherever in the chat it is.
func (c *Chat) Select(ctx context.Context, who Principal, message int64, version int) error {
	done, err := c.command(ctx, who, ActionChange, "show another version")
	if err != nil {
		return err
	}
	defer done()
	var branch []store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		if version != 0 {
			if message, err = c.messages.Sibling(ctx, c.owner, c.id, message, version); err != nil {
				return c.absent(err, "message")
			}
		}
		if _, err := c.messages.Select(ctx, c.owner, c.id, message); err != nil {
			return c.absent(err, "message")
		}
		if branch, err = c.messages.Branch(ctx, c.owner, c.id); err != nil {
			return storeError(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.turnTo(branch)
	return nil
}

// turnTo makes a stored branch the one that is shown. Messages that it shares with the
// one shown so far stay.
func (c *Chat) turnTo(branch []store.Message) {
	kept := 0
	for kept < len(branch) && kept < len(c.path) && branch[kept].ID == c.path[kept].ID {
		kept++
	}
	if kept == len(branch) && kept == len(c.path) {
		return
	}
	c.path = c.path[:kept:kept]
	for _, m := range branch[kept:] {
		c.path = append(c.path, fromStore(m))
	}
	e := Event{Type: EventBranch, Messages: []Message{}}
	from := max(kept, len(c.path)-c.service.opt.Page)
	if from > kept {
		e.More = true
	} else if kept > 0 {
		e.ID = c.path[kept-1].ID
	}
	for _, t := range c.path[from:] {
		e.Messages = append(e.Messages, t.message())
	}
	c.publish(e)
}

// Stop ends the running answer and keeps its text, or ends a replay. answer names the one that is
// meant, so that a late click cannot stop the next; 0 means whichever runs.
func (c *Chat) Stop(_ context.Context, who Principal, answer int64) error {
	if err := c.may(who, ActionChange); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replay != nil && (answer == 0 || answer == c.replay.Answer) {
		c.replay.cancel()
		return nil
	}
	if c.run == nil {
		return &Conflict{Command: "stop", State: Idle}
	}
	if answer != 0 && c.run.turn.ID != answer {
		return &Conflict{Command: "stop", State: string(c.run.turn.Answer.State), Answer: c.run.turn.ID}
	}
	c.run.stopped = true
	c.run.cancel()
	return nil
}

// fork copies the branch up to a message into a new conversation. The chat, and others, go on
// meanwhile.
func (c *Chat) fork(ctx context.Context, message int64) (string, error) {
	n, wanted, err := c.branchTo(message)
	if err != nil {
		return "", err
	}
	branch := func(yield func(store.Message, error) bool) {
		for m, err := range c.tree(ctx) {
			if (err != nil || wanted[m.ID]) && !yield(m, err) {
				return
			}
		}
	}
	copied, err := c.service.importInto(ctx, c.owner, c.messages, branch, func() (store.Metadata, int64) { return n, message })
	return copied.ID, err
}

// branchTo returns the messages of the branch up to one of them, and what a conversation with
// them begins with.
func (c *Chat) branchTo(message int64) (n store.Metadata, wanted map[int64]bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return n, nil, ErrNotFound
	}
	at, err := c.find("message", message, "")
	if err != nil {
		return n, nil, err
	}
	if c.run != nil && c.run.turn.ID == message {
		return n, nil, &Conflict{Command: "copy this answer", State: string(c.run.turn.Answer.State), Answer: message}
	}
	wanted = map[int64]bool{}
	for _, t := range c.path[:at+1] {
		wanted[t.ID] = true
	}
	n = c.metadata.Fork()
	n.Settings = c.panel.record()
	return n, wanted, nil
}

// Older returns the messages of the branch before one of them, at most a page, and
// whether there are more.
func (c *Chat) Older(_ context.Context, who Principal, before int64) (list []Message, more bool, err error) {
	if err := c.may(who, ActionRead); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	end, err := c.find("before", before, "")
	if err != nil {
		return nil, false, err
	}
	from := max(0, end-c.service.opt.Page)
	for _, t := range c.path[from:end] {
		list = append(list, t.message())
	}
	return list, from > 0, nil
}

// Newer returns the messages of the branch behind one of them, at most a page, and
// whether there are more.
func (c *Chat) Newer(_ context.Context, who Principal, after int64) (list []Message, more bool, err error) {
	if err := c.may(who, ActionRead); err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.find("after", after, "")
	if err != nil {
		return nil, false, err
	}
	end := min(len(c.path), at+1+c.service.opt.Page)
	for _, t := range c.path[at+1 : end] {
		list = append(list, t.message())
	}
	return list, end < len(c.path), nil
}

// Subscribe begins to read after event since. The snapshot is nil if everything
// that followed since is still known and will be sent.
func (c *Chat) Subscribe(ctx context.Context, who Principal, since int64) (*Subscription, *Snapshot, error) {
	return c.subscribe(ctx, who, since, 0)
}

// SubscribeAt begins to read with a snapshot around a message; with the end of the branch
// if the message is not in it.
func (c *Chat) SubscribeAt(ctx context.Context, who Principal, message int64) (*Subscription, *Snapshot, error) {
	return c.subscribe(ctx, who, 0, message)
}

func (c *Chat) subscribe(ctx context.Context, who Principal, since, message int64) (*Subscription, *Snapshot, error) {
	if err := c.may(who, ActionRead); err != nil {
		return nil, nil, err
	}
	sub, snapshot, err := c.register(since, message)
	if snapshot == nil || snapshot.Origin == "" {
		return sub, snapshot, err
	}
	origin, missing := c.messages.Conversation(ctx, c.owner, snapshot.Origin)
	if snapshot.OriginTitle = origin.Title; missing != nil {
		snapshot.Origin = ""
	}
	return sub, snapshot, err
}

func (c *Chat) register(since, message int64) (*Subscription, *Snapshot, error) {
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
		snapshot = c.snapshot(message)
	}
	c.subs[sub] = true
	return sub, snapshot, nil
}

func (q Question) validate() error {
	if err := checkText(q.Text); err != nil {
		return err
	}
	if err := checkModel(q.Model); err != nil {
		return err
	}
	return Panel{q.Settings, q.Preset}.validate(q.System)
}

func checkText(text string) error {
	if strings.TrimSpace(text) == "" {
		return invalid("text", "the message is empty")
	}
	return checkUTF8("text", text)
}

func checkUTF8(name, text string) error {
	if !utf8.ValidString(text) {
		return invalid(name, "%s is not valid UTF-8", name)
	}
	return nil
}

// free returns why no command can be carried out now.
func (c *Chat) free(command string) error {
	switch {
	case c.dropped:
		return ErrNotFound
	case c.service.ctx.Err() != nil:
		return ErrClosed
	case c.run != nil:
		return &Conflict{Command: command, State: string(c.run.turn.Answer.State), Answer: c.run.turn.ID}
	case c.replay != nil:
		return &Conflict{Command: command, State: Replaying, Answer: c.replay.Answer}
	}
	return c.settleEnding()
}

// leaf is the last message of the branch; 0 if there is none.
func (c *Chat) leaf() int64 {
	if len(c.path) == 0 {
		return 0
	}
	return c.path[len(c.path)-1].ID
}

// find returns where in the branch a message of a role stands; any role if role is
// empty. Of answers, 0 means the last.
func (c *Chat) find(param string, id int64, role Role) (int, error) {
	for at := len(c.path) - 1; at >= 0; at-- {
		t := c.path[at]
		if role != "" && t.Role != role || id != t.ID && (id != 0 || role != RoleModel) {
			continue
		}
		return at, nil
	}
	what := map[Role]string{RoleUser: "question", RoleModel: "answer", "": "message"}[role]
	return 0, invalid(param, "the branch that is shown has no %s %d", what, id)
}

// absent is storeError for a message that a command named.
func (c *Chat) absent(err error, param string) error {
	if errors.Is(err, store.ErrNotFound) {
		return invalid(param, "this chat has no such message")
	}
	return storeError(err)
}

// storeError says in this package's words what the store said.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, store.ErrClosed):
		return ErrClosed
	}
	if wrong, ok := errors.AsType[*store.InvalidError](err); ok {
		return invalid(wrong.Field, "%s", wrong.Error())
	}
	return fmt.Errorf("failed to store the change: %w", err)
}

// room checks that the first count messages of the branch leave room for more bytes.
func (c *Chat) room(count, more int) error {
	total := more
	for _, t := range c.path[:count] {
		total += len(t.Text) + t.length()
	}
	if total > maxText || count+2 > maxMessages {
		return invalid("text", "this chat holds %d messages and %d KiB of text, and its limits are %d and %d KiB; start a new chat",
			count, total>>10, maxMessages, maxText>>10)
	}
	return nil
}

// below returns how many messages of the branch stand up to message id.
func (c *Chat) below(id int64) int {
	for i, t := range c.path {
		if t.ID == id {
			return i + 1
		}
	}
	return 0
}

// ask adds a question below parent and begins the answer to it.
func (c *Chat) ask(ctx context.Context, parent int64, q Question) error {
	if err := c.room(c.below(parent), len(q.Text)); err != nil {
		return err
	}
	panel := Panel{q.Settings, c.panel.Preset}
	first := c.metadata
	if !c.started {
		first.Title, first.Opening, first.System, first.Settings = title(q.Text), q.Opening, q.System, panel.record()
		first.Model = cmp.Or(q.Model, c.service.loadedModel())
		c.metadata.Opening, panel.Preset = first.Opening, q.Preset
	}
	t := c.newAnswer(q.System, q.Settings)
	question := store.NewMessage{Parent: parent, Role: store.RoleUser, Text: q.Text}
	record := store.NewAnswer{Answer: t.record(), Change: c.panelChange(panel, q.System)}
	var asked, added store.Message
	started := c.started
	err := c.commit(ctx, func(ctx context.Context) (err error) {
		if started {
			asked, added, err = c.messages.Ask(ctx, c.owner, c.id, question, record)
		} else {
			_, asked, added, err = c.messages.Start(ctx, c.owner, first, question, record)
		}
		return err
	})
	if err != nil {
		return storeError(err)
	}
	c.setPanel(panel, q.System)
	if !c.started {
		c.started = true
		c.retitle(first.Title)
	}
	c.place(fromStore(asked))
	c.answer(t, added)
	return nil
}

// place puts a message behind its parent, in place of what stood there.
func (c *Chat) place(t *turn) {
	n := c.below(t.Parent)
	c.path = append(c.path[:n:n], t)
	m := t.message()
	c.publish(Event{Type: EventMessage, ID: t.ID, Message: &m})
}

// answer places an answer that was added and begins to write it.
func (c *Chat) answer(t *turn, added store.Message) {
	t.ID, t.Parent, t.Version, t.Versions, t.At = added.ID, added.Parent, added.Version, added.Versions, added.Created
	c.place(t)
	c.begin(t)
}

// message is a copy that can be handed out.
func (t *turn) message() Message {
	m := t.Message
	if t.Answer != nil {
		a := *t.Answer
		m.Answer, m.Text, m.Reasoning = &a, t.text.String(), t.reasoning.String()
	}
	return m
}

// snapshot has a page of messages: those around one of the branch, else the last.
func (c *Chat) snapshot(message int64) *Snapshot {
	page, to := c.service.opt.Page, len(c.path)
	if n := c.below(message); n > 0 {
		to = min(to, max(page, n+page/2))
	}
	from := max(0, to-page)
	s := &Snapshot{
		Metadata: c.metadata, Seq: c.seq, Panel: c.panel, Temporary: c.temporary, More: from > 0, Later: to < len(c.path), Replay: c.lastReplay(),
	}
	s.Messages = make([]Message, 0, to-from)
	for _, t := range c.path[from:to] {
		s.Messages = append(s.Messages, t.message())
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

// rename tells the readers of a new title.
func (c *Chat) rename(title string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retitle(title)
}

// use makes model the one that answers from now on, and tells the readers.
func (c *Chat) use(model string) {
	defer c.exclude()()
	c.metadata.Model = model
	c.publish(Event{Type: EventModel, Text: model})
}

func (c *Chat) retitle(title string) {
	c.metadata.Title = title
	c.publish(Event{Type: EventTitle, Text: title})
}

// idle reports when the chat was last used, whether it has something to do, and
// whether somebody reads it.
func (c *Chat) idle() (used time.Time, busy, read bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.busy(), len(c.subs) > 0
}

// busy reports whether the chat has something to do.
func (c *Chat) busy() bool { return c.changing || c.run != nil || c.replay != nil || c.unsaved != nil }

// unwatched reports whether an answer is being written that nobody reads.
func (c *Chat) unwatched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run != nil && len(c.subs) == 0
}

// dropIdle drops the chat unless it has something to do, and reports whether it did.
func (c *Chat) dropIdle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy() {
		return false
	}
	c.end()
	return true
}

// touch counts as a use of the chat, so that it stays in memory. It reports whether the chat
// is still there.
func (c *Chat) touch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.service.opt.Now()
	return !c.dropped
}

// running reports whether an answer is being written.
func (c *Chat) running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run != nil
}

// drop ends every subscription to a chat that is no longer listed, and its answer. It
// returns what is closed when the answer has ended; nil if none runs.
func (c *Chat) drop() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	if c.replay != nil {
		c.replay.cancel()
		return c.replay.done
	}
	if c.run == nil {
		return nil
	}
	c.run.stopped = true
	c.run.cancel()
	return c.run.done
}

// end ends every subscription.
func (c *Chat) end() {
	c.dropped = true
	for sub := range c.subs {
		sub.fail(ErrGone)
	}
	clear(c.subs)
}

// load reads the branch that is shown.
func (c *Chat) load(ctx context.Context) error {
	conversation, err := c.messages.Conversation(ctx, c.owner, c.id)
	if err != nil {
		return err
	}
	branch, err := c.messages.Branch(ctx, c.owner, c.id)
	if err != nil {
		return err
	}
	c.started, c.metadata = true, conversation.Metadata
	for _, m := range branch {
		c.path = append(c.path, fromStore(m))
	}
	c.loadPanel()
	if c.metadata.Model == "" {
		c.metadata.Model = firstModel(c.path)
	}
	return nil
}

// firstModel returns the model of the first answer among turns that a model wrote, as chats
// that were begun before they kept a model, or were imported, go on with it.
func firstModel(turns []*turn) string {
	for _, t := range turns {
		if t.Answer != nil && !t.Answer.Rewritten && t.Answer.Receipt.Model != "" {
			return t.Answer.Receipt.Model
		}
	}
	return ""
}
