package cuda

import (
	"testing"

	"m40-llm/infer/gguf"
)

// TestEveryWeightTypeHasKernelsOrAConversion checks the table of conversions against the types that
// can be decoded: none is left out, none is in both tables, and the targets have kernels.
func TestEveryWeightTypeHasKernelsOrAConversion(t *testing.T) {
	hasKernels := map[gguf.Type]bool{}
	for _, typ := range kernelTypes {
		hasKernels[typ] = true
	}
	for _, typ := range gguf.Types() {
		elements, bytes := typ.Block()
		decodes := gguf.Dequantize(typ, make([]byte, bytes), make([]float32, elements)) == nil
		to, isConverted := conversions[typ]
		switch {
		case decodes && !hasKernels[typ] && !isConverted:
			t.Errorf("%s has neither kernels nor a conversion", typ)
		case hasKernels[typ] && isConverted:
			t.Errorf("%s has kernels, and is converted to %s", typ, to)
		case !decodes && (hasKernels[typ] || isConverted):
			t.Errorf("%s cannot be decoded, but is supported here", typ)
		case isConverted && !hasKernels[to]:
			t.Errorf("%s is converted to %s, which has no kernels", typ, to)
		case isConverted && typ.IsTernary() && to != gguf.Q2_K:
			t.Errorf("%s is to be converted to %s, but convert writes Q2_K", typ, to)
		case isConverted && !typ.IsTernary() && to != gguf.Q8_0:
			t.Errorf("%s is to be converted to %s, but convert writes Q8_0", typ, to)
		}
	}
}
