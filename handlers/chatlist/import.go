package chatlist

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"m40-llm/handlers/access"
	"m40-llm/handlers/choice"
	"m40-llm/handlers/owned"
	"m40-llm/store"
)

// imports is how many chats are imported or copied at once; more wait.
const imports = 2

// Target is where a chat is written: *store.Store.
type Target interface {
	Import(ctx context.Context, owner string, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64)) (store.Conversation, error)
}

// Import stores a chat, a temporary one if no chats are stored. about is called after the last message; it returns the
// metadata, and which message is shown last. Without a title the chat gets that of its first message. On an error
// nothing is imported.
func (s *Service) Import(ctx context.Context, who access.Principal, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64, error)) (c store.Conversation, temporary bool, err error) {
	if err := owned.May(who, access.ActionImport, access.KindChat); err != nil {
		return c, false, err
	}
	target := Target(s.store)
	if s.store == nil {
		db, err := s.memory.Open(ctx)
		if err != nil {
			return c, false, err
		}
		target, temporary = db, true
	}
	from := source{list: list, about: about}
	c, err = s.Write(ctx, who.Owner, target, from.messages, func() (store.Metadata, int64) { return from.metadata, from.leaf })
	return c, temporary, err
}

// source is what a chat is imported from.
type source struct {
	list  iter.Seq2[store.Message, error]
	about func() (store.Metadata, int64, error)

	metadata store.Metadata // after messages has ended
	leaf     int64
}

// messages yields the messages and then an error if the metadata is invalid.
func (s *source) messages(yield func(store.Message, error) bool) {
	first := ""
	for m, err := range s.list {
		if first == "" {
			first = TitleOf(m.Text)
		}
		if !yield(m, err) {
			return
		}
	}
	if err := s.readMetadata(first); err != nil {
		yield(store.Message{}, err)
	}
}

// readMetadata sets the metadata; title is for a chat that has none.
func (s *source) readMetadata(title string) (err error) {
	if s.metadata, s.leaf, err = s.about(); err != nil {
		return err
	}
	if s.metadata.Title, err = Title(s.metadata.Title); err != nil {
		return err
	}
	s.metadata.Title = cmp.Or(s.metadata.Title, title)
	return choice.Check(s.metadata.Model)
}

// Write writes a chat to target when fewer than imports others are written.
func (s *Service) Write(ctx context.Context, owner string, target Target, list iter.Seq2[store.Message, error], about func() (store.Metadata, int64)) (store.Conversation, error) {
	select {
	case s.writing <- struct{}{}:
	case <-ctx.Done():
		return store.Conversation{}, ctx.Err()
	case <-s.closing:
		return store.Conversation{}, owned.ErrClosed
	}
	defer func() { <-s.writing }()
	c, err := target.Import(ctx, owner, list, about)
	if err != nil {
		return store.Conversation{}, owned.StoreError(err)
	}
	return c, nil
}

// TitleOfCopy returns the title of a copy of a chat: "Bread (copy)", and of that "Bread (copy 2)".
func TitleOfCopy(title string) string {
	base, n := title, 1
	if before, rest, found := strings.Cut(title, " (copy"); found {
		if number, ok := strings.CutSuffix(rest, ")"); ok {
			if number == "" {
				base, n = before, 2
			} else if last, err := strconv.Atoi(strings.TrimPrefix(number, " ")); err == nil && last > 1 && last < 1000 {
				base, n = before, last+1
			}
		}
	}
	suffix := " (copy)"
	if n > 1 {
		suffix = fmt.Sprintf(" (copy %d)", n)
	}
	if runes := []rune(base); len(runes)+len(suffix) > MaxTitle {
		base = string(runes[:MaxTitle-len(suffix)])
	}
	return base + suffix
}
