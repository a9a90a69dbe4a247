package model

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf"
)

// conventions are the names that llama.cpp's loader knows of each architecture, read from its sources.
type conventions struct {
	tensors, keys map[string]map[string]bool // by architecture; of tensors of layers the part after "blk.N.", of keys that after the architecture
}

// readConventions reads the sources in the folder of M40_LLM_CONVERTER, where the official converter and loader are; nil: there are none.
func readConventions(t *testing.T) *conventions {
	t.Helper()
	root := os.Getenv("M40_LLM_CONVERTER")
	if root == "" {
		return nil
	}
	read := func(elem ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root, "src"}, elem...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	pairs := func(expression, text string) map[string]string {
		found := map[string]string{}
		for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
			found[m[1]] = m[2]
		}
		return found
	}
	names := read("llama-arch.cpp")
	architectureOf, tensorName, keyName := pairs(`\{ (LLM_ARCH_\w+),\s*"([^"]+)"`, names), pairs(`\{ (LLM_TENSOR_\w+),\s*"([^"]+)"`, names), pairs(`\{ (LLM_KV_\w+),\s*"([^"]+)"`, names)
	loader := read("llama-model.cpp")
	c := &conventions{map[string]map[string]bool{}, map[string]map[string]bool{}}
	bases := pairs(`struct llama_model_(\w+) : public llama_model_(\w+)`, read("models", "models.h"))
	var function func(class, name, text string) string
	function = func(class, name, text string) string {
		_, body, found := strings.Cut(text, "void llama_model_"+class+"::"+name+"(")
		if base, ok := bases[class]; ok && !found {
			return function(base, name, text)
		}
		body, _, _ = strings.Cut(body, "\n}\n")
		return body
	}
	files, err := filepath.Glob(filepath.Join(root, "src", "models", "*.cpp"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of models in %s: %v", root, err)
	}
	sources := ""
	for _, f := range files {
		sources += read("models", filepath.Base(f))
	}
	tensor, attention := regexp.MustCompile(`tn\((LLM_TENSOR_\w+)\s*(?:,\s*"(\w+)")?`), function("base", "create_tensor_qkv", loader)
	for constant, class := range pairs(`case (LLM_ARCH_\w+):\s*\n\s*return new llama_model_(\w+)\(`, loader) {
		architecture := architectureOf[constant]
		c.tensors[architecture], c.keys[architecture] = map[string]bool{}, map[string]bool{}
		body := function(class, "load_arch_tensors", sources)
		if strings.Contains(body, "create_tensor_qkv") {
			body += attention
		}
		for _, m := range tensor.FindAllStringSubmatch(body, -1) {
			name := strings.TrimPrefix(tensorName[m[1]], "blk.%d.")
			if m[2] != "" {
				name += "." + m[2]
			}
			c.tensors[architecture][name] = true
		}
		for _, m := range regexp.MustCompile(`LLM_KV_\w+`).FindAllString(function(class, "load_arch_hparams", sources), -1) {
			c.keys[architecture][strings.TrimPrefix(keyName[m], "%s.")] = true
		}
	}
	return c
}

// otherTensors match names, behind the architecture, that need no declaration, because files that have them are refused by name or
// have no such tensor.
var otherTensors = regexp.MustCompile(strings.Join([]string{
	`^\S+ nextn\.`,                         // of multi-token prediction blocks, which are left out
	`^\S+ cls`,                             // of models that rank texts
	`^\S+ \S*(scale|input_scale)$`,         // of weights in NVFP4
	`^(\S+) \S*attn_(q|k|v|qkv)\S*\.bias$`, // of all families in the loader, which few have
	`^(gemma4|bailingmoe3|kimi-linear|qwen35|qwen35moe|qwen3next) attn_qkv\.weight$`, // their queries, keys and values are not written as one
	`^(gemma3|lfm2|lfm2moe) dense_`, // of models that compute embeddings
	`^(lfm2|nemotron_h|ernie4_5) (exp_probs_b|ffn_gate_inp|ffn_\w+_exps|ffn_\w+_shexp)`, // of the same family with experts, which has another name
	`^(llama|granite|minicpm|mistral3) ffn_\w+_shexp`,
	`^granitemoe ffn_(up|down|gate)\.`,                             // of the family without experts
	`^nemotron_h_moe ffn_(up|down)\.`,                              // of the family without experts
	`^nemotron_h(_moe)? (ffn_latent|post_attention_norm|ffn_norm)`, // of Nemotron 3 Super
	`^bailingmoe[23] layer_output_norm`,                            // of a multi-token prediction block
	`^mpt ffn\.act\.scales$`,                                       // the converter writes none any more
	`^qwen3next ssm_in`,                                            // of the first files, whose values have another order
}, "|"))

// The sources are those of the official converter and loader, where M40_LLM_CONVERTER says that they are: a file in the wild has the
// names that these write and read.
func TestDeclarationsKnowTheNamesOfPublishedFiles(t *testing.T) {
	c := readConventions(t)
	if c == nil {
		return
	}
	for _, name := range Architectures() {
		if c.tensors[name] == nil {
			t.Errorf("%s: the loader does not know the architecture", name)
			continue
		}
		declared := map[string]bool{}
		for _, tensor := range architectures[name].tensors {
			declared[tensor.name] = true
			if tensor.fill == 0 && !c.tensors[name][tensor.name] {
				t.Logf("%s: no file has %s", name, tensor.name)
			}
		}
		for _, tensor := range slices.Sorted(maps.Keys(c.tensors[name])) {
			if !declared[tensor] && !otherTensors.MatchString(name+" "+tensor) {
				t.Errorf("%s: files have %s, which is not declared", name, tensor)
			}
		}
	}
}

// otherKeys match keys, behind the architecture, that have no effect on what a model computes here.
var otherKeys = regexp.MustCompile(strings.Join([]string{
	`^\S+ (vocab_size|nextn_predict_layers|tokenizer\..*)$`,
	`^\S+ (n_deepstack_layers|deepstack_mapping|rope\.dimension_sections)$`, // of pictures
	`^nemotron_h(_moe)? attention\.layer_norm_epsilon$`,                     // it has RMSNorm
	`^cohere2moe attention\.layer_norm_rms_epsilon$`,                        // it has LayerNorm
	`^deepseek2 attention\.temperature_length$`,                             // attention.temperature_scale is refused
	`^gemma-embedding dense_[23]_feat_(in|out)$`,                            // the tensors have the sizes
	`^(ernie4_5|nemotron_h|granite|granite_swa) (expert|interleave_moe)_`,   // of the same family with experts
	`^nomic-bert-moe moe_every_n_layers$`,                                   // the layers with a router have experts
	`^apertus xielu\.`,                                                      // read without the architecture
}, "|"))

func TestKeysOfPublishedFilesAreReadOrRefused(t *testing.T) {
	c := readConventions(t)
	if c == nil {
		return
	}
	read := map[string]map[string]bool{}
	files, err := filepath.Glob(filepath.Join(os.Getenv("M40_LLM_FIXTURES"), "*", "*", "f16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		name, err := f.Str("general.architecture")
		if err != nil || CheckArchitecture(name) != nil {
			continue
		}
		m := &metadata{f: f, prefix: name, read: map[string]bool{}}
		if _, err := readConfig(m); err != nil {
			continue
		}
		if read[name] == nil {
			read[name] = map[string]bool{}
		}
		maps.Copy(read[name], m.read)
	}
	for _, name := range Architectures() {
		if read[name] == nil {
			t.Logf("%s: there is no file to read", name)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(c.keys[name])) {
			if _, refused := computationKeys[key]; !refused && !read[name][key] && !otherKeys.MatchString(name+" "+key) {
				t.Errorf("%s: files have the key %s, which is neither read nor refused", name, key)
			}
		}
	}
}
