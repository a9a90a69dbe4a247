package page

import (
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/view"
)

func TestABlindAnswerSaysThatItWasCutAndNothingThatTellsWhoseItIs(t *testing.T) {
	for name, c := range map[string]struct {
		cell view.Cell
		want string
	}{
		"one that ended by itself":        {view.Cell{State: live.Done, Ending: &view.Ending{Kind: "finished", Text: "finished by itself"}}, ""},
		"one at the limit":                {view.Cell{State: live.Done, Ending: &view.Ending{Kind: "length", Text: "length limit, 512 tokens"}}, "Cut off at its limit."},
		"one that filled the context":     {view.Cell{State: live.Done, Ending: &view.Ending{Kind: "context", Text: "context full, 4,096 tokens"}}, "Cut off: the context is full."},
		"one that was stopped":            {view.Cell{State: live.Stopped, Ending: &view.Ending{Kind: "stopped", Text: "stopped by you at token 12"}}, "You stopped it."},
		"one that is being written":       {view.Cell{State: live.Writing}, ""},
		"one that waits":                  {view.Cell{State: live.Waiting, Note: "Waits."}, "Waits."},
		"one that failed at a token":      {view.Cell{State: live.Failed, Note: "It failed.", Ending: &view.Ending{Kind: "failed", Text: "failed at token 3"}}, "It failed."},
		"one that ended at a stop string": {view.Cell{State: live.Done, Ending: &view.Ending{Kind: "stop_string", Text: "stop string"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := blindNote(t.Context(), c.cell); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
