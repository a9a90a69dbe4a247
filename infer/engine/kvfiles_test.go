package engine

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/cudakern/emutest"
	"m40-llm/infer"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/guide"
	"m40-llm/infer/kvfile"
	"m40-llm/infer/model"
	"m40-llm/infer/ref"
)

// stored asks for n tokens, and stores the cache in the file called chat.
func stored(prompt []int32, n int) infer.Request {
	r := request(prompt, n)
	r.IgnoreEOS = true
	r.KVFile = &infer.KVFile{Name: "chat", Limit: 1 << 30}
	return r
}

// kvDir returns a folder in which the file called chat may be written.
func kvDir(t *testing.T) (*kvfile.Dir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kv")
	d, err := kvfile.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Allow("chat"); err != nil {
		t.Fatal(err)
	}
	return d, path
}

func positions(t *testing.T, d *kvfile.Dir) int {
	t.Helper()
	s, err := d.Stored("chat")
	if err != nil {
		t.Fatal(err)
	}
	return s.Positions
}

// logged collects what an engine logs.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func withKV(path string, log *logged) func(*bench, *Options) {
	return func(_ *bench, o *Options) {
		o.KVDir = path
		if log != nil {
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	}
}

func TestAChatThatIsOpenedAgainAfterARestartComputesOnlyWhatIsNew(t *testing.T) {
	d, path := kvDir(t)
	b := newBench(t, withKV(path, nil))
	first := b.ask(stored(span(3, 103), 40))
	b.Close()
	if got := positions(t, d); got != 128 { // of 139 with keys and values
		t.Errorf("%d positions are stored, want 128", got)
	}
	turn := stored(slices.Concat(span(3, 103), first.ids(), span(200, 220)), 30)
	b = newBench(t, withKV(path, nil))
	a := b.ask(turn)
	if a.err != nil || a.done.Usage.CachedTokens != 128 {
		t.Fatalf("%+v, %v; want 128 cached tokens", a.done, a.err)
	}
	if b.rows != 32+29 {
		t.Errorf("%d rows were computed, want the 32 tokens that are not stored and 29 of the answer", b.rows)
	}
	if want := greedy(turn.Tokens, 30); !slices.Equal(a.ids(), want) {
		t.Errorf("%v, want %v", a.ids(), want)
	}
	b.Close()
	if got := positions(t, d); got != 160 { // of 189
		t.Errorf("%d positions are stored after the second answer, want 160", got)
	}
}

func TestAStoredCacheIsUsedUpToTheFirstOtherToken(t *testing.T) {
	d, path := kvDir(t)
	newBench(t, withKV(path, nil)).askAndClose(stored(span(3, 203), 2))
	edited := stored(span(3, 203), 2)
	edited.Tokens[100] = 77
	b := newBench(t, withKV(path, nil))
	if a := b.ask(edited); a.err != nil || a.done.Usage.CachedTokens != 96 || !slices.Equal(a.ids(), greedy(edited.Tokens, 2)) {
		t.Errorf("%v, %+v, %v; want 96 cached tokens and %v", a.ids(), a.done, a.err, greedy(edited.Tokens, 2))
	}
	b.Close()
	if got := positions(t, d); got != 192 {
		t.Errorf("%d positions are stored, want 192", got)
	}
	b = newBench(t, withKV(path, nil))
	if a := b.ask(edited); a.err != nil || a.done.Usage.CachedTokens != 192 {
		t.Errorf("%+v, %v; want 192 cached tokens", a.done, a.err)
	}
}

func (b *bench) askAndClose(r infer.Request) outcome {
	a := b.ask(r)
	b.Close()
	return a
}

func TestAStoredCacheThatIsNotValidIsDiscardedWithALine(t *testing.T) {
	const whole = 192
	for name, c := range map[string]struct {
		change func(t *testing.T, path string, data []byte) []byte
		other  func(*Options)
		cached int
		reason string
	}{
		"a block is damaged":       {change: func(_ *testing.T, _ string, data []byte) []byte { data[len(data)-300] ^= 1; return data }, cached: whole - 32, reason: "damaged"},
		"a token is damaged":       {change: func(_ *testing.T, _ string, data []byte) []byte { data[4096] ^= 1; return data }, reason: "block 0 is damaged"},
		"it is cut short":          {change: func(_ *testing.T, _ string, data []byte) []byte { return data[:len(data)-1] }, cached: whole - 32, reason: "incomplete"},
		"it is something else":     {change: func(_ *testing.T, _ string, data []byte) []byte { return []byte(strings.Repeat("zip", 5000)) }, reason: "header is damaged"},
		"another format of caches": {other: func(o *Options) { o.CacheType = "f32" }, reason: "another format of the cache"},
		"another model":            {other: func(o *Options) { o.Model = "other" }, reason: "another model"},
		"nothing is wrong":         {cached: whole},
	} {
		t.Run(name, func(t *testing.T) {
			d, path := kvDir(t)
			long := stored(span(3, 203), 2)
			set := func(b *bench, o *Options) {
				b.files["other"] = b.files["toy"][:len(b.files["toy"]):len(b.files["toy"])]
				b.files["other"] = slices.Clone(b.files["other"])
				b.files["other"][len(b.files["other"])-1] ^= 1 // one weight
				withKV(path, nil)(b, o)
			}
			newBench(t, set).askAndClose(long)
			file := filepath.Join(path, "chat.kv")
			if c.change != nil {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, c.change(t, file, data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var log logged
			b := newBench(t, func(b *bench, o *Options) {
				set(b, o)
				withKV(path, &log)(b, o)
				if c.other != nil {
					c.other(o)
				}
			})
			a := b.ask(long)
			if a.err != nil || a.done.Usage.CachedTokens != c.cached || !slices.Equal(a.ids(), greedy(long.Tokens, 2)) {
				t.Errorf("%v, %+v, %v; want %d cached tokens", a.ids(), a.done, a.err, c.cached)
			}
			b.Close()
			if c.reason != "" && !log.has(c.reason) || log.has("discarded") != (c.reason != "") {
				t.Errorf("the log does not say %q:\n%s", c.reason, log.text.String())
			}
			if got := positions(t, d); got != whole {
				t.Errorf("%d positions are stored afterwards, want %d", got, whole)
			}
		})
	}
}

func TestACacheThatMayNotBeStoredIsNot(t *testing.T) {
	d, path := kvDir(t)
	for name, change := range map[string]func(*infer.Request){
		"without a file":             func(r *infer.Request) { r.KVFile = nil },
		"a file that was deleted":    func(r *infer.Request) { r.KVFile.Name = "deleted" },
		"a name that is a path":      func(r *infer.Request) { r.KVFile.Name = "../chat" },
		"a limit below one block":    func(r *infer.Request) { r.KVFile.Limit = 4096 },
		"less than a block is there": func(r *infer.Request) { r.Tokens = r.Tokens[:20] },
	} {
		r := stored(span(3, 203), 2)
		change(&r)
		if a := newBench(t, withKV(path, nil)).askAndClose(r); a.err != nil {
			t.Errorf("%s: %v", name, a.err)
		}
		if list, err := d.List(); err != nil || len(list) != 1 || list[0].Bytes != 0 {
			t.Errorf("%s: there are %+v, %v", name, list, err)
		}
	}
}

// Several chats come and go at once, with little memory: each answer is as alone, whatever is stored,
// restored, evicted or interrupted meanwhile.
func TestChatsThatAreStoredBesideOthersAnswerAsAlone(t *testing.T) {
	d, path := kvDir(t)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		if err := d.Allow(name); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		b := newBench(t, func(b *bench, o *Options) {
			withKV(path, nil)(b, o)
			o.ContextLength, o.Parallel = 512, 2
		})
		var wg sync.WaitGroup
		for i, name := range names {
			wg.Go(func() {
				for turn := range 3 {
					r := stored(span(int32(3+i), int32(3+i+60+40*(round+turn))), 10)
					r.KVFile.Name, r.KVFile.Limit = name, 3*20000
					if a := b.ask(r); a.err != nil || !slices.Equal(a.ids(), greedy(r.Tokens, 10)) {
						t.Errorf("chat %s: %v, %v; want %v", name, a.ids(), a.err, greedy(r.Tokens, 10))
					}
				}
			})
		}
		wg.Wait()
		b.Close()
	}
	if total, err := d.Size(); err != nil || total > 3*20000 || total == 0 {
		t.Errorf("%d bytes are stored, %v", total, err)
	}
}

func TestAChatThatIsCancelledWhileItIsRestoredLeavesNothingBehind(t *testing.T) {
	_, path := kvDir(t)
	newBench(t, withKV(path, nil)).askAndClose(stored(span(3, 203), 2))
	b := newBench(t, withKV(path, nil))
	for range 20 {
		for range b.Generate(t.Context(), stored(span(3, 203), 2)) {
			break // the consumer leaves
		}
	}
	if a := b.ask(stored(span(3, 203), 2)); a.err != nil || !slices.Equal(a.ids(), greedy(span(3, 203), 2)) {
		t.Errorf("%v, %v", a.ids(), a.err)
	}
}

// Each architecture stores what its attention reads: windows, keys and values that layers share, latent
// vectors, sinks.
func TestRealModel_ARestoredCacheGivesTheSameBits(t *testing.T) {
	for name, caches := range map[string][]string{
		"gemma3": {"f16"}, "gemma3n": {"f16"}, "gpt_oss": {"f16"}, "deepseek2": {"f16", "f32"}, "exaone4_swa": {"f16"}, "phi3_longrope": {"f32"},
		"gemma2": {"q8_0"}, "qwen3": {"q8_0/q4_0"}, "glm4_moe_lite": {"q4_0"},
		"qwen35": {"f16", "q4_0"}, "lfm2": {"f32"}, // with recurrent state
	} {
		file := readFile(t, filepath.Join(fixtures.Path(t, "logits", name), "f32.gguf"))
		for _, cache := range caches {
			t.Run(name+", "+cache, func(t *testing.T) {
				checkRestored(t, file, func(o *Options) { o.CacheType = cache })
			})
		}
	}
}

// Blocks of a quantised cache are copied out of a GPU and into it.
func TestRealModel_ARestoredQuantisedCacheOfAGPUGivesTheSameBits(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Library(t))
	file := gguftest.TinyLlama(gguftest.Llama{Dim: 128, Heads: 2, KVHeads: 1, Type: gguf.Q8_0})
	checkRestored(t, file, func(o *Options) {
		o.CacheType, o.OpenDevice = "q8_0/q4_0", func(*gguf.File) (device.Device, error) { return cuda.Open() }
	})
}

// checkRestored compares the answer to a turn after a stored cache with that after one that is computed.
func checkRestored(t *testing.T, file []byte, set func(*Options)) {
	d, path := kvDir(t)
	open := func(kv string) *bench {
		return openReference(t, file, func(o *Options) {
			o.KVDir, o.ContextLength = kv, 256
			set(o)
		})
	}
	first := open(path)
	opening := stored(span(3, 53), 20)
	opening.Params.Temperature, opening.Params.Seed = 1, 5
	said := first.askAndClose(opening)
	if got := positions(t, d); got != 64 {
		t.Fatalf("%d positions are stored, want 64; %v", got, said.err)
	}
	turn := stored(slices.Concat(span(3, 53), said.ids(), span(30, 45)), 8)
	turn.Alternatives = 5
	a, fresh := open(path).ask(turn), open("").ask(turn)
	if a.err != nil || a.done.Usage.CachedTokens != 64 || fresh.done.Usage.CachedTokens != 0 {
		t.Fatalf("%v, %+v, %+v; want 64 cached tokens", a.err, a.done, fresh.done)
	}
	if !reflect.DeepEqual(a.tokens, fresh.tokens) {
		t.Errorf("%v from a stored cache, %v from a computed one", a.tokens, fresh.tokens)
	}
}

// A chat goes on from the recurrent state after its last answer, or, if the next prompt has another answer in its
// place, from that after the prompt. Where a file has neither, nothing of it is used.
func TestRealModel_AStoredStateIsThatBehindAnAnswerAndItsPrompt(t *testing.T) {
	file := readFile(t, filepath.Join(fixtures.Path(t, "logits", "lfm2"), "f32.gguf"))
	_, path := kvDir(t)
	open := func(kv string) *bench {
		return openReference(t, file, func(o *Options) { o.KVDir, o.ContextLength = kv, 256 })
	}
	opening := open(path).askAndClose(stored(span(3, 73), 30)) // blocks end at 64, after the prompt, and at 96
	chat := filepath.Join(path, "chat.kv")
	opened := readFile(t, chat)
	for _, c := range []struct {
		name   string
		tokens []int32
		cached int
	}{
		{"the next turn", slices.Concat(span(3, 73), opening.ids(), span(30, 45)), 96},
		{"one with another answer", slices.Concat(span(3, 73), span(30, 60)), 64},
		{"one with another prompt", slices.Concat(span(3, 53), span(30, 70)), 0},
	} {
		if err := os.WriteFile(chat, opened, 0o600); err != nil {
			t.Fatal(err)
		}
		turn := stored(c.tokens, 4)
		turn.Alternatives = 5
		a, fresh := open(path).askAndClose(turn), open("").ask(turn)
		if a.err != nil || a.done.Usage.CachedTokens != c.cached {
			t.Fatalf("%s: %v, %+v; want %d cached tokens", c.name, a.err, a.done, c.cached)
		}
		if !reflect.DeepEqual(a.tokens, fresh.tokens) {
			t.Errorf("%s: %v from a stored state, %v from a computed one", c.name, a.tokens, fresh.tokens)
		}
	}
}

// stateDevice reads blocks and recurrent state that are zeros.
type stateDevice struct{ forwarder }

func (stateDevice) ReadBlock([]byte, int, int32) error { return nil }
func (stateDevice) ReadState([]byte, int32) error      { return nil }

// runSave saves tokens, the first of which are a prompt, with snapshots after blocks of 32.
func runSave(t *testing.T, d *kvfile.Dir, s *states, tokens []int32, prompt int, meanwhile func()) {
	t.Helper()
	wake := make(chan struct{}, 1)
	k := &kvFiles{dir: d, log: slog.New(slog.DiscardHandler), wake: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}}
	b := newBlocks(32, 512, groupSize{blocks: 64})
	q := newSequence("", tokens, false)
	q.prompt, q.computed = prompt, len(tokens)
	for range len(tokens) / 32 {
		q.table.chain = append(q.table.chain, &content{blocks: []int32{0}})
	}
	k.save(infer.KVFile{Name: "chat", Limit: 1 << 30}, kvfile.Identity{Key: "k", BlockBytes: []int{stateTestBlock, stateTestSlot}, State: true, Positions: 32}, b, s, q)
	for meanwhile(); k.active(); {
		if moved, err := k.progress(b, stateDevice{}); err != nil {
			t.Fatal(err)
		} else if !moved {
			<-wake
		}
	}
	k.running.Wait()
}

// The bytes of a block and of recurrent state in the tests of a save.
const stateTestBlock, stateTestSlot = 100, 40000

func TestAFileHasTheRecurrentStateOfTheLastTurnAlone(t *testing.T) {
	d, _ := kvDir(t)
	s := newStates(64, 8192, 32)
	for turn := range int32(6) {
		begin := 320 * turn
		prompt, end := span(0, begin+100), span(0, begin+320)
		s.save(0, prompt[:begin+96], audience{}, false)
		s.save(0, end, audience{}, false)
		runSave(t, d, s, end, len(prompt), func() {})
		file, err := d.Stored("chat")
		if blocks := int64(len(end) / 32); err != nil || file.Positions != len(end) || file.Bytes > 4096+blocks*(stateTestBlock+200)+2*stateTestSlot {
			t.Fatalf("%d positions in %d bytes after %d turns, want %d and two states of %d; %v", file.Positions, file.Bytes, turn+1, len(end), stateTestSlot, err)
		}
	}
}

func TestBlocksBehindAStateThatWasOverwrittenAreNotStored(t *testing.T) {
	for lost, want := range map[int]int{320: 96, 96: 320} {
		d, _ := kvDir(t)
		s := newStates(64, 8192, 32)
		tokens := span(0, 320)
		s.save(0, tokens[:96], audience{}, false)
		s.save(0, tokens, audience{}, false)
		runSave(t, d, s, tokens, 100, func() {
			slot, _ := s.snapshot(tokens[:lost], "")
			s.release(slot)
		})
		file, err := d.Stored("chat")
		if most := int64(4096 + want/32*(stateTestBlock+200) + stateTestSlot); err != nil || file.Positions != want || file.Bytes > most {
			t.Errorf("%d positions in %d bytes without the state behind %d, want %d in at most %d; %v", file.Positions, file.Bytes, lost, want, most, err)
		}
	}
}

func TestBuffersOfAJobHaveNoRoomForRecurrentState(t *testing.T) {
	id := kvfile.Identity{BlockBytes: []int{300, 20, 500 << 20}, State: true, Positions: 32}
	j := newKVJob(infer.KVFile{}, id, newStates(8, 1000, 32), nil, audience{})
	if got := j.blockBytes(); got != 320 {
		t.Errorf("buffers of %d bytes, want 320", got)
	}
	if got := j.patience(); got <= kvPatience+10*time.Second {
		t.Errorf("the disk may take %v for a state of 500 MiB", got)
	}
	id.BlockBytes = id.BlockBytes[:2]
	if j = newKVJob(infer.KVFile{}, id, nil, nil, audience{}); j.blockBytes() != 320 || j.patience() != kvPatience {
		t.Errorf("buffers of %d bytes and %v, want 320 and %v", j.blockBytes(), j.patience(), kvPatience)
	}
}

// A file has those blocks of a window that the next turn reads. A chat that goes on elsewhere is computed again.
func TestRealModel_AStoredCacheHasTheLastWindowsAlone(t *testing.T) {
	file := readFile(t, filepath.Join(fixtures.Path(t, "logits", "gemma3"), "f32.gguf")) // windows of 16 positions
	d, path := kvDir(t)
	open := func(kv string) *bench {
		return openReference(t, file, func(o *Options) { o.KVDir = kv })
	}
	prompt := slices.Repeat(span(3, 53), 3)
	opening := open(path).askAndClose(stored(prompt, 20))
	size := func() int64 {
		s, err := d.Stored("chat")
		if err != nil {
			t.Fatal(err)
		}
		return s.Bytes
	}
	f, err := gguf.Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	config := mustConfig(t, f)
	whole := 5 * config.KVLayout(device.CacheOf(gguf.F16), 1).BlockBytes()
	if opening.err != nil || positions(t, d) != 160 || size() > 4096+5*200+whole*2/3 {
		t.Fatalf("%d positions in %d bytes, without windows they take %d; %v", positions(t, d), size(), whole, opening.err)
	}
	next := stored(slices.Concat(prompt, opening.ids(), span(30, 70)), 8)
	edited := stored(slices.Concat(prompt[:100], span(60, 130)), 8)
	longer := stored(slices.Concat(edited.Tokens, span(5, 40)), 8)
	for _, c := range []struct {
		name   string
		turn   infer.Request
		cached int
	}{
		{"the next turn", next, 160},
		{"a message in the middle was edited", edited, 0},
		{"the turn after that", longer, 160},
	} {
		c.turn.Alternatives = 5
		a, fresh := open(path).askAndClose(c.turn), open("").ask(c.turn)
		if a.err != nil || a.done.Usage.CachedTokens != c.cached {
			t.Fatalf("%s: %v, %+v; want %d cached tokens", c.name, a.err, a.done, c.cached)
		}
		if !reflect.DeepEqual(a.tokens, fresh.tokens) {
			t.Errorf("%s: %v from a stored cache, %v from a computed one", c.name, a.tokens, fresh.tokens)
		}
	}
}

// The blocks of a model on two devices are stored as one.
func TestRealModel_ACacheOnTwoDevicesIsRestored(t *testing.T) {
	file, err := gguf.Parse(guide.Model)
	if err != nil {
		t.Fatal(err)
	}
	load := func() *model.Model {
		m, err := model.LoadStages(t.Context(), file, []model.Stage{{Device: ref.New(), Layers: 2}, {Device: ref.New(), Layers: len(mustConfig(t, file).Layers) - 2}},
			model.Options{CacheType: device.CacheOf(gguf.F16), Blocks: 4, MaxRows: 48, MaxOut: 1})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	logits := func(m *model.Model, from int, table ...int32) []float32 {
		b := &device.Batch{Tables: [][][]int32{{table}}}
		for pos := from; pos < 40; pos++ {
			b.Tokens, b.Pos, b.Seq = append(b.Tokens, int32(pos+5)), append(b.Pos, int32(pos)), append(b.Seq, 0)
		}
		b.Out = []int32{int32(len(b.Tokens) - 1)}
		row := make([]float32, m.Config().Vocab)
		if err := m.Forward(b); err != nil {
			t.Fatal(err)
		}
		if err := m.Logits(row, 0); err != nil {
			t.Fatal(err)
		}
		return row
	}
	from, to := load(), load()
	want := logits(from, 0, 0, 1)
	block := make([]byte, from.BlockBytes()[0])
	if err := from.ReadBlock(block, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := to.WriteBlock(0, 3, block); err != nil {
		t.Fatal(err)
	}
	if got := logits(to, 32, 3, 2); !slices.Equal(got, want) {
		t.Error("the logits differ")
	}
	if from.ReadBlock(block[1:], 0, 0) == nil {
		t.Error("a block of another size was read")
	}
}

func mustConfig(t *testing.T, f *gguf.File) model.Config {
	t.Helper()
	c, err := model.ReadConfig(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The disk hangs while the cache of one chat is saved, and another chat's is to be restored.
func TestNoAnswerWaitsForASaveThatHangs(t *testing.T) {
	d, _ := kvDir(t)
	k := &kvFiles{dir: d, log: slog.New(slog.DiscardHandler), wake: func() {}}
	saving := newKVJob(infer.KVFile{Name: "chat"}, kvfile.Identity{}, nil, nil, audience{})
	waiting := newKVJob(infer.KVFile{Name: "other"}, kvfile.Identity{}, nil, nil, audience{})
	waiting.seq = &sequence{restoring: true}
	saving.sent, k.current, k.queue = true, saving, []*kvJob{waiting}
	if _, err := k.progress(nil, nil); err != nil || saving.alarm == nil || !waiting.seq.restoring {
		t.Fatalf("%v; a sequence waits: %v, and for how long is measured: %v", err, waiting.seq.restoring, saving.alarm != nil)
	}
	saving.alarm.Stop()
	saving.late.Store(true)
	if _, err := k.progress(nil, nil); err != nil || waiting.seq.restoring || k.active() {
		t.Errorf("%v; a sequence waits: %v, jobs are left: %v", err, waiting.seq.restoring, k.active())
	}
	if close(saving.done); k.ended() || k.ending != nil {
		t.Error("the job that hung has ended, but the next one cannot begin")
	}
}
