package live

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/store"
)

func TestARawChatIsOneText(t *testing.T) {
	db, err := store.Open(context.Background(), store.Options{Path: filepath.Join(t.TempDir(), "data", "chats.db"), Ballast: -1, MinFree: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, engine := newService(t, Options{Store: db})
	asked := func(want string) *answer {
		t.Helper()
		a := <-engine.asked
		if a.request.Prompt != want || len(a.request.Messages) != 0 || a.request.Continue {
			t.Errorf("the engine was asked with %+v, want the prompt %q", a.request, want)
		}
		return a
	}
	q := question("Once upon\n")
	q.Raw, q.System = true, "not sent"
	c, err := s.Start(context.Background(), me, q, false)
	if err != nil {
		t.Fatal(err)
	}
	a := asked("Once upon\n")
	a.write(" a", " time")
	a.finish()
	settle(c)
	if err := c.Send(context.Background(), me, question(", there was ")); err != nil {
		t.Fatal(err)
	}
	a = asked("Once upon\n a time, there was ")
	a.write("a fox")
	if err := c.Stop(context.Background(), me, 0); err != nil {
		t.Fatal(err)
	}
	settle(c)
	if err := c.Continue(context.Background(), me, 0, setting.Default()); err != nil {
		t.Fatal(err)
	}
	a = asked("Once upon\n a time, there was a fox")
	a.write(".")
	a.finish()
	settle(c)
	if err := c.Regenerate(context.Background(), me, 0, "", setting.Default()); err != nil {
		t.Fatal(err)
	}
	a = asked("Once upon\n a time, there was ")
	a.write("a hen.")
	a.finish()
	settle(c)

	s.unloadAll()
	c, err = s.Chat(context.Background(), me, c.ID())
	if err != nil {
		t.Fatal(err)
	}
	if snapshot, err := c.Snapshot(context.Background(), me, 0); err != nil || !snapshot.Raw {
		t.Errorf("loaded again it is %+v, %v", snapshot, err)
	}
	copied, err := s.Fork(context.Background(), me, c, lastMessage(t, c).ID)
	if err != nil {
		t.Fatal(err)
	}
	if conversation, err := s.Conversation(context.Background(), me, copied); err != nil || !conversation.Raw {
		t.Errorf("its copy is %+v, %v", conversation, err)
	}
	if r, err := s.DraftRequest(context.Background(), me, c.ID(), Draft{Text: "and so on"}); err != nil || len(r.Messages) > 0 || !strings.HasSuffix(r.Prompt, "and so on") {
		t.Errorf("a draft becomes %+v, %v", r, err)
	}
}

// unloadAll takes every chat out of memory.
func (s *Service) unloadAll() {
	for _, c := range s.inMemory() {
		s.remove(c)
	}
}
