package cuda

import (
	"m40-llm/cudakern"
	"m40-llm/infer/device"
)

// WorkBytes returns the size of the batches and graphs of all programs, the workspaces that they share, and the
// buffers of the loader.
func (d *cuda) WorkBytes(programs ...*device.Program) int64 {
	total, halves := int64(2*cudakern.LoaderBytes), int64(0) // halves: of weights that rows of prompts are multiplied by
	shared := map[device.OpKind]int64{}
	for _, p := range programs {
		capacity, longest, prompt := p.Rows, 0, p.Of == device.PromptRows
		grow := func(kind device.OpKind, bytes int64) { shared[kind] = max(shared[kind], bytes) }
		for _, op := range p.Ops {
			switch op.Kind {
			case device.OpStoreKV, device.OpAttention:
				longest = max(longest, op.KV.Layout.Longest())
			case device.OpGatherRows:
				capacity, prompt = p.Out, false
			}
			switch op.Kind {
			case device.OpMatMul:
				grow(op.Kind, cudakern.MaxQuantizedBytes(op.X.Cols, capacity)+d.context.Properties().ScratchBytes(d.context.Units, capacity))
				if prompt {
					halves = max(halves, cudakern.MostHalfBytes(cudakern.Weights{Outputs: op.W.Rows, Inputs: op.W.Cols}))
				}
			case device.OpExpertMatMul:
				used := op.Dst.Cols / (op.W.Rows / op.Experts)
				grow(device.OpMatMul, cudakern.MaxExpertBytes(op.W.Cols, capacity, op.Experts, used, op.X.Cols > op.W.Cols))
			case device.OpAttention:
				grow(op.Kind, cudakern.AttentionWorkspace(op.Attention.Heads, op.KV.Layout.ValueDim(), capacity, op.KV.Layout.Longest())+cudakern.AttentionArrivals(op.Attention.Heads))
			case device.OpCandidates:
				grow(op.Kind, cudakern.CandidateWorkspace(op.X.Cols, capacity)+int64(op.X.Rows)*cudakern.CandidateBytes+savedBytes(op.X))
			}
		}
		total += inputBytes(p, longest) + programGraphBytes(p)
	}
	for _, bytes := range shared {
		total += bytes
	}
	return total + halves
}

// programGraphBytes returns the most bytes that the driver takes for the graph of a program, whose operations are two
// launches each at most.
func programGraphBytes(p *device.Program) int64 { return graphBytes + 2*launchBytes*int64(len(p.Ops)) }
