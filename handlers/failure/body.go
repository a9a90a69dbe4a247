package failure

import "m40-llm/infer"

// Body is OpenAI's shape of a failure, with llama-server's two numbers.
type Body struct {
	Error Fields `json:"error"`
}

// Fields are those of the one error in a Body.
type Fields struct {
	Message       string  `json:"message"`
	Type          string  `json:"type"`
	Param         *string `json:"param"`
	Code          any     `json:"code"`
	Title         string  `json:"title,omitempty"` // for the page's scripts
	PromptTokens  int     `json:"n_prompt_tokens,omitempty"`
	ContextLength int     `json:"n_ctx,omitempty"`
}

// Body returns f as OpenAI's clients expect it.
func (f Failure) Body() Body {
	b := Body{Fields{Message: f.Message, Type: f.Type, PromptTokens: f.PromptTokens, ContextLength: f.ContextLength}}
	switch f.Code {
	case "":
	case string(infer.CodeLoading):
		b.Error.Code = f.Status // as llama-server has it
	default:
		b.Error.Code = f.Code
	}
	if f.Param != "" {
		b.Error.Param = &f.Param
	}
	return b
}
