package model_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// TestBlocksBehindAWindowHaveNoEffect runs each model with sliding windows twice: with a KV block of its
// own for each 32 positions, and with as few as a window needs, which later positions take over.
func TestBlocksBehindAWindowHaveNoEffect(t *testing.T) {
	const positions, chunk = 70, 10
	devices := map[string]func() (device.Device, error){
		"ref":  func() (device.Device, error) { return ref.New(), nil },
		"cpu":  openCPU,
		"cuda": cudaOpener(t),
	}
	windowed, onGPU := 0, familiesOnGPU(t)
	for _, name := range families {
		dir := familyPath(t, name)
		if readGolden(t, dir).Files["f32"] == "" {
			continue
		}
		f, err := gguf.Parse(readFile(t, filepath.Join(dir, "f32.gguf")))
		if err != nil {
			t.Fatal(err)
		}
		c, err := model.ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		groups := c.CacheGroups()
		if !slices.ContainsFunc(groups, func(g model.CacheGroup) bool { return g.Window > 0 && g.Window+chunk < positions-device.BlockSize }) {
			continue
		}
		windowed++
		for kind, openDevice := range devices {
			if kind != "cpu" && !fixtures.Torture() && (kind == "ref" || !slices.Contains(onGPU, name)) {
				continue
			}
			t.Run(name+" on "+kind, func(t *testing.T) {
				const blocks = (positions + device.BlockSize - 1) / device.BlockSize
				o := model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: blocks, MaxRows: chunk, MaxOut: 1, Context: positions}
				want := runWithTables(t, f, openDevice, o, func(g, i, from int) int32 { return int32(i) })
				for _, group := range groups {
					need := blocks
					if group.Window > 0 {
						need = min(need, (group.Window-1+chunk+device.BlockSize-1)/device.BlockSize+1)
					}
					o.GroupBlocks = append(o.GroupBlocks, need)
				}
				got := runWithTables(t, f, openDevice, o, func(g, i, from int) int32 {
					if i < groups[g].Needs(from)/device.BlockSize {
						return 0
					}
					return int32(i % o.GroupBlocks[g])
				})
				if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
					t.Errorf("the logits differ with caches of %d blocks", o.GroupBlocks)
				}
			})
		}
	}
	if windowed < 8 {
		t.Errorf("%d models have windows short enough", windowed)
	}
}

// runWithTables returns the logits behind each chunk. block returns entry i of the block table of a cache
// group for rows from position from on.
func runWithTables(t *testing.T, f *gguf.File, openDevice func() (device.Device, error), o model.Options, block func(group, i, from int) int32) (logits []float32) {
	t.Helper()
	dev, err := openDevice()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(t.Context(), f, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, m.Config().Vocab)
	for from := 0; from < o.Context; from += o.MaxRows {
		b := &device.Batch{Seq: make([]int32, o.MaxRows), Out: []int32{int32(o.MaxRows - 1)}}
		for i := range o.MaxRows {
			pos := from + i
			b.Tokens, b.Pos = append(b.Tokens, int32((pos*pos+3*pos)%m.Config().Vocab)), append(b.Pos, int32(pos))
		}
		for g := range m.Config().CacheGroups() {
			var table []int32
			for i := range (from+o.MaxRows-1)/device.BlockSize + 1 {
				table = append(table, block(g, i, from))
			}
			b.Tables = append(b.Tables, [][]int32{table})
		}
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		if err := m.Logits(row, 0); err != nil {
			t.Fatal(fmt.Errorf("position %d: %w", from, err))
		}
		logits = append(logits, row...)
	}
	return logits
}
