package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/access"
	"m40-llm/handlers/failure"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/sample"
)

// This file is llama-server's API apart from its tools: /completion, /infill, /props and /slots.

// LlamaRequest are the fields that /completion and /infill share.
type LlamaRequest struct {
	generationFields
	LogitBias json.RawMessage `json:"logit_bias" schema:"object|[[number|boolean]]"` // OpenAI's object, or pairs [id, bias]; false bans a token
	NPredict  *int            `json:"n_predict"`
	MaxWhole  *int            `json:"max_completion_tokens"` // another name of n_predict, as max_tokens is
	NProbs    *int            `json:"n_probs"`
	LogProbs  *int            `json:"logprobs"` // another name of n_probs
	WithIDs   bool            `json:"return_tokens"`
	Fields    []string        `json:"response_fields"` // of a whole answer, or the last event of a stream; see onlyFields

	// Of completions in editors, see lineLimits. Below 0 they are off.
	Indent *int     `json:"n_indent"`
	Within *float64 `json:"t_max_predict_ms"`
}

// lines returns where the answer ends.
func (b *LlamaRequest) lines() (l lineLimits) {
	if b.Indent != nil {
		l.indent = max(0, *b.Indent)
	}
	if b.Within != nil {
		l.within = time.Duration(max(0, min(*b.Within, maxWithin)) * float64(time.Millisecond))
	}
	return l
}

// maxWithin is how many milliseconds count of a limit of time: a day.
const maxWithin = 24 * 60 * 60 * 1000

// LlamaCompletion is the body of POST /completion.
type LlamaCompletion struct {
	LlamaRequest
	Prompt json.RawMessage `json:"prompt" schema:"required,string|[integer]|object|[object]"` // a string, an array of token ids, or a mediaPrompt
	Images json.RawMessage `json:"image_data" schema:"[object]"`                              // numberedPictures, for a prompt that is a string
}

// LlamaInfill is the body of POST /infill.
type LlamaInfill struct {
	LlamaRequest
	Prefix string       `json:"input_prefix"`
	Suffix string       `json:"input_suffix"`
	Prompt string       `json:"prompt"` // goes on from input_prefix
	Extra  []llamaExtra `json:"input_extra"`
}

// llamaExtra is a text that the completion may draw on.
type llamaExtra struct {
	Name string `json:"filename"`
	Text string `json:"text"`
}

// request returns the engine's request for the fields, without its prompt.
func (b *LlamaRequest) request() (infer.Request, error) {
	biases, err := pairedBiases(b.LogitBias)
	if err != nil {
		return infer.Request{}, err
	}
	b.generationFields.LogitBias = biases
	r, err := b.generationFields.request()
	if err != nil {
		return r, err
	}
	if err := setPredicted(&r, "max_completion_tokens", b.MaxWhole); err != nil {
		return r, err
	}
	if err := setPredicted(&r, "n_predict", b.NPredict); err != nil {
		return r, err
	}
	if err := setCount(&r.Alternatives, "n_probs", b.LogProbs); err != nil {
		return r, err
	}
	if err := setCount(&r.Alternatives, "n_probs", b.NProbs); err != nil {
		return r, err
	}
	return r, b.oneAnswer()
}

// pairedBiases returns biases by token id, from either form.
func pairedBiases(raw json.RawMessage) (biases map[string]float64, err error) {
	if firstByte(raw) != '[' {
		if given(raw) {
			err = httpio.DecodeJSON(raw, "logit_bias", &biases)
		}
		return biases, err
	}
	const banned = -1000
	var pairs [][2]json.RawMessage
	if err := httpio.DecodeJSON(raw, "logit_bias", &pairs); err != nil {
		return nil, err
	}
	biases = map[string]float64{}
	for i, pair := range pairs {
		var id int32
		bias := float64(banned)
		if string(bytes.TrimSpace(pair[1])) != "false" {
			err = httpio.DecodeJSON(pair[1], fmt.Sprintf("logit_bias[%d][1]", i), &bias)
		}
		if err != nil || json.Unmarshal(pair[0], &id) != nil {
			return nil, fault.Invalid("logit_bias", "logit_bias[%d] must be a token id with a bias, or with false", i)
		}
		biases[strconv.Itoa(int(id))] = bias
	}
	return biases, nil
}

// llamaCompletion answers POST /completion.
func (api *API) llamaCompletion(c echo.Context) (err error) {
	body := LlamaCompletion{LlamaRequest: LlamaRequest{generationFields: newGenerationFields()}}
	defer func() {
		err = promptIn("prompt", body.about(renamed(renamed(err, "alternatives", "n_probs"), "tokens", "prompt")))
	}()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	prompts, err := parsePrompts(body.Prompt, "prompt", true)
	if err != nil {
		return err
	}
	if len(prompts) != 1 || prompts[0].text == "" && len(prompts[0].tokens) == 0 {
		return fault.Invalid("prompt", "prompt must be one text, or one array of token ids, that is not empty; POST /v1/completions takes several")
	}
	prompt, err := prompts[0].withImageData(body.Images)
	if err != nil {
		return err
	}
	prompt.putInto(&r)
	return api.llamaAnswer(c, r, &body.LlamaRequest)
}

// llamaInfill answers POST /infill.
func (api *API) llamaInfill(c echo.Context) (err error) {
	body := LlamaInfill{LlamaRequest: LlamaRequest{generationFields: newGenerationFields()}}
	defer func() {
		err = promptIn("prompt", body.about(renamed(renamed(err, "alternatives", "n_probs"), "suffix", "input_suffix")))
	}()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	var extra strings.Builder
	for _, x := range body.Extra {
		fmt.Fprintf(&extra, "%s\n%s\n\n", x.Name, x.Text)
	}
	gap := infill{extra: extra.String(), prefix: body.Prefix + body.Prompt, suffix: body.Suffix}
	if r.Tokens, err = api.fillIn(c.Request().Context(), r.Model, gap); err != nil {
		return err
	}
	return api.llamaAnswer(c, r, &body.LlamaRequest)
}

// llamaAnswer answers r, as a stream or as a whole.
func (api *API) llamaAnswer(c echo.Context, r infer.Request, body *LlamaRequest) error {
	shape := llamaShape{model: api.modelName(body.Model), body: body, asked: r}
	q := asked{requests: []infer.Request{r}, lines: body.lines()}
	if body.Stream {
		return api.stream(c, q, func() (sink, error) { return openLlamaStream(c, shape) })
	}
	answers, err := api.collect(c, q)
	if err != nil {
		return err
	}
	a := answers[0]
	whole, err := shape.last(a.text, a.tokens, a.done)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, whole)
}

// llamaShape is what all parts of one response share.
type llamaShape struct {
	model string
	body  *LlamaRequest
	asked infer.Request
}

// LlamaChunk is the response to POST /completion and /infill, or an event of their streams.
type LlamaChunk struct {
	Index   int          `json:"index"`
	Content string       `json:"content"`
	Tokens  []int32      `json:"tokens"` // with return_tokens
	Slot    int          `json:"id_slot"`
	Stop    bool         `json:"stop"` // the last event of a stream, or a whole answer
	Scores  []llamaScore `json:"completion_probabilities,omitempty"`
	*LlamaEnd
	extras
}

// LlamaEnd is in the last event.
type LlamaEnd struct {
	Model        string         `json:"model"`
	Predicted    int            `json:"tokens_predicted"`
	Evaluated    int            `json:"tokens_evaluated"` // of the prompt
	Cached       int            `json:"tokens_cached"`    // of prompt and answer, in the KV cache when the answer ended
	Truncated    bool           `json:"truncated"`        // the answer ended because the context was full; a prompt that does not fit is refused
	StopType     string         `json:"stop_type"`        // eos, word, limit
	StoppingWord string         `json:"stopping_word"`
	Settings     *sample.Params `json:"generation_settings"`
}

// llamaScore is a token with its likeliest alternatives.
type llamaScore struct {
	ID int32 `json:"id"`
	tokenLogProb
	Top []llamaAlternative `json:"top_logprobs"`
}

type llamaAlternative struct {
	ID int32 `json:"id"`
	tokenLogProb
}

func (s llamaShape) chunk(text string, tokens []infer.Token) LlamaChunk {
	chunk := LlamaChunk{Content: text, Tokens: []int32{}}
	for _, t := range tokens {
		if s.body.WithIDs {
			chunk.Tokens = append(chunk.Tokens, t.ID)
		}
	}
	if s.asked.Alternatives == 0 {
		return chunk
	}
	for i, score := range tokenScores(tokens, false) {
		l := llamaScore{ID: tokens[i].ID, tokenLogProb: score.tokenLogProb, Top: []llamaAlternative{}}
		for j, top := range score.Top {
			l.Top = append(l.Top, llamaAlternative{tokens[i].Top[j].ID, top})
		}
		chunk.Scores = append(chunk.Scores, l)
	}
	return chunk
}

// last returns the last event of a stream, or a whole answer, with the fields that the request names.
func (s llamaShape) last(text string, tokens []infer.Token, done infer.Done) (any, error) {
	chunk := s.chunk(text, tokens)
	chunk.finish(s, done)
	return onlyFields(chunk, s.body.Fields)
}

// finish makes the chunk the last one.
func (c *LlamaChunk) finish(s llamaShape, done infer.Done) {
	c.Stop = true
	end := &LlamaEnd{
		Model: s.model, Predicted: done.Usage.CompletionTokens, Evaluated: done.Usage.PromptTokens, Cached: done.Usage.PromptTokens + max(0, done.Usage.CompletionTokens-1), Truncated: done.ContextFull && done.Reason == infer.FinishLength,
		StopType: "eos", StoppingWord: done.StopString, Settings: &done.Receipt.Params,
	}
	switch {
	case done.StopString != "":
		end.StopType = "word"
	case done.Reason == infer.FinishLength:
		end.StopType = "limit"
	}
	c.LlamaEnd, c.Timings = end, allTimings(done.Answer)
}

// llamaStream writes the events of a stream.
type llamaStream struct {
	sseStream
	shape llamaShape
	watch stopwatch
}

func openLlamaStream(c echo.Context, shape llamaShape) (sink, error) {
	w, err := httpio.OpenSSE(c)
	return &llamaStream{sseStream: sseStream{w, "prompt"}, shape: shape}, err
}

func (s *llamaStream) event(_ int, e infer.Event) error {
	added, progress := s.watch.note(&s.shape.body.generationFields, e, time.Now())
	switch {
	case e.Type == infer.EventToken && !e.Token.Prompt:
		chunk := s.shape.chunk(e.Token.Text, []infer.Token{*e.Token})
		chunk.extras = added
		return s.sse.Send(chunk)
	case e.Type == infer.EventDone:
		last, err := s.shape.last(e.Done.Text, nil, *e.Done)
		if err != nil {
			return err
		}
		return s.sse.Send(last)
	case progress:
		chunk := s.shape.chunk("", nil)
		chunk.extras = added
		return s.sse.Send(chunk)
	}
	return s.progress(e)
}

func (s *llamaStream) fail(err error) error {
	return s.sse.Send(failure.Describe(promptIn(s.field, err)).Llama())
}

func (s *llamaStream) end() error { return nil }

// LlamaProps is the response to GET /props.
type LlamaProps struct {
	Defaults struct {
		Context int           `json:"n_ctx"`
		Params  sample.Params `json:"params"`
	} `json:"default_generation_settings"`
	Model      string          `json:"model_path"` // its name: paths are not revealed
	Alias      string          `json:"model_alias"`
	Template   string          `json:"chat_template"`
	Build      string          `json:"build_info"`
	Modalities map[string]bool `json:"modalities"`
	Marker     string          `json:"media_marker"`
}

// llamaProps answers GET /props with what is known of the loaded model.
func (api *API) llamaProps(c echo.Context) error {
	s := api.engine.Status()
	props := LlamaProps{Model: s.Model.Name, Alias: s.Model.Name, Build: api.fingerprint(), Modalities: map[string]bool{"vision": s.Model.Vision, "audio": false}, Marker: mediaMarker}
	props.Defaults.Context, props.Defaults.Params = s.ContextLength, sample.DefaultParams()
	if details, err := api.list.Details(s.Model.Name); err == nil && details.Template != nil {
		props.Template = details.Template.Source
	}
	return c.JSON(http.StatusOK, props)
}

// LlamaSlot is an answer that is being generated or waits.
type LlamaSlot struct {
	ID         int64 `json:"id"`
	Context    int   `json:"n_ctx"`
	Processing bool  `json:"is_processing"`
	Next       struct {
		Decoded int `json:"n_decoded"`
	} `json:"next_token"`
}

// llamaSlots answers GET /slots with the answers that the person of c may see.
func (api *API) llamaSlots(c echo.Context) error {
	list, err := api.activity.List(c.Request().Context(), access.PrincipalOf(c.Request().Context()))
	if err != nil {
		return err
	}
	slots, context := []LlamaSlot{}, api.engine.Status().ContextLength
	for _, a := range list.Answers {
		slot := LlamaSlot{ID: a.ID, Context: context, Processing: true}
		slot.Next.Decoded = a.Tokens
		slots = append(slots, slot)
	}
	return c.JSON(http.StatusOK, slots)
}
