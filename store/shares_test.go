package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/migrations"
)

// shared returns a store with a conversation of two messages, and their ids.
func shared(t *testing.T, opt Options) (s *Store, conversation string, question, answer int64) {
	t.Helper()
	path := testOptions(t)
	opt.Path, opt.Ballast = cmp.Or(opt.Path, path.Path), -1
	s = mustOpen(t, opt)
	c, err := s.CreateConversation(t.Context(), "local", Metadata{Title: "Rain"})
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.AddMessage(t.Context(), "local", c.ID, NewMessage{Role: RoleUser, Text: "What is rain?"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.AddMessage(t.Context(), "local", c.ID, NewMessage{Role: RoleAssistant, Parent: q.ID, Text: "Water."})
	if err != nil {
		t.Fatal(err)
	}
	return s, c.ID, q.ID, a.ID
}

func hashOf(token string) TokenHash { return sha256.Sum256([]byte(token)) }

func TestShare_WorksUntilItEnds(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for _, tc := range []struct {
		name string
		life time.Duration
		end  func(s *Store, conversation string, share Share) error
		gone bool
	}{
		{"a new one works", 0, func(*Store, string, Share) error { return nil }, false},
		{"one with an hour works after a minute", time.Hour, func(*Store, string, Share) error { now = now.Add(time.Minute); return nil }, false},
		{"one with an hour is gone after an hour", time.Hour, func(*Store, string, Share) error { now = now.Add(time.Hour); return nil }, true},
		{"one that was ended is gone", 0, func(s *Store, _ string, share Share) error { return s.EndShare(t.Context(), "local", share.ID) }, true},
		{"another owner cannot end it", 0, func(s *Store, _ string, share Share) error {
			if err := s.EndShare(t.Context(), "other", share.ID); !errors.Is(err, ErrNotFound) {
				return errors.Join(errors.New("it was ended"), err)
			}
			return nil
		}, false},
		{"one of a conversation in the trash is gone", 0, func(s *Store, c string, _ Share) error { return s.DeleteConversation(t.Context(), "local", c) }, true},
		{"one of a conversation that comes back works", 0, func(s *Store, c string, _ Share) error {
			return errors.Join(s.DeleteConversation(t.Context(), "local", c), s.RestoreConversation(t.Context(), "local", c))
		}, false},
		{"one of an erased conversation is gone", 0, func(s *Store, c string, _ Share) error { return s.Erase(t.Context(), "local", c) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c, question, _ := shared(t, Options{Now: func() time.Time { return now }})
			wanted := Share{Conversation: c, First: question, Settings: true}
			if tc.life > 0 {
				wanted.Expires = now.Add(tc.life)
			}
			share, err := s.AddShare(t.Context(), "local", wanted, hashOf("secret"))
			if err != nil {
				t.Fatal(err)
			}
			if err := tc.end(s, c, share); err != nil {
				t.Fatal(err)
			}
			byToken, err := s.SharedAs(t.Context(), hashOf("secret"))
			if _, other := s.SharedBy(t.Context(), share.ID); errors.Is(err, ErrNotFound) != errors.Is(other, ErrNotFound) {
				t.Errorf("by token: %v, by id: %v", err, other)
			}
			list, listErr := s.Shares(t.Context())
			if listErr != nil || (len(list) == 0) != tc.gone {
				t.Errorf("the list has %d, %v", len(list), listErr)
			}
			if tc.gone {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("got %+v, %v, want ErrNotFound", byToken, err)
				}
				return
			}
			if err != nil || byToken.ID != share.ID || !byToken.Created.Equal(share.Created) || !byToken.Expires.Equal(share.Expires) || byToken.Conversation != c || byToken.Owner != "local" || byToken.First != question || !byToken.Settings || byToken.System {
				t.Errorf("got %+v, %v, want %+v", byToken, err, share)
			}
		})
	}
}

func TestAddShare_RefusesWhatTheOwnerDoesNotHave(t *testing.T) {
	s, c, question, _ := shared(t, Options{})
	_, other, _, foreign := shared(t, Options{})
	for _, tc := range []struct {
		name, owner string
		share       Share
	}{
		{"a conversation of somebody else", "other", Share{Conversation: c}},
		{"a conversation that does not exist", "local", Share{Conversation: other}},
		{"a first message that is not in it", "local", Share{Conversation: c, First: foreign + 100}},
		{"a last message that is not in it", "local", Share{Conversation: c, First: question, Last: foreign + 100}},
	} {
		if _, err := s.AddShare(t.Context(), tc.owner, tc.share, hashOf(tc.name)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", tc.name, err)
		}
	}
	if list, err := s.Shares(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("there are %d shares, %v", len(list), err)
	}
}

func TestShare_ItsTokenIsInNoFile(t *testing.T) {
	opt := testOptions(t)
	s, c, _, _ := shared(t, opt)
	const token = "q7vd3nxo2lkr8stzb4mhcaq7vd"
	if _, err := s.AddShare(t.Context(), "local", Share{Conversation: c}, hashOf(token)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(opt.Path), "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(token)) {
			t.Errorf("%s has the token", filepath.Base(name))
		}
	}
}

func TestRestore_BringsNoShareBack(t *testing.T) {
	opt := testOptions(t)
	s, c, _, _ := shared(t, opt)
	share, err := s.AddShare(t.Context(), "local", Share{Conversation: c}, hashOf("secret"))
	if err != nil {
		t.Fatal(err)
	}
	backup, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.EndShare(t.Context(), "local", share.ID), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), opt, backup.Path); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, opt)
	if _, err := s.Conversation(t.Context(), "local", c); err != nil {
		t.Errorf("the conversation is not there: %v", err)
	}
	if list, err := s.Shares(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d links came back, %v", len(list), err)
	}
}

func TestBranchTo_EndsWithAnyMessage(t *testing.T) {
	s, c, question, answer := shared(t, Options{})
	other, err := s.AddMessage(t.Context(), "local", c, NewMessage{Role: RoleAssistant, Parent: question, Text: "Drops."})
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []int64{question, answer, other.ID} {
		list, err := s.BranchTo(t.Context(), "local", c, last)
		if err != nil || len(list) == 0 || list[0].ID != question || list[len(list)-1].ID != last {
			t.Errorf("to %d: got %v, %v", last, list, err)
		}
	}
	if _, err := s.BranchTo(t.Context(), "local", c, other.ID+100); !errors.Is(err, ErrNotFound) {
		t.Errorf("to a message that is not there: %v", err)
	}
}

func TestOpen_MessagesAndLinksOfOlderDatabasesAreTheirOwners(t *testing.T) {
	opt := testOptions(t)
	all := must[[]migrations.Migration](t)(migrations.All())
	opt.migrations = all[:9]
	older := must[*Store](t)(Open(ctx, opt))
	chat := must[Conversation](t)(older.CreateConversation(ctx, "local", Metadata{Title: "Rain"})).ID
	for _, statement := range []string{
		`INSERT INTO messages (conversation, version, role, state, text, created_at) SELECT seq, 1, 'user', 'done', 'What is rain?', 1 FROM conversations`,
		`UPDATE conversations SET leaf = (SELECT id FROM messages), roots = 1`,
		`INSERT INTO shares (conversation, token_hash, first, last, system, settings, created_at) SELECT seq, zeroblob(32), 0, 0, 0, 0, 1 FROM conversations`,
	} {
		must[sql.Result](t)(older.writer.db.Exec(statement))
	}
	mustDo(t, older.Close())
	opt.migrations = nil
	s := mustOpen(t, opt)
	messages := must[[]Message](t)(s.Branch(ctx, "local", chat))
	if len(messages) != 1 || messages[0].Author != "" || messages[0].Text != "What is rain?" {
		t.Errorf("the chat has %+v", messages)
	}
	shares := must[[]Share](t)(s.Shares(ctx))
	if len(shares) != 1 || !shares[0].Requests {
		t.Errorf("the links are %+v", shares)
	}
}

func TestMessages_KeepTheirAuthor(t *testing.T) {
	opt := testOptions(t)
	s, conversation, _, answer := shared(t, opt)
	for _, author := range []string{"", "Ada", "عائشة", strings.Repeat("x", maxName)} {
		m, err := s.AddMessage(ctx, "local", conversation, NewMessage{Parent: answer, Role: RoleUser, Text: "And snow?", Author: author})
		if err != nil || m.Author != author {
			t.Errorf("%q is stored as %q, %v", author, m.Author, err)
		}
		branch := must[[]Message](t)(s.Branch(ctx, "local", conversation))
		if last := branch[len(branch)-1]; last.Author != author {
			t.Errorf("%q is read as %q", author, last.Author)
		}
	}
	for _, author := range []string{"\xff", strings.Repeat("x", maxName+1)} {
		if _, err := s.AddMessage(ctx, "local", conversation, NewMessage{Parent: answer, Role: RoleUser, Text: "x", Author: author}); err == nil {
			t.Errorf("an author of %d bytes is stored", len(author))
		}
	}
	list := must[[]Message](t)(s.Messages(ctx, "local", conversation, 0))
	copied := must[Conversation](t)(s.Import(ctx, "local", listed(list), func() (Metadata, int64) { return Metadata{Title: "copy"}, 0 }))
	if branch := must[[]Message](t)(s.Messages(ctx, "local", copied.ID, 0)); branch[3].Author != list[3].Author {
		t.Errorf("a copy has the author %q, want %q", branch[3].Author, list[3].Author)
	}
}
