package live

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/chatlist"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Question is what a person sends.
type Question struct {
	Text     string
	System   string
	Settings setting.Settings
	Pictures []string // names, as attached.ParseName reads them, of those that were uploaded, or that messages of the branch have

	// Of the chat that begins with it.
	store.Opening        // without Model: the one that is loaded now
	Preset        string // of the panel

	Unanswered bool // no answer begins: a contact sheet is made of the question

	author string // name of a writer; empty: the owner of the chat
	result bool   // it is the result of a call
}

func (q Question) validate() error {
	if err := checkPictured(q.Text, q.Pictures); err != nil {
		return err
	}
	if err := choice.Check(q.Model); err != nil {
		return err
	}
	return Panel{q.Settings, q.Preset}.validate(q.System)
}

// The commands. Each fails with an *owned.Conflict while an answer runs, with a *fault.Error
// if what it is given is wrong, and with an error of the store if that could not store
// the change, which then is not made. What they return without error is stored.

// command begins a command that needs the chat for itself, and returns what ends it. It waits
// for the command before until ctx ends; who reads the chat does not wait.
func (c *Chat) command(ctx context.Context, who Principal, what access.Action, name string) (done func(), err error) {
	if err := c.may(who, what); err != nil {
		return nil, err
	}
	if done, err = c.exclude(ctx); err != nil {
		return nil, err
	}
	if err := c.free(name); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// commandOn is command for what is about a message of the branch, as branch.find finds it, and returns its
// index.
func (c *Chat) commandOn(ctx context.Context, who Principal, what access.Action, name, param string, id int64, role Role) (at int, done func(), err error) {
	if done, err = c.command(ctx, who, what, name); err != nil {
		return 0, nil, err
	}
	if at, err = c.branch.find(param, id, role); err != nil {
		done()
		return 0, nil, err
	}
	return at, done, nil
}

// Send adds a question to the end of the branch and begins the answer to it, unless it is to stay
// unanswered.
func (c *Chat) Send(ctx context.Context, who Principal, q Question) error {
	return c.send(ctx, who, q, false)
}

// SendWithPanel is Send with the settings of the panel, as they are when the command begins, in place of those of q.
func (c *Chat) SendWithPanel(ctx context.Context, who Principal, q Question) error {
	q.Settings = setting.Default()
	return c.send(ctx, who, q, true)
}

// send is Send; panel: with the settings of the panel in place of those of q.
func (c *Chat) send(ctx context.Context, who Principal, q Question, panel bool) error {
	if err := q.validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, access.ActionAsk, "send")
	if err != nil {
		return err
	}
	defer done()
	if panel {
		q.Settings = c.panel.Settings
	}
	if err := c.ask(ctx, c.branch.leaf(), q); err != nil {
		return err
	}
	c.service.callWith(c.id, func(h Hooks) func(string) { return h.Sent })
	return nil
}

// Answer begins the answer to a question, with the panel as it is when the command begins. It does nothing if the
// question is not the last message of the branch, also while an answer runs.
func (c *Chat) Answer(ctx context.Context, who Principal, question int64) error {
	if err := c.may(who, access.ActionAsk); err != nil {
		return err
	}
	done, err := c.exclude(ctx)
	if err != nil {
		return err
	}
	defer done()
	if len(c.branch) == 0 || c.branch.leaf() != question || c.branch[len(c.branch)-1].Role == RoleModel {
		return nil // a form that is sent twice finds the answer that it began
	}
	if err := c.free("answer"); err != nil {
		return err
	}
	return c.answerAgain(ctx, c.branch[len(c.branch)-1], c.metadata.System, c.panel.Settings)
}

// Edit asks q in place of a question of the branch, as another version of it.
func (c *Chat) Edit(ctx context.Context, who Principal, question int64, q Question) error {
	if err := q.validate(); err != nil {
		return err
	}
	at, done, err := c.commandOn(ctx, who, access.ActionAsk, "ask something else", "message", question, RoleUser)
	if err != nil {
		return err
	}
	defer done()
	q.result = c.branch[at].Role == RoleTool
	return c.ask(ctx, c.branch[at].Parent, q)
}

// Regenerate begins another version of an answer of the branch; 0 means the last one,
// or the answer to the last question if that has none.
func (c *Chat) Regenerate(ctx context.Context, who Principal, answer int64, system string, s setting.Settings) error {
	if err := fault.CheckUTF8("system", system); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	done, err := c.command(ctx, who, access.ActionAsk, "answer again")
	if err != nil {
		return err
	}
	defer done()
	if len(c.branch) == 0 {
		return fault.Invalid("", "there is no question to answer again")
	}
	question := c.branch[len(c.branch)-1]
	if answer != 0 || question.Role == RoleModel {
		at, err := c.branch.find("answer", answer, RoleModel)
		if err != nil {
			return err
		}
		if at == 0 {
			return fault.Invalid("answer", "message %d answers no question", c.branch[at].ID)
		}
		question = c.branch[at-1]
	}
	return c.answerAgain(ctx, question, system, s)
}

// answerAgain begins a version of the answer to a question of the branch.
func (c *Chat) answerAgain(ctx context.Context, question *turn, system string, s setting.Settings) error {
	if err := c.checkSight(ctx, c.branch[:c.branch.upTo(question.ID)], nil, c.metadata.Model); err != nil {
		return err
	}
	return c.addAnswer(ctx, c.newAnswer(system, s), question.ID, Panel{s, c.panel.Preset}, system)
}

// addAnswer stores t, with the text that it begins with, as a version of the answer to a message of the branch,
// and the panel and the system prompt of the chat, and begins to write it.
func (c *Chat) addAnswer(ctx context.Context, t *turn, parent int64, panel Panel, system string) error {
	record := store.NewAnswer{Parent: parent, Text: t.text.String(), Reasoning: t.reasoning.String(), Answer: t.record(), Change: c.panelChange(panel, system)}
	var added store.Message
	err := c.commit(ctx, func(ctx context.Context) (err error) {
		added, err = c.messages.AddAnswer(ctx, c.owner, c.id, record)
		return err
	})
	if err != nil {
		return owned.StoreError(err)
	}
	c.setPanel(panel, system)
	c.place(t, added)
	return nil
}

// Rewrite adds a version of an answer of the branch that a person wrote.
func (c *Chat) Rewrite(ctx context.Context, who Principal, answer int64, text, reasoning string) error {
	if err := CheckText(text + reasoning); err != nil {
		return err
	}
	at, done, err := c.commandOn(ctx, who, access.ActionChange, "edit", "answer", answer, RoleModel)
	if err != nil {
		return err
	}
	defer done()
	if err := c.checkRoom(c.branch[:at], len(text)+len(reasoning)); err != nil {
		return err
	}
	rewritten := store.NewMessage{Parent: c.branch[at].Parent, Role: store.RoleAssistant, Text: text, Reasoning: reasoning}
	var added store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		added, err = c.messages.AddMessage(ctx, c.owner, c.id, rewritten)
		return err
	})
	if err != nil {
		return owned.StoreError(err)
	}
	c.add(fromStore(added))
	return nil
}

// Continue writes on in the last answer of the branch. With a negative seed the answer
// keeps its own, and goes on as if it had not ended.
func (c *Chat) Continue(ctx context.Context, who Principal, answer int64, s setting.Settings) error {
	return c.continueAnswer(ctx, who, answer, s, continuation{})
}

// ContinuePastEnd is Continue for an answer that the model or a stop string ended: no end token may come
// where the answer ended, or it is without that stop string.
func (c *Chat) ContinuePastEnd(ctx context.Context, who Principal, answer int64, s setting.Settings) error {
	return c.continueAnswer(ctx, who, answer, s, continuation{pastEnd: true})
}

// StopThinking ends the reasoning of an answer that is being written: the answer goes on after the marker that closes it, as
// with a budget of the tokens that it has.
func (c *Chat) StopThinking(ctx context.Context, who Principal, answer int64) error {
	if err := c.may(who, access.ActionAsk); err != nil {
		return err
	}
	c.mu.Lock()
	r := c.answer.run
	if r == nil || answer != 0 && r.turn.ID != answer || r.turn.reasoning.Len() == 0 || r.turn.text.Len() > 0 {
		c.mu.Unlock()
		return fault.Invalid("answer", "no answer of this chat is thinking now")
	}
	answer = r.turn.ID
	s := r.turn.Answer.Settings
	c.mu.Unlock()
	s.LogitBias = nil // it is made of the biases again
	if err := c.stopAnswer(ctx, who, answer); err != nil {
		return err
	}
	return c.continueAnswer(ctx, who, answer, s, continuation{thought: true})
}

// continuation is how an answer is continued.
type continuation struct {
	pastEnd bool // where the model or a stop string ended it
	thought bool // without further reasoning, with its own settings instead of the panel's
}

func (c *Chat) continueAnswer(ctx context.Context, who Principal, answer int64, s setting.Settings, how continuation) error {
	if err := s.Validate(); err != nil {
		return err
	}
	at, done, err := c.commandOn(ctx, who, access.ActionAsk, "continue", "answer", answer, RoleModel)
	if err != nil {
		return err
	}
	defer done()
	if at != len(c.branch)-1 {
		return fault.Invalid("answer", "message %d is not the last one: only the last answer can be continued", c.branch[at].ID)
	}
	old := c.branch[at]
	if old.Answer.Call != nil {
		return fault.Invalid("answer", "message %d ends with a call of %q: give its result, or answer again", old.ID, old.Answer.Call.Name)
	}
	tokens, err := c.tokens(ctx, old)
	if err != nil {
		return owned.StoreError(err)
	}
	panel := Panel{s, c.panel.Preset}
	if how.thought {
		panel, s.ThinkingBudget = c.panel, max(1, len(tokens))
	}
	change := c.panelChange(panel, c.metadata.System)
	if s.Seed < 0 && !old.Answer.Rewritten {
		s.Seed = old.Answer.Settings.Seed
	}
	t := c.newAnswer(old.Answer.System, s)
	a := t.Answer
	if old.Answer.Rewritten {
		a.System = c.metadata.System
	}
	a.Prefix, a.ReasoningPrefix, a.Edited = old.Answer.Prefix, old.Answer.ReasoningPrefix, old.Answer.Edited || old.Answer.Rewritten
	if len(tokens) == 0 || a.Receipt.Model != old.Answer.Receipt.Model {
		// What there is are no tokens of this model.
		tokens, a.Prefix, a.ReasoningPrefix = nil, old.text.Len(), old.reasoning.Len()
	}
	a.Usage, a.Timings, a.Pace, a.Reads, a.Lookup = old.Answer.Usage, old.Answer.Timings, old.Answer.Pace, old.Answer.Reads, old.Answer.Lookup
	if tokens != nil {
		a.LogProb, a.Scored = old.Answer.LogProb, old.Answer.Scored
		a.Receipt.BannedEnds = old.Answer.Receipt.BannedEnds
	}
	continued := old.request()
	if how.pastEnd {
		if continued, err = c.passEnd(ctx, at, a, tokens); err != nil {
			return err
		}
	}
	record := store.NewAnswer{Text: continued.Content, Reasoning: continued.ReasoningContent, Answer: t.record(), Change: change}
	record.Tokens = tokens
	err = c.commit(ctx, func(ctx context.Context) error {
		return c.messages.ContinueAnswer(ctx, c.owner, c.id, old.ID, record)
	})
	if err != nil {
		return owned.StoreError(err)
	}
	c.setPanel(panel, c.metadata.System)
	old.Answer, old.ids = a, tokens
	old.setText(continued)
	old.reopen()
	m := old.message()
	c.publish(Event{Type: EventMessage, ID: old.ID, Message: &m})
	c.begin(old)
	return nil
}

// passEnd prepares a to continue answer number at of the branch after the point where the model or a stop string ended it. It
// returns the text so far, with that stop string.
func (c *Chat) passEnd(ctx context.Context, at int, a *Answer, tokens []int32) (chat.Message, error) {
	t := c.branch[at]
	if !t.Answer.EndedByModel() {
		return chat.Message{}, fault.Invalid("past_end", "message %d was not ended by the model or a stop string: it is continued without past_end", t.ID)
	}
	if t.Answer.StopString == "" {
		a.Receipt.BannedEnds = append(slices.Clone(a.Receipt.BannedEnds), len(tokens))
		return t.request(), nil
	}
	a.Settings.Stop = slices.DeleteFunc(slices.Clone(a.Settings.Stop), func(stop string) bool { return stop == t.Answer.StopString })
	if len(tokens) == 0 || c.metadata.Raw || a.Prefix+a.ReasoningPrefix > 0 {
		return t.request(), nil
	}
	return c.spell(ctx, at, tokens, nil, nil, a.Settings)
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

// Select shows a version of a message, and what was shown below it last. Version 0
// means the message itself, wherever in the chat it is.
func (c *Chat) Select(ctx context.Context, who Principal, message int64, version int) error {
	done, err := c.command(ctx, who, access.ActionChange, "show another version")
	if err != nil {
		return err
	}
	defer done()
	var stored []store.Message
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		if version != 0 {
			if message, err = c.messages.Sibling(ctx, c.owner, c.id, message, version); err != nil {
				return c.absent(err, "message")
			}
		}
		if _, err := c.messages.Select(ctx, c.owner, c.id, message); err != nil {
			return c.absent(err, "message")
		}
		if stored, err = c.messages.Branch(ctx, c.owner, c.id); err != nil {
			return owned.StoreError(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.show(stored)
	return nil
}

// show makes a stored branch the one that is shown. Messages that it shares with the
// one shown so far stay.
func (c *Chat) show(stored []store.Message) {
	c.showFrom(stored, c.branch.common(stored))
}

// showFrom is show for a branch whose first same messages stay.
func (c *Chat) showFrom(stored []store.Message, same int) {
	if same == len(stored) && same == len(c.branch) {
		return
	}
	c.branch = append(c.branch[:same:same], storedBranch(stored[same:])...)
	e := Event{Type: EventBranch}
	from := max(same, len(c.branch)-c.service.opt.Page)
	if from > same {
		e.More = true
	} else if same > 0 {
		e.ID = c.branch[same-1].ID
	}
	e.Messages = c.branch[from:].messages()
	c.publish(e)
}

// Stop ends the running answer and keeps its text, or ends a replay. answer names the one that is
// meant, so that a late click cannot stop the next; 0 means whichever runs.
func (c *Chat) Stop(_ context.Context, who Principal, answer int64) error {
	if err := c.may(who, access.ActionChange); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.replays.running; r != nil && (answer == 0 || answer == r.state.Answer) {
		r.cancel()
		return nil
	}
	r := c.answer.run
	if r == nil {
		return &owned.Conflict{Command: "stop", State: owned.Idle}
	}
	if answer != 0 && r.turn.ID != answer {
		return r.conflict("stop")
	}
	r.stop()
	return nil
}

// free returns why no command can be carried out now.
func (c *Chat) free(command string) error {
	switch {
	case c.dropped:
		return owned.ErrNotFound
	case c.service.ctx.Err() != nil:
		return owned.ErrClosed
	case c.answer.run != nil:
		return c.answer.run.conflict(command)
	case c.replays.running != nil:
		return &owned.Conflict{Command: command, State: owned.Replaying, Answer: c.replays.running.state.Answer}
	}
	return c.settleEnding()
}

// ask adds a question below parent and begins the answer to it.
func (c *Chat) ask(ctx context.Context, parent int64, q Question) error {
	if err := c.checkRoom(c.branch[:c.branch.upTo(parent)], len(q.Text)); err != nil {
		return err
	}
	raw, model := c.metadata.Raw, c.metadata.Model
	if !c.started {
		raw, model = q.Opening.Raw, q.Opening.Model
	}
	pictures, err := c.pictured(q.Pictures, raw)
	if err != nil {
		return err
	}
	if err := c.checkSight(ctx, c.branch[:c.branch.upTo(parent)], pictures, model); err != nil {
		return err
	}
	panel := Panel{q.Settings, c.panel.Preset}
	first := c.metadata
	if !c.started {
		first.Title, first.Opening, first.System, first.Settings = cmp.Or(chatlist.TitleOf(q.Text), "Picture"), q.Opening, q.System, panel.record()
		first.Model = cmp.Or(q.Model, c.service.LoadedModel())
		c.metadata.Opening, panel.Preset = first.Opening, q.Preset
	}
	t := c.newAnswer(q.System, q.Settings)
	question := store.NewMessage{Parent: parent, Role: store.RoleUser, Text: q.Text, Author: q.author, Pictures: pictures}
	if q.result {
		question.Role = store.RoleTool
	}
	record := store.NewAnswer{Answer: t.record(), Change: c.panelChange(panel, q.System)}
	var asked, added store.Message
	started := c.started
	err = c.commit(ctx, func(ctx context.Context) (err error) {
		switch {
		case started && q.Unanswered:
			asked, err = c.messages.AddMessage(ctx, c.owner, c.id, question)
		case started:
			asked, added, err = c.messages.Ask(ctx, c.owner, c.id, question, record)
		case q.Unanswered:
			_, asked, err = c.messages.StartUnanswered(ctx, c.owner, first, question)
		default:
			_, asked, added, err = c.messages.Start(ctx, c.owner, first, question, record)
		}
		return err
	})
	if err != nil {
		return owned.StoreError(err)
	}
	c.service.Uploads.Sent(c.owner, pictures)
	if !q.Unanswered || !started { // else the panel is not stored with it
		c.setPanel(panel, q.System)
	}
	if !c.started {
		c.started = true
		c.setTitle(first.Title)
	}
	c.add(fromStore(asked))
	if q.Unanswered {
		c.changed()
		return nil
	}
	c.place(t, added)
	return nil
}

// add puts a message after its parent, in place of what stood there.
func (c *Chat) add(t *turn) {
	n := c.branch.upTo(t.Parent)
	c.branch = append(c.branch[:n:n], t)
	m := t.message()
	c.publish(Event{Type: EventMessage, ID: t.ID, Message: &m})
}

// place adds an answer that was stored and begins to write it.
func (c *Chat) place(t *turn, added store.Message) {
	t.ID, t.Parent, t.Version, t.Versions, t.At = added.ID, added.Parent, added.Version, added.Versions, added.Created
	c.add(t)
	c.begin(t)
}

// CheckQuestion returns an error if text cannot be a question of its own: it is empty, no text, or longer than a chat.
func CheckQuestion(text string) error {
	if err := CheckText(text); err != nil {
		return err
	}
	if len(text) > maxText {
		return fault.Invalid("text", "the text has %d KiB, and at most %d fit", len(text)>>10, maxText>>10)
	}
	return nil
}

// CheckText returns an error if text cannot be a message: it is empty, or no text.
func CheckText(text string) error {
	if strings.TrimSpace(text) == "" {
		return fault.Invalid("text", "the message is empty")
	}
	return fault.CheckUTF8("text", text)
}

// checkPictured is CheckText for a question with pictures, which may have no text.
func checkPictured(text string, pictures []string) error {
	if err := attached.CheckNumber(pictures); err != nil {
		return err
	}
	if len(pictures) > 0 {
		return fault.CheckUTF8("text", text)
	}
	return CheckText(text)
}

// absent is StoreError for a message that a command named.
func (c *Chat) absent(err error, param string) error {
	if errors.Is(err, store.ErrNotFound) {
		return fault.Invalid(param, "this chat has no such message")
	}
	return owned.StoreError(err)
}
