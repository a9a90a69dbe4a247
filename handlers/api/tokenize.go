package api

import (
	"bufio"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer/fault"

	"github.com/labstack/echo/v4"
)

type tokenizeRequest struct {
	Model        string  `json:"model"`
	Content      *string `json:"content"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial *bool   `json:"parse_special"` // default true, as llama-server has it
	WithPieces   bool    `json:"with_pieces"`

	// vLLM's form.
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"` // default true, as vLLM has it
	ReturnTexts      bool    `json:"return_token_strs"`
	chatFields
	Messages []chatMessage `json:"messages"` // in place of that of chatFields, which must be there
}

// tokenList is the response to POST /tokenize without pieces.
type tokenList struct {
	Tokens []int32 `json:"tokens"`
}

// tokenPiece is a token with its text: a string, or an array of bytes if it is part of a rune.
type tokenPiece struct {
	ID    int32 `json:"id"`
	Piece any   `json:"piece" schema:"string|[integer]"`
}

// tokenPieces is the response to POST /tokenize with pieces.
type tokenPieces struct {
	Tokens []tokenPiece `json:"tokens"`
}

// tokenize answers POST /tokenize.
func (api *API) tokenize(c echo.Context) error {
	var body tokenizeRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.Content == nil && (body.Prompt != nil || len(body.Messages) > 0) {
		if body.Prompt != nil {
			if err := gate.Charge(c, gate.TextCost*int64(len(*body.Prompt))); err != nil {
				return err
			}
		}
		return api.vllmTokens(c, &body)
	}
	if body.Content == nil {
		return fault.Invalid("content", "content must be the text to tokenize")
	}
	if err := gate.Charge(c, gate.TextCost*int64(len(*body.Content))); err != nil {
		return err
	}
	parseSpecial := body.ParseSpecial == nil || *body.ParseSpecial
	tokens, err := api.engine.Tokenize(c.Request().Context(), body.Model, *body.Content, body.AddSpecial, parseSpecial)
	if err != nil {
		return err
	}
	if body.WithPieces {
		return api.answerPieces(c, body.Model, tokens)
	}
	if tokens == nil {
		tokens = []int32{}
	}
	return c.JSON(http.StatusOK, tokenList{tokens})
}

// lookUp is how many tokens are looked up at a time.
const lookUp = 4096

// pieceSize is how many bytes of a long response are written at a time.
const pieceSize = 64 << 10

// spell returns the bytes of a token for JSON: a string, or numbers if they are not valid UTF-8.
func spell(piece string) any {
	if utf8.ValidString(piece) {
		return piece
	}
	return byteNumbers([]byte(piece))
}

// answerPieces writes the tokens with their texts in parts, because the whole response would be
// many times larger than the text.
func (api *API) answerPieces(c echo.Context, model string, tokens []int32) error {
	response := c.Response()
	w := bufio.NewWriterSize(response, pieceSize)
	response.Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	w.WriteString(`{"tokens":[`)
	for begin := 0; begin < len(tokens); begin += lookUp {
		ids := tokens[begin:min(begin+lookUp, len(tokens))]
		pieces, err := api.engine.Pieces(c.Request().Context(), model, ids)
		if err != nil {
			return err
		}
		for i, id := range ids {
			if begin+i > 0 {
				w.WriteByte(',')
			}
			data, err := json.Marshal(tokenPiece{id, spell(pieces[i])})
			if err != nil {
				return err
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
	}
	w.WriteString("]}\n")
	return w.Flush()
}

type detokenizeRequest struct {
	Model      string  `json:"model"`
	Tokens     []int32 `json:"tokens" schema:"required"`
	WithPieces bool    `json:"with_pieces"`
}

// detokenizeBody has the text, and its bytes in base64 where it is not whole characters.
type detokenizeBody struct {
	Content string `json:"content"`
	Prompt  string `json:"prompt"` // the same, which vLLM's clients read
	Bytes   []byte `json:"bytes,omitempty"`
	Pieces  []any  `json:"pieces,omitempty" schema:"[string|[integer]]"` // what each token spells, if that was asked for
}

// detokenize answers POST /detokenize.
func (api *API) detokenize(c echo.Context) error {
	var body detokenizeRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if body.Tokens == nil {
		return fault.Invalid("tokens", "tokens must be an array of token ids")
	}
	text, err := api.engine.Detokenize(c.Request().Context(), body.Model, body.Tokens)
	if err != nil {
		return err
	}
	answer := detokenizeBody{Content: text, Prompt: text, Bytes: unlessText(text)}
	if body.WithPieces {
		pieces, err := api.engine.Pieces(c.Request().Context(), body.Model, body.Tokens)
		if err != nil {
			return err
		}
		for _, piece := range pieces {
			answer.Pieces = append(answer.Pieces, spell(piece))
		}
	}
	return c.JSON(http.StatusOK, answer)
}
