package live

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/store"
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

func TestEvents_AnswersCountWithAllTheirTexts(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, answer := range map[string]*Answer{
		"a system prompt":      {Answer: store.Answer{System: large}},
		"definitions of tools": {Settings: setting.Settings{Tools: large}},
		"a call":               {Answer: store.Answer{Call: &store.Call{Arguments: large}}},
		"stored settings":      {Answer: store.Answer{Settings: json.RawMessage(large)}},
		"a stop string":        {Settings: setting.Settings{Stop: []string{"a", large}}},
	} {
		r := &readers{subs: map[*Subscription]bool{}, most: 2048}
		for range 100 {
			r.publish(Event{Type: EventBranch, Messages: []Message{{ID: 1, Answer: answer}}})
		}
		if len(r.recent) != 3 {
			t.Errorf("of 100 versions with %s of 1 MiB, %d are remembered", name, len(r.recent))
		}
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
