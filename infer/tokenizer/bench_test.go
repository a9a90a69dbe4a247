package tokenizer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"m40-llm/infer/gguf"
)

func BenchmarkEncode(b *testing.B) {
	english := strings.Repeat("Sampling with a low temperature makes the answers more predictable; don't expect all 1,234 of them to differ. ", 600)
	for name, text := range map[string]string{
		"English": english, "one word": strings.Repeat("temperature", 6000), "Chinese": strings.Repeat("降低温度会使答案更可预测。", 2000), "emoji": strings.Repeat("😀👍🏽 ", 5000),
	} {
		b.Run(name, func(b *testing.B) {
			tok := openVocabulary(b, "guide")
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

// BenchmarkLinearTime encodes one mebibyte of each general category of Unicode, and four
// mebibytes of words without separators, with every encoder. It prints a table, the fastest
// growth first:
//
//	growth   factor by which the time grows when the text doubles: 2 to the power of the
//	         slope fitted to the logarithms of the times of an eighth, a quarter, half and
//	         all of the text, which is less noisy than the ratio of two times
//	last     the ratio of the last two of these times
//	ms/MiB   for the whole text
//
// Times are CPU times of this thread with the garbage collector off: the minimum over
// rounds through all four lengths, repeated until no minimum improves. Other load on the
// machine hardly affects the minimum.
//
// Byte-level encoders use the vocabulary of the built-in model.
func BenchmarkLinearTime(b *testing.B) {
	encoders := map[string]Metadata{"SentencePiece": sentencePieceFile(), "Gemma 4": gemma4File(), "WordPiece": wordPieceFile()}
	guide, err := gguf.Open("../guide/guide-q8_0.gguf")
	if err != nil {
		b.Fatal(err)
	}
	defer guide.Close()
	for _, pre := range distinctPreTokenizers {
		encoders[pre] = withPreTokenizer{guide, pre}
	}
	texts := map[string]string{"4 MiB unbroken": unbrokenWords(4 * mebibyte)}
	for category, text := range categoryRuns() {
		texts[category] = strings.Repeat(text, mebibyte/len(text)+1)[:mebibyte]
	}
	var all []growth
	for _, name := range slices.Sorted(maps.Keys(encoders)) {
		b.Run(name, func(b *testing.B) {
			tok := mustNew(b, encoders[name])
			var steepest, slowest float64
			for b.Loop() {
				for _, category := range slices.Sorted(maps.Keys(texts)) {
					g := measureGrowth(b, tok, texts[category])
					g.what = fmt.Sprintf("%-16s %s", name, category)
					all = append(all, g)
					steepest, slowest = max(steepest, g.factor), max(slowest, g.perMiB)
				}
			}
			b.ReportMetric(steepest, "t(2n)/t(n)")
			b.ReportMetric(slowest, "ms/MiB")
		})
	}
	slices.SortStableFunc(all, func(x, y growth) int { return cmp.Compare(y.factor, x.factor) })
	var table strings.Builder
	above := 0
	for _, g := range all {
		if g.factor > 2.3 {
			above++
		}
		fmt.Fprintf(&table, "%6.2f %6.2f %8.1f   %s\n", g.factor, g.last, g.perMiB, g.what)
	}
	// b.Log of a benchmark with sub-benchmarks is not printed.
	fmt.Printf("%d of %d take more than 2.3 times as long for twice the text\n\ngrowth   last   ms/MiB\n%s", above, len(all), &table)
}

// withPreTokenizer is a model file with another pre-tokenizer.
type withPreTokenizer struct {
	*gguf.File
	pre string
}

func (m withPreTokenizer) Str(key string) (string, error) {
	if key == keyPre {
		return m.pre, nil
	}
	return m.File.Str(key)
}

// unbrokenWords returns n bytes of English words without separators.
func unbrokenWords(n int) string {
	words := strings.Fields("sampling with a low temperature makes the answers more predictable do not expect all of them to differ")
	r := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()[:n]
}

type growth struct {
	what         string
	factor, last float64
	perMiB       float64 // milliseconds
}

func measureGrowth(b *testing.B, tok *Tokenizer, text string) growth {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const lengths, mostRounds, patience = 4, 20, 3
	least := [lengths]time.Duration{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for round, improved := 0, 0; round < mostRounds && round-improved < patience; round++ {
		runtime.GC()
		for i := range least {
			part := text[:len(text)>>(lengths-1-i)]
			began := threadTime(b)
			if _, err := tok.Encode(context.Background(), part, Options{}); err != nil {
				b.Fatal(err)
			}
			took := threadTime(b) - began
			if float64(took) < 0.97*float64(least[i]) {
				improved = round
			}
			least[i] = min(least[i], took)
		}
	}
	slope := 0.0
	for i, weight := range [lengths]float64{-0.3, -0.1, 0.1, 0.3} { // least squares
		slope += weight * math.Log2(float64(least[i]))
	}
	whole := least[lengths-1]
	return growth{
		factor: math.Exp2(slope),
		last:   float64(whole) / float64(least[lengths-2]),
		perMiB: whole.Seconds() * 1e3 / (float64(len(text)) / mebibyte),
	}
}

func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
