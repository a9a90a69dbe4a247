package engine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/fault"
)

// FuzzGenerate sends any JSON that is a request through a whole engine: it ends with
// a done event or with an *Error, and the engine goes on.
func FuzzGenerate(f *testing.F) {
	for _, seed := range []string{
		`{"tokens":[10,11,12],"max_tokens":5}`,
		`{"prompt":"hello <|im_end|>","max_tokens":3,"stop":["ab","a"],"alternatives":3}`,
		`{"messages":[{"role":"user","content":"hi"}],"params":{"temperature":0},"prompt_logprob":true}`,
		`{"messages":[{"role":"assistant","content":"I"}],"continue":true,"tools":[{"a":1}],"template_vars":{"x":[null]}}`,
		`{"tokens":[1],"params":{"temperature":1e300,"top_k":-1,"top_p":0,"min_p":1,"logit_bias":{"5":-1000},"seed":-9}}`,
		`{"tokens":[2147483647,-1],"max_tokens":-2,"alternatives":1000000,"stop":[""]}`,
		`{"model":"nobody","prompt":"x"}`,
		`{"prompt":"\ud800","ignore_eos":true,"max_tokens":9223372036854775807}`,
	} {
		f.Add([]byte(seed))
	}
	b := newBench(f, func(_ *bench, o *Options) { o.Logger = nil }) // f may not log while it fuzzes
	if err := b.WaitReady(f.Context()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := infer.DefaultRequest()
		if json.Unmarshal(data, &r) != nil {
			return
		}
		if r.Model != "" && r.Model != "toy" {
			r.Model = "nobody"
		}
		done := false
		for e, err := range b.Generate(context.Background(), r) {
			var typed *fault.Error
			switch {
			case done:
				t.Fatalf("%+v, %v after the end", e, err)
			case err != nil && !errors.As(err, &typed):
				t.Fatalf("an error of type %T: %v", err, err)
			case err != nil && (typed.Message == "" || typed.Code == fault.CodeInternal || typed.Code == fault.CodeDevice):
				t.Fatalf("error %+v", typed)
			}
			done = err != nil || e.Done != nil
		}
		if s := b.Status(); !done || s.State != infer.StateReady {
			t.Fatalf("ended: %v, state %s", done, s.State)
		}
	})
}
