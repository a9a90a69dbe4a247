// Command sass reads the machine code that nvcc made of the products for sm_52 and says
// how fast a Tesla M40 could at most run them: a model, of what the instructions cost,
// not a measurement. It fails if a product of one row could not keep up with twice the
// memory's speed. Run it in cudakern, after make kernels; cuobjdump is of the CUDA toolkit.
//
// The hot loop of a kernel is the innermost loop that loads most. Its cycles are counted
// on one of the four parts of a multiprocessor: an instruction of the full rate takes one
// for a warp, of half the rate two (shifts, comparisons), of a quarter four (conversions),
// and so on. An instruction that is issued together with the one before costs no cycle of
// issue. The unit that is busy longest sets the bound.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The card: multiprocessors, its clock under load and what its memory gives.
const (
	multiprocessors = 24
	lanes           = 128 // of a multiprocessor
	clock           = 1.114e9
	memory          = 288e9
)

// weight says what a product reads of a type of weight: bytes of memory for each weight,
// and bytes that a lane loads for the 128 weights of its block of 4 outputs, in which
// what several blocks share counts for each.
type weight struct {
	name  string
	bytes float64
	loads int
}

var weights = []weight{
	{"f32", 4, 512},
	{"f16", 2, 256},
	{"q8_0", 34. / 32, 128 + 8},
	{"q4_0", 18. / 32, 64 + 8},
	{"q4_k", (18*8 + 4) / 256., 64 + 8 + 16},
	{"q6_k", (26*8 + 2) / 256., 64 + 32 + 8 + 8},
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	fmt.Fprintln(out, "| kernel | instructions | issue | ALU | conversion | load/store | 16-byte loads | cap GB/s | of 288 |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|")
	var slow []error
	for _, w := range weights {
		module := filepath.Join("fatbin", "matmul_"+w.name+".fatbin")
		text, err := exec.Command("cuobjdump", "-sass", "-arch", "sm_52", module).CombinedOutput()
		if err != nil {
			return fmt.Errorf("cuobjdump %s: %w\n%s", module, err, text)
		}
		kernels, err := parse(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
		for _, k := range kernels {
			c, err := k.cost(w)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			rate := c.rate(w)
			fmt.Fprintf(out, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f %% | %.0f | %.1f x |\n", strings.TrimPrefix(k.name, "matmul_"),
				c.per(c.instructions), c.per(c.issue), c.per(c.alu), c.per(c.conversion), c.per(c.memory), 100*float64(c.wide)/float64(c.loaded), rate/1e9, rate/memory)
			if strings.HasSuffix(k.name, "_n1") && rate < 2*memory {
				slow = append(slow, fmt.Errorf("%s could read at most %.0f GB/s of weights, less than twice the memory's %.0f", k.name, rate/1e9, memory/1e9))
			}
		}
	}
	return errors.Join(slow...)
}

// kernel is the machine code of one.
type kernel struct {
	name string
	code []instruction
}

type instruction struct {
	address int
	op      string // LDG.E.CI.128
	text    string // with its operands, without a predicate
	stall   int    // cycles until the next may be issued; 0: together with it
}

var (
	functionLine    = regexp.MustCompile(`Function : (\w+)`)
	controlLine     = regexp.MustCompile(`^\s*/\* 0x([0-9a-f]{16}) \*/\s*$`)
	instructionLine = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,5})\*/\s+\{?\s*(?:@!?U?P\w\s+)?([^;}]*?)\s*[;}]`)
)

// parse reads what cuobjdump -sass prints for sm_52: before every three instructions a
// word with 21 bits of control for each, the lowest four of which are the stall.
func parse(text string) ([]kernel, error) {
	var kernels []kernel
	var control uint64
	for line := range strings.Lines(text) {
		if m := functionLine.FindStringSubmatch(line); m != nil {
			kernels = append(kernels, kernel{name: m[1]})
		} else if m := controlLine.FindStringSubmatch(line); m != nil {
			control, _ = strconv.ParseUint(m[1], 16, 64)
		} else if m := instructionLine.FindStringSubmatch(line); m != nil && len(kernels) > 0 {
			address, _ := strconv.ParseInt(m[1], 16, 0)
			k := &kernels[len(kernels)-1]
			k.code = append(k.code, instruction{int(address), strings.Fields(m[2])[0], m[2], int(control & 15)})
			control >>= 21
		}
	}
	if len(kernels) == 0 {
		return nil, errors.New("there is no machine code for sm_52")
	}
	slices.SortFunc(kernels, func(a, b kernel) int { return strings.Compare(a.name, b.name) })
	return kernels, nil
}

// cost is what one turn of a hot loop takes, in cycles of a quarter of a multiprocessor,
// and the weights that a lane multiplies in it.
type cost struct {
	weights                        int
	instructions                   int
	issue, alu, conversion, memory int
	loaded, wide                   int // bytes of loads from global memory, and of 16 at once
}

func (c cost) per(cycles int) float64 { return float64(cycles) / float64(c.weights) }

// rate is the bytes of weights a second that the whole card could read.
func (c cost) rate(w weight) float64 {
	busiest := max(c.issue, c.alu, c.conversion, c.memory)
	return multiprocessors * lanes * clock * w.bytes / c.per(busiest)
}

// cost counts the hot loop.
func (k kernel) cost(w weight) (cost, error) {
	best := cost{}
	loops := k.loops()
	for _, loop := range loops {
		if slices.ContainsFunc(loops, func(inner [2]int) bool { return inner != loop && inner[0] >= loop[0] && inner[1] <= loop[1] }) {
			continue
		}
		c, err := count(k.code[loop[0] : loop[1]+1])
		if err != nil {
			return cost{}, err
		}
		if c.loaded > best.loaded {
			best = c
		}
	}
	if best.loaded*128%w.loads != 0 || best.loaded == 0 {
		return cost{}, fmt.Errorf("its hot loop loads %d bytes, which are no blocks of %s", best.loaded, w.name)
	}
	best.weights = best.loaded * 128 / w.loads
	return best, nil
}

var branchTarget = regexp.MustCompile(`^BRA\S* 0x([0-9a-f]+)`)

// loops returns the first and the last instruction of every loop: a branch back. A branch
// to itself, behind the end of a kernel, is none.
func (k kernel) loops() (found [][2]int) {
	for last, i := range k.code {
		m := branchTarget.FindStringSubmatch(i.text)
		if m == nil {
			continue
		}
		target, _ := strconv.ParseInt(m[1], 16, 0)
		first := slices.IndexFunc(k.code, func(i instruction) bool { return i.address >= int(target) })
		if first >= 0 && first < last {
			found = append(found, [2]int{first, last})
		}
	}
	return found
}

// Instructions by the unit that they keep busy, from the CUDA C++ Programming Guide's
// table of throughputs for 5.x and the tables of maxas.
var (
	fullRate = strings.Fields("FADD FADD32I FFMA FFMA32I FMUL FMUL32I IADD IADD32I IADD3 LOP LOP32I LOP3 XMAD MOV MOV32I PRMT SEL CS2R BRA SSY SYNC PBK BRK EXIT DEPBAR BAR")
	halfRate = strings.Fields("SHL SHR SHF BFE BFI ISCADD LEA FMNMX IMNMX FSET ISET ISETP FSETP ICMP FCMP PSETP")
	quarter  = strings.Fields("MUFU F2F F2I I2F I2I FLO POPC S2R")
	loads    = strings.Fields("LDG LDS STS STG LDC SHFL")
)

func count(code []instruction) (c cost, err error) {
	for _, i := range code {
		base, _, _ := strings.Cut(i.op, ".")
		bytes := width(i.op)
		switch {
		case base == "NOP":
			continue
		case slices.Contains(fullRate, base):
			c.alu++
		case slices.Contains(halfRate, base):
			c.alu += 2
		case slices.Contains(quarter, base):
			c.conversion += 4
		case slices.Contains(loads, base):
			// One unit for the whole multiprocessor, of 32 lanes of 4 bytes.
			c.memory += 4 * max(bytes/4, 1)
		default:
			return cost{}, fmt.Errorf("the rate of instruction %s is not known", i.op)
		}
		if base == "LDG" {
			c.loaded += bytes
			if bytes == 16 {
				c.wide += bytes
			}
		}
		c.instructions++
		if i.stall > 0 {
			c.issue++
		}
	}
	return c, nil
}

// width is the bytes that a lane loads or stores.
func width(op string) int {
	for _, suffix := range strings.Split(op, ".") {
		switch suffix {
		case "128":
			return 16
		case "64":
			return 8
		case "U16", "S16":
			return 2
		case "U8", "S8":
			return 1
		}
	}
	return 4
}
