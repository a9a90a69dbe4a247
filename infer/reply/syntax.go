package reply

import (
	"slices"
	"strings"
)

// Syntax is how a model family writes calls and thoughts. It does not change and can be
// used by several goroutines.
type Syntax struct {
	Name     string
	texts    []*marker          // found in text
	controls map[string]*marker // control tokens
	first    [256][]*marker     // texts by their first byte
	tag      Tag                // of thoughts, beside those of all families
	Tag      Tag                // between which the model is taken to think; empty: harmony has a channel for it
	writing  writing

	bare    func(first byte) body    // reads calls without a marker, with which a reply begins; nil: there are none
	opened  func(prompt string) bool // the prompt ends inside of a call's marker
	begins  func() body              // reads what follows then
	harmony bool
}

// family describes a syntax.
type family struct {
	name    string
	matches func(template string) bool
	markers []marker
	tag     Tag
	bare    func(first byte) body
	opened  func(prompt string) bool
	begins  func() body
	harmony bool
}

// contains returns a test for templates that have all of texts.
func contains(texts ...string) func(string) bool {
	return func(template string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(template, text) })
	}
}

// Shapes of calls in JSON.
var (
	oneCall      = shape{}
	oneOrMore    = shape{list: true}
	listWithIDs  = shape{list: true, only: true, lateID: true, hasID: true}
	listOfNamed  = shape{list: true, only: true, named: true}
	strictObject = shape{strict: true}
)

// jsonOr returns a reader of calls in JSON, or of what else can stand there.
func jsonOr(s shape, other func() body) func() body {
	return byFirst(func(b byte) body {
		if b == '{' || b == '[' {
			return readJSON(s)()
		}
		return other()
	})
}

// recipient is functionary's line in front of arguments, or of what everybody may read.
var recipient = naming{nameEnd: '\n', content: "all"}

func readPython() body { return &pythonCalls{} }

// llamaBare reads calls with which a reply begins.
func llamaBare(b byte) body {
	switch b {
	case '{':
		return readJSON(strictObject)()
	case '[':
		return readPython()
	}
	return nil
}

// families are tried in this order: the first that matches is used.
var families = []family{
	{
		name:    "harmony",
		matches: contains("<|channel|>", "<|message|>", "<|start|>"),
		markers: harmonyMarkers,
		harmony: true,
	},
	{
		name:    "kimi",
		matches: contains("<|tool_call_argument_begin|>"),
		markers: []marker{
			{text: "<|tool_calls_section_begin|>", role: wraps},
			{text: "<|tool_call_begin|>", role: opens, body: readNamed(naming{argsMark: "<|tool_call_argument_begin|>", numbered: true})},
			{text: "<|tool_call_argument_begin|>", role: ends},
			{text: "<|tool_call_end|>", role: closes},
			{text: "<|tool_calls_section_end|>", role: closes},
		},
	},
	{
		name:    "deepseek",
		matches: contains("<｜tool▁call▁begin｜>"),
		markers: []marker{
			{text: "<｜tool▁calls▁begin｜>", role: wraps},
			{text: "<｜tool▁call▁begin｜>", role: opens, body: readNamed(naming{argsMark: "<｜tool▁sep｜>", fenced: true})},
			{text: "<｜tool▁sep｜>", role: ends},
			{text: "```", role: closes},
			{text: "<｜tool▁call▁end｜>", role: closes},
			{text: "<｜tool▁calls▁end｜>", role: closes},
		},
	},
	{
		name:    "dsml",
		matches: contains(dsml),
		markers: []marker{
			{text: "<" + dsml + "function_calls>", role: opens, body: readBlock(block{close: "</" + dsml + "function_calls>", parse: parseDSML})},
			{text: "<" + dsml + "tool_calls>", role: opens, body: readBlock(block{close: "</" + dsml + "tool_calls>", parse: parseDSML})},
			{text: "</" + dsml + "function_calls>", role: closes},
			{text: "</" + dsml + "tool_calls>", role: closes},
		},
	},
	{
		name:    "mistral",
		matches: contains("[TOOL_CALLS]"),
		markers: []marker{
			{text: "[TOOL_CALLS]", role: opens, body: byFirst(func(b byte) body {
				if b == '[' || b == '{' {
					return readJSON(listWithIDs)()
				}
				return readNamed(naming{idMark: "[CALL_ID]", argsMark: "[ARGS]", brace: true})()
			})},
			{text: "[CALL_ID]", role: ends},
			{text: "[ARGS]", role: ends},
		},
	},
	{
		name:    "command-r7b",
		matches: contains("<|START_ACTION|>"),
		markers: []marker{
			{text: "<|START_ACTION|>", role: opens, body: readJSON(oneOrMore)},
			{text: "<|END_ACTION|>", role: closes},
			{text: "<|START_RESPONSE|>", role: skips},
			{text: "<|END_RESPONSE|>", role: skips},
			{text: "<|START_TEXT|>", role: skips},
			{text: "<|END_TEXT|>", role: skips},
		},
	},
	{
		name:    "command-r",
		matches: contains("Action:", "```json", "tool_name"),
		markers: []marker{
			{text: "Action:\n```json", role: opens, body: readJSON(oneOrMore)},
			{text: "Action: ```json", role: opens, body: readJSON(oneOrMore)},
			{text: "```", role: closes},
		},
	},
	{
		name:    "gemma",
		matches: contains("<|tool_call>"),
		markers: []marker{
			{text: "<|tool_call>", role: opens, body: readBlock(block{close: "<tool_call|>", quote: `<|"|>`, parse: parseGemma(`<|"|>`)})},
			{text: "<tool_call|>", role: closes},
			{text: `<|"|>`, role: ends},
		},
	},
	{
		name:    "functiongemma",
		matches: contains("<start_function_call>"),
		markers: []marker{
			{text: "<start_function_call>", role: opens, body: readBlock(block{close: "<end_function_call>", quote: "<escape>", parse: parseGemma("<escape>")})},
			{text: "<end_function_call>", role: closes},
			{text: "<escape>", role: ends},
		},
	},
	{
		name:    "apertus",
		matches: contains("<|tools_prefix|>"),
		markers: []marker{
			{text: "<|tools_prefix|>", role: opens, body: readJSON(listOfNamed)},
			{text: "<|tools_suffix|>", role: closes},
		},
	},
	{
		name:    "lfm2",
		matches: contains("<|tool_call_start|>"),
		markers: []marker{
			{text: "<|tool_call_start|>", role: opens, body: readBlock(block{close: "<|tool_call_end|>", parse: parsePythonOrJSON})},
			{text: "<|tool_call_end|>", role: closes},
		},
	},
	{
		name:    "granite",
		matches: contains("<|tool_call|>"),
		markers: []marker{
			{text: "<|tool_call|>", role: opens, body: readJSON(oneOrMore)},
			{text: "<|/tool_call|>", role: closes},
		},
	},
	{
		name:    "gigachat",
		matches: contains("<|function_call|>"),
		markers: []marker{{text: "<|function_call|>", role: opens, body: readJSON(oneCall)}},
	},
	{
		name:    "gigachat-3",
		matches: contains("function call", "<|role_sep|>"),
		markers: []marker{
			{text: "<|message_sep|>\n\nfunction call<|role_sep|>", role: opens, body: readJSON(oneCall)},
			{text: "<|message_sep|>", role: skips},
		},
	},
	{
		name:    "seed",
		matches: contains("<seed:tool_call>"),
		markers: []marker{
			{text: "<seed:tool_call>", role: opens, body: readBlock(block{close: "</seed:tool_call>", parse: parseXML})},
			{text: "</seed:tool_call>", role: closes},
		},
	},
	{
		name:    "apriel",
		matches: contains("<tool_calls>["),
		markers: []marker{
			{text: "<tool_calls>", role: opens, body: readJSON(listWithIDs)},
			{text: "</tool_calls>", role: closes},
		},
		tag: Tag{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
	},
	{
		name:    "functools",
		matches: contains("functools["),
		markers: []marker{{text: "functools", role: opens, body: readJSON(shape{list: true, only: true})}},
	},
	{
		name:    "hermes",
		matches: contains("<tool_call>"),
		markers: append(slices.Clone(hermesMarkers), functionMarkers...),
	},
	{
		name:    "functionary",
		matches: contains("<function="),
		markers: functionMarkers,
	},
	{
		name:    "functionary-3.2",
		matches: contains(">>>", "recipient"),
		markers: []marker{
			{text: ">>>", role: opens, body: readNamed(recipient)},
		},
		opened: func(prompt string) bool { return strings.HasSuffix(prompt, ">>>") },
		begins: readNamed(recipient),
	},
	{
		name: "llama",
		matches: func(template string) bool {
			return strings.Contains(template, "<|python_tag|>") || strings.Contains(template, "<|eom_id|>") ||
				strings.Contains(template, `"parameters": dictionary of argument name and its value`) ||
				strings.Contains(template, "[func_name1(")
		},
		markers: []marker{{text: "<|python_tag|>", role: opens, body: jsonOr(oneCall, readPython)}},
		bare:    llamaBare,
	},
}

var hermesMarkers = []marker{
	{text: "<tool_call>", role: opens, body: jsonOr(oneOrMore, readBlock(block{close: "</tool_call>", parse: parseToolCall}))},
	{text: "</tool_call>", role: closes},
}

var functionMarkers = []marker{
	{text: "<function=", role: opens, body: readFunction},
	{text: "</function>", role: closes},
}

// generic is the syntax that models are told of whose template knows no tools. It also
// reads the blocks of code in which Gemma 2 and 3 like to write calls.
var generic = family{
	name: "generic",
	markers: append(slices.Clone(hermesMarkers),
		marker{text: "```tool_code", role: opens, body: readBlock(block{close: "```", parse: parsePython})},
		marker{text: "```tool_call", role: opens, body: jsonOr(oneOrMore, readBlock(block{close: "```", parse: parsePython}))},
		marker{text: "```", role: closes},
	),
}

// Detect finds the syntax in the source of a chat template, or, if that shows no call, in
// the vocabulary. takesTools reports whether the template takes tools; if not, the model
// is told of them by a prompt, and calls as in Example are read too. control reports
// whether the vocabulary has a control token of a spelling: text that spells one is no
// marker.
func Detect(template string, takesTools bool, control func(text string) bool) *Syntax {
	i := slices.IndexFunc(families, func(f family) bool { return f.matches(template) })
	if i < 0 && takesTools {
		i = slices.IndexFunc(families, func(f family) bool {
			return slices.ContainsFunc(f.markers, func(m marker) bool { return m.role == opens && control(m.text) })
		})
	}
	if i < 0 {
		return newSyntax(generic, template, control)
	}
	f := families[i]
	if !takesTools && !f.harmony && f.name != "hermes" {
		f.markers = slices.Concat(f.markers, hermesMarkers)
	}
	return newSyntax(f, template, control)
}

func newSyntax(f family, template string, control func(text string) bool) *Syntax {
	syntax := &Syntax{
		Name:     f.name,
		controls: map[string]*marker{},
		tag:      f.tag,
		Tag:      tagOf(f, template, control),
		writing:  writings[f.name](template),
		bare:     f.bare,
		opened:   f.opened,
		begins:   f.begins,
		harmony:  f.harmony,
	}
	all := slices.Clone(f.markers)
	if contains(frame.Open, frame.Close)(template) {
		all = append(all, marker{text: frame.Open, role: frames, close: frame.Close}, marker{text: frame.Close, role: ends})
	}
	if !f.harmony {
		for _, t := range append(slices.Clone(tags), f.tag) {
			if t.Open != "" {
				all = append(all, marker{text: t.Open, role: thinks, close: t.Close}, marker{text: t.Close, role: ends})
			}
		}
	}
	for i := range all {
		m := &all[i]
		if m.control = control(m.text); m.control {
			syntax.controls[m.text] = m
			continue
		}
		syntax.texts = append(syntax.texts, m)
		syntax.first[m.text[0]] = append(syntax.first[m.text[0]], m)
	}
	return syntax
}

// readFunction reads what follows <function= up to its end.
func readFunction() body {
	return &block{held: []byte("<function="), close: "</function>", parse: func(p *Parser, text string) []written {
		return parseXML(p, text+"</function>")
	}}
}

func parsePythonOrJSON(p *Parser, text string) []written {
	if calls := parsePython(p, text); calls != nil {
		return calls
	}
	return parseJSON(text)
}

// Example returns a call as a prompt tells a model to write it whose template knows no
// tools.
func Example(name, arguments string) string {
	return "<tool_call>\n{\"name\": " + quote(name) + ", \"arguments\": " + arguments + "}\n</tool_call>"
}
