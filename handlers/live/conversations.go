package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"
	"unicode/utf8"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/store"
)

// The list of chats. Temporary ones are not in it. Whatever changes it closes Changes.

// Conversations lists a page of the stored chats.
func (s *Service) Conversations(ctx context.Context, who Principal, f store.Filter) ([]store.Conversation, error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil {
		return nil, err
	}
	if s.opt.Store == nil {
		return nil, nil
	}
	return s.opt.Store.Conversations(ctx, who.Owner, f)
}

// Conversation returns what is known of a chat beside its messages.
func (s *Service) Conversation(ctx context.Context, who Principal, id string) (store.Conversation, error) {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return store.Conversation{}, err
	}
	conversation, err := c.messages.Conversation(ctx, who.Owner, id)
	if err != nil {
		return store.Conversation{}, StoreError(err)
	}
	return conversation, nil
}

// Folders lists the folders in use by name.
func (s *Service) Folders(ctx context.Context, who Principal) ([]store.Folder, error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil {
		return nil, err
	}
	if s.opt.Store == nil {
		return nil, nil
	}
	return s.opt.Store.Folders(ctx, who.Owner)
}

// Search finds words in the titles and messages of stored chats.
func (s *Service) Search(ctx context.Context, who Principal, q store.Query) (store.Found, error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil {
		return store.Found{}, err
	}
	if s.opt.Store == nil {
		return store.Found{}, nil
	}
	return s.opt.Store.Search(ctx, who.Owner, q)
}

// Running reports whether an answer of a chat is being written.
func (s *Service) Running(who Principal, id string) bool {
	c := s.find(id)
	return c != nil && c.may(who, access.ActionRead) == nil && c.running()
}

// Characters of a title and of a folder's name at most.
const (
	maxTitle  = 200
	maxFolder = 60
)

// Rename gives a chat a title.
func (s *Service) Rename(ctx context.Context, who Principal, id, title string) error {
	title, err := oneLine("title", title, maxTitle)
	if err != nil {
		return err
	}
	if title == "" {
		return invalid("title", "the title is empty")
	}
	// A load in between would read the old title and get no event of the new one.
	defer s.loading.lock(id)()
	if err := s.change(ctx, who, id, func(m *store.Metadata) { m.Title = title }); err != nil {
		return err
	}
	if c := s.find(id); c != nil {
		c.rename(title)
	}
	return nil
}

// maxModel is how many bytes the name of a model can have.
const maxModel = 500

// LoadedModel returns the name of the model that is loaded, or is being loaded; empty if
// there is none, or it computes embeddings or ranks documents and writes no text.
func (s *Service) LoadedModel() string {
	status := s.engine.Status()
	if status.State == infer.StateFailed || !status.Model.Writes() {
		return ""
	}
	return status.Model.Name
}

// chosenModel is the setting that holds the model that a person chose last.
const chosenModel = "chosen_model"

// chosen is a model that was chosen last.
type chosen struct {
	model  string
	stored bool // in the setting
}

// ChosenModel returns the model that a person chose last, for the chats that begin. If they have chosen none it is
// that of Options.FirstModel, or empty.
func (s *Service) ChosenModel(ctx context.Context, who Principal) (model string, err error) {
	if err := may(who, access.ActionRead, access.KindSetting); err != nil {
		return "", err
	}
	s.chosenMu.Lock()
	last, known := s.chosen[who.Owner]
	s.chosenMu.Unlock()
	switch {
	case known:
		return last.model, nil
	case s.opt.Store == nil:
		return s.FirstModel(ctx), nil
	}
	value, err := s.opt.Store.Setting(ctx, who.Owner, chosenModel)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return s.FirstModel(ctx), nil
	case err == nil:
		err = json.Unmarshal(value, &model)
	}
	if err != nil {
		return "", StoreError(err)
	}
	return model, nil
}

// FirstModel returns the model of the chats of people who have chosen none; empty: the loaded one.
func (s *Service) FirstModel(ctx context.Context) string {
	if s.opt.FirstModel == nil {
		return ""
	}
	return s.opt.FirstModel(ctx)
}

// isChoice reports whether a chat that begins with model tells that the person chose it: one with the model that
// chats begin with anyway does not.
func (s *Service) isChoice(ctx context.Context, who Principal, model string) bool {
	now, err := s.ChosenModel(ctx, who)
	return err != nil || model != now
}

// choose remembers which model a person chose. Without that new chats begin with another
// one, which is no reason to refuse what was asked for.
func (s *Service) choose(ctx context.Context, who Principal, model string) {
	s.chosenMu.Lock()
	before := s.chosen[who.Owner]
	s.chosen[who.Owner] = chosen{model: model, stored: before.stored && before.model == model}
	s.chosenMu.Unlock()
	if before.stored && before.model == model || s.opt.Store == nil {
		return
	}
	value, _ := json.Marshal(model) // cannot fail
	if err := s.opt.Store.SetSetting(context.WithoutCancel(ctx), who.Owner, chosenModel, value); err != nil {
		s.opt.Log.Warn("the model that was chosen last cannot be remembered", "error", err)
		return
	}
	s.chosenMu.Lock()
	defer s.chosenMu.Unlock()
	if s.chosen[who.Owner].model == model {
		s.chosen[who.Owner] = chosen{model: model, stored: true}
	}
}

// SetModel names the model of a chat's answers to come; empty: the one that is loaded now. An
// answer that is being written keeps its own.
func (s *Service) SetModel(ctx context.Context, who Principal, id, model string) error {
	if err := CheckModel(model); err != nil {
		return err
	}
	if model == "" {
		if model = s.LoadedModel(); model == "" {
			return &infer.Error{Code: infer.CodeNotFound, Param: "model", Message: "no model is loaded; choose one by its name"}
		}
	}
	defer s.loading.lock(id)()
	c := s.find(id)
	if c != nil {
		if err := c.may(who, access.ActionChange); err != nil {
			return err
		}
	}
	if c == nil || !c.temporary {
		if err := s.change(ctx, who, id, func(m *store.Metadata) { m.Model = model }); err != nil {
			return err
		}
	}
	if c != nil {
		c.use(model)
	}
	s.choose(ctx, who, model)
	return nil
}

// CheckModel returns an error if model cannot be the name of one.
func CheckModel(model string) error {
	if len(model) > maxModel {
		return invalid("model", "the model's name has %d bytes, and at most %d are stored", len(model), maxModel)
	}
	return checkUTF8("model", model)
}

// oneLine returns a name as it is stored: without line breaks and doubled spaces.
func oneLine(field, name string, max int) (string, error) {
	if err := checkUTF8(field, name); err != nil {
		return "", err
	}
	name = strings.Join(strings.Fields(name), " ")
	if n := utf8.RuneCountInString(name); n > max {
		return "", invalid(field, "the %s has %d characters, and at most %d are stored", field, n, max)
	}
	return name, nil
}

// Move puts a chat into a folder, or with an empty name into none. A folder is made by
// naming it, and is gone with its last chat.
func (s *Service) Move(ctx context.Context, who Principal, id, folder string) error {
	folder, err := oneLine("folder", folder, maxFolder)
	if err != nil {
		return err
	}
	return s.change(ctx, who, id, func(m *store.Metadata) { m.Folder = folder })
}

// RenameFolder gives a folder another name, and returns it as it is stored. It fails with a
// *TakenError if another folder has it.
func (s *Service) RenameFolder(ctx context.Context, who Principal, from, name string) (string, error) {
	if err := may(who, access.ActionChange, access.KindChat); err != nil {
		return "", err
	}
	name, err := oneLine("name", name, maxFolder)
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", invalid("name", "the folder's name is empty")
	case from == "":
		return "", invalid("folder", "the name of the folder is missing")
	case s.opt.Store == nil:
		return "", errNoFolder
	}
	err = s.opt.Store.RenameFolder(ctx, who.Owner, from, name)
	switch {
	case errors.Is(err, store.ErrConflict):
		return "", &TakenError{"folder", name}
	case errors.Is(err, store.ErrNotFound):
		return "", errNoFolder
	case err != nil:
		return "", StoreError(err)
	}
	s.renames.add(who.Owner, from, name)
	s.notify(who.Owner)
	return name, nil
}

// FolderNow returns what a folder is called now that was renamed since the server started;
// else its name.
func (s *Service) FolderNow(who Principal, name string) string { return s.renames.now(who.Owner, name) }

// renames are the folders that were renamed, the last ones.
type renames struct {
	mu    sync.Mutex
	to    map[folder]string
	order []folder
}

// folder is a folder of a person.
type folder struct{ owner, name string }

const rememberedRenames = 1000

func (r *renames) add(owner, from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.to = map[folder]string{}
	}
	delete(r.to, folder{owner, to}) // it is in use again
	if from == to {
		return
	}
	if len(r.order) == rememberedRenames {
		delete(r.to, r.order[0])
		r.order = r.order[1:]
	}
	was := folder{owner, from}
	r.to[was], r.order = to, append(r.order, was)
}

func (r *renames) now(owner, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range rememberedRenames { // A may be renamed to B, and B to A
		to, renamed := r.to[folder{owner, name}]
		if !renamed {
			break
		}
		name = to
	}
	return name
}

var errNoFolder = &infer.Error{Code: infer.CodeNotFound, Param: "folder", Message: "there is no such folder any more; it is gone with its last chat"}

// Pin puts a chat before the others in the list, or back among them.
func (s *Service) Pin(ctx context.Context, who Principal, id string, pinned bool) error {
	return s.change(ctx, who, id, func(m *store.Metadata) { m.Pinned = pinned })
}

// Archive takes a chat out of the list into the archive, or back.
func (s *Service) Archive(ctx context.Context, who Principal, id string, archived bool) error {
	return s.change(ctx, who, id, func(m *store.Metadata) { m.Archived = archived })
}

func (s *Service) change(ctx context.Context, who Principal, id string, change store.Change) error {
	if err := may(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	if s.opt.Store == nil {
		return ErrNotFound
	}
	if _, err := s.opt.Store.UpdateConversation(ctx, who.Owner, id, change); err != nil {
		return StoreError(err)
	}
	s.notify(who.Owner)
	return nil
}

// Delete puts a chat in the trash. An answer that runs in it is stopped first, and its
// text db. A temporary chat is gone.
func (s *Service) Delete(ctx context.Context, who Principal, id string) error {
	if err := may(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	defer s.loading.lock(id)()
	c := s.find(id)
	if c != nil {
		if err := c.may(who, access.ActionChange); err != nil {
			return err
		}
	}
	stored := s.opt.Store != nil && (c == nil || !c.temporary)
	if !stored && c == nil {
		return ErrNotFound
	}
	if stored {
		if err := s.opt.Store.DeleteConversation(ctx, who.Owner, id); err != nil {
			return StoreError(err)
		}
	}
	s.dropKVFile(id)
	s.callWith(id, func(h Hooks) func(string) { return h.ChatDeleted })
	if c != nil {
		if err := s.end(c); err != nil {
			return err
		}
	}
	s.notify(who.Owner)
	s.shares.notify()
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

// Forget ends the chats of a person who was removed: their answers are stopped, and what these still
// have to say is stored nowhere.
func (s *Service) Forget(owner string) {
	s.callWith(owner, func(h Hooks) func(string) { return h.PersonRemoved })
	for _, c := range s.inMemory() {
		if c.owner == owner {
			if err := s.end(c); err != nil && !errors.Is(err, ErrNotFound) {
				s.opt.Log.Warn("failed to end a chat of a person who was removed", "chat", c.id, "error", err)
			}
		}
	}
	if err := s.PruneKVCaches(s.ctx); err != nil {
		s.opt.Log.Warn("failed to delete the KV caches of a person who was removed", "error", err)
	}
	s.shares.notify()
}

// Restore takes a chat out of the trash.
func (s *Service) Restore(ctx context.Context, who Principal, id string) error {
	if err := may(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	if s.opt.Store == nil {
		return ErrNotFound
	}
	defer s.loading.lock(id)()
	if err := s.opt.Store.RestoreConversation(ctx, who.Owner, id); err != nil {
		return StoreError(err)
	}
	s.notify(who.Owner)
	s.shares.notify()
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
		return store.Conversation{}, nil, StoreError(err)
	}
	var list []store.Message
	for m, err := range c.tree(ctx) {
		if err != nil {
			return store.Conversation{}, nil, StoreError(err)
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

// imports is how many chats are imported or copied at once; more wait.
const imports = 2

// Import makes a chat of messages that were exported. about is called behind the last of
// them; it returns what the chat begins with and the message that is shown last. A chat
// without a title gets that of its first message. All of it is there, or nothing.
func (s *Service) Import(ctx context.Context, who Principal, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64, error)) (store.Conversation, error) {
	if err := may(who, access.ActionChange, access.KindChat); err != nil {
		return store.Conversation{}, err
	}
	target, temporary := messages(s.opt.Store), false
	if s.opt.Store == nil {
		db, err := s.temporary.open(ctx, &s.opt)
		if err != nil {
			return store.Conversation{}, err
		}
		target, temporary = db, true
	}
	var n store.Metadata
	var leaf int64
	checked := func(yield func(store.Message, error) bool) {
		first := ""
		for m, err := range list {
			if first == "" {
				first = title(m.Text)
			}
			if !yield(m, err) {
				return
			}
		}
		var err error
		if n, leaf, err = about(); err == nil {
			n.Title, err = oneLine("title", n.Title, maxTitle)
		}
		n.Title = cmp.Or(n.Title, first)
		if err == nil {
			err = CheckModel(n.Model)
		}
		if err != nil {
			yield(store.Message{}, err)
		}
	}
	c, err := s.importInto(ctx, who.Owner, target, checked, func() (store.Metadata, int64) { return n, leaf })
	if err != nil {
		return store.Conversation{}, err
	}
	return c, s.list(ctx, who, c.ID, temporary)
}

// importInto waits until no more than imports others are imported.
func (s *Service) importInto(ctx context.Context, owner string, target messages, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64)) (store.Conversation, error) {
	select {
	case s.importing <- struct{}{}:
	case <-ctx.Done():
		return store.Conversation{}, ctx.Err()
	case <-s.ctx.Done():
		return store.Conversation{}, ErrClosed
	}
	defer func() { <-s.importing }()
	c, err := target.Import(ctx, owner, list, about)
	if err != nil {
		return store.Conversation{}, StoreError(err)
	}
	return c, nil
}

// list makes a conversation that was written whole known. A temporary one is loaded at
// once: only chats that are loaded are ever dropped.
func (s *Service) list(ctx context.Context, who Principal, id string, temporary bool) error {
	if !temporary {
		s.notify(who.Owner)
		return nil
	}
	if _, err := s.Chat(ctx, who, id); err != nil {
		s.forgetTemporary(who.Owner, id)
		return err
	}
	return nil
}
