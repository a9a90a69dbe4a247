package chatformat

import (
	"encoding/json"
	"maps"
	"time"

	"m40-llm/infer/chat"
)

// expected are the variables, other than messages, tools and tokens, that some template reads without
// asking whether they exist. The date has no time of day, which would give each request another
// beginning.
var expected = map[string]func(in chat.Input) string{
	"datetime": func(in chat.Input) string {
		now := in.Now
		if now.IsZero() {
			now = time.Now()
		}
		return now.Format("Jan 02 2006")
	},
	"functions": func(in chat.Input) string {
		if len(in.Tools) == 0 {
			return "[]"
		}
		return string(in.Tools)
	},
}

// variables returns the variables of in with those that the template expects.
func (p probe) variables(in chat.Input) map[string]json.RawMessage {
	vars := in.Vars
	for name, value := range expected {
		if _, given := vars[name]; given || !p.template.Uses(name) {
			continue
		}
		vars = maps.Clone(vars)
		if vars == nil {
			vars = map[string]json.RawMessage{}
		}
		vars[name], _ = json.Marshal(value(in)) // of a string: cannot fail
	}
	return vars
}
