package live

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// versions publishes n changes between two versions of a message, each with a text of its own.
func versions(r *readers, n, bytes int) {
	for i := range n {
		r.publish(Event{Type: EventBranch, Messages: []Message{{ID: 1, Text: fmt.Sprint(i) + strings.Repeat("x", bytes)}}})
	}
}

func held(events []Event) (bytes int) {
	for _, e := range events {
		for _, m := range e.Messages {
			bytes += len(m.Text)
		}
	}
	return bytes
}

func TestReaders_WhatIsRememberedIsBoundedByBytes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		n, bytes int
		resumes  int64 // events that a page may have missed
	}{
		{"versions of 1 MiB", 100, 1 << 20, 3},
		{"versions of 100 KB", 1000, 100 << 10, 40},
		{"small ones, of which the number is bounded", 5000, 10, 2000},
		{"one that is larger than all may be", 3, 5 << 20, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &readers{subs: map[*Subscription]bool{}, most: 2048}
			sub := &Subscription{ready: make(chan struct{}, 1), maxEvents: 256, maxBytes: 256 << 10}
			r.add(sub, 0)
			versions(r, tc.n, tc.bytes)
			if got := held(r.recent); got > maxRecent {
				t.Errorf("the chat remembers %d bytes", got)
			}
			if got := held(sub.queue); got > 256<<10 {
				t.Errorf("%d bytes wait for a page", got)
			}
			back := &Subscription{ready: make(chan struct{}, 1), maxEvents: 1 << 20, maxBytes: 1 << 30}
			if !r.add(back, r.seq-tc.resumes) || len(back.queue) != int(tc.resumes) {
				t.Errorf("who has missed %d events gets %d", tc.resumes, len(back.queue))
			}
			if tc.n > 5 && tc.bytes > 1000 && r.add(back, r.seq-int64(tc.n)+1) {
				t.Error("who has missed all of them gets them")
			}
			r.clearPanels()
			bytes := 0
			for i := range r.recent {
				bytes += r.recent[i].size()
			}
			if r.bytes != bytes {
				t.Errorf("%d bytes are counted, want %d", r.bytes, bytes)
			}
		})
	}
}

func TestSubscription_ASingleLargeEventReachesItsReader(t *testing.T) {
	sub := &Subscription{ready: make(chan struct{}, 1), maxEvents: 256, maxBytes: 1000}
	large := Event{First: 1, Seq: 1, Type: EventMessage, Message: &Message{Text: strings.Repeat("x", 5000)}}
	if !sub.put(large) {
		t.Fatal("a reader who keeps up is too slow for a large message")
	}
	if events, err := sub.Take(); len(events) != 1 || err != nil {
		t.Fatal(events, err)
	}
	if sub.put(large); sub.put(Event{First: 2, Seq: 2, Type: EventTitle}) {
		t.Error("a second event fits behind one that is too large")
	}
}

func TestLinksThatExpireLeaveNothingInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyboards(30*time.Minute, time.Now)
		for link := range int64(10) {
			who := byLink(link)
			who.Share.Expires = time.Now().Add(time.Hour)
			asked(t, &k, who, fmt.Sprint("reader ", link))
			k.mu.Lock()
			k.accepts[link] = accepts{true, "chat", me.Owner}
			k.mu.Unlock()
		}
		forever := byLink(99)
		asked(t, &k, forever, "another")
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		k.mu.Lock()
		if n := len(k.asked) + len(k.accepts) + len(k.ends) + len(k.writers); n > 0 {
			t.Errorf("%d limits, %d settings, %d timers and %d writers are left", len(k.asked), len(k.accepts), len(k.ends), len(k.writers))
		}
		k.mu.Unlock()

		k.mu.Lock()
		k.accepts[1], k.accepts[2] = accepts{true, "one", "anna"}, accepts{true, "two", "anna"}
		for link := range k.accepts {
			k.endsWith(link, time.Now().Add(time.Hour))
		}
		k.mu.Unlock()
		k.remove(func(w *writer) bool { return w.chat == "one" })
		if len(k.accepts) != 1 || len(k.ends) != 1 {
			t.Errorf("when a chat is deleted, settings of %d links and timers of %d are left, want 1 each", len(k.accepts), len(k.ends))
		}
	})
}

func TestKeyboard_OneWhoTypesWakesThePagesOfOneChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeyboards(time.Hour, time.Now)
		ada, _ := asked(t, &k, byLink(1), "Ada")
		k.set(ada, WriterWrites)
		k.mu.Lock()
		here, elsewhere := k.watch("chat"), k.watch("another chat")
		k.types(typist{"chat", ada.ID})
		woken := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		if !woken(here) || woken(elsewhere) {
			t.Errorf("the pages of the chat wake: %v, those of another: %v", woken(here), woken(elsewhere))
		}
		for i := range 3 * maxWatched {
			k.watch(fmt.Sprint(i))
		}
		if len(k.changed) > maxWatched || !woken(elsewhere) {
			t.Errorf("%d chats are watched, and those that are forgotten were told: %v", len(k.changed), woken(elsewhere))
		}
		k.mu.Unlock()
		k.remove(func(*writer) bool { return true })
	})
}

func TestKeyboard_UsesItsClock(t *testing.T) {
	now := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	k := newKeyboards(time.Hour, func() time.Time { return now })
	who := byLink(1)
	if _, err := k.ask(who, "Ada", ""); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	w := k.writers[0]
	if !w.since.Equal(now) || !w.ends.Equal(now.Add(askLife)) {
		t.Errorf("asked at %v until %v, at %v", w.since, w.ends, now)
	}
	k.mu.Unlock()
	now = now.Add(askLife)
	k.end(w)
	if got := k.state(w); got != WriterMissed {
		t.Errorf("after ten minutes of its clock it is %q", got)
	}
	k.remove(func(*writer) bool { return true })
}

// slowDisk is a store whose disk is asked for its space and does not answer at first.
type slowDisk struct {
	Store
	asked  chan struct{}
	answer chan int64
}

func (d slowDisk) Free() (int64, bool, error) { d.asked <- struct{}{}; return <-d.answer, true, nil }
func (d slowDisk) Present() error             { return nil }

func TestSpace_ADiskThatDoesNotAnswerHoldsUpOnePage(t *testing.T) {
	disk := slowDisk{asked: make(chan struct{}, 9), answer: make(chan int64, 1)}
	now := time.Now()
	s := &Service{opt: Options{Store: disk, Now: func() time.Time { return now }}}
	disk.answer <- 7
	if got := s.Space(); got.Free != 7 {
		t.Fatalf("got %+v", got)
	}
	<-disk.asked
	now = now.Add(spaceAge)
	looked := make(chan Space)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { looked <- s.Space(); cancel() }()
	<-disk.asked
	for range 3 { // further pages
		if got := s.Space(); got.Free != 7 {
			t.Errorf("another page gets %+v", got)
		}
	}
	disk.answer <- 9
	if got := <-looked; got.Free != 9 || s.Space().Free != 9 {
		t.Errorf("the page that looked gets %+v", got)
	}
	<-ctx.Done()
	if len(disk.asked) > 0 {
		t.Error("others asked the disk too")
	}
}
