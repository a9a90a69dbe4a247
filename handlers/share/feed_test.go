package share

import (
	"errors"
	"runtime"
	"testing"

	"m40-llm/handlers/guest"
	"m40-llm/handlers/live"
	"m40-llm/store"
)

func byLink(id int64) live.Principal { return live.Principal{Share: &store.Share{ID: id}} }

func TestFeeds_ALinkThatIsRenderedHoldsUpNoOther(t *testing.T) {
	var f feeds
	busy := f.enter(1)
	busy.mu.Lock() // it renders
	joined := make(chan error)
	go func() {
		_, err := f.join(t.Context(), guest.New(live.New(nil, live.Options{}), guest.Options{}), live.Principal{Share: byLink(1).Share}, "/s/x")
		joined <- err
	}()
	for f.usersOf(1) < 2 { // until that one waits
		runtime.Gosched()
	}
	other := &feedReader{feed: f.enter(2)}
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

func (f *feeds) usersOf(link int64) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open[link].users
}
