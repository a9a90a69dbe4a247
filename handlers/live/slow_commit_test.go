package live

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"m40-llm/store"
)

// heldStore is a real store in which what a chat has to store takes until it is released.
type heldStore struct {
	*store.Store
	chat     string
	begun    chan struct{} // gets a value when the chat wants to store something
	released chan struct{} // closed: nothing is held any more
}

func (h *heldStore) hold(chat string) {
	if chat == h.chat {
		h.begun <- struct{}{}
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
	held = &heldStore{Store: openStore(t, storePath(t)), begun: make(chan struct{}), released: make(chan struct{})}
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
	<-held.begun
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
	branch, err := held.Branch(ctx, Owner, second.ID())
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
	if model, err := s.ChosenModel(ctx, me); err != nil || model != "other" {
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
