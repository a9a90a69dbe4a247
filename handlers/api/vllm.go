package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"m40-llm/infer"
)

// TokenizerInfo is the response to GET /tokenizer_info, which is vLLM's.
type TokenizerInfo struct {
	Class    string `json:"tokenizer_class"`
	BOS      string `json:"bos_token,omitempty"`
	EOS      string `json:"eos_token,omitempty"`
	AddBOS   bool   `json:"add_bos_token"`
	Template string `json:"chat_template,omitempty"`
	Longest  int    `json:"model_max_length"` // tokens of the context
}

// VLLMTokens is the response to POST /tokenize for a body that has prompt, as vLLM's.
type VLLMTokens struct {
	Count   int      `json:"count"`
	Longest int      `json:"max_model_len"`
	Tokens  []int32  `json:"tokens"`
	Texts   []string `json:"token_strs" schema:"null"` // with return_token_strs, else null
}

// tokenizerInfo answers GET /tokenizer_info about the loaded model.
func (api *API) tokenizerInfo(c echo.Context) error {
	s := api.engine.Status()
	info := TokenizerInfo{Class: "GGUF", Longest: s.ContextLength}
	details, err := api.list.Details(s.Model.Name)
	if err != nil {
		return c.JSON(http.StatusOK, info)
	}
	if details.Template != nil {
		info.Template = details.Template.Source
	}
	for _, m := range details.Metadata {
		switch m.Key {
		case "tokenizer.ggml.bos_token_id":
			info.BOS = api.tokenText(c.Request().Context(), m.Value)
		case "tokenizer.ggml.eos_token_id":
			info.EOS = api.tokenText(c.Request().Context(), m.Value)
		case "tokenizer.ggml.add_bos_token":
			info.AddBOS = m.Value == "true"
		}
	}
	return c.JSON(http.StatusOK, info)
}

// tokenText returns the text of the loaded model's token with that id, empty if there is none.
func (api *API) tokenText(ctx context.Context, id string) string {
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil {
		return ""
	}
	text, err := api.engine.Detokenize(ctx, "", []int32{int32(n)})
	if err != nil {
		return ""
	}
	return text
}

// vllmTokens answers POST /tokenize as vLLM does, with the tokens of a prompt or of the messages of a chat.
func (api *API) vllmTokens(c echo.Context, body *tokenizeRequest) (err error) {
	ctx := c.Request().Context()
	answer := VLLMTokens{Longest: api.engine.Status().ContextLength, Tokens: []int32{}}
	var tokens []int32
	if body.Prompt != nil {
		tokens, err = api.engine.Tokenize(ctx, body.Model, *body.Prompt, body.AddSpecialTokens == nil || *body.AddSpecialTokens, true)
	} else {
		r := infer.DefaultRequest()
		r.Model = body.Model
		body.chatFields.Messages = body.Messages
		if err := body.fill(&r); err != nil {
			return err
		}
		if err := api.showPictures(ctx, &r); err != nil {
			return err
		}
		var rendered infer.Rendered
		rendered, err = api.engine.Render(ctx, r)
		tokens = rendered.Tokens
	}
	if err != nil {
		return err
	}
	answer.Count, answer.Tokens = len(tokens), append(answer.Tokens, tokens...)
	if !body.ReturnTexts {
		return c.JSON(http.StatusOK, answer)
	}
	pieces, err := api.engine.Pieces(ctx, body.Model, tokens)
	if err != nil {
		return err
	}
	for i, piece := range pieces {
		answer.Texts = append(answer.Texts, tokenName(tokens[i], []byte(piece), false))
	}
	return c.JSON(http.StatusOK, answer)
}
