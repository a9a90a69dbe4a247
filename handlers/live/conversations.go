package live

import (
	"context"
	"errors"
	"iter"

	"m40-llm/handlers/access"
	"m40-llm/handlers/chatlist"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// The list of chats. Temporary ones are not in it. Whatever changes it closes Changes.

// Conversation returns what is known of a chat apart from its messages.
func (s *Service) Conversation(ctx context.Context, who Principal, id string) (store.Conversation, error) {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return store.Conversation{}, err
	}
	conversation, err := c.messages.Conversation(ctx, who.Owner, id)
	if err != nil {
		return store.Conversation{}, owned.StoreError(err)
	}
	return conversation, nil
}

// Running reports whether an answer of a chat is being written.
func (s *Service) Running(who Principal, id string) bool {
	c := s.find(id)
	return c != nil && c.may(who, access.ActionRead) == nil && c.running()
}

// Rename gives a chat a title.
func (s *Service) Rename(ctx context.Context, who Principal, id, title string) error {
	title, err := chatlist.Title(title)
	if err != nil {
		return err
	}
	if title == "" {
		return fault.Invalid("title", "the title is empty")
	}
	// A load in between would read the old title and get no event of the new one.
	defer s.loading.Lock(id)()
	if err := s.List.Update(ctx, who, id, func(m *store.Metadata) { m.Title = title }); err != nil {
		return err
	}
	if c := s.find(id); c != nil {
		c.rename(title)
	}
	return nil
}

// LoadedModel returns the name of the model that is loaded, or is being loaded; empty if
// there is none, or it computes embeddings or ranks documents and writes no text.
func (s *Service) LoadedModel() string {
	status := s.engine.Status()
	if status.State == infer.StateFailed || !status.Model.Writes() {
		return ""
	}
	return status.Model.Name
}

// SetModel names the model of a chat's answers to come; empty: the one that is loaded now. An
// answer that is being written keeps its own.
func (s *Service) SetModel(ctx context.Context, who Principal, id, model string) error {
	if err := choice.Check(model); err != nil {
		return err
	}
	if model == "" {
		if model = s.LoadedModel(); model == "" {
			return &fault.Error{Code: fault.CodeNotFound, Param: "model", Message: "no model is loaded; choose one by its name"}
		}
	}
	defer s.loading.Lock(id)()
	c := s.find(id)
	if c != nil {
		if err := c.may(who, access.ActionChange); err != nil {
			return err
		}
	}
	if c == nil || !c.temporary {
		if err := s.List.Update(ctx, who, id, func(m *store.Metadata) { m.Model = model }); err != nil {
			return err
		}
	}
	if c != nil {
		c.use(model)
	}
	s.Choice.Choose(ctx, who, model)
	return nil
}

// Delete puts a chat in the trash. An answer that runs in it is stopped first, and its
// text db. A temporary chat is gone.
func (s *Service) Delete(ctx context.Context, who Principal, id string) error {
	if err := owned.May(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	defer s.loading.Lock(id)()
	c := s.find(id)
	if c != nil {
		if err := c.may(who, access.ActionChange); err != nil {
			return err
		}
	}
	stored := s.opt.Store != nil && (c == nil || !c.temporary)
	if !stored && c == nil {
		return owned.ErrNotFound
	}
	if stored {
		if err := s.opt.Store.DeleteConversation(ctx, who.Owner, id); err != nil {
			return owned.StoreError(err)
		}
	}
	s.Disk.DropKVFile(id)
	s.callWith(id, func(h Hooks) func(string) { return h.ChatDeleted })
	if c != nil {
		if err := s.end(c); err != nil {
			return err
		}
	}
	s.List.Notify(who.Owner)
	s.Links.Notify()
	return nil
}

// end takes a chat that was deleted out of memory when its commands and its answer have
// ended.
func (s *Service) end(c *Chat) error {
	release, _ := c.takeSlot(context.Background()) // cannot fail
	ended := s.remove(c)
	release()
	if ended != nil {
		<-ended
	}
	release, _ = c.takeSlot(context.Background())
	defer release()
	return c.storeEnding()
}

// Forget ends the chats of a person who was removed, or of a visitor who has ended: their answers are stopped, and what
// they would have stored is dropped.
func (s *Service) Forget(owner string) {
	s.callWith(owner, func(h Hooks) func(string) { return h.PersonRemoved })
	for _, c := range s.inMemory() {
		if c.owner == owner {
			if err := s.end(c); err != nil && !errors.Is(err, owned.ErrNotFound) {
				s.opt.Log.Warn("failed to end a chat of a person who was removed", "chat", c.id, "error", err)
			}
		}
	}
	if err := s.PruneKVCaches(s.ctx); err != nil {
		s.opt.Log.Warn("failed to delete the KV caches of a person who was removed", "error", err)
	}
	s.Links.Notify()
	s.List.Notify(owner)
	s.Choice.Forget(owner)
}

// Restore takes a chat out of the trash.
func (s *Service) Restore(ctx context.Context, who Principal, id string) error {
	if err := owned.May(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	if s.opt.Store == nil {
		return owned.ErrNotFound
	}
	defer s.loading.Lock(id)()
	if err := s.opt.Store.RestoreConversation(ctx, who.Owner, id); err != nil {
		return owned.StoreError(err)
	}
	s.List.Notify(who.Owner)
	s.Links.Notify()
	return nil
}

// Tree returns a chat with all its messages, parents before their children.
func (s *Service) Tree(ctx context.Context, who Principal, id string) (store.Conversation, []store.Message, error) {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return store.Conversation{}, nil, err
	}
	conversation, err := c.messages.Conversation(ctx, who.Owner, id)
	if err != nil {
		return store.Conversation{}, nil, owned.StoreError(err)
	}
	var list []store.Message
	for m, err := range c.tree(ctx) {
		if err != nil {
			return store.Conversation{}, nil, owned.StoreError(err)
		}
		list = append(list, m)
	}
	return conversation, list, nil
}

// tree reads all messages of a chat, parents before their children.
func (c *Chat) tree(ctx context.Context) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		for after := int64(0); ; {
			part, err := c.messages.Messages(ctx, c.owner, c.id, after)
			if err != nil {
				yield(store.Message{}, err)
				return
			}
			for _, m := range part {
				if !yield(m, nil) {
					return
				}
				after = m.ID
			}
			if len(part) == 0 {
				return
			}
		}
	}
}

// Fork copies the branch of c up to a message into a new chat and returns its id. What
// is copied from a temporary chat is a temporary chat.
func (s *Service) Fork(ctx context.Context, who Principal, c *Chat, message int64) (string, error) {
	if err := c.may(who, access.ActionChange); err != nil {
		return "", err
	}
	id, err := c.fork(context.WithoutCancel(ctx), message)
	if err != nil {
		return "", err
	}
	return id, s.list(ctx, who, id, c.temporary)
}

// Copy copies the chat called id with all its branches, and returns the id of the copy. What is copied from a temporary chat
// is a temporary chat.
func (s *Service) Copy(ctx context.Context, who Principal, id string) (string, error) {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return "", err
	}
	if err := c.may(who, access.ActionChange); err != nil {
		return "", err
	}
	copied, err := c.copyAll(context.WithoutCancel(ctx))
	if err != nil {
		return "", err
	}
	return copied, s.list(ctx, who, copied, c.temporary)
}

// Import is List.Import.
func (s *Service) Import(ctx context.Context, who Principal, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64, error)) (store.Conversation, error) {
	c, temporary, err := s.List.Import(ctx, who, list, about)
	if err != nil {
		return c, err
	}
	return c, s.list(ctx, who, c.ID, temporary)
}

// list makes a conversation that was written whole known. A temporary one is loaded at
// once: only chats that are loaded are ever dropped.
func (s *Service) list(ctx context.Context, who Principal, id string, temporary bool) error {
	if temporary {
		if _, err := s.Chat(ctx, who, id); err != nil {
			s.forgetTemporary(who.Owner, id)
			return err
		}
	}
	s.List.Notify(who.Owner)
	return nil
}
