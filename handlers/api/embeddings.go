package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/gate"
	"m40-llm/handlers/httpio"
	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// EmbeddingsRequest is the body of POST /v1/embeddings, with llama-server's content.
type EmbeddingsRequest struct {
	Model      string          `json:"model"`
	Input      json.RawMessage `json:"input" schema:"string|[string]|[integer]|[[integer]]"` // a string, or an array of strings, of token ids, or of arrays of these
	Content    json.RawMessage `json:"content" schema:"string|[string]|[integer]|[[integer]]"`
	Dimensions *int            `json:"dimensions"`
	Encoding   string          `json:"encoding_format"` // float or base64
	Normalize  *int            `json:"embd_normalize"`  // llama-server's: 2, length 1; -1: as the model computes them
}

// EmbeddingList is the response to POST /v1/embeddings.
type EmbeddingList struct {
	Object string      `json:"object"`
	Data   []Embedding `json:"data"`
	Model  string      `json:"model"`
	Usage  struct {
		PromptTokens int `json:"prompt_tokens"`
		TotalTokens  int `json:"total_tokens"`
	} `json:"usage"`
}

// Embedding is that of one text: numbers, or little-endian float32 in base64.
type Embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding" schema:"[number]|string"`
}

// LlamaEmbedding is an element of the response to POST /embedding. Embedding has one vector: this
// server always pools.
type LlamaEmbedding struct {
	Index     int         `json:"index"`
	Embedding [][]float32 `json:"embedding"`
}

// embed asks the engine for embeddings on behalf of the client of c.
func (api *API) embed(c echo.Context, r infer.EmbedRequest) (infer.Embeddings, error) {
	bytes := int64(0)
	for _, input := range r.Inputs {
		bytes += int64(len(input.Text) + 4*len(input.Tokens))
	}
	if err := gate.Charge(c, gate.TextCost*bytes+vectorCost*int64(len(r.Inputs))); err != nil {
		return infer.Embeddings{}, err
	}
	if !api.gate.Trusted() {
		r.Client = api.gate.Client(c)
		if mayManage(c) != nil {
			r.KeepAliveS = nil
		}
	}
	return api.engine.Embed(c.Request().Context(), r)
}

// vectorCost is the memory that the embedding of a text takes, in bytes: the vector of a large model, and
// its text in the response.
const vectorCost = 64 << 10

// embedTexts answers POST /v1/embed, whose body is an infer.EmbedRequest, for servers.
func (api *API) embedTexts(c echo.Context) error {
	var r infer.EmbedRequest
	if err := httpio.ReadStrictJSON(c, &r); err != nil {
		return err
	}
	result, err := api.embed(c, r)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, result)
}

// embedInputs returns the inputs of a field that has them in one of OpenAI's forms.
func embedInputs(raw json.RawMessage, name string) (inputs []infer.EmbedInput, err error) {
	prompts, err := parsePrompts(raw, name, false)
	for _, p := range prompts {
		inputs = append(inputs, infer.EmbedInput{Text: p.text, Tokens: p.tokens})
	}
	return inputs, err
}

// normalized returns the vectors with so many dimensions, 0 for all of them, and of length 1. Models that are
// trained for it lose little when the last dimensions are cut off; other vectors cannot be lengthened.
func normalized(e infer.Embeddings, dimensions *int) ([]infer.Vector, error) {
	n := 0
	if dimensions != nil {
		n = *dimensions
		if len(e.Vectors) > 0 && (n < 1 || n > len(e.Vectors[0])) {
			return nil, fault.Invalid("dimensions", "dimensions is %d: must be from 1 to the %d that this model computes", n, len(e.Vectors[0]))
		}
	}
	units := make([]infer.Vector, len(e.Vectors))
	for i, v := range e.Vectors {
		units[i] = v.Normalized(n)
	}
	return units, nil
}

// embeddings answers POST /v1/embeddings, and /embeddings, which is llama-server's route too: a body with
// content gets its response.
func (api *API) embeddings(c echo.Context) error {
	var body EmbeddingsRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	if len(body.Input) == 0 && len(body.Content) > 0 {
		return api.answerLlamaEmbedding(c, body)
	}
	if body.Encoding != "" && body.Encoding != "float" && body.Encoding != "base64" {
		return fault.Invalid("encoding_format", "encoding_format %q is neither float nor base64", httpio.Shorten(body.Encoding))
	}
	inputs, err := embedInputs(body.Input, "input")
	if err != nil {
		return err
	}
	result, err := api.embed(c, infer.EmbedRequest{Model: body.Model, Inputs: inputs})
	if err != nil {
		return err
	}
	units, err := normalized(result, body.Dimensions)
	if err != nil {
		return err
	}
	list := EmbeddingList{Object: "list", Data: []Embedding{}, Model: result.Model}
	for i, v := range units {
		e := Embedding{Object: "embedding", Index: i, Embedding: []float32(v)}
		if body.Encoding == "base64" {
			e.Embedding = v.Base64()
		}
		list.Data = append(list.Data, e)
		list.Usage.PromptTokens += result.Tokens[i]
	}
	list.Usage.TotalTokens = list.Usage.PromptTokens
	return c.JSON(http.StatusOK, list)
}

// llamaEmbedding answers POST /embedding.
func (api *API) llamaEmbedding(c echo.Context) error {
	var body EmbeddingsRequest
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	return api.answerLlamaEmbedding(c, body)
}

func (api *API) answerLlamaEmbedding(c echo.Context, body EmbeddingsRequest) error {
	raw, name := body.Content, "content"
	if len(raw) == 0 {
		raw, name = body.Input, "input"
	}
	inputs, err := embedInputs(raw, name)
	if err != nil {
		return err
	}
	if n := body.Normalize; n != nil && *n != -1 && *n != 2 {
		return fault.Invalid("embd_normalize", "embd_normalize is %d: must be 2 (length 1) or -1 (as the model computes them)", *n)
	}
	result, err := api.embed(c, infer.EmbedRequest{Model: body.Model, Inputs: inputs})
	if err != nil {
		return err
	}
	if body.Normalize == nil || *body.Normalize == 2 {
		if result.Vectors, err = normalized(result, body.Dimensions); err != nil {
			return err
		}
	}
	list := []LlamaEmbedding{}
	for i, v := range result.Vectors {
		list = append(list, LlamaEmbedding{Index: i, Embedding: [][]float32{v}})
	}
	return c.JSON(http.StatusOK, list)
}

// OllamaEmbed is the body of POST /api/embed and of the older /api/embeddings.
type OllamaEmbed struct {
	ollamaModel
	Input      json.RawMessage `json:"input" schema:"string|[string]"` // of /api/embed: a string, or an array of strings
	Prompt     string          `json:"prompt"`                         // of /api/embeddings
	Truncate   *bool           `json:"truncate"`
	Dimensions *int            `json:"dimensions"`
	KeepAlive  json.RawMessage `json:"keep_alive" schema:"string|number"` // counts if the person manages the server's models
	Options    map[string]any  `json:"options"`                           // about how Ollama loads models: ignored
}

// OllamaEmbeddings is the response to POST /api/embed. Durations are in nanoseconds.
type OllamaEmbeddings struct {
	Model      string        `json:"model"`
	Embeddings [][]float32   `json:"embeddings"`
	Total      time.Duration `json:"total_duration"`
	Load       time.Duration `json:"load_duration"`
	Tokens     int           `json:"prompt_eval_count"`
}

// OllamaEmbedding is the response to POST /api/embeddings.
type OllamaEmbedding struct {
	Embedding []float32 `json:"embedding"`
}

// embedForOllama asks for the embeddings of texts. Without texts it loads the model, as Ollama does, and
// returns none.
func (api *API) embedForOllama(c echo.Context, body OllamaEmbed, inputs []infer.EmbedInput) (infer.Embeddings, error) {
	keep, err := keepAlive(body.KeepAlive)
	if err != nil {
		return infer.Embeddings{}, err
	}
	r := infer.EmbedRequest{Model: body.name(), Inputs: inputs, Truncate: body.Truncate == nil || *body.Truncate, KeepAliveS: keep}
	if len(inputs) == 0 {
		r.Inputs = []infer.EmbedInput{{Tokens: []int32{0}}} // any token
	}
	result, err := api.embed(c, r)
	if len(inputs) == 0 {
		result.Vectors, result.Tokens = nil, nil
	}
	return result, ollamaErr(err, body.name())
}

// ollamaEmbed answers POST /api/embed.
func (api *API) ollamaEmbed(c echo.Context) error {
	start := time.Now()
	var body OllamaEmbed
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	var inputs []infer.EmbedInput
	if text := string(body.Input); text != "" && text != "null" && text != `""` && text != "[]" {
		var err error
		if inputs, err = embedInputs(body.Input, "input"); err != nil {
			return err
		}
	}
	result, err := api.embedForOllama(c, body, inputs)
	if err != nil {
		return err
	}
	units, err := normalized(result, body.Dimensions)
	if err != nil {
		return err
	}
	answer := OllamaEmbeddings{Model: result.Model, Embeddings: [][]float32{}, Load: time.Duration(result.LoadMS * float64(time.Millisecond))}
	for i, v := range units {
		answer.Embeddings = append(answer.Embeddings, v)
		answer.Tokens += result.Tokens[i]
	}
	answer.Total = time.Since(start)
	return c.JSON(http.StatusOK, answer)
}

// ollamaEmbedding answers POST /api/embeddings, whose vector is not normalised.
func (api *API) ollamaEmbedding(c echo.Context) error {
	var body OllamaEmbed
	if err := httpio.ReadJSON(c, &body); err != nil {
		return err
	}
	var inputs []infer.EmbedInput
	if body.Prompt != "" {
		inputs = []infer.EmbedInput{{Text: body.Prompt}}
	}
	result, err := api.embedForOllama(c, body, inputs)
	if err != nil {
		return err
	}
	answer := OllamaEmbedding{Embedding: []float32{}}
	if len(result.Vectors) > 0 {
		answer.Embedding = result.Vectors[0]
	}
	return c.JSON(http.StatusOK, answer)
}
