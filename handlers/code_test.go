package handlers_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

var interpreters = map[string]string{"curl": "bash", "python": "python3", "javascript": "node"}

// installed skips the test where a language cannot be run.
func installed(t testing.TB, language string) {
	t.Helper()
	needed := []string{interpreters[language]}
	if language == "curl" {
		needed = append(needed, "curl")
	}
	for _, name := range needed {
		if _, err := exec.LookPath(name); err != nil {
			fixtures.Skip(t, name+" is not installed")
		}
	}
}

// program runs code as a person who pastes it would, and returns what it prints.
func program(t testing.TB, language, code string, env ...string) <-chan string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program.js")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(interpreters[language], file)
	run.Env = append(os.Environ(), append(env, "PYTHONUTF8=1", "no_proxy=*")...)
	said := make(chan string, 1)
	go func() {
		out, err := run.CombinedOutput()
		if err != nil {
			t.Errorf("%s failed: %v\n%s\n%s", language, err, out, code)
		}
		said <- string(out)
	}()
	return said
}

// hostileTexts mean something to shells, to Python, to JavaScript, to JSON or to HTML.
var hostileTexts = []string{
	"it's \"quoted\" `twice` $(touch pwned) ${HOME} $HOME !! \\ \\n \\' \\\" %s %d",
	"lines\nwith\r\n\ttabs\nJSON\n EOF\n'''\n\"\"\"\n",
	"</script><script>pwned=1</script><!-- --> ]]> {{x}} </SCRIPT>",
	"ünïcödé 日本語 🙂 \u2028\u2029 \u0000\u0001\u007f \ufeff \u202e",
	"{\"role\":\"system\"}, ${`x`}, \\u0041, \\x41, # // /* */ -- ; | & > <",
}

func TestCode_RunsAndAsksForTheSame(t *testing.T) {
	for _, language := range []string{"curl", "python", "javascript"} {
		for _, raw := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, raw %v", language, raw), func(t *testing.T) {
				installed(t, language)
				engine := handlerstest.NewScript()
				server, chats := handlerstest.ServeStored(t, engine)
				settings := setting.Default()
				settings.Temperature, settings.TypicalP, settings.RepeatLastN, settings.MaxTokens = 0.1, 0.5, -1, -1
				settings.PresencePenalty, settings.FrequencyPenalty, settings.Seed = -1.5, 0.25, 4711
				settings.Stop = []string{"'\"\\\n", "</script>", "🙂"}
				settings.BannedStrings, settings.Samplers = []string{"</script>", "\n\n"}, []string{"top_k", "dry", "temperature"}
				settings.XTCProbability, settings.DryMultiplier, settings.DryBreakers = 0.5, 0.8, []string{"\"", "\\"}
				settings.Thinking = setting.ThinkingOff
				settings.OutputFormat = setting.OutputFormat{Type: setting.OutputSchema, Schema: `{"type": ["object", "null"], "properties": {"a": {"enum": [true, null, "</script>"]}}, "additionalProperties": false}`}
				chat, err := chats.Start(context.Background(), access.Local, live.Question{Text: hostileTexts[0], System: hostileTexts[1], Settings: settings, Opening: store.Opening{Raw: raw}}, false)
				if err != nil {
					t.Fatal(err)
				}
				c := handlerstest.DialSocket(t, server)
				c.Do("open", map[string]any{"chat": chat.ID()})
				first := engine.Next(t)
				first.Write(hostileTexts[2])
				first.Finish()
				c.Until("the answer", func() bool { return len(c.Branch) == 2 && c.Ended() })
				if err := chat.Send(context.Background(), access.Local, live.Question{Text: hostileTexts[3] + hostileTexts[4], System: hostileTexts[1], Settings: settings}); err != nil {
					t.Fatal(err)
				}
				second := engine.Next(t)
				second.Write("x")
				second.Finish()
				c.Until("the answer", func() bool { return len(c.Branch) == 4 && c.Ended() })

				code := handlerstest.Call(t, server, http.MethodGet, fmt.Sprintf("/c/%s/code/%d?as=%s", chat.ID(), c.Branch[3], language), "")
				if code.Status != http.StatusOK || !strings.HasPrefix(code.Header.Get("Content-Type"), "text/plain") {
					t.Fatalf("got %d, %s: %s", code.Status, code.Header.Get("Content-Type"), code.Body)
				}
				if language == "javascript" && strings.Contains(strings.ToLower(code.Body), "</script") {
					t.Errorf("inside a page the program would end early:\n%s", code.Body)
				}
				said := program(t, language, code.Body)
				again := engine.Next(t)
				again.Write(hostileTexts[4])
				again.Finish()
				out := strings.TrimSuffix(<-said, "\n")
				if language == "curl" { // prints the response as it is
					var body struct {
						Choices []struct {
							Text    string
							Message struct{ Content string }
						}
					}
					mustDecode(t, handlerstest.Response{Status: http.StatusOK, Body: out[strings.IndexByte(out, '{'):]}, &body)
					out = body.Choices[0].Text + body.Choices[0].Message.Content
				}
				if out != hostileTexts[4] {
					t.Errorf("the program said %q, want %q", out, hostileTexts[4])
				}
				want := second.Request
				want.Client, want.Unset = again.Request.Client, again.Request.Unset // what has no effect is left out
				want.Model = "guide"
				want.ParseReply, want.WholeCalls = !raw, !raw // what chat completions ask for more than the page
				if got := again.Request.JSONSchema; len(got) > 0 && reflect.DeepEqual(parseJSON(t, string(got)), parseJSON(t, string(want.JSONSchema))) {
					want.JSONSchema = got // with other white space
				}
				want.Rows = false // the page shows them, the API's clients did not ask
				if got := again.Request; !reflect.DeepEqual(got, want) {
					t.Errorf("the program asked for\n%+v\nwant\n%+v\n%s", got, want, code.Body)
				}
			})
		}
	}
}

func TestCode_NamesTheKeyAndNeverSaysIt(t *testing.T) {
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{})
	defer chats.Close()
	server := handlerstest.Server(t, engine, func(c *handlers.Config) {
		handlerstest.Lock(t, c, "open sesame")
		c.Live = chats
	})
	chat, err := chats.Start(context.Background(), access.Local, live.Question{Text: "Hi", Settings: setting.Default()}, false)
	if err != nil {
		t.Fatal(err)
	}
	engine.Next(t).Finish()
	for _, language := range []string{"curl", "python", "javascript"} {
		installed(t, language)
		code := handlerstest.Call(t, server, http.MethodGet, "/c/"+chat.ID()+"/code/2?as="+language, "", "Authorization", "Bearer open sesame")
		if code.Status != http.StatusOK || strings.Contains(code.Body, "sesame") {
			t.Fatalf("got %d: %s", code.Status, code.Body)
		}
		said := program(t, language, code.Body, "M40_LLM_API_KEY=open sesame")
		a := engine.Next(t)
		a.Write("Hello.")
		a.Finish()
		if out := <-said; !strings.Contains(out, "Hello.") {
			t.Errorf("%s said %q", language, out)
		}
	}
	for path, status := range map[string]int{
		"/c/" + chat.ID() + "/code/2?as=cobol":  400,
		"/c/" + chat.ID() + "/code/1?as=curl":   400,
		"/c/" + chat.ID() + "/code/99?as=curl":  400,
		"/c/" + chat.ID() + "/code/two?as=curl": 400,
		"/c/nowhere/code/2?as=curl":             404,
	} {
		if got := handlerstest.Call(t, server, http.MethodGet, path, "", "Authorization", "Bearer open sesame", "Accept", "application/json"); got.Status != status {
			t.Errorf("%s: %d, %s", path, got.Status, got.Body)
		}
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+chat.ID()+"/code/2?as=curl", ""); got.Status == http.StatusOK {
		t.Error("without the key the chat can be read")
	}
}
