package cpu

// #include "engine.h"
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"m40-llm/infer/gguf"
)

// weightTypes are the types in formats.h.
var weightTypes = readFormats()

// readFormats panics if the block of a type in formats.h differs from that in package gguf.
func readFormats() (types []gguf.Type) {
	for _, t := range gguf.Types() {
		f := formatOf(t)
		if f.values == 0 {
			continue
		}
		if values, bytes := t.Block(); uint64(f.values) != values || uint64(f.bytes) != bytes {
			panic(fmt.Sprintf("formats.h has blocks of %d values in %d bytes for %s, package gguf of %d in %d", f.values, f.bytes, t, values, bytes))
		}
		types = append(types, t)
	}
	return types
}

func init() {
	if len(gguf.Codebooks) != C.CODEBOOK_BYTES {
		panic(fmt.Sprintf("the codebooks have %d bytes, want %d", len(gguf.Codebooks), C.CODEBOOK_BYTES))
	}
	C.engine_set_codebooks((*C.uint8_t)(unsafe.SliceData(gguf.Codebooks)))
}

// WeightTypes returns the weight types that have kernels.
func WeightTypes() []gguf.Type { return slices.Clone(weightTypes) }

// formatOf returns the entry of formats.h for t; its values is 0 if there is none.
func formatOf(t gguf.Type) C.struct_format { return C.format_of(C.int(t)) }

// panelBytes returns the size in bytes of a panel of a weight with cols columns, 0 if weights of
// type t are not packed in panels.
func panelBytes(t gguf.Type, cols int) int64 { return int64(C.panel_bytes(C.int(t), C.int(cols))) }
