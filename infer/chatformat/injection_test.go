package chatformat

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/chat"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/tokenizer"
)

// harmless stands alongside each special token that is put into a conversation.
const harmless = "§7q§"

// TestSpecialTokensAnywhereInAConversationStayText puts every special token of every
// reference vocabulary into everything that a caller can name: the content of each
// role, reasoning, names, ids, the names and arguments of tool calls, results of tools,
// definitions of tools, documents and variables. Rendered by every reference template
// and encoded, the prompt has the special tokens that it has with other text in those
// places, and no more.
func TestSpecialTokensAnywhereInAConversationStayText(t *testing.T) {
	templates := referenceTemplates(t)
	files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "tokenizers", "vocab"), "*.gguf"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d vocabularies, %v", len(files), err)
	}
	rendered := map[string]bool{}
	for v, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".gguf")
		t.Run(name, func(t *testing.T) {
			tok := openVocabulary(t, path)
			specials := specialTokens(t, tok)
			text := harmless
			for id := range specials {
				text += tok.Text(id) + harmless
			}
			passed, total := 0, 0
			for i, tmpl := range templates {
				if (i+v)%16 != 0 && !fixtures.Torture() {
					continue
				}
				for _, place := range []string{"messages", "tool calls", "everywhere"} {
					prompt, err := tmpl.RenderJSON(context.Background(), hostileConversation(t, text, place), chat.Options{BOSToken: "<s>", EOSToken: "</s>"})
					if err != nil {
						continue // the template refuses such a conversation
					}
					total++
					if checkPrompt(t, tok, specials, prompt) {
						passed++
						rendered[tmpl.Hash()] = true
					}
				}
			}
			fixtures.Row(t, "special tokens anywhere", name, passed, total)
		})
	}
	if len(rendered) < len(templates)*8/10 {
		t.Errorf("only %d of %d templates rendered one of the conversations", len(rendered), len(templates))
	}
}

func openVocabulary(t *testing.T, path string) *tokenizer.Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// specialTokens are those that come out of parsed text alone: control tokens, and
// user-defined ones that are written as such.
func specialTokens(t *testing.T, tok *tokenizer.Tokenizer) map[int32]bool {
	t.Helper()
	specials := map[int32]bool{}
	for id := range int32(tok.VocabSize()) {
		text := tok.Text(id)
		if text == "" || !tok.IsControl(id) && text[0] != '<' && text[0] != '[' {
			continue
		}
		is := func(parse bool) bool {
			ids, err := tok.Encode(context.Background(), text, tokenizer.Options{ParseSpecial: parse})
			if err != nil {
				t.Fatal(err)
			}
			return slices.Contains(ids, id)
		}
		if is(true) && !is(false) {
			specials[id] = true
		}
	}
	return specials
}

func referenceTemplates(t *testing.T) (templates []*chat.Template) {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "templates", "chat_templates.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Templates []struct{ Source string } `json:"templates"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	for _, source := range set.Templates {
		tmpl, err := chat.Parse(source.Source)
		if err != nil {
			t.Fatal(err)
		}
		templates = append(templates, tmpl)
	}
	return templates
}

// hostileConversation is a request with text in the places named.
func hostileConversation(t *testing.T, text, places string) []byte {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	bad := string(quoted)
	call := fmt.Sprintf(`{"id":"call00001","type":"function","function":{"name":%[1]s,"arguments":{%[1]s:[%[1]s,{"k":%[1]s}]}}}`, bad)
	tool := fmt.Sprintf(`{"type":"function","function":{"name":%[1]s,"description":%[1]s,"parameters":{"type":"object","properties":{%[1]s:{"type":"string","description":%[1]s,"enum":[%[1]s]}},"required":[%[1]s]}}}`, bad)
	switch places {
	case "messages":
		return fmt.Appendf(nil, `{"messages":[{"role":"user","content":%[1]s},{"role":"assistant","content":%[1]s},{"role":"user","content":%[1]s}],"tools":null,"documents":null,"add_generation_prompt":true}`, bad)
	case "tool calls":
		return fmt.Appendf(nil, `{"messages":[{"role":"user","content":%[1]s},{"role":"assistant","content":"","tool_calls":[%[2]s]},{"role":"tool","name":%[1]s,"tool_call_id":"call00001","content":%[1]s},{"role":"assistant","content":%[1]s}],"tools":[%[3]s],"documents":null,"add_generation_prompt":false}`, bad, call, tool)
	}
	return fmt.Appendf(nil, `{"messages":[{"role":"system","content":%[1]s},{"role":"user","name":%[1]s,"content":[{"type":"text","text":%[1]s}]},`+
		`{"role":"assistant","content":%[1]s,"reasoning_content":%[1]s,"thinking":%[1]s,"tool_calls":[%[2]s]},{"role":"tool","name":%[1]s,"tool_call_id":%[1]s,"content":%[1]s},{"role":"user","content":%[1]s}],`+
		`"tools":[%[3]s],"documents":[{"title":%[1]s,"text":%[1]s}],"add_generation_prompt":true,"enable_thinking":true,"reasoning_effort":%[1]s,"model_identity":%[1]s,"date_string":%[1]s,"builtin_tools":[%[1]s]}`, bad, call, tool)
}

// checkPrompt reports whether a prompt has the special tokens of its template and no
// others, and none of the caller's words outside of content.
func checkPrompt(t *testing.T, tok *tokenizer.Tokenizer, specials map[int32]bool, prompt chat.Prompt) bool {
	t.Helper()
	found := func(text func(chat.Span) string) (ids []int32) {
		var spans []tokenizer.Span
		for _, s := range prompt {
			spans = append(spans, tokenizer.Span{Text: text(s), ParseSpecial: !s.Content})
		}
		all, err := tok.EncodeSpans(context.Background(), spans, false)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(all, func(id int32) bool { return !specials[id] })
	}
	for _, s := range prompt {
		if !s.Content && strings.Contains(s.Text, harmless) {
			t.Errorf("the caller's words are the template's: %q", s.Text)
			return false
		}
	}
	got := found(func(s chat.Span) string { return s.Text })
	want := found(func(s chat.Span) string {
		if s.Content {
			return "x"
		}
		return s.Text
	})
	if !slices.Equal(got, want) {
		t.Errorf("%d special tokens, and %d with other content: %.300q", len(got), len(want), prompt.String())
		return false
	}
	return true
}
