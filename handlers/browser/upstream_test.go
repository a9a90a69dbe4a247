package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/upstream"
)

// localScript is a scripted engine of this machine, for a router.
type localScript struct{ *handlerstest.Script }

func (localScript) Reload(context.Context, infer.Setup) error { return nil }

func (localScript) Close() error { return nil }

// serveOpenAI starts an OpenAI-compatible server that knows few settings.
func serveOpenAI(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			io.WriteString(w, `{"data":[{"id":"far-70b","max_model_len":32768},{"id":"guide"}]}`)
		case "/openapi.json":
			io.WriteString(w, `{"info":{"title":"Far","version":"2"},"paths":{"/v1/chat/completions":{"post":{"requestBody":{"content":{"application/json":{"schema":{"properties":{"temperature":{},"top_p":{},"seed":{},"stop":{},"max_tokens":{},"logprobs":{}}}}}}}}}}`)
		case "/v1/chat/completions":
			w.Header().Set("Content-Type", "text/event-stream")
			for _, part := range []string{`{"reasoning_content":"Hm."}`, `{"content":"<b>Far"}`, `{"content":" away</b>"}`} {
				fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", part)
			}
			io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAModelOfAnotherEngineInABrowser(t *testing.T) {
	t.Parallel()
	far := serveOpenAI(t)
	address, err := upstream.ParseAddress(far.URL)
	if err != nil {
		t.Fatal(err)
	}
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "guide"})
	router := upstream.New(upstream.Options{Local: localScript{engine}, Servers: []upstream.Address{address}, CheckEvery: 50 * time.Millisecond})
	t.Cleanup(func() { router.Close() })
	for deadline := time.Now().Add(handlerstest.Hang); router.ModelsVersion() == 0 || router.Status().Upstreams[0].Problem != ""; {
		if time.Now().After(deadline) {
			t.Fatalf("the upstream is not ready: %+v", router.Status().Upstreams)
		}
		time.Sleep(time.Millisecond)
	}
	server, _ := handlerstest.ServeStored(t, router)
	b := openBrowser(t, server)
	run := steps(t, b)
	greyed := func() string {
		return b.value("[...document.querySelectorAll('.param.lacking')].map(p => p.dataset.param).join(' ')")
	}

	run("the menu says where a model runs", func(t *testing.T) {
		b.open("/")
		b.click(".top .engine-chip")
		b.until("document.querySelector('#model-menu').matches(':popover-open')")
		if got := b.text(`#model-menu button[value="far-70b"]`); !strings.Contains(got, "at "+address.Host) {
			t.Errorf("the menu says %q", got)
		}
		if got := b.value("[...document.querySelectorAll('#model-menu form button')].map(b => b.value).join(' ')"); got != "guide far-70b guide@upstream" {
			t.Errorf("the menu has %s", got)
		}
		b.shot("upstream-menu")
		b.click(`#model-menu button[value="far-70b"]`)
		b.until("document.querySelector('[data-chosen-note]').checkVisibility()")
		if got := b.text(".engine-chip [data-chosen]"); !strings.Contains(got, "at "+address.Host) {
			t.Errorf("the button says %q", got)
		}
		if got := b.text("#empty"); !strings.Contains(got, "runs at "+address.Host) || strings.Contains(got, "loaded when") {
			t.Errorf("the page says %q", got)
		}
	})
	run("settings that the engine does not know are grey, with the reason", func(t *testing.T) {
		got := greyed()
		for _, key := range []string{"top_k", "min_p", "repeat_penalty", "mirostat", "banned_strings", "samplers"} {
			if !strings.Contains(" "+got+" ", " "+key+" ") {
				t.Errorf("%s is not grey: %s", key, got)
			}
		}
		for _, key := range []string{"temperature", "top_p", "max_tokens", "stop"} {
			if strings.Contains(" "+got+" ", " "+key+" ") {
				t.Errorf("%s is grey", key)
			}
		}
		if b.value("document.querySelector('[data-param=top_k] input[type=range]').disabled + ' ' + document.querySelector('[data-param=top_p] input[type=range]').disabled") != "true false" {
			t.Error("the slider of top-k can be moved, or that of top-p cannot")
		}
		if got := b.value("document.querySelector('.output [data-lacking]').textContent"); !strings.HasSuffix(got, "has no JSON, JSON schema, GBNF.") || b.value("document.querySelector('[data-format=grammar]').disabled") != "true" {
			t.Errorf("the output format says %q, or a grammar can be chosen", got)
		}
		why := b.text("[data-lacks-note]")
		for _, part := range []string{"Grey settings have no effect at " + address.Host + ".", "The engine does not list this in /openapi.json: ", "Repeat penalty", "Top-k", "Order of the samplers", "cannot ban strings: Banned strings.", "need not give the same answer", "does not show the ids of tokens"} {
			if !strings.Contains(why, part) {
				t.Errorf("the reason %q is missing in %q", part, why)
			}
		}
		for _, width := range []int64{390, 820, 1440} {
			b.size(width, 900, width < 400)
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.shot(fmt.Sprintf("upstream-%d-%s", width, scheme))
			}
			b.scheme("light")
		}
		b.look(axe(t), "settings without effect")
		if got := b.value("[...document.querySelectorAll('.sec.engine')].filter(s => !s.hidden).map(s => s.textContent.replace(/\\s+/g, ' ')).join('|')"); !strings.Contains(got, "far-70bRuns at"+address.Host+"EngineFar 2Context32,768 tokens") || strings.Contains(got, "Device") {
			t.Errorf("the panel describes %q", got)
		}
	})
	run("a chat with it works, what it writes is text, and nobody counts its tokens", func(t *testing.T) {
		b.script("window.counted = []; const ask = window.fetch; window.fetch = (...a) => { if (a[0] === '/count') window.counted.push(JSON.parse(a[1].body).model); return ask(...a) }")
		b.fill("#message", "Where")
		b.chooseModel("guide")
		b.until("window.counted.length > 0")
		b.fill("#message", "")
		b.chooseModel("far-70b")
		if got := b.value("window.counted.join(' ')"); strings.Contains(got, "far") {
			t.Errorf("tokens were counted with %s", got)
		}
		b.say("Where are you?")
		b.until("[...document.querySelectorAll('.answer')].at(-1)?.innerText.includes('<b>Far away</b>')")
		b.until(idle)
		if got := b.value("[...document.querySelectorAll('.answer .who b')].at(-1).innerText"); got != "far-70b" {
			t.Errorf("the answer is by %q", got)
		}
		if b.value("document.querySelectorAll('.answer b b, .answer .md b').length") != "0" {
			t.Error("what the engine sent became markup")
		}
		b.open(b.value("location.pathname"))
		b.until("[...document.querySelectorAll('.answer')].at(-1)?.innerText.includes('<b>Far away</b>')")
		b.shot("upstream-chat")
	})
	run("the button for tokens says why there are none", func(t *testing.T) {
		b.script("document.querySelector('.answer:last-child [data-tokens]').click()")
		b.until("document.querySelector('#senderror').checkVisibility()")
		if got := b.text("#senderror"); !strings.Contains(got, "There are no tokens to show") || !strings.Contains(got, "sent its text without the tokens") {
			t.Errorf("the page says %q", got)
		}
		b.shot("upstream-no-tokens")
	})
	run("with a model of this machine all settings have an effect again", func(t *testing.T) {
		b.click(".top .engine-chip")
		b.click(`#model-menu button[value="guide"]`)
		b.until("document.querySelectorAll('.param.lacking').length === 0")
		if b.value("document.querySelector('[data-param=top_k] input[type=range]').disabled") != "false" || b.value("document.querySelector('[data-lacks-note]').hidden") != "true" {
			t.Error("top-k stays grey")
		}
	})
	run("the page Models says where it runs", func(t *testing.T) {
		b.openModels("/models")
		if got := b.text("#list"); !strings.Contains(got, "at "+address.Host) {
			t.Errorf("the page says %q", got)
		}
		b.shot("upstream-models")
	})
	b.clean()
}
