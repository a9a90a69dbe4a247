package engine

import (
	"errors"
	"reflect"
	"testing"

	"m40-llm/infer"
)

func TestMailbox(t *testing.T) {
	queued := func(n int) infer.Event {
		return infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: n}}
	}
	loading := func(n int64) infer.Event {
		return infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Done: n}}
	}
	prefill := func(n int) infer.Event {
		return infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: n}}
	}
	token := infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: "x"}}
	tests := []struct {
		name string
		put  []infer.Event
		want []infer.Event
	}{
		{"nothing was put", nil, nil},
		{"events keep their order", []infer.Event{prefill(1), token, token}, []infer.Event{prefill(1), token, token}},
		{"a newer position replaces the older", []infer.Event{queued(3), queued(2), prefill(1)}, []infer.Event{queued(2), prefill(1)}},
		{"a newer progress of a load replaces the older", []infer.Event{queued(3), loading(1), loading(2)}, []infer.Event{queued(3), loading(2)}},
		{"every step of prefill is kept", []infer.Event{prefill(1), prefill(2)}, []infer.Event{prefill(1), prefill(2)}},
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
