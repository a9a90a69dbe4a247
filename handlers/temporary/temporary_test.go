package temporary

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

func TestTemporaryChatsAreInMemoryUntilTheyAreErased(t *testing.T) {
	chats := New(time.Now, slog.New(slog.DiscardHandler))
	if err := chats.Erase("me", "none"); err != nil || chats.Has(t.Context(), "me", "none") != nil {
		t.Errorf("without a chat: %v", err)
	}
	db, err := chats.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Import(t.Context(), "me", func(yield func(store.Message, error) bool) {
		yield(store.Message{ID: 1, Version: 1, Role: store.RoleUser, Text: "Hi", State: store.Done}, nil)
	}, func() (store.Metadata, int64) { return store.Metadata{Title: "Hi"}, 1 })
	if err != nil {
		t.Fatal(err)
	}
	if chats.Has(t.Context(), "me", c.ID) == nil || chats.Has(t.Context(), "another", c.ID) != nil {
		t.Error("the chat is not its owner's alone")
	}
	for range 2 {
		if err := chats.Erase("me", c.ID); err != nil || chats.Has(t.Context(), "me", c.ID) != nil {
			t.Errorf("after it was erased: %v", err)
		}
	}
	if err := chats.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := chats.Open(t.Context()); !errors.Is(err, owned.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestPicturesOfTemporaryChatsAreLimited(t *testing.T) {
	chats := New(time.Now, slog.New(slog.DiscardHandler))
	defer chats.Close()
	if _, err := chats.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := chats.CheckPictures(t.Context(), maxPictures); err != nil {
		t.Error(err)
	}
	var refused *fault.Error
	if err := chats.CheckPictures(t.Context(), maxPictures+1); !errors.As(err, &refused) || refused.Param != "pictures" {
		t.Errorf("got %v", err)
	}
}
