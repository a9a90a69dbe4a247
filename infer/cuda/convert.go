package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"m40-llm/cudakern"
	"m40-llm/infer/gguf"
)

// kernelTypes are the weight types that cudakern has kernels for.
var kernelTypes = readKernelTypes()

// readKernelTypes panics if cudakern has kernels for a type that package gguf does not know, or
// knows with other blocks.
func readKernelTypes() (types []gguf.Type) {
	for _, name := range cudakern.WeightTypes() {
		all := gguf.Types()
		i := slices.IndexFunc(all, func(t gguf.Type) bool { return kernelName(t) == name })
		if i < 0 {
			panic(fmt.Sprintf("cudakern has kernels for weights of type %s, which package gguf does not know", name))
		}
		values, bytes := all[i].Block()
		if _, file, err := (cudakern.Weights{Type: name, Outputs: 1, Inputs: int(values)}).Bytes(); err != nil || file != int64(bytes) {
			panic(fmt.Sprintf("a block of %s has %d bytes in cudakern and %d in package gguf: %v", name, file, bytes, err))
		}
		types = append(types, all[i])
	}
	slices.Sort(types)
	return types
}

// kernelName returns the name of a weight type in names of modules and kernels.
func kernelName(t gguf.Type) string { return strings.ToLower(t.String()) }

// conversions are the types that have no kernels, with the type that weights are converted to when
// they are uploaded. A type that package gguf can decode is here or has kernels.
var conversions = map[gguf.Type]gguf.Type{
	gguf.IQ1_S:   gguf.Q8_0,
	gguf.IQ1_M:   gguf.Q8_0,
	gguf.IQ2_XXS: gguf.Q8_0,
	gguf.IQ2_XS:  gguf.Q8_0,
	gguf.IQ2_S:   gguf.Q8_0,
	gguf.IQ3_XXS: gguf.Q8_0,
	gguf.IQ3_S:   gguf.Q8_0,
	gguf.NVFP4:   gguf.Q8_0,
	gguf.TQ1_0:   gguf.Q2_K, // without loss
	gguf.TQ2_0:   gguf.Q2_K,
}

// Converts returns the type that weights of type t have on a GPU.
func Converts(t gguf.Type) gguf.Type {
	if to, ok := conversions[t]; ok {
		return to
	}
	return t
}

// Converts implements device.Converter.
func (d *cuda) Converts(t gguf.Type) gguf.Type { return Converts(t) }

// converted returns a function that provides rows of w, from row first on, in the type that w has on
// the GPU, for cudakern.Loader. It converts them on all CPUs.
func (w *tensor) converted() func(to []byte, first int) error {
	var part []byte
	return func(to []byte, first int) error {
		from, row := w.source.RowBytes(w.Cols), w.Type.RowBytes(w.Cols)
		rows := len(to) / row
		// The file is read here, where a fault becomes an error, and not in the goroutines.
		part = append(part[:0], w.raw[first*from:(first+rows)*from]...)
		workers := min(runtime.GOMAXPROCS(0), rows)
		errs := make([]error, workers)
		var all sync.WaitGroup
		for i := range workers {
			all.Go(func() {
				begin, end := rows*i/workers, rows*(i+1)/workers
				errs[i] = convert(w.source, part[begin*from:end*from], to[begin*row:end*row], w.Cols)
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// convert converts rows of cols values to the type that Converts returns.
func convert(from gguf.Type, src, dst []byte, cols int) error {
	if from.IsTernary() {
		gguf.TernaryToQ2_K(from, src, dst)
		return nil
	}
	values := make([]float32, cols)
	size, row := from.RowBytes(cols), gguf.Q8_0.RowBytes(cols)
	for ; len(src) > 0; src, dst = src[size:], dst[row:] {
		if err := gguf.Dequantize(from, src[:size], values); err != nil {
			return err
		}
		gguf.QuantizeQ8_0(values, dst[:row])
	}
	return nil
}
