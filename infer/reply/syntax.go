package reply

import (
	"slices"
	"strings"
)

// Syntax is the syntax of calls and reasoning of a model family. It is immutable and safe for
// concurrent use.
type Syntax struct {
	Name           string
	textMarkers    []*marker          // markers that are found in text
	controlMarkers map[string]*marker // markers that are control tokens
	byFirstByte    [256][]*marker     // textMarkers by their first byte
	familyTag      Tag                // the family's own tags of reasoning, in addition to tags
	Tag            Tag                // the tags between which the model is expected to think; empty for harmony, which has a channel
	callFormat     callFormat

	bareReader      func(first byte) callReader // reads calls without a marker, with which a reply begins; nil: there are none
	opensCall       func(prompt string) bool    // the prompt ends inside of a call's marker
	newOpenedReader func() callReader           // reads what follows then
	harmony         bool
}

// family is the declaration of a syntax.
type family struct {
	name            string
	matches         func(template string) bool
	markers         []marker
	tag             Tag
	bareReader      func(first byte) callReader
	opensCall       func(prompt string) bool
	newOpenedReader func() callReader
	harmony         bool
}

// contains returns a function that reports whether a template contains all of texts.
func contains(texts ...string) func(string) bool {
	return func(template string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(template, text) })
	}
}

// Shapes of calls in JSON.
var (
	oneCall      = shape{}
	oneOrMore    = shape{lists: true}
	listWithIDs  = shape{lists: true, onlyLists: true, idLast: true, modelIDs: true}
	listOfNamed  = shape{lists: true, onlyLists: true, nameAsKey: true}
	strictObject = shape{noOtherMembers: true}
)

// jsonOr returns a reader of calls in JSON, or other if the text is not JSON.
func jsonOr(s shape, other func() callReader) func() callReader {
	return byFirst(func(b byte) callReader {
		if b == '{' || b == '[' {
			return readJSON(s)()
		}
		return other()
	})
}

// recipient is the line before a message of functionary: the name of a tool, or all for content.
var recipient = nameFormat{nameEnd: '\n', content: "all"}

func readPython() callReader { return &pythonCalls{} }

// llamaBare returns the reader of calls without a marker at the start of a reply; nil if b
// does not begin one.
func llamaBare(b byte) callReader {
	switch b {
	case '{':
		return readJSON(strictObject)()
	case '[':
		return readPython()
	}
	return nil
}

// families are the known syntaxes. Detect uses the first that matches.
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
			{text: "<|tool_calls_section_begin|>", role: wrapsCalls},
			{text: "<|tool_call_begin|>", role: opensCall, newReader: readNamed(nameFormat{argsMark: "<|tool_call_argument_begin|>", numbered: true})},
			{text: "<|tool_call_argument_begin|>", role: endsOther},
			{text: "<|tool_call_end|>", role: closesCall},
			{text: "<|tool_calls_section_end|>", role: closesCall},
		},
	},
	{
		name:    "deepseek",
		matches: contains("<｜tool▁call▁begin｜>"),
		markers: []marker{
			{text: "<｜tool▁calls▁begin｜>", role: wrapsCalls},
			{text: "<｜tool▁call▁begin｜>", role: opensCall, newReader: readNamed(nameFormat{argsMark: "<｜tool▁sep｜>", fenced: true})},
			{text: "<｜tool▁sep｜>", role: endsOther},
			{text: "```", role: closesCall},
			{text: "<｜tool▁call▁end｜>", role: closesCall},
			{text: "<｜tool▁calls▁end｜>", role: closesCall},
		},
	},
	{
		name:    "dsml",
		matches: contains(dsml),
		markers: []marker{
			{text: "<" + dsml + "function_calls>", role: opensCall, newReader: readBlock(block{close: "</" + dsml + "function_calls>", parse: parseDSML})},
			{text: "<" + dsml + "tool_calls>", role: opensCall, newReader: readBlock(block{close: "</" + dsml + "tool_calls>", parse: parseDSML})},
			{text: "</" + dsml + "function_calls>", role: closesCall},
			{text: "</" + dsml + "tool_calls>", role: closesCall},
		},
	},
	{
		name:    "mistral",
		matches: contains("[TOOL_CALLS]"),
		markers: []marker{
			{text: "[TOOL_CALLS]", role: opensCall, newReader: byFirst(func(b byte) callReader {
				if b == '[' || b == '{' {
					return readJSON(listWithIDs)()
				}
				return readNamed(nameFormat{idMark: "[CALL_ID]", argsMark: "[ARGS]", brace: true})()
			})},
			{text: "[CALL_ID]", role: endsOther},
			{text: "[ARGS]", role: endsOther},
		},
	},
	{
		name:    "command-r7b",
		matches: contains("<|START_ACTION|>"),
		markers: []marker{
			{text: "<|START_ACTION|>", role: opensCall, newReader: readJSON(oneOrMore)},
			{text: "<|END_ACTION|>", role: closesCall},
			{text: "<|START_RESPONSE|>", role: ignored},
			{text: "<|END_RESPONSE|>", role: ignored},
			{text: "<|START_TEXT|>", role: ignored},
			{text: "<|END_TEXT|>", role: ignored},
		},
	},
	{
		name:    "command-r",
		matches: contains("Action:", "```json", "tool_name"),
		markers: []marker{
			{text: "Action:\n```json", role: opensCall, newReader: readJSON(oneOrMore)},
			{text: "Action: ```json", role: opensCall, newReader: readJSON(oneOrMore)},
			{text: "```", role: closesCall},
		},
	},
	{
		name:    "gemma",
		matches: contains("<|tool_call>"),
		markers: []marker{
			{text: "<|tool_call>", role: opensCall, newReader: readBlock(block{close: "<tool_call|>", quote: `<|"|>`, parse: parseGemma(`<|"|>`)})},
			{text: "<tool_call|>", role: closesCall},
			{text: `<|"|>`, role: endsOther},
		},
	},
	{
		name:    "functiongemma",
		matches: contains("<start_function_call>"),
		markers: []marker{
			{text: "<start_function_call>", role: opensCall, newReader: readBlock(block{close: "<end_function_call>", quote: "<escape>", parse: parseGemma("<escape>")})},
			{text: "<end_function_call>", role: closesCall},
			{text: "<escape>", role: endsOther},
		},
	},
	{
		name:    "apertus",
		matches: contains("<|tools_prefix|>"),
		markers: []marker{
			{text: "<|tools_prefix|>", role: opensCall, newReader: readJSON(listOfNamed)},
			{text: "<|tools_suffix|>", role: closesCall},
		},
	},
	{
		name:    "lfm2",
		matches: contains("<|tool_call_start|>"),
		markers: []marker{
			{text: "<|tool_call_start|>", role: opensCall, newReader: readBlock(block{close: "<|tool_call_end|>", parse: parsePythonOrJSON})},
			{text: "<|tool_call_end|>", role: closesCall},
		},
	},
	{
		name:    "granite",
		matches: contains("<|tool_call|>"),
		markers: []marker{
			{text: "<|tool_call|>", role: opensCall, newReader: readJSON(oneOrMore)},
			{text: "<|/tool_call|>", role: closesCall},
		},
	},
	{
		name:    "gigachat",
		matches: contains("<|function_call|>"),
		markers: []marker{{text: "<|function_call|>", role: opensCall, newReader: readJSON(oneCall)}},
	},
	{
		name:    "gigachat-3",
		matches: contains("function call", "<|role_sep|>"),
		markers: []marker{
			{text: "<|message_sep|>\n\nfunction call<|role_sep|>", role: opensCall, newReader: readJSON(oneCall)},
			{text: "<|message_sep|>", role: ignored},
		},
	},
	{
		name:    "seed",
		matches: contains("<seed:tool_call>"),
		markers: []marker{
			{text: "<seed:tool_call>", role: opensCall, newReader: readBlock(block{close: "</seed:tool_call>", parse: parseXML})},
			{text: "</seed:tool_call>", role: closesCall},
		},
	},
	{
		name:    "apriel",
		matches: contains("<tool_calls>["),
		markers: []marker{
			{text: "<tool_calls>", role: opensCall, newReader: readJSON(listWithIDs)},
			{text: "</tool_calls>", role: closesCall},
		},
		tag: Tag{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
	},
	{
		name:    "functools",
		matches: contains("functools["),
		markers: []marker{{text: "functools", role: opensCall, newReader: readJSON(shape{lists: true, onlyLists: true})}},
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
			{text: ">>>", role: opensCall, newReader: readNamed(recipient)},
		},
		opensCall:       func(prompt string) bool { return strings.HasSuffix(prompt, ">>>") },
		newOpenedReader: readNamed(recipient),
	},
	{
		name: "llama",
		matches: func(template string) bool {
			return strings.Contains(template, "<|python_tag|>") || strings.Contains(template, "<|eom_id|>") ||
				strings.Contains(template, `"parameters": dictionary of argument name and its value`) ||
				strings.Contains(template, "[func_name1(")
		},
		markers:    []marker{{text: "<|python_tag|>", role: opensCall, newReader: jsonOr(oneCall, readPython)}},
		bareReader: llamaBare,
	},
}

var hermesMarkers = []marker{
	{text: "<tool_call>", role: opensCall, newReader: jsonOr(oneOrMore, readBlock(block{close: "</tool_call>", parse: parseToolCall}))},
	{text: "</tool_call>", role: closesCall},
}

var functionMarkers = []marker{
	{text: "<function=", role: opensCall, newReader: readFunction},
	{text: "</function>", role: closesCall},
}

// generic is the syntax for models whose template does not support tools; their prompt
// describes it. It also reads the code blocks in which Gemma 2 and 3 often write calls.
var generic = family{
	name: "generic",
	markers: append(slices.Clone(hermesMarkers),
		marker{text: "```tool_code", role: opensCall, newReader: readBlock(block{close: "```", parse: parsePython})},
		marker{text: "```tool_call", role: opensCall, newReader: jsonOr(oneOrMore, readBlock(block{close: "```", parse: parsePython}))},
		marker{text: "```", role: closesCall},
	),
}

// Detect returns the syntax of a chat template, or of the vocabulary if the source of the
// template shows no calls. takesTools is set if the template supports tools; otherwise the
// prompt describes them, and calls in the form of Example are read too. control reports
// whether the vocabulary has a control token with a text; text that spells one is not a
// marker.
func Detect(template string, takesTools bool, control func(text string) bool) *Syntax {
	i := slices.IndexFunc(families, func(f family) bool { return f.matches(template) })
	if i < 0 && takesTools {
		i = slices.IndexFunc(families, func(f family) bool {
			return slices.ContainsFunc(f.markers, func(m marker) bool { return m.role == opensCall && control(m.text) })
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
		Name:            f.name,
		controlMarkers:  map[string]*marker{},
		familyTag:       f.tag,
		Tag:             tagOf(f, template, control),
		callFormat:      callFormats[f.name](template),
		bareReader:      f.bareReader,
		opensCall:       f.opensCall,
		newOpenedReader: f.newOpenedReader,
		harmony:         f.harmony,
	}
	all := slices.Clone(f.markers)
	if contains(frame.Open, frame.Close)(template) {
		all = append(all, marker{text: frame.Open, role: opensFrame, close: frame.Close}, marker{text: frame.Close, role: endsOther})
	}
	if !f.harmony {
		for _, t := range append(slices.Clone(tags), f.tag) {
			if t.Open != "" {
				all = append(all, marker{text: t.Open, role: opensReasoning, close: t.Close}, marker{text: t.Close, role: endsOther})
			}
		}
	}
	for i := range all {
		m := &all[i]
		if m.control = control(m.text); m.control {
			syntax.controlMarkers[m.text] = m
			continue
		}
		syntax.textMarkers = append(syntax.textMarkers, m)
		syntax.byFirstByte[m.text[0]] = append(syntax.byFirstByte[m.text[0]], m)
	}
	return syntax
}

// readFunction reads what follows <function= up to its end.
func readFunction() callReader {
	return &block{buffer: []byte("<function="), close: "</function>", parse: func(p *Parser, text string) []parsedCall {
		return parseXML(p, text+"</function>")
	}}
}

func parsePythonOrJSON(p *Parser, text string) []parsedCall {
	if calls := parsePython(p, text); calls != nil {
		return calls
	}
	return parseJSON(text)
}

// Example returns a call in the form that the prompt describes to models whose template does
// not support tools.
func Example(name, arguments string) string {
	return "<tool_call>\n{\"name\": " + quote(name) + ", \"arguments\": " + arguments + "}\n</tool_call>"
}
