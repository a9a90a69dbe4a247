package sample

import (
	"errors"
	"fmt"
	"math"
)

// ErrNotFinite is returned for logits without a softmax: one is NaN or +Inf, or all are
// -Inf.
var ErrNotFinite = errors.New("the model's logits are not finite")

// distribution holds the sums that define the softmax of a row of logits.
type distribution struct {
	max   float64 // largest logit
	mass  float64 // sum of exp(logit - max)
	dot   float64 // sum of exp(logit - max) * (logit - max)
	count int     // logits that are not -Inf
}

func softmax(row []float32) (distribution, error) {
	max := float32(math.Inf(-1))
	for id, logit := range row {
		if logit <= max {
			continue
		}
		if logit != logit {
			return distribution{}, fmt.Errorf("%w: that of token %d is NaN", ErrNotFinite, id)
		}
		max = logit
	}
	if math.IsInf(float64(max), 0) {
		return distribution{}, fmt.Errorf("%w: the largest is %v", ErrNotFinite, max)
	}
	d := distribution{max: float64(max), count: len(row)}
	for _, logit := range row {
		x := float64(logit) - d.max
		w := expNeg(x)
		if w == 0 { // x may be -Inf, and 0 * -Inf would be NaN
			if math.IsInf(x, -1) {
				d.count--
			}
			continue
		}
		d.mass += w
		d.dot += float64(w * x)
	}
	return d, nil
}

// entropy returns the entropy in bits.
func (d *distribution) entropy() float64 {
	return math.Max(0, (math.Log(d.mass)-d.dot/d.mass)/math.Ln2)
}

// maskedLogProb replaces the logarithm of 0, as in the OpenAI API.
const maskedLogProb = -9999

func (d *distribution) logProb(logit float32) float64 {
	if math.IsInf(float64(logit), -1) {
		return maskedLogProb
	}
	return float64(logit) - d.max - math.Log(d.mass)
}

// scale maps a logit to the exponent of its weight: (logit - top) / temperature.
type scale struct {
	top     float64 // the logit of weight 1; no other logit may be larger
	inverse float64 // 1 / temperature
}

func (s scale) exponent(logit float32) float64 { return float64((float64(logit) - s.top) * s.inverse) }

// change returns the logit of a token after f, which receives the logit divided by the
// temperature. A masked logit stays masked; any other is clamped to the range of float32.
func (s scale) change(id int32, logit float32, f change) float32 {
	if math.IsInf(float64(logit), -1) {
		return logit
	}
	x := float64(logit)
	if s.inverse == 1 {
		return clampFinite(f(id, x))
	}
	// At a tiny temperature the quotient may exceed the range of float64.
	quotient := math.Max(-math.MaxFloat64, math.Min(math.MaxFloat64, float64(x*s.inverse)))
	return clampFinite(x + float64((f(id, quotient)-quotient)/s.inverse))
}

func (s scale) weight(logit float32) float64 { return expNeg(s.exponent(logit)) }

// dot returns w, the weight of a logit, times its exponent.
func (s scale) dot(logit float32, w float64) float64 {
	if w == 0 {
		return 0 // the exponent may be -Inf, and 0 * -Inf would be NaN
	}
	return float64(w * s.exponent(logit))
}

// mass returns the sum of the weights of a row, in the order of ids.
func (s scale) mass(row []float32) (mass float64) {
	for _, logit := range row {
		mass += s.weight(logit)
	}
	return mass
}

// expNeg returns exp(x) for x <= 0, accurate to about one unit in the last place, and 0
// below -700. It is two to three times as fast as math.Exp, which matters 128,000 times a
// token, and returns the same bits on every machine: math.Exp has assembly on some, and the
// conversions below prevent a fused multiply-add.
//
// x = (64*m + i) * ln(2)/64 + r, so that exp(x) = 2^m * 2^(i/64) * exp(r) with
// |r| <= ln(2)/128, where five terms of the series of exp(r) - 1 suffice.
func expNeg(x float64) float64 {
	if x < -700 {
		return 0
	}
	const (
		step    = math.Ln2 / 64
		stepHi  = 0x1.62e42fefap-7 // leaves room below for n*stepHi to be exact
		stepLo  = step - stepHi
		rounder = 0x1.8p52 // adding it leaves the nearest integer in the low bits
	)
	t := float64(x*(1/step)) + rounder
	n := t - rounder
	r := x - float64(n*stepHi) - float64(n*stepLo)
	q := 1.0/6 + float64(r*(1.0/24+float64(r*(1.0/120))))
	p := r + float64(float64(r*r)*(0.5+float64(r*q)))
	bits := math.Float64bits(t)
	y := exp2[bits%64]
	return math.Float64frombits(math.Float64bits(y+float64(y*p)) + bits>>6<<52)
}

// exp2 is 2^(i/64).
var exp2 = [64]float64{
	0x1p+00, 0x1.02c9a3e778061p+00, 0x1.059b0d3158574p+00, 0x1.0874518759bc8p+00,
	0x1.0b5586cf9890fp+00, 0x1.0e3ec32d3d1a2p+00, 0x1.11301d0125b5p+00, 0x1.1429aaea92dep+00,
	0x1.172b83c7d517bp+00, 0x1.1a35beb6fcb75p+00, 0x1.1d4873168b9aap+00, 0x1.2063b88628cd6p+00,
	0x1.2387a6e756238p+00, 0x1.26b4565e27cddp+00, 0x1.29e9df51fdee1p+00, 0x1.2d285a6e4030bp+00,
	0x1.306fe0a31b715p+00, 0x1.33c08b26416ffp+00, 0x1.371a7373aa9cbp+00, 0x1.3a7db34e59ff7p+00,
	0x1.3dea64c123422p+00, 0x1.4160a21f72e2ap+00, 0x1.44e086061892dp+00, 0x1.486a2b5c13cdp+00,
	0x1.4bfdad5362a27p+00, 0x1.4f9b2769d2ca7p+00, 0x1.5342b569d4f82p+00, 0x1.56f4736b527dap+00,
	0x1.5ab07dd485429p+00, 0x1.5e76f15ad2149p+00, 0x1.6247eb03a5585p+00, 0x1.6623882552224p+00,
	0x1.6a09e667f3bcdp+00, 0x1.6dfb23c651a2fp+00, 0x1.71f75e8ec5f74p+00, 0x1.75feb564267c8p+00,
	0x1.7a11473eb0187p+00, 0x1.7e2f336cf4e62p+00, 0x1.82589994cce12p+00, 0x1.868d99b4492ecp+00,
	0x1.8ace5422aa0dbp+00, 0x1.8f1ae99157736p+00, 0x1.93737b0cdc5e5p+00, 0x1.97d829fde4e5p+00,
	0x1.9c49182a3f09p+00, 0x1.a0c667b5de565p+00, 0x1.a5503b23e255cp+00, 0x1.a9e6b5579fdbfp+00,
	0x1.ae89f995ad3aep+00, 0x1.b33a2b84f15fbp+00, 0x1.b7f76f2fb5e47p+00, 0x1.bcc1e904bc1d2p+00,
	0x1.c199bdd85529cp+00, 0x1.c67f12e57d14bp+00, 0x1.cb720dcef9069p+00, 0x1.d072d4a07897bp+00,
	0x1.d5818dcfba487p+00, 0x1.da9e603db3285p+00, 0x1.dfc97337b9b5fp+00, 0x1.e502ee78b3ff6p+00,
	0x1.ea4afa2a490d9p+00, 0x1.efa1bee615a28p+00, 0x1.f50765b6e454p+00, 0x1.fa7c1819e90d8p+00,
}
