package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
)

// long is a chat of n messages; between is called before each.
func long(n int, between func(i int) error) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for i := 1; i <= n; i++ {
			var err error
			if between != nil {
				err = between(i)
			}
			role := RoleUser
			if i%2 == 0 {
				role = RoleAssistant
			}
			if !yield(Message{ID: int64(i), Parent: int64(i - 1), Role: role, State: Done, Text: fmt.Sprintf("hidden word %d", i)}, err) || err != nil {
				return
			}
		}
	}
}

func named(title string) func() (Metadata, int64) {
	return func() (Metadata, int64) { return Metadata{Title: title}, 0 }
}

// rows counts those of a table, whoever owns them.
func rows(t *testing.T, s *Store, table string) (n int) {
	t.Helper()
	mustDo(t, s.readers.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func TestImport_OthersWriteMeanwhileAndSeeNothingOfIt(t *testing.T) {
	s := mustOpen(t, testOptions(t))
	other := must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{Title: "other"}))
	written, most := 0, 0
	c, err := s.Import(ctx, me, long(2000, func(i int) error {
		most = max(most, rows(t, s, "messages")-written)
		if i%200 != 0 {
			return nil
		}
		if list := must[[]Conversation](t)(s.Conversations(ctx, me, Filter{})); len(list) != 1 {
			t.Errorf("at message %d there are %d conversations", i, len(list))
		}
		if list := must[[]Conversation](t)(s.Conversations(ctx, me, Filter{Deleted: true})); len(list) != 0 {
			t.Errorf("at message %d there are %d in the trash", i, len(list))
		}
		if found := must[Found](t)(s.Search(ctx, me, Query{Text: "hidden"})); len(found.Messages) != 0 {
			t.Errorf("at message %d some are found", i)
		}
		written++
		_, err := s.AddMessage(ctx, me, other.ID, NewMessage{Role: RoleUser, Text: "meanwhile"})
		return err
	}), named("long"))
	mustDo(t, err)
	if written != 10 || most < 1000 {
		t.Errorf("%d messages were written meanwhile, when up to %d of the import were there", written, most)
	}
	branch := must[[]Message](t)(s.Branch(ctx, me, c.ID))
	if len(branch) != 2000 || branch[1999].Text != "hidden word 2000" || branch[0].Children != 1 {
		t.Errorf("the branch has %d messages", len(branch))
	}
	if list := must[[]Conversation](t)(s.Conversations(ctx, me, Filter{})); len(list) != 2 || list[0].ID != c.ID || list[0].Title != "long" {
		t.Errorf("the list is %+v", list)
	}
	if found := must[Found](t)(s.Search(ctx, me, Query{Text: `"word 1999"`})); len(found.Messages) == 0 {
		t.Error("a message is not found")
	}
}

func TestImport_LeavesNothingWhereItFails(t *testing.T) {
	broken := errors.New("the file ends")
	for name, c := range map[string]struct {
		list iter.Seq2[Message, error]
		says string
	}{
		"in the list": {long(1000, func(i int) error {
			if i == 900 {
				return broken
			}
			return nil
		}), "the file ends"},
		"beyond the limit": {long(MaxImport+1, nil), "more than 20000"},
		"at a message that is too long": {func(yield func(Message, error) bool) {
			_ = yield(Message{ID: 1, Role: RoleUser, State: Done, Text: strings.Repeat("x", maxImportText+1)}, nil)
		}, "at most 4194304"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, testOptions(t))
			if _, err := s.Import(ctx, me, c.list, named("x")); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			for _, table := range []string{"conversations", "messages", "answers"} {
				if n := rows(t, s, table); n != 0 {
					t.Errorf("%d rows of %s are left", n, table)
				}
			}
		})
	}
}

// playImport imports chats, and says how far it is.
func playImport(path string) error {
	s, err := Open(ctx, Options{Path: path, Ballast: -1})
	if err != nil {
		return err
	}
	for {
		if _, err := s.Import(ctx, me, long(1500, func(i int) error {
			if i%50 == 0 {
				fmt.Println(i)
			}
			return nil
		}), named("whole")); err != nil {
			return err
		}
		fmt.Println("done")
	}
}

// TestKill_InAnImport kills a process that imports. Each chat is there with all its messages,
// or nothing of it is.
func TestKill_InAnImport(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	opt := testOptions(t)
	whole := 0
	for kill := range counts(4, 100) {
		process := helper(t, "import", opt.Path)
		output := must[io.ReadCloser](t)(process.StdoutPipe())
		mustDo(t, process.Start())
		lines, limit := bufio.NewScanner(output), random.IntN(60)
		for n := 0; lines.Scan(); n++ {
			if lines.Text() == "done" {
				whole++
			}
			if n == limit {
				mustDo(t, process.Process.Kill())
			}
		}
		_ = process.Wait() // it was killed
		s := mustOpen(t, opt)
		list := must[[]Conversation](t)(s.Conversations(ctx, me, Filter{Limit: 500}))
		if len(list) != whole && len(list) != whole+1 { // the last may not have been said
			t.Fatalf("after kill %d there are %d chats, want %d", kill, len(list), whole)
		}
		whole = len(list)
		if n := rows(t, s, "messages"); n != 1500*whole || rows(t, s, "conversations") != whole {
			t.Fatalf("after kill %d there are %d messages in %d chats", kill, n, whole)
		}
		mustDo(t, s.Close())
	}
	if size(opt.Path) == 0 {
		t.Error("nothing was imported")
	}
}
