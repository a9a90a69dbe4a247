package tokenizer

import (
	"context"
	"strings"
	"testing"
)

func BenchmarkEncode(b *testing.B) {
	english := strings.Repeat("Sampling with a low temperature makes the answers more predictable; don't expect all 1,234 of them to differ. ", 600)
	for name, text := range map[string]string{
		"English": english, "one word": strings.Repeat("temperature", 6000), "Chinese": strings.Repeat("降低温度会使答案更可预测。", 2000), "emoji": strings.Repeat("😀👍🏽 ", 5000),
	} {
		b.Run(name, func(b *testing.B) {
			tok := openNamed(b, "guide")
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(context.Background(), text, Options{ParseSpecial: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	f := byteLevelFile()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(f); err != nil {
			b.Fatal(err)
		}
	}
}
