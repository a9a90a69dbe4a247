package ref

import (
	"math"

	"m40-llm/infer/device"
)

// operations computes each kind of operation for the first rows rows of its tensors.
var operations = map[device.OpKind]func(d *Device, op device.Op, b *device.Batch, rows int){
	device.OpEmbed:           (*Device).embed,
	device.OpEmbedPositions:  (*Device).embedPositions,
	device.OpRMSNorm:         (*Device).norm,
	device.OpLayerNorm:       (*Device).norm,
	device.OpScaleByPosition: (*Device).scaleByPosition,
	device.OpMatMul:          (*Device).matMul,
	device.OpAddBias:         (*Device).addBias,
	device.OpRoPE:            (*Device).rope,
	device.OpStoreKV:         (*Device).storeKV,
	device.OpAttention:       (*Device).attention,
	device.OpGLU:             (*Device).glu,
	device.OpAdd:             (*Device).addRows,
	device.OpScale:           (*Device).scale,
	device.OpGatherRows:      (*Device).gatherRows,
	device.OpCandidates:      func(*Device, device.Op, *device.Batch, int) {}, // Device.Candidates reads the row
	device.OpRoute:           (*Device).route,
	device.OpExpertMatMul:    (*Device).expertProducts,
	device.OpExpertBias:      (*Device).expertBiases,
	device.OpExpertSum:       (*Device).expertSum,
	device.OpGate:            (*Device).gate,
	device.OpMultiply:        (*Device).multiply,
	device.OpCopy:            (*Device).copyColumns,
	device.OpMix:             (*Device).mix,
	device.OpMatchRMS:        (*Device).matchRMS,
	device.OpSparsify:        (*Device).sparsify,
	device.OpConv:            (*Device).conv,
	device.OpScan:            (*Device).scan,
}

func (d *Device) embed(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		d.weightRow(d.row(op.Dst, r), op.W, int(b.Tokens[r]))
	}
}

func (d *Device) embedPositions(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		d.weightRow(d.row(op.Dst, r), op.W, int(b.Pos[r]))
	}
}

func (d *Device) norm(op device.Op, b *device.Batch, rows int) {
	n, bias := op.W.Cols, d.vector(op.Bias)
	w := make([]float32, n)
	for r := range rows {
		dst, x := d.row(op.Dst, r), d.row(op.X, r)
		for i := 0; i < op.X.Cols; i += n {
			d.weightRow(w, op.W, i/n%op.W.Rows)
			switch {
			case op.Kind == device.OpRMSNorm:
				rmsNorm(dst[i:i+n], x[i:i+n], w, op.Eps)
			case bias == nil:
				layerNorm(dst[i:i+n], x[i:i+n], w, nil, op.Eps)
			default:
				layerNorm(dst[i:i+n], x[i:i+n], w, bias[i:i+n], op.Eps)
			}
		}
	}
}

func (d *Device) scaleByPosition(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		scale(d.row(op.Dst, r), float32(1+float64(op.Factor)*math.Log1p(float64(int(b.Pos[r])/op.Period))), 0)
	}
}

func (d *Device) matMul(op device.Op, b *device.Batch, rows int) {
	weights := make([]float32, op.W.Cols)
	for i := range op.W.Rows {
		d.weightRow(weights, op.W, i)
		for r := range rows {
			d.row(op.Dst, r)[i] = float32(dot(weights, d.row(op.X, r)))
		}
	}
}

func (d *Device) addBias(op device.Op, b *device.Batch, rows int) {
	bias := d.vector(op.W)
	for r := range rows {
		add(d.row(op.Dst, r), bias)
	}
}

func (d *Device) rope(op device.Op, b *device.Batch, rows int) {
	frequencies := op.RoPE.Frequencies(d.vector(op.RoPE.Factors))
	at := b.Pos
	if axis := op.RoPE.Axis; axis > 0 {
		at = b.Coordinates[axis-1]
	}
	for r := range rows {
		rope(d.row(op.Dst, r), op.RoPE, frequencies, int(at[r]))
	}
}

func (d *Device) storeKV(op device.Op, b *device.Batch, rows int) {
	c := &d.caches[op.KV.ID-1]
	for r := range rows {
		var values []float32
		if !op.Y.None() {
			values = d.row(op.Y, r)
		}
		c.store(op.Layer, b.Tables[c.Group][b.Seq[r]], int(b.Pos[r]), d.row(op.X, r), values)
	}
}

func (d *Device) attention(op device.Op, b *device.Batch, rows int) {
	c, ends := &d.caches[op.KV.ID-1], b.LastPos(nil)
	before, after := op.Attention.Reach()
	for r := range rows {
		pos := int(b.Pos[r])
		first, last := max(0, pos-before), min(int(ends[r]), pos+after)
		c.attend(d.row(op.Dst, r), d.row(op.X, r), d.vector(op.Attention.Sinks), op.Layer, op.Attention, b.Tables[c.Group][b.Seq[r]], first, last, int(b.Pos[r]))
	}
}

func (d *Device) glu(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		var up []float32
		if !op.Y.None() {
			up = d.row(op.Y, r)
		}
		glu(d.row(op.Dst, r), d.row(op.X, r), up, op.GLU)
	}
}

func (d *Device) addRows(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		add(d.row(op.Dst, r), d.row(op.X, r))
	}
}

func (d *Device) scale(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		scale(d.row(op.Dst, r), op.Factor, op.Cap)
	}
}

func (d *Device) gatherRows(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		copy(d.row(op.Dst, r), d.row(op.X, int(b.Out[r])))
	}
}

func (d *Device) route(op device.Op, b *device.Batch, rows int) {
	bias, scales := d.vector(op.Routing.Bias), d.vector(op.Routing.Scales)
	for r := range rows {
		route(d.row(op.Dst, r), d.row(op.X, r), op.Routing, bias, scales)
	}
}

func (d *Device) expertProducts(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		var routes []float32
		if !op.Y.None() {
			routes = d.row(op.Y, r)
		}
		d.expertMatMul(d.row(op.Dst, r), d.row(op.X, r), routes, op.W, op.W.Rows/op.Experts)
	}
}

func (d *Device) expertBiases(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		d.expertBias(d.row(op.Dst, r), d.row(op.Y, r), op.W)
	}
}

func (d *Device) gate(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		gate(d.row(op.Dst, r), d.row(op.X, r))
	}
}

func (d *Device) multiply(op device.Op, b *device.Batch, rows int) {
	w := d.vector(op.W)
	for r := range rows {
		for i, x := range d.row(op.Dst, r) {
			d.row(op.Dst, r)[i] = x * w[i%len(w)]
		}
	}
}

func (d *Device) copyColumns(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		copyColumns(d.row(op.Dst, r), d.row(op.X, r), op.Columns)
	}
}

func (d *Device) mix(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		var factors []float32
		if !op.Y.None() {
			factors = d.row(op.Y, r)
		}
		mix(d.row(op.Dst, r)[op.Columns.To:], d.row(op.X, r), factors, op.Columns.Width)
	}
}

func (d *Device) matchRMS(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		matchRMS(d.row(op.Dst, r), d.row(op.X, r), op.Eps)
	}
}

func (d *Device) sparsify(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		sparsify(d.row(op.Dst, r), op.Factor)
	}
}

func (d *Device) expertSum(op device.Op, b *device.Batch, rows int) {
	for r := range rows {
		expertSum(d.row(op.Dst, r), d.row(op.X, r), d.row(op.Y, r))
	}
}
