package live

import (
	"cmp"
	"context"
	"sync"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/store"
)

// Attempt is an answer to a question that is written alongside the chats, to be compared with others. It is
// in memory only; Chat.Keep makes a message of it. The engine gets the request that a chat would send.
// All methods but Begin, Write and Abandon are for who has the lock that was given to Begin.
type Attempt struct {
	turn    *turn
	owner   string
	chat    string        // empty: none
	request infer.Request // with hashes in place of pictures
	run     *run
	ctx     context.Context
	lock    sync.Locker
	changed func()
	writes  bool  // Write was called
	message int64 // that it became; 0: none
}

// Attempts returns an answer to a question of the branch for each of the settings that choose returns of
// those of the panel, and the text of the question. They are not being written yet.
func (c *Chat) Attempts(who Principal, question int64, choose func(panel setting.Settings) ([]setting.Settings, error)) (text string, list []*Attempt, err error) {
	if err := c.may(who, access.ActionAsk); err != nil {
		return "", nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find("question", question, RoleUser)
	if err != nil {
		return "", nil, err
	}
	settings, err := choose(c.panel.Settings)
	if err != nil {
		return "", nil, err
	}
	request := c.request(c.branch[:at+1], chat.Message{}, c.metadata.System)
	for i, s := range settings {
		if err := s.Validate(); err != nil {
			return "", nil, err
		}
		list = append(list, c.attempt(request, question, c.metadata.System, s, i))
	}
	return c.branch[at].Text, list, nil
}

// Way is how an attempt is written in place of what a chat has.
type Way struct {
	Model    string // empty: that of the chat
	System   string // empty: that of the chat
	Settings setting.Settings
}

// AttemptsBy returns an answer to a question of the branch for each of several ways, and the text of the question. They are not
// being written yet.
func (c *Chat) AttemptsBy(who Principal, question int64, ways ...Way) (text string, list []*Attempt, err error) {
	if err := c.may(who, access.ActionAsk); err != nil {
		return "", nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, err := c.branch.find("question", question, RoleUser)
	if err != nil {
		return "", nil, err
	}
	for i, w := range ways {
		if err := w.Settings.Validate(); err != nil {
			return "", nil, err
		}
		other := c.service.newChat(c.owner, c.id, c.temporary) // never listed: it makes the request as c does
		other.metadata = c.metadata
		other.metadata.Model = cmp.Or(w.Model, c.metadata.Model)
		system := cmp.Or(w.System, c.metadata.System)
		list = append(list, other.attempt(other.request(c.branch[:at+1], chat.Message{}, system), question, system, w.Settings, i))
	}
	return c.branch[at].Text, list, nil
}

// Attempt returns an answer to a question that is in no chat, by a model, or by the loaded one if model is
// empty; sibling is its place among those that are compared. It is not being written yet.
func (s *Service) Attempt(who Principal, text, model, system string, settings setting.Settings, sibling int) (*Attempt, error) {
	if err := owned.May(who, access.ActionAsk, access.KindChat); err != nil {
		return nil, err
	}
	c := s.newChat(who.Owner, "", true) // never listed: it makes the request as every chat does
	c.metadata.Model = model
	question := &turn{Message: Message{Role: RoleUser, Text: text}}
	return c.attempt(c.request([]*turn{question}, chat.Message{}, system), 0, system, settings, sibling), nil
}

func (c *Chat) attempt(request infer.Request, question int64, system string, s setting.Settings, sibling int) *Attempt {
	t := c.newAnswer(system, s)
	t.Parent = question
	t.Answer.Settings.Apply(&request)
	request.Rows, request.Sibling = true, sibling
	return &Attempt{turn: t, owner: c.owner, chat: c.id, request: request, run: &run{service: c.service}}
}

// Begin counts the time of the answer from now on. changed is called, with lock, after each change of it.
func (a *Attempt) Begin(ctx context.Context, lock sync.Locker, changed func()) {
	ctx, cancel := context.WithCancel(ctx)
	a.ctx, a.lock, a.changed = ctx, lock, changed
	a.run = a.run.service.newRun(a.turn, func(Event) { changed() }, cancel)
}

// Write writes the answer and returns when it has ended.
func (a *Attempt) Write() {
	a.lock.Lock()
	a.writes = true
	a.lock.Unlock()
	request := a.request
	err := a.run.service.loadPictures(a.ctx, a.owner, a.chat, &request)
	if err == nil {
		err = a.run.generate(a.ctx, a.lock, request)
	}
	a.finish(err)
}

// Abandon ends an answer that is not written any more.
func (a *Attempt) Abandon() { a.finish(context.Canceled) }

func (a *Attempt) finish(err error) {
	a.run.cancel()
	a.lock.Lock()
	defer a.lock.Unlock()
	a.end(err)
}

// end ends the answer as the engine did. One that has ended stays as it is.
func (a *Attempt) end(err error) {
	answer := a.turn.Answer
	if !answer.State.Running() {
		return
	}
	if len(a.run.pace.Tokens) > 0 {
		answer.Pace = &a.run.pace
	}
	answer.State, answer.Error = a.run.verdict(err)
	answer.Progress, answer.Thinking = nil, false
	a.changed()
}

// Stop ends the answer on behalf of a person, unless it has ended.
func (a *Attempt) Stop() {
	if !a.Running() {
		return
	}
	a.run.stop()
	if !a.writes {
		a.end(context.Canceled)
	}
}

// Running reports whether the answer is being written or waits.
func (a *Attempt) Running() bool { return a.turn.Answer.State.Running() }

// Answer returns what is known of the answer.
func (a *Attempt) Answer() Answer { return *a.turn.Answer }

// Text returns the text so far, and the reasoning before it.
func (a *Attempt) Text() (text, reasoning string) {
	return a.turn.text.String(), a.turn.reasoning.String()
}

// IDs returns the tokens so far, which must not be changed.
func (a *Attempt) IDs() []int32 { return a.turn.ids }

// Message returns the message that the answer became; 0: none.
func (a *Attempt) Message() int64 { return a.message }

// finished returns what is stored of an answer that has ended, and the message that it became, if it did.
func (a *Attempt) finished() (store.Finish, int64) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.turn.end(a.turn.Answer.State, a.turn.Answer.Error), a.message
}

// Keep makes an attempt that has ended a version of the answer to its question, and shows it. It returns
// the message, which is the same one if the attempt became one before.
func (c *Chat) Keep(ctx context.Context, who Principal, a *Attempt) (message int64, err error) {
	done, err := c.command(ctx, who, access.ActionAsk, "keep an answer")
	if err != nil {
		return 0, err
	}
	defer done()
	answer, made := a.finished()
	if made != 0 {
		return made, nil
	}
	question := a.turn.Parent
	if at, err := c.branch.find("question", question, RoleUser); err == nil {
		if err := c.checkRoom(c.branch[:at], len(answer.Text)+len(answer.Reasoning)); err != nil {
			return 0, err
		}
	}
	var branch []store.Message
	err = c.commit(ctx, func(ctx context.Context) error {
		record := store.NewAnswer{Parent: question, Text: answer.Text, Reasoning: answer.Reasoning, Answer: answer.Answer}
		added, err := c.messages.AddAnswer(ctx, c.owner, c.id, record)
		if err != nil {
			return c.absent(err, "question")
		}
		message = added.ID
		if _, err := c.messages.FinishAnswer(ctx, c.owner, c.id, message, answer); err != nil {
			return owned.StoreError(err)
		}
		branch, err = c.messages.Branch(ctx, c.owner, c.id)
		return err
	})
	if err != nil {
		return 0, err
	}
	a.lock.Lock()
	a.message = message
	a.changed()
	a.lock.Unlock()
	c.show(branch)
	c.changed()
	return message, nil
}

// Question returns a question of the branch, or with id 0 the last one, and the settings of the panel and
// the title of the chat.
func (c *Chat) Question(who Principal, id int64) (m Message, panel setting.Settings, title string, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return m, panel, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := len(c.branch) - 1; at >= 0 && id == 0; at-- {
		if c.branch[at].Role != RoleModel {
			id = c.branch[at].ID
		}
	}
	at, err := c.branch.find("question", id, RoleUser)
	if err != nil {
		return m, panel, "", err
	}
	return c.branch[at].message(), c.panel.Settings, c.metadata.Title, nil
}
