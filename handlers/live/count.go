package live

import (
	"cmp"
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
	store.Opening          // of a chat that has not begun; without Model: whichever is loaded
}

// Count is how many tokens the prompt of a question would have.
type Count struct {
	Tokens   int                   // of the whole prompt
	Draft    int                   // of them, those of the draft
	Pictures []int                 // of them, those of each picture of the draft
	Details  []infer.PictureTokens // how many each of these would have in each detail; nil: the engine does not say
	Largest  fault.Part            // of a prompt that is too long: which part has most of its tokens; empty: not known
	Most     int                   // tokens of Largest
	Larger   bool                  // the model was trained on more positions than Context
	Context  int                   // positions that the engine can use, one at least for the answer; 0: not known
}

// counted is a prompt of which all but the draft was counted.
type counted struct {
	leaf          int64
	bytes         int    // of the text of the leaf, which may be growing
	system, model string // the model that counted
	tokens        int    // 0: nothing was counted
}

// Count counts the prompt that a draft would make in the chat called id; in a new chat
// if id is empty.
func (s *Service) Count(ctx context.Context, who Principal, id string, d Draft) (Count, error) {
	if err := owned.May(who, access.ActionAsk, access.KindChat); err != nil {
		return Count{}, err
	}
	if err := checkPictured(d.Text, d.Pictures); err != nil {
		return Count{}, err
	}
	if err := fault.CheckUTF8("system", d.System); err != nil {
		return Count{}, err
	}
	if id != "" {
		c, err := s.Chat(ctx, who, id)
		if err != nil {
			return Count{}, err
		}
		return c.count(ctx, d)
	}
	if err := choice.Check(d.Model); err != nil {
		return Count{}, err
	}
	c := s.newChat(who.Owner, "", true)
	c.metadata.Opening = d.Opening
	return c.count(ctx, d)
}

// count renders the prompt, and remembers what stood before the draft: to render a long
// chat at each pause of a typist would cost more than it tells. Near the end of the
// context, where a token decides, it is rendered again, as the draft's first token may
// melt into what precedes it.
func (c *Chat) count(ctx context.Context, d Draft) (Count, error) {
	engine := c.service.engine
	request, key, err := c.draft(d)
	if err != nil {
		return Count{}, err
	}
	var n Count
	status := engine.Status()
	key.model = cmp.Or(request.Model, status.Model.Name)
	n.Context = status.Context(key.model)
	if loaded := status.Of(key.model); loaded != nil {
		n.Larger = loaded.Model.ContextTrain > n.Context
	}
	draft, err := engine.Tokenize(ctx, request.Model, d.Text, false, false)
	if err != nil {
		return Count{}, err
	}
	n.Draft = len(draft)
	if before := c.countedBefore(key); before > 0 && len(d.Pictures) == 0 {
		n.Tokens = before + n.Draft
		if near := n.Context - n.Context/8; n.Tokens < near {
			return n, nil
		}
	}
	rendered, err := engine.Render(ctx, request)
	if err != nil {
		return Count{}, err
	}
	n.Tokens, n.Largest, n.Most = len(rendered.Tokens), rendered.Largest, rendered.LargestTokens
	n.Pictures = rendered.Pictures[max(0, len(rendered.Pictures)-len(d.Pictures)):]
	n.Details = rendered.Details[max(0, len(rendered.Details)-len(d.Pictures)):]
	for _, tokens := range n.Pictures {
		n.Draft += tokens
	}
	key.tokens = n.Tokens - n.Draft
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted = key
	return n, nil
}

// draft returns the request that a draft would become.
func (c *Chat) draft(d Draft) (infer.Request, counted, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.service.opt.Now()
	key := counted{leaf: c.branch.leaf(), system: d.System}
	if len(c.branch) > 0 {
		key.bytes = c.branch[len(c.branch)-1].length()
	}
	pictures, err := c.pictured(d.Pictures, c.metadata.Raw)
	if err != nil {
		return infer.Request{}, key, err
	}
	turns := append(c.branch[:len(c.branch):len(c.branch)], &turn{Message: Message{Role: RoleUser, Text: d.Text, Pictures: pictures}})
	r := c.request(turns, chat.Message{}, d.System)
	r.Params, r.MaxTokens = sample.DefaultParams(), -1
	r.Messages = attached.Outline(r.Messages, branch(turns).pictures())
	return r, key, nil
}

// countedBefore returns how many tokens precede a draft; 0 if that is not known.
func (c *Chat) countedBefore(key counted) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	key.tokens = c.counted.tokens
	if c.counted != key {
		return 0
	}
	return key.tokens
}
