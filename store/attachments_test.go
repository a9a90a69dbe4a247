package store

import (
	"bytes"
	"errors"
	"iter"
	"strings"
	"testing"
)

// pictureOf returns a picture whose file has these bytes.
func pictureOf(file string) Picture {
	return Picture{Hash: PictureHash([]byte(file)), Type: "image/png", Width: 4, Height: 3, Bytes: len(file), Data: []byte(file)}
}

// askWith adds a chat with a question that has pictures, and returns its id and that of the question.
func askWith(t *testing.T, s *Store, owner string, pictures ...Picture) (conversation string, question int64) {
	t.Helper()
	c, q, err := s.StartUnanswered(ctx, owner, Metadata{Title: "t"}, NewMessage{Role: RoleUser, Text: "what is this", Pictures: pictures})
	if err != nil {
		t.Fatal(err)
	}
	return c.ID, q.ID
}

// stored returns how many files of pictures the store has.
func stored(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.writer.db.QueryRow(`SELECT count(*) FROM attachments`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPictures_AreReturnedWithTheirMessageInOrder(t *testing.T) {
	s := newStore(t)
	c, _ := askWith(t, s, me, pictureOf("second"), pictureOf("first"))
	branch, err := s.Branch(ctx, me, c)
	if err != nil {
		t.Fatal(err)
	}
	got := branch[0].Pictures
	if len(got) != 2 || got[0].Hash != pictureOf("second").Hash || got[1].Hash != pictureOf("first").Hash || got[0].Width != 4 || got[0].Height != 3 || got[0].Bytes != 6 || got[0].Type != "image/png" {
		t.Errorf("got %+v", got)
	}
	files, err := s.Pictures(ctx, me, c, []string{got[1].Hash, got[0].Hash})
	if err != nil || string(bytes.Join(files, []byte(" "))) != "first second" {
		t.Errorf("got %q, %v", files, err)
	}
}

func TestPictures_EachMessageHasItsOwnDetailOfTheSameFile(t *testing.T) {
	s := newStore(t)
	low, medium, full := pictureOf("a"), pictureOf("a"), pictureOf("a")
	low.Detail, medium.Detail = "low", "medium"
	c, _ := askWith(t, s, me, low, full)
	other, _ := askWith(t, s, me, medium)
	for chat, want := range map[string]string{c: "low,", other: "medium"} {
		branch, err := s.Branch(ctx, me, chat)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range branch[0].Pictures {
			got = append(got, p.Detail)
		}
		if strings.Join(got, ",") != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if n := stored(t, s); n != 1 {
		t.Errorf("%d files are stored", n)
	}
	low.Detail = "huge"
	if _, _, err := s.StartUnanswered(ctx, me, Metadata{Title: "t"}, NewMessage{Role: RoleUser, Text: "a", Pictures: []Picture{low}}); err == nil || !strings.Contains(err.Error(), "detail") {
		t.Errorf("an unknown detail: got %v", err)
	}
}

func TestPictures_AreFoundInTheirChatAlone(t *testing.T) {
	s := newStore(t)
	mine, _ := askWith(t, s, me, pictureOf("a"))
	other, _ := askWith(t, s, me, pictureOf("b"))
	for _, tc := range []struct{ name, owner, chat string }{
		{"another chat of the person", me, other},
		{"another person with the id of the chat", you, mine},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := s.Pictures(ctx, tc.owner, tc.chat, []string{pictureOf("a").Hash}); !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v, want ErrNotFound", err)
			}
		})
	}
}

func TestPictures_AreStoredOnceAndDeletedWithTheLastMessage(t *testing.T) {
	s := newStore(t)
	first, _ := askWith(t, s, me, pictureOf("a"), pictureOf("b"))
	second, question := askWith(t, s, you, pictureOf("a"))
	if n := stored(t, s); n != 2 {
		t.Fatalf("got %d files, want 2", n)
	}
	edited, err := s.AddMessage(ctx, you, second, NewMessage{Role: RoleUser, Text: "again", Pictures: []Picture{{Hash: pictureOf("a").Hash}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Erase(ctx, me, first); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s); n != 1 {
		t.Errorf("got %d files after the first chat was erased, want 1", n)
	}
	if err := s.DeleteBranch(ctx, you, second, question); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Pictures(ctx, you, second, []string{pictureOf("a").Hash}); err != nil || string(files[0]) != "a" {
		t.Errorf("the version that is left has lost its picture: %q, %v", files, err)
	}
	if _, err := s.AddMessage(ctx, you, second, NewMessage{Role: RoleUser, Text: "plain"}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteBranch(ctx, you, second, edited.ID); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s); n != 0 {
		t.Errorf("got %d files, want none", n)
	}
}

func TestPictures_ThatTheStoreLacksAreRefusedWithTheirMessage(t *testing.T) {
	s := newStore(t)
	_, _, err := s.StartUnanswered(ctx, me, Metadata{ID: "c", Title: "t"}, NewMessage{Role: RoleUser, Text: "x", Pictures: []Picture{{Hash: pictureOf("a").Hash}}})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	if _, err := s.Conversation(ctx, me, "c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the chat exists: %v", err)
	}
}

func TestPictures_ThatExceedTheQuotaOfAPersonAreRefused(t *testing.T) {
	opt := testOptions(t)
	opt.PictureBytes = 10
	s := mustOpen(t, opt)
	c, _ := askWith(t, s, me, pictureOf("12345678"))
	askWith(t, s, you, pictureOf("another one"[:9])) // others have their own
	askWith(t, s, me, pictureOf("12345678"))         // it is there already
	_, err := s.AddMessage(ctx, me, c, NewMessage{Role: RoleUser, Text: "x", Pictures: []Picture{pictureOf("abc")}})
	if quota, ok := errors.AsType[*QuotaError](err); !ok || quota.Limit != 10 || quota.Used != 8 || quota.More != 3 {
		t.Errorf("got %v", err)
	}
	if n := stored(t, s); n != 2 {
		t.Errorf("got %d files, want 2", n)
	}
	if used, limit, err := s.PictureBytes(ctx, me); used != 8 || limit != 10 || err != nil {
		t.Errorf("got %d of %d bytes, %v", used, limit, err)
	}
}

func TestImport_TakesPictures(t *testing.T) {
	s := newStore(t)
	from, _ := askWith(t, s, me, pictureOf("a"))
	list := func(pictures ...Picture) iter.Seq2[Message, error] {
		return func(yield func(Message, error) bool) {
			yield(Message{ID: 1, Role: RoleUser, State: Done, Text: "x", Pictures: pictures}, nil)
		}
	}
	about := func() (Metadata, int64) { return Metadata{Title: "t"}, 0 }
	for _, tc := range []struct {
		name    string
		picture Picture
	}{
		{"with their files", pictureOf("new")},
		{"that the store has", Picture{Hash: pictureOf("a").Hash}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := s.Import(ctx, me, list(tc.picture), about)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Pictures(ctx, me, c.ID, []string{tc.picture.Hash}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := s.Erase(ctx, me, from); err != nil {
		t.Fatal(err)
	}
	if n := stored(t, s); n != 2 {
		t.Errorf("got %d files, want 2", n)
	}
}
