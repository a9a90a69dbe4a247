package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

// storePath is where a test may keep a store.
func storePath(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "chats.db")
}

func openStore(t testing.TB, path string) *store.Store {
	t.Helper()
	db, err := store.Open(context.Background(), store.Options{Path: path, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// view is what a page shows of a chat.
func view(c *Chat) []Message {
	list := snapshotOf(c).Messages
	for i := range list {
		list[i].At = list[i].At.UTC().Truncate(time.Millisecond)
		if a := list[i].Answer; a != nil {
			a.Blocks = 0
			for _, d := range []*time.Duration{&a.Timings.Queue, &a.Timings.Load, &a.Timings.Prefill, &a.Timings.Decode, &a.Timings.First} {
				*d = d.Truncate(time.Microsecond) // as the store keeps them
			}
		}
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAStoredChatIsTheSameAfterARestart(t *testing.T) {
	path := storePath(t)
	db := openStore(t, path)
	s, engine := newService(t, Options{Store: db})
	q := question("one")
	q.System = "Be brief."
	q.Settings.TopK, q.Settings.Seed = 7, 5
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := <-engine.asked
	a.write("first ", "answer")
	a.finish()
	settle(c)
	must(t, c.Regenerate(context.Background(), me, 0, "Be brief.", q.Settings))
	a = <-engine.asked
	a.write("second")
	a.do(infer.Event{}, &fault.Error{Code: fault.CodeDevice, Message: "gone"})
	settle(c)
	answer := snapshotOf(c).Messages[1].ID
	must(t, c.Rewrite(context.Background(), me, answer, "third, by hand", ""))
	must(t, c.Send(context.Background(), me, q))
	a = <-engine.asked
	a.write("to be stopped")
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, s.Rename(context.Background(), me, c.ID(), "  A\ntitle "))
	before := view(c)
	s.Close()
	must(t, db.Close())

	s, engine = newService(t, Options{Store: openStore(t, path)})
	c, err = s.Chat(context.Background(), me, c.ID())
	must(t, err)
	if after := view(c); !reflect.DeepEqual(after, before) {
		t.Errorf("after the restart the chat is\n%+v\nwant\n%+v", after, before)
	}
	if snapshot := snapshotOf(c); snapshot.Title != "A title" || snapshot.System != "Be brief." {
		t.Errorf("title %q, system prompt %q", snapshot.Title, snapshot.System)
	}
	must(t, c.Select(context.Background(), me, before[1].ID, 2))
	if m := lastMessage(t, c); m.Text != "second" || m.Answer.State != Failed || m.Answer.Error.Code != fault.CodeDevice || m.Versions != 3 {
		t.Errorf("the second version is %+v", m)
	}
	must(t, c.Select(context.Background(), me, before[1].ID, 3))
	last := before[len(before)-1].ID
	must(t, c.Continue(context.Background(), me, last, setting.Default()))
	a = <-engine.asked
	if r := a.request; !r.Continue || r.Messages[len(r.Messages)-1].Content != "to be stopped" || r.Messages[0].Content != "Be brief." || r.Params.Seed != 5 {
		t.Errorf("to continue the engine was asked %+v", r)
	}
	a.write(" and went on")
	a.finish()
	settle(c)
	if m := lastMessage(t, c); m.ID != last || m.Text != "to be stopped and went on" || m.Answer.Usage.CompletionTokens != 2 || m.Answer.State != Done {
		t.Errorf("the continued answer is %+v, %+v", m, m.Answer)
	}
	if diff := loses(c); diff != "" {
		t.Error(diff)
	}
	if tokens, err := s.opt.Store.Tokens(context.Background(), store.OwnerID, c.ID(), last); err != nil || len(tokens) != 2 {
		t.Errorf("the continued answer has the tokens %v (%v), want those of both parts", tokens, err)
	}
}

func TestAStopOfTheServerStoresWhatIsWritten(t *testing.T) {
	path := storePath(t)
	db := openStore(t, path)
	s, engine := newService(t, Options{Store: db, SaveEvery: time.Hour})
	var ids []string
	for i := range 16 {
		c, a := start(t, s, engine, fmt.Sprint("chat ", i))
		a.write("half ", "an ")
		ids = append(ids, c.ID())
	}
	s.Close()
	must(t, db.Close())
	s, _ = newService(t, Options{Store: openStore(t, path)})
	for _, id := range ids {
		c, err := s.Chat(context.Background(), me, id)
		must(t, err)
		if m := lastMessage(t, c); m.Text != "half an " || m.Answer.State != Interrupted {
			t.Errorf("the answer is %q, %s", m.Text, m.Answer.State)
		}
	}
}

func TestAChatThatIsUnloadedLosesNothing(t *testing.T) {
	now := time.Now()
	s, engine := newService(t, Options{Store: openStore(t, storePath(t)), Now: func() time.Time { return now }, UnloadAfter: time.Minute, SaveEvery: time.Hour})
	c, a := start(t, s, engine, "one")
	pass := func() { now = now.Add(2 * time.Minute); s.unload() }
	pass()
	if s.find(c.ID()) != c {
		t.Fatal("a chat was unloaded while its answer was written")
	}
	a.write("text")
	a.finish()
	settle(c)
	sub, snapshot, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	pass()
	if s.find(c.ID()) != c {
		t.Fatal("a chat was unloaded while somebody read it")
	}
	before := view(c)
	sub.Close()
	pass()
	if s.find(c.ID()) != nil {
		t.Fatal("an idle chat was not unloaded")
	}
	if err := c.Send(context.Background(), me, question("to the unloaded one")); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("a chat that is not in memory took a question: %v", err)
	}
	back, err := s.Chat(context.Background(), me, c.ID())
	must(t, err)
	if after := view(back); !reflect.DeepEqual(after, before) {
		t.Errorf("it came back as %+v, want %+v", after, before)
	}
	_, again, err := back.Subscribe(context.Background(), me, snapshot.Seq)
	must(t, err)
	if again == nil || again.Seq <= snapshot.Seq {
		t.Errorf("a reader of event %d of the earlier life got %+v, want a snapshot with a later number", snapshot.Seq, again)
	}
}

func TestATemporaryChatNeverReachesTheStore(t *testing.T) {
	db := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: db})
	c, err := s.Start(context.Background(), me, question("a secret word"), true)
	must(t, err)
	a := <-engine.asked
	a.write("another secret word")
	a.finish()
	settle(c)
	id, err := s.Fork(context.Background(), me, c, 2)
	must(t, err)
	if fork, err := s.Chat(context.Background(), me, id); err != nil || !snapshotOf(fork).Temporary || lastMessage(t, fork).Text != "another secret word" {
		t.Errorf("the fork of a temporary chat: %v", err)
	}
	found, err := db.Search(context.Background(), store.OwnerID, store.Query{Text: "secret"})
	list, listErr := db.Conversations(context.Background(), store.OwnerID, store.Filter{})
	if err != nil || listErr != nil || len(found.Messages)+len(found.Titles)+len(list) != 0 {
		t.Errorf("the store has %+v and %+v (%v, %v)", found, list, err, listErr)
	}
	must(t, s.Delete(context.Background(), me, c.ID()))
	if _, err := s.Chat(context.Background(), me, c.ID()); !errors.Is(err, owned.ErrNotFound) {
		t.Errorf("after it was deleted the chat is there: %v", err)
	}
}

func TestDeletingStopsTheAnswerAndKeepsItsText(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.write("half an ")
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	changes := s.List.Changes(me)
	must(t, s.Delete(context.Background(), me, c.ID()))
	<-changes
	if _, err := sub.Take(); !errors.Is(err, owned.ErrGone) {
		t.Errorf("the reader got %v", err)
	}
	for name, err := range map[string]error{
		"open":    func() error { _, err := s.Chat(context.Background(), me, c.ID()); return err }(),
		"send":    c.Send(context.Background(), me, question("more")),
		"rename":  s.Rename(context.Background(), me, c.ID(), "x"),
		"pin":     s.List.Pin(context.Background(), me, c.ID(), true),
		"delete":  s.Delete(context.Background(), me, c.ID()),
		"nothing": s.Restore(context.Background(), me, "nowhere"),
	} {
		if !errors.Is(err, owned.ErrNotFound) {
			t.Errorf("%s on a deleted chat returned %v", name, err)
		}
	}
	must(t, s.Restore(context.Background(), me, c.ID()))
	back, err := s.Chat(context.Background(), me, c.ID())
	must(t, err)
	if m := lastMessage(t, back); m.Text != "half an " || m.Answer.State != Stopped {
		t.Errorf("the answer came back as %q, %s", m.Text, m.Answer.State)
	}
}

// failingStore is a real store in which the end of an answer can be made to fail.
type failingStore struct {
	*store.Store
	mu  sync.Mutex
	err error
}

func (s *failingStore) FinishAnswer(ctx context.Context, owner, conversation string, message int64, f store.Finish) (store.Message, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return store.Message{}, err
	}
	return s.Store.FinishAnswer(ctx, owner, conversation, message, f)
}

func (s *failingStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// storedText returns what is stored of the last message of a chat.
func storedText(t *testing.T, db *store.Store, chat string) store.Message {
	t.Helper()
	branch, err := db.Branch(context.Background(), store.OwnerID, chat)
	must(t, err)
	return branch[len(branch)-1]
}

func TestTheTextOfAllChatsIsSavedTwiceASecond(t *testing.T) {
	path := storePath(t)
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t, path)
		engine := newScript()
		s := New(engine, Options{Store: db})
		defer s.Close()
		var chats []*Chat
		var answers []*answer
		for i := range 4 {
			c, a := start(t, s, engine, fmt.Sprint("chat ", i))
			chats, answers = append(chats, c), append(answers, a)
		}
		for round := range 5 {
			for _, a := range answers {
				a.write(fmt.Sprint(round, " "))
			}
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			for _, c := range chats {
				if got, want := storedText(t, db, c.ID()).Text, lastMessage(t, c).Text; got != want {
					t.Errorf("half a second after it was written, %q of %q is saved", got, want)
				}
			}
		}
	})
}

func TestAnEndThatCannotBeStoredIsTriedAgain(t *testing.T) {
	path := storePath(t)
	synctest.Test(t, func(t *testing.T) {
		db := &failingStore{Store: openStore(t, path)}
		engine := newScript()
		s := New(engine, Options{Store: db})
		defer s.Close()
		c, a := start(t, s, engine, "one")
		a.write("text")
		full := &store.SpaceError{Path: "/data"}
		db.fail(full)
		a.finish()
		settle(c)
		if err := c.Send(context.Background(), me, question("two")); !errors.Is(err, error(full)) {
			t.Errorf("with an answer that is not stored, a question got %v", err)
		}
		if _, busy, _ := c.idle(); !busy {
			t.Error("the chat could be dropped with an answer that is not stored")
		}
		db.fail(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if m := storedText(t, db.Store, c.ID()); m.Text != "text" || m.State != store.Done {
			t.Errorf("the answer was not stored later: %+v", m)
		}
	})
}

// endless is an engine whose answers never end by themselves.
type endless struct{ *script }

func (endless) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				yield(infer.Event{}, ctx.Err())
				return
			case <-time.After(time.Millisecond):
			}
			if !yield(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: word(i)}}, nil) {
				return
			}
		}
	}
}

func word(i int) string { return strconv.Itoa(i) + " " }

// reporting says what has been stored.
type reporting struct{ *store.Store }

func (r reporting) SaveProgress(ctx context.Context, batch []store.Progress) ([]int64, error) {
	ended, err := r.Store.SaveProgress(ctx, batch)
	if err == nil {
		for _, p := range batch {
			fmt.Println("saved", p.Conversation, len(p.Text))
		}
	}
	return ended, err
}

const crashChats = 4

// playServer is the process that a test kills: it begins four chats, each with a
// second question in another, and says what is acknowledged and what is saved.
func playServer(path string) error {
	db, err := store.Open(context.Background(), store.Options{Path: path, Ballast: -1})
	if err != nil {
		return err
	}
	s := New(endless{newScript()}, Options{Store: reporting{db}, SaveEvery: 50 * time.Millisecond})
	for i := range crashChats {
		c, err := s.Start(context.Background(), me, question(fmt.Sprint("question ", i)), false)
		if err != nil {
			return err
		}
		fmt.Println("asked", c.ID(), i)
	}
	select {}
}

// TestKilledWhileFourChatsStream kills the process at any moment. What was
// acknowledged is there, and what was saved; and the answers can be continued.
func TestKilledWhileFourChatsStream(t *testing.T) {
	kills := 10
	if fixtures.Torture() {
		kills = 250
	}
	path := storePath(t)
	random := rand.New(rand.NewPCG(1, 2))
	asked := map[string]string{} // chat to question
	for kill := range kills {
		saved := map[string]int{}
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), "LIVE_HELPER="+path)
		process.Stderr = os.Stderr
		out, err := process.StdoutPipe()
		must(t, err)
		must(t, process.Start())
		// The lines that were written before the kill are still read after it.
		lines, limit := bufio.NewScanner(out), random.IntN(40)
		for n := 0; lines.Scan(); n++ {
			kind, rest, _ := strings.Cut(lines.Text(), " ")
			id, what, _ := strings.Cut(rest, " ")
			switch kind {
			case "asked":
				asked[id] = "question " + what
			case "saved":
				saved[id], err = strconv.Atoi(what)
				must(t, err)
			}
			if n == limit {
				must(t, process.Process.Kill())
			}
		}
		_ = process.Wait() // it was killed
		checkAfterKill(t, path, kill, asked, saved)
	}
	if len(asked) < kills {
		t.Errorf("in %d lives only %d questions were asked", kills, len(asked))
	}
}

func checkAfterKill(t *testing.T, path string, kill int, asked map[string]string, saved map[string]int) {
	db, err := store.Open(context.Background(), store.Options{Path: path, Ballast: -1})
	must(t, err)
	defer db.Close()
	engine := newScript()
	s := New(engine, Options{Store: db})
	defer s.Close()
	for id, text := range asked {
		c, err := s.Chat(context.Background(), me, id)
		if err != nil {
			t.Errorf("after kill %d the chat of %q: %v", kill, text, err)
			continue
		}
		list := view(c)
		if len(list) != 2 || list[0].Text != text || list[1].Answer.State != Interrupted {
			t.Errorf("after kill %d the chat of %q is %+v", kill, text, list)
			continue
		}
		var whole strings.Builder
		for i := 0; whole.Len() < len(list[1].Text); i++ {
			whole.WriteString(word(i))
		}
		if got := list[1].Text; got != whole.String() || len(got) < saved[id] {
			t.Errorf("after kill %d the answer has %d bytes, %d were saved: %.40q", kill, len(got), saved[id], got)
		}
	}
	for id := range saved {
		c, err := s.Chat(context.Background(), me, id)
		must(t, err)
		before := lastMessage(t, c).Text
		must(t, c.Continue(context.Background(), me, 0, setting.Default()))
		a := <-engine.asked
		a.write("more")
		a.finish()
		settle(c)
		if got := lastMessage(t, c); got.Text != before+"more" || got.Answer.State != Done {
			t.Errorf("continued, the answer is %.40q, %s", got.Text, got.Answer.State)
		}
		delete(asked, id) // later checks would not find it interrupted
		return            // one of them is enough
	}
}

func TestAContinuedAnswerKeepsItsBlocks(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	a.write("first\n\n", "second\n\n", "open")
	a.finish()
	settle(c)
	must(t, c.Continue(context.Background(), me, 0, setting.Default()))
	a = <-engine.asked
	if m := lastMessage(t, c); m.Answer.Blocks != len("first\n\nsecond\n\n") || m.Answer.State != Waiting {
		t.Errorf("continued, %d bytes are finished blocks: %+v", m.Answer.Blocks, m.Answer)
	}
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	a.write(" end\n\n")
	events, err := sub.Take()
	must(t, err)
	if last := events[len(events)-1]; last.Type != EventBlock || last.Text != "open end\n\n" {
		t.Errorf("the next block is %+v", last)
	}
}

func TestSelectSendsOnlyWhatDiffers(t *testing.T) {
	s, engine := newService(t, Options{})
	c, a := start(t, s, engine, "one")
	a.finish()
	settle(c)
	must(t, c.Regenerate(context.Background(), me, 0, "", setting.Default()))
	(<-engine.asked).finish()
	settle(c)
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	must(t, c.Select(context.Background(), me, 3, 1))
	must(t, c.Select(context.Background(), me, 2, 0)) // is shown already
	events, err := sub.Take()
	must(t, err)
	if len(events) != 1 || events[0].Type != EventBranch || events[0].ID != 1 || len(events[0].Messages) != 1 || events[0].Messages[0].ID != 2 {
		t.Errorf("to show another version of the last answer these events were sent: %+v", events)
	}
}

func TestWhatOtherProgramsStored(t *testing.T) {
	m := fromStore(store.Message{ID: 2, Role: store.RoleAssistant, State: store.Running, Text: "x", Answer: &store.Answer{Seed: 9}}).message()
	if m.Answer.State != Interrupted || m.Answer.Settings.Seed != 9 || m.Answer.Settings.TopK != setting.Default().TopK {
		t.Errorf("an answer that nobody runs, without settings, is %+v", m.Answer)
	}
}

// snapshotOf is the chat as it stands.
func snapshotOf(c *Chat) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot(0)
}

// importList imports a chat as a file would be.
func importList(s *Service, n store.Metadata, list []store.Message, leaf int64) (id string, err error) {
	c, err := s.Import(context.Background(), me, func(yield func(store.Message, error) bool) {
		for _, m := range list {
			if !yield(m, nil) {
				return
			}
		}
	}, func() (store.Metadata, int64, error) { return n, leaf, nil })
	return c.ID, err
}
