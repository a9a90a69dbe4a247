package handlers_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/markdown"
	"m40-llm/store"
)

func TestSocket_AThoughtIsTheSameHoweverOneCameToIt(t *testing.T) {
	engine := handlerstest.NewScript()
	server := handlerstest.Serve(t, engine)
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "Why?"})
	answer := engine.Next(t)
	c.Until("the chat", func() bool { return c.Chat != "" })
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
			answer.Think(piece.thought)
		} else {
			answer.Write(piece.said)
		}
		late := handlerstest.DialSocket(t, server)
		late.Do("open", map[string]any{"chat": c.Chat})
		late.Until("all so far", func() bool {
			return late.Last() != nil && late.Last().Reasoning == piece.reasoning && late.Last().Text == piece.text
		})
		defer func() {
			late.Until("the end", late.Ended)
			if got, want := late.Last().HTML, markdown.Answer(t.Context(), thought, said); got != want {
				t.Errorf("opened after piece %d it reads\n%s\nwant\n%s", i, got, want)
			}
		}()
	}
	answer.Finish()
	c.Until("the end", c.Ended)
	if got := c.Last(); got.Reasoning != thought || got.Text != said {
		t.Errorf("it is %q behind %q", got.Text, got.Reasoning)
	}
}

func TestSocket_AnAnswerThatEndsThinkingIsShownWhole(t *testing.T) {
	for _, pieces := range [][]string{{"", "a"}, {"b", "a"}, {"b", "a", "c"}} {
		engine := handlerstest.NewScript()
		c := handlerstest.DialSocket(t, handlerstest.Serve(t, engine))
		c.Do("send", map[string]any{"text": "Why?"})
		answer := engine.Next(t)
		for i, piece := range pieces {
			if i%2 == 0 && piece != "" {
				answer.Write(piece)
			} else if piece != "" {
				answer.Think(piece)
			}
		}
		answer.Finish()
		c.Until("the end", c.Ended)
		if got, want := c.Last().HTML, markdown.Answer(t.Context(), c.Last().Reasoning, c.Last().Text); got != want {
			t.Errorf("%q reads\n%s\nwant\n%s", pieces, got, want)
		}
	}
}

func TestExport_AThoughtIsAQuoteInMarkdown(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	id, err := handlerstest.ImportList(chats, store.Metadata{Title: "x"}, []store.Message{
		{ID: 1, Role: store.RoleUser, State: store.Done, Text: "<think>mine</think>"},
		{ID: 2, Parent: 1, Role: store.RoleAssistant, State: store.Done, Text: "c", Reasoning: "a\n\nb"},
	}, 2)
	if err != nil {
		t.Fatal(err)
	}
	const want = "# x\n\n## You\n\n<think>mine</think>\n\n## Answer\n\n> a\n> \n> b\n\nc\n"
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/export.md", ""); got.Body != want {
		t.Errorf("got %q, want %q", got.Body, want)
	}
}

func TestExport_ARawChatComesBackRaw(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	id, err := handlerstest.ImportList(chats, store.Metadata{Opening: store.Opening{Raw: true}}, []store.Message{{ID: 1, Role: store.RoleUser, State: store.Done, Text: "Once upon"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	exported := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/export.json", "")
	got := handlerstest.Post(t, server, "/import", exported.Body, "Origin", server.URL)
	again, err := chats.Conversation(context.Background(), access.Local, strings.TrimPrefix(got.Header.Get("Location"), "/c/"))
	if err != nil || !again.Raw || again.Title != "Once upon" {
		t.Errorf("it came back as %+v, %v", again, err)
	}
}

func TestSocket_AnAnswerIsStoredInOneFormWhateverItsFamily(t *testing.T) {
	for _, c := range []struct {
		handlerstest.Family
		pieces          string // between ·
		reasoning, text string
	}{
		{handlerstest.HarmonyFamily, "<|channel|>·analysis·<|message|>·Let me see.·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Because.", "Let me see.", "Because."},
		{handlerstest.HarmonyFamily, "<|channel|>·commentary·<|message|>·I look.·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Because.", "", "I look.\n\nBecause."},
		{handlerstest.HarmonyFamily, "<|channel|>·final·<|message|>·<think>· is a tag.", "", "<think> is a tag."},
		{handlerstest.HarmonyFamily, "<|channel|>·analysis·<|message|>·</think>·!·<|end|>·<|start|>·assistant·<|channel|>·final·<|message|>·Yes.", "</think>!", "Yes."},
		{handlerstest.Family{Name: "command-r7b", Template: "<|START_ACTION|>", Controls: []string{"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
			"<|START_THINKING|>·Let me see.·<|END_THINKING|>·<|START_RESPONSE|>·Because.·<|END_RESPONSE|>", "Let me see.", "Because."},
		{handlerstest.Family{Name: "mistral", Template: "[TOOL_CALLS]", Controls: []string{"[THINK]", "[/THINK]"}}, "[THINK]·Let me see.·[/THINK]·Because.", "Let me see.", "Because."},
		{handlerstest.Family{Name: "gemma", Template: "<|tool_call>", Controls: []string{"<|channel>", "<channel|>"}}, "<|channel>·thought\n·Let me see.·<channel|>·Because.", "Let me see.", "Because."},
		{handlerstest.Family{Name: "deepseek", Template: "<｜tool▁call▁begin｜>", Prompt: "<｜Assistant｜><think>\n"}, "Let me see.\n·</think>·\n\nBecause.", "Let me see.", "Because."},
		{handlerstest.Family{Name: "seed", Template: "<seed:tool_call>"}, "<seed:think>·Let me see.·</seed:think>·Because.", "Let me see.", "Because."},
		{handlerstest.Family{Name: "hermes", Template: "<tool_call>"}, "<think>\n\n</think>\n\n·Because.", "", "Because."},
		{handlerstest.Family{Name: "hermes", Template: "<tool_call>"}, "It ends with ·</think>·.", "", "It ends with </think>."},
		{handlerstest.Family{Name: "llama", Template: "<|python_tag|>", Controls: []string{"<|python_tag|>"}}, "<|python_tag|>·print(1)", "", "<|python_tag|>print(1)"},
	} {
		engine := handlerstest.NewScript()
		client := handlerstest.DialSocket(t, handlerstest.Serve(t, engine))
		client.Do("send", map[string]any{"text": "Why?"})
		answer := c.Writer(engine.Next(t))
		answer.Write(strings.Split(c.pieces, "·")...)
		answer.Finish()
		client.Until("the end", client.Ended)
		if got := client.Last(); got.Reasoning != c.reasoning || got.Text != c.text || got.HTML != markdown.Answer(t.Context(), c.reasoning, c.text) {
			t.Errorf("%s, %s: it is kept as %q and %q and shown as\n%s", c.Name, c.pieces, got.Reasoning, got.Text, got.HTML)
		}
	}
}
