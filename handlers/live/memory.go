package live

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"m40-llm/store"
)

// memory keeps the messages of temporary chats as *store.Store would, until they are
// dropped. Ids count from 1 in each conversation.
type memory struct {
	now func() time.Time

	mu            sync.Mutex
	conversations map[string]*remembered
}

type remembered struct {
	store.Conversation
	owner    string
	messages []*store.Message // by id, which is the index plus one; nil: deleted
	chosen   map[int64]int64  // the child shown last
	children map[int64]int    // 0: those without a parent
	rows     map[int64][]store.TokenRows
}

func newMemory(now func() time.Time) *memory {
	return &memory{now: now, conversations: map[string]*remembered{}}
}

// forget drops a conversation.
func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.conversations, id)
}

// in runs do with a conversation.
func (m *memory) in(owner, conversation string, do func(c *remembered) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conversations[conversation]
	if c == nil || c.owner != owner {
		return fmt.Errorf("conversation %q: %w", conversation, store.ErrNotFound)
	}
	return do(c)
}

// message returns the message called id, or store.ErrNotFound.
func (c *remembered) message(id int64) (*store.Message, error) {
	if id < 1 || id > int64(len(c.messages)) || c.messages[id-1] == nil {
		return nil, fmt.Errorf("message %d: %w", id, store.ErrNotFound)
	}
	return c.messages[id-1], nil
}

// view is a copy of a message that knows of the messages beside it.
func (c *remembered) view(message *store.Message) store.Message {
	v := *message
	v.Versions, v.Children = c.children[v.Parent], c.children[v.ID]
	if v.Answer != nil {
		a := *v.Answer
		v.Answer = &a
	}
	return v
}

func (c *remembered) show(message, leaf int64) {
	c.chosen[c.messages[message-1].Parent] = message
	c.Leaf = leaf
}

func (c *remembered) add(m store.Message, now time.Time) (*store.Message, error) {
	if err := c.fill(m.Pictures); err != nil {
		return nil, err
	}
	if m.Parent != 0 {
		if _, err := c.message(m.Parent); err != nil {
			return nil, err
		}
	}
	c.children[m.Parent]++
	m.ID, m.Version, m.Created = int64(len(c.messages)+1), c.children[m.Parent], now
	c.messages = append(c.messages, &m)
	c.show(m.ID, m.ID)
	c.Updated = now
	return &m, nil
}

// fill puts the files into pictures that another message has, too.
func (c *remembered) fill(pictures []store.Picture) error {
	for i := range pictures {
		if p := &pictures[i]; p.Data == nil {
			if p.Data = c.file(p.Hash); p.Data == nil {
				return fmt.Errorf("picture %s: %w", p.Hash, store.ErrNotFound)
			}
		}
	}
	return nil
}

// file returns the file of a picture of a message; nil if none has it.
func (c *remembered) file(hash string) []byte {
	for _, message := range c.messages {
		if message == nil {
			continue
		}
		for _, p := range message.Pictures {
			if p.Hash == hash {
				return p.Data
			}
		}
	}
	return nil
}

// pictureBytes returns how many bytes the pictures of all conversations have.
func (m *memory) pictureBytes() (bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conversations {
		for _, message := range c.messages {
			if message == nil {
				continue
			}
			for _, p := range message.Pictures {
				bytes += p.Bytes
			}
		}
	}
	return bytes
}

func (m *memory) Pictures(_ context.Context, owner, conversation string, hashes []string) (files [][]byte, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		for _, hash := range hashes {
			file := c.file(hash)
			if file == nil {
				return fmt.Errorf("picture %s: %w", hash, store.ErrNotFound)
			}
			files = append(files, file)
		}
		return nil
	})
	return files, err
}

func (c *remembered) change(change store.Change) {
	if change != nil {
		change(&c.Metadata)
	}
}

func (c *remembered) answer(a store.NewAnswer, now time.Time) (*store.Message, error) {
	c.change(a.Change)
	record := a.Answer
	return c.add(store.Message{Parent: a.Parent, Role: store.RoleAssistant, State: store.Running, Text: a.Text, Reasoning: a.Reasoning, Answer: &record}, now)
}

func (c *remembered) ask(q store.NewMessage, a store.NewAnswer, now time.Time) (question, answer store.Message, err error) {
	added, err := c.add(store.Message{Parent: q.Parent, Role: q.Role, State: store.Done, Text: q.Text, Author: q.Author, Pictures: q.Pictures}, now)
	if err != nil {
		return store.Message{}, store.Message{}, err
	}
	a.Parent = added.ID
	answered, err := c.answer(a, now)
	if err != nil {
		return store.Message{}, store.Message{}, err
	}
	return c.view(added), c.view(answered), nil
}

func (m *memory) create(owner string, n store.Metadata) *remembered {
	now := m.now()
	if n.ID == "" {
		n.ID = store.NewID()
	}
	return &remembered{
		owner:        owner,
		Conversation: store.Conversation{Metadata: n, Created: now, Updated: now},
		chosen:       map[int64]int64{},
		rows:         map[int64][]store.TokenRows{},
		children:     map[int64]int{},
	}
}

func (m *memory) Start(_ context.Context, owner string, n store.Metadata, q store.NewMessage, a store.NewAnswer) (store.Conversation, store.Message, store.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.create(owner, n)
	question, answer, err := c.ask(q, a, m.now())
	if err == nil {
		m.conversations[c.ID] = c
	}
	return c.Conversation, question, answer, err
}

func (m *memory) StartUnanswered(ctx context.Context, owner string, n store.Metadata, q store.NewMessage) (store.Conversation, store.Message, error) {
	c := m.create(owner, n)
	m.mu.Lock()
	m.conversations[c.ID] = c
	m.mu.Unlock()
	question, err := m.AddMessage(ctx, owner, c.ID, q)
	if err != nil {
		m.forget(c.ID)
	}
	return c.Conversation, question, err
}

func (m *memory) Ask(_ context.Context, owner, conversation string, q store.NewMessage, a store.NewAnswer) (question, answer store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		question, answer, err = c.ask(q, a, m.now())
		return err
	})
	return question, answer, err
}

func (m *memory) AddMessage(_ context.Context, owner, conversation string, n store.NewMessage) (added store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		message, err := c.add(store.Message{Parent: n.Parent, Role: n.Role, State: store.Done, Text: n.Text, Reasoning: n.Reasoning, Author: n.Author, Pictures: n.Pictures}, m.now())
		if err == nil {
			added = c.view(message)
		}
		return err
	})
	return added, err
}

func (m *memory) AddAnswer(_ context.Context, owner, conversation string, a store.NewAnswer) (added store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		message, err := c.answer(a, m.now())
		if err == nil {
			added = c.view(message)
		}
		return err
	})
	return added, err
}

func (m *memory) ContinueAnswer(_ context.Context, owner, conversation string, id int64, a store.NewAnswer) error {
	return m.in(owner, conversation, func(c *remembered) error {
		message, err := c.message(id)
		if err != nil {
			return err
		}
		if message.State == store.Running {
			return fmt.Errorf("%w: answer %d runs already", store.ErrConflict, id)
		}
		message.State, message.Text, message.Reasoning, message.Answer = store.Running, a.Text, a.Reasoning, &a.Answer
		c.change(a.Change)
		return nil
	})
}

func (m *memory) FinishAnswer(_ context.Context, owner, conversation string, id int64, f store.Finish) (ended store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		message, err := c.message(id)
		if err != nil {
			return err
		}
		if message.State != store.Running {
			return fmt.Errorf("%w: answer %d has ended already", store.ErrConflict, id)
		}
		message.State, message.Text, message.Reasoning, message.Answer = f.State, f.Text, f.Reasoning, &f.Answer
		c.rows[id] = append(c.rows[id], f.Rows...)
		ended = c.view(message)
		return nil
	})
	return ended, err
}

func (m *memory) DeleteBranch(_ context.Context, owner, conversation string, id int64) error {
	return m.in(owner, conversation, func(c *remembered) error {
		message, err := c.message(id)
		if err != nil {
			return err
		}
		if message.Parent == 0 && c.children[0] == 1 {
			return &store.InvalidError{Field: "message", Problem: "is the first of the conversation, with all others below it; delete the conversation instead"}
		}
		beside := c.remove(message)
		if _, err := c.message(c.Leaf); err == nil {
			if c.chosen[message.Parent] == id {
				c.chosen[message.Parent] = beside
			}
			return nil
		}
		delete(c.chosen, message.Parent)
		c.Leaf = message.Parent
		if beside != 0 {
			leaf := beside
			for c.chosen[leaf] != 0 {
				leaf = c.chosen[leaf]
			}
			c.show(beside, leaf)
		}
		return nil
	})
}

// remove deletes a message and all below it, numbers the versions beside it anew, and returns the last
// of these; 0 if there is none.
func (c *remembered) remove(message *store.Message) (beside int64) {
	gone := map[int64]bool{message.ID: true}
	for i, other := range c.messages {
		switch {
		case other == nil:
		case gone[other.ID] || gone[other.Parent] && other.Parent != 0:
			gone[other.ID], c.messages[i] = true, nil
			delete(c.rows, other.ID)
		case other.Parent == message.Parent:
			beside = other.ID
			if other.Version > message.Version {
				other.Version--
			}
		}
	}
	c.children[message.Parent]--
	return beside
}

func (m *memory) Select(_ context.Context, owner, conversation string, id int64) (leaf int64, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		if _, err := c.message(id); err != nil {
			return err
		}
		leaf = id
		for c.chosen[leaf] != 0 {
			leaf = c.chosen[leaf]
		}
		c.show(id, leaf)
		return nil
	})
	return leaf, err
}

func (m *memory) Sibling(_ context.Context, owner, conversation string, id int64, version int) (sibling int64, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		message, err := c.message(id)
		if err != nil {
			return err
		}
		for _, other := range c.messages {
			if other != nil && other.Parent == message.Parent && other.Version == version {
				sibling = other.ID
				return nil
			}
		}
		return fmt.Errorf("version %d of message %d: %w", version, id, store.ErrNotFound)
	})
	return sibling, err
}

func (m *memory) Conversation(_ context.Context, owner, id string) (found store.Conversation, err error) {
	err = m.in(owner, id, func(c *remembered) error {
		found = c.Conversation
		return nil
	})
	return found, err
}

func (m *memory) UpdateConversation(_ context.Context, owner, id string, change store.Change) (changed store.Conversation, err error) {
	err = m.in(owner, id, func(c *remembered) error {
		c.change(change)
		changed = c.Conversation
		return nil
	})
	return changed, err
}

func (m *memory) Branch(_ context.Context, owner, conversation string) (list []store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		for id := c.Leaf; id != 0; id = c.messages[id-1].Parent {
			list = append(list, c.view(c.messages[id-1]))
		}
		slices.Reverse(list)
		return nil
	})
	return list, err
}

func (m *memory) Messages(_ context.Context, owner, conversation string, after int64) (list []store.Message, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		for _, message := range c.messages[min(after, int64(len(c.messages))):] {
			if message != nil {
				list = append(list, c.view(message))
			}
		}
		return nil
	})
	return list, err
}

func (m *memory) Tokens(_ context.Context, owner, conversation string, id int64) (tokens []int32, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		message, err := c.message(id)
		if err == nil && message.Answer != nil {
			tokens = slices.Clone(message.Answer.Tokens)
		}
		return err
	})
	return tokens, err
}

func (m *memory) TokenRows(_ context.Context, owner, conversation string, id int64) (list []store.TokenRows, err error) {
	err = m.in(owner, conversation, func(c *remembered) error {
		_, err := c.message(id)
		list = slices.Clone(c.rows[id])
		return err
	})
	return list, err
}

func (m *memory) Import(_ context.Context, owner string, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64)) (store.Conversation, error) {
	c := m.create(owner, store.Metadata{})
	ids, last := map[int64]int64{0: 0}, int64(0)
	for message, err := range list {
		if err != nil {
			return store.Conversation{}, err
		}
		old, created := message.ID, message.Created
		parent, known := ids[message.Parent]
		_, twice := ids[old]
		switch {
		case !known || twice:
			return store.Conversation{}, &store.InvalidError{Field: "messages", Problem: fmt.Sprintf("have a message %d that comes twice or before its parent %d", old, message.Parent)}
		case len(c.messages) == store.MaxImport:
			return store.Conversation{}, &store.InvalidError{Field: "messages", Problem: fmt.Sprintf("are more than %d, the most that a chat can be imported or copied with", store.MaxImport)}
		}
		message.Parent = parent
		if message.State == store.Running {
			message.State = store.Interrupted
		}
		added, err := c.add(message, created)
		if err != nil {
			return store.Conversation{}, err
		}
		ids[old], last = added.ID, old
	}
	n, leaf := about()
	if leaf == 0 {
		leaf = last
	}
	if _, known := ids[leaf]; !known {
		return store.Conversation{}, &store.InvalidError{Field: "leaf", Problem: fmt.Sprintf("is message %d, which is not in the list", leaf)}
	}
	for id := ids[leaf]; id != 0; id = c.messages[id-1].Parent {
		c.show(id, ids[leaf])
	}
	c.Conversation = m.create(owner, n).Conversation
	c.Leaf = ids[leaf]
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conversations[c.ID] = c
	return c.Conversation, nil
}
