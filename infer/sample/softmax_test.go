package sample

import (
	"math"
	"math/big"
	"testing"
)

func TestExp2TableIsCorrectlyRounded(t *testing.T) {
	for i, got := range exp2 {
		x := new(big.Float).SetPrec(200).SetMantExp(big.NewFloat(1), i)
		for range 6 { // the 64th root of 2^i
			x.Sqrt(x)
		}
		if want, _ := x.Float64(); got != want {
			t.Errorf("2^(%d/64) is %x, want %x", i, got, want)
		}
	}
}

func TestExpNeg_AgreesWithMathExp(t *testing.T) {
	t.Run("agrees with math.Exp to the last bits", func(t *testing.T) {
		for x := -699.9; x <= 0; x += 0.00937 {
			if got, want := expNeg(x), math.Exp(x); math.Abs(got-want) > 5e-16*want {
				t.Fatalf("exp(%v) is %v, want %v", x, got, want)
			}
		}
		for x := -1e-20; x > -1; x *= 1.7 {
			if got, want := expNeg(x), math.Exp(x); math.Abs(got-want) > 5e-16*want {
				t.Fatalf("exp(%v) is %v, want %v", x, got, want)
			}
		}
	})
	t.Run("is exactly 1 at 0 and 0 far below", func(t *testing.T) {
		for x, want := range map[float64]float64{0: 1, math.Copysign(0, -1): 1, -701: 0, -1e300: 0, math.Inf(-1): 0} {
			if got := expNeg(x); got != want {
				t.Errorf("exp(%v) is %v, want %v", x, got, want)
			}
		}
	})
}

func BenchmarkSoftmax128k(b *testing.B) {
	row := make([]float32, 128256)
	for i := range row {
		row[i] = float32(i%977) / 100
	}
	b.SetBytes(int64(4 * len(row)))
	for b.Loop() {
		if _, err := softmax(row); err != nil {
			b.Fatal(err)
		}
	}
}
