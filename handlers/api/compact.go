package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
)

// This file holds what the Responses API has for conversations that become long.

// ResponseTokens is the response to POST /v1/responses/input_tokens.
type ResponseTokens struct {
	Object      string `json:"object"`
	InputTokens int    `json:"input_tokens"`
}

// responseTokens answers POST /v1/responses/input_tokens.
func (api *API) responseTokens(c echo.Context) error {
	body := ResponsesRequest{generationFields: newGenerationFields()}
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	if err := api.showPictures(c.Request().Context(), &r); err != nil {
		return err
	}
	rendered, err := api.engine.Render(c.Request().Context(), r)
	if err != nil {
		return aboutFormat(err)
	}
	return c.JSON(http.StatusOK, ResponseTokens{Object: "response.input_tokens", InputTokens: len(rendered.Tokens)})
}

// CompactedResponse is the response to POST /v1/responses/compact.
type CompactedResponse struct {
	ID        string         `json:"id"`
	Object    string         `json:"object"`
	CreatedAt int64          `json:"created_at"`
	Output    []Compaction   `json:"output"`
	Usage     *ResponseUsage `json:"usage"`
}

// Compaction is an item that replaces a conversation.
type Compaction struct {
	ID      string `json:"id"`
	Type    string `json:"type"`              // compaction
	Content string `json:"encrypted_content"` // the summary in base64
}

// summarise asks a model for a summary with which a conversation can go on.
const summarise = "Summarise the conversation above for somebody who has to continue it and cannot read it: what was asked for, what was decided and done, which facts, names and results matter, and what is still open. Write the summary alone."

// compactResponse answers POST /v1/responses/compact with a summary that the model writes.
func (api *API) compactResponse(c echo.Context) (err error) {
	body := ResponsesRequest{generationFields: newGenerationFields()}
	defer func() { err = promptIn("input", err) }()
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	r, err := body.request()
	if err != nil {
		return err
	}
	r.Messages = append(r.Messages, chat.Message{Role: "user", Content: summarise})
	r.Tools, r.ToolChoice, r.JSONSchema, r.Grammar, r.WholeCalls = nil, "", nil, "", true
	answers, err := api.collect(c, asked{requests: []infer.Request{r}})
	if err != nil {
		return err
	}
	if err := checkSummary(answers[0]); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, CompactedResponse{
		ID: "resp_" + rand.Text(), Object: "response.compaction", CreatedAt: time.Now().Unix(), Usage: responseUsage(answers[0].done.Usage),
		Output: []Compaction{{ID: "cmp_" + rand.Text(), Type: "compaction", Content: base64.StdEncoding.EncodeToString([]byte(answers[0].text))}},
	})
}

// checkSummary returns an error if the model wrote no text: a client would replace its conversation by nothing.
func checkSummary(a answer) error {
	switch {
	case strings.TrimSpace(a.text) != "":
		return nil
	case a.done.Reason == infer.FinishLength && !a.done.ContextFull:
		return fault.Invalid("max_output_tokens", "the model wrote no summary within max_output_tokens: give more, or leave it out")
	case a.done.Reason == infer.FinishLength:
		return fault.Invalid("input", "the context was full before the model wrote a summary: leave out a part of input")
	}
	return &fault.Error{Code: fault.CodeNotSupported, Message: "the model wrote no summary of the conversation: ask again, or another model"}
}

// summaryText returns the text of an item that replaces a conversation.
func (item *responseItem) summaryText(param string) (string, error) {
	text, err := base64.StdEncoding.DecodeString(item.Encrypted)
	if err != nil || !utf8.Valid(text) {
		return "", fault.Invalid(param+".encrypted_content", "%s.encrypted_content is not one that this server made", param)
	}
	return "Summary of the conversation so far:\n" + string(text), nil
}

// truncate leaves out the oldest messages after the system prompt until the prompt of r leaves room for an
// answer in the context of its model. If that is not known, because the model is not loaded, nothing is left out.
func (api *API) truncate(ctx context.Context, r *infer.Request) {
	status := api.engine.Status()
	room := status.Context(api.modelName(r.Model))
	room -= max(1, min(r.MaxTokens, room/2))
	first := 0
	for first < len(r.Messages) && r.Messages[first].Role == "system" {
		first++
	}
	without := func(n int) infer.Request {
		shorter := *r
		shorter.Messages = slices.Concat(r.Messages[:first], r.Messages[first+n:])
		return shorter
	}
	fits := func(n int) bool {
		rendered, err := api.engine.Render(ctx, without(n))
		return err == nil && len(rendered.Tokens) <= room
	}
	var starts []int // how many messages may be left out: a conversation begins with a person's
	for n := range r.Messages[first:] {
		if n == 0 || r.Messages[first+n].Role == "user" {
			starts = append(starts, n)
		}
	}
	if room <= 0 || len(starts) == 0 {
		return
	}
	if i := sort.Search(len(starts), func(i int) bool { return fits(starts[i]) }); i < len(starts) {
		*r = without(starts[i])
	}
}
