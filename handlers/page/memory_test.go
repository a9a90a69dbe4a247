package page

import (
	"math"
	"slices"
	"testing"

	"m40-llm/infer"
	"m40-llm/web"
)

func TestTheBarOfADevicesMemoryHasAPartForEachModel(t *testing.T) {
	const gpu, cpu = "Tesla M40", "Xeon"
	status := infer.Status{
		Devices: []infer.Memory{{Device: gpu, Total: 1000, Taken: 700}, {Device: cpu, Total: 80, Taken: 140, Other: 20}, {Device: "unknown"}},
		Models: []infer.Status{
			{Model: infer.ModelInfo{Name: "a"}, Memory: []infer.MemoryUse{{Device: gpu, Weights: 300, Cache: 100, Work: 50}, {Device: cpu, Weights: 60, Cache: 20}}},
			{Model: infer.ModelInfo{Name: "b"}, Memory: []infer.MemoryUse{{Device: gpu, Weights: 200, Work: 50}}},
			{Model: infer.ModelInfo{Name: "c"}, Memory: []infer.MemoryUse{{Device: cpu, Weights: 10, Cache: 50}}},
			{Model: infer.ModelInfo{Name: "d"}, Memory: []infer.MemoryUse{{Device: cpu, Weights: 10}}},
		},
	}
	type part struct {
		kind        string
		from, share float64
		title       string
	}
	want := map[string][]part{
		gpu: {{"weights", 0, 0.3, "a: 300 B of weights"}, {"cache", 0.3, 0.1, "a: up to 100 B of KV cache"}, {"work", 0.4, 0.05, "a: 50 B of workspace"}, {"weights", 0.45, 0.2, "b: 200 B of weights"}, {"work", 0.65, 0.05, "b: 50 B of workspace"}},
		// planned for more than there is: the bar ends, and has no room for what others take
		cpu: {{"weights", 0, 0.6, "a: 60 B of weights"}, {"cache", 0.6, 0.2, "a: up to 20 B of KV cache"}, {"weights", 0.8, 0.1, "c: 10 B of weights"}, {"cache", 0.9, 0.1, "c: up to 50 B of KV cache"}},
	}
	list := memoryView(t.Context(), status)
	if facts := list[0].Models[1].Facts; facts != "200 B of weights, 50 B of workspace" {
		t.Errorf("got %q", facts)
	}
	if len(list) != len(want) {
		t.Fatalf("got %+v", list)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	for _, d := range list {
		parts := slices.DeleteFunc(slices.Clone(d.Parts), func(p web.MemoryPart) bool { return p.Kind == "gap" })
		if len(parts) != len(want[d.Device]) {
			t.Fatalf("%s: got %+v", d.Device, parts)
		}
		for i, p := range want[d.Device] {
			if got := parts[i]; got.Kind != p.kind || got.Title != p.title || !near(got.From, p.from) || !near(got.Share, p.share) {
				t.Errorf("%s: got %+v, want %+v", d.Device, got, p)
			}
		}
	}
	if n := len(list[1].Models); n != 3 {
		t.Errorf("%d models are listed, want also the one for which the bar has no room", n)
	}
	if list[0].Taken != "700 B of 1.0 kB are taken by models or planned for them, 300 B are free" {
		t.Errorf("got %q", list[0].Taken)
	}
	if want := "140 B of 80 B are taken by models or planned for them, 0 B are free; other programs have 20 B"; list[1].Taken != want {
		t.Errorf("got %q, want %q", list[1].Taken, want)
	}
}

func TestOtherProgramsAreAtTheEndOfTheBarBehindWhatIsFree(t *testing.T) {
	list := memoryView(t.Context(), infer.Status{
		Devices: []infer.Memory{{Device: "Xeon", Total: 60, Taken: 30, Other: 40}},
		Models:  []infer.Status{{Model: infer.ModelInfo{Name: "a"}, Memory: []infer.MemoryUse{{Device: "Xeon", Weights: 30}}}},
	})
	parts := list[0].Parts
	if last := parts[len(parts)-1]; last.Kind != "other" || math.Abs(last.From-0.6) > 1e-9 || math.Abs(last.Share-0.4) > 1e-9 {
		t.Errorf("the bar is %+v, want it to end with 40 %% of other programs", parts)
	}
}
