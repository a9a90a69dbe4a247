package api

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The fields that other servers document for the requests of these routes, late in November 2026.
const (
	vllmSampling = "frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream stream_options temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids " +
		"include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs logprob_token_ids allowed_token_ids bad_words add_special_tokens " +
		"response_format structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start return_token_offsets return_mm_kwargs cache_salt kv_transfer_params " +
		"ec_transfer_params vllm_xargs repetition_detection thinking_token_budget stream_interval echo"
	vllmChat = vllmSampling + " messages model top_logprobs max_completion_tokens tools tool_choice reasoning_effort include_reasoning parallel_tool_calls add_generation_prompt continue_final_message documents chat_template " +
		"chat_template_kwargs media_io_kwargs mm_processor_kwargs return_prompt_text"
	vllmCompletions = vllmSampling + " model prompt suffix prompt_embeds"

	llamaSampling = "verbose timings_per_token stream stream_options cache_prompt return_progress sse_ping_interval max_completion_tokens max_tokens n_indent n_keep n_discard n_cmpl n n_cache_reuse t_max_predict_ms t_max_prompt_ms " +
		"response_fields top_k top_p min_p top_n_sigma xtc_probability xtc_threshold typical_p temperature dynatemp_range dynatemp_exponent repeat_last_n repeat_penalty frequency_penalty presence_penalty dry_multiplier dry_base " +
		"dry_allowed_length dry_penalty_last_n dry_sequence_breakers mirostat mirostat_tau mirostat_eta adaptive_target adaptive_decay seed logprobs min_keep backend_sampling post_sampling_probs speculative.n_max speculative.n_min " +
		"speculative.p_min speculative.type lora json_schema grammar grammar_lazy grammar_triggers preserved_tokens chat_format chat_parser generation_prompt reasoning_format parse_tool_calls echo reasoning_control " +
		"reasoning_budget_tokens reasoning_budget_message reasoning_budget_start_tag reasoning_budget_end_tags logit_bias ignore_eos stop samplers id_slot"
	llamaChat       = llamaSampling + " messages tools tool_choice parallel_tool_calls response_format chat_template_kwargs reasoning_effort add_generation_prompt continue_final_message thinking_budget_tokens top_logprobs"
	llamaCompletion = llamaSampling + " n_predict n_probs return_tokens prompt"

	ollamaRequest = "model stream format options keep_alive think logprobs top_logprobs truncate shift"
	ollamaOption  = "num_keep seed num_predict top_k top_p min_p typical_p repeat_last_n temperature repeat_penalty presence_penalty frequency_penalty mirostat mirostat_tau mirostat_eta penalize_newline stop numa num_ctx num_batch num_gpu " +
		"main_gpu low_vram vocab_only use_mmap use_mlock num_thread"
)

func TestEveryDocumentedFieldIsDoneRefusedOrSaidToHaveNoEffect(t *testing.T) {
	doc, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(doc), "These have no effect on an answer and are ignored: ")
	if list, _, _ = strings.Cut(list, "\n- "); !found {
		t.Fatal("docs/api.md does not list the fields without effect")
	}
	var ignored []string
	for i, part := range strings.Split(list, "`") {
		if i%2 == 1 {
			ignored = append(ignored, part)
		}
	}
	used := map[string]bool{}
	for _, route := range []struct {
		name, fields string
		body         any
	}{
		{"vLLM's chat completions", vllmChat, chatRequest{}}, {"vLLM's completions", vllmCompletions, completionRequest{}},
		{"llama-server's chat completions", llamaChat, chatRequest{}}, {"llama-server's /completion", llamaCompletion, LlamaCompletion{}},
		{"Ollama's chats", ollamaRequest + " messages tools", OllamaChat{}}, {"Ollama's completions", ollamaRequest + " prompt suffix system template raw context images", OllamaGenerate{}},
		{"Ollama's options", ollamaOption, ollamaOptions{}},
	} {
		decoded := decodedFields(reflect.TypeOf(route.body))
		for field := range strings.FieldsSeq(route.fields) {
			switch known, without := slices.Contains(decoded, field), slices.Contains(ignored, field); {
			case without:
				used[field] = true
				if known {
					t.Errorf("%s: %s has an effect, and docs/api.md says that it has none", route.name, field)
				}
			case !known:
				t.Errorf("%s: %s is ignored without a word", route.name, field)
			}
		}
	}
	for _, field := range ignored {
		if !used[field] && !slices.Contains([]string{"store", "metadata", "service_tier"}, field) {
			t.Errorf("docs/api.md says of %s that it is ignored, and no server has it", field)
		}
	}
}

// decodedFields returns the names of the members of JSON that are decoded into a struct.
func decodedFields(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name != "" && name != "-":
			names = append(names, name)
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			names = append(names, decodedFields(f.Type)...)
		}
	}
	return names
}
