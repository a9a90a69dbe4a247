package browser

import (
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
)

func TestTheMenuOfModelsSaysWhichAreInMemory(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "guide"}, infer.ModelInfo{Name: "other", Path: "other.gguf"})
	server, _, _ := handlerstest.ServeComparing(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.until("document.querySelector('[data-engine=state_text]').innerText === 'ready'")
	b.chooseModel("other")
	says := func(note, chip string) {
		t.Helper()
		b.until("document.querySelector('.top [data-chosen-note]').textContent === '" + note + "'")
		b.until("(document.querySelector('#model-menu [value=other] [data-memory]')?.textContent ?? '') === '" + chip + "'")
	}
	says("loads with the next message", "")
	guide := engine.Status()
	with := func(change func(other *infer.Status)) {
		engine.Set(func(s *infer.Status) {
			other := infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Name: "other"}}
			change(&other)
			s.Models = []infer.Status{guide, other}
		})
	}
	with(func(s *infer.Status) { s.State = infer.StateLoading })
	says("is being loaded", "loading")
	with(func(*infer.Status) {})
	says("loaded", "loaded")
	if got := b.value("document.querySelector('.top [data-chosen-dot]').className"); got != "dot ok" {
		t.Errorf("the dot is %q, want that of a loaded model", got)
	}
	with(func(s *infer.Status) { s.Running = 1 })
	says("loaded", "in use")
	b.open("/?model=other") // as the server renders it
	says("loaded", "in use")
	engine.Set(func(s *infer.Status) { s.Models = []infer.Status{guide} })
	says("loads with the next message", "")
	b.clean()
}
