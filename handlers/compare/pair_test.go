package compare_test

import (
	"errors"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/compare"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
)

// written begins a pair and writes both answers, and returns it.
func written(t *testing.T, engine *handlerstest.Script, comparing *compare.Service, n compare.NewPair) *compare.Pair {
	t.Helper()
	if err := comparing.StartPair(t.Context(), access.Local, n); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a := engine.Next(t)
		last := a.Request.Messages[len(a.Request.Messages)-1].Content
		if last != "And soup?" {
			t.Errorf("the engine was asked %q", last)
		}
		if a.Request.Params.Temperature == 0.3 {
			a.Write("precise soup")
		} else {
			a.Write("creative soup")
		}
		a.Finish()
	}
	p, err := comparing.Pair(access.Local)
	if err != nil {
		t.Fatal(err)
	}
	reader := p.Read()
	defer reader.Close()
	for {
		_, running := reader.Take()
		if running == nil {
			return p
		}
		<-running
	}
}

// A blind comparison of a message of a chat is asked as the chat would ask, and after the vote either answer can become the chat's,
// as a version beside the one that is there.
func TestAPairOfAMessage_IsKeptInItsChatAfterTheVote(t *testing.T) {
	engine := handlerstest.NewScript()
	_, chats, comparing := handlerstest.ServeComparing(t, engine)
	chat, _ := handlerstest.Asked(t, chats, access.Local, "How is bread made?")
	if err := chat.Send(t.Context(), access.Local, live.Question{Text: "And soup?", Settings: setting.Default(), Unanswered: true}); err != nil {
		t.Fatal(err)
	}
	question, _, _, err := chat.Question(access.Local, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := compare.NewPair{Chat: chat.ID(), Question: question.ID, MaxTokens: 50, First: compare.Contestant{Preset: "precise"}, Second: compare.Contestant{Preset: "creative"}}
	pair := written(t, engine, comparing, n)
	if pair.Text != "And soup?" {
		t.Errorf("the pair answers %q", pair.Text)
	}
	if _, _, err := comparing.KeepOfPair(t.Context(), access.Local, compare.SideA); err == nil || !strings.Contains(err.Error(), "vote first") {
		t.Errorf("before the vote an answer was kept: %v", err)
	}
	if _, err := comparing.Vote(t.Context(), access.Local, compare.SideB); err != nil {
		t.Fatal(err)
	}
	if _, _, err := comparing.KeepOfPair(t.Context(), access.Local, compare.SideTie); err == nil {
		t.Error("neither answer was kept")
	}
	_, nameB, _ := pair.Names()
	for _, side := range []compare.Side{compare.SideB, compare.SideA} {
		in, message, err := comparing.KeepOfPair(t.Context(), access.Local, side)
		if err != nil || in != chat.ID() {
			t.Fatalf("got %s, %v", in, err)
		}
		snapshot, err := chat.Snapshot(t.Context(), access.Local, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := snapshot.Messages[len(snapshot.Messages)-1]
		wantPrecise := (side == compare.SideB) == strings.HasPrefix(nameB, "Precise")
		if last.ID != message || last.Parent != question.ID || strings.HasPrefix(last.Text, "precise") != wantPrecise {
			t.Errorf("after %s was kept the chat ends with %d %q, want message %d", side, last.ID, last.Text, message)
		}
		if again, same, err := comparing.KeepOfPair(t.Context(), access.Local, side); again != in || same != message || err != nil {
			t.Errorf("kept twice it is message %d, %v", same, err)
		}
		if versions := last.Versions; versions != map[compare.Side]int{compare.SideB: 1, compare.SideA: 2}[side] {
			t.Errorf("there are %d versions", versions)
		}
	}
}

func TestStartPair_RefusesAMessageThatIsNotOnesOwn(t *testing.T) {
	engine := handlerstest.NewScript()
	_, chats, comparing := handlerstest.ServeComparing(t, engine)
	chat, question := handlerstest.Asked(t, chats, access.Local, "How is bread made?")
	n := compare.NewPair{Chat: chat.ID(), Question: question, MaxTokens: 50, First: compare.Contestant{Preset: "precise"}, Second: compare.Contestant{Preset: "creative"}}
	other := n
	other.Question = 99
	for _, tc := range []struct {
		name string
		who  access.Principal
		n    compare.NewPair
		is   func(error) bool
	}{
		{"of another person", access.Principal{Owner: "anna"}, n, func(err error) bool { return errors.Is(err, owned.ErrNotFound) }},
		{"of a visitor", access.Visitor(), n, func(err error) bool { return errors.Is(err, access.ErrVisitor) }},
		{"that does not exist", access.Local, other, func(err error) bool {
			f, ok := errors.AsType[*fault.Error](err)
			return ok && f.Param == "question"
		}},
	} {
		if err := comparing.StartPair(t.Context(), tc.who, tc.n); !tc.is(err) {
			t.Errorf("a message %s: got %v", tc.name, err)
		}
	}
	same := n
	same.Second = same.First
	if err := comparing.StartPair(t.Context(), access.Local, same); err == nil || !strings.Contains(err.Error(), "both answers would be of Precise") {
		t.Errorf("a preset is compared with itself: %v", err)
	}
	text := compare.NewPair{Text: "And soup?", MaxTokens: 50, First: n.First, Second: n.Second}
	written(t, engine, comparing, text)
	if _, err := comparing.Vote(t.Context(), access.Local, compare.SideA); err != nil {
		t.Fatal(err)
	}
	if _, _, err := comparing.KeepOfPair(t.Context(), access.Local, compare.SideA); err == nil || !strings.Contains(err.Error(), "belong to no chat") {
		t.Errorf("an answer to a text without a chat was kept: %v", err)
	}
}
