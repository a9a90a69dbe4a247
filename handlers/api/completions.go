package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// defaultMaxTokens is OpenAI's for text completions.
const defaultMaxTokens = 16

type completionRequest struct {
	generationFields
	Prompt   json.RawMessage `json:"prompt" schema:"required,string|[string]|[integer]|[[integer]]|object|[object]"` // string, array of strings, array of ids, array of arrays of ids, mediaPrompt, array of these
	Suffix   *string         `json:"suffix"`
	Echo     bool            `json:"echo"`
	LogProbs *int            `json:"logprobs"`
	BestOf   *int            `json:"best_of"`

	SpecialTokens *bool `json:"add_special_tokens" schema:"-"` // vLLM's
}

// completionPrompt is one prompt: text, or tokens if there are any.
type completionPrompt struct {
	text     string
	tokens   []int32
	pictures [][]byte
	marked   string // with pictures, text with chat.PictureMark where they are
}

// putInto makes the prompt that of a request.
func (p *completionPrompt) putInto(r *infer.Request) {
	r.Prompt, r.Tokens, r.Pictures = p.text, p.tokens, p.pictures
	if len(p.pictures) > 0 {
		r.Prompt = p.marked
	}
}

// completions answers POST /v1/completions.
func (api *API) completions(c echo.Context) (err error) {
	body := completionRequest{generationFields: newGenerationFields()}
	defer func() { err = promptIn("prompt", body.about(aboutPrompt(err))) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	job, err := api.completionJob(c.Request().Context(), &body)
	if err != nil {
		return err
	}
	if body.Stream {
		return api.stream(c, asked{requests: job.requests}, func() (sink, error) { return openCompletionStream(c, job) })
	}
	answers, err := api.collect(c, asked{requests: job.requests})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, job.response(answers))
}

// completionNames are the fields of a text completion that the engine has another name for.
var completionNames = map[string]string{"alternatives": "logprobs", "tokens": "prompt"}

// aboutPrompt replaces the engine's name of a field in an error by that of the request's field.
func aboutPrompt(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || completionNames[e.Param] == "" {
		return err
	}
	named := *e
	named.Param = completionNames[e.Param]
	named.Message = named.Param + ", " + e.Message
	return &named
}

// completionJob is a request understood: prompt p has the answers p*of to p*of+of-1, of
// which the best n are its choices.
type completionJob struct {
	body     *completionRequest
	head     responseHead
	n, of    int
	echoes   []string // the text of each prompt that its answers begin with
	requests []infer.Request
}

func (api *API) completionJob(ctx context.Context, body *completionRequest) (*completionJob, error) {
	n, of, err := body.choices()
	if err != nil {
		return nil, err
	}
	r, prompts, err := body.parse()
	if err != nil {
		return nil, err
	}
	if all := len(prompts) * of; all > httpio.MaxAnswers {
		return nil, fault.Invalid("prompt", "prompt asks for %d answers in all; at most %d are written for one request", all, httpio.MaxAnswers)
	}
	job := &completionJob{
		body: body,
		head: responseHead{
			ID:          "cmpl-" + rand.Text(),
			Object:      "text_completion",
			Created:     time.Now().Unix(),
			Model:       api.modelName(body.Model),
			Fingerprint: api.fingerprint(),
		},
		n:      n,
		of:     of,
		echoes: make([]string, len(prompts)),
	}
	for i, p := range prompts {
		p.putInto(&r)
		switch {
		case body.fillsIn():
			if r.Prompt, r.Tokens, r.Pictures = "", nil, nil; p.tokens != nil || p.pictures != nil {
				return nil, fault.Invalid("suffix", "suffix needs a prompt that is text, without tokens and pictures")
			}
			if r.Tokens, err = api.fillIn(ctx, body.Model, infill{prefix: p.text, suffix: *body.Suffix}); err != nil {
				return nil, err
			}
		case p.text == "" && len(p.tokens) == 0:
			if r.Tokens, err = api.textStart(ctx, body.Model); err != nil {
				return nil, err
			}
		}
		job.requests = append(job.requests, sideBySide(r, of)...)
		switch {
		case !body.Echo || r.PromptLogProb: // scored tokens spell the prompt themselves
		case p.tokens == nil:
			job.echoes[i] = p.text
		default:
			if job.echoes[i], err = api.engine.Detokenize(ctx, body.Model, p.tokens); err != nil {
				return nil, err
			}
		}
	}
	return job, nil
}

// parse returns the request without its prompt, and the prompts.
func (b *completionRequest) parse() (r infer.Request, prompts []completionPrompt, err error) {
	if r, err = b.generationFields.request(); err != nil {
		return r, nil, err
	}
	if b.SpecialTokens != nil && !*b.SpecialTokens {
		return r, nil, fault.Invalid("add_special_tokens", "add_special_tokens is not supported: POST /tokenize has it, and prompt takes the tokens that it returns")
	}
	if b.MaxTokens == nil {
		r.MaxTokens = defaultMaxTokens
	}
	if err := setCount(&r.Alternatives, "logprobs", b.LogProbs); err != nil {
		return r, nil, err
	}
	r.PromptLogProb = b.Echo && b.LogProbs != nil
	if b.fillsIn() && r.PromptLogProb {
		return r, nil, fault.Invalid("suffix", "suffix and echo with logprobs exclude each other: the prompt that would be scored is not the one that was sent")
	}
	if prompts, err = parsePrompts(b.Prompt, "prompt", true); err != nil {
		return r, nil, err
	}
	return r, prompts, nil
}

// fillsIn reports whether the answer is between prompt and suffix.
func (b *completionRequest) fillsIn() bool { return b.Suffix != nil && *b.Suffix != "" }

// choices returns n and best_of.
func (b *completionRequest) choices() (n, of int, err error) {
	if n, err = b.answersPerPrompt(); err != nil {
		return 0, 0, err
	}
	of = n
	if err := setCount(&of, "best_of", b.BestOf); err != nil {
		return 0, 0, err
	}
	switch {
	case of < n:
		return 0, 0, fault.Invalid("best_of", "best_of is %d, but n is %d: the best n of best_of answers are returned", of, n)
	case of > n && b.Stream:
		return 0, 0, fault.Invalid("best_of", "best_of cannot be more than n in a stream: which answers are the best is known at their end")
	}
	return n, of, nil
}

// promptForms are the forms of a prompt by the first byte of their JSON.
var promptForms = map[byte]string{'"': "a string", '[': "an array of token ids", '{': "an object with prompt_string and multimodal_data"}

// parsePrompts reads one prompt, or an array of prompts of one form. With seen they may be objects, which have pictures.
func parsePrompts(raw json.RawMessage, name string, seen bool) ([]completionPrompt, error) {
	forms := name + " must be a string, an array of strings, an array of token ids or an array of arrays of token ids"
	if seen {
		forms += ", or an object with prompt_string and multimodal_data, or an array of these"
	}
	form := firstByte(raw)
	if form == '[' {
		form = firstByte(bytes.TrimLeft(raw, " \t\r\n")[1:])
	}
	switch {
	case firstByte(raw) != '[' && promptForms[form] == "", form == '{' && !seen:
		return nil, fault.Invalid(name, "%s", forms)
	case form == ']':
		return nil, fault.Invalid(name, "%s is an empty array; %s", name, forms)
	case firstByte(raw) != '[', promptForms[form] == "":
		p, err := parsePrompt(raw, name)
		return []completionPrompt{p}, err
	}
	var list []json.RawMessage
	if err := httpio.DecodeJSON(raw, name, &list); err != nil {
		return nil, err
	}
	prompts := make([]completionPrompt, len(list))
	for i, one := range list {
		where := fmt.Sprintf("%s[%d]", name, i)
		if firstByte(one) != form {
			return nil, fault.Invalid(where, "%s must be %s, as the first one is", where, promptForms[form])
		}
		var err error
		if prompts[i], err = parsePrompt(one, where); err != nil {
			return nil, err
		}
	}
	return prompts, nil
}

// parsePrompt reads one prompt.
func parsePrompt(raw json.RawMessage, name string) (p completionPrompt, err error) {
	switch firstByte(raw) {
	case '"':
		err = httpio.DecodeJSON(raw, name, &p.text)
	case '{':
		var media mediaPrompt
		if err = httpio.DecodeJSON(raw, name, &media); err == nil {
			p, err = media.parse(name)
		}
	default:
		err = httpio.DecodeJSON(raw, name, &p.tokens)
	}
	return p, err
}

// Completion is the response to a text completion, and each event of its stream.
type Completion struct {
	responseHead
	Choices []CompletionChoice `json:"choices"`
	Usage   *usageBody         `json:"usage,omitempty"`
	extras
}

// CompletionChoice is one answer, or a piece of it.
type CompletionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	LogProbs     *CompletionLogProbs `json:"logprobs"`
	FinishReason *infer.FinishReason `json:"finish_reason"`
}

// CompletionLogProbs has one entry for each token in each of its lists. The first
// token of a prompt has nothing before it and so neither probability.
type CompletionLogProbs struct {
	Tokens     []string             `json:"tokens"`
	LogProbs   []*float64           `json:"token_logprobs"`
	Top        []map[string]float64 `json:"top_logprobs"`
	TextOffset []int                `json:"text_offset"` // in characters of text
}

func (j *completionJob) response(answers []answer) Completion {
	body := Completion{responseHead: j.head, Usage: &usageBody{}}
	for i := range answers {
		body.Usage.add(answers[i].done.Usage, i%j.of == 0)
	}
	if len(answers) == 1 {
		body.Timings = allTimings(answers[0].done.Answer)
	}
	for _, i := range j.best(answers) {
		a := &answers[i]
		choice := CompletionChoice{Index: len(body.Choices), FinishReason: &a.done.Reason}
		opening := j.opening(i, a.prompt)
		choice.Text = opening + a.text
		if j.body.LogProbs != nil {
			var position textPosition
			choice.LogProbs = j.logProbs(&position, a.prompt, a.tokens)
		}
		body.Choices = append(body.Choices, choice)
	}
	return body
}

// best returns the numbers of the answers that are choices: of each prompt the n whose
// tokens are the likeliest on average, best first, or all in their order.
func (j *completionJob) best(answers []answer) (list []int) {
	for first := 0; first < len(answers); first += j.of {
		group := make([]int, j.of)
		for i := range group {
			group[i] = first + i
		}
		if j.of > j.n {
			slices.SortStableFunc(group, func(a, b int) int {
				return cmp.Compare(answers[b].meanLogProb(), answers[a].meanLogProb())
			})
		}
		list = append(list, group[:j.n]...)
	}
	return list
}

// meanLogProb is that of the answer's tokens, minus infinity if it has none.
func (a *answer) meanLogProb() float64 {
	if len(a.tokens) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for _, t := range a.tokens {
		sum += t.LogProb
	}
	return sum / float64(len(a.tokens))
}

// opening returns the text of its prompt that answer i begins with.
func (j *completionJob) opening(i int, prompt []infer.Token) string {
	if len(prompt) == 0 {
		return j.echoes[i/j.of]
	}
	var spelled []byte
	for _, t := range prompt {
		spelled = append(spelled, t.Bytes...)
	}
	return strings.ToValidUTF8(string(spelled), string(utf8.RuneError))
}

// textPosition counts the characters that a choice's tokens have spelled.
type textPosition struct{ characters int }

// advance counts the characters that begin in spelled and returns where it
// began.
func (p *textPosition) advance(spelled []byte) int {
	at := p.characters
	for _, b := range spelled {
		if utf8.RuneStart(b) {
			p.characters++
		}
	}
	return at
}

func (j *completionJob) logProbs(position *textPosition, runs ...[]infer.Token) *CompletionLogProbs {
	l := &CompletionLogProbs{Tokens: []string{}, LogProbs: []*float64{}, Top: []map[string]float64{}, TextOffset: []int{}}
	for _, tokens := range runs {
		for i, t := range tokens {
			l.Tokens = append(l.Tokens, j.tokenName(t.ID, t.Bytes))
			l.TextOffset = append(l.TextOffset, position.advance(t.Bytes))
			if t.Prompt && i == 0 {
				l.LogProbs = append(l.LogProbs, nil)
				l.Top = append(l.Top, nil)
				continue
			}
			logProb := finiteLogProb(t.LogProb)
			l.LogProbs = append(l.LogProbs, &logProb)
			l.Top = append(l.Top, j.alternatives(t))
		}
	}
	return l
}

// alternatives maps the likeliest tokens, and the one chosen, to their
// log-probabilities. Of tokens with the same text, it has the likeliest.
func (j *completionJob) alternatives(t infer.Token) map[string]float64 {
	top := make(map[string]float64, len(t.Top)+1)
	for i := range t.Top {
		name := j.tokenName(t.Top[i].ID, spelling(t, i))
		if _, taken := top[name]; !taken { // best first
			top[name] = finiteLogProb(t.Top[i].LogProb)
		}
	}
	name := j.tokenName(t.ID, t.Bytes)
	if _, listed := top[name]; !listed {
		top[name] = finiteLogProb(t.LogProb)
	}
	return top
}

func (j *completionJob) tokenName(id int32, spelled []byte) string {
	return tokenName(id, spelled, j.body.ReturnTokensAsTokenID)
}

// completionStream writes the chunks of POST /v1/completions.
type completionStream struct {
	sseStream
	job     *completionJob
	choices []streamedChoice
	usage   usageBody
}

// streamedChoice is the state of one answer of a stream.
type streamedChoice struct {
	position textPosition
	prompt   []infer.Token // scored and not sent yet: a rune may span two
	opened   bool          // whether the echo of the prompt was sent, if the request wants it
	watch    stopwatch
}

func openCompletionStream(c echo.Context, job *completionJob) (sink, error) {
	w, err := httpio.OpenSSE(c)
	if err != nil {
		return nil, err
	}
	return &completionStream{sseStream: sseStream{w, "prompt"}, job: job, choices: make([]streamedChoice, len(job.requests))}, nil
}

func (s *completionStream) event(index int, e infer.Event) error {
	choice := &s.choices[index]
	added, progress := choice.watch.note(&s.job.body.generationFields, e, time.Now())
	switch {
	case progress:
		return s.send(CompletionChoice{Index: index}, added)
	case e.Type == infer.EventToken && e.Token.Prompt:
		choice.prompt = append(choice.prompt, *e.Token)
		return nil
	case e.Type == infer.EventToken:
		if err := s.openChoice(index); err != nil {
			return err
		}
		if e.Token.Text == "" && s.job.body.LogProbs == nil {
			return nil
		}
		return s.send(s.choice(index, e.Token.Text, []infer.Token{*e.Token}), added)
	case e.Type == infer.EventDone:
		if err := s.openChoice(index); err != nil {
			return err
		}
		s.usage.add(e.Done.Usage, index%s.job.of == 0)
		return s.send(CompletionChoice{Index: index, Text: e.Done.Text, FinishReason: &e.Done.Reason}, added)
	default:
		return s.progress(e)
	}
}

// openChoice sends the repeated prompt of an answer, before its first token.
func (s *completionStream) openChoice(index int) error {
	choice := &s.choices[index]
	if choice.opened {
		return nil
	}
	choice.opened = true
	prompt := choice.prompt
	choice.prompt = nil
	opening := s.job.opening(index, prompt)
	if opening == "" && len(prompt) == 0 {
		return nil
	}
	return s.send(s.choice(index, opening, prompt), extras{})
}

// choice returns the piece of an answer that tokens add.
func (s *completionStream) choice(index int, text string, tokens []infer.Token) CompletionChoice {
	choice := CompletionChoice{Index: index, Text: text}
	if s.job.body.LogProbs != nil && len(tokens) > 0 {
		choice.LogProbs = s.job.logProbs(&s.choices[index].position, tokens)
	}
	return choice
}

func (s *completionStream) send(choice CompletionChoice, x extras) error {
	return s.sse.Send(Completion{responseHead: s.job.head, Choices: []CompletionChoice{choice}, extras: x})
}

func (s *completionStream) end() error {
	if s.job.body.StreamOptions.IncludeUsage {
		if err := s.sse.Send(Completion{responseHead: s.job.head, Choices: []CompletionChoice{}, Usage: &s.usage}); err != nil {
			return err
		}
	}
	return s.sse.End()
}

// separators are tokens between the texts that models were trained on.
var separators = []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>"}

// textStart returns the tokens that a text begins with, for a prompt without any: those that the model's file
// puts before each text, or a token that ends the text before it.
func (api *API) textStart(ctx context.Context, model string) ([]int32, error) {
	tokens, err := api.engine.Tokenize(ctx, model, "", true, false)
	if err != nil || len(tokens) > 0 {
		return tokens, err
	}
	for _, text := range separators {
		tokens, err := api.engine.Tokenize(ctx, model, text, false, true)
		if err != nil || len(tokens) == 1 {
			return tokens, err
		}
	}
	return nil, fault.Invalid("prompt", "prompt is empty, and %s has no token that a text begins with: give text or token ids", api.modelName(model))
}
