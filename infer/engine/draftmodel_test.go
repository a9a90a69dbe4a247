package engine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/ref"
	"m40-llm/infer/sample"
)

// round is a draft that was checked: its tokens, how many of them were drawn, and the position of the first.
type round struct {
	draft    []int32
	accepted int
	pos      int
}

func (r *round) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&r.draft, &r.accepted})
}

// draftDevices are the devices on which drafts are compared with the reference.
var draftDevices = map[string]func() (device.Device, error){
	"ref": func() (device.Device, error) { return ref.New(), nil },
	"cpu": func() (device.Device, error) { return cpu.Open(2) },
}

func openCUDA() (device.Device, error) { return cuda.Open() }

// openDrafting starts an engine with the model in files["m"], in which drafts have so many tokens; 0: as many as gain. rounds gets the
// drafts.
func openDrafting(t *testing.T, files map[string][]byte, draft string, tokens int, rounds *[]round, open func() (device.Device, error)) *bench {
	t.Helper()
	b := &bench{t: t, files: files}
	b.openReady(Options{
		Catalog: catalog{b}, Model: "m", Draft: draft, ContextLength: 256, Parallel: 3, ChunkRows: 24, QueueLimit: 600,
		OpenDevice:  func(*gguf.File) (device.Device, error) { return open() },
		draftTokens: tokens,
		onDraft: func(pos int, ids []int32, accepted int) {
			if rounds != nil {
				*rounds = append(*rounds, round{slices.Clone(ids), accepted, pos})
			}
		},
	})
	return b
}

// checkRounds asks b for a greedy answer to ids, and compares it and its drafts with the reference. Where a recurrent state has to be set
// back, drafts are shorter, because rows are computed again, and a snapshot is due at the end of a block.
func checkRounds(t *testing.T, b *bench, got *[]round, ids, greedy []int32, want []round, recurs bool) {
	t.Helper()
	r := request(ids, len(greedy))
	r.IgnoreEOS = true
	*got = nil
	a := b.ask(r)
	if a.err != nil || !slices.Equal(a.ids(), greedy) {
		t.Errorf("answer %v, %v; want %v", a.ids(), a.err, greedy)
	}
	reference := map[int]round{}
	for pos, i := len(ids)+1, 0; i < len(want); i++ { // the first token has no draft
		reference[pos] = want[i]
		pos += 1 + want[i].accepted
	}
	compared := 0
	for _, r := range *got {
		w, ok := reference[r.pos]
		if !ok {
			continue // after a draft that was cut
		}
		n := len(r.draft)
		if n < len(w.draft) && r.pos+n != len(ids)+len(greedy)-1 && !recurs || !slices.Equal(r.draft, w.draft[:n]) || r.accepted != min(w.accepted, n) {
			t.Errorf("position %d: %d of %v accepted, want %d of %v", r.pos, r.accepted, r.draft, w.accepted, w.draft)
		}
		compared++
	}
	if compared < len(want)/2 || len(want) < 5 {
		t.Errorf("%d drafts of %d were compared", compared, len(want))
	}
}

func draftPair(t *testing.T) (files map[string][]byte, golden struct {
	Cases []struct {
		IDs, Greedy []int32
		Rounds1     []round `json:"rounds_1"`
		Rounds3     []round `json:"rounds_3"`
		Rounds5     []round `json:"rounds_5"`
	}
}) {
	t.Helper()
	dir := fixtures.Path(t, "mtp", "draft_pair")
	if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &golden); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"m": readFile(t, filepath.Join(dir, "target.f16.gguf")), "small": readFile(t, filepath.Join(dir, "draft.f16.gguf"))}, golden
}

func TestDraftModel_DraftsEqualTheReference(t *testing.T) {
	files, golden := draftPair(t)
	for name, open := range draftDevices {
		for tokens := 1; tokens <= 5; tokens += 2 {
			t.Run(fmt.Sprintf("%d tokens on %s", tokens, name), func(t *testing.T) {
				var rounds []round
				b := openDrafting(t, files, "small", tokens, &rounds, open)
				for _, c := range golden.Cases {
					checkRounds(t, b, &rounds, c.IDs, c.Greedy, map[int][]round{1: c.Rounds1, 3: c.Rounds3, 5: c.Rounds5}[tokens], false)
				}
			})
		}
	}
}

// draftParams returns settings of any samplers, for every other answer those with which tokens that a model finds likely come often.
func draftParams(rng *rand.Rand, seed int64) sample.Params {
	p := anyParams(rng, seed)
	if seed%2 == 1 {
		p.LogitBias, p.Temperature = nil, 0.1
	}
	return p
}

func TestDrafts_AnswersAreTheSameBits(t *testing.T) {
	files, _ := draftPair(t)
	fixture := func(t *testing.T, elem ...string) []byte {
		return readFile(t, filepath.Join(fixtures.Path(t, elem...), "f16.gguf"))
	}
	recurrent := map[string][]byte{"m": fixture(t, "logits", "qwen35moe"), "small": fixture(t, "logits", "qwen35")} // which guesses next to nothing right
	for _, tt := range []struct {
		name  string
		files map[string][]byte
		draft string
		open  func() (device.Device, error)
		count int
	}{
		{"a draft model on ref", files, "small", draftDevices["ref"], fixtures.At(4, 16, 200)},
		{"a draft model on the cpu", files, "small", draftDevices["cpu"], fixtures.At(4, 16, 200)},
		{"a draft model on emulated cuda", files, "small", openCUDA, fixtures.At(1, 3, 50)},
		{"recurrent models on ref", recurrent, "small", draftDevices["ref"], fixtures.At(4, 12, 200)},
		{"a head on ref", map[string][]byte{"m": fixture(t, "mtp", "glm4moe")}, DraftMTP, draftDevices["ref"], fixtures.At(4, 12, 200)},
		{"a head on emulated cuda", map[string][]byte{"m": fixture(t, "mtp", "glm4moe")}, DraftMTP, openCUDA, fixtures.At(1, 3, 50)},
		{"whatever gains, on the cpu", map[string][]byte{"m": fixture(t, "mtp", "glm4moe")}, DraftAuto, draftDevices["cpu"], fixtures.At(4, 12, 200)},
		{"whatever gains, of a recurrent model on the cpu", map[string][]byte{"m": fixture(t, "mtp", "qwen35moe")}, DraftAuto, draftDevices["cpu"], fixtures.At(4, 12, 200)},
		{"a head of a recurrent model on the cpu", map[string][]byte{"m": fixture(t, "mtp", "qwen35")}, DraftMTP, draftDevices["cpu"], fixtures.At(4, 12, 200)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if strings.Contains(tt.name, "cuda") {
				t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
			}
			alone := openDrafting(t, tt.files, DraftOff, 0, nil, tt.open)
			requests, want := lookupRequests(rand.New(rand.NewPCG(3, 1)), tt.count, draftParams, func(r infer.Request) outcome {
				r.PromptLookup = nil
				return alone.ask(r)
			})
			alone.Close()
			for i := range requests {
				requests[i].PromptLookup = nil
			}
			tokens := 3
			if tt.draft == DraftAuto {
				tokens = 0
			}
			sum := stormOfLookups(t, openDrafting(t, tt.files, tt.draft, tokens, nil, tt.open), rand.New(rand.NewPCG(3, 2)), requests, want)
			guesses := tt.draft != DraftAuto && tt.files["small"] == nil || strings.HasPrefix(tt.name, "a draft model")
			if tokens > 0 && sum.Drafted == 0 || guesses && tt.count > 4 && (sum.Accepted == 0 || sum.Accepted == sum.Drafted) {
				t.Errorf("%d of %d drafted tokens were accepted: too few or too many to test anything", sum.Accepted, sum.Drafted)
			}
		})
	}
}

func TestHead_DraftsEqualTheReference(t *testing.T) {
	for _, name := range []string{"qwen35", "qwen35moe", "glm4moe"} {
		var golden struct {
			Sequences [][]int32
			MTP       struct {
				Sequences []struct {
					Greedy  []int32
					Rounds1 []round `json:"rounds_1"`
					Rounds3 []round `json:"rounds_3"`
				}
			}
		}
		dir := fixtures.Path(t, "mtp", name)
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "golden.json")), &golden); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{"m": readFile(t, filepath.Join(dir, "f32.gguf"))}
		for device, open := range draftDevices {
			for tokens := 1; tokens <= 3; tokens += 2 {
				t.Run(fmt.Sprintf("%s, %d tokens on %s", name, tokens, device), func(t *testing.T) {
					var rounds []round
					b := openDrafting(t, files, DraftMTP, tokens, &rounds, open)
					for i, want := range golden.MTP.Sequences {
						checkRounds(t, b, &rounds, golden.Sequences[i], want.Greedy, map[int][]round{1: want.Rounds1, 3: want.Rounds3}[tokens], name != "glm4moe")
					}
				})
			}
		}
	}
}

func TestDraftModel_AnotherVocabularyIsRefusedByItsFirstToken(t *testing.T) {
	files, golden := draftPair(t)
	for _, tt := range []struct {
		name, why string
		file      []byte
	}{
		{"another vocabulary", "its token", gguftest.TinyLlama(gguftest.Llama{})},
		{"the model itself", "it is the model itself", files["m"]},
		{"no model", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			with := map[string][]byte{"m": files["m"]}
			if tt.file != nil {
				with["small"] = tt.file
			}
			var rounds []round
			b := openDrafting(t, with, "small", 3, &rounds, draftDevices["ref"])
			if notice := b.Status().Device.Notice; !strings.Contains(notice, "the model small drafts no tokens: "+tt.why) {
				t.Errorf("notice %q, want one about %q", notice, tt.why)
			}
			r := request(golden.Cases[0].IDs, 8)
			r.IgnoreEOS = true
			if a := b.ask(r); !slices.Equal(a.ids(), golden.Cases[0].Greedy[:8]) || len(rounds) > 0 {
				t.Errorf("%v, %v with %d drafts; want %v without any", a.ids(), a.err, len(rounds), golden.Cases[0].Greedy[:8])
			}
		})
	}
}

func TestDraftModel_ADeviceThatFailsEndsDraftsAlone(t *testing.T) {
	files, golden := draftPair(t)
	opened := 0
	b := openDrafting(t, files, "small", 3, nil, func() (device.Device, error) {
		if opened++; opened == 2 {
			return &failingDevice{Device: ref.New()}, nil
		}
		return ref.New(), nil
	})
	r := request(golden.Cases[0].IDs, 24)
	r.IgnoreEOS = true
	if a := b.ask(r); a.err != nil || !slices.Equal(a.ids(), golden.Cases[0].Greedy[:24]) || a.done.Lookup.Drafted != 0 || opened != 2 {
		t.Errorf("%v, %v, %+v on %d devices; want %v without drafts", a.ids(), a.err, a.done.Lookup, opened, golden.Cases[0].Greedy[:24])
	}
}

// failingDevice is a device whose programs fail.
type failingDevice struct{ device.Device }

func (d *failingDevice) Compile(*device.Program) (device.Executable, error) { return failing{}, nil }

type failing struct{}

func (failing) Run(*device.Batch) error { return device.ErrFailed }

func TestDraftModel_TheNextTurnReadsOnlyWhatIsNew(t *testing.T) {
	files, golden := draftPair(t)
	b := openDrafting(t, files, "small", 3, nil, draftDevices["ref"])
	long := slices.Concat(golden.Cases[0].IDs, golden.Cases[1].IDs, span(100, 150))
	r := request(long, 12)
	r.IgnoreEOS = true
	first := b.ask(r)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			turn := request(slices.Concat(long, first.ids(), span(60, 70)), 12)
			turn.IgnoreEOS = true
			if a := b.ask(turn); a.err != nil || a.done.Lookup.Drafted == 0 {
				t.Errorf("%+v, %v: nothing was drafted", a.done, a.err)
			}
		})
	}
	wg.Wait()
}
