package inspect

import (
	"cmp"
	"context"
	"sync"

	"m40-llm/handlers/live"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

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

// counts are how many tokens precede the drafts of chats.
type counts struct {
	mu    sync.Mutex
	chats map[string]counted
}

// counted is the prompt before a draft.
type counted struct {
	leaf          int64
	bytes         int    // of the text of the leaf
	system, model string // the model that counted
	tokens        int
}

// maxCounts is how many chats are remembered. Where there are more, all are forgotten.
const maxCounts = 256

// Count counts the prompt that a draft would make in the chat called id; in a new chat
// if id is empty. To render a long chat at each pause of a typist would take too long, so what precedes the draft is counted once. Near
// the end of the context, where one token matters, it is rendered again, as the draft's first token may
// melt into what precedes it.
func (s *Service) Count(ctx context.Context, who live.Principal, id string, d live.Draft) (Count, error) {
	request, err := s.chats.DraftRequest(ctx, who, id, d)
	if err != nil {
		return Count{}, err
	}
	var n Count
	status := s.engine.Status()
	key := counted{leaf: request.Leaf, bytes: request.Bytes, system: d.System, model: cmp.Or(request.Model, status.Model.Name)}
	n.Context = status.Context(key.model)
	if loaded := status.Of(key.model); loaded != nil {
		n.Larger = loaded.Model.ContextTrain > n.Context
	}
	draft, err := s.engine.Tokenize(ctx, request.Model, d.Text, false, false)
	if err != nil {
		return Count{}, err
	}
	n.Draft = len(draft)
	if before := s.counts.find(id, key); before > 0 && len(d.Pictures) == 0 {
		n.Tokens = before + n.Draft
		if near := n.Context - n.Context/8; n.Tokens < near {
			return n, nil
		}
	}
	rendered, err := s.engine.Render(ctx, request.Request)
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
	s.counts.add(id, key)
	return n, nil
}

// find returns how many tokens precede a draft; 0 if that is not known.
func (c *counts) find(chat string, key counted) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.chats[chat]
	if key.tokens = known.tokens; known != key {
		return 0
	}
	return known.tokens
}

func (c *counts) add(chat string, n counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if chat == "" {
		return
	}
	if c.chats == nil || len(c.chats) >= maxCounts {
		c.chats = map[string]counted{}
	}
	c.chats[chat] = n
}

// forget drops the count of a chat.
func (c *counts) forget(chat string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.chats, chat)
}
