package gate

import (
	"testing"
)

func TestBudget(t *testing.T) {
	b := &budget{most: 100 << 20}
	one, two := &account{budget: b}, &account{budget: b}
	for _, step := range []struct {
		name    string
		account *account
		n       int64
		taken   bool
	}{
		{"the first may take more than there is", one, 150 << 20, true},
		{"and go on", one, 10 << 20, true},
		{"a second may take nothing then", two, 2 << 20, false},
	} {
		if err := step.account.charge(step.n); (err == nil) != step.taken {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	one.close()
	if err := two.charge(60 << 20); err != nil {
		t.Error(err)
	}
	if err := one.charge(41 << 20); err == nil {
		t.Error("together they took more than there is")
	}
	if err := one.charge(40 << 20); err != nil {
		t.Error(err)
	}
	one.close()
	two.close()
	if b.used != 0 {
		t.Errorf("%d bytes are in use at the end", b.used)
	}
	var none *account
	if err := none.charge(1 << 40); err != nil {
		t.Error(err)
	}
}

func TestBudget_FollowsTheMemoryThatIsLeft(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name       string
		most, free int64 // MiB; free 0: unknown
		each       int64 // MiB of a request
		taken      int   // of 24 requests
	}{
		{"where memory is plenty the fixed limit holds", 512, 1 << 20, 32, 16},
		{"where nothing is known too", 512, 0, 32, 16},
		{"with 1 GiB left a quarter to a third of it is used", 512, 1024, 32, 10},
		{"with 256 MiB left two", 512, 256, 32, 2},
		{"one alone may use half", 512, 100, 48, 1},
		{"and not more", 512, 90, 48, 0},
		{"small ones go on", 512, 90, 1, 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &budget{most: tc.most * mib, free: func() int64 { return tc.free * mib }}
			taken := 0
			for range 24 {
				if (&account{budget: b}).charge(tc.each*mib) == nil {
					taken++
				}
			}
			if taken != tc.taken {
				t.Errorf("%d of 24 requests are taken, want %d", taken, tc.taken)
			}
		})
	}
}

func TestBudget_OfRequestsThatComeInPiecesTheFirstGoesOn(t *testing.T) {
	const mib = 1 << 20
	b := &budget{most: 512 * mib, free: func() int64 { return 400 * mib }}
	accounts := make([]*account, 24)
	refused := map[int]bool{}
	for range 40 { // pieces of 4 MiB
		for i := range accounts {
			if accounts[i] == nil {
				accounts[i] = &account{budget: b}
			}
			if !refused[i] && accounts[i].charge(4*mib) != nil {
				refused[i] = true
				accounts[i].close()
			}
		}
	}
	if refused[0] || len(refused) == 0 {
		t.Errorf("%d of 24 were refused, the first %v", len(refused), refused[0])
	}
	for i := range accounts {
		accounts[i].close()
	}
	alone := &account{budget: b}
	for range 49 {
		if err := alone.charge(4 * mib); err != nil {
			t.Fatal(err)
		}
	}
	if alone.charge(8*mib) == nil {
		t.Error("a request alone may use more than half of the memory in pieces")
	}
}

func TestJSONSize(t *testing.T) {
	for _, c := range []struct {
		name, text        string
		objects, elements int64
	}{
		{"objects and elements", ` {"a": [{}, {"b": 1}], "c": [1,2,3]}`, 3, 4},
		{"what stands in strings is text", `{"a": "{,{,\"{,\\", "b": "\\\"{,"}`, 1, 1},
		{"a text that is no JSON", "a={,{,", 0, 0},
		{"an object behind a byte order mark", "\ufeff{}", 1, 0},
		{"nothing", " \n", 0, 0},
	} {
		for piece := 1; piece <= len(c.text); piece++ {
			var j jsonSize
			var got int64
			for at := 0; at < len(c.text); at += piece {
				got += j.add([]byte(c.text[at:min(len(c.text), at+piece)]))
			}
			if want := c.objects*objectCost + c.elements*elementCost; got != want {
				t.Errorf("%s in pieces of %d: got %d, want %d", c.name, piece, got, want)
			}
		}
	}
}

func TestBudget_MemoryThatBecomesShortCountsAtOnce(t *testing.T) {
	free := int64(1 << 30)
	b := &budget{most: 512 << 20, free: func() int64 { return free }}
	one, two := &account{budget: b}, &account{budget: b}
	if err := one.charge(100 << 20); err != nil {
		t.Fatal(err)
	}
	free = 50 << 20
	if err := two.charge(100 << 20); err == nil {
		t.Error("a request that does not fit any more is taken")
	}
	if err := two.charge(1 << 10); err != nil {
		t.Errorf("a small request beside it: %v", err)
	}
	one.close()
	if err := two.charge(10 << 20); err != nil {
		t.Error(err)
	}
}
