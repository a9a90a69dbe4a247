package cudakern

import (
	"fmt"
	"slices"
	"strings"
)

// Weights describes a weight matrix as it lies on the device (weights.cuh).
type Weights struct {
	Type    string // f32, f16, q8_0, q4_0, q4_k or q6_k
	Outputs int
	Inputs  int
}

// What weights.cuh says of a type of weight: the rows of a file are runs of rawInputs
// inputs in rawBytes bytes; on the device a block of 32 inputs takes block bytes and
// eight blocks another super bytes.
type weightFormat struct {
	name                string
	rawInputs, rawBytes int
	block, super        int
}

var weightFormats = []weightFormat{
	{"f32", 1, 4, 128, 0},
	{"f16", 1, 2, 64, 0},
	{"q8_0", 32, 34, 32 + 2, 0},
	{"q4_0", 32, 18, 16 + 2, 0},
	{"q4_k", 256, 144, 16 + 2, 4},
	{"q6_k", 256, 210, 16 + 8 + 2, 2},
}

const (
	bandOutputs = 4
	blockInputs = 32
	tileBlocks  = 32
)

// WeightTypes are the types of weights that there are products for.
func WeightTypes() (names []string) {
	for _, f := range weightFormats {
		names = append(names, f.name)
	}
	return names
}

func (w Weights) format() (weightFormat, error) {
	i := slices.IndexFunc(weightFormats, func(f weightFormat) bool { return f.name == w.Type })
	if i < 0 {
		return weightFormat{}, fmt.Errorf("there are no kernels for weights of type %s, only for %s", w.Type, strings.Join(WeightTypes(), ", "))
	}
	f := weightFormats[i]
	// Kernels count inputs and the blocks of what they repack at once in 32 bits. The second
	// extent of a product's grid, which ends at 65535, counts the bands of a block of threads.
	const mostOutputs, mostInputs = 65535 * bandOutputs * threads / 32, 1 << 21
	if w.Outputs < 1 || w.Inputs < 1 || w.Outputs > mostOutputs || w.Inputs > mostInputs || w.Inputs%f.rawInputs != 0 {
		return weightFormat{}, fmt.Errorf("there are no kernels for %s weights of %d outputs and %d inputs", w.Type, w.Outputs, w.Inputs)
	}
	return f, nil
}

// Bytes returns the size on the device and that in a model file.
func (w Weights) Bytes() (device, file int64, err error) {
	f, err := w.format()
	if err != nil {
		return 0, 0, err
	}
	bands := int64(blocksFor(w.Outputs, bandOutputs))
	return bands * f.bandBytes(w.Inputs), int64(w.Outputs) * f.rowBytes(w.Inputs), nil
}

// rowBytes is the size of one output's weights in a model file.
func (f weightFormat) rowBytes(inputs int) int64 {
	return int64(inputs/f.rawInputs) * int64(f.rawBytes)
}

// bandBytes is the size of 4 outputs' weights on the device: band_bytes of weights.cuh.
func (f weightFormat) bandBytes(inputs int) int64 {
	tile := func(blocks int) int64 {
		bytes := bandOutputs * (blocks*f.block + blocks/8*f.super)
		return int64(blocksFor(bytes, 16) * 16)
	}
	blocks := blocksFor(inputs, blockInputs)
	return int64(blocks/tileBlocks)*tile(tileBlocks) + tile(blocks%tileBlocks)
}
