package live

import (
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/handlers/markdown/blocks"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Limits of the branch of a chat. A model's context ends far before them.
const (
	maxMessages = 2000
	maxText     = 4 << 20 // bytes
)

// branch are the messages of a chat that are shown, from the first to the leaf. Other branches
// are in the store alone.
type branch []*turn

// turn is a message that may still grow.
type turn struct {
	Message
	text      strings.Builder // of an answer; a question's text is in Message
	reasoning strings.Builder // of an answer
	split     blocks.Splitter
	ids       []int32 // tokens of an answer
	rows      tokenRows
	saved     int // bytes of both that are stored
}

// length is how many bytes the model wrote.
func (t *turn) length() int { return t.text.Len() + t.reasoning.Len() }

// request returns the answer as the engine gets it.
func (t *turn) request() chat.Message { return answerMessage(t.reasoning.String(), t.text.String()) }

// continued returns what a person wrote of an answer that was continued.
func (t *turn) continued() chat.Message {
	first := func(text *strings.Builder, bytes int) string {
		return strings.ToValidUTF8(text.String()[:min(bytes, text.Len())], "")
	}
	return answerMessage(first(&t.reasoning, t.Answer.ReasoningPrefix), first(&t.text, t.Answer.Prefix))
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

// setText replaces the text of an answer.
func (t *turn) setText(m chat.Message) {
	t.text, t.reasoning = strings.Builder{}, strings.Builder{}
	t.text.WriteString(m.Content)
	t.reasoning.WriteString(m.ReasoningContent)
}

// reopen finds the blocks of an answer that is about to grow again.
func (t *turn) reopen() {
	t.split, t.Answer.Blocks = blocks.Splitter{}, 0
	for end := t.split.Next(t.text.String()); end != 0; end = t.split.Next(t.text.String()) {
		t.Answer.Blocks = end
	}
	t.Answer.Thinking = t.text.Len() == 0 && t.reasoning.Len() > 0
}

// storedBranch returns the branch that the store returned.
func storedBranch(list []store.Message) (b branch) {
	for _, m := range list {
		b = append(b, fromStore(m))
	}
	return b
}

// messages returns copies that can be handed out.
func (b branch) messages() []Message {
	list := make([]Message, len(b))
	for i, t := range b {
		list[i] = t.message()
	}
	return list
}

// leaf is the id of the last message; 0 if there is none.
func (b branch) leaf() int64 {
	if len(b) == 0 {
		return 0
	}
	return b[len(b)-1].ID
}

// find returns where a message of a role is; any role if role is empty. Results of calls count as
// questions. Of answers, 0 means the last. Its error names param.
func (b branch) find(param string, id int64, role Role) (int, error) {
	for at := len(b) - 1; at >= 0; at-- {
		t := b[at]
		is := role == "" || t.Role == role || role == RoleUser && t.Role == RoleTool
		if !is || id != t.ID && (id != 0 || role != RoleModel) {
			continue
		}
		return at, nil
	}
	what := map[Role]string{RoleUser: "question", RoleModel: "answer", "": "message"}[role]
	return 0, fault.Invalid(param, "the branch that is shown has no %s %d", what, id)
}

// upTo returns how many messages there are up to the one called id, with it; 0 if it is not in the branch.
func (b branch) upTo(id int64) int {
	for i, t := range b {
		if t.ID == id {
			return i + 1
		}
	}
	return 0
}

// common returns how many messages b begins with that a stored branch begins with too.
func (b branch) common(stored []store.Message) (n int) {
	for n < len(stored) && n < len(b) && stored[n].ID == b[n].ID {
		n++
	}
	return n
}

// checkRoom returns an error if more bytes below a part of the branch exceed the limits. The chats of visitors are in memory with all
// of their branches, so there the bytes of all that was written count.
func (c *Chat) checkRoom(b branch, more int) error {
	if err := b.checkRoom(more); err != nil || !access.IsVisitor(c.owner) {
		return err
	}
	if c.written+more > visitorsText {
		return fault.Invalid("text", "you have written %d KiB in this chat, what was edited included, and visitors have %d; start a new chat", c.written>>10, visitorsText>>10)
	}
	c.written += more
	return nil
}

// checkRoom returns an error if more bytes in a further question and its answer exceed the limits.
func (b branch) checkRoom(more int) error {
	total := more
	for _, t := range b {
		total += len(t.Text) + t.length()
	}
	if total > maxText || len(b)+2 > maxMessages {
		return fault.Invalid("text", "this chat holds %d messages and %d KiB of text, and its limits are %d and %d KiB; start a new chat",
			len(b), total>>10, maxMessages, maxText>>10)
	}
	return nil
}

// firstModel returns the model of the first answer that a model wrote. Chats from before they had
// a model, and imported ones without, continue with it.
func (b branch) firstModel() string {
	for _, t := range b {
		if t.Answer != nil && !t.Answer.Rewritten && t.Answer.Receipt.Model != "" {
			return t.Answer.Receipt.Model
		}
	}
	return ""
}
