package share

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"m40-llm/handlers/guest"
	"m40-llm/handlers/live"
	"m40-llm/store"
	"m40-llm/web/lang"
)

func byLink(id int64) live.Principal { return live.Principal{Share: &store.Share{ID: id}} }

func TestFeeds_ALinkThatIsRenderedHoldsUpNoOther(t *testing.T) {
	var f feeds
	busy := f.enter(feedKey{1, lang.English})
	busy.mu.Lock() // it renders
	joined := make(chan error)
	go func() {
		_, err := f.join(t.Context(), guest.New(live.New(nil, live.Options{}), guest.Options{}), live.Principal{Share: byLink(1).Share}, "/s/x")
		joined <- err
	}()
	for f.usersOf(feedKey{1, lang.English}) < 2 { // until that one waits
		runtime.Gosched()
	}
	other := &feedReader{feed: f.enter(feedKey{2, lang.English})}
	f.leave(other)
	busy.err = live.ErrSlow
	busy.mu.Unlock()
	if err := <-joined; err == nil || errors.Is(err, errFailed) {
		t.Errorf("who comes to a feed that has failed gets %v, want what a new one says", err)
	}
	f.leave(&feedReader{feed: busy})
	if len(f.open) > 0 {
		t.Errorf("%d feeds are open without readers", len(f.open))
	}
}

func (f *feeds) usersOf(key feedKey) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[key].users
}

func TestFeeds_ReadersOfTwoLanguagesGetDifferentTexts(t *testing.T) {
	for language, want := range map[lang.Language]string{lang.English: "Question", lang.German: "Frage"} {
		var f feeds
		r := &feedReader{feed: f.enter(feedKey{1, language}), ready: make(chan struct{}, 1)}
		r.feed.readers[r] = true
		event := live.Event{Type: live.EventBranch, Messages: []live.Message{{ID: 1, Role: live.RoleUser, Text: "Hi"}}}
		if err := r.feed.publish([]live.Event{event}); err != nil {
			t.Fatal(err)
		}
		if got := string(r.chunks[0]); !strings.Contains(got, want) {
			t.Errorf("in %s: %s lacks %q", language, got, want)
		}
	}
	var f feeds
	if f.enter(feedKey{1, lang.English}) == f.enter(feedKey{1, lang.German}) {
		t.Error("readers of two languages have one feed")
	}
}
