package live

import (
	"context"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// Draft is a question that is still being written.
type Draft struct {
	Text          string   `json:"text"`
	System        string   `json:"system"`
	Pictures      []string `json:"pictures"` // as in Question
	store.Opening          // of a chat that has not started; without Model: whichever is loaded
}

// DraftRequest is the request that a draft would become, without the files of pictures.
type DraftRequest struct {
	infer.Request
	Leaf  int64 // the message before the draft; 0: none
	Bytes int   // of its text, which may be growing
}

// DraftRequest returns the request that a draft would become in the chat called id; in a new chat if id is empty.
func (s *Service) DraftRequest(ctx context.Context, who Principal, id string, d Draft) (r DraftRequest, err error) {
	if err := owned.May(who, access.ActionAsk, access.KindChat); err != nil {
		return r, err
	}
	if err := checkPictured(d.Text, d.Pictures); err != nil {
		return r, err
	}
	if err := fault.CheckUTF8("system", d.System); err != nil {
		return r, err
	}
	if id != "" {
		c, err := s.Chat(ctx, who, id)
		if err != nil {
			return r, err
		}
		return c.draft(d)
	}
	if err := choice.Check(d.Model); err != nil {
		return r, err
	}
	c := s.newChat(who.Owner, "", true)
	c.metadata.Opening = d.Opening
	return c.draft(d)
}

func (c *Chat) draft(d Draft) (r DraftRequest, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Leaf = c.branch.leaf()
	if len(c.branch) > 0 {
		r.Bytes = c.branch[len(c.branch)-1].length()
	}
	pictures, err := c.pictured(d.Pictures, c.metadata.Raw)
	if err != nil {
		return r, err
	}
	turns := append(c.branch[:len(c.branch):len(c.branch)], &turn{Message: Message{Role: RoleUser, Text: d.Text, Pictures: pictures}})
	r.Request = c.request(turns, chat.Message{}, d.System)
	r.Params, r.MaxTokens = sample.DefaultParams(), -1
	r.Messages = attached.Outline(r.Messages, branch(turns).pictures())
	return r, nil
}

// Conversation returns the messages of the branch as the engine gets them, without an answer at the end that has no text yet.
func (c *Chat) Conversation(who Principal) ([]chat.Message, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	turns := c.branch
	if n := len(turns); n > 0 && turns[n-1].Role == RoleModel && turns[n-1].length() == 0 {
		turns = turns[:n-1]
	}
	return history(turns, c.metadata.System), nil
}
