package api

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
)

// maxToolName is the longest name of a tool in bytes, as Anthropic and the Model Context Protocol have it.
const maxToolName = 128

// maxEngineName is the longest one that the engine gets. Those that it gets are letters, digits, _ and -: formats
// in which models write calls, some of them Python, have names of such characters only.
const maxEngineName = 64

// toolNames translates the names of the tools of a request to those that the engine gets, and back. The nil
// value translates none.
type toolNames struct {
	engine map[string]string // by the client's names, of all tools
	client map[string]string // by the engine's names, those that differ
	text   map[string]bool   // the client's names of tools that take text
	single bool              // the client is from before there were tools: it has one function_call
}

// newToolNames returns the translation for offers, or an error if one of them is invalid.
func newToolNames(offers []offer) (*toolNames, error) {
	if len(offers) > maxTools {
		return nil, tooManyTools(len(offers))
	}
	n := &toolNames{engine: map[string]string{}, client: map[string]string{}, text: map[string]bool{}}
	taken := map[string]bool{}
	for i := range offers {
		o := &offers[i]
		if err := o.check(); err != nil {
			return nil, err
		}
		if n.offers(o.name) {
			return nil, fault.Invalid(o.where+".name", "%s has the name of another tool, %q", o.where, o.name)
		}
		n.engine[o.name] = ""
		if taken[o.name] = true; o.takesText {
			n.text[o.name] = true
		}
	}
	for i := range offers {
		name := offers[i].name
		plain := plainName(name)
		if plain != name && taken[plain] {
			plain = hashedName(name)
		}
		if taken[plain] = true; plain != name {
			n.client[plain] = name
		}
		n.engine[name] = plain
	}
	return n, nil
}

// isToolName reports whether a tool may be called name.
func isToolName(name string) bool {
	return name != "" && len(name) <= maxToolName && !strings.ContainsFunc(name, func(r rune) bool {
		return !isPlain(r) && !strings.ContainsRune("./:", r)
	})
}

func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// plainName returns name as the engine takes it.
func plainName(name string) string {
	if len(name) > maxEngineName {
		return hashedName(name)
	}
	return plainText(name)
}

// plainText replaces the characters that names in the engine cannot have.
func plainText(name string) string {
	return strings.Map(func(r rune) rune {
		if isPlain(r) {
			return r
		}
		return '_'
	}, name)
}

// hashedName returns the beginning of name with a hash of all of it.
func hashedName(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	const digits = 9 // and _
	plain := plainText(name)
	return fmt.Sprintf("%s_%s", plain[:min(len(plain), maxEngineName-digits)], hex.EncodeToString(h.Sum(nil)))
}

// offers reports whether the request has a tool that it calls name.
func (n *toolNames) offers(name string) bool {
	_, there := n.engine[name]
	return there
}

// engineName returns the engine's name of a tool. Those of earlier calls need not be among the tools.
func (n *toolNames) engineName(name string) string {
	if plain := n.engine[name]; plain != "" {
		return plain
	}
	return plainName(name)
}

// translate replaces the names of tools in a conversation.
func (n *toolNames) translate(messages []chat.Message) {
	for i := range messages {
		m := &messages[i]
		if m.Role == "tool" {
			m.Name = n.engineName(m.Name)
		}
		if len(m.ToolCalls) > 0 {
			m.ToolCalls = n.translateCalls(m.ToolCalls)
		}
	}
}

// translateCalls replaces the names in calls, which were checked. Calls without names that differ stay as they
// are.
func (n *toolNames) translateCalls(raw json.RawMessage) json.RawMessage {
	var calls []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var whole []map[string]json.RawMessage
	if json.Unmarshal(raw, &calls) != nil || json.Unmarshal(raw, &whole) != nil {
		return raw
	}
	changed := false
	for i, c := range calls {
		plain := n.engineName(c.Function.Name)
		if plain == c.Function.Name {
			continue
		}
		var function map[string]json.RawMessage
		if json.Unmarshal(whole[i]["function"], &function) != nil {
			continue
		}
		function["name"] = mustMarshal(plain)
		whole[i]["function"], changed = mustMarshal(function), true
	}
	if !changed {
		return raw
	}
	return mustMarshal(whole)
}

// restore gives the calls of an event the names that the client knows.
func (n *toolNames) restore(e *infer.Event) {
	if n == nil || len(n.client) == 0 {
		return
	}
	calls := func(list []reply.CallDelta) {
		for i := range list {
			if name, differs := n.client[list[i].Name]; differs {
				list[i].Name = name
			}
		}
	}
	if e.Token != nil {
		calls(e.Token.Calls)
	}
	if e.Done != nil {
		calls(e.Done.Calls)
	}
}
