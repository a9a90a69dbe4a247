package page

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// Programs that request an answer of a chat again through the API of docs/api.md, in three
// languages. They use only what is installed with each language.

// apiField is a field of a request to /v1/chat/completions or /v1/completions.
type apiField struct {
	name  string
	value any
}

// apiFields returns the fields of a request, the important ones first. It omits sampling
// parameters that have no effect, and would have none without the field: suggested are those that the
// loaded model's file suggests.
func apiFields(r infer.Request, suggested *sample.Suggestion) []apiField {
	fields := []apiField{{"model", r.Model}}
	if len(r.Messages) > 0 {
		messages := make([]apiMessage, len(r.Messages))
		for i, m := range r.Messages {
			messages[i] = apiMessage{m.Role, apiContent(m), m.ReasoningContent, m.ToolCalls, m.ToolCallID}
		}
		fields = append(fields, apiField{"messages", messages})
		if r.Continue {
			fields = append(fields, apiField{"continue_final_message", true})
		}
	} else {
		fields = append(fields, apiField{"prompt", r.Prompt})
	}
	p, defaults := r.Params, suggested.Apply(sample.DefaultParams(), sample.SuggestionNames())
	samplers := p.Samplers
	if len(samplers) == 0 && len(defaults.Samplers) > 0 {
		samplers = sample.StageNames()
	}
	for _, n := range sample.Numbers() {
		if !n.Idle(&p) || !n.Idle(&defaults) {
			fields = append(fields, apiField{n.Name, n.Get(&p)})
		}
	}
	for _, l := range []struct {
		name string
		list []string
		on   bool
	}{
		{"dry_sequence_breakers", p.DryBreakers, p.DryMultiplier > 0},
		{"samplers", samplers, len(samplers) > 0},
		{"stop", r.Stop, len(r.Stop) > 0},
		{"banned_strings", r.BannedStrings, len(r.BannedStrings) > 0},
	} {
		if l.on {
			fields = append(fields, apiField{l.name, append([]string{}, l.list...)})
		}
	}
	if len(p.LogitBias) > 0 {
		fields = append(fields, apiField{"logit_bias", p.LogitBias})
	}
	if len(r.JSONSchema) > 0 {
		fields = append(fields, apiField{"response_format", map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": r.JSONSchema}}})
	}
	if r.Grammar != "" {
		fields = append(fields, apiField{"grammar", r.Grammar})
	}
	if len(r.Tools) > 0 {
		fields = append(fields, apiField{"tools", r.Tools})
		if r.ToolChoice != "" {
			fields = append(fields, apiField{"tool_choice", r.ToolChoice})
		}
		fields = append(fields, apiField{"parallel_tool_calls", !r.SingleCall})
	}
	if len(r.TemplateVars) > 0 {
		fields = append(fields, apiField{"chat_template_kwargs", r.TemplateVars})
	}
	return append(fields, apiField{"max_tokens", r.MaxTokens}, apiField{"seed", p.Seed})
}

type apiMessage struct {
	Role      string `json:"role"`
	Content   any    `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`

	ToolCalls  json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// apiContent returns the content of a message: a text, or a list of parts if it has pictures.
func apiContent(m chat.Message) any {
	if len(m.Pictures) == 0 {
		return m.Content
	}
	parts := []any{}
	for i, data := range m.Pictures {
		url := "data:" + http.DetectContentType(data) + ";base64," + base64.StdEncoding.EncodeToString(data)
		image := map[string]string{"url": url}
		if d := m.DetailOf(i); d != chat.Full {
			image["detail"] = string(d)
		}
		parts = append(parts, map[string]any{"type": "image_url", "image_url": image})
	}
	if text := strings.ReplaceAll(m.Content, chat.PictureMark, ""); text != "" {
		parts = append(parts, map[string]any{"type": "text", "text": text})
	}
	return parts
}

// indented writes fields as a JSON object.
func indented(fields []apiField) (string, error) {
	var object, text bytes.Buffer
	for i, f := range fields {
		object.WriteString([]string{"{", ","}[min(i, 1)] + literal(f.name) + ":")
		encoder := json.NewEncoder(&object)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(f.value); err != nil {
			return "", err
		}
	}
	object.WriteString("}")
	err := json.Indent(&text, object.Bytes(), "", "  ")
	return text.String(), err
}

// apiCall is a request that a program sends.
type apiCall struct {
	url    string
	body   string   // JSON
	field  []string // path of the answer's text in the first choice of the response
	secret bool     // whether the server requires its API key
}

func newAPICall(origin string, r infer.Request, suggested *sample.Suggestion, secret bool) (apiCall, error) {
	call := apiCall{url: origin + "/v1/completions", field: []string{"text"}, secret: secret}
	if len(r.Messages) > 0 {
		call.url, call.field = origin+"/v1/chat/completions", []string{"message", "content"}
	}
	var err error
	call.body, err = indented(apiFields(r, suggested))
	return call, err
}

// keyVariable is the environment variable from which the programs read the API key.
const keyVariable = "M40_LLM_API_KEY"

// programs are the functions that write a call as a program, by language.
var programs = map[string]func(apiCall) string{"curl": apiCall.curl, "python": apiCall.python, "javascript": apiCall.javascript}

// curl passes the body as a quoted here-document: the shell expands nothing in it, no line of
// JSON can end it, and it may be longer than an argument.
func (a apiCall) curl() string {
	var b strings.Builder
	fmt.Fprintf(&b, "curl %s \\\n  -H 'Content-Type: application/json' \\\n", shellQuote(a.url))
	if a.secret {
		fmt.Fprintf(&b, "  -H \"Authorization: Bearer $%s\" \\\n", keyVariable)
	}
	fmt.Fprintf(&b, "  --data-binary @- <<'JSON'\n%s\nJSON\n", a.body)
	return b.String()
}

// jsonWord matches the values of indented JSON that Python calls otherwise.
var jsonWord = regexp.MustCompile(`(?m)(: |^ *)(true|false|null),?$`)

func (a apiCall) python() string {
	var b strings.Builder
	b.WriteString("import json\n")
	if a.secret {
		b.WriteString("import os\n")
	}
	b.WriteString("import urllib.request\n\n")
	if jsonWord.MatchString(a.body) {
		b.WriteString("true, false, null = True, False, None\n")
	}
	fmt.Fprintf(&b, "body = %s\n\nrequest = urllib.request.Request(\n    %s,\n    data=json.dumps(body).encode(),\n    headers={\n", a.body, literal(a.url))
	b.WriteString("        \"Content-Type\": \"application/json\",\n")
	if a.secret {
		fmt.Fprintf(&b, "        \"Authorization\": \"Bearer \" + os.environ[%q],\n", keyVariable)
	}
	fmt.Fprintf(&b, "    },\n)\nwith urllib.request.urlopen(request) as response:\n    print(json.load(response)[\"choices\"][0][\"%s\"])\n", strings.Join(a.field, "\"][\""))
	return b.String()
}

// javascript is for Node.js and browsers. "</" is escaped, because "</script>" in a string
// would end the script of a page.
func (a apiCall) javascript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "const body = %s\n\nfetch(%s, {\n  method: 'POST',\n  headers: {\n    'Content-Type': 'application/json',\n", strings.ReplaceAll(a.body, "</", `<\/`), literal(a.url))
	if a.secret {
		fmt.Fprintf(&b, "    Authorization: `Bearer ${process.env.%s}`,\n", keyVariable)
	}
	fmt.Fprintf(&b, "  },\n  body: JSON.stringify(body),\n})\n  .then(response => response.json())\n  .then(answer => console.log(answer.choices[0].%s))\n", strings.Join(a.field, "."))
	return b.String()
}

func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// literal returns text as a string literal of Python and of JavaScript.
func literal(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail
	return string(quoted)
}

// answerCode answers GET /c/:id/code/:answer?as=curl|python|javascript.
func (h *Handlers) answerCode(c echo.Context) error {
	language, known := programs[c.QueryParam("as")]
	if !known {
		return fault.Invalid("as", "as is %q, but must be curl, python or javascript", httpio.Shorten(c.QueryParam("as")))
	}
	chat, answer, err := h.answerOf(c)
	if err != nil {
		return err
	}
	request, err := chat.Recipe(c.Request().Context(), principal(c), answer)
	if err != nil {
		return err
	}
	call, err := newAPICall(gate.OwnAddress(c), request, h.Live.Status().Model.Sampling, h.Gate.RequiresKey())
	if err != nil {
		return err
	}
	return c.String(http.StatusOK, language(call))
}
