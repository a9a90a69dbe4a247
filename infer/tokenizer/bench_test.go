package tokenizer

import (
	"context"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
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

// BenchmarkLinearTime encodes a mebibyte of each general category of Unicode, and four
// of text without a break, with every list of rules. It reports how much longer a text
// takes than one half as long, at worst, which stays near 2, and the slowest text. Time
// is that of the processor, the least of several: other work on the machine adds to it.
func BenchmarkLinearTime(b *testing.B) {
	encoders := map[string]metadata{"SentencePiece": sentencePieceFile(), "WordPiece": wordPieceFile()}
	for _, pre := range distinctPreTokenizers {
		encoders[pre] = byteLevelFile().with(keyPre, pre)
	}
	texts := map[string]string{"unbroken": strings.Repeat("hel", 4*mebibyte/3)}
	for category, text := range categoryRuns() {
		texts[category] = strings.Repeat(text, mebibyte/len(text)+1)[:mebibyte]
	}
	for _, name := range slices.Sorted(maps.Keys(encoders)) {
		b.Run(name, func(b *testing.B) {
			tok := mustNew(b, encoders[name])
			for b.Loop() {
				var steepest, slowest struct {
					text   string
					figure float64
				}
				for category, text := range texts {
					half, whole := encodeTimes(b, tok, text)
					if ratio := float64(whole) / float64(half); ratio > steepest.figure {
						steepest.text, steepest.figure = category, ratio
					}
					if ms := whole.Seconds() * 1e3 / (float64(len(text)) / mebibyte); ms > slowest.figure {
						slowest.text, slowest.figure = category, ms
					}
				}
				b.ReportMetric(steepest.figure, "t(2n)/t(n)")
				b.ReportMetric(slowest.figure, "ms/MiB")
				b.Logf("t(2n)/t(n) is %.2f at most, for %s; a MiB takes %.0f ms at most, for %s", steepest.figure, steepest.text, slowest.figure, slowest.text)
			}
		})
	}
}

// encodeTimes are those of half a text and of the whole. What looks steep is measured
// again: it may have been the machine.
func encodeTimes(b *testing.B, tok *Tokenizer, text string) (half, whole time.Duration) {
	half, whole = math.MaxInt64, math.MaxInt64
	for round := 0; round < 2 || round < 12 && float64(whole)/float64(half) > 2.2; round++ {
		for text, least := range map[string]*time.Duration{text[:len(text)/2]: &half, text: &whole} {
			runtime.GC()
			began := processorTime(b)
			if _, err := tok.Encode(context.Background(), text, Options{}); err != nil {
				b.Fatal(err)
			}
			*least = min(*least, processorTime(b)-began)
		}
	}
	return half, whole
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
