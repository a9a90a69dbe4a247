package commands

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nhooyr.io/websocket"

	"m40-llm/cudakern/emutest"
	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

// asProgram makes the test binary the program, with further devices: they take their time,
// fail on request, and end no answer by themselves. Some count as a GPU, or are one; one
// might have been, and is a CPU.
const asProgram = "M40_LLM_TEST_PROGRAM"

func init() {
	devices["test"] = deviceKind{open: openTestDevice, types: cpu.WeightTypes()}
	devices["test-gpu"] = deviceKind{open: openTestDevice, types: cpu.WeightTypes(), gpu: true}
	devices["test-auto"] = deviceKind{open: openCPU, types: cpu.WeightTypes(), gpu: true}
	devices["test-cuda"] = deviceKind{types: cuda.WeightTypes(), gpu: true, open: func(*gguf.File, cpu.Options, *slog.Logger) (device.Device, error) {
		d, err := cuda.Open()
		if how := os.Getenv(decodeVariable); err == nil && how != "" {
			d.(device.DecodeChooser).ChooseDecode(device.Decode(how))
		}
		return testDevice{d}, err
	}}
}

// decodeVariable is how the device test-cuda decodes.
const decodeVariable = "M40_LLM_TEST_DECODE"

// Tokens that break a test device when three of them follow each other.
const (
	crashToken = 7
	failToken  = 8
	hangToken  = 10
)

type testDevice struct{ device.Device }

func openTestDevice(_ *gguf.File, o cpu.Options, _ *slog.Logger) (device.Device, error) {
	d, err := cpu.OpenWith(o)
	return testDevice{d}, err
}

func (d testDevice) Info() device.Info {
	info := d.Device.Info()
	info.Kind, info.Name = "cuda", "test device"
	return info
}

// refuseVariable names a file: while it is there, the next upload of a test device removes it, and is refused memory.
const refuseVariable = "M40_LLM_TEST_REFUSE"

func (d testDevice) Upload(t gguf.Type, rows, cols int, data []byte) (device.Tensor, error) {
	if name := os.Getenv(refuseVariable); name != "" && os.Remove(name) == nil {
		return device.Tensor{}, fmt.Errorf("%w: %w", device.ErrFailed, device.ErrMemory)
	}
	return d.Device.Upload(t, rows, cols, data)
}

func (d testDevice) Compile(p *device.Program) (device.Executable, error) {
	e, err := d.Device.Compile(p)
	return testExecutable{e}, err
}

// Candidates keeps answers from ending before their time: the first tokens of the
// vocabularies here are those that end one.
func (d testDevice) Candidates(logits device.Tensor, row int) (device.Candidates, error) {
	all := make([]float32, logits.Cols)
	err := d.Device.Read(all, logits, row)
	for id := range 4 {
		all[id] = float32(math.Inf(-1))
	}
	return device.Candidates{All: all}, err
}

type testExecutable struct{ device.Executable }

func (e testExecutable) Run(b *device.Batch) error {
	time.Sleep(5 * time.Millisecond)
	has := func(token int32) bool {
		for i := range b.Tokens {
			if i >= 2 && b.Tokens[i] == token && b.Tokens[i-1] == token && b.Tokens[i-2] == token {
				return true
			}
		}
		return false
	}
	switch {
	case has(crashToken):
		time.Sleep(2 * time.Second) // so that the server has heard that the prompt is being read
		syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case has(hangToken):
		select {}
	case has(failToken):
		return errors.New("an illegal address was used")
	}
	return e.Executable.Run(b)
}

// workersOf returns the processes that process pid has started as workers.
func workersOf(t *testing.T, pid int) (found []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, _ := os.ReadFile(name) // it may have ended
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		fields := fieldsOf(stat)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) && bytes.HasPrefix(args, []byte("m40-llm\x00worker\x00")) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			found = append(found, child)
		}
	}
	return found
}

// fieldsOf returns the fields of a stat file of /proc after the name of the program: first the state, then the parent.
func fieldsOf(stat []byte) []string {
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

// suspend stops process pid. A thread may run for a while after the signal was sent, until it gets a processor again to stop: this returns when all have.
func suspend(t *testing.T, pid int) {
	t.Helper()
	syscall.Kill(pid, syscall.SIGSTOP)
	eventually(t, "all threads are stopped", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(name string) bool {
			stat, _ := os.ReadFile(name)
			fields := fieldsOf(stat)
			return len(fields) == 0 || fields[0] != "T"
		})
	})
}

// alive reports whether process pid runs, is stopped, or waits to be reaped.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// eventually waits for a condition; the limit is that of a test that hangs.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// testServer is a server in this process, whose engine is in another.
type testServer struct {
	t    *testing.T
	url  string
	data string
	stop func()
}

func startServer(t *testing.T, data string, args ...string) *testServer {
	t.Helper()
	out, in := io.Pipe()
	signals := make(chan os.Signal, 1)
	terminal := &cli.Terminal{In: strings.NewReader(""), Out: in, Err: io.Discard, Signals: signals, Env: func(string) string { return "" }}
	code := make(chan int, 1)
	go func() {
		code <- run(context.Background(), terminal, append([]string{"--addr", ":0", "--data", data, "--worker", "always", "--threads", "1"}, args...))
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: code %d", <-code)
	}
	s := &testServer{t: t, url: strings.TrimPrefix(strings.TrimSpace(line), "m40-llm listening on "), data: data}
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		http.DefaultClient.CloseIdleConnections()
		signals <- syscall.SIGTERM
		if got := <-code; got != cli.ExitOK {
			t.Errorf("the server ended with code %d", got)
		}
		if left := workersOf(t, os.Getpid()); len(left) != 0 && !slices.Contains(args, "never") {
			t.Errorf("workers %v are left", left)
		}
	}
	t.Cleanup(s.stop)
	return s
}

func (s *testServer) get(path string, into any) {
	s.t.Helper()
	response, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
}

func (s *testServer) status() (status infer.Status) {
	s.t.Helper()
	s.get("/v1/status", &status)
	return status
}

// usesGPU reports whether a GPU is ready to answer.
func (s *testServer) usesGPU() bool {
	s.t.Helper()
	now := s.status()
	return now.State == infer.StateReady && now.Device.Kind == "cuda"
}

// post returns the status of a response and its body.
func (s *testServer) post(path, body string) (int, string) {
	s.t.Helper()
	response, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// worker waits until there is one that is not among the old, and returns it.
func (s *testServer) worker(old ...int) (pid int) {
	s.t.Helper()
	eventually(s.t, "a new worker", func() bool {
		now := workersOf(s.t, os.Getpid())
		if len(now) == 1 && !slices.Contains(old, now[0]) {
			pid = now[0]
		}
		return pid != 0
	})
	return pid
}

// storedChat is what a server keeps of a chat.
type storedChat struct {
	Messages []struct {
		ID     int64
		Role   string
		State  string
		Text   string
		Answer *struct{ Error *fault.Error }
	}
}

func (s *testServer) stored(chat string) (c storedChat) {
	s.t.Helper()
	s.get("/c/"+chat+"/export.json", &c)
	return c
}

// testChat is a chat as a page has it.
type testChat struct {
	t       *testing.T
	conn    *websocket.Conn
	ref     int
	id      string
	answer  int64
	text    string // of the answer that is written, or was last
	tokens  int
	state   string
	errCode fault.Code
}

func (s *testServer) chat() *testChat {
	s.t.Helper()
	conn, _, err := websocket.Dial(context.Background(), s.url+"/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {s.url}}})
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	s.t.Cleanup(func() { conn.CloseNow() })
	return &testChat{t: s.t, conn: conn}
}

func (c *testChat) do(kind string, fields map[string]any) {
	c.t.Helper()
	c.ref++
	command := map[string]any{"type": kind, "ref": c.ref}
	for name, value := range fields {
		command[name] = value
	}
	data, err := json.Marshal(command)
	if err == nil {
		err = c.conn.Write(context.Background(), websocket.MessageText, data)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *testChat) ask(question string, maxTokens int) {
	c.t.Helper()
	c.state, c.text, c.tokens, c.errCode = "asked", "", 0, ""
	c.do("send", map[string]any{"text": question, "settings": map[string]any{"temperature": 0, "max_tokens": maxTokens}})
}

type testAnswer struct {
	State string
	Error *struct{ Code string }
}

// until takes what the server says until condition holds.
func (c *testChat) until(what string, condition func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for !condition() {
		_, data, err := c.conn.Read(ctx)
		if err != nil {
			c.t.Fatalf("chat %s, answer %q of %d tokens: waited in vain until %s: %v", c.id, c.state, c.tokens, what, err)
		}
		var f struct {
			Type   string
			Chat   json.RawMessage
			Error  any
			Events []struct {
				Type    string
				ID      int64
				Text    string
				Tokens  int
				Answer  *testAnswer
				Message *struct {
					ID     int64
					Answer *testAnswer
				}
			}
		}
		if err := json.Unmarshal(data, &f); err != nil {
			c.t.Fatal(err)
		}
		switch f.Type {
		case "error":
			c.t.Fatalf("the server refuses: %s", data)
		case "ack":
			json.Unmarshal(f.Chat, &c.id)
		case "snapshot": // of a new chat: it has started already
			var chat struct {
				Messages []struct {
					ID     int64
					Text   string
					Answer *testAnswer
				}
			}
			if err := json.Unmarshal(f.Chat, &chat); err != nil {
				c.t.Fatal(err)
			}
			last := chat.Messages[len(chat.Messages)-1]
			c.answer, c.text = last.ID, last.Text
			c.see(last.Answer)
		}
		for _, e := range f.Events {
			switch {
			case e.Type == "message" && e.Message.Answer != nil:
				c.answer = e.Message.ID
				c.see(e.Message.Answer)
			case e.Type == "text":
				c.text, c.tokens, c.state = c.text+e.Text, e.Tokens, "writing"
			case e.Type == "end":
				c.see(e.Answer)
			}
		}
	}
}

func (c *testChat) see(a *testAnswer) {
	c.state = a.State
	if a.Error != nil {
		c.errCode = fault.Code(a.Error.Code)
	}
}

func (c *testChat) finish() {
	c.t.Helper()
	c.until("the answer has ended", func() bool { return c.state != "asked" && c.state != "waiting" && c.state != "writing" })
}

// murders are how often a worker is ended in each way.
func murders() int {
	if fixtures.Torture() {
		return 20
	}
	return 2
}

// TestWorker_ItsEndLosesNoWord ends the worker while four chats stream.
func TestWorker_ItsEndLosesNoWord(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{
		"killed":                     syscall.SIGKILL,
		"stopped, which is a hang":   syscall.SIGSTOP,
		"crashed by a memory access": syscall.SIGSEGV,
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			server := startServer(t, data, "--device", "test")
			var ids []string
			old := 0
			for round := range murders() {
				var chats []*testChat
				for i := range 4 {
					c := server.chat()
					c.ask(fmt.Sprintf("Tell me a long story about %d foxes and a lighthouse.", 10*round+i), 900)
					chats = append(chats, c)
				}
				for _, c := range chats {
					c.until("some words are there", func() bool { return c.tokens >= 3 })
				}
				old = server.worker(old)
				begin := time.Now()
				if err := syscall.Kill(old, signal); err != nil {
					t.Fatal(err)
				}
				for _, c := range chats {
					c.finish()
					if c.state != "failed" || c.errCode != fault.CodeLost {
						t.Fatalf("the answer ended as %q with %q after %d tokens", c.state, c.errCode, c.tokens)
					}
				}
				told := time.Since(begin)
				if alive(old) {
					t.Error("the old worker is still there")
				}
				for _, c := range chats {
					messages := server.stored(c.id).Messages
					last := messages[len(messages)-1]
					if c.text == "" || last.Text != c.text || last.State != "failed" || last.Answer.Error == nil || last.Answer.Error.Code != fault.CodeLost {
						t.Errorf("the answer %q is stored as %+v", c.text, last)
					}
				}
				// One writes on where it was, one asks again, one asks something else.
				lost := chats[0].text
				chats[0].state = "asked"
				chats[0].do("continue", map[string]any{"answer": chats[0].answer, "settings": map[string]any{"seed": -1, "temperature": 0, "max_tokens": 8}})
				chats[1].state, chats[1].text = "asked", ""
				chats[1].do("regenerate", map[string]any{"answer": chats[1].answer, "settings": map[string]any{"temperature": 0, "max_tokens": 8}})
				chats[2].ask("What is a token?", 8)
				for _, c := range chats[:3] {
					c.finish()
					if c.state != "done" || c.text == "" {
						t.Errorf("afterwards, an answer ends as %q (%s) with %q", c.state, c.errCode, c.text)
					}
				}
				if messages := server.stored(chats[0].id).Messages; !strings.HasPrefix(messages[len(messages)-1].Text, lost) {
					t.Errorf("%q is continued as %q", lost, messages[len(messages)-1].Text)
				}
				for _, c := range chats {
					ids = append(ids, c.id)
					c.conn.CloseNow()
				}
				t.Logf("the chats were told after %v, new answers were there after %v", told.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
			}
			var before []storedChat
			for _, id := range ids {
				before = append(before, server.stored(id))
			}
			server.stop()
			again := startServer(t, data)
			for i, id := range ids {
				if now := again.stored(id); !reflect.DeepEqual(now, before[i]) {
					t.Errorf("after a new start of the server, a chat has %+v, want %+v", now, before[i])
				}
			}
		})
	}
}

// ask posts three tokens, and returns the status, the error and the text of the answer.
func (s *testServer) ask(token int32) (status int, failure fault.Error, text string) {
	s.t.Helper()
	status, body := s.post("/v1/generate", fmt.Sprintf(`{"tokens":[5,%d,%d,%d],"max_tokens":4,"ignore_eos":true,"params":{"temperature":0}}`, token, token, token))
	for line := range strings.Lines(body) {
		var event struct {
			infer.Event
			Error *fault.Error
		}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		switch {
		case event.Error != nil:
			failure = *event.Error
		case event.Token != nil:
			text += event.Token.Text
		case event.Done != nil:
			text += event.Done.Text
		}
	}
	return status, failure, text
}

// TestWorker_AnInputThatCrashesItIsRefused crashes the worker with one input until it is
// refused, and asks for another between.
func TestWorker_AnInputThatCrashesItIsRefused(t *testing.T) {
	server := startServer(t, t.TempDir(), "--device", "test")
	_, _, want := server.ask(9)
	for crash := range 3 {
		if _, failure, _ := server.ask(crashToken); failure.Code != fault.CodeLost || !strings.Contains(failure.Message, "SIGSEGV") {
			t.Fatalf("crash %d ends the answer with %+v", crash+1, failure)
		}
		if _, failure, text := server.ask(9); failure.Code != "" || text != want {
			t.Errorf("after crash %d, another input gets %q and %+v, want %q", crash+1, text, failure, want)
		}
	}
	worker := server.worker()
	status, failure, _ := server.ask(crashToken)
	if status != http.StatusInternalServerError || failure.Code != fault.CodeCrashes || !strings.Contains(failure.Message, "three times") {
		t.Errorf("the fourth time: status %d, %+v", status, failure)
	}
	if now := server.worker(); now != worker {
		t.Errorf("worker %d has followed %d", now, worker)
	}
	if _, failure, text := server.ask(9); failure.Code != "" || text != want {
		t.Errorf("afterwards, another input gets %q and %+v", text, failure)
	}
}

// TestWorker_AGPUThatFails lets calls of the CUDA driver fail, for an emulated GPU, while
// four chats stream.
func TestWorker_AGPUThatFails(t *testing.T) {
	models := t.TempDir()
	model := gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Context: 1024})
	if err := os.WriteFile(filepath.Join(models, "tiny.gguf"), model, 0o600); err != nil {
		t.Fatal(err)
	}
	codes := map[string]int{"an illegal address": 700}
	if fixtures.Torture() {
		codes["a launch that failed"], codes["an unknown error"], codes["too little memory"] = 719, 999, 2
	}
	for name, code := range codes {
		t.Run(name, func(t *testing.T) {
			faults := emutest.NewFaults(t)
			t.Setenv("M40_LLM_LIBCUDA", faults.Library)
			server := startServer(t, t.TempDir(), "--device", "test-cuda", "--models", models, "--model", "tiny")
			for phase, after := range []string{"cuda", "cpu"} {
				eventually(t, "the GPU is used", server.usesGPU)
				var chats []*testChat
				for i := range 4 {
					c := server.chat()
					c.ask(fmt.Sprintf("hello %d", i), 500)
					chats = append(chats, c)
				}
				for _, c := range chats {
					c.until("some words are there", func() bool { return c.tokens >= 3 })
				}
				faults.FailAt(6+phase, code)
				for _, c := range chats {
					if c.finish(); c.state != "failed" || c.errCode != fault.CodeDevice && c.errCode != fault.CodeLost {
						t.Errorf("an answer ended as %q with %q", c.state, c.errCode)
					}
					messages := server.stored(c.id).Messages
					if last := messages[len(messages)-1]; c.text == "" || last.Text != c.text {
						t.Errorf("the answer %q is stored as %q", c.text, last.Text)
					}
					c.ask("hello again", 4)
					if c.finish(); c.state != "done" {
						t.Errorf("after %s failed, an answer ends as %q with %q", faults.Failed(), c.state, c.errCode)
					}
					c.conn.CloseNow()
				}
				eventually(t, "the status says what computes", func() bool {
					s := server.status()
					fell := strings.HasPrefix(s.Trouble, "the CPU took over: the GPU failed twice")
					return s.State == infer.StateReady && s.Device.Kind == after && fell == (after == "cpu")
				})
				t.Logf("%s failed, then there computes %s", faults.Failed(), server.status().Device.Name)
			}
		})
	}
}

// TestWorker_TakesItsResidentKernelWithIt kills a worker whose kernel is on the GPU, for an emulated one. The next worker decodes in the
// same way, to the same text.
func TestWorker_TakesItsResidentKernelWithIt(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	t.Setenv("M40_LLM_EMU_SMS", "1")
	t.Setenv(decodeVariable, string(device.DecodePersistent))
	models := t.TempDir()
	if err := os.WriteFile(filepath.Join(models, "tiny.gguf"), gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0, Context: 1024, Dim: 128, Heads: 2, KVHeads: 1}), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startServer(t, t.TempDir(), "--device", "test-cuda", "--models", models, "--model", "tiny")
	_, _, want := server.ask(9)
	old := 0
	for range 2 {
		eventually(t, "the GPU is used", server.usesGPU) // by the next worker, too
		if d := server.status().Device; d.Decode != device.DecodePersistent {
			t.Fatalf("decodes by %q: %s", d.Decode, d.DecodeReason)
		}
		c := server.chat()
		c.ask("hello", 500)
		c.until("some words are there", func() bool { return c.tokens >= 3 })
		old = server.worker(old)
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if c.finish(); c.state != "failed" || c.errCode != fault.CodeLost {
			t.Errorf("the answer ended as %q with %q", c.state, c.errCode)
		}
		if _, failure, text := server.ask(9); failure.Code != "" || text == "" || text != want {
			t.Errorf("afterwards: %q, %+v, want %q", text, failure, want)
		}
		c.conn.CloseNow()
	}
}

// TestWorker_AGPUThatWakesUp lets the driver fail at first, as after a suspend, for as long
// as the process lives that has met it so.
func TestWorker_AGPUThatWakesUp(t *testing.T) {
	faults := emutest.NewFaults(t)
	faults.FailAt(1, 999)
	t.Setenv("M40_LLM_LIBCUDA", faults.Library)
	server := startServer(t, t.TempDir(), "--device", "test-cuda", "--model", tinyModel(t))
	eventually(t, "the GPU is used", server.usesGPU)
	if failed := faults.Failed(); failed != "cuInit" {
		t.Errorf("before that, what failed is %q", failed)
	}
	if _, failure, text := server.ask(9); failure.Code != "" || text == "" {
		t.Errorf("it answers %q, %+v", text, failure)
	}
}

// TestWorker_WhoWaitsIsNotLost kills the worker while one answer is written and others
// have not started.
func TestWorker_WhoWaitsIsNotLost(t *testing.T) {
	server := startServer(t, t.TempDir(), "--device", "test", "--parallel", "1")
	_, _, want := server.ask(9)
	running := server.chat()
	running.ask("Tell me a long story about a lighthouse.", 900)
	running.until("some words are there", func() bool { return running.tokens >= 3 })
	suspended := server.worker()
	suspend(t, suspended) // what is asked from now on cannot begin
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if _, failure, text := server.ask(9); failure.Code != "" || text != want {
				t.Errorf("who waited gets %q and %+v, want %q", text, failure, want)
			}
		})
	}
	time.Sleep(300 * time.Millisecond) // they reach the worker; one that is late asks the next
	syscall.Kill(suspended, syscall.SIGKILL)
	if running.finish(); running.state != "failed" || running.errCode != fault.CodeLost {
		t.Errorf("the running answer ended as %q with %q", running.state, running.errCode)
	}
	waiting.Wait()
}

// TestWorker_AKernelThatHangs takes a minute, the time that a step may always take, and
// so is for the full counts; TestWatchdog has the rules.
func TestWorker_AKernelThatHangs(t *testing.T) {
	if !fixtures.Torture() {
		return
	}
	server := startServer(t, t.TempDir(), "--device", "test")
	_, _, want := server.ask(9)
	ended := make(chan fault.Error, 1)
	go func() {
		_, failure, _ := server.ask(hangToken)
		ended <- failure
	}()
	eventually(t, "the status says that a step is slow", func() bool {
		return strings.Contains(server.status().Trouble, "tokens is taking unusually long; the engine is restarted")
	})
	if failure := <-ended; failure.Code != fault.CodeLost || !strings.Contains(failure.Message, "tokens did not end within") {
		t.Errorf("the answer ends with %+v", failure)
	}
	if _, failure, text := server.ask(9); failure.Code != "" || text != want {
		t.Errorf("afterwards: %q, %+v", text, failure)
	}
}

// TestWorker_TheCPUTakesOver fails the device twice, by its error and by its crash.
func TestWorker_TheCPUTakesOver(t *testing.T) {
	data := t.TempDir()
	server := startServer(t, data, "--device", "test-gpu")
	_, _, want := server.ask(9)
	gpuReady := func() bool {
		s := server.status()
		return s.State == infer.StateReady && s.Device.Kind == "cuda" && s.Trouble == ""
	}
	eventually(t, "the GPU is used", gpuReady)
	first := server.worker()
	if status, failure, _ := server.ask(failToken); failure.Code != fault.CodeDevice {
		t.Errorf("a failure of the device: status %d, %+v", status, failure)
	}
	second := server.worker(first)
	if _, failure, text := server.ask(9); failure.Code != "" || text != want {
		t.Errorf("after one failure there is the answer %q, %+v", text, failure)
	}
	eventually(t, "the GPU is used again", gpuReady)
	if _, failure, _ := server.ask(crashToken); failure.Code != fault.CodeLost {
		t.Errorf("a crash: %+v", failure)
	}
	server.worker(second)
	if _, failure, text := server.ask(9); failure.Code != "" || text != want {
		t.Errorf("after two failures there is the answer %q, %+v", text, failure)
	}
	eventually(t, "the status tells of the CPU", func() bool {
		s := server.status()
		return s.State == infer.StateReady && s.Device.Kind == "cpu" && strings.HasPrefix(s.Trouble, "the CPU took over: the GPU failed twice") && strings.Contains(s.Trouble, "SIGSEGV")
	})
	var health struct{ Status, Device, Trouble string }
	if server.get("/health", &health); health.Status != "ok" || !strings.HasPrefix(health.Trouble, "the CPU took over") || health.Device == "test device" {
		t.Errorf("health says %+v", health)
	}
	third := server.worker(second)
	syscall.Kill(third, syscall.SIGKILL)
	server.worker(third)
	if _, failure, text := server.ask(9); failure.Code != "" || text != want {
		t.Errorf("after the CPU's worker was killed too: %q, %+v", text, failure)
	}
	eventually(t, "the CPU is used again", func() bool {
		s := server.status()
		return s.State == infer.StateReady && s.Device.Kind == "cpu" && strings.HasPrefix(s.Trouble, "the CPU took over")
	})
}

// TestWorker_WhatIsNotOnTheGPUDoesNotFailIt kills workers that have chosen the CPU.
func TestWorker_WhatIsNotOnTheGPUDoesNotFailIt(t *testing.T) {
	server := startServer(t, t.TempDir(), "--device", "test-auto")
	_, _, want := server.ask(9)
	worker := 0
	for range 3 {
		eventually(t, "the CPU is used", func() bool { s := server.status(); return s.State == infer.StateReady && s.Trouble == "" })
		worker = server.worker(worker)
		syscall.Kill(worker, syscall.SIGKILL)
		if _, failure, text := server.ask(9); failure.Code != "" || text != want {
			t.Errorf("it answers %q, %+v", text, failure)
		}
	}
	eventually(t, "the CPU is used", func() bool { s := server.status(); return s.State == infer.StateReady && s.Trouble == "" })
}

// TestWorker_ComesBackWithItsModel kills a worker that has changed to another model.
func TestWorker_ComesBackWithItsModel(t *testing.T) {
	path := tinyModel(t)
	for name, args := range map[string][]string{
		"a model of the folder":           {"--models", filepath.Dir(path)},
		"a model of the command line too": {"--model", path},
	} {
		t.Run(name, func(t *testing.T) {
			server := startServer(t, t.TempDir(), append(args, "--models-max", "1")...)
			resident := func() bool { s := server.status(); return s.State == infer.StateReady && s.Model.Name == "tiny" }
			if status, body := server.post("/v1/completions", `{"model":"tiny","prompt":"x","max_tokens":2}`); status != http.StatusOK {
				t.Fatalf("status %d: %s", status, body)
			}
			eventually(t, "the model is resident", resident)
			old := server.worker()
			syscall.Kill(old, syscall.SIGKILL)
			server.worker(old)
			eventually(t, "the model is resident again", resident)
			if status, body := server.post("/v1/completions", `{"model":"guide","prompt":"x","max_tokens":2}`); status != http.StatusOK {
				t.Errorf("the built-in model has status %d: %s", status, body)
			}
		})
	}
}

// TestWorker_EndsWithItsServer ends a server that is a process of its own, in every way.
func TestWorker_EndsWithItsServer(t *testing.T) {
	for name, end := range map[string]func(server, worker int){
		"by a kill":                           func(server, _ int) { syscall.Kill(server, syscall.SIGKILL) },
		"by a kill, while the worker hangs":   func(server, worker int) { syscall.Kill(worker, syscall.SIGSTOP); syscall.Kill(server, syscall.SIGKILL) },
		"by a crash":                          func(server, _ int) { syscall.Kill(server, syscall.SIGSEGV) },
		"by a signal":                         func(server, _ int) { syscall.Kill(server, syscall.SIGTERM) },
		"by a signal, while the worker hangs": func(server, worker int) { syscall.Kill(worker, syscall.SIGSTOP); syscall.Kill(server, syscall.SIGTERM) },
		"by Ctrl-C in its terminal":           func(server, _ int) { syscall.Kill(-server, syscall.SIGINT) },
		"by a signal to all its processes":    func(server, worker int) { syscall.Kill(worker, syscall.SIGTERM); syscall.Kill(server, syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(os.Args[0], "serve", "--addr", ":0", "--data", t.TempDir(), "--worker", "always", "--threads", "1")
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			var workers []int
			eventually(t, "a worker", func() bool {
				workers = workersOf(t, command.Process.Pid)
				return len(workers) == 1
			})
			end(command.Process.Pid, workers[0])
			failed := command.Wait()
			clean := !strings.Contains(name, "kill") && !strings.Contains(name, "crash")
			if clean != (failed == nil) {
				t.Errorf("the server ended with %v", failed)
			}
			eventually(t, "the worker is gone", func() bool { return !alive(workers[0]) })
		})
	}
}

// TestWorker_AStopOfTheServerKeepsTheWords stops the server while a chat streams.
func TestWorker_AStopOfTheServerKeepsTheWords(t *testing.T) {
	data := t.TempDir()
	server := startServer(t, data, "--device", "test")
	c := server.chat()
	c.ask("Tell me a long story about a lighthouse.", 900)
	c.until("some words are there", func() bool { return c.tokens >= 3 })
	server.stop()
	again := startServer(t, data)
	messages := again.stored(c.id).Messages
	if last := messages[len(messages)-1]; last.State != "interrupted" || c.text == "" || !strings.HasPrefix(last.Text, c.text) {
		t.Errorf("the answer %q is stored as %+v", c.text, last)
	}
}

// TestWorker_SaysTheSame compares an engine in a process of its own with one in the
// server's.
func TestWorker_SaysTheSame(t *testing.T) {
	models := filepath.Dir(tinyModel(t))
	apart := startServer(t, t.TempDir(), "--models", models, "--models-max", "1") // as many as within the server
	within := startServer(t, t.TempDir(), "--models", models, "--worker", "never")
	for _, s := range []*testServer{apart, within} {
		eventually(t, "the model is ready", func() bool { return s.status().State == infer.StateReady })
	}
	if found := workersOf(t, os.Getpid()); len(found) != 1 {
		t.Fatalf("the workers are %v", found)
	}
	big := strings.Repeat("many words ", 60_000)
	for _, c := range []struct{ name, path, body string }{
		{"an answer", "/v1/completions", `{"prompt":"The sea","max_tokens":20,"seed":3,"logprobs":5}`},
		{"a scored prompt", "/v1/completions", `{"prompt":"The sea is wide","max_tokens":0,"echo":true,"logprobs":5}`},
		{"a chat", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":20,"seed":3,"stream":true}`},
		{"three answers side by side", "/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":20,"seed":3,"n":3}`},
		{"a prompt that does not fit", "/v1/generate", `{"prompt":"` + big + `"}`},
		{"a long chat that does not fit", "/v1/chat/completions", `{"messages":[{"role":"user","content":"` + big + big + `"}]}`},
		{"a setting out of its range", "/v1/generate", `{"prompt":"x","params":{"temperature":-1}}`},
		{"a model that is not there", "/v1/generate", `{"prompt":"x","model":"nothing"}`},
		{"another model", "/v1/completions", `{"model":"tiny","prompt":"x","max_tokens":4,"seed":1,"ignore_eos":true}`},
		{"tokens", "/tokenize", `{"content":"A snowman ☃ and <|im_end|>","with_pieces":true,"model":"guide"}`},
		{"no tokens", "/tokenize", `{"content":"","model":"guide"}`},
		{"half a character", "/detokenize", `{"tokens":[161,249],"model":"guide"}`},
		{"a token that there is not", "/detokenize", `{"tokens":[99999],"model":"guide"}`},
		{"a prompt from messages", "/apply-template", `{"messages":[{"role":"user","content":"☃ <|im_end|>"}],"model":"guide"}`},
		{"back to the first model", "/v1/completions", `{"model":"guide","prompt":"x","max_tokens":4,"seed":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantStatus, want := within.post(c.path, c.body)
			status, got := apart.post(c.path, c.body)
			if status != wantStatus || stable(got) != stable(want) {
				t.Errorf("got  %d: %.400s\nwant %d: %.400s", status, stable(got), wantStatus, stable(want))
			}
		})
	}
	t.Run("the models", func(t *testing.T) {
		eventually(t, "the first model is the loaded one", func() bool { // a status is a poll old
			now := apart.status()
			return now.State == infer.StateReady && now.Model.Name == "guide"
		})
		var got, want any
		apart.get("/v1/models", &got)
		within.get("/v1/models", &want)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

var unstable = regexp.MustCompile(`"(id|created)":("[^"]*"|[0-9]+)|"cached_tokens":[0-9]+|"timings":\{[^}]*\}`)

// stable is a response less what no two have in common.
func stable(body string) string { return unstable.ReplaceAllString(body, "") }

// TestWorker_CancelReachesIt leaves answers in the middle.
func TestWorker_CancelReachesIt(t *testing.T) {
	server := startServer(t, t.TempDir(), "--device", "test")
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	for range 4 {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.url+"/v1/generate", strings.NewReader(`{"prompt":"x","ignore_eos":true}`))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
	}
	eventually(t, "four answers run", func() bool { return server.status().Running == 4 })
	leave()
	eventually(t, "none runs", func() bool { s := server.status(); return s.Running+s.Queued == 0 })
}
