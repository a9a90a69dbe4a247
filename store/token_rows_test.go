package store

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// randomRows returns rows that do not compress.
func randomRows(random *rand.Rand, n, size int) (rows []TokenRow) {
	for range n {
		r := TokenRow{Row: make([]byte, size)}
		for i := range r.Row {
			r.Row[i] = byte(random.Uint32())
		}
		if random.IntN(2) == 0 {
			r.Changed = bytes.Clone(r.Row[:size/2])
		}
		rows = append(rows, r)
	}
	return rows
}

func TestTokenRowsAreStoredWithTheTextOfAnAnswer(t *testing.T) {
	s := newStore(t)
	_, running := start(t, s, "c", "q")
	a := running.ID
	rows := randomRows(rand.New(rand.NewPCG(1, 2)), 100, 300)
	part := func(from, to int) []TokenRows { return []TokenRows{{First: from, Rows: rows[from:to]}} }
	must[[]int64](t)(s.SaveProgress(ctx, []Progress{{Owner: me, Conversation: "c", Message: a, Text: "half", Rows: part(0, 64)}}))
	must[[]int64](t)(s.SaveProgress(ctx, []Progress{{Owner: me, Conversation: "c", Message: a, Text: "half", Rows: part(0, 64)}}))
	must[Message](t)(s.FinishAnswer(ctx, me, "c", a, Finish{State: Done, Text: "whole", Rows: part(64, 100)}))
	want := append(part(0, 64), part(64, 100)...)
	if got := must[[]TokenRows](t)(s.TokenRows(ctx, me, "c", a)); !reflect.DeepEqual(got, want) {
		t.Errorf("the stored rows differ: %d parts", len(got))
	}
	if _, err := s.TokenRows(ctx, "somebody else", "c", a); err == nil {
		t.Error("another owner can read the rows")
	}
	mustDo(t, s.Erase(ctx, me, "c"))
	if n := rowsBytes(t, s); n != 0 {
		t.Errorf("an erased conversation leaves %d bytes of rows", n)
	}
}

func TestTheOldestTokenRowsAreDeletedBeyondTheLimits(t *testing.T) {
	now := time.UnixMilli(1e12)
	opt := testOptions(t)
	opt.RowsBytes, opt.RowsAge, opt.Now = 100_000, 24*time.Hour, func() time.Time { return now }
	s := mustOpen(t, opt)
	random := rand.New(rand.NewPCG(3, 4))
	var answers []int64
	for _, id := range []string{"a", "b", "c", "d"} {
		_, a := start(t, s, id, "q")
		answers = append(answers, a.ID)
		must[Message](t)(s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Rows: []TokenRows{{Rows: randomRows(random, 40, 700)}}}))
	}
	stored := func() (ids []string) {
		for i, id := range []string{"a", "b", "c", "d", "e"} {
			if i < len(answers) && len(must[[]TokenRows](t)(s.TokenRows(ctx, me, id, answers[i]))) > 0 {
				ids = append(ids, id)
			}
		}
		return ids
	}
	if got, want := stored(), []string{"c", "d"}; !reflect.DeepEqual(got, want) {
		t.Errorf("beyond 100 kB the rows of %v are left, want %v", got, want)
	}
	if n := rowsBytes(t, s); n > 100_000 {
		t.Errorf("%d bytes of rows are stored, want at most 100000", n)
	}
	now = now.Add(25 * time.Hour)
	_, a := start(t, s, "e", "q")
	answers = append(answers, a.ID)
	must[Message](t)(s.FinishAnswer(ctx, me, "e", a.ID, Finish{State: Done, Rows: []TokenRows{{Rows: randomRows(random, 1, 700)}}}))
	if got, want := stored(), []string{"e"}; !reflect.DeepEqual(got, want) {
		t.Errorf("after a day the rows of %v are left, want %v", got, want)
	}
}

func FuzzUnpackRows(f *testing.F) {
	packed, err := TokenRows{Rows: randomRows(rand.New(rand.NewPCG(5, 6)), 3, 100)}.pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed, 3)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, packed []byte, tokens int) {
		if tokens < 1 || tokens > 1000 {
			return
		}
		rows, err := unpackRows(packed, tokens)
		if err == nil && len(rows) != tokens {
			t.Fatalf("got %d rows, want %d", len(rows), tokens)
		}
	})
}

// rowsBytes returns how many bytes the rows of all answers take.
func rowsBytes(t *testing.T, s *Store) int64 {
	t.Helper()
	_, used, err := s.RowLimits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestRowLimits_AreAppliedWhenTheyAreSet(t *testing.T) {
	s := newStore(t)
	if l, _, err := s.RowLimits(ctx); err != nil || l != (RowLimits{30, 128}) {
		t.Errorf("the limits are %+v, %v", l, err)
	}
	_, a := start(t, s, "a", "Why?")
	rows := []TokenRows{{Rows: []TokenRow{{Row: []byte("one")}, {Row: []byte("two")}}}}
	if _, err := s.FinishAnswer(ctx, "me", "a", a.ID, Finish{State: Done, Text: "x", Rows: rows, Answer: Answer{}}); err != nil {
		t.Fatal(err)
	}
	if rowsBytes(t, s) == 0 {
		t.Fatal("no rows are stored")
	}
	for _, wrong := range []RowLimits{{0, 1}, {1, -1}, {4000, 1}, {1, 1 << 21}} {
		if err := s.SetRowLimits(ctx, wrong); err == nil {
			t.Errorf("%+v can be set", wrong)
		}
	}
	if err := s.SetRowLimits(ctx, RowLimits{7, 0}); err != nil {
		t.Fatal(err)
	}
	if l, used, err := s.RowLimits(ctx); err != nil || l != (RowLimits{7, 0}) || used != 0 {
		t.Errorf("the limits are %+v, and %d bytes are kept, %v", l, used, err)
	}
}
