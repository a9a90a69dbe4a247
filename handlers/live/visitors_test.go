package live

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/store"
)

func visitorStarts(t *testing.T, s *Service, who Principal, text string) *Chat {
	t.Helper()
	c, err := s.Start(t.Context(), who, Question{Text: text, Settings: setting.Default(), Unanswered: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func titles(t *testing.T, s *Service, who Principal) (list []string) {
	t.Helper()
	found, err := s.List.Conversations(t.Context(), who, store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range found {
		list = append(list, c.Title)
	}
	slices.Sort(list)
	return list
}

// The chats of a visitor are a space of their own: listed for them alone, in memory, and gone with them.
func TestVisitors_HaveChatsOfTheirOwnInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "chats.db")
	db := openStore(t, path)
	s, _ := newService(t, Options{Store: db})
	anna, ben := access.Visitor(), access.Visitor()
	c := visitorStarts(t, s, anna, "about bread")
	visitorStarts(t, s, anna, "about soup")
	visitorStarts(t, s, ben, "about tea")
	if err := s.List.Move(t.Context(), anna, c.ID(), "kitchen"); err != nil {
		t.Fatal(err)
	}
	if got := titles(t, s, anna); !slices.Equal(got, []string{"about bread", "about soup"}) {
		t.Errorf("one visitor has %q", got)
	}
	if got := titles(t, s, ben); !slices.Equal(got, []string{"about tea"}) {
		t.Errorf("another has %q", got)
	}
	if got := titles(t, s, access.Local); len(got) != 0 {
		t.Errorf("the owner of the server has %q", got)
	}
	if found, err := s.List.Search(t.Context(), anna, store.Query{Text: "bread", Limit: 9}); err != nil || len(found.Titles)+len(found.Messages) == 0 {
		t.Errorf("a visitor does not find what they wrote: %v", err)
	}
	for _, who := range []Principal{ben, access.Local} {
		if _, err := s.Chat(t.Context(), who, c.ID()); !errors.Is(err, owned.ErrNotFound) {
			t.Errorf("%s reads the chat of a visitor: %v", who.Owner, err)
		}
	}
	s.Choice.Choose(t.Context(), anna, "a model")
	if stored, err := db.Settings(t.Context(), anna.Owner); err != nil || len(stored) != 0 {
		t.Errorf("%v of a visitor are stored (%v)", stored, err)
	}
	if stored, err := db.Conversations(t.Context(), anna.Owner, store.Filter{}); err != nil || len(stored) != 0 {
		t.Errorf("%d chats of a visitor are stored in %s (%v)", len(stored), path, err)
	}
	s.Forget(anna.Owner)
	if got := titles(t, s, anna); len(got) != 0 {
		t.Errorf("after the visit there are %q", got)
	}
	if got := titles(t, s, ben); len(got) != 1 {
		t.Errorf("the end of one visit left another visitor %q", got)
	}
}

// Visitors who begin chats without end lose their own, and nobody else's.
func TestVisitors_EndNoTemporaryChatOfAPerson(t *testing.T) {
	db := openStore(t, filepath.Join(t.TempDir(), "data", "chats.db"))
	s, _ := newService(t, Options{Store: db, MaxChats: 80})
	mine, err := s.Start(t.Context(), access.Local, Question{Text: "mine", Settings: setting.Default(), Unanswered: true}, true)
	if err != nil {
		t.Fatal(err)
	}
	flood := access.Visitor()
	for range 100 {
		visitorStarts(t, s, flood, "x")
	}
	if got := len(titles(t, s, flood)); got != visitorsChats {
		t.Errorf("one visitor has %d chats, want %d", got, visitorsChats)
	}
	for range 100 {
		visitorStarts(t, s, access.Visitor(), "x")
	}
	visitors := 0
	for _, c := range s.inMemory() {
		if access.IsVisitor(c.owner) {
			visitors++
		}
	}
	if visitors != 80/visitorsShare {
		t.Errorf("visitors have %d chats in memory, want %d", visitors, 80/visitorsShare)
	}
	if _, err := s.Chat(t.Context(), access.Local, mine.ID()); err != nil {
		t.Errorf("the temporary chat of the owner ended: %v", err)
	}
}

// What a visitor edits again and again stays in memory, and so it counts.
func TestVisitors_WriteSoMuchInAChat(t *testing.T) {
	db := openStore(t, filepath.Join(t.TempDir(), "data", "chats.db"))
	s, _ := newService(t, Options{Store: db})
	text := strings.Repeat("x", 100<<10)
	for _, tc := range []struct {
		name   string
		who    Principal
		refuse bool
	}{{"a visitor", access.Visitor(), true}, {"a person", access.Local, false}} {
		c := visitorStarts(t, s, tc.who, text)
		refused := false
		for range 2 * visitorsText / len(text) {
			q, _, _, err := c.Question(tc.who, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err = c.Edit(t.Context(), tc.who, q.ID, Question{Text: text, Settings: setting.Default(), Unanswered: true}); err != nil {
				refused = true
			}
		}
		if refused != tc.refuse {
			t.Errorf("%s who writes twice the limit of a visitor is refused: %t", tc.name, refused)
		}
	}
}
