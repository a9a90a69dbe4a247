package api

import (
	"context"

	"m40-llm/infer/fault"
)

// infill is a gap to fill: what precedes and follows it, and texts that the answer may draw on.
type infill struct{ extra, prefix, suffix string }

// infillMarkers are the names of the tokens between which models were trained to fill in the middle.
type infillMarkers struct{ prefix, suffix, middle string }

// knownInfillMarkers are those of the families of models, the most common first.
var knownInfillMarkers = []infillMarkers{
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, // Qwen, CodeGemma
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       // StarCoder, Granite
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},       // DeepSeek
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       // SantaCoder
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
	{"▁<PRE>", "▁<SUF>", "▁<MID>"}, // Code Llama
}

// infillTokens are the tokens of a vocabulary for filling in the middle.
type infillTokens struct {
	begin                  []int32 // that the model file puts before a text
	prefix, suffix, middle int32
}

// infillTokens returns the tokens for filling in the middle; ok is false if the vocabulary of the
// model has none.
func (api *API) infillTokens(ctx context.Context, model string) (t infillTokens, ok bool, err error) {
	for _, names := range knownInfillMarkers {
		ids := make([]int32, 0, 3)
		for _, name := range []string{names.prefix, names.suffix, names.middle} {
			found, err := api.engine.Tokenize(ctx, model, name, false, true)
			if err != nil {
				return t, false, err
			}
			if len(found) != 1 {
				break
			}
			ids = append(ids, found[0])
		}
		if len(ids) < 3 {
			continue
		}
		t = infillTokens{prefix: ids[0], suffix: ids[1], middle: ids[2]}
		around, err := api.engine.Tokenize(ctx, model, names.prefix, true, true)
		if err != nil {
			return t, false, err
		}
		for i, id := range around {
			if id == t.prefix {
				t.begin = around[:i:i]
				break
			}
		}
		return t, true, nil
	}
	return t, false, nil
}

// fillsIn reports whether the model can fill in the middle.
func (api *API) fillsIn(ctx context.Context, model string) bool {
	_, ok, err := api.infillTokens(ctx, model)
	return ok && err == nil
}

// fillIn returns the prompt that has the model write what belongs into the gap. Texts are data: names
// of special tokens in them are text.
func (api *API) fillIn(ctx context.Context, model string, gap infill) ([]int32, error) {
	t, ok, err := api.infillTokens(ctx, model)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fault.Invalid("suffix", "%s cannot fill in the middle: its vocabulary has no tokens for that; use a model for code, such as Qwen2.5-Coder", api.modelName(model))
	}
	prompt := t.begin
	for _, piece := range []struct {
		text string
		then int32 // the marker after it
	}{{gap.extra, t.prefix}, {gap.prefix, t.suffix}, {gap.suffix, t.middle}} {
		if piece.text != "" {
			ids, err := api.engine.Tokenize(ctx, model, piece.text, false, false)
			if err != nil {
				return nil, err
			}
			prompt = append(prompt, ids...)
		}
		prompt = append(prompt, piece.then)
	}
	return prompt, nil
}
