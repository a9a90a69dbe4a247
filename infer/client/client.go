// Package client is a client of the engine's API over HTTP (docs/api.md): POST /v1/generate and the routes
// next to it. A server calls its worker through it, and another m40-llm.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// Options are what a Client works with.
type Options struct {
	Transport http.RoundTripper // never follows redirects
	Base      string            // address of the server, without a slash at its end
	Key       string            // bearer token; empty: none is sent

	// What a server may send that is not trusted; 0: any number.
	MaxBody   int64                     // bytes of a response that is no stream
	MaxVector int64                     // bytes of an embedding, in addition to MaxBody
	MaxEvent  int64                     // bytes of an event
	MaxAnswer func(infer.Request) int64 // bytes of the events of an answer; nil: any number
	Silence   time.Duration             // time between two events, and before the response

	Refused func(*http.Response) error // the error for a response whose status is not 200 and that has no fault.Error; nil: it is as if the connection had been cut
}

// Client calls an engine. Each answer has its own connection, so a slow reader does not delay the others. It
// is safe for concurrent use.
type Client struct{ o Options }

// New returns a client.
func New(o Options) *Client { return &Client{o} }

// Close closes the connections that nothing uses.
func (c *Client) Close() {
	if t, ok := c.o.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// ErrCut is returned if the connection ended before the response did.
var ErrCut = errors.New("the connection to the engine was cut")

// ErrSilent is the error of a server that sends nothing for Options.Silence. It comes wrapped with ErrCut.
var ErrSilent = errors.New("nothing came for too long")

// response is the result of a method of the engine, or its error.
type response struct {
	Error *fault.Error `json:"error"`
}

// send makes a request and returns the response, whose status is 200; the caller closes its body.
// An error is a *fault.Error, that of ctx, or wraps ErrCut.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fault.Errorf(fault.CodeInvalid, "the request cannot be written as JSON: %s", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.o.Base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if c.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.o.Transport.RoundTrip(r)
	if err != nil {
		return nil, cut(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, c.refusal(ctx, method, path, answer)
}

// refusal returns the error of a response whose status is not 200.
func (c *Client) refusal(ctx context.Context, method, path string, answer *http.Response) error {
	const limit = 1 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, limit))
	var failed response
	if err == nil {
		err = json.Unmarshal(text, &failed)
	}
	switch {
	case err == nil && failed.Error != nil && failed.Error.Code != "":
		return failed.Error
	case c.o.Refused != nil && ctx.Err() == nil:
		answer.Body = io.NopCloser(bytes.NewReader(text))
		return c.o.Refused(answer)
	case err == nil:
		err = errors.New("the response has no error object")
	}
	return cut(ctx, fmt.Errorf("%s %s: status %d without an error: %w", method, path, answer.StatusCode, err))
}

func cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrSilent) {
		return fmt.Errorf("%w: %w", ErrCut, ErrSilent)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}

// watch returns a context that ends with ErrSilent if heard is not called for Options.Silence. The caller
// calls cancel.
func (c *Client) watch(ctx context.Context) (watched context.Context, heard func(), cancel func()) {
	if c.o.Silence == 0 {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, func() {}, cancel
	}
	watched, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.o.Silence, func() { end(ErrSilent) })
	return watched, func() { timer.Reset(c.o.Silence) }, func() { timer.Stop(); end(nil) }
}

// call makes a request and decodes the response, of at most MaxBody bytes, into result.
func (c *Client) call(ctx context.Context, method, path string, body, result any) error {
	return c.callUpTo(ctx, c.o.MaxBody, method, path, body, result)
}

// callUpTo makes a request and decodes the response, of at most limit bytes, into result; 0: of any number.
func (c *Client) callUpTo(ctx context.Context, limit int64, method, path string, body, result any) error {
	ctx, _, cancel := c.watch(ctx)
	defer cancel()
	answer, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	in := &limited{in: answer.Body, left: limit, unlimited: limit == 0}
	if err := json.NewDecoder(in).Decode(result); err != nil {
		return cut(ctx, err)
	}
	io.Copy(io.Discard, in) // so that the connection can be used again
	return nil
}

// ErrTooLong is the error of a response with more bytes than Options allow. It comes wrapped with ErrCut.
var ErrTooLong = errors.New("the response has too many bytes")

// limited reads at most left bytes, or all.
type limited struct {
	in        io.Reader
	left      int64
	unlimited bool
}

func (l *limited) Read(p []byte) (int, error) {
	if l.unlimited {
		return l.in.Read(p)
	}
	if l.left <= 0 {
		return 0, ErrTooLong
	}
	n, err := l.in.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// Generate hands the events of one answer to take until it has ended or take returns
// false.
func (c *Client) Generate(ctx context.Context, r infer.Request, take func(infer.Event) bool) error {
	ctx, heard, cancel := c.watch(ctx)
	defer cancel()
	answer, err := c.send(ctx, http.MethodPost, "/v1/generate", r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	all := &limited{in: answer.Body, unlimited: c.o.MaxAnswer == nil}
	if !all.unlimited {
		all.left = c.o.MaxAnswer(r)
	}
	in := &limited{in: all, unlimited: c.o.MaxEvent == 0}
	lines := json.NewDecoder(in)
	for {
		in.left = c.o.MaxEvent
		var line struct {
			infer.Event
			response
		}
		if err := lines.Decode(&line); err != nil {
			return cut(ctx, err)
		}
		heard()
		if line.Error != nil {
			return line.Error
		}
		if !take(line.Event) || line.Type == infer.EventDone {
			return nil
		}
	}
}

// Status returns the status of the engine.
func (c *Client) Status(ctx context.Context) (s infer.Status, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Models lists the models of a worker.
func (c *Client) Models(ctx context.Context) (list []infer.ModelInfo, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/catalog", nil, &list)
	return list, err
}

// Embed returns the embeddings of texts.
func (c *Client) Embed(ctx context.Context, r infer.EmbedRequest) (result infer.Embeddings, err error) {
	limit := c.o.MaxBody
	if limit > 0 {
		limit += int64(len(r.Inputs)) * c.o.MaxVector
	}
	err = c.callUpTo(ctx, limit, http.MethodPost, "/v1/embed", r, &result)
	if err == nil && (len(result.Vectors) != len(r.Inputs) || len(result.Tokens) != len(r.Inputs)) {
		err = fmt.Errorf("%d texts have %d embeddings", len(r.Inputs), len(result.Vectors))
	}
	return result, err
}

// Rank returns the scores of documents for a query.
func (c *Client) Rank(ctx context.Context, r infer.RankRequest) (result infer.Ranking, err error) {
	limit := c.o.MaxBody
	if limit > 0 {
		limit += int64(len(r.Documents)) * maxScore
	}
	err = c.callUpTo(ctx, limit, http.MethodPost, "/v1/rank", r, &result)
	if err == nil && (len(result.Scores) != len(r.Documents) || len(result.Tokens) != len(r.Documents)) {
		err = fmt.Errorf("%d documents have %d scores", len(r.Documents), len(result.Scores))
	}
	return result, err
}

// maxScore is the most bytes of a document's score and tokens in a response.
const maxScore = 64

// Reload has a worker load its model again with another setup.
func (c *Client) Reload(ctx context.Context, s infer.Setup) error {
	return c.call(ctx, http.MethodPost, "/v1/reload", s, &struct{}{})
}

// Keep has a worker keep its model for so many seconds without a request; see engine.Engine.
func (c *Client) Keep(ctx context.Context, seconds *float64) error {
	return c.call(ctx, http.MethodPost, "/v1/keep", map[string]*float64{"seconds": seconds}, &struct{}{})
}

// Tokenize returns the tokens of text.
func (c *Client) Tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error) {
	var result struct {
		Tokens []int32 `json:"tokens"`
	}
	err := c.call(ctx, http.MethodPost, "/tokenize", map[string]any{
		"model": name, "content": text, "add_special": addSpecial, "parse_special": parseSpecial,
	}, &result)
	return result.Tokens, err
}

// Detokenize returns the text of tokens.
func (c *Client) Detokenize(ctx context.Context, name string, ids []int32) (string, error) {
	var result struct {
		Content string `json:"content"`
		Bytes   []byte `json:"bytes"`
	}
	if ids == nil {
		ids = []int32{}
	}
	err := c.call(ctx, http.MethodPost, "/detokenize", map[string]any{"model": name, "tokens": ids}, &result)
	if result.Bytes != nil {
		result.Content = string(result.Bytes)
	}
	return result.Content, err
}

// Pieces returns the bytes of each token.
func (c *Client) Pieces(ctx context.Context, name string, ids []int32) ([]string, error) {
	var result struct {
		Pieces []spelled `json:"pieces"`
	}
	if len(ids) == 0 {
		return nil, nil
	}
	if err := c.call(ctx, http.MethodPost, "/detokenize", map[string]any{"model": name, "tokens": ids, "with_pieces": true}, &result); err != nil {
		return nil, err
	}
	if len(result.Pieces) != len(ids) {
		return nil, fmt.Errorf("%d tokens have %d pieces", len(ids), len(result.Pieces))
	}
	pieces := make([]string, len(ids))
	for i, p := range result.Pieces {
		pieces[i] = string(p)
	}
	return pieces, nil
}

// spelled is the text of a token: a JSON string, or an array of bytes if it is not valid UTF-8.
type spelled string

func (s *spelled) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(s))
	}
	var numbers []uint16
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	spelt := make([]byte, len(numbers))
	for i, n := range numbers {
		spelt[i] = byte(n)
	}
	*s = spelled(spelt)
	return nil
}

// Render returns the prompt and the tokens that r would give to the model.
func (c *Client) Render(ctx context.Context, r infer.Request) (infer.Rendered, error) {
	var result struct {
		infer.Rendered
		Bytes []byte `json:"bytes"`
	}
	err := c.call(ctx, http.MethodPost, "/v1/render", r, &result)
	if result.Bytes != nil {
		result.Prompt = string(result.Bytes)
	}
	return result.Rendered, err
}
