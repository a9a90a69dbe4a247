package live

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"m40-llm/handlers/chatlist"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/disk"
	"m40-llm/handlers/links"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// messages is what one chat needs of the place where its messages are stored. What a
// method has returned without error is stored: *store.Store, that of the server, or one in memory
// for temporary chats.
type messages interface {
	Start(ctx context.Context, owner string, n store.Metadata, q store.NewMessage, a store.NewAnswer) (c store.Conversation, question, answer store.Message, err error)
	StartUnanswered(ctx context.Context, owner string, n store.Metadata, q store.NewMessage) (c store.Conversation, question store.Message, err error)
	Ask(ctx context.Context, owner, conversation string, q store.NewMessage, a store.NewAnswer) (question, answer store.Message, err error)
	AddMessage(ctx context.Context, owner, conversation string, n store.NewMessage) (store.Message, error)
	AddAnswer(ctx context.Context, owner, conversation string, a store.NewAnswer) (store.Message, error)
	ContinueAnswer(ctx context.Context, owner, conversation string, message int64, a store.NewAnswer) error
	FinishAnswer(ctx context.Context, owner, conversation string, message int64, f store.Finish) (store.Message, error)
	DeleteMessage(ctx context.Context, owner, conversation string, message int64) error
	DeleteBranch(ctx context.Context, owner, conversation string, message int64) error
	Select(ctx context.Context, owner, conversation string, message int64) (leaf int64, err error)
	Sibling(ctx context.Context, owner, conversation string, message int64, version int) (id int64, err error)
	Conversation(ctx context.Context, owner, id string) (store.Conversation, error)
	UpdateConversation(ctx context.Context, owner, id string, change store.Change) (store.Conversation, error)
	Branch(ctx context.Context, owner, conversation string) ([]store.Message, error)
	Messages(ctx context.Context, owner, conversation string, after int64) ([]store.Message, error)
	Tokens(ctx context.Context, owner, conversation string, message int64) ([]int32, error)
	TokenRows(ctx context.Context, owner, conversation string, message int64) ([]store.TokenRows, error)
	Pictures(ctx context.Context, owner, conversation string, hashes []string) (files [][]byte, err error)
	chatlist.Target
}

// Store is where chats are stored: *store.Store.
type Store interface {
	messages
	chatlist.Store
	links.Store
	disk.Store
	SaveProgress(ctx context.Context, batch []store.Progress) (ended []int64, err error)
	BranchTo(ctx context.Context, owner, conversation string, last int64) ([]store.Message, error)
	choice.Store
	DeleteConversation(ctx context.Context, owner, id string) error
	RestoreConversation(ctx context.Context, owner, id string) error
}

// withoutFiles returns pictures without their files, which a chat in memory does not hold.
func withoutFiles(pictures []store.Picture) []store.Picture {
	pictures = slices.Clone(pictures)
	for i := range pictures {
		pictures[i].Data = nil
	}
	return pictures
}

// fromStore returns a message as a chat holds it. An answer without a record is one
// that a person wrote. One that is stored as running was interrupted.
func fromStore(m store.Message) *turn {
	t := &turn{Message: Message{
		ID: m.ID, Parent: m.Parent, Version: m.Version, Versions: m.Versions, Role: RoleUser, Text: m.Text, Author: m.Author, At: m.Created, Pictures: withoutFiles(m.Pictures),
	}}
	if m.Role == store.RoleTool {
		t.Role = RoleTool
	}
	if m.Role != store.RoleAssistant {
		return t
	}
	t.Role, t.Text = RoleModel, ""
	t.text.WriteString(m.Text)
	t.reasoning.WriteString(m.Reasoning)
	if m.Answer == nil {
		t.Answer = &Answer{State: Done, Rewritten: true}
		return t
	}
	a := &Answer{Answer: *m.Answer, Settings: setting.Default(), State: AnswerState(m.State)}
	t.Answer = a
	// Both were written by record; what another program put there is left out.
	_ = json.Unmarshal(m.Answer.Settings, &a.Settings)
	_ = json.Unmarshal(m.Answer.Error, &a.Error)
	a.Settings.Seed = a.Seed
	a.Answer.Settings, a.Answer.Error, a.Seed = nil, nil, 0 // record writes them from those that were read
	if m.State == store.Running {
		a.State = Interrupted
	}
	return t
}

// end returns how an answer ended, for the store.
func (t *turn) end(state AnswerState, failure *fault.Error) store.Finish {
	made := t.record()
	made.Error, _ = json.Marshal(failure) // cannot fail
	return store.Finish{State: store.State(state), Text: t.text.String(), Reasoning: t.reasoning.String(), Rows: t.rows.unsaved(1), Answer: made}
}

// dropFigures leaves of an answer its text and call, why it ended, its numbers of tokens and its times, in addition to what it had
// before it was continued.
func (t *turn) dropFigures(base Answer) {
	made := t.Answer.Answer
	t.Answer.Answer, t.rows = base.Answer, tokenRows{}
	t.Answer.Reason, t.Answer.ContextFull, t.Answer.Call = made.Reason, made.ContextFull, made.Call
	t.Answer.Usage, t.Answer.Timings = made.Usage, made.Timings
}

// strip leaves of an answer what can always be stored: its text, and what it had before it was continued.
func (t *turn) strip(base Answer) {
	for _, text := range []*strings.Builder{&t.text, &t.reasoning} {
		whole := text.String()
		text.Reset()
		text.WriteString(strings.ToValidUTF8(whole[:min(len(whole), store.MaxText)], ""))
	}
	t.Answer.Answer, t.rows = base.Answer, tokenRows{}
}

// record returns how an answer was made, as it is stored.
func (t *turn) record() store.Answer {
	r := t.Answer.Answer
	// Neither can fail: they are numbers and text.
	r.Settings, _ = json.Marshal(t.Answer.Settings)
	r.Error, _ = json.Marshal(t.Answer.Error)
	r.Seed, r.Tokens = t.Answer.Settings.Seed, t.ids
	return r
}
