package cuda

import (
	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// stepRows is how many rows of a prompt a step should have, by the units that compute its products. Only matrix units gain from so many,
// and only GPUs with them are so fast that no other answer notices how long such a step takes.
var stepRows = map[cudakern.Units]int{cudakern.UnitsMMA: 512}

// promptStepRows is stepRows where the weights are rounded for each step (cudakern.Context.HasPromptMatMuls).
const promptStepRows = 2048

// measured has, by name of the GPU, which way to decode is faster (docs/gpu.md) and whether prompt lookup makes answers faster
// (docs/performance.md).
var measured = map[string]struct {
	decode device.Decode
	drafts bool
}{
	"NVIDIA H100 80GB HBM3": {device.DecodeGraph, true},
	"NVIDIA H200":           {device.DecodeGraph, true},
}
