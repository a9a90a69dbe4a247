package upstream

import (
	"encoding/json"
	"math"
	"mime"
	"regexp"
	"strconv"
	"strings"
)

// engineError is the error that an engine gives as the body of a response, or in a stream.
type engineError struct {
	message string
	code    string // OpenAI's code, or the type
	prompt  int    // tokens; 0: it does not say
	context int    // tokens; 0: it does not say
	formed  bool   // it has the form that engines give it: no balancer wrote it
}

// webPage replaces the message of an error that is a web page.
const webPage = "a web page"

// readError returns an error in OpenAI's form, or in one of those that engines have instead; of other bodies the text.
func readError(contentType string, text []byte) engineError {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(text, &body) != nil {
		if kind, _, _ := mime.ParseMediaType(contentType); kind == "text/html" {
			return engineError{message: webPage}
		}
		return engineError{message: string(text)}
	}
	var inner struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Type    string          `json:"type"`
		Prompt  int             `json:"n_prompt_tokens"` // llama-server's, as is Context
		Context int             `json:"n_ctx"`
	}
	if json.Unmarshal(body.Error, &inner) == nil && inner.Message != "" {
		e := engineError{formed: true, message: inner.Message, prompt: tokens(inner.Prompt), context: tokens(inner.Context)}
		if json.Unmarshal(inner.Code, &e.code) != nil || e.code == "" {
			e.code = inner.Type
		}
		return e
	}
	var message string
	switch {
	case json.Unmarshal(body.Error, &message) == nil && message != "":
	case body.Message != "":
		message = body.Message
	case json.Unmarshal(body.Detail, &message) == nil && message != "":
	default:
		message = string(text)
	}
	return engineError{message: message, formed: len(body.Error) > 0}
}

// overflows are sentences of engines about a prompt, or a prompt and an answer, that do not fit into the context, with the
// tokens of the context and of the prompt.
var overflows = []*regexp.Regexp{
	regexp.MustCompile(`maximum context length (?:is|of) (?P<context>\d+) tokens?.*?(?P<prompt>\d+) (?:input tokens|in the messages|in the prompt|tokens from the input)`), // vLLM, OpenAI, SGLang
	regexp.MustCompile(`maximum context length (?:is|of) (?P<context>\d+) tokens?, .*?(?:prompt|it) has (?P<prompt>\d+)`),                                                  // m40-llm
	regexp.MustCompile(`\((?P<prompt>\d+) tokens\) (?:is longer than the model's context length|exceeds the available context size) \((?P<context>\d+) tokens\)`),          // SGLang, llama-server
	regexp.MustCompile(`maximum context length (?:is|of) (?P<context>\d+)`),
}

// tooLong reports whether the prompt, or the prompt and the answer, do not fit into the context.
func (e engineError) tooLong() bool {
	for _, phrase := range []string{"maximum context length", "exceeds the available context size", "longer than the model's context length"} {
		if strings.Contains(e.message, phrase) {
			return true
		}
	}
	return e.code == "context_length_exceeded" || e.code == "exceed_context_size_error"
}

// figures returns the tokens of the prompt and of the context that an error about them tells; 0: it does not.
func (e engineError) figures() (prompt, context int) {
	prompt, context = e.prompt, e.context
	for _, sentence := range overflows {
		found := sentence.FindStringSubmatch(e.message)
		if found == nil {
			continue
		}
		for i, name := range sentence.SubexpNames() {
			n, err := strconv.Atoi(found[i])
			switch {
			case err != nil || n > math.MaxInt32:
			case name == "prompt" && prompt == 0:
				prompt = n
			case name == "context" && context == 0:
				context = n
			}
		}
		break
	}
	return prompt, context
}

// aboutRoute reports whether a response that something was not found is about the route, and not about the model.
func (e engineError) aboutRoute() bool {
	text := strings.ToLower(e.message)
	if e.code == "model_not_found" || strings.Contains(text, "model") {
		return false
	}
	return text == "" || e.message == webPage || strings.Contains(text, "not found") || strings.Contains(text, "cannot post")
}
