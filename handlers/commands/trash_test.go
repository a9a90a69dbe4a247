package commands

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/cli"
	"m40-llm/store"
)

func TestAStartWithoutTheChatsOfThoseBeforeSaysSo(t *testing.T) {
	const known = "the chats begin anew; m40-llm restore lists the backups of those that were there (1)"
	for _, c := range []struct {
		name   string
		remove []string // files of the data folder, after a start and a backup
		want   string
	}{
		{"a start where nothing was removed says nothing", nil, ""},
		{"backups of a database that was removed are named", []string{"chats.db"}, known},
		{"so they are where all files of the database were removed", []string{"chats.db", "chats.db.lock"}, known},
		{"that there are no backups is said", []string{"chats.db", "chats.db.backups"}, "the chats begin anew; there are no backups of those that were there"},
		{"a folder from which all was removed is a new one", []string{"chats.db", "chats.db.lock", "chats.db.backups"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			start := func() string {
				var said strings.Builder
				s, err := openStore(t.Context(), &cli.Terminal{Err: &said}, folders{data: &dir}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Backup(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return said.String()
			}
			if said := start(); said != "" {
				t.Errorf("the first start says %q", said)
			}
			for _, name := range c.remove {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			if said := start(); !strings.Contains(said, c.want) || c.want == "" && said != "" {
				t.Errorf("it says %q, want %q", said, c.want)
			}
			if said := start(); said != "" {
				t.Errorf("the start after it says %q", said)
			}
		})
	}
}

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
