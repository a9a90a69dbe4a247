package failure

import "fmt"

// tooLong says in the words of one API that a prompt does not fit. Clients that shorten the
// conversation and ask again look for these words.
type tooLong struct {
	exact string // has the tokens of the prompt, those of the context, a remark and the advice
	vague string // has the text of an engine elsewhere that tells no numbers
}

var (
	tooLongForOpenAI = tooLong{
		"This model's maximum context length is %[2]d tokens, but the prompt is too long: it has %[1]d tokens%[3]s; %[4]s",
		"This model's maximum context length is exceeded, the prompt is too long: %s",
	}
	tooLongForAnthropic = tooLong{"prompt is too long: %[1]d tokens > %[2]d maximum%[3]s; %[4]s", "prompt is too long: %s"}
	tooLongForOllama    = tooLong{
		"the input length exceeds the context length: the prompt has %[1]d tokens, the context %[2]d%[3]s; %[4]s",
		"the input length exceeds the context length: %s",
	}
	tooLongForLlama = tooLong{
		"request (%[1]d tokens) exceeds the available context size (%[2]d tokens)%[3]s; %[4]s",
		"request exceeds the available context size: %s",
	}
)

// of returns the message of f, whose code is fault.CodeContext.
func (t tooLong) of(f Failure) string {
	if f.PromptTokens == 0 || f.ContextLength == 0 {
		return fmt.Sprintf(t.vague, f.reason)
	}
	remark := ""
	if f.PromptTokens <= f.ContextLength {
		remark = ", which leaves no room for an answer"
	}
	return fmt.Sprintf(t.exact, f.PromptTokens, f.ContextLength, remark, f.advice)
}
