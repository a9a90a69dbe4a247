package handlers

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/markdown"
	"m40-llm/infer"
	"m40-llm/infer/reply"
	"m40-llm/store"
)

func TestSocket_AThoughtIsTheSameHoweverOneCameToIt(t *testing.T) {
	engine := newScript()
	server := serve(t, engine)
	c := dialSocket(t, server)
	c.do("send", map[string]any{"text": "Why?"})
	answer := engine.next(t)
	c.until("the chat", func() bool { return c.chat != "" })
	const thought, said = "One. Two.\n\n```\nthree\n```", "**Four**.\n\nFive."
	for i, piece := range []struct{ thought, said, reasoning, text string }{
		{"One. ", "", "One. ", ""},
		{"Two.\n\n", "", "One. Two.\n\n", ""},
		{"```\nthree\n", "", "One. Two.\n\n```\nthree\n", ""},
		{"```", "", thought, ""},
		{"", "**Fo", thought, "**Fo"},
		{"", "ur**.\n\n", thought, "**Four**.\n\n"},
		{"", "Five.", thought, said},
	} {
		if piece.thought != "" {
			answer.think(piece.thought)
		} else {
			answer.write(piece.said)
		}
		late := dialSocket(t, server)
		late.do("open", map[string]any{"chat": c.chat})
		late.until("all so far", func() bool {
			return late.last() != nil && late.last().reasoning == piece.reasoning && late.last().text == piece.text
		})
		defer func() {
			late.until("the end", late.ended)
			if got, want := late.last().html, markdown.Answer(thought, said); got != want {
				t.Errorf("opened after piece %d it reads\n%s\nwant\n%s", i, got, want)
			}
		}()
	}
	answer.finish()
	c.until("the end", c.ended)
	if got := c.last(); got.reasoning != thought || got.text != said {
		t.Errorf("it is %q behind %q", got.text, got.reasoning)
	}
}

func TestSocket_AnAnswerThatEndsThinkingIsShownWhole(t *testing.T) {
	for _, pieces := range [][]string{{"", "a"}, {"b", "a"}, {"b", "a", "c"}} {
		engine := newScript()
		c := dialSocket(t, serve(t, engine))
		c.do("send", map[string]any{"text": "Why?"})
		answer := engine.next(t)
		for i, piece := range pieces {
			if i%2 == 0 && piece != "" {
				answer.write(piece)
			} else if piece != "" {
				answer.think(piece)
			}
		}
		answer.finish()
		c.until("the end", c.ended)
		if got, want := c.last().html, markdown.Answer(c.last().reasoning, c.last().text); got != want {
			t.Errorf("%q reads\n%s\nwant\n%s", pieces, got, want)
		}
	}
}

func TestExport_AThoughtIsAQuoteInMarkdown(t *testing.T) {
	server, chats := serveStored(t, newScript())
	id, err := importList(chats, store.Metadata{Title: "x"}, []store.Message{
		{ID: 1, Role: store.RoleUser, State: store.Done, Text: "<think>mine</think>"},
		{ID: 2, Parent: 1, Role: store.RoleAssistant, State: store.Done, Text: "c", Reasoning: "a\n\nb"},
	}, 2)
	if err != nil {
		t.Fatal(err)
	}
	const want = "# x\n\n## You\n\n<think>mine</think>\n\n## Answer\n\n> a\n> \n> b\n\nc\n"
	if got := call(t, server, http.MethodGet, "/c/"+id+"/export.md", ""); got.body != want {
		t.Errorf("got %q, want %q", got.body, want)
	}
}

func TestExport_ARawChatComesBackRaw(t *testing.T) {
	server, chats := serveStored(t, newScript())
	id, err := importList(chats, store.Metadata{Opening: store.Opening{Raw: true}}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "Once upon"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	exported := call(t, server, http.MethodGet, "/c/"+id+"/export.json", "")
	got := post(t, server, "/import", exported.body, "Origin", server.URL)
	again, err := chats.Conversation(context.Background(), access.Local, strings.TrimPrefix(got.header.Get("Location"), "/c/"))
	if err != nil || !again.Raw || again.Title != "Once upon" {
		t.Errorf("it came back as %+v, %v", again, err)
	}
}

func TestThoughtsInABrowser(t *testing.T) {
	engine := newScript()
	b := openBrowser(t, serve(t, engine))
	run := steps(t, b)
	const folded = "document.querySelector('.answer:last-child .thought:not([open])')"

	run("a thought is folded while it is written, and says how long it is", func(t *testing.T) {
		b.open("/")
		b.say("Why?")
		answer := engine.next(t)
		answer.think("Let me see. ", "It rains")
		b.until(folded + ".innerText.trim() === 'Thinking, 5 words'")
		b.shot("thinking")
		b.click(".thought summary")
		b.until("document.querySelector('.thought[open] p').innerText === 'Let me see. It rains'")
		answer.think(".\n\nOften.")
		answer.write("Because it **rains**.")
		b.until("[...document.querySelectorAll('.thought[open] p')].map(p => p.innerText).join('|') === 'Let me see. It rains.|Often.'")
		b.shot("thought-open")
		if got := b.value("[...document.querySelectorAll('.chip')].filter(chip => chip.checkVisibility() && !chip.textContent.trim()).length"); got != "0" {
			t.Errorf("%s chips that say nothing are shown", got)
		}
		answer.finish()
		b.until(idle)
		b.until("document.querySelector('.thought[open] summary').innerText === 'Thinking, 6 words'")
		b.do(chromedp.Reload(), chromedp.WaitReady("#message"))
		b.until(folded + ".innerText.trim() === 'Thinking, 6 words'")
		b.shot("thought")
	})

	run("the answer is copied without it", func(t *testing.T) {
		b.script(`navigator.clipboard.writeText = text => { globalThis.copied = text; return Promise.resolve() }`)
		b.click(".answer:last-child [data-copy]")
		b.until("globalThis.copied === 'Because it **rains**.'")
	})
	run("what an answer says about the tags of thoughts is text", func(t *testing.T) {
		b.say("How?")
		answer := engine.next(t)
		answer.write("<think>", " opens it, ", "</think> ends it.")
		answer.finish()
		b.until(idle)
		const said = "document.querySelector('.answer:last-child .prose').innerText === '<think> opens it, </think> ends it.' && !document.querySelector('.answer:last-child .thought')"
		b.until(said)
		b.do(chromedp.Reload(), chromedp.WaitReady("#message"))
		b.until(said)
	})
	b.clean()
}

// writer writes an answer as a model of a family does, through the parser of its engine.
type writer struct {
	*scriptedAnswer
	parser   *reply.Parser
	controls []string
}

// family is how models write, as far as these tests need to know it.
type family struct {
	name, template string
	controls       []string
	prompt         string // its end
}

func (f family) writer(a *scriptedAnswer) writer {
	format := reply.Detect(f.template, true, func(text string) bool { return slices.Contains(f.controls, text) })
	return writer{a, format.Parser(reply.Options{Prompt: f.prompt}), f.controls}
}

func (w writer) write(pieces ...string) {
	for _, piece := range pieces {
		read := w.parser.Text
		if slices.Contains(w.controls, piece) {
			read = w.parser.Control
		}
		w.tell(read(piece))
	}
}

func (w writer) tell(d reply.Delta) {
	w.count++
	w.send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: d.Content, Reasoning: d.Reasoning}})
}

func (w writer) finish() {
	w.tell(w.parser.End(true))
	w.scriptedAnswer.finish()
}

var harmony = family{
	name:     "harmony",
	template: "<|start|><|channel|><|message|>",
	controls: []string{"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>"},
	prompt:   "<|start|>user<|message|>Why?<|end|><|start|>assistant",
}

func TestSocket_AnAnswerIsKeptInOneFormWhateverItsFamily(t *testing.T) {
	for _, c := range []struct {
		family
		pieces          string // between ·
		reasoning, text string
	}{
		{harmony, "<|channel|>·analysis·<|message|>·Let me see.·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Because.", "Let me see.", "Because."},
		{harmony, "<|channel|>·commentary·<|message|>·I look.·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Because.", "", "I look.\n\nBecause."},
		{harmony, "<|channel|>·final·<|message|>·<think>· is a tag.", "", "<think> is a tag."},
		{harmony, "<|channel|>·analysis·<|message|>·</think>·!·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Yes.", "</think>!", "Yes."},
		{family{"command-r7b", "<|START_ACTION|>", []string{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}, ""},
			"<|START_THINKING|>·Let me see.·<|END_THINKING|>·<|START_RESPONSE|>·Because.·<|END_RESPONSE|>", "Let me see.", "Because."},
		{family{"mistral", "[TOOL_CALLS]", []string{"[THINK]", "[/THINK]"}, ""}, "[THINK]·Let me see.·[/THINK]·Because.", "Let me see.", "Because."},
		{family{"gemma", "<|tool_call>", []string{"<|channel>", "<channel|>"}, ""}, "<|channel>·thought\n·Let me see.·<channel|>·Because.", "Let me see.", "Because."},
		{family{"deepseek", "<｜tool▁call▁begin｜>", nil, "<｜Assistant｜><think>\n"}, "Let me see.\n·</think>·\n\nBecause.", "Let me see.", "Because."},
		{family{"seed", "<seed:tool_call>", nil, ""}, "<seed:think>·Let me see.·</seed:think>·Because.", "Let me see.", "Because."},
		{family{"hermes", "<tool_call>", nil, ""}, "<think>\n\n</think>\n\n·Because.", "", "Because."},
		{family{"hermes", "<tool_call>", nil, ""}, "It ends with ·</think>·.", "", "It ends with </think>."},
		{family{"llama", "<|python_tag|>", []string{"<|python_tag|>"}, ""}, "<|python_tag|>·print(1)", "", "<|python_tag|>print(1)"},
	} {
		engine := newScript()
		client := dialSocket(t, serve(t, engine))
		client.do("send", map[string]any{"text": "Why?"})
		answer := c.writer(engine.next(t))
		answer.write(strings.Split(c.pieces, "·")...)
		answer.finish()
		client.until("the end", client.ended)
		if got := client.last(); got.reasoning != c.reasoning || got.text != c.text || got.html != markdown.Answer(c.reasoning, c.text) {
			t.Errorf("%s, %s: it is kept as %q and %q and shown as\n%s", c.name, c.pieces, got.reasoning, got.text, got.html)
		}
	}
}

func TestAnAnswerOfHarmonyInABrowser(t *testing.T) {
	engine := newScript()
	server, _ := serveStored(t, engine)
	b := openBrowser(t, server)
	const thought, said = "document.querySelector('.answer:last-child .thought:not([open]) summary').innerText", "document.querySelector('.answer:last-child .prose > p').innerText"
	b.open("/")
	b.say("Hi?")
	answer := harmony.writer(engine.next(t))
	answer.write("<|channel|>", "analysis", "<|message|>", "The user wants", " a greeting")
	b.until(thought + " === 'Thinking, 5 words'")
	b.shot("harmony-thinking")
	answer.write(".\n\nSo.", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Hello", " **there**.")
	b.until(said + " === 'Hello **there**.'")
	answer.finish()
	b.until(idle)
	whole := thought + " === 'Thinking, 6 words' && " + said + " === 'Hello there.' && !document.querySelector('.answer:last-child').innerText.includes('analysis')"
	b.until(whole)
	b.shot("harmony")
	b.do(chromedp.Reload(), chromedp.WaitReady("#message"))
	b.until(whole)

	b.say("And?")
	next := engine.next(t)
	if was := next.request.Messages[1]; was.ReasoningContent != "The user wants a greeting.\n\nSo." || was.Content != "Hello **there**." {
		t.Errorf("the next prompt has %+v", was)
	}
	answer = harmony.writer(next)
	answer.write("<|channel|>", "analysis", "<|message|>", "Hm")
	b.until(thought + " === 'Thinking, 1 word'")
	b.click("[data-stop]")
	b.until(idle)
	b.until(thought + " === 'Thinking, 1 word'")
	b.shot("harmony-stopped")
	b.click(".answer:last-child [data-continue]")
	next = engine.next(t)
	if last := next.request.Messages[3]; !next.request.Continue || last.ReasoningContent != "Hm" || last.Content != "" || len(next.request.Begun) != 4 {
		t.Errorf("the thought goes on behind %+v, %d", last, next.request.Begun)
	}
	b.until(thought + " === 'Thinking, 1 word'")
	answer.scriptedAnswer = next // it goes on where it was
	answer.write(", yes.", "<|end|>", "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "Bye.")
	answer.finish()
	b.until(idle)
	b.until(thought + " === 'Thinking, 2 words' && " + said + " === 'Bye.'")
	b.clean()
}
