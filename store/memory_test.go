package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Many read and write a database in memory at the same time, and nothing of it is on a disk.
func TestOpenMemory_IsAStoreWithoutAFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("TMPDIR", dir)
	ctx := context.Background()
	s, err := OpenMemory(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenMemory(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			c, question, answer, err := s.Start(ctx, OwnerID, Metadata{Title: fmt.Sprint("chat ", i)}, NewMessage{Role: RoleUser, Text: "Why?"}, NewAnswer{})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.FinishAnswer(ctx, OwnerID, c.ID, answer.ID, Finish{State: Done, Text: "Because."}); err != nil {
				t.Error(err)
			}
			for range 20 {
				branch, err := s.Branch(ctx, OwnerID, c.ID)
				if err != nil || len(branch) != 2 || branch[0].ID != question.ID || branch[1].Text != "Because." {
					t.Errorf("the branch is %+v, %v", branch, err)
				}
				if _, err := s.AddMessage(ctx, OwnerID, c.ID, NewMessage{Parent: question.ID, Role: RoleAssistant, Text: "Because."}); err != nil {
					t.Error(err)
				}
			}
			if _, err := other.Conversation(ctx, OwnerID, c.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("another database has it, too: %v", err)
			}
			if err := s.Erase(ctx, OwnerID, c.ID); err != nil {
				t.Error(err)
			}
			if _, err := s.Conversation(ctx, OwnerID, c.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("an erased conversation: %v", err)
			}
		})
	}
	all.Wait()
	if err := s.Present(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("on the disk there are %v, %v", files, err)
	}
}
