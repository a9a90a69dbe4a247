package guide

import (
	"testing"

	"m40-llm/infer/gguf"
)

func TestModel(t *testing.T) {
	f, err := gguf.Parse(Model)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("it is a llama of 14 million parameters in Q8_0, as its card says", func(t *testing.T) {
		parameters, bytes := 0, map[gguf.Type]int{}
		for _, tensor := range f.Tensors() {
			parameters += tensor.Elements()
			bytes[tensor.Type] += len(tensor.Data)
		}
		if parameters/1e6 != 14 {
			t.Errorf("it has %d parameters", parameters)
		}
		if len(bytes) != 2 || bytes[gguf.Q8_0] < 100*bytes[gguf.F32] {
			t.Errorf("its bytes by type are %v, want Q8_0 but for the norms", bytes)
		}
	})
	for key, want := range map[string]string{"general.architecture": "llama", "general.license": "MIT", "tokenizer.ggml.pre": "smollm"} {
		t.Run("its "+key+" is "+want, func(t *testing.T) {
			if got, err := f.Str(key); got != want || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	t.Run("it has a chat template", func(t *testing.T) {
		if s, err := f.Str("tokenizer.chat_template"); s == "" || err != nil {
			t.Errorf("got %q, %v", s, err)
		}
	})
}
