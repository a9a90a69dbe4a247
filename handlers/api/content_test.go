package api

import (
	"encoding/json"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/record"
)

func TestContent_DocumentsAreRead(t *testing.T) {
	const inner = `{"type":"document","source":{"type":"text","data":"inner"}}`
	for _, c := range []struct{ name, part, want, err string }{
		{"a document that is text has its title before it", `{"type":"document","title":"T","source":{"type":"text","data":"a"}}`, "T\na", ""},
		{"a document of parts has them as lines", `{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}`, "a\nb", ""},
		{"a search result has where it is from", `{"type":"search_result","title":"T","source":"place","content":[{"type":"text","text":"a"}]}`, "T\nplace\na", ""},
		{"an image in a document is named", `{"type":"document","source":{"type":"content","content":[{"type":"image"}]}}`, "[image: left out, the model cannot see images]", ""},
		{"a document in a document is not read", `{"type":"document","source":{"type":"content","content":[` + inner + `]}}`, "[document: left out, the model cannot read files]", ""},
		{"a document in a search result is not read", `{"type":"search_result","content":[` + inner + `]}`, "[document: left out, the model cannot read files]", ""},
		{"a part of a document whose text is a number is refused", `{"type":"document","source":{"type":"content","content":[{"type":"text","text":5}]}}`, "", "p[0].source.content[0].text must be a string, not a number"},
		{"a search result whose content is an object is refused", `{"type":"search_result","content":{}}`, "", "p[0].content must be a string, null or an array of parts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(where, got string, err error) {
				t.Helper()
				if got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s: got %q, %v, want %q, %q", where, got, err, c.want, c.err)
				}
			}
			got, err := joinParts(json.RawMessage("["+c.part+"]"), "p", resultPart)
			check("in a result", got, err)
			var block anthropicBlock
			if err := json.Unmarshal([]byte(c.part), &block); err != nil {
				t.Fatal(err)
			}
			text, err := block.addTo(nil, "user", "p[0]")
			check("in a message", strings.Join(text, "\n"), err)
		})
	}
}

func TestCompact_AnEmptySummaryIsAnError(t *testing.T) {
	for _, c := range []struct {
		name, text  string
		reason      infer.FinishReason
		contextFull bool
		err         string
	}{
		{"a summary is accepted", "s", infer.FinishStop, false, ""},
		{"a summary that was cut off is accepted", "s", infer.FinishLength, false, ""},
		{"no text within the limit is refused", " \n", infer.FinishLength, false, "max_output_tokens"},
		{"no text within the context is refused", "", infer.FinishLength, true, "context was full"},
		{"no text at all is refused", "", infer.FinishStop, false, "wrote no summary"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkSummary(answer{text: c.text, done: infer.Done{Answer: record.Answer{End: record.End{Reason: c.reason, ContextFull: c.contextFull}}}})
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}
