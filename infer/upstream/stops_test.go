package upstream

import (
	"net/http"
	"testing"

	"m40-llm/infer"
)

func TestStopStringsBeyondThoseThatAnEngineTakesEndTheAnswerHere(t *testing.T) {
	four := []string{"1", "2", "3", "4"}
	for name, c := range map[string]struct {
		stop  []string
		words []string
		want  string
		at    string // the stop string; empty: the answer went on to its end
	}{
		"in one piece":                          {[]string{"lamp"}, []string{"The lamp burns"}, "The ", "lamp"},
		"over three pieces":                     {[]string{"lamp"}, []string{"The l", "am", "p burns"}, "The ", "lamp"},
		"the first of two in the text":          {[]string{"burns", "lamp"}, []string{"The lam", "p burns"}, "The ", "lamp"},
		"one that begins with another":          {[]string{"lamps", "lamp"}, []string{"The lamps"}, "The ", "lamps"},
		"a beginning that is none comes back":   {[]string{"lamp"}, []string{"The la", "d"}, "The lad", ""},
		"a beginning at the end comes back":     {[]string{"lamp"}, []string{"The lam"}, "The lam", ""},
		"one that repeats its beginning":        {[]string{"aab"}, []string{"a", "a", "a", "b", "c"}, "a", "aab"},
		"runes of several bytes":                {[]string{"é!"}, []string{"caf", "é", "?é", "!x"}, "café?", "é!"},
		"one of the four is left to the engine": {nil, []string{"a 1 b"}, "a 1 b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := vLLM().serve(t, func(w http.ResponseWriter, _ *http.Request, _ map[string]any) {
				data := []string{roleChunk}
				for _, text := range c.words {
					data = append(data, word(text))
				}
				stream(w, append(data, stopChunk, "[DONE]")...)
			})
			asked := question("Hi")
			asked.Stop = append(four[:4:4], c.stop...)
			got := write(t, routerTo(t, s), asked)
			if got.err != nil || got.text != c.want || got.done.Reason != infer.FinishStop || got.done.StopString != c.at {
				t.Errorf("got %q, %+v: %v", got.text, got.done, got.err)
			}
			if sent, _ := s.last()["stop"].([]any); len(sent) != 4 {
				t.Errorf("sent were the stop strings %v", sent)
			}
		})
	}
}
