package handlers

import (
	"bufio"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

type tokenizeRequest struct {
	Model        string  `json:"model"`
	Content      *string `json:"content"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial *bool   `json:"parse_special"` // default true, as llama-server has it
	WithPieces   bool    `json:"with_pieces"`
}

// tokenPiece is a token with what it spells: a string, or an array of bytes if it
// is part of a rune.
type tokenPiece struct {
	ID    int32 `json:"id"`
	Piece any   `json:"piece"`
}

// tokenize answers POST /tokenize.
func (h *Handlers) tokenize(c echo.Context) error {
	var body tokenizeRequest
	if err := readJSON(c, &body); err != nil {
		return err
	}
	if body.Content == nil {
		return invalidf("content", "content must be the text to tokenize")
	}
	if err := accountOf(c).take(textCost * int64(len(*body.Content))); err != nil {
		return err
	}
	parseSpecial := body.ParseSpecial == nil || *body.ParseSpecial
	tokens, err := h.Engine.Tokenize(c.Request().Context(), body.Model, *body.Content, body.AddSpecial, parseSpecial)
	if err != nil {
		return err
	}
	if body.WithPieces {
		return h.answerPieces(c, body.Model, tokens)
	}
	if tokens == nil {
		tokens = []int32{}
	}
	return c.JSON(http.StatusOK, map[string][]int32{"tokens": tokens})
}

// answerPieces writes the tokens with what they spell as they are looked up: all together
// would be many times larger than the text.
func (h *Handlers) answerPieces(c echo.Context, model string, tokens []int32) error {
	response := c.Response()
	w := bufio.NewWriterSize(response, writePiece)
	response.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	w.WriteString(`{"tokens":[`)
	for i, id := range tokens {
		text, err := h.Engine.Detokenize(c.Request().Context(), model, tokens[i:i+1])
		if err != nil {
			return err
		}
		piece := tokenPiece{ID: id, Piece: text}
		if !utf8.ValidString(text) {
			piece.Piece = byteNumbers([]byte(text))
		}
		data, err := json.Marshal(piece)
		if err != nil {
			return err
		}
		if i > 0 {
			w.WriteByte(',')
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	w.WriteString("]}\n")
	return w.Flush()
}

type detokenizeRequest struct {
	Model  string  `json:"model"`
	Tokens []int32 `json:"tokens"`
}

// detokenizeBody has the text, and its bytes in base64 where it is not whole characters.
type detokenizeBody struct {
	Content string `json:"content"`
	Bytes   []byte `json:"bytes,omitempty"`
}

// detokenize answers POST /detokenize.
func (h *Handlers) detokenize(c echo.Context) error {
	var body detokenizeRequest
	if err := readJSON(c, &body); err != nil {
		return err
	}
	if body.Tokens == nil {
		return invalidf("tokens", "tokens must be an array of token ids")
	}
	text, err := h.Engine.Detokenize(c.Request().Context(), body.Model, body.Tokens)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, detokenizeBody{text, unlessText(text)})
}
