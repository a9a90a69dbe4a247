package browser

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/hub"
)

// openTwoGuides starts the real engine with the built-in model and a copy of it with other weights.
func openTwoGuides(t *testing.T) *engine.Engine {
	t.Helper()
	other := slices.Clone(guide.Model)
	for i := len(other) - 200_000; i < len(other); i += 97 {
		other[i] ^= 1
	}
	e, err := engine.Open(engine.Options{
		Catalog:    hub.New(hub.Options{Builtin: map[string][]byte{"guide": guide.Model, "changed": other}}),
		OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(1) },
		Model:      "guide",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestThePromptOfAnAnswerIsScoredAndComparedOnDemand(t *testing.T) {
	t.Parallel()
	engine := openTwoGuides(t)
	server, chats := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	b.set("max_tokens", "12")
	b.say("Tell me a story about a fox.")
	b.until(idle)
	id, answer := strings.TrimPrefix(b.value("location.pathname"), "/c/"), b.value("document.querySelector('.turn:last-child').dataset.id")
	number, _ := strconv.ParseInt(answer, 10, 64)
	chat, err := chats.Chat(t.Context(), access.Local, id)
	if err != nil {
		t.Fatal(err)
	}
	scored := func(other inspect.Other) *inspect.Scored {
		s, err := inspect.New(chats).Score(t.Context(), access.Local, chat, number, other, func(infer.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	classOf := func(list string, i int) string {
		return b.value(fmt.Sprintf("document.querySelectorAll('%s .tok')[%d].className", list, i))
	}

	run("nothing is scored before it is asked for", func(t *testing.T) {
		b.click("[data-tokens]:not([hidden])")
		b.until("document.querySelector('.toks .tok')")
		response, err := http.Get(server.URL + "/c/" + id + "/score/" + answer + "/1")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "score it again") {
			t.Errorf("status %d: %s", response.StatusCode, body)
		}
	})

	run("the tokens of the prompt are coloured and open their candidates", func(t *testing.T) {
		b.tokenMenu("[data-score]")
		b.until("document.querySelector('.toks.prompt .tok')")
		want := scored(inspect.Other{})
		if n := b.value("document.querySelectorAll('.toks.prompt .tok').length"); n != strconv.Itoa(want.Prompt) || len(want.Tokens) != want.Prompt {
			t.Fatalf("%s tokens are shown, want %d", n, want.Prompt)
		}
		for i, token := range want.Tokens[1:] {
			step := 0
			for _, bound := range []float64{0.9, 0.5, 0.2, 0.05, 0.01} {
				if math.Exp(token.LogProb) < bound {
					step++
				}
			}
			if got := classOf(".toks.prompt", i+1); got != class("p", step) {
				t.Errorf("token %d has the class %q, want %q for %g", i+1, got, class("p", step), math.Exp(token.LogProb))
			}
		}
		b.script("document.querySelectorAll('.toks.prompt .tok')[4].click()")
		b.until(fmt.Sprintf("document.querySelector('.token [data-place]')?.innerText === 'prompt token 5 of %d'", want.Prompt))
		b.click("[data-all]")
		if n, _ := strconv.Atoi(b.value("document.querySelectorAll('.alt').length")); n < 50 {
			t.Errorf("%d alternatives are listed, want at least 50", n)
		}
		if b.value("[...document.querySelectorAll('.token .own, .token [data-stages]')].every(el => el.hidden)") != "true" {
			t.Error("an answer could be forked in its prompt")
		}
		b.press("ArrowRight", 39)
		b.until("document.querySelector('.token [data-place]')?.innerText.startsWith('prompt token 6 of')")
		b.press("m", 77)
		if b.value("Boolean(document.querySelector('.micro'))") == "true" {
			t.Error("the microscope opens at a token that no sampler drew")
		}
		b.press("Escape", 27)
		b.until("!document.querySelector('.token')")
	})

	run("a comparison colours prompt and answer by their divergence and leads to the worst", func(t *testing.T) {
		b.script("document.querySelector('.toks:not(.prompt) .tok').click()")
		b.until("document.querySelector('.token .alt')")
		b.tokenMenu("[data-xray]")
		b.until("document.querySelector('#against')?.selectedOptions[0]?.value.trim() === 'changed'") // the other model
		if b.value("Boolean(document.querySelector('.token'))") == "true" {
			t.Error("the candidates cover the form")
		}
		b.click(".scorebox form button")
		b.until("document.querySelector('.klsum')?.hidden === false")
		want := view.ScoredOf(scored(inspect.Other{Model: "changed"}))
		sum, worst := 0.0, 1
		for i, token := range want.Tokens[1:] {
			sum += token.Compared.KL
			if token.Compared.KL > want.Tokens[worst].Compared.KL {
				worst = i + 1
			}
			step := 0
			for _, bound := range []float64{0.001, 0.01, 0.05, 0.2, 1} {
				if token.Compared.KL >= bound {
					step++
				}
			}
			list, at := ".toks.prompt", i+1
			if at >= want.Prompt {
				list, at = ".toks:not(.prompt)", at-want.Prompt
			}
			if got := classOf(list, at); got != class("p", step) {
				t.Errorf("token %d has the class %q, want %q for %g", i+1, got, class("p", step), token.Compared.KL)
			}
		}
		if mean := sum / float64(len(want.Tokens)-1); mean < 1e-6 || math.Abs(want.KL.Mean-mean) > 1e-12 || want.KL.Worst != worst {
			t.Errorf("got %+v, want the mean %g and the worst at %d", want.KL, mean, worst)
		}
		b.click("[data-worst]")
		place := fmt.Sprintf("prompt token %d of", worst+1)
		if worst >= want.Prompt {
			place = fmt.Sprintf("token %d of", worst-want.Prompt+1)
		}
		b.until(fmt.Sprintf("document.querySelector('.token [data-place]')?.innerText.startsWith('%s')", place))
		if facts := b.text(".token [data-facts]"); !strings.Contains(facts, "divergence") || !strings.Contains(facts, "other model") {
			t.Errorf("the token says %q", facts)
		}
		b.press("Escape", 27)
	})

	run("a model that there is not is refused", func(t *testing.T) {
		for body, status := range map[string]int{`{"against":"none"}`: http.StatusNotFound, `{"device":"cuda"}`: http.StatusBadRequest, `{"with":"changed"}`: http.StatusBadRequest} {
			if got := handlerstest.Call(t, server, "POST", "/c/"+id+"/score/"+answer, body, "Origin", server.URL, "Content-Type", "application/json"); got.Status != status {
				t.Errorf("%s: status %d, want %d: %s", body, got.Status, status, got.Body)
			}
		}
	})
}

func TestScoringShowsItsProgressAndCanBeCancelled(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	b.open("/")
	b.say(strings.Repeat("word ", 28)) // with what is around it as long as a finished answer says
	a := engine.Next(t)
	a.Write("yes")
	a.Finish()
	b.until(idle)
	b.click("[data-tokens]:not([hidden])")
	b.tokenMenu("[data-score]")
	pass := engine.Next(t)
	if r := pass.Request; !r.PromptLogProb || !r.Rows || r.MaxTokens != 0 || len(r.Tokens) != 31 || r.Against != "" {
		t.Errorf("the engine was asked for %+v", r)
	}
	pass.Send(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 10, Total: 31}})
	b.until("document.querySelector('[data-pass-amount]').innerText === '10 of 31 tokens'")
	b.click("[data-cancel]")
	b.until("document.querySelector('.passing').hidden")
	select {
	case <-pass.Ended:
	case <-time.After(handlerstest.Hang):
		t.Fatal("the engine goes on")
	}
	b.tokenMenu("[data-score]")
	pass = engine.Next(t)
	pass.Send(infer.Event{Type: infer.EventLoading, Loading: &infer.Loading{Model: "guide", Done: 1, Total: 2}})
	b.until("document.querySelector('[data-pass]').innerText === 'Loading guide'")
	pass.Fail(&fault.Error{Code: fault.CodeMemory, Message: "the model does not fit"})
	b.until("document.querySelector('.trouble').innerText.includes('does not fit')")
}
