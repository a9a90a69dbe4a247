package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/hub"
	"m40-llm/infer/reply"
	"m40-llm/world/worldtest"
)

// withCaller is an engine with one model more, caller, which calls the first tool that it gets and says its result, knows
// what a document says, gives every chat one title, and otherwise writes without end.
type withCaller struct {
	*engine.Engine
	stopped  chan struct{} // an answer without end
	embedded chan string

	mu    sync.Mutex
	asked []infer.Request
}

const (
	callersTitle = "Lamps of the coast"
	keepersText  = "The password of the keeper of Skerry Point is heliotrope." // in a document
)

func (e *withCaller) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	list, err := e.Engine.Models(ctx)
	return append(list, infer.ModelInfo{Name: "caller"}), err
}

func (e *withCaller) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	e.mu.Lock()
	e.asked = append(e.asked, r)
	e.mu.Unlock()
	if r.Model != "caller" {
		return e.Engine.Generate(ctx, r)
	}
	answer := func(words string) iter.Seq2[infer.Event, error] {
		return handlerstest.Replay(handlerstest.WordEvent(1, words), handlerstest.DoneEvent(infer.FinishStop))
	}
	last := r.Messages[len(r.Messages)-1]
	switch {
	case last.Role == "tool":
		return answer("It is " + last.Content)
	case strings.Contains(last.Content, `"title"`): // the shape that is asked for
		return answer(`{"title": "` + callersTitle + `"}`)
	case strings.Contains(last.Content, `"queries"`):
		return answer(`{"queries": ["password of the keeper"]}`)
	case strings.Contains(fmt.Sprint(r.Messages), keepersText):
		return answer("It says heliotrope.")
	case len(r.Tools) > 0:
		call := handlerstest.WordEvent(1, "")
		call.Token.Calls = []reply.CallDelta{{ID: "call01", Name: "weather", Arguments: `{"city": "Rome"}`}}
		return handlerstest.Replay(call, handlerstest.DoneEvent(infer.FinishCalls))
	}
	return func(yield func(infer.Event, error) bool) {
		defer func() { e.stopped <- struct{}{} }()
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				if !yield(handlerstest.WordEvent(1, "more "), nil) {
					return
				}
			case <-ctx.Done():
				yield(infer.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

func (e *withCaller) Embed(ctx context.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
	for _, in := range r.Inputs {
		e.embedded <- in.Text
	}
	return e.Engine.Embed(ctx, r)
}

// last returns the last request that a model got with a question in it.
func (e *withCaller) last(model, question string) (last infer.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.asked {
		if messages := r.Messages; r.Model == model && len(messages) > 0 && strings.Contains(messages[len(messages)-1].Content, question) {
			last = r
		}
	}
	return last
}

// TestOpenWebUI has a person use Open WebUI, which is started by the recipe of docs/clients.md, with SmolLM2, MiniLM and a
// model that calls tools. make world installs it.
func TestOpenWebUI(t *testing.T) {
	packages, minilm := worldtest.LargePackages(t, "open-webui"), os.Getenv("M40_LLM_MINILM")
	if minilm == "" {
		t.Skip("M40_LLM_MINILM is not set: a file all-MiniLM-L6-v2-f16.gguf")
	}
	models := t.TempDir()
	for name, file := range map[string]string{"smollm2": filepath.Join(packages, "..", "models", "smollm2.gguf"), "minilm": minilm} {
		if err := os.Symlink(file, filepath.Join(models, name+".gguf")); err != nil {
			t.Fatal(err)
		}
	}
	engine := &withCaller{stopped: make(chan struct{}, 8), embedded: make(chan string, 64), Engine: handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model, o.ContextLength = hub.New(hub.Options{Dir: models}), "smollm2", 2048
	})}
	b := openWebUI(t, packages, handlerstest.Server(t, engine).URL)
	version := b.version()
	step := steps(t, b.browser)
	run := func(feature string, test func(t *testing.T)) {
		step(feature, func(t *testing.T) {
			fixtures.ReportAtEnd(t, "Open WebUI in Chromium", version, feature)
			test(t)
		})
	}

	run("chat", func(t *testing.T) {
		b.chat("?models=smollm2")
		b.ask("Say hello in one word.")
		b.until("document.querySelector('.chat-assistant')?.innerText.trim().length > 1 && " + webUIIsIdle)
		if r := engine.last("smollm2", "Say hello"); len(r.Tools) > 0 {
			t.Errorf("with builtin_tools off, %d bytes of tools are sent", len(r.Tools))
		}
	})
	run("title of a chat, by another model", func(*testing.T) {
		b.until("document.title.includes('" + callersTitle + "')")
	})
	run("again: a second version of an answer", func(*testing.T) {
		b.script("[...document.querySelectorAll('[aria-label=Regenerate]')].at(-1).click()")
		b.until("[...document.querySelectorAll('button')].some(b => b.innerText.trim() === 'Try Again')")
		b.script("[...document.querySelectorAll('button')].find(b => b.innerText.trim() === 'Try Again').click()")
		b.until(`/\b2\s*\/\s*2\b/.test(document.querySelector('#messages-container').innerText) && ` + webUIIsIdle)
	})
	run("stop: the server ends the answer", func(t *testing.T) {
		b.chat("?models=caller")
		b.ask("Go on for ever.")
		b.until("document.querySelector('.chat-assistant')?.innerText.includes('more more')")
		b.script("document.querySelector('[aria-label=Stop]').click()")
		b.until(webUIIsIdle)
		receive(t, engine.stopped)
	})
	run("native tool call, with its result", func(t *testing.T) {
		b.addTool("weather", "Weather", `
class Tools:
    def weather(self, city: str) -> str:
        """
        Get the weather of a city.
        :param city: The city.
        """
        return "sunny in " + city
`)
		b.chat("?models=caller")
		b.chooseTool("Weather")
		b.ask("How is the weather?")
		b.until("document.querySelector('.chat-assistant')?.innerText.includes('It is sunny in Rome') && " + webUIIsIdle)
		var tools []json.RawMessage
		if r := engine.last("caller", "How is the weather?"); json.Unmarshal(r.Tools, &tools) != nil || len(tools) != 1 {
			t.Errorf("the tools are %s, want one", r.Tools)
		}
	})
	run("a document, by embeddings", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "keeper.txt")
		if err := os.WriteFile(file, []byte(keepersText), 0o600); err != nil {
			t.Fatal(err)
		}
		b.chat("?models=caller")
		b.attach(file)
		for !strings.Contains(receive(t, engine.embedded), keepersText) {
		}
		b.ask("What is the password of the keeper?")
		b.until("document.querySelector('.chat-assistant')?.innerText.includes('It says heliotrope.') && " + webUIIsIdle)
	})
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(handlerstest.Hang):
		t.Fatal("nothing came")
	}
	return v
}

// A webUI is Open WebUI in a browser.
type webUI struct{ *browser }

const webUIIsIdle = "!document.querySelector('[aria-label=Stop]')"

// openWebUI starts Open WebUI with new data for a server, and opens it.
func openWebUI(t *testing.T, packages, server string) webUI {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	recipe := strings.NewReplacer("http://localhost:8080", server, "EMBEDDER", "minilm", "--port 3000", "--port "+port).Replace(worldtest.Recipe(t, "clients.md", "export OPENAI_API_BASE_URL"))
	cmd := exec.Command("bash", "-c", recipe)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(packages, "bin")+":"+os.Getenv("PATH"), "DATA_DIR="+cmd.Dir, "WEBUI_SECRET_KEY=test", "TASK_MODEL_EXTERNAL=caller",
		"ENABLE_FOLLOW_UP_GENERATION=False", "ENABLE_TAGS_GENERATION=False", `DEFAULT_MODEL_PARAMS={"max_tokens": 32}`)
	worldtest.Start(t, cmd, "http://"+l.Addr().String()+"/health", 20*handlerstest.Hang)
	b := webUI{openBrowser(t, &httptest.Server{URL: "http://" + l.Addr().String()})}
	b.chat("")
	b.until("[...document.querySelectorAll('[role=dialog] button')].some(b => b.innerText.startsWith('Okay'))") // what is new in it
	b.script("[...document.querySelectorAll('[role=dialog] button')].find(b => b.innerText.startsWith('Okay')).click()")
	b.until("!document.querySelector('[role=dialog]')")
	return b
}

func (b webUI) version() string {
	b.t.Helper()
	b.script("fetch('/api/version').then(r => r.json()).then(v => window.version = v.version)")
	b.until("window.version")
	return b.value("window.version")
}

// chat opens a new chat.
func (b webUI) chat(query string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin + "/" + query))
	b.until("document.querySelector('#chat-input') && document.querySelector('#model-selector-model-button')")
}

func (b webUI) ask(question string) {
	b.t.Helper()
	b.do(chromedp.Focus("#chat-input"))
	command(b.browser, input.InsertText, input.InsertTextParams{Text: question})
	b.until("document.querySelector('#send-message-button:not([disabled])')")
	b.script("document.querySelector('#send-message-button').click()")
}

func (b webUI) addTool(id, name, program string) {
	b.t.Helper()
	tool, err := json.Marshal(map[string]any{"id": id, "name": name, "content": program, "meta": map[string]any{"description": name}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.script(fmt.Sprintf(`fetch('/api/v1/tools/create', {
		method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ' + localStorage.token }, body: %q
	}).then(r => window.added = r.status)`, tool))
	b.until("window.added === 200")
}

// chooseTool switches a tool on for the chat that is open.
func (b webUI) chooseTool(name string) {
	b.t.Helper()
	b.script("document.querySelector('#integration-menu-button').click()")
	for _, item := range [][2]string{{"menuitem", "Tools"}, {"menuitemcheckbox", name}} {
		found := fmt.Sprintf("[...document.querySelectorAll('[role=%s]')].find(i => i.innerText.trim().startsWith(%q))", item[0], item[1])
		b.until(found)
		b.script(found + ".click()")
	}
	b.until("document.querySelector('[role=menuitemcheckbox][aria-checked=true]')")
	b.press("Escape", 27)
}

func (b webUI) attach(file string) {
	b.t.Helper()
	b.do(chromedp.SetUploadFiles("input[type=file]", []string{file}))
	b.until(fmt.Sprintf("document.querySelector('#message-input-container').innerText.includes(%q)", filepath.Base(file)))
}
