package model_test

import (
	"context"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/guide"
	"m40-llm/infer/ref"
	"m40-llm/infer/tokenizer"
)

// An 8-bit activation moves a logit by some hundredths, a 16-bit one by some thousandths.
// Where the reference sees a margin above this, no correct device may choose another
// token.
const cpuMargin, gpuMargin = 0.3, 0.01

// The vector units and the slow reference must write the same texts.
func TestGuideIsTheSameOnTheCPUAndTheReference(t *testing.T) {
	compareGuide(t, openCPU, cpuMargin, len(questions), 20)
}

// So must the GPU. The emulation takes minutes for all of them.
func TestGuideIsTheSameOnTheGPUAndTheReference(t *testing.T) {
	count, steps := 1, 6
	if manyOnGPU() {
		count, steps = len(questions), 20
	}
	compareGuide(t, cudaOpener(t), gpuMargin, count, steps)
}

// And so must the resident kernel, in drawn orders of its blocks.
func TestGuideIsTheSameInTheResidentKernelAndTheReference(t *testing.T) {
	count, steps := 1, 3
	if manyOnGPU() {
		count, steps = len(questions), 20
	}
	t.Setenv("M40_LLM_EMU_SMS", "2")
	t.Setenv("M40_LLM_EMU_SEED", "5")
	var opened device.Device
	open := decodingOpener(t, device.DecodePersistent)
	compareGuide(t, func() (d device.Device, err error) { opened, err = open(); return opened, err }, gpuMargin, count, steps)
	if i := opened.Info(); i.Decode != device.DecodePersistent {
		t.Errorf("decodes by %q: %s", i.Decode, i.DecodeReason)
	}
}

var questions = []string{
	"Hello!",
	"What is top-p?",
	"What does temperature do?",
	"Tell me a short story about a lighthouse.",
	"How do I share a chat with somebody in the house?",
	"What is 7 plus 5?",
	"Name three animals.",
	"Write a function that adds two numbers in Python.",
	"Why is the sky blue?",
	"Who are you?",
}

// compareGuide lets a device answer the first count questions in steps tokens each. The
// reference is given what it wrote, so that each step is compared on the same path.
func compareGuide(t *testing.T, openDevice func() (device.Device, error), least float32, count, steps int) {
	f, err := gguf.Parse(guide.Model)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(f)
	if err != nil {
		t.Fatal(err)
	}
	written := open(t, f, openDevice, gguf.F16)
	refModel := open(t, f, func() (device.Device, error) { return ref.New(), nil }, gguf.F16)
	compared := 0
	for _, question := range questions[:count] {
		prompt, err := tok.Encode(context.Background(), "<|im_start|>user\n"+question+"<|im_end|>\n<|im_start|>assistant\n", tokenizer.Options{ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		text := prompt
		for done := 0; len(text) < len(prompt)+steps; {
			logits := feed(t, written, text[done:], done)
			done = len(text)
			text = append(text, int32(argMax(logits[len(logits)-1])))
		}
		logits := feed(t, refModel, text[:len(text)-1], 0)
		for i := len(prompt); i < len(text); i++ {
			best, margin := topTwo(logits[i-1])
			if margin <= least {
				continue
			}
			if int32(best) != text[i] {
				t.Errorf("%q, step %d: the reference chooses %q by %.2f, the device %q", question, i-len(prompt), tok.Text(int32(best)), margin, tok.Text(text[i]))
			}
			compared++
		}
	}
	t.Logf("%d of %d steps compared", compared, count*steps)
	if compared*2 < count*steps {
		t.Errorf("only %d steps could be compared", compared)
	}
}

func topTwo(logits []float32) (best int, margin float32) {
	best = argMax(logits)
	second := -1
	for i := range logits {
		if i != best && (second < 0 || logits[i] > logits[second]) {
			second = i
		}
	}
	return best, logits[best] - logits[second]
}
