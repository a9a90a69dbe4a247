package visitors

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

var phone, laptop = netip.MustParseAddr("192.168.1.20"), netip.MustParseAddr("192.168.1.21")

// open returns a Service whose house is open.
func open(t *testing.T, answers, tokens int) (*Service, *clock, *store.Store) {
	t.Helper()
	db, err := store.OpenMemory(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &clock{time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)}
	s, err := New(t.Context(), Options{Store: db, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	set(t, s, Settings{true, answers, tokens})
	return s, c, db
}

func set(t *testing.T, s *Service, to Settings) {
	t.Helper()
	if err := s.Set(t.Context(), access.Local, to); err != nil {
		t.Fatal(err)
	}
}

// enter lets a new visitor in.
func enter(t *testing.T, s *Service, from netip.Addr) (access.Principal, string) {
	t.Helper()
	who, cookie, err := s.Enter("", from, true)
	if err != nil || cookie == "" || who.Role != access.RoleVisitor || !access.IsVisitor(who.Owner) {
		t.Fatalf("got %+v, %q and %v", who, cookie, err)
	}
	return who, cookie
}

// code returns the code of an error; empty: there is none.
func code(t *testing.T, err error) fault.Code {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if f == nil {
		return ""
	}
	return f.Code
}

func TestNew_TheHouseIsClosedUntilTheOwnerOpensIt(t *testing.T) {
	db, err := store.OpenMemory(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s, err := New(t.Context(), Options{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Enter("", phone, true); !errors.Is(err, ErrClosed) {
		t.Fatalf("somebody came in: %v", err)
	}
	set(t, s, Settings{true, 5, 100})
	if s, err = New(t.Context(), Options{Store: db}); err != nil || s.Settings() != (Settings{true, 5, 100}) {
		t.Errorf("after a restart the settings are %+v (%v)", s.Settings(), err)
	}
}

func TestSet_IsForTheOwnerAndNeedsLimits(t *testing.T) {
	s, _, _ := open(t, 3, 100)
	visitor, _ := enter(t, s, phone)
	for _, tc := range []struct {
		name string
		who  access.Principal
		to   Settings
		want fault.Code
	}{
		{"a person", access.Principal{Owner: "anna"}, Settings{false, 1, 1}, fault.CodeDenied},
		{"a visitor", visitor, Settings{true, 9, 9}, fault.CodeDenied},
		{"without a limit of answers", access.Local, Settings{true, 0, 1}, fault.CodeInvalid},
		{"without a limit of tokens", access.Local, Settings{true, 1, 0}, fault.CodeInvalid},
		{"with a negative limit", access.Local, Settings{true, -1, 1}, fault.CodeInvalid},
	} {
		if got := code(t, s.Set(t.Context(), tc.who, tc.to)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if s.Settings() != (Settings{true, 3, 100}) {
		t.Errorf("a refused change left %+v", s.Settings())
	}
}

func TestEnter_KnowsAVisitorByTheirCookieAlone(t *testing.T) {
	s, _, _ := open(t, 3, 100)
	who, cookie := enter(t, s, phone)
	for _, tc := range []struct {
		name, cookie string
		from         netip.Addr
		first        bool
		same         bool
		code         fault.Code
	}{
		{"with the cookie", cookie, phone, false, true, ""},
		{"with the cookie at another address", cookie, laptop, false, true, ""},
		{"without a cookie", "", phone, false, false, fault.CodeNotLoggedIn},
		{"with another cookie", "x", phone, false, false, fault.CodeNotLoggedIn},
		{"with another cookie, who opens a page", "x", phone, true, false, ""},
	} {
		got, _, err := s.Enter(tc.cookie, tc.from, tc.first)
		if (got == who) != tc.same || code(t, err) != tc.code {
			t.Errorf("%s: got %+v and %v", tc.name, got, err)
		}
	}
}

// Who throws the cookie away is another visitor, of whom there are so many at one address, and in all.
func TestEnter_HasBoundsForAnAddressAndInAll(t *testing.T) {
	s, clock, _ := open(t, 3, 100)
	var ended []string
	s.OnEnd(func(id string) { ended = append(ended, id) })
	first, _ := enter(t, s, phone)
	for range 3 * maxFrom {
		clock.now = clock.now.Add(time.Second)
		enter(t, s, phone)
	}
	if s.Number() != maxFrom || len(ended) != 2*maxFrom+1 || ended[0] != first.Owner {
		t.Errorf("%d visitors are at one address, and %d ended, first %s", s.Number(), len(ended), ended[0])
	}
	for _, v := range s.byID {
		_, done := s.Watch(t.Context(), v.who.Owner)
		defer done()
	}
	if _, _, err := s.Enter("", phone, true); code(t, err) != fault.CodeTooManyVisitors {
		t.Errorf("with %d open pages another one at the address got %v", maxFrom, err)
	}
	for i := range maxVisitors - maxFrom {
		enter(t, s, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
	}
	if _, _, err := s.Enter("", laptop, true); code(t, err) != fault.CodeTooManyVisitors {
		t.Errorf("a visitor too many got %v", err)
	}
	clock.now = clock.now.Add(replaceable)
	if enter(t, s, laptop); s.Number() != maxVisitors {
		t.Errorf("%d visitors are here", s.Number())
	}
}

func TestSet_ClosingTheHouseEndsAllVisitsAtOnce(t *testing.T) {
	s, _, _ := open(t, 3, 100)
	who, cookie := enter(t, s, phone)
	var ended []string
	s.OnEnd(func(id string) { ended = append(ended, id) })
	request, done := s.Watch(t.Context(), who.Owner)
	defer done()
	set(t, s, Settings{false, 3, 100})
	<-request.Done()
	if cause := context.Cause(request); !errors.Is(cause, ErrClosed) {
		t.Errorf("the request ended because of %v", cause)
	}
	if len(ended) != 1 || ended[0] != who.Owner {
		t.Errorf("%v ended", ended)
	}
	late, done := s.Watch(t.Context(), who.Owner)
	defer done()
	if late.Err() == nil {
		t.Error("a request that was authenticated before goes on")
	}
	if _, _, err := s.Enter(cookie, phone, true); !errors.Is(err, ErrClosed) {
		t.Errorf("the cookie got %v", err)
	}
	if _, err := answer(t, s, who, 1); err == nil {
		t.Error("an answer begins for a visitor who has ended")
	}
	set(t, s, Settings{true, 3, 100})
	if again, _, _ := s.Enter(cookie, phone, true); again == who {
		t.Error("the old cookie is the same visitor in a house that was opened again")
	}
}

func TestEndIdle_EndsWhoHasNoPageOpenAndIsSilent(t *testing.T) {
	s, clock, _ := open(t, 3, 100)
	gone, _ := enter(t, s, phone)
	stays, _ := enter(t, s, laptop)
	_, done := s.Watch(t.Context(), stays.Owner)
	defer done()
	var ended []string
	s.OnEnd(func(id string) { ended = append(ended, id) })
	clock.now = clock.now.Add(idle - time.Second)
	if s.endIdle(); len(ended) != 0 {
		t.Fatalf("%v ended too early", ended)
	}
	clock.now = clock.now.Add(time.Second)
	if s.endIdle(); len(ended) != 1 || ended[0] != gone.Owner {
		t.Errorf("%v ended, want %s", ended, gone.Owner)
	}
}

// answer generates an answer of a visitor, and returns how many of its tokens came.
func answer(t *testing.T, s *Service, who access.Principal, tokens int) (n int, err error) {
	t.Helper()
	generate := s.Limited(func(context.Context, infer.Request) iter.Seq2[infer.Event, error] {
		return func(yield func(infer.Event, error) bool) {
			for range tokens {
				if !yield(infer.Event{Token: &infer.Token{}}, nil) {
					return
				}
			}
		}
	})
	for e, failed := range generate(t.Context(), infer.Request{Client: who.Owner}) {
		if err = failed; e.Token != nil {
			n++
		}
	}
	return n, err
}

func TestLimited_CountsByAddressUntilMidnight(t *testing.T) {
	s, clock, _ := open(t, 2, 10)
	for i, step := range []struct {
		name   string
		from   netip.Addr
		hours  int
		tokens int
		come   int
		code   fault.Code
		left   string
	}{
		{"the first answer", phone, 0, 4, 4, "", "1 of 2 answers and 6 of 10 tokens left today"},
		{"with another cookie, beyond the tokens", phone, 0, 9, 6, fault.CodeDayUsed, "0 of 2 answers and 0 of 10 tokens left today"},
		{"a third answer with another cookie", phone, 0, 1, 0, fault.CodeDayUsed, "0 of 2 answers and 0 of 10 tokens left today"},
		{"at another address", laptop, 0, 1, 1, "", "1 of 2 answers and 9 of 10 tokens left today"},
		{"after midnight", phone, 4, 1, 1, "", "1 of 2 answers and 9 of 10 tokens left today"},
	} {
		clock.now = time.Date(2026, 11, 29, 20+step.hours, 0, i, 0, time.UTC)
		who, _ := enter(t, s, step.from)
		n, err := answer(t, s, who, step.tokens)
		if n != step.come || code(t, err) != step.code {
			t.Errorf("%s: got %d tokens and %v, want %d", step.name, n, err, step.come)
		}
		if left := s.Left(t.Context(), who); left != step.left {
			t.Errorf("%s: got %q, want %q", step.name, left, step.left)
		}
	}
}

// Whoever has many addresses does not have so many days.
func TestLimited_AllVisitorsTogetherHaveALimit(t *testing.T) {
	s, _, _ := open(t, 1, 10)
	answers := 0
	for i := range 3 * together {
		who, _ := enter(t, s, netip.MustParseAddr(fmt.Sprintf("fd00::%x", i+1)))
		_, err := answer(t, s, who, 1)
		if err == nil {
			answers++
		} else if code(t, err) != fault.CodeDayUsed || !strings.Contains(err.Error(), "all visitors together") {
			t.Fatal(err)
		}
	}
	if answers != together {
		t.Errorf("%d answers were written, want %d", answers, together)
	}
}

func TestPicture_RefusesBytesBeyondTheDay(t *testing.T) {
	s, clock, _ := open(t, 9, 90)
	addresses := make([]netip.Addr, 7)
	for i := range addresses {
		addresses[i] = netip.MustParseAddr(fmt.Sprintf("192.168.1.%d", 20+i))
	}
	for _, step := range []struct {
		name    string
		from    netip.Addr
		hours   int
		bytes   int
		refusal string // part of it; empty: there is none
	}{
		{"all but one byte", addresses[0], 0, dayPictures - 1, ""},
		{"with another cookie, a byte too many", addresses[0], 0, 2, "your 100 MB for pictures of today have 1 B left, and this one has 2 B; there are new ones in 4 hours"},
		{"the last byte", addresses[0], 0, 1, ""},
		{"at a second address", addresses[1], 0, dayPictures, ""},
		{"at a third address", addresses[2], 0, dayPictures, ""},
		{"at a fourth address", addresses[3], 0, dayPictures, ""},
		{"at a fifth address", addresses[4], 0, dayPictures, ""},
		{"at a sixth address", addresses[5], 0, 1, "for all visitors together, the 500 MB for pictures of today have 0 B left"},
		{"after midnight", addresses[0], 4, 1, ""},
	} {
		clock.now = time.Date(2026, 11, 29, 20+step.hours, 0, 0, 0, time.UTC)
		who, _ := enter(t, s, step.from)
		err := s.Picture(who, step.bytes)
		if step.refusal == "" && err != nil || step.refusal != "" && (code(t, err) != fault.CodeDayUsed || !strings.Contains(err.Error(), step.refusal)) {
			t.Errorf("%s: got %v, want %q", step.name, err, step.refusal)
		}
	}
	if err := s.Picture(access.Local, 2*allPictures); err != nil {
		t.Errorf("the owner of the server got %v", err)
	}
}

func TestLimited_AnswersOfAnAddressBeyondTheFirstWait(t *testing.T) {
	s, _, _ := open(t, 50, 1000)
	started, end := make(chan string, 9), make(chan struct{})
	generate := s.Limited(func(_ context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
		return func(func(infer.Event, error) bool) {
			started <- r.Client
			<-end
		}
	})
	done := make(chan struct{}, 9)
	ask := func(who access.Principal) {
		go func() {
			for range generate(t.Context(), infer.Request{Client: who.Owner}) {
			}
			done <- struct{}{}
		}()
	}
	a, _ := enter(t, s, phone)
	b, _ := enter(t, s, phone)
	c, _ := enter(t, s, laptop)
	for range atOnce {
		ask(a)
		<-started
	}
	ask(b) // waits
	ask(c)
	if who := <-started; who != c.Owner {
		t.Errorf("%s began, of the address that has %d answers already", who, atOnce)
	}
	for range atOnce + 2 {
		end <- struct{}{}
	}
	for range atOnce + 2 {
		<-done
	}
	if who := <-started; who != b.Owner {
		t.Errorf("%s began last", who)
	}
}
