package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"m40-llm/infer"
)

// client is a client of the engine's API (docs/api.md), which the worker serves. Each answer has
// its own connection, so a slow reader does not delay the others.
type client struct {
	transport *http.Transport
}

func newClient(dial func(context.Context) (net.Conn, error)) *client {
	return &client{&http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
	}}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// errCut is returned if the connection ended before the response did.
var errCut = errors.New("the connection to the engine was cut")

// response is the result of a method of the engine, or its error.
type response struct {
	Error *infer.Error `json:"error"`
}

// send makes a request and returns the response, whose status is 200; the caller closes its body.
// An error is an *infer.Error, that of ctx, or wraps errCut.
func (c *client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, &infer.Error{Code: infer.CodeInvalid, Message: fmt.Sprintf("the request cannot be written as JSON: %s", err)}
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return nil, cut(ctx, err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	defer answer.Body.Close()
	var failed response
	err = json.NewDecoder(answer.Body).Decode(&failed)
	if err == nil && failed.Error == nil {
		err = errors.New("the response has no error object")
	}
	if err != nil {
		return nil, cut(ctx, fmt.Errorf("%s %s: status %d without an error: %w", method, path, answer.StatusCode, err))
	}
	return nil, failed.Error
}

func cut(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", errCut, err)
}

// call makes a request and decodes the response into result.
func (c *client) call(ctx context.Context, method, path string, body, result any) error {
	answer, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(result); err != nil {
		return cut(ctx, err)
	}
	io.Copy(io.Discard, answer.Body) // so that the connection can be used again
	return nil
}

// generate hands the events of one answer to take until it has ended or take returns
// false.
func (c *client) generate(ctx context.Context, r infer.Request, take func(infer.Event) bool) error {
	answer, err := c.send(ctx, http.MethodPost, "/v1/generate", r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := json.NewDecoder(answer.Body)
	for {
		var line struct {
			infer.Event
			response
		}
		if err := lines.Decode(&line); err != nil {
			return cut(ctx, err)
		}
		if line.Error != nil {
			return line.Error
		}
		if !take(line.Event) || line.Type == infer.EventDone {
			return nil
		}
	}
}

func (c *client) status(ctx context.Context) (s infer.Status, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

func (c *client) models(ctx context.Context) (list []infer.ModelInfo, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/catalog", nil, &list)
	return list, err
}

func (c *client) reload(ctx context.Context, s infer.Setup) error {
	return c.call(ctx, http.MethodPost, "/v1/reload", s, &struct{}{})
}

func (c *client) tokenize(ctx context.Context, name, text string, addSpecial, parseSpecial bool) ([]int32, error) {
	var result struct {
		Tokens []int32 `json:"tokens"`
	}
	err := c.call(ctx, http.MethodPost, "/tokenize", map[string]any{
		"model": name, "content": text, "add_special": addSpecial, "parse_special": parseSpecial,
	}, &result)
	return result.Tokens, err
}

func (c *client) detokenize(ctx context.Context, name string, ids []int32) (string, error) {
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

func (c *client) pieces(ctx context.Context, name string, ids []int32) ([]string, error) {
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

func (c *client) render(ctx context.Context, r infer.Request) (infer.Rendered, error) {
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
