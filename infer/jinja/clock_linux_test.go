package jinja

import (
	"context"
	"testing"
	"time"
)

// busyMachine is a context whose Err sleeps: time passes without CPU time of this thread.
type busyMachine struct{ context.Context }

func (c busyMachine) Err() error {
	time.Sleep(DefaultLimits.Time)
	return c.Context.Err()
}

func TestTimeOnABusyMachineDoesNotCountForTheTimeBudget(t *testing.T) {
	tmpl, err := Parse("{% for i in range(2000) %}{{ i }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render(busyMachine{context.Background()}, NewDict(), Options{}); err != nil {
		t.Error(err)
	}
}
