package record

import "testing"

func TestLookupIsNumbersOfTokens(t *testing.T) {
	for _, wrong := range []Lookup{{Drafted: -1}, {Accepted: -1}, {Drafted: 1, Accepted: 2}, {Drafted: 1 << 50}} {
		if wrong.Valid() {
			t.Errorf("%+v is taken", wrong)
		}
	}
	l := Lookup{Drafted: 4, Accepted: 3}
	if !l.Valid() || l.Share() != 0.75 || (Lookup{}).Share() != 0 {
		t.Errorf("%+v is not taken, or its share is %v", l, l.Share())
	}
	sum := Answer{Lookup: l}.Then(Answer{Lookup: Lookup{Drafted: 1, Accepted: 1}})
	if sum.Lookup != (Lookup{Drafted: 5, Accepted: 4}) {
		t.Errorf("an answer and its continuation together have %+v", sum.Lookup)
	}
}
