package tokenizer

import "strings"

// kind is the type of a token as encoded in tokenizer.ggml.token_type.
type kind uint8

const (
	kindUndefined kind = iota
	kindNormal
	kindUnknown
	kindControl
	kindUserDefined
	kindUnused
	kindByte
)

// endTokenTexts lists the texts of tokens by which the model families end an answer. Files
// often name only one of them or list them as normal tokens: a model would then not stop,
// and the content of a message could contain them.
var endTokenTexts = map[string]bool{
	"<|im_end|>": true, "<|eot_id|>": true, "<|eom_id|>": true, "<|end|>": true, "<|endoftext|>": true,
	"<|end_of_text|>": true, "<|return|>": true, "<|call|>": true, "<end_of_turn>": true, "<end_of_utterance>": true,
	"<｜end▁of▁sentence｜>": true, "<EOT>": true, "_<EOT>": true, "[EOT]": true, "[EOS]": true, "</s>": true,
	"<|END_OF_TURN_TOKEN|>": true, "<|fim_pad|>": true, "<|repo_name|>": true, "<|file_sep|>": true,
	"<turn|>": true, "<|assistant_end|>": true, "<seed:eos>": true,
	// Emitted after a tool call, where the result must follow.
	"<|observation|>": true, "<|tool_response>": true, "<start_function_response>": true,
}

// isMarker reports whether text is written like a marker of a chat template. Some files
// list their markers as user-defined tokens, which would be recognised in plain text.
func isMarker(text string) bool {
	return enclosed(text, "<|", "|>") || enclosed(text, "<｜", "｜>") ||
		text == "<start_of_turn>" || text == "[INST]" || text == "[/INST]"
}

func enclosed(text, before, after string) bool {
	return len(text) > len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}
