// Package chatlist has the use cases of the stored chats of a person as a list: finding them, their folders,
// pins and archive, and imported chats. Temporary chats are not in it. It knows of no chat what its messages are, and no HTTP.
package chatlist

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Store is where chats are stored: *store.Store.
type Store interface {
	Conversations(ctx context.Context, owner string, f store.Filter) ([]store.Conversation, error)
	UpdateConversation(ctx context.Context, owner, id string, change store.Change) (store.Conversation, error)
	Folders(ctx context.Context, owner string) ([]store.Folder, error)
	RenameFolder(ctx context.Context, owner, name, to string) error
	Search(ctx context.Context, owner string, q store.Query) (store.Found, error)
	Target
}

// Memory has the store of temporary chats: *temporary.Chats.
type Memory interface {
	Open(ctx context.Context) (*store.Store, error)
	Opened() *store.Store // nil: there is none
}

// Service has the lists of a server's people. Whatever changes one closes Changes.
type Service struct {
	store   Store // nil: no chat is stored
	memory  Memory
	renames renames
	writing chan struct{} // holds a value for each chat that is imported or copied
	closing <-chan struct{}

	mu      sync.Mutex               // of changes
	changes map[string]chan struct{} // by owner
}

// New returns a Service for the chats in db; nil: none are stored. closing is closed when the server begins to shut down.
func New(db Store, memory Memory, closing <-chan struct{}) *Service {
	return &Service{store: db, memory: memory, writing: make(chan struct{}, imports), closing: closing, changes: map[string]chan struct{}{}}
}

// of returns where the chats of who are listed: those of visitors are temporary, and listed all the same. nil: they have none.
func (s *Service) of(who access.Principal) Store {
	if who.Role != access.RoleVisitor {
		return s.store
	}
	if db := s.memory.Opened(); db != nil {
		return db
	}
	return nil
}

// Changes is closed when the list of chats of who changes next.
func (s *Service) Changes(who access.Principal) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes[who.Owner] == nil {
		s.changes[who.Owner] = make(chan struct{})
	}
	return s.changes[who.Owner]
}

// Notify tells who shows the list of an owner that it has changed.
func (s *Service) Notify(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed := s.changes[owner]; changed != nil {
		close(changed)
		delete(s.changes, owner)
	}
}

// Conversations lists a page of the stored chats.
func (s *Service) Conversations(ctx context.Context, who access.Principal, f store.Filter) ([]store.Conversation, error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil {
		return nil, err
	}
	db := s.of(who)
	if db == nil {
		return nil, nil
	}
	return db.Conversations(ctx, who.Owner, f)
}

// Folders lists the folders in use by name.
func (s *Service) Folders(ctx context.Context, who access.Principal) ([]store.Folder, error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil {
		return nil, err
	}
	db := s.of(who)
	if db == nil {
		return nil, nil
	}
	return db.Folders(ctx, who.Owner)
}

// Search finds words in the titles and messages of stored chats.
func (s *Service) Search(ctx context.Context, who access.Principal, q store.Query) (store.Found, error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil {
		return store.Found{}, err
	}
	db := s.of(who)
	if db == nil {
		return store.Found{}, nil
	}
	return db.Search(ctx, who.Owner, q)
}

// Characters of a title and of a folder's name at most.
const (
	MaxTitle  = 200
	maxFolder = 60
)

// Title returns a title as it is stored; a *fault.Error if it cannot be.
func Title(title string) (string, error) { return oneLine("title", title, MaxTitle) }

// attachment is the beginning of a file in a message.
var attachment = regexp.MustCompile("(?m)^File ([^\n]{1,200}):\n`{3}")

// TitleOf returns the title of a chat that begins with a message: the message without its files, or the
// name of the first if there is nothing else.
func TitleOf(text string) string {
	const max = 80
	if at := attachment.FindStringSubmatchIndex(text); at != nil {
		name := text[at[2]:at[3]]
		if text = text[:at[0]]; strings.TrimSpace(text) == "" {
			text = name
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= max {
		return text
	}
	cut := string([]rune(text)[:max])
	if i := strings.LastIndexByte(cut, ' '); i > max/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// oneLine returns a name as it is stored: without line breaks and doubled spaces.
func oneLine(field, name string, max int) (string, error) {
	if err := fault.CheckUTF8(field, name); err != nil {
		return "", err
	}
	name = strings.Join(strings.Fields(name), " ")
	if n := utf8.RuneCountInString(name); n > max {
		return "", fault.Invalid(field, "the %s has %d characters, and at most %d are stored", field, n, max)
	}
	return name, nil
}

// Move puts a chat into a folder, or with an empty name into none. A folder is made by
// naming it, and is gone with its last chat.
func (s *Service) Move(ctx context.Context, who access.Principal, id, folder string) error {
	folder, err := oneLine("folder", folder, maxFolder)
	if err != nil {
		return err
	}
	return s.Update(ctx, who, id, func(m *store.Metadata) { m.Folder = folder })
}

// RenameFolder gives a folder another name, and returns it as it is stored. It fails with a
// *owned.TakenError if another folder has it.
func (s *Service) RenameFolder(ctx context.Context, who access.Principal, from, name string) (string, error) {
	if err := owned.May(who, access.ActionChange, access.KindChat); err != nil {
		return "", err
	}
	db := s.of(who)
	name, err := oneLine("name", name, maxFolder)
	switch {
	case err != nil:
		return "", err
	case name == "":
		return "", fault.Invalid("name", "the folder's name is empty")
	case from == "":
		return "", fault.Invalid("folder", "the name of the folder is missing")
	case db == nil:
		return "", errNoFolder
	}
	err = db.RenameFolder(ctx, who.Owner, from, name)
	switch {
	case errors.Is(err, store.ErrConflict):
		return "", &owned.TakenError{Kind: "folder", Name: name}
	case errors.Is(err, store.ErrNotFound):
		return "", errNoFolder
	case err != nil:
		return "", owned.StoreError(err)
	}
	s.renames.add(who.Owner, from, name)
	s.Notify(who.Owner)
	return name, nil
}

// FolderNow returns what a folder is called now that was renamed since the server started;
// else its name.
func (s *Service) FolderNow(who access.Principal, name string) string {
	return s.renames.now(who.Owner, name)
}

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

var errNoFolder = &fault.Error{Code: fault.CodeNotFound, Param: "folder", Message: "there is no such folder any more; it is gone with its last chat"}

// Pin puts a chat before the others in the list, or back among them.
func (s *Service) Pin(ctx context.Context, who access.Principal, id string, pinned bool) error {
	return s.Update(ctx, who, id, func(m *store.Metadata) { m.Pinned = pinned })
}

// Archive takes a chat out of the list into the archive, or back.
func (s *Service) Archive(ctx context.Context, who access.Principal, id string, archived bool) error {
	return s.Update(ctx, who, id, func(m *store.Metadata) { m.Archived = archived })
}

// Update changes what is stored of a chat apart from its messages.
func (s *Service) Update(ctx context.Context, who access.Principal, id string, change store.Change) error {
	if err := owned.May(who, access.ActionChange, access.KindChat); err != nil {
		return err
	}
	db := s.of(who)
	if db == nil {
		return owned.ErrNotFound
	}
	if _, err := db.UpdateConversation(ctx, who.Owner, id, change); err != nil {
		return owned.StoreError(err)
	}
	s.Notify(who.Owner)
	return nil
}
