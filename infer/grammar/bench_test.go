package grammar

import (
	"context"
	"fmt"
	"testing"
)

func BenchmarkMask(b *testing.B) {
	for _, name := range []string{"llama-spm", "falcon", "deepseek-llm"} {
		v, _ := vocabularyOf(b, name)
		rules, _, err := SchemaRules(context.Background(), "root", []byte(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string","maxLength":2000}},"required":["a","b"]}`), true)
		if err != nil {
			b.Fatal(err)
		}
		g, err := Parse(context.Background(), rules)
		if err != nil {
			b.Fatal(err)
		}
		for _, prefix := range []string{`{`, `{"a":"x`, `{"a":"","b":"x`} {
			b.Run(fmt.Sprintf("%s/%d/%s", name, v.Size(), prefix), func(b *testing.B) {
				m, err := NewMatcher(g, v)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					b.StopTimer()
					m.reset()
					s := m.Start()
					at := m.readText(s.s, prefix)
					b.StartTimer()
					if _, err := m.Mask(State{at}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
