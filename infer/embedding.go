package infer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"m40-llm/infer/fault"
)

// MaxEmbedInputs is how many texts one EmbedRequest may have.
const MaxEmbedInputs = 2048

// EmbedRequest asks for the embeddings of texts. It is a plain value as Request is (POST /v1/embed).
type EmbedRequest struct {
	Model      string       `json:"model,omitempty"`        // empty: the model that is loaded
	Client     string       `json:"client,omitempty"`       // as in Request
	Inputs     []EmbedInput `json:"inputs"`                 // at most MaxEmbedInputs; none: the model is only loaded
	KeepAliveS *float64     `json:"keep_alive_s,omitempty"` // as in Request
	Truncate   bool         `json:"truncate,omitempty"`     // cut texts that do not fit into the context, instead of refusing them
}

// EmbedInput is a text, or its tokens, which are used as they are.
type EmbedInput struct {
	Text   string  `json:"text,omitempty"`
	Tokens []int32 `json:"tokens,omitempty"`
}

// Embeddings are the embeddings of the texts of an EmbedRequest, in their order.
type Embeddings struct {
	Model   string   `json:"model"`   // that computed them
	Vectors []Vector `json:"vectors"` // pooled as the model's file says, not normalised
	Tokens  []int    `json:"tokens"`  // of each text, those that the file adds included; other engines say only the sum for some texts, which the first of them has
	LoadMS  float64  `json:"load_ms"` // time in which the model was loaded
}

// Vector is an embedding. As JSON it is base64 of little-endian float32.
type Vector []float32

// MarshalJSON implements json.Marshaler.
func (v Vector) MarshalJSON() ([]byte, error) { return json.Marshal(v.Base64()) }

// UnmarshalJSON implements json.Unmarshaler.
func (v *Vector) UnmarshalJSON(data []byte) error {
	var raw []byte
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	if len(raw)%4 != 0 {
		return fmt.Errorf("a vector has %d bytes, which are no whole float32", len(raw))
	}
	*v = make(Vector, len(raw)/4)
	for i := range *v {
		(*v)[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// Base64 returns the little-endian float32 of v in base64.
func (v Vector) Base64() string {
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// Normalized returns the first dimensions elements of v, all if dimensions is 0, scaled to length 1.
// A vector of zeros stays one.
func (v Vector) Normalized(dimensions int) Vector {
	if dimensions > 0 {
		v = v[:min(dimensions, len(v))]
	}
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	unit := make(Vector, len(v))
	for i, x := range v {
		if sum > 0 {
			unit[i] = float32(float64(x) / math.Sqrt(sum))
		}
	}
	return unit
}

// Validate returns an error that names the first field that is invalid for every model.
func (r *EmbedRequest) Validate() error {
	if len(r.Inputs) > MaxEmbedInputs {
		return fault.Invalid("input", "input has %d texts: give at most %d, and the others in further requests", len(r.Inputs), MaxEmbedInputs)
	}
	for i, in := range r.Inputs {
		switch {
		case in.Tokens != nil && len(in.Tokens) == 0:
			return fault.Invalid("input", "input: number %d has no tokens", i+1)
		case in.Text != "" && len(in.Tokens) > 0:
			return fault.Invalid("input", "input: number %d has a text and tokens: give only one of them", i+1)
		}
	}
	return nil
}
