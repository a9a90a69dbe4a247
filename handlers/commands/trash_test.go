package commands

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"m40-llm/handlers/cli"
	"m40-llm/store"
)

func TestDeletedChatsAreErasedAtTheStartAfterAWeek(t *testing.T) {
	const owner = "local"
	ctx, dir := context.Background(), filepath.Join(t.TempDir(), "data")
	for id, age := range map[string]time.Duration{"old": keepDeleted + time.Hour, "young": keepDeleted - time.Hour} {
		s, err := store.Open(ctx, store.Options{
			Path:    filepath.Join(dir, "chats.db"),
			Now:     func() time.Time { return time.Now().Add(-age) },
			Ballast: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateConversation(ctx, owner, store.Metadata{ID: id, Title: id}); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteConversation(ctx, owner, id); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	s, err := openStore(ctx, &cli.Terminal{}, folders{data: &dir}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RestoreConversation(ctx, owner, "young"); err != nil {
		t.Errorf("the chat deleted less than a week ago: %v", err)
	}
	if err := s.RestoreConversation(ctx, owner, "old"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the chat deleted more than a week ago can still be restored: %v", err)
	}
}
