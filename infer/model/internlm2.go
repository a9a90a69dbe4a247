package model

import "slices"

// internLM2 is InternLM 2 and 2.5: llama, whose files have no experts and no factors of RoPE.
var internLM2 = architecture{tensors: slices.Concat(ends, norms, attention, gatedFeedForward)}

// xverse is XVERSE, with the layers of internLM2.
var xverse = architecture{tensors: internLM2.tensors}

// orion is Orion: llama with LayerNorm and RoPE of other pairs.
var orion = architecture{
	neox:      true,
	layerNorm: true,
	tensors:   slices.Concat(ends, layerNorms, attention, gatedFeedForward),
}

// baichuan is Baichuan: llama, with ALiBi in place of RoPE in the model of 13B, whose files tell by the number of layers alone.
var baichuan = architecture{
	tensors: internLM2.tensors,
	read: func(m *metadata, c *Config) {
		if len(c.Layers) != 40 {
			return
		}
		for i := range c.Layers {
			c.Layers[i].RoPE.Dims = 0
			c.Layers[i].MaxBias = 8
		}
	},
}
