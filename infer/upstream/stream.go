package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/client"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/reply"
	"m40-llm/infer/sample"
)

var errLongLine = errors.New("a line is too long")

// generateOpenAI has an OpenAI-compatible server write an answer.
func (s *server) generateOpenAI(ctx context.Context, m *model, r infer.Request, take func(infer.Event) bool) error {
	call, err := s.callFor(m.id, &r)
	if err != nil {
		return err
	}
	w := &writer{server: s, model: m, request: &r, params: call.used, scored: call.scored, stops: stops{strings: call.stop}, budget: budget(&r, s.describe(m.id).Upstream.ContextLength), take: take, start: time.Now()}
	if r.ParseReply {
		w.parser = thoughts.Parser(reply.Options{Tools: call.tools, BufferCalls: r.WholeCalls, Single: r.SingleCall})
	}
	if r.MaxTokens == 0 {
		w.reason = infer.FinishLength
		return w.end()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(s.o.Silence, func() { cancel(client.ErrSilent) })
	defer stall.Stop()
	response, err := s.open(ctx, &call)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind != "text/event-stream" {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxSaid)) // what came of it is shown
		return s.breach("answered with %s and not with a stream: %s", s.said(kind), s.said(string(text)))
	}
	if !take(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{}}) { // it has accepted the request
		return nil
	}
	in := bufio.NewReaderSize(response.Body, 32<<10)
	for !w.over {
		line, err := readLine(in)
		if err != nil {
			return w.cut(ctx, err)
		}
		if w.first.IsZero() {
			stall.Reset(s.o.Silence)
		} else {
			stall.Reset(s.o.Stall)
		}
		if err := w.charge(len(line) + 1); err != nil {
			return err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if err := w.event(bytes.TrimSpace(data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// open sends the request of an answer and returns the response, whose status is 200. If the prompt leaves less room
// than the limit of tokens, the request is sent once more with what there is.
func (s *server) open(ctx context.Context, c *call) (*http.Response, error) {
	for lowered := false; ; lowered = true {
		body, err := json.Marshal(c.body)
		if err != nil {
			return nil, fault.Errorf(fault.CodeInvalid, "the request cannot be written as JSON: %s", err)
		}
		response, err := s.send(ctx, http.MethodPost, c.path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if response.StatusCode == http.StatusOK {
			return response, nil
		}
		f := s.refused(response)
		response.Body.Close()
		if lowered || !c.lower(f) {
			return nil, f
		}
	}
}

// readLine returns the next line, of at most maxLine bytes, without its end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errLongLine
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// chunk is an event of OpenAI's streams, of chat completions and of completions.
type chunk struct {
	Choices few[choice]     `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index int `json:"index"`
	Delta struct {
		Content          *string        `json:"content"`
		ReasoningContent *string        `json:"reasoning_content"`
		Reasoning        *string        `json:"reasoning"` // another name for it
		Refusal          *string        `json:"refusal"`
		Calls            few[callDelta] `json:"tool_calls"`
	} `json:"delta"`
	Text         string          `json:"text"` // of a completion
	LogProbs     json.RawMessage `json:"logprobs"`
	FinishReason *string         `json:"finish_reason"`
	StopReason   json.RawMessage `json:"stop_reason"` // vLLM's: the stop string, or an end token
}

type callDelta struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// scored is a token with its probability.
type scored struct {
	Token   string         `json:"token"`
	LogProb float64        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     few[scoredTop] `json:"top_logprobs"`
}

// scoredTop is an alternative of a token.
type scoredTop struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// legacyScores are the probabilities of a text completion.
type legacyScores struct {
	Tokens   few[string]             `json:"tokens"`
	LogProbs few[float64]            `json:"token_logprobs"`
	Top      few[map[string]float64] `json:"top_logprobs"`
}

// scored returns the tokens in the form that chats have.
func (l *legacyScores) scored() []scored {
	list := make([]scored, min(len(l.Tokens), len(l.LogProbs)))
	for i := range list {
		list[i].Token, list[i].LogProb = l.Tokens[i], l.LogProbs[i]
		if i >= len(l.Top) {
			continue
		}
		for text, p := range l.Top[i] {
			list[i].Top = append(list[i].Top, scoredTop{Token: text, LogProb: p})
		}
		slices.SortFunc(list[i].Top, func(a, b scoredTop) int {
			return cmp.Or(cmp.Compare(b.LogProb, a.LogProb), strings.Compare(a.Token, b.Token))
		})
	}
	return list
}

// writer makes events of a stream.
type writer struct {
	server  *server
	model   *model
	request *infer.Request
	params  sample.Params
	scored  bool // the probabilities of tokens were asked for
	budget  int  // bytes that the answer may still cost
	take    func(infer.Event) bool
	start   time.Time

	first, last time.Time // tokens
	tokens      int
	size        int // bytes of the text, reasoning and calls
	usage       *usage
	reason      infer.FinishReason // empty: the server has not said that the answer ended
	stop        string
	calls       callList
	stops       stops         // which the server does not know
	parser      *reply.Parser // of content with reasoning between tags; nil: it is not parsed
	over        bool          // nothing more is read
}

// charge takes n bytes from the budget of the answer, and returns the failure of a server that has used it up.
func (w *writer) charge(n int) error {
	if w.budget -= n; w.budget < 0 {
		return w.server.breach("sent more than an answer to this request can have")
	}
	return nil
}

// event takes the data of an event.
func (w *writer) event(data []byte) error {
	if string(data) == "[DONE]" {
		return w.finish()
	}
	var c chunk
	switch err := json.Unmarshal(data, &c); {
	case errors.Is(err, errMany):
		return w.server.breach("sent more than %d choices or calls in one part of an answer", maxFew)
	case err != nil:
		return w.server.breach("sent a part of an answer that is not valid JSON: %s", w.server.said(string(data)))
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return w.failed(c.Error, data)
	}
	if c.Usage != nil {
		w.usage = c.Usage
	}
	for i := range c.Choices {
		if c.Choices[i].Index != 0 || w.reason != "" && c.Choices[i].FinishReason == nil {
			continue // one answer was asked for, and nothing follows its end
		}
		if err := w.bound(&c.Choices[i]); err != nil {
			return err
		}
		tokens, err := w.scores(c.Choices[i].LogProbs)
		if err != nil {
			return err
		}
		if !w.choice(&c.Choices[i], tokens) {
			w.over = true
			return nil
		}
		if w.stops.found != "" {
			return w.end()
		}
	}
	return nil
}

// failed returns the failure of a server that sends data, with an error object, in its stream. With the status of a
// refusal, it is one: the request is to blame.
func (w *writer) failed(object json.RawMessage, data []byte) error {
	e := readError("", data)
	var refused struct {
		Status int `json:"code"`
	}
	if json.Unmarshal(object, &refused) == nil && refused.Status >= 400 && refused.Status < 500 {
		return w.server.refusal(refused.Status, e)
	}
	f := &failure{server: w.server.address, again: true, broken: true}
	return f.because(fault.CodeUpstream, askAgain, "%s failed while it wrote the answer: %s", w.server.address, w.server.said(e.message))
}

// bound counts what c adds to the answer, and returns the failure of a server that sends more than an answer can have.
func (w *writer) bound(c *choice) error {
	w.size += len(c.Text)
	for _, text := range []*string{c.Delta.Content, c.Delta.Refusal, c.Delta.ReasoningContent, c.Delta.Reasoning} {
		w.size += len(value(text))
	}
	for i := range c.Delta.Calls {
		call := &c.Delta.Calls[i]
		if max(len(call.ID), len(call.Function.Name)) > maxName {
			return w.server.breach("sent a call with a name or an id of more than %d bytes", maxName)
		}
		w.size += len(call.ID) + len(call.Function.Name) + len(call.Function.Arguments)
	}
	if w.size > maxAnswer {
		return w.server.breach("sent an answer with a text of more than %d bytes", maxAnswer)
	}
	return nil
}

// thoughts is the syntax of reasoning between tags, which servers leave in the content unless they are told
// how their model writes it.
var thoughts = reply.Detect("<think></think>", false, func(string) bool { return false })

// choice takes an addition to the answer; tokens are those whose probabilities are known. It returns false if nobody
// wants more.
func (w *writer) choice(c *choice, tokens []infer.Token) bool {
	text := w.stops.text(c.Text + value(c.Delta.Content) + value(c.Delta.Refusal))
	reasoning := value(c.Delta.ReasoningContent)
	if reasoning == "" {
		reasoning = value(c.Delta.Reasoning)
	}
	calls := w.calls.add(c.Delta.Calls, w.request)
	if w.request.WholeCalls {
		calls = nil
	}
	if w.parser != nil {
		d := w.parser.Text(text)
		text, reasoning, calls = d.Content, reasoning+d.Reasoning, append(calls, d.Calls...)
	}
	if len(tokens) == 0 && text+reasoning != "" || len(calls) > 0 && len(tokens) == 0 {
		tokens = []infer.Token{{Choice: sample.Choice{ID: -1}, Bytes: []byte(text + reasoning)}}
	}
	if n := len(tokens); n > 0 {
		tokens[n-1].Text, tokens[n-1].Reasoning, tokens[n-1].Calls = text, reasoning, calls
	}
	if c.FinishReason != nil && *c.FinishReason != "" {
		w.reason = finishReason(*c.FinishReason)
		var stop string
		if json.Unmarshal(c.StopReason, &stop) == nil && len(stop) <= maxName {
			w.stop = stop
		}
	}
	if w.stops.found != "" {
		w.reason, w.stop = infer.FinishStop, w.stops.found
	}
	for i := range tokens {
		now := time.Now()
		if w.first.IsZero() {
			w.first = now
		}
		w.last = now
		w.tokens++
		if !w.take(infer.Event{Type: infer.EventToken, Token: &tokens[i]}) {
			return false
		}
	}
	return true
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// finishReason returns why an answer ended. An unknown reason counts as the model's own end.
func finishReason(name string) infer.FinishReason {
	switch name {
	case "length":
		return infer.FinishLength
	case "tool_calls", "function_call":
		return infer.FinishCalls
	case "content_filter":
		return infer.FinishBanned
	}
	return infer.FinishStop
}

// scores returns the tokens that logprobs lists, without text. If the request does not ask for them, they are ignored.
func (w *writer) scores(logprobs json.RawMessage) (tokens []infer.Token, err error) {
	if !w.scored || len(logprobs) == 0 {
		return nil, nil
	}
	var list struct {
		Content few[scored] `json:"content"`
		legacyScores
	}
	switch err := json.Unmarshal(logprobs, &list); {
	case errors.Is(err, errMany):
		return nil, w.server.breach("sent more than %d tokens in one part of an answer", maxFew)
	case err != nil:
		return nil, nil // in another form, which is not known
	}
	for _, s := range append(list.Content, list.scored()...) {
		if err := w.charge(perToken + perTop*len(s.Top)); err != nil {
			return nil, err
		}
		t := infer.Token{Choice: sample.Choice{ID: -1, LogProb: probability(s.LogProb), Rank: len(s.Top)}, Bytes: spelt(s.Token, s.Bytes)}
		for i, top := range s.Top {
			if w.request.Alternatives == i {
				break
			}
			t.Top, t.Tops = append(t.Top, sample.Candidate{ID: -1, LogProb: probability(top.LogProb)}), append(t.Tops, spelt(top.Token, top.Bytes))
			if t.Rank == len(s.Top) && top.Token == s.Token {
				t.Rank = i
			}
		}
		if len(t.Bytes) > maxTokenBytes || slices.ContainsFunc(t.Tops, func(b []byte) bool { return len(b) > maxTokenBytes }) {
			return nil, w.server.breach("sent a token of more than %d bytes", maxTokenBytes)
		}
		if len(t.Top) > 0 {
			t.PMax = math.Exp(t.Top[0].LogProb)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// probability returns a log probability that a server sent, or the nearest one that sample.Choice can have.
func probability(log float64) float64 { return min(0, max(-9999, log)) }

// spelt returns the bytes of a token, which servers list as numbers, or else its text.
func spelt(text string, numbers []int) []byte {
	if len(numbers) == 0 {
		return []byte(text)
	}
	out := make([]byte, len(numbers))
	for i, n := range numbers {
		out[i] = byte(n)
	}
	return out
}

// cut ends an answer whose connection ended with err. If the server has said why the answer ended, it is complete:
// only the last event and perhaps the usage are missing.
func (w *writer) cut(ctx context.Context, err error) error {
	silent := errors.Is(context.Cause(ctx), client.ErrSilent)
	switch {
	case w.reason != "" && (silent || ctx.Err() == nil):
		return w.finish()
	case silent:
		return w.server.lost(client.ErrSilent)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errLongLine):
		return w.server.breach("sent a line of more than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return w.server.lost(err)
}

// finish ends an answer that the server has ended.
func (w *writer) finish() error {
	if w.reason == "" {
		if w.tokens == 0 {
			return w.server.breach("ended the answer before its first word")
		}
		w.reason = infer.FinishStop
	}
	return w.end()
}

// end emits the record of the answer.
func (w *writer) end() error {
	w.over = true
	d := &infer.Done{}
	if w.request.WholeCalls {
		d.Calls = w.calls.deltas()
	}
	d.Text = w.stops.held
	if w.parser != nil {
		rest := w.parser.Text(w.stops.held)
		rest.Add(w.parser.End(w.reason != infer.FinishLength))
		d.Text, d.Reasoning, d.Calls = rest.Content, rest.Reasoning, append(d.Calls, rest.Calls...)
		if w.parser.Called() && w.reason == infer.FinishStop {
			w.reason = infer.FinishCalls
		}
	}
	d.Reason, d.StopString = w.reason, w.stop
	if d.Reason == infer.FinishCalls && len(w.calls.whole) == 0 && (w.parser == nil || !w.parser.Called()) {
		d.Reason = infer.FinishStop
	}
	d.Usage = record.Usage{CompletionTokens: w.tokens}
	if u := w.usage; u != nil {
		d.Usage = record.Usage{PromptTokens: tokens(u.Prompt), CachedTokens: min(tokens(u.Details.Cached), tokens(u.Prompt)), CompletionTokens: tokens(u.Completion), ReasoningTokens: tokens(u.CompletionDetails.Reasoning)}
	}
	if !w.first.IsZero() {
		d.Timings = record.Timings{Prefill: w.first.Sub(w.start), First: w.first.Sub(w.start), Decode: w.last.Sub(w.first)}
	}
	d.Receipt = record.Receipt{Model: w.model.name, Params: w.params, Device: w.server.address, Engine: w.server.engineName()}
	w.take(infer.Event{Type: infer.EventDone, Done: d})
	return nil
}

// tokens returns a number of tokens that a server sent, or 0 if it is not one.
func tokens(n int) int {
	if n < 0 || n > math.MaxInt32 {
		return 0
	}
	return n
}

// maxCalls is how many calls an answer may have.
const maxCalls = 128

// callList collects the calls of an answer.
type callList struct{ whole []*toolCall }

// toolCall is a call of a tool. Its arguments come in parts.
type toolCall struct {
	id, name  string
	arguments strings.Builder
}

// add returns what parts of calls add to the answer.
func (l *callList) add(parts []callDelta, r *infer.Request) (out []reply.CallDelta) {
	for _, p := range parts {
		if p.Index < 0 || p.Index > len(l.whole) || p.Index >= maxCalls || r.SingleCall && p.Index > 0 {
			continue
		}
		d := reply.CallDelta{Index: p.Index, Arguments: p.Function.Arguments}
		if p.Index == len(l.whole) { // the first part has the id and the name
			d.ID, d.Name = cmp.Or(p.ID, reply.NewID()), p.Function.Name
			l.whole = append(l.whole, &toolCall{id: d.ID, name: d.Name})
		}
		l.whole[p.Index].arguments.WriteString(d.Arguments)
		out = append(out, d)
	}
	return out
}

// deltas returns the calls, each as a whole.
func (l *callList) deltas() (whole []reply.CallDelta) {
	for i, c := range l.whole {
		whole = append(whole, reply.CallDelta{Index: i, ID: c.id, Name: c.name, Arguments: c.arguments.String()})
	}
	return whole
}
