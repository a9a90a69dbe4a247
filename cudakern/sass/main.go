// Command sass reads the SASS of the matrix products for sm_52 and computes an upper bound for their speed
// on a Tesla M40 from the costs of instructions, and from that what tokens of some models would take there; it measures nothing. It fails if a product of one row could
// not process weights at twice the memory bandwidth; some have a lower limit, see least. Run it in cudakern, after make kernels; it needs
// cuobjdump of the CUDA toolkit.
//
// The hot loop of a kernel is the innermost loop that loads the most bytes of weights. Its cycles are counted for one
// of the four partitions of a multiprocessor: a warp instruction takes one cycle at full rate, two at half
// rate (shifts, comparisons), four at quarter rate (conversions). The second instruction of a dual issue
// takes no issue cycle. The unit with the most busy cycles sets the bound.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"m40-llm/cudakern/fatbin"
)

// The Tesla M40.
const (
	multiprocessors = 24
	lanes           = 128     // per multiprocessor
	clock           = 1.114e9 // boost clock, Hz
	memory          = 288e9   // bandwidth, bytes per second
)

// weight describes how a product reads a weight type: bytes of memory per weight, and bytes that a lane
// loads for the 128 weights of its block of 4 outputs. Data shared by several blocks counts for each.
type weight struct {
	name  string
	bytes float64
	loads int
}

// least returns the multiple of the memory bandwidth at which a product must be able to process weights.
// Looking codes up takes 1.5 cycles per weight; bytes that need no table would take twice the memory, so that
// codes are faster at any multiple above 1.
func (w weight) least() float64 {
	if slices.Contains([]string{"iq4_nl", "iq4_xs", "mxfp4"}, w.name) {
		return 1.7
	}
	return 2
}

var weights = []weight{
	{"f32", 4, 512},
	{"f16", 2, 256},
	{"bf16", 2, 256},
	{"q8_0", 34. / 32, 128 + 8},
	{"q4_0", 18. / 32, 64 + 8},
	{"q4_1", 20. / 32, 64 + 16},
	{"q5_0", 22. / 32, 64 + 16 + 8},
	{"q5_1", 24. / 32, 64 + 16 + 16},
	{"q2_k", (18*8 + 4) / 256., 64 + 8 + 16},
	{"q3_k", (18*8 + 2) / 256., 64 + 8 + 8},
	{"q4_k", (18*8 + 4) / 256., 64 + 8 + 16},
	{"q5_k", (22*8 + 4) / 256., 64 + 16 + 8 + 16},
	{"q6_k", (26*8 + 2) / 256., 64 + 32 + 8 + 8},
	{"iq4_nl", 18. / 32, 64 + 8},
	{"iq4_xs", (17*8 + 2) / 256., 64 + 4 + 8},
	{"mxfp4", 17. / 32, 64 + 4},
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
	rates := map[string]float64{} // of the slowest product of one row
	for _, w := range weights {
		kernels, err := kernelsOf("matmul_"+w.name, "row_"+w.name)
		if err != nil {
			return err
		}
		for _, k := range kernels {
			c, err := k.cost(w)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			rate := c.rate(w)
			fmt.Fprintf(out, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f %% | %.0f | %.1f x |\n", strings.TrimPrefix(k.name, "matmul_"),
				c.perWeight(c.instructions), c.perWeight(c.issue), c.perWeight(c.alu), c.perWeight(c.conversion), c.perWeight(c.memory), 100*float64(c.wide)/float64(c.loaded), rate/1e9, rate/memory)
			if k.isOfOneRow() {
				if other, ok := rates[w.name]; !ok || rate < other {
					rates[w.name] = rate
				}
			}
			if k.isOfOneRow() && rate < w.least()*memory {
				slow = append(slow, fmt.Errorf("%s can process at most %.0f GB/s of weights, less than %.1f times the memory bandwidth of %.0f GB/s", k.name, rate/1e9, w.least(), memory/1e9))
			}
		}
	}
	return errors.Join(append(slow, printTokens(out, rates), printPrompts(out))...)
}

// kernelsOf returns the kernels of modules.
func kernelsOf(modules ...string) (kernels []kernel, err error) {
	for _, name := range modules {
		image, err := fatbin.Read(name)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		text, err := fatbin.Dump(image, "-sass", "-arch", "sm_52")
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		found, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		kernels = append(kernels, found...)
	}
	return kernels, nil
}

// isOfOneRow reports whether a launch of the kernel multiplies one row, and so must not take longer than its memory.
func (k kernel) isOfOneRow() bool {
	return slices.ContainsFunc([]string{"_n1", "_norm", "_glu"}, func(suffix string) bool { return strings.HasSuffix(k.name, suffix) })
}

// kernel is the SASS of a kernel.
type kernel struct {
	name string
	code []instruction
}

type instruction struct {
	address int
	op      string // LDG.E.CI.128
	text    string // with operands, without predicate
	stall   int    // cycles until the next instruction can issue; 0: dual issue
}

var (
	functionLine    = regexp.MustCompile(`Function : (\w+)`)
	controlLine     = regexp.MustCompile(`^\s*/\* 0x([0-9a-f]{16}) \*/\s*$`)
	instructionLine = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,5})\*/\s+\{?\s*(?:@!?U?P\w\s+)?([^;}]*?)\s*[;}]`)
)

// parse parses the output of cuobjdump -sass for sm_52. A control word precedes every three instructions: 21
// bits for each, the lowest four of which are the stall count.
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
		return nil, errors.New("there is no code for sm_52")
	}
	slices.SortFunc(kernels, func(a, b kernel) int { return strings.Compare(a.name, b.name) })
	return kernels, nil
}

// cost is the cost of one iteration of a hot loop, in cycles of a partition of a multiprocessor, and the
// number of weights that a lane multiplies in it.
type cost struct {
	weights                        int
	instructions                   int
	issue, alu, conversion, memory int
	loaded, wide                   int // bytes of weights loaded from global memory, and of those by 16-byte loads
}

// perWeight returns cycles per weight.
func (c cost) perWeight(cycles int) float64 { return float64(cycles) / float64(c.weights) }

// rate returns the upper bound of the whole GPU, in bytes of weights per second.
func (c cost) rate(w weight) float64 {
	busiest := max(c.issue, c.alu, c.conversion, c.memory)
	return multiprocessors * lanes * clock * w.bytes / c.perWeight(busiest)
}

// cost returns the cost of the hot loop.
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
		return cost{}, fmt.Errorf("its hot loop loads %d bytes, which is not a multiple of a block of %s", best.loaded, w.name)
	}
	best.weights = best.loaded * 128 / w.loads
	return best, nil
}

var branchTarget = regexp.MustCompile(`^BRA\S* 0x([0-9a-f]+)`)

// loops returns the first and last instruction of every loop: the target of a backward branch, and the
// branch. The branch to itself that follows the end of a kernel is not a loop.
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

// Instructions by throughput, from the CUDA C++ Programming Guide's table for compute capability 5.x and
// the tables of maxas.
var (
	fullRate = strings.Fields("FADD FADD32I FFMA FFMA32I FMUL FMUL32I IADD IADD32I IADD3 LOP LOP32I LOP3 XMAD MOV MOV32I PRMT SEL CS2R BRA SSY SYNC PBK BRK EXIT DEPBAR BAR")
	halfRate = strings.Fields("SHL SHR SHF BFE BFI ISCADD ISCADD32I LEA FMNMX IMNMX FSET ISET ISETP FSETP ICMP FCMP PSETP")
	quarter  = strings.Fields("MUFU F2F F2I I2F I2I FLO POPC S2R")
	loads    = strings.Fields("LDG LDS STS STG LDL STL LDC SHFL MEMBAR")
)

// count returns the cost of code.
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
			// The partitions share one load/store unit, which handles 4 bytes of 32 lanes per cycle.
			c.memory += 4 * max(bytes/4, 1)
		default:
			return cost{}, fmt.Errorf("the throughput of instruction %s is unknown", i.op)
		}
		if strings.HasPrefix(i.op, "LDG.E.CI") { // weights: through the read-only cache
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

// width returns the number of bytes that a lane loads or stores.
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
