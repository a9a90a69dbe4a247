package placement

// Use is what a model takes of the memory of a device, in bytes.
type Use struct {
	Device  int   // index
	Weights int64 // 0 for those that stay in the file
	Cache   int64 // all blocks of the KV cache, and all slots of recurrent state; in main memory the blocks are taken as answers fill them
	Work    int64 // activations, logits, workspace of kernels and samplers
}

// Total returns all that is taken.
func (u Use) Total() int64 { return u.Weights + u.Cache + u.Work }

// uses returns what the model takes of each device of a plan.
func (p *placer) uses(plan Plan) (list []Use) {
	defer func() { p.experts, p.streams = 0, false }()
	p.experts, p.streams = plan.Experts.Layers, plan.Stream
	at := 0
	for _, s := range plan.Stages {
		d, to := p.devices[s.Device], at+s.Layers
		n, state := p.need(d, at, to), p.stateBytes(at, to)
		use := Use{Device: s.Device, Weights: n.fixed - d.Scratch - state, Cache: state, Work: d.Scratch + int64(plan.Blocks)*n.block}
		for g, bytes := range n.groups {
			use.Cache += int64(plan.Groups[g].Blocks) * bytes
		}
		list, at = append(list, use), to
	}
	if e := plan.Experts; e.Layers > 0 {
		d := p.devices[e.Device]
		list = append(list, Use{Device: e.Device, Weights: p.expertBytes(d, 0, e.Layers), Work: d.Scratch})
	}
	return list
}
