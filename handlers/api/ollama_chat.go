package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

// ollamaFields are the fields that chats and completions of Ollama's API share.
type ollamaFields struct {
	ollamaModel
	Stream      *bool           `json:"stream"`                        // absent: true
	Format      json.RawMessage `json:"format" schema:"string|object"` // "json" or a schema
	Options     json.RawMessage `json:"options" schema:"$options"`
	Think       json.RawMessage `json:"think" schema:"boolean|string"`     // a bool, or low, medium, high or max
	KeepAlive   json.RawMessage `json:"keep_alive" schema:"string|number"` // counts if the person manages the server's models
	LogProbs    bool            `json:"logprobs"`
	TopLogProbs *int            `json:"top_logprobs"`
}

// ollamaOptions are the options that influence an answer. The others, as num_ctx or num_gpu, are
// about how Ollama loads a model, and are ignored.
type ollamaOptions struct {
	sample.Params
	NumPredict *int            `json:"num_predict"`
	Stop       json.RawMessage `json:"stop" schema:"string|[string]"`
}

// request returns the engine's request for the fields, without its prompt or messages.
func (f *ollamaFields) request() (infer.Request, error) {
	options := ollamaOptions{Params: sample.Unset()}
	if given(f.Options) {
		if err := httpio.DecodeJSON(f.Options, "options", &options); err != nil {
			return infer.Request{}, err
		}
	}
	fields := generationFields{Model: f.name(), Params: options.Params, Stop: options.Stop}
	var err error
	if fields.JSONSchema, err = ollamaFormat(f.Format); err != nil {
		return infer.Request{}, err
	}
	r, err := fields.request()
	if err != nil {
		return r, err
	}
	if err := setPredicted(&r, "num_predict", options.NumPredict); err != nil {
		return r, err
	}
	if err := setCount(&r.Alternatives, "top_logprobs", f.TopLogProbs); err != nil {
		return r, err
	}
	if r.KeepAliveS, err = keepAlive(f.KeepAlive); err != nil {
		return r, err
	}
	r.ParseReply, r.WholeCalls = true, true
	return r, ollamaThink(&r, f.Think)
}

// streams reports whether the response is streamed.
func (f *ollamaFields) streams() bool { return f.Stream == nil || *f.Stream }

// ollamaFormat returns the schema that format stands for, nil for none.
func ollamaFormat(raw json.RawMessage) (json.RawMessage, error) {
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '{':
		return raw, nil
	case '"':
		switch string(raw) {
		case `""`:
			return nil, nil
		case `"json"`:
			return anyObject, nil
		}
	}
	return nil, fault.Invalid("format", `format must be "json" or a JSON schema, an object`)
}

// ollamaThink sets the template's variables for think.
func ollamaThink(r *infer.Request, raw json.RawMessage) error {
	var on bool
	switch firstByte(raw) {
	case 0, 'n':
		return nil
	case '"':
		levels := []string{"low", "medium", "high", "max"}
		var level string
		if err := httpio.DecodeJSON(raw, "think", &level); err != nil {
			return err
		}
		if !slices.Contains(levels, level) {
			return fault.Invalid("think", "think must be true, false, low, medium, high or max, not %q", httpio.Shorten(level))
		}
		if level == "max" {
			level = "high" // templates know no more
		}
		on = true
		setTemplateVar(r, "reasoning_effort", level)
	default:
		if err := httpio.DecodeJSON(raw, "think", &on); err != nil {
			return err
		}
	}
	setThinking(r, on)
	return nil
}

// checkThink returns an error if think asks a model to reason whose chat template has no reasoning. Of models
// of other engines that is not known.
func (api *API) checkThink(model string, raw json.RawMessage) error {
	if !given(raw) || string(bytes.TrimSpace(raw)) == "false" {
		return nil
	}
	details, err := api.list.Details(api.modelName(model))
	if err != nil || details.Template != nil && thinks(details.Template.Source) {
		return nil
	}
	return fault.Invalid("think", "%q does not support thinking: leave think out", details.Name)
}

// setThinking sets the variables by which templates switch reasoning on or off.
func setThinking(r *infer.Request, on bool) {
	setTemplateVar(r, "enable_thinking", on)
	setTemplateVar(r, "thinking", on)
}

// keepAlive returns the seconds of a duration as Ollama writes them: "5m", a number of seconds, or a negative
// one for ever; nil: none is given.
func keepAlive(raw json.RawMessage) (*float64, error) {
	wrong := fault.Invalid("keep_alive", `keep_alive must be a duration such as "5m", or a number of seconds`)
	var seconds float64
	switch firstByte(raw) {
	case 0, 'n':
		return nil, nil
	case '"':
		var text string
		if err := httpio.DecodeJSON(raw, "keep_alive", &text); err != nil {
			return nil, err
		}
		if d, err := time.ParseDuration(text); err == nil {
			seconds = d.Seconds()
		} else if json.Unmarshal([]byte(text), &seconds) != nil {
			return nil, wrong
		}
	default:
		if err := httpio.DecodeJSON(raw, "keep_alive", &seconds); err != nil {
			return nil, wrong
		}
	}
	return &seconds, nil
}

// OllamaChat is the body of POST /api/chat.
type OllamaChat struct {
	ollamaFields
	Messages []OllamaMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools" schema:"[$tool]"`
}

// OllamaMessage is a message of a chat. Those of requests have Ollama's or OpenAI's form of calls.
type OllamaMessage struct {
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	Thinking   string          `json:"thinking,omitempty"`
	Images     json.RawMessage `json:"images,omitempty" schema:"[string]"`
	ToolCalls  json.RawMessage `json:"tool_calls,omitempty" schema:"[object]"`
	ToolName   string          `json:"tool_name,omitempty"`
	ToolCallID string          `json:"tool_call_id,omitempty"`
}

// ollamaChat answers POST /api/chat.
func (api *API) ollamaChat(c echo.Context) (err error) {
	var body OllamaChat
	defer func() { err = ollamaErr(err, body.name()) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	if err := api.checkThink(r.Model, body.Think); err != nil {
		return err
	}
	shape := ollamaShape{model: api.modelName(body.name()), fields: &body.ollamaFields, chat: true}
	if len(body.Messages) == 0 {
		return api.ollamaLoad(c, r, shape)
	}
	if r.Messages, err = ollamaMessages(body.Messages); err != nil {
		return err
	}
	tools := chatFields{Tools: body.Tools}
	if err := tools.fillTools(&r); err != nil {
		return err
	}
	shape.names = tools.names
	return api.ollamaAnswer(c, r, shape)
}

// ollamaMessages returns the conversation.
func ollamaMessages(list []OllamaMessage) ([]chat.Message, error) {
	var messages []chat.Message
	var ids callIDs
	for i, m := range list {
		where := fmt.Sprintf("messages[%d]", i)
		content, err := json.Marshal(m.Content)
		if err != nil {
			return nil, err
		}
		parsed, err := (&chatMessage{Role: m.Role, Content: content, ReasoningContent: m.Thinking, Name: m.ToolName, ToolCallID: m.ToolCallID, ToolCalls: m.ToolCalls}).parse(where)
		if err != nil {
			return nil, err
		}
		if err := see(&parsed, m.Images, where+".images"); err != nil {
			return nil, err
		}
		if err := ids.complete(&parsed); err != nil {
			return nil, err
		}
		messages = append(messages, parsed)
	}
	return messages, nil
}

// see adds images of Ollama's API, files in base64, to a message of a user or the result of a tool, before its text.
func see(m *chat.Message, raw json.RawMessage, param string) error {
	var images []string
	if given(raw) {
		if err := httpio.DecodeJSON(raw, param, &images); err != nil {
			return err
		}
	}
	if len(images) > 0 && m.Role != "user" && m.Role != "tool" {
		return fault.Invalid(param, "%s cannot be in a message of role %s: put them into one of role user", param, m.Role)
	}
	if len(images) == 0 {
		return nil
	}
	m.Content = strings.Repeat(chat.PictureMark, len(images)) + chat.WithoutPictureMarks(m.Content)
	for i, encoded := range images {
		where := fmt.Sprintf("%s[%d]", param, i)
		data, err := encodedPicture(encoded, where)
		if err != nil {
			return err
		}
		m.Pictures = append(m.Pictures, data)
	}
	return nil
}

// OllamaGenerate is the body of POST /api/generate.
type OllamaGenerate struct {
	ollamaFields
	Prompt   string          `json:"prompt"`
	Suffix   string          `json:"suffix"`
	System   string          `json:"system"`
	Template string          `json:"template" schema:"-"`
	Raw      bool            `json:"raw"`
	Context  json.RawMessage `json:"context" schema:"-"`
	Images   json.RawMessage `json:"images" schema:"[string]"`
}

// ollamaGenerate answers POST /api/generate.
func (api *API) ollamaGenerate(c echo.Context) (err error) {
	var body OllamaGenerate
	defer func() { err = ollamaErr(err, body.name()) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	if err := api.checkThink(r.Model, body.Think); err != nil {
		return err
	}
	shape := ollamaShape{model: api.modelName(body.name()), fields: &body.ollamaFields}
	if err := body.unsupported(); err != nil {
		return err
	}
	switch {
	case body.Suffix != "":
		if r.Tokens, err = api.fillIn(c.Request().Context(), r.Model, infill{prefix: body.Prompt, suffix: body.Suffix}); err != nil {
			return err
		}
	case body.Prompt == "":
		return api.ollamaLoad(c, r, shape)
	case body.Raw:
		r.Prompt, r.ParseReply, r.WholeCalls = body.Prompt, false, false
	default:
		if body.System != "" {
			r.Messages = append(r.Messages, chat.Message{Role: "system", Content: body.System})
		}
		question := chat.Message{Role: "user", Content: body.Prompt}
		if err := see(&question, body.Images, "images"); err != nil {
			return err
		}
		r.Messages = append(r.Messages, question)
	}
	return api.ollamaAnswer(c, r, shape)
}

// unsupported returns an error for the first field that would change the answer but is not supported.
func (b *OllamaGenerate) unsupported() error {
	var context []json.RawMessage
	if given(b.Context) {
		if err := httpio.DecodeJSON(b.Context, "context", &context); err != nil {
			return err
		}
	}
	switch {
	case b.Template != "":
		return fault.Invalid("template", "template is not supported: the model's own chat template is used; write the prompt yourself with raw")
	case len(context) > 0:
		return fault.Invalid("context", "context is not supported: send the conversation to /api/chat")
	case given(b.Images) && (b.Raw || b.Suffix != "") && string(bytes.TrimSpace(b.Images)) != "[]":
		return fault.Invalid("images", "images cannot be together with raw or suffix: leave these out, or send the conversation to /api/chat")
	}
	return nil
}

// ollamaLoad answers a request without input, which loads its model, or has it unloaded.
func (api *API) ollamaLoad(c echo.Context, r infer.Request, shape ollamaShape) error {
	r.Prompt, r.MaxTokens, r.ParseReply, r.WholeCalls, r.JSONSchema = ".", 1, false, false, nil
	reason := "load"
	if r.KeepAliveS != nil && *r.KeepAliveS == 0 {
		if err := mayManage(c); err != nil {
			return err
		}
		reason, r.MaxTokens = "unload", 0
	}
	if reason == "load" || api.isLoaded(r.Model) {
		if _, err := api.collect(c, asked{requests: []infer.Request{r}, names: shape.names}); err != nil {
			return err
		}
	}
	chunk := shape.chunk(ollamaDelta{})
	chunk.Done, chunk.DoneReason = true, reason
	return c.JSON(http.StatusOK, chunk)
}

// isLoaded reports whether the model called name is loaded, or whether only another engine knows.
func (api *API) isLoaded(name string) bool {
	s := api.engine.Status()
	one := s.Of(api.modelName(name))
	return one != nil && one.State == infer.StateReady || s.RemoteModel(name) != nil
}

// ollamaAnswer answers r, as a stream or as a whole.
func (api *API) ollamaAnswer(c echo.Context, r infer.Request, shape ollamaShape) error {
	shape.start = time.Now()
	if shape.fields.streams() {
		return api.stream(c, asked{requests: []infer.Request{r}, names: shape.names}, func() (sink, error) { return api.openOllamaStream(c, shape) })
	}
	answers, err := api.collect(c, asked{requests: []infer.Request{r}, names: shape.names})
	if err != nil {
		return err
	}
	a := answers[0]
	chunk := shape.chunk(ollamaDelta{a.text, a.reasoning, a.calls, a.tokens})
	chunk.finish(a.done, time.Since(shape.start))
	return c.JSON(http.StatusOK, chunk)
}

// ollamaShape is what all parts of one response share.
type ollamaShape struct {
	model  string
	chat   bool // the text is in message, not in response
	start  time.Time
	fields *ollamaFields
	names  *toolNames
}

// OllamaChunk is the response of a chat or completion, or a line of its stream.
type OllamaChunk struct {
	Model      string         `json:"model"`
	CreatedAt  time.Time      `json:"created_at"`
	Message    *OllamaMessage `json:"message,omitempty"`  // of a chat
	Response   *string        `json:"response,omitempty"` // of a completion
	Thinking   string         `json:"thinking,omitempty"` // of a completion
	LogProbs   []tokenScore   `json:"logprobs,omitempty"`
	Done       bool           `json:"done"`
	DoneReason string         `json:"done_reason,omitempty"` // stop, length or load
	*OllamaCounts
}

// OllamaCounts are in the last line. Durations are in nanoseconds.
type OllamaCounts struct {
	Total         time.Duration `json:"total_duration"`
	Load          time.Duration `json:"load_duration"`
	PromptTokens  int           `json:"prompt_eval_count"` // those that were found in the KV cache included
	PromptTime    time.Duration `json:"prompt_eval_duration"`
	AnswerTokens  int           `json:"eval_count"`
	AnswerTime    time.Duration `json:"eval_duration"`
	CachedTokens  int           `json:"prompt_cached_count"` // of prompt_eval_count
	QueueDuration time.Duration `json:"queue_duration"`
}

// ollamaCall is a call in an answer. Its arguments are an object, not a string.
type ollamaCall struct {
	ID       string `json:"id"`
	Function struct {
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// ollamaDelta is what a chunk adds to the answer.
type ollamaDelta struct {
	text, thinking string
	calls          []toolCall // whole ones
	tokens         []infer.Token
}

func (s ollamaShape) chunk(d ollamaDelta) OllamaChunk {
	chunk := OllamaChunk{Model: s.model, CreatedAt: time.Now().UTC()}
	if s.fields.LogProbs {
		chunk.LogProbs = tokenScores(d.tokens, false)
	}
	if !s.chat {
		chunk.Response, chunk.Thinking = &d.text, d.thinking
		return chunk
	}
	chunk.Message = &OllamaMessage{Role: "assistant", Content: d.text, Thinking: d.thinking}
	if len(d.calls) > 0 {
		chunk.Message.ToolCalls = ollamaCalls(d.calls)
	}
	return chunk
}

// ollamaCalls writes calls with their arguments as objects.
func ollamaCalls(calls []toolCall) json.RawMessage {
	list := make([]ollamaCall, len(calls))
	for i, call := range calls {
		list[i].ID = call.ID
		f := &list[i].Function
		f.Index, f.Name, f.Arguments = i, call.Function.Name, json.RawMessage("{}")
		if call.Index != nil {
			f.Index = *call.Index
		}
		if raw := json.RawMessage(call.Function.Arguments); json.Valid(raw) {
			f.Arguments = raw
		}
	}
	data, _ := json.Marshal(list) // strings and valid JSON
	return data
}

// finish makes the chunk the last one of an answer that took total.
func (c *OllamaChunk) finish(done infer.Done, total time.Duration) {
	c.Done, c.DoneReason = true, "stop"
	if done.Reason == infer.FinishLength {
		c.DoneReason = "length"
	}
	t, u := done.Timings, done.Usage
	c.OllamaCounts = &OllamaCounts{
		Total: total, Load: t.Load, QueueDuration: t.Queue,
		PromptTokens: u.PromptTokens, CachedTokens: u.CachedTokens, PromptTime: t.Prefill,
		AnswerTokens: u.CompletionTokens, AnswerTime: t.Decode,
	}
}

// ollamaStream writes the lines of a stream.
type ollamaStream struct {
	lines httpio.Lines
	shape ollamaShape
	calls []toolCall
}

func (api *API) openOllamaStream(c echo.Context, shape ollamaShape) (sink, error) {
	lines, err := httpio.OpenLines(c)
	return &ollamaStream{lines: lines, shape: shape}, err
}

func (s *ollamaStream) event(_ int, e infer.Event) error {
	switch {
	case e.Type == infer.EventToken && !e.Token.Prompt:
		d := ollamaDelta{text: e.Token.Text, thinking: e.Token.Reasoning, calls: s.whole(e.Token.Calls), tokens: []infer.Token{*e.Token}}
		if d.text == "" && d.thinking == "" && len(d.calls) == 0 && !s.shape.fields.LogProbs {
			return nil
		}
		return s.lines.Send(s.shape.chunk(d))
	case e.Type == infer.EventDone:
		d := ollamaDelta{text: e.Done.Text, thinking: e.Done.Reasoning, calls: s.whole(e.Done.Calls)}
		if d.text != "" || d.thinking != "" || len(d.calls) > 0 {
			if err := s.lines.Send(s.shape.chunk(d)); err != nil {
				return err
			}
		}
		last := s.shape.chunk(ollamaDelta{})
		last.finish(*e.Done, time.Since(s.shape.start))
		return s.lines.Send(last)
	}
	return nil
}

// whole returns the calls that an event adds. The request asked for whole calls.
func (s *ollamaStream) whole(calls []reply.CallDelta) []toolCall {
	before := len(s.calls)
	s.calls = joinToolCalls(s.calls, calls)
	added := slices.Clone(s.calls[before:])
	for i := range added {
		added[i].Index = new(before + i)
	}
	return added
}

func (s *ollamaStream) idle() error { return s.lines.Send(s.shape.chunk(ollamaDelta{})) }

func (s *ollamaStream) fail(err error) error { return s.lines.Send(failure.Describe(err).Ollama()) }

func (s *ollamaStream) end() error { return nil }
