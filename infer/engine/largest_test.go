package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
)

// toolsOf returns a definition of n tools with a text for each.
func toolsOf(n int, about string) json.RawMessage {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"type":"function","function":{"name":"tool%d","description":%q,"parameters":{"type":"object"}}}`, i, about))
	}
	return json.RawMessage("[" + strings.Join(list, ",") + "]")
}

func TestAPromptThatDoesNotFitNamesItsLargestPart(t *testing.T) {
	b := &bench{t: t, files: map[string][]byte{"guide": guide.Model}}
	b.openReady(Options{
		Catalog: catalog{b}, OpenDevice: func(*gguf.File) (device.Device, error) { return cpu.Open(0) }, Model: "guide", ContextLength: 256, QueueLimit: 10,
	})
	long := strings.Repeat("many words ", 200)
	short := func(role string) chat.Message { return chat.Message{Role: role, Content: "Hello"} }
	for name, c := range map[string]struct {
		set  func(r *infer.Request)
		part fault.Part
		says string
	}{
		"a system prompt": {func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "system", Content: long}, short("user")}
		}, fault.PartSystem, "are the system prompt: shorten that"},
		"a system prompt and a message that does not fit either": {func(r *infer.Request) {
			r.Messages = []chat.Message{{Role: "system", Content: long + long}, {Role: "user", Content: long}}
		}, fault.PartSystem, "are the system prompt: shorten that"},
		"tools": {func(r *infer.Request) {
			r.Messages, r.Tools = []chat.Message{short("system"), short("user")}, toolsOf(8, strings.Repeat("many words ", 20))
		}, fault.PartTools, "are the definitions of the tools: offer fewer"},
		"one tool with a long description": {func(r *infer.Request) {
			r.Messages, r.Tools = []chat.Message{short("user")}, toolsOf(1, long)
		}, fault.PartTools, "are the definitions of the tools: offer fewer"},
		"history": {func(r *infer.Request) {
			for range 20 {
				r.Messages = append(r.Messages, chat.Message{Role: "user", Content: "many words, many words"}, chat.Message{Role: "assistant", Content: "many words, many words"})
			}
			r.Messages = append(r.Messages, short("user"))
		}, fault.PartHistory, "are the messages before the last: leave out the oldest"},
		"the answer before": {func(r *infer.Request) {
			r.Messages = []chat.Message{short("system"), short("user"), {Role: "assistant", Content: long}, short("user")}
		}, fault.PartHistory, "are the messages before the last: leave out the oldest"},
		"the message": {func(r *infer.Request) {
			r.Messages = []chat.Message{short("system"), {Role: "user", Content: long}}
		}, fault.PartMessage, "for an answer: shorten it"},
		"a text": {func(r *infer.Request) { r.Prompt = long }, "", "for an answer: shorten it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := infer.DefaultRequest()
			c.set(&r)
			e, ok := errors.AsType[*fault.Error](b.ask(r).err)
			if !ok || e.Code != fault.CodeContext || e.Largest != c.part || !strings.Contains(e.Message, c.says) || e.ContextLength != 256 {
				t.Fatalf("got %+v", e)
			}
			if c.part != "" && (2*e.LargestTokens < e.PromptTokens || e.LargestTokens > e.PromptTokens) {
				t.Errorf("%d of %d tokens are of the part that takes most of the prompt", e.LargestTokens, e.PromptTokens)
			}
			if c.part != "" && c.part != fault.PartMessage && !strings.Contains(e.Message, fmt.Sprint(e.LargestTokens, " of them")) {
				t.Errorf("the error does not tell how many there are: %s", e.Message)
			}
			if view, err := b.Render(t.Context(), r); err != nil || view.Largest != e.Largest || view.LargestTokens != e.LargestTokens {
				t.Errorf("the preview has %s with %d tokens, %v", view.Largest, view.LargestTokens, err)
			}
		})
	}
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{short("system"), short("user")}
	if view, err := b.Render(t.Context(), r); err != nil || view.Largest != "" {
		t.Errorf("of a prompt that fits the preview names %q, %v", view.Largest, err)
	}
}

func TestPicturesThatDoNotFitAreNamed(t *testing.T) {
	b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), func(o *Options) { o.ContextLength = 16 })
	for n := 1; n <= 3; n++ {
		r := infer.DefaultRequest()
		r.Messages = []chat.Message{{Role: "user", Content: strings.Repeat(chat.PictureMark, n) + "a"}}
		for range n {
			r.Messages[0].Pictures = append(r.Messages[0].Pictures, readPicture(t, "wide.png"))
		}
		e, ok := errors.AsType[*fault.Error](b.ask(r).err)
		if !ok || e.Largest != fault.PartPictures || !strings.Contains(e.Message, "are pictures: send fewer, or in low detail") || e.LargestTokens >= e.PromptTokens {
			t.Errorf("got %+v", e)
		}
	}
}
