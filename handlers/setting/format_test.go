package setting

import (
	"errors"
	"strings"
	"testing"

	"m40-llm/infer/fault"
)

func TestAnOutputFormatSaysWhatIsWrongAndWhere(t *testing.T) {
	for _, c := range []struct {
		format OutputFormat
		want   string
	}{
		{OutputFormat{Type: OutputSchema, Schema: "{\n  \"type\": object\n}"}, "line 2"},
		{OutputFormat{Type: OutputSchema, Schema: `{"properties":{"a":{"type":"string","pattern":"("}}}`}, "#/properties/a"},
		{OutputFormat{Type: OutputSchema, Schema: `{"type":"object","properties":{"a":{"type":"array","contains":{"type":"null"}}}}`}, "#/properties/a"},
		{OutputFormat{Type: OutputGrammar, Grammar: "root ::= a\n\nb ::= \"b\""}, "a"},
		{OutputFormat{Type: OutputGrammar, Grammar: "root ::= \"a\"\nb ::= ]"}, "line 2"},
	} {
		err := c.format.validate()
		if wrong, ok := errors.AsType[*fault.Error](err); !ok || wrong.Param != "output_format" || !strings.Contains(wrong.Message, c.want) {
			t.Errorf("%+v: %v, want an error about %q", c.format, err, c.want)
		}
	}
}
