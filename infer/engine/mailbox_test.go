package infer

import (
	"errors"
	"reflect"
	"testing"
)

func TestMailbox(t *testing.T) {
	queued := func(n int) Event { return Event{Type: EventQueued, Queued: &Queued{n}} }
	loading := func(n int64) Event { return Event{Type: EventLoading, Loading: &Loading{Done: n}} }
	prefill := func(n int) Event { return Event{Type: EventPrefill, Prefill: &Prefill{Done: n}} }
	token := Event{Type: EventToken, Token: &Token{Text: "x"}}
	tests := []struct {
		name string
		put  []Event
		want []Event
	}{
		{"nothing was put", nil, nil},
		{"events keep their order", []Event{prefill(1), token, token}, []Event{prefill(1), token, token}},
		{"a newer position replaces the older", []Event{queued(3), queued(2), prefill(1)}, []Event{queued(2), prefill(1)}},
		{"a newer progress of a load replaces the older", []Event{queued(3), loading(1), loading(2)}, []Event{queued(3), loading(2)}},
		{"every step of prefill is kept", []Event{prefill(1), prefill(2)}, []Event{prefill(1), prefill(2)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMailbox()
			for _, e := range tt.put {
				m.put(e)
			}
			if got, ended, err := m.take(); !reflect.DeepEqual(got, tt.want) || ended || err != nil {
				t.Errorf("took %+v, %v, %v; want %+v", got, ended, err, tt.want)
			}
			failed := errors.New("failed")
			m.end(failed)
			if got, ended, err := m.take(); got != nil || !ended || err != failed {
				t.Errorf("took %+v, %v, %v after the end", got, ended, err)
			}
		})
	}
}
