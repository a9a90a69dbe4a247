package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern"
)

// listing is the output of cuobjdump for a kernel, with a control word before every three instructions: an
// outer loop with a 16-byte load and arithmetic, and an inner loop with two loads.
const listing = `
	code for sm_52
		Function : matmul_q4_0_i16_n1
	.headerflags    @"EF_CUDA_SM52 EF_CUDA_PTX_SM(EF_CUDA_SM52)"
                                                                 /* 0x001c4400fe0007f6 */
        /*0008*/                   MOV R1, c[0x0][0x20] ;        /* 0x4c98078000870001 */
        /*0010*/                   LDG.E.CI.128 R4, [R2] ;       /* 0xeed4a00000070204 */
        /*0018*/                   FFMA R5, R4, R5, R6 ;         /* 0x59a0030000570405 */
                                                                 /* 0x0000040000200000 */
        /*0028*/         {         XMAD R8, R4.H1, R9, R8 ;      /* 0x5b00040000970408 */
        /*0030*/                   LDG.E.CI.128 R4, [R2]         }
                                                                 /* 0xeed4a00000070204 */
        /*0038*/                   LDG.E.CI.64 R6, [R2+0x8] ;    /* 0xeed4a00000070204 */
                                                                 /* 0x0000040000200001 */
        /*0048*/                   SHL R7, R7, 0x2 ;             /* 0x3848000000270707 */
        /*0050*/                   I2F.F32.S32 R7, R7 ;          /* 0x5cb8000000772a07 */
        /*0058*/              @P0 BRA 0x28 ;                     /* 0xe2400fffff080000 */
                                                                 /* 0x0000040000200001 */
        /*0068*/              @P1 BRA 0x10 ;                     /* 0xe2400fffff080000 */
        /*0070*/                   EXIT ;                        /* 0xe30000000007000f */
        /*0078*/                   BRA 0x78 ;                    /* 0xe2400fffff87000f */
`

func TestTheCostIsThatOfTheInnermostLoop(t *testing.T) {
	kernels, err := parse(listing)
	if err != nil || len(kernels) != 1 {
		t.Fatalf("got %d kernels, %v", len(kernels), err)
	}
	got, err := kernels[0].cost(weight{"of 24 bytes a block", 18. / 32, 24})
	want := cost{weights: 128, instructions: 6, issue: 5, alu: 4, conversion: 4, memory: 24, loaded: 24, wide: 16}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if rate := got.rate(weight{bytes: 0.5}); rate != 24*128*1.114e9*0.5/(24./128) {
		t.Errorf("a loop of 24 cycles for 128 weights reads %g bytes a second", rate)
	}
}

func TestCostReturnsAnErrorForCodeThatItCannotCount(t *testing.T) {
	for _, c := range []struct {
		name, listing string
		loads         int
		says          string
	}{
		{"an instruction that it does not know", strings.Replace(listing, "SHL R7", "SHADOW R7", 1), 24, "SHADOW is unknown"},
		{"a loop that loads something else", listing, 72, "loads 24 bytes"},
		{"a kernel without a loop", strings.NewReplacer("BRA 0x28", "BRA 0x70", "BRA 0x10", "BRA 0x70").Replace(listing), 24, "loads 0 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kernels, err := parse(c.listing)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kernels[0].cost(weight{"q4_0", 1, c.loads}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
	if _, err := parse("no such file"); err == nil {
		t.Error("parse found a kernel in a text without one")
	}
}

func TestATokenTakesTheTimeOfItsWeightsCacheLaunchesAndBarriers(t *testing.T) {
	s := shape{layers: 2, kv: 64, biases: 3, matrices: []matrix{{1 << 20, 512, 2, "f16"}, {1 << 20, 512, 1, "q8_0"}}}
	// Products with f16 are bound by memory, those with q8_0 by arithmetic.
	got, err := s.token(map[string]float64{"f16": 1e15, "q8_0": 1e11})
	work := 2*(1<<30)/(share*memory)*1e6 + 17<<25/(busy*1e11)*1e6 + 2*attending + 2*512*64*4/(share*memory)*1e6
	if err != nil || got.launches != 21 || got.barriers != 18 || math.Abs(got.work-work) > 1e-6*work || got.bytes != 2*(1<<30)+17<<25 ||
		got.graph != got.work+21*launching || got.resident != got.work+18*barrier {
		t.Errorf("got %+v, %v, want %g µs of work", got, err, work)
	}
	if _, err := s.token(map[string]float64{"f16": 1e15}); err == nil {
		t.Error("a token has no error although there is no product of its weights")
	}
}

func TestTheTableHasAllWeightTypes(t *testing.T) {
	var names []string
	for _, w := range weights {
		names = append(names, w.name)
	}
	types := cudakern.WeightTypes()
	slices.Sort(names)
	slices.Sort(types)
	if !slices.Equal(names, types) {
		t.Errorf("the table has %v, there are kernels for %v", names, types)
	}
}

// TestTheCostOfManyRowsIsThatOfAllLoops counts a kernel that multiplies 4 words in each of its two loops over words: they run 4 times for a block of 8 × 8 × 32 products.
func TestTheCostOfManyRowsIsThatOfAllLoops(t *testing.T) {
	k := kernel{name: "matmul_q6_k_many"}
	add := func(op string, n int) {
		for range n {
			k.code = append(k.code, instruction{8 * len(k.code), op, op, 1})
		}
	}
	back := func(to int) {
		k.code = append(k.code, instruction{8 * len(k.code), "BRA", fmt.Sprintf("BRA 0x%x", 8*to), 1})
	}
	add("MOV", 3)    // of a leaf
	add("STS", 10)   // of a block
	add("FFMA", 256) // of words
	back(13)
	add("I2F", 7)
	add("FFMA", 256)
	back(277)
	back(3)
	add("FADD", 64) // of a level
	back(535)
	back(0)
	add("EXIT", 1)

	m, err := k.many()
	if want := 10 + 7 + 1 + 4*(257+257); err != nil || m.block.issue != want || m.block.conversion != 7*4 || m.block.memory != 10*4 {
		t.Errorf("got %+v, %v, want %d instructions of a block", m.block, err, want)
	}
	if want := 3 + 64 + 2; m.leaf.issue != want {
		t.Errorf("got %d instructions of a leaf, want %d", m.leaf.issue, want)
	}
	if got, want := m.perProduct(2048), (float64(10+7+1+4*514)+69./2)/2048; math.Abs(got-want) > 1e-12 {
		t.Errorf("a product takes %g cycles, want %g", got, want)
	}

	t.Run("a kernel without such loops is refused", func(t *testing.T) {
		k.code = k.code[:100]
		if _, err := k.many(); err == nil || !strings.Contains(err.Error(), "no loop over words") {
			t.Errorf("got %v", err)
		}
	})
}
