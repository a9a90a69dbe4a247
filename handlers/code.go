package handlers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/infer"
)

// Programs that ask for an answer of a chat: the request as docs/api.md describes it,
// in three languages. They need nothing that is not installed with them.

// apiBody is a request to /v1/chat/completions or /v1/completions. It holds no true,
// false or null, so that its JSON is Python too.
type apiBody struct {
	Model    string       `json:"model"`
	Messages []apiMessage `json:"messages,omitempty"`
	Prompt   string       `json:"prompt,omitempty"`

	Temperature      float64           `json:"temperature"`
	TopK             int               `json:"top_k"`
	TopP             float64           `json:"top_p"`
	MinP             float64           `json:"min_p"`
	TypicalP         float64           `json:"typical_p"`
	RepeatPenalty    float64           `json:"repeat_penalty"`
	RepeatLastN      int               `json:"repeat_last_n"`
	PresencePenalty  float64           `json:"presence_penalty"`
	FrequencyPenalty float64           `json:"frequency_penalty"`
	LogitBias        map[int32]float64 `json:"logit_bias,omitempty"`
	Stop             []string          `json:"stop,omitempty"`
	MaxTokens        int               `json:"max_tokens"`
	Seed             int64             `json:"seed"`
}

type apiMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// apiCall is what a program sends, and where the answer is in what comes back.
type apiCall struct {
	url    string
	body   string // JSON
	field  []string
	secret bool // the server asks for its key
}

func newAPICall(origin string, r infer.Request, secret bool) (apiCall, error) {
	p := r.Params
	body := apiBody{
		Model: r.Model, Prompt: r.Prompt,
		Temperature: p.Temperature, TopK: p.TopK, TopP: p.TopP, MinP: p.MinP, TypicalP: p.TypicalP,
		RepeatPenalty: p.RepeatPenalty, RepeatLastN: p.RepeatLastN, PresencePenalty: p.PresencePenalty, FrequencyPenalty: p.FrequencyPenalty,
		LogitBias: p.LogitBias, Stop: r.Stop, MaxTokens: r.MaxTokens, Seed: p.Seed,
	}
	call := apiCall{url: origin + "/v1/completions", field: []string{"text"}, secret: secret}
	for _, m := range r.Messages {
		body.Messages = append(body.Messages, apiMessage{m.Role, m.Content})
	}
	if len(r.Messages) > 0 {
		call.url, call.field = origin+"/v1/chat/completions", []string{"message", "content"}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(body)
	call.body = strings.TrimSuffix(text.String(), "\n")
	return call, err
}

// keyVariable is where the programs find the key of the server.
const keyVariable = "M40_LLM_API_KEY"

// programs write a call as a program.
var programs = map[string]func(apiCall) string{"curl": apiCall.curl, "python": apiCall.python, "javascript": apiCall.javascript}

// curl hands over the body as a here-document: nothing in it means anything to the
// shell, no line of JSON is its end, and it may be longer than an argument.
func (a apiCall) curl() string {
	var b strings.Builder
	fmt.Fprintf(&b, "curl %s \\\n  -H 'Content-Type: application/json' \\\n", shellQuote(a.url))
	if a.secret {
		fmt.Fprintf(&b, "  -H \"Authorization: Bearer $%s\" \\\n", keyVariable)
	}
	fmt.Fprintf(&b, "  --data-binary @- <<'JSON'\n%s\nJSON\n", a.body)
	return b.String()
}

func (a apiCall) python() string {
	var b strings.Builder
	b.WriteString("import json\n")
	if a.secret {
		b.WriteString("import os\n")
	}
	fmt.Fprintf(&b, "import urllib.request\n\nbody = %s\n\nrequest = urllib.request.Request(\n    %s,\n    data=json.dumps(body).encode(),\n    headers={\n", a.body, literal(a.url))
	b.WriteString("        \"Content-Type\": \"application/json\",\n")
	if a.secret {
		fmt.Fprintf(&b, "        \"Authorization\": \"Bearer \" + os.environ[%q],\n", keyVariable)
	}
	fmt.Fprintf(&b, "    },\n)\nwith urllib.request.urlopen(request) as response:\n    print(json.load(response)[\"choices\"][0][\"%s\"])\n", strings.Join(a.field, "\"][\""))
	return b.String()
}

// javascript is for node and for browsers; inside a page, "</script>" in a string must
// not end it.
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

// literal is text as a string of Python and of JavaScript.
func literal(text string) string {
	quoted, _ := json.Marshal(text) // cannot fail
	return string(quoted)
}

// answerCode answers GET /c/:id/code/:answer?as=curl|python|javascript.
func (h *Handlers) answerCode(c echo.Context) error {
	language, known := programs[c.QueryParam("as")]
	if !known {
		return invalidf("as", "as is %q, but must be curl, python or javascript", shorten(c.QueryParam("as")))
	}
	answer, err := strconv.ParseInt(c.Param("answer"), 10, 64)
	if err != nil {
		return invalidf("answer", "answer is %q, but must be a number", shorten(c.Param("answer")))
	}
	chat, err := h.Live.Chat(c.Param("id"))
	if err != nil {
		return err
	}
	request, err := chat.Recipe(answer)
	if err != nil {
		return err
	}
	own, _ := c.Get(originKey).(string)
	call, err := newAPICall(own, request, h.keys != nil)
	if err != nil {
		return err
	}
	return c.String(http.StatusOK, language(call))
}
