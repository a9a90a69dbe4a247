package stream

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/store"
	"m40-llm/web/lang"
)

// Pages of an earlier start of the server may still be open: a name that is taken away, or given
// twice, breaks them.
func TestAnAnswerHasItsFiguresUnderTheNamesOfTheProtocol(t *testing.T) {
	end := int32(2)
	full := live.Answer{
		Answer: store.Answer{
			Context: 9, Edited: true,
			Answer: record.Answer{
				End:     record.End{Reason: record.FinishLength, StopString: "#", EndToken: &end, EndProb: 0.5, ContextFull: true},
				Usage:   record.Usage{PromptTokens: 1, CachedTokens: 2, CompletionTokens: 3, ReasoningTokens: 4},
				Timings: record.Timings{Queue: 1500},
				Lookup:  record.Lookup{Drafted: 6, Accepted: 5},
				Receipt: record.Receipt{Model: "m", ModelHash: "h", TemplateHash: "t", Device: "d", Path: "p", CacheType: "c", Engine: "e"},
			},
		},
		Settings: setting.Default(), Error: &fault.Error{Code: fault.CodeInternal}, State: live.Failed, Rewritten: true, Progress: &live.Progress{}, Thinking: true,
	}
	data, err := json.Marshal(newAnswer(t.Context(), &full))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "name")   // they are for people,
	delete(got, "ending") // in words
	want := []string{
		"begun", "by_context", "cached_tokens", "context", "device", "edited", "end_prob", "end_token", "error", "lookup", "model", "progress", "prompt_tokens",
		"reason", "reasoning_tokens", "settings", "state", "stop_text", "thinking", "timings", "tokens",
	}
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
		t.Errorf("an answer has the fields %q, want %q", names, want)
	}
	for name, want := range map[string]string{
		"tokens": "3", "prompt_tokens": "1", "stop_text": `"#"`, "by_context": "true", "lookup": `{"drafted":6,"accepted":5}`, "model": `"m"`,
		"timings": `{"decode_ms":0,"first_ms":0,"load_ms":0,"prefill_ms":0,"queue_ms":0.002}`,
	} {
		if string(got[name]) != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}

func TestAnAnswerSaysInSentencesWhatTheChatTemplateRequired(t *testing.T) {
	for _, c := range []struct {
		notes []string
		want  string
	}{
		{nil, ""},
		{[]string{"the chat template takes one system message: those at the beginning are joined", "another thing"}, "The chat template takes one system message: those at the beginning are joined. Another thing."},
	} {
		a := live.Answer{Answer: store.Answer{Answer: record.Answer{Notes: c.notes}}, Settings: setting.Default(), State: live.Done}
		if got := newAnswer(t.Context(), &a).Notes; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestAnAnswersErrorAndNotesAreInThePagesLanguage(t *testing.T) {
	a := live.Answer{
		Answer:   store.Answer{Answer: record.Answer{Notes: []string{"the chat template takes one system message: those at the beginning are joined"}}},
		Settings: setting.Default(), State: live.Failed,
		Error: fault.Errorf(fault.CodeQueueFull, "the queue is full: %d requests are running or waiting; try again later", 9),
	}
	for language, want := range map[lang.Language][3]string{
		lang.English: {"The queue is full", "The queue is full: 9 requests are running or waiting; try again later.", "The chat template takes one system message: those at the beginning are joined."},
		lang.German:  {"Die Warteschlange ist voll", "Die Warteschlange ist voll: 9 Anfragen laufen oder warten; versuch es später noch einmal.", "Das Chat-Template erlaubt eine einzige Systemnachricht: Die am Anfang sind verbunden."},
	} {
		got := newAnswer(lang.With(t.Context(), language), &a)
		if says := [3]string{got.Error.Title, got.Error.Message, got.Notes}; says != want {
			t.Errorf("%s: got %q, want %q", language, says, want)
		}
	}
}
