package cudakern

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Weights describes a weight matrix in the layout of the kernels (weights.cuh).
type Weights struct {
	Type    string // one of WeightTypes
	Outputs int
	Inputs  int
}

// weightFormat is a weight type in modules.txt. In a file, rawInputs inputs of a row take rawBytes
// bytes. On the device, a block of 32 inputs takes block bytes, and eight blocks another super bytes.
type weightFormat struct {
	name                string
	rawInputs, rawBytes int
	block, super        int
}

//go:embed modules.txt
var modulesTable string

var weightFormats = readWeights(modulesTable)

// readWeights returns the weight types of a table like modules.txt. It panics if one is incomplete.
func readWeights(table string) (formats []weightFormat) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "weights" {
			continue
		}
		number := func(name string) int {
			for _, define := range words[2:] {
				if value, ok := strings.CutPrefix(define, name+"="); ok {
					n, err := strconv.Atoi(value)
					if err != nil {
						panic(fmt.Sprintf("modules.txt: weights %s: %s", words[1], define))
					}
					return n
				}
			}
			panic(fmt.Sprintf("modules.txt: weights %s have no %s", words[1], name))
		}
		formats = append(formats, weightFormat{
			name:      words[1],
			rawInputs: number("RAW_INPUTS"),
			rawBytes:  number("RAW_BYTES"),
			block:     16*number("CHUNKS") + number("HIGH_BYTES") + number("SCALE_BYTES"),
			super:     number("SUPER_BYTES"),
		})
	}
	return formats
}

// isQuantized reports whether weights are blocks with scales. Only their products differ between
// number paths.
func (f weightFormat) isQuantized() bool { return f.rawInputs > 1 }

const (
	bandOutputs = 4
	blockInputs = 32
	tileBlocks  = 32
)

// WeightTypes returns the weight types that have kernels.
func WeightTypes() (names []string) {
	for _, f := range weightFormats {
		names = append(names, f.name)
	}
	return names
}

// formatOf returns the format called name.
func formatOf(name string) (weightFormat, error) {
	i := slices.IndexFunc(weightFormats, func(f weightFormat) bool { return f.name == name })
	if i < 0 {
		return weightFormat{}, fmt.Errorf("no kernel for weights of type %s; there are kernels for %s", name, strings.Join(WeightTypes(), ", "))
	}
	return weightFormats[i], nil
}

func (w Weights) format() (weightFormat, error) {
	f, err := formatOf(w.Type)
	if err != nil {
		return f, err
	}
	// Kernels count inputs and blocks in 32 bits. The y extent of a product's grid, at most 65535,
	// counts outputs in units of the bands of a block of threads.
	const maxOutputs, maxInputs = 65535 * bandOutputs * threads / 32, 1 << 21
	if w.Outputs < 1 || w.Inputs < 1 || w.Outputs > maxOutputs || w.Inputs > maxInputs || w.Inputs%f.rawInputs != 0 {
		return weightFormat{}, fmt.Errorf("no kernel supports %s weights of %d outputs and %d inputs", w.Type, w.Outputs, w.Inputs)
	}
	return f, nil
}

// Bytes returns the sizes on the device and in a model file, in bytes.
func (w Weights) Bytes() (device, file int64, err error) {
	f, err := w.format()
	if err != nil {
		return 0, 0, err
	}
	bands := int64(blocksFor(w.Outputs, bandOutputs))
	return bands * f.bandBytes(w.Inputs), int64(w.Outputs) * f.rowBytes(w.Inputs), nil
}

// rowBytes returns the size of the weights of one output in a model file.
func (f weightFormat) rowBytes(inputs int) int64 {
	return int64(inputs/f.rawInputs) * int64(f.rawBytes)
}

// bandBytes returns the size of the weights of 4 outputs on the device: band_bytes in weights.cuh.
func (f weightFormat) bandBytes(inputs int) int64 {
	tile := func(blocks int) int64 {
		bytes := bandOutputs * (blocks*f.block + blocks/8*f.super)
		return int64(blocksFor(bytes, 16) * 16)
	}
	blocks := blocksFor(inputs, blockInputs)
	return int64(blocks/tileBlocks)*tile(tileBlocks) + tile(blocks%tileBlocks)
}
