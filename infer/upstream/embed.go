package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

const (
	maxTexts = 32    // of a request to a server: some take no more
	maxWidth = 16384 // of a vector
)

// Embed returns the embeddings of texts, by a model of this machine or of another server. Of engines that say only
// how many tokens all texts have, the first text has those of all that were sent with it.
func (r *Router) Embed(ctx context.Context, request infer.EmbedRequest) (infer.Embeddings, error) {
	m := r.find(request.Model)
	if m == nil {
		result, err := r.Engine.Embed(ctx, request)
		return result, r.unknown(err)
	}
	if err := request.Validate(); err != nil {
		return infer.Embeddings{}, err
	}
	request.Model, request.Client = m.id, ""
	result := infer.Embeddings{Model: m.name}
	parts := slices.Collect(slices.Chunk(request.Inputs, maxTexts))
	if len(parts) == 0 {
		parts = [][]infer.EmbedInput{nil} // the model is only loaded
	}
	for _, part := range parts {
		request.Inputs = part
		err := r.attempt(ctx, m, 0, func(ctx context.Context, s *server, _ func() bool) (bool, error) {
			got, err := s.embed(ctx, m, request)
			if err == nil && len(result.Vectors) > 0 && len(got.Vectors[0]) != len(result.Vectors[0]) {
				err = s.breach("sent embeddings of %d dimensions after others of %d", len(got.Vectors[0]), len(result.Vectors[0]))
			}
			if err == nil {
				result.Vectors, result.Tokens = append(result.Vectors, got.Vectors...), append(result.Tokens, got.Tokens...)
				result.LoadMS = max(result.LoadMS, got.LoadMS)
			}
			return false, err
		})
		if err != nil {
			return infer.Embeddings{}, err
		}
	}
	return result, nil
}

// embed has the server compute the embeddings of at most maxTexts texts. An error is a *failure, a *fault.Error or
// that of ctx.
func (s *server) embed(ctx context.Context, m *model, r infer.EmbedRequest) (result infer.Embeddings, err error) {
	if m.exact {
		if result, err = s.native.Embed(ctx, r); err != nil {
			return result, s.failure(err)
		}
	} else if result, err = s.embedOpenAI(ctx, r); err != nil {
		return result, err
	}
	if problem := checkEmbeddings(result, len(r.Inputs)); problem != "" {
		return result, s.breach("sent embeddings that are none: %s", problem)
	}
	return result, nil
}

// checkEmbeddings returns what is wrong with the embeddings of n texts; empty if nothing is.
func checkEmbeddings(e infer.Embeddings, n int) string {
	if len(e.Vectors) != n || len(e.Tokens) != n {
		return "their number is not that of the texts"
	}
	if !(e.LoadMS >= 0 && e.LoadMS < math.MaxInt32) || slices.ContainsFunc(e.Tokens, func(t int) bool { return t != tokens(t) }) {
		return "what they cost is impossible"
	}
	for _, v := range e.Vectors {
		if len(v) == 0 || len(v) > maxWidth || len(v) != len(e.Vectors[0]) {
			return "the number of their dimensions"
		}
		if slices.ContainsFunc(v, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }) {
			return "they are not finite"
		}
	}
	return ""
}

// embedOpenAI asks an OpenAI-compatible server for embeddings.
func (s *server) embedOpenAI(ctx context.Context, r infer.EmbedRequest) (result infer.Embeddings, err error) {
	if len(r.Inputs) == 0 {
		return result, nil
	}
	input, err := openAIInput(r.Inputs)
	if err != nil {
		return result, err
	}
	body, err := json.Marshal(map[string]any{"model": r.Model, "input": input})
	if err != nil {
		return result, fault.Errorf(fault.CodeInvalid, "the texts cannot be written as JSON: %s", err)
	}
	var answer struct {
		Data few[struct {
			Index     int     `json:"index"`
			Embedding numbers `json:"embedding"`
		}] `json:"data"`
		Usage usage `json:"usage"`
	}
	limit := int64(maxModelBody + len(r.Inputs)*maxVectorBody)
	if err := s.exchange(ctx, http.MethodPost, "/v1/embeddings", bytes.NewReader(body), s.o.Silence, limit, &answer); err != nil {
		return result, err
	}
	result.Vectors, result.Tokens = make([]infer.Vector, len(r.Inputs)), make([]int, len(r.Inputs))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(result.Vectors) || result.Vectors[d.Index] != nil {
			return result, s.breach("sent the embedding of a text that it was not asked for")
		}
		result.Vectors[d.Index] = infer.Vector(d.Embedding)
	}
	result.Tokens[0] = tokens(answer.Usage.Prompt)
	return result, nil
}

// openAIInput returns texts, or the tokens of texts, as the field input of OpenAI's route.
func openAIInput(inputs []infer.EmbedInput) (any, error) {
	var texts []string
	var ids [][]int32
	for _, in := range inputs {
		if in.Text != "" {
			texts = append(texts, in.Text)
		} else {
			ids = append(ids, in.Tokens)
		}
	}
	if len(texts) > 0 && len(ids) > 0 {
		return nil, fault.Invalid("input", "input has texts and tokens: the engine of this model takes one of them in a request")
	}
	if len(ids) > 0 {
		return ids, nil
	}
	return texts, nil
}

// numbers is a vector as OpenAI's route has it: numbers, or little-endian float32 in base64.
type numbers []float32

// UnmarshalJSON implements json.Unmarshaler.
func (n *numbers) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return (*infer.Vector)(n).UnmarshalJSON(data)
	}
	return json.Unmarshal(data, (*[]float32)(n))
}
