package live

import (
	"context"
	"database/sql"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"m40-llm/store"
)

// heldStore is a real store in which a question of one chat is stored when released is closed.
type heldStore struct {
	*store.Store
	chat     string
	reached  chan struct{} // gets a value when the chat stores a question
	released chan struct{} // closed: it is stored
}

func (h *heldStore) hold(chat string) {
	if chat == h.chat {
		h.reached <- struct{}{}
		<-h.released
	}
}

func (h *heldStore) Ask(ctx context.Context, owner, chat string, q store.NewMessage, a store.NewAnswer) (question, answer store.Message, err error) {
	h.hold(chat)
	return h.Store.Ask(ctx, owner, chat, q, a)
}

// holdOne returns chats of which the first is storing a question, which takes until held is
// released, and a second one with an answer.
func holdOne(t testing.TB) (held *heldStore, s *Service, engine *script, first, second *Chat, sent chan error) {
	held = &heldStore{Store: openStore(t, storePath(t)), reached: make(chan struct{}), released: make(chan struct{})}
	s, engine = newService(t, Options{Store: held})
	for _, c := range []**Chat{&first, &second} {
		chat, a := start(t, s, engine, "one")
		a.write("text")
		a.finish()
		settle(chat)
		*c = chat
	}
	held.chat, sent = first.ID(), make(chan error, 1)
	go func() { sent <- first.Send(context.Background(), me, question("slow")) }()
	<-held.reached
	return held, s, engine, first, second, sent
}

// Where a chat waited for a commit of another, this test would not end.
func TestAChatWhoseCommitTakesLongHoldsUpNoOther(t *testing.T) {
	ctx := context.Background()
	held, s, engine, first, second, sent := holdOne(t)
	must(t, second.Send(ctx, me, question("two")))
	a := <-engine.asked
	a.write("answered")
	a.finish()
	settle(second)
	branch, err := held.Branch(ctx, store.OwnerID, second.ID())
	must(t, err)
	if m := branch[len(branch)-1]; m.Text != "answered" || m.State != store.Done {
		t.Errorf("the other chat's answer is stored as %q, %s", m.Text, m.State)
	}
	third, other := start(t, s, engine, "three")
	other.write("x")
	if m := lastMessage(t, third); m.Text != "x" {
		t.Errorf("a chat that begins meanwhile has the answer %q", m.Text)
	}
	other.finish()
	settle(third)

	// The chat itself can be read, and what is no commit of it can be done with it.
	if m := lastMessage(t, first); m.Text != "text" {
		t.Errorf("before its question is stored the slow chat ends with %q", m.Text)
	}
	must(t, s.SetModel(ctx, me, second.ID(), "other"))
	if model, err := s.Choice.Model(ctx, me); err != nil || model != "other" {
		t.Errorf("the model chosen last is %q, %v", model, err)
	}
	must(t, s.Rename(ctx, me, first.ID(), "Slow"))
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	if err := first.Send(impatient, me, question("nobody waits for this")); err == nil {
		t.Error("a command whose reader left waited for the one before it")
	}

	close(held.released)
	must(t, <-sent)
	(<-engine.asked).finish()
	settle(first)
}

// TestHeldCommits_Measure reports how long a message of a chat takes while a commit of another
// takes 2 s.
func TestHeldCommits_Measure(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("M40_LLM_HELD_ROUNDS"))
	if rounds == 0 {
		t.Skip("M40_LLM_HELD_ROUNDS is not set")
	}
	held, _, engine, first, second, sent := holdOne(t)
	var times []time.Duration
	for range rounds {
		began := time.Now()
		must(t, second.Send(context.Background(), me, question("two")))
		a := <-engine.asked
		a.finish()
		settle(second)
		times = append(times, time.Since(began))
	}
	close(held.released)
	must(t, <-sent)
	(<-engine.asked).finish()
	settle(first)
	slices.Sort(times)
	t.Logf("%d messages sent, answered and stored: median %v, p99 %v, most %v", rounds, times[rounds/2], times[rounds*99/100], times[rounds-1])
}

// TestBusyWriter_Measure reports how long what a person does takes while the writer of the store
// is taken for 2 s, as by a commit on a slow disk.
func TestBusyWriter_Measure(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("M40_LLM_HELD_ROUNDS"))
	if rounds == 0 {
		t.Skip("M40_LLM_HELD_ROUNDS is not set")
	}
	ctx := context.Background()
	path := storePath(t)
	s, engine := newService(t, Options{Store: openStore(t, path)})
	streaming, running := start(t, s, engine, "streaming")
	sub, _, err := streaming.Subscribe(ctx, me, 0)
	must(t, err)
	idle, a := start(t, s, engine, "idle")
	a.finish()
	settle(idle)
	stored, b := start(t, s, engine, "stored")
	b.finish()
	settle(stored)
	other, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate&_busy_timeout=5000")
	must(t, err)
	defer other.Close()
	times := map[string][]time.Duration{}
	measure := func(what string, do func()) {
		began := time.Now()
		do()
		times[what] = append(times[what], time.Since(began))
	}
	for range rounds {
		tx, err := other.Begin()
		must(t, err)
		free := time.After(2 * time.Second)
		acknowledged := make(chan error, 1)
		began := time.Now()
		go func() { acknowledged <- idle.Send(ctx, me, question("a message")) }()
		for range 100 {
			measure("a token reaches a reader", func() {
				running.write("word ")
				<-sub.Ready()
				_, _ = sub.Take()
			})
			measure("a page of a chat in memory", func() { _ = snapshotOf(idle) })
			measure("a chat is opened from the store", func() {
				if c := s.find(stored.ID()); c != nil {
					s.unlist(c)
				}
				must(t, second(s.Chat(ctx, me, stored.ID())))
			})
			measure("the list of chats", func() { must(t, second(s.List.Conversations(ctx, me, store.Filter{}))) })
			measure("a search", func() { must(t, second(s.List.Search(ctx, me, store.Query{Text: "streaming"}))) })
		}
		<-free
		must(t, tx.Rollback())
		must(t, <-acknowledged)
		times["a message is acknowledged"] = append(times["a message is acknowledged"], time.Since(began))
		(<-engine.asked).finish()
		settle(idle)
	}
	running.finish()
	settle(streaming)
	for what, list := range times {
		slices.Sort(list)
		t.Logf("%-32s %5d times: median %v, p99 %v, most %v", what, len(list), list[len(list)/2], list[len(list)*99/100], list[len(list)-1])
	}
}
