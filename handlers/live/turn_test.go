package live

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/store"
)

var background = context.Background()

// What uses the panel uses it as it is when its turn comes: the command before may change it.
func TestCommandsUseThePanelThatTheCommandBeforeLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		do    func(s *Service, c *Chat) error
		asks  bool // an answer begins
		check func(c *Chat) bool
	}{
		"a preset keeps the seed and the system prompt": {
			func(s *Service, c *Chat) error {
				return c.UsePanel(background, me, Panel{Settings: setting.Default(), Preset: "precise"}, "", func(context.Context, string, string) bool { return false })
			}, false,
			func(c *Chat) bool {
				return c.panel.Seed == 77 && c.panel.Preset == "precise" && c.metadata.System == "Set before."
			},
		},
		"a message from a page without scripts is asked with its settings": {
			func(s *Service, c *Chat) error {
				return c.SendWithPanel(background, me, Question{Text: "again", System: "Set before."})
			}, true,
			func(c *Chat) bool { return c.branch[len(c.branch)-1].Answer.Settings.TopK == 7 && c.panel.TopK == 7 },
		},
		"a question is answered with its settings": {
			func(s *Service, c *Chat) error { return c.Answer(background, me, c.branch.leaf()) }, true,
			func(c *Chat) bool {
				a := c.branch[len(c.branch)-1].Answer
				return a.Settings.TopK == 7 && a.System == "Set before."
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
			c, err := s.Start(background, me, Question{Text: "one", Settings: setting.Default(), Unanswered: true}, false)
			must(t, err)
			done := c.mustExclude()
			result, started := make(chan error, 1), make(chan struct{})
			go func() { close(started); result <- tc.do(s, c) }()
			<-started
			before := Panel{Settings: setting.Default()}
			before.TopK, before.Seed = 7, 77
			_, err = c.storePanel(background, before, "Set before.")
			must(t, err)
			done()
			must(t, <-result)
			if tc.asks {
				(<-engine.asked).finish()
				settle(c)
			}
			defer c.mustExclude()()
			if !tc.check(c) {
				t.Errorf("the panel is %+v with the system prompt %q", c.panel, c.metadata.System)
			}
		})
	}
}

func TestAnswer_DoesNothingWhereTheQuestionIsAnswered(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.write("text")
	done := c.mustExclude()
	question := c.branch[0].ID
	done()
	if err := c.Answer(background, me, question); err != nil {
		t.Errorf("while the answer runs: %v", err)
	}
	a.finish()
	settle(c)
	for _, question := range []int64{c.branch[0].ID, c.branch[1].ID, 99} {
		must(t, c.Answer(background, me, question))
	}
	if len(c.branch) != 2 || len(engine.asked) > 0 {
		t.Errorf("the chat has %d messages", len(c.branch))
	}
}

// unwritable is a store that cannot store settings as long as broken says why.
type unwritable struct {
	*store.Store
	broken error
}

func (s *unwritable) SetSetting(ctx context.Context, owner, name string, value json.RawMessage) error {
	if s.broken != nil {
		return s.broken
	}
	return s.Store.SetSetting(ctx, owner, name, value)
}

func TestAModelWhoseChoiceWasNotStoredCanBeChosenAgain(t *testing.T) {
	db := &unwritable{Store: openStore(t, storePath(t)), broken: errors.New("the disk is full")}
	s, engine := newService(t, Options{Store: db})
	c, a := start(t, s, engine, "one")
	a.finish()
	settle(c)
	must(t, s.SetModel(background, me, c.ID(), "first"))
	if got, err := s.Choice.Model(background, me); got != "first" || err != nil {
		t.Errorf("until the server stops it is %q (%v)", got, err)
	}
	db.broken = nil
	must(t, s.SetModel(background, me, c.ID(), "first"))
	s.Close()
	s, _ = newService(t, Options{Store: db})
	if got, err := s.Choice.Model(background, me); got != "first" || err != nil {
		t.Errorf("after a restart it is %q (%v)", got, err)
	}
}
