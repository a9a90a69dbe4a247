package failure

import (
	"cmp"
	"net/http"

	"m40-llm/infer/fault"
)

// Body is OpenAI's shape of a failure, with llama-server's two numbers.
type Body struct {
	Error Fields `json:"error"`
}

// Fields are those of the one error in a Body.
type Fields struct {
	Message       string  `json:"message"`
	Type          string  `json:"type"`
	Param         *string `json:"param"`
	Code          any     `json:"code" schema:"string|integer|null"`
	Title         string  `json:"title,omitempty"` // for the page's scripts
	PromptTokens  int     `json:"n_prompt_tokens,omitempty"`
	ContextLength int     `json:"n_ctx,omitempty"`
}

// Body returns f as OpenAI's clients expect it.
func (f Failure) Body() Body {
	b := Body{Fields{Message: f.Message, Type: f.Type, PromptTokens: f.PromptTokens, ContextLength: f.ContextLength}}
	switch f.Code {
	case "":
	case fault.CodeLoading:
		b.Error.Code = f.Status // as llama-server has it
	default:
		b.Error.Code = f.Code
	}
	if f.Param != "" {
		b.Error.Param = &f.Param
	}
	return b
}

// OllamaBody is Ollama's shape of a failure.
type OllamaBody struct {
	Error string `json:"error"`
}

// Ollama returns f as Ollama's clients expect it.
func (f Failure) Ollama() OllamaBody {
	if f.Code == fault.CodeContext {
		f.Message = tooLongForOllama.of(f)
	}
	return OllamaBody{f.Message}
}

// Llama returns f as llama-server's clients expect it.
func (f Failure) Llama() Body {
	if f.Code == fault.CodeContext {
		f.Type = "exceed_context_size_error"
		f.Message = tooLongForLlama.of(f)
	}
	return f.Body()
}

// AnthropicBody is Anthropic's shape of a failure.
type AnthropicBody struct {
	Type  string         `json:"type"` // error
	Error AnthropicError `json:"error"`
}

// AnthropicError is the one error in an AnthropicBody.
type AnthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// anthropicTypes are Anthropic's names for the kinds of failure; other statuses below 500 are
// invalid_request_error, others above it api_error.
var anthropicTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// Anthropic returns f as Anthropic's clients expect it.
func (f Failure) Anthropic() AnthropicBody {
	if f.Code == fault.CodeContext {
		f.Message = tooLongForAnthropic.of(f)
	}
	other := "api_error"
	if f.Status < http.StatusInternalServerError {
		other = "invalid_request_error"
	}
	return AnthropicBody{Type: "error", Error: AnthropicError{Type: cmp.Or(anthropicTypes[f.Status], other), Message: f.Message}}
}
