package quota

import (
	"errors"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fault"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newCounts(most int) (*Counts, *clock) {
	c := &clock{time.Date(2026, 11, 29, 21, 30, 0, 0, time.FixedZone("", 3600))}
	return NewCounts(c.Now, most), c
}

// refusal returns the error of a limit; nil: err is none.
func refusal(t *testing.T, err error) *fault.Error {
	t.Helper()
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != fault.CodeDayUsed {
		t.Fatalf("got %v", err)
	}
	return f
}

func TestBegin_RefusesWhatIsBeyondTheLimitOfTheDay(t *testing.T) {
	for _, tc := range []struct {
		name            string
		limits          Limits
		answers, tokens int // used before
		refused         string
	}{
		{"without a limit", Limits{}, 100, 1000, ""},
		{"the last answer", Limits{Answers: 3}, 2, 0, ""},
		{"an answer too many", Limits{Answers: 3}, 3, 0, "your 3 answers of today are used up; there are new ones in 3 hours"},
		{"a token is left", Limits{Tokens: 1000}, 5, 999, ""},
		{"no token is left", Limits{Tokens: 1000}, 5, 1000, "your 1,000 tokens of today are used up; there are new ones in 3 hours"},
		{"one answer a day", Limits{Answers: 1}, 1, 0, "your 1 answer of today is used up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := newCounts(10)
			c.Restore("anna", Used{Day: "2026-11-29", Answers: tc.answers, Tokens: tc.tokens})
			f := refusal(t, c.Begin("anna", Yours, tc.limits))
			if f == nil != (tc.refused == "") || f != nil && !strings.HasPrefix(f.Message, tc.refused) {
				t.Errorf("got %v, want %q", f, tc.refused)
			}
			if f != nil && f.RetryAfter != 9000 {
				t.Errorf("the client may come back in %d s, want 9000", f.RetryAfter)
			}
			if f := refusal(t, c.Begin("ben", Yours, tc.limits)); f != nil {
				t.Errorf("what one has used counts for another: %v", f)
			}
		})
	}
}

func TestToken_RefusesTheOneBeyondTheLimit(t *testing.T) {
	c, _ := newCounts(10)
	for i := range 3 {
		if f := refusal(t, c.Token("anna", Yours, Limits{Tokens: 2})); (f != nil) != (i == 2) {
			t.Errorf("token %d: got %v", i, f)
		}
	}
	if left := c.Left("anna", Limits{Tokens: 2}); left.Tokens != 0 {
		t.Errorf("%d tokens are left", left.Tokens)
	}
}

func TestCounts_BeginAnewAtMidnight(t *testing.T) {
	c, clock := newCounts(10)
	limits := Limits{Answers: 1, Tokens: 10}
	if f := refusal(t, c.Begin("anna", Yours, limits)); f != nil {
		t.Fatal(f)
	}
	for _, step := range []struct {
		at      time.Duration // after the first answer
		refused string
	}{
		{2*time.Hour + 29*time.Minute + 30*time.Second, "in 1 minute"},
		{2*time.Hour + 30*time.Minute, ""},
		{2*time.Hour + 31*time.Minute, "in 24 hours"},
	} {
		clock.now = time.Date(2026, 11, 29, 21, 30, 0, 0, time.FixedZone("", 3600)).Add(step.at)
		f := refusal(t, c.Begin("anna", Yours, limits))
		if f == nil != (step.refused == "") || f != nil && !strings.HasSuffix(f.Message, step.refused) {
			t.Errorf("after %s: got %v, want %q", step.at, f, step.refused)
		}
	}
	c.Restore("ben", Used{Day: "2026-11-29", Answers: 1, Tokens: 10})
	if f := refusal(t, c.Begin("ben", Yours, limits)); f != nil {
		t.Errorf("what was used yesterday counts today: %v", f)
	}
}

// Keys may be made up at no cost, such as addresses.
func TestCounts_RememberSoManyKeysAndCountFurtherOnesTogether(t *testing.T) {
	c, _ := newCounts(3)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if f := refusal(t, c.Begin(key, Yours, Limits{Answers: 2})); f != nil {
			t.Fatal(f)
		}
	}
	if len(c.used) > 4 {
		t.Errorf("%d keys are remembered", len(c.used))
	}
	if f := refusal(t, c.Begin("f", Yours, Limits{Answers: 2})); f == nil {
		t.Error("a sixth key has a count of its own")
	}
	if f := refusal(t, c.Begin("a", Yours, Limits{Answers: 2})); f != nil {
		t.Errorf("the others count for one that was remembered: %v", f)
	}
}

func TestLeft_SaysWhatIsLeft(t *testing.T) {
	c, _ := newCounts(10)
	c.Restore("anna", Used{Day: "2026-11-29", Answers: 2, Tokens: 700})
	for _, tc := range []struct {
		limits Limits
		want   string
	}{
		{Limits{}, ""},
		{Limits{Answers: 30}, "28 of 30 answers left today"},
		{Limits{Answers: 30, Tokens: 20000}, "28 of 30 answers and 19,300 of 20,000 tokens left today"},
		{Limits{Answers: 1, Tokens: 100}, "0 of 1 answer and 0 of 100 tokens left today"},
	} {
		if got := c.Left("anna", tc.limits).Text(t.Context()); got != tc.want {
			t.Errorf("%+v: got %q, want %q", tc.limits, got, tc.want)
		}
	}
}

func TestChanged_ReturnsWhatWasCountedSinceTheLastCall(t *testing.T) {
	c, _ := newCounts(10)
	_, _ = c.Begin("anna", Yours, Limits{}), c.Token("anna", Yours, Limits{})
	if got := c.Changed(); len(got) != 1 || got["anna"] != (Used{Day: "2026-11-29", Answers: 1, Tokens: 1}) {
		t.Errorf("got %v", got)
	}
	if got := c.Changed(); len(got) != 0 {
		t.Errorf("the second call returned %v", got)
	}
}

func TestCheck_RefusesLimitsThatAreNone(t *testing.T) {
	for _, tc := range []struct {
		limits Limits
		want   string
	}{
		{Limits{Answers: 1, Tokens: 1}, ""}, {Limits{}, ""}, {Limits{Answers: -1}, "answers"}, {Limits{Tokens: MaxLimit + 1}, "tokens"},
	} {
		err := tc.limits.Check()
		f, _ := errors.AsType[*fault.Error](err)
		if (err == nil) != (tc.want == "") || f != nil && f.Param != tc.want {
			t.Errorf("%+v: got %v", tc.limits, err)
		}
	}
}
