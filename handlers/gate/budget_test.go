package gate

import (
	"testing"
)

func TestBudget(t *testing.T) {
	b := &budget{total: 100}
	one, two := &account{budget: b}, &account{budget: b}
	for _, step := range []struct {
		name    string
		account *account
		n       int64
		taken   bool
	}{
		{"the first may take more than there is", one, 150, true},
		{"and go on", one, 10, true},
		{"a second may take nothing then", two, 1, false},
	} {
		if err := step.account.charge(step.n); (err == nil) != step.taken {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	one.close()
	if err := two.charge(60); err != nil {
		t.Error(err)
	}
	if err := one.charge(41); err == nil {
		t.Error("together they took more than there is")
	}
	if err := one.charge(40); err != nil {
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
