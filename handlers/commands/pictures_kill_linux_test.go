package commands

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/infer/fixtures"
	"m40-llm/store"
)

// noise returns a PNG file of a picture that no other number gives and nothing compresses.
func noise(t *testing.T, number uint64, side int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	rng := rand.NewChaCha8([32]byte{byte(number)})
	for i := range img.Pix {
		if img.Pix[i] = 255; i%4 != 3 {
			img.Pix[i] = byte(rng.Uint64())
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// seeingModels returns a folder with a model that reads pictures, of 16 tokens each, and has room for a long answer behind them.
func seeingModels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for from, to := range map[string]string{"text.gguf": "seer.gguf", "mmproj.gguf": "mmproj-seer.gguf"} {
		data, err := os.ReadFile(fixtures.Path(t, "images", "llava", from))
		const context = "llama.context_length"
		if at := bytes.Index(data, []byte(context)); at >= 0 {
			binary.LittleEndian.PutUint32(data[at+len(context)+4:], 16384) // behind the type of the value
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// upload sends a picture file as the page does, and returns its hash.
func (s *testServer) upload(file []byte) string {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+"/pictures", bytes.NewReader(file))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Origin", s.url)
	r.Header.Set("Accept", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var p struct{ Hash string }
	if err := json.NewDecoder(response.Body).Decode(&p); err != nil || response.StatusCode != http.StatusCreated {
		s.t.Fatalf("got %d, %v", response.StatusCode, err)
	}
	return p.Hash
}

// peak returns the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// filesIn returns the files below a folder, without backups of the database.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(path, ".backups") {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestAChatWithManyPicturesSurvivesAServerThatIsKilled kills the server while it writes an answer about 50 pictures and while one more
// is uploaded.
func TestAChatWithManyPicturesSurvivesAServerThatIsKilled(t *testing.T) {
	data, models := t.TempDir(), seeingModels(t)
	arguments := []string{"--data", data, "--models", models, "--model", "seer", "--device", "cpu"}
	server := startChild(t, arguments...)
	pictures := map[string][]byte{}
	total := 0
	chat := server.chat()
	ask := func(text string, tokens int, more map[string]any) {
		chat.state, chat.text, chat.tokens, chat.errCode = "asked", "", 0, ""
		fields := map[string]any{"text": text, "settings": map[string]any{"temperature": 0, "max_tokens": tokens, "token_biases": []any{map[string]any{"id": 2, "text": "</s>", "model": "seer", "bias": -100}}}}
		for name, value := range more {
			fields[name] = value
		}
		chat.do("send", fields)
	}
	var first int64 // memory with 16 pictures
	for _, number := range []int{16, 16, 16, 2} {
		var hashes []string
		for range number {
			file := noise(t, uint64(len(pictures)), 500)
			hash := server.upload(file)
			pictures[hash], total = file, total+len(file)
			hashes = append(hashes, hash)
		}
		ask("look", 1, map[string]any{"pictures": hashes})
		if chat.finish(); chat.state != "done" {
			t.Fatalf("an answer ended as %q, %s", chat.state, chat.errCode)
		}
		if first == 0 {
			first = peak(t, server.cmd.Process.Pid)
		}
	}
	if used := peak(t, server.cmd.Process.Pid) - first; used > 512<<20 {
		t.Errorf("with %d pictures of %d bytes in all the server takes %d bytes more than with the first 16", len(pictures), total, used)
	}

	half := noise(t, 100, 500)
	upload, err := net.Dial("tcp", strings.TrimPrefix(server.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer upload.Close()
	fmt.Fprintf(upload, "POST /pictures HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nContent-Length: %d\r\n\r\n%s", upload.RemoteAddr(), server.url, len(half), half[:len(half)/2])
	unsent := server.upload(noise(t, 101, 500))
	ask("tell more", 15000, nil)
	chat.until("some words are there", func() bool { return chat.tokens >= 3 })
	before := filesIn(t, data)
	if err := server.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	server.cmd.Wait()
	written := chat.text

	again := startChild(t, arguments...)
	var exported struct {
		Messages []struct {
			Role, State, Text string
			Pictures          []struct{ Data []byte }
		}
	}
	again.get("/c/"+chat.id+"/export.json", &exported)
	found := 0
	for _, m := range exported.Messages {
		for _, p := range m.Pictures {
			found++
			if !bytes.Equal(pictures[store.PictureHash(p.Data)], p.Data) {
				t.Error("a picture is none of those that were sent")
			}
		}
	}
	if len(exported.Messages) != 10 || found != len(pictures) {
		t.Fatalf("%d messages with %d pictures are left, want 10 with %d", len(exported.Messages), found, len(pictures))
	}
	if last := exported.Messages[9]; last.State != "interrupted" || !strings.HasPrefix(last.Text, written) && !strings.HasPrefix(written, last.Text) {
		t.Errorf("the answer is %s and has %d bytes that are not those of the %d that were shown", last.State, len(last.Text), len(written))
	}
	response, err := http.Get(again.url + "/pictures/" + unsent)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusGone && response.StatusCode != http.StatusNotFound {
		t.Errorf("a picture that nobody sent: got %d", response.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := again.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	again.cmd.Wait()
	for _, name := range filesIn(t, data) {
		if !slices.Contains(before, name) {
			t.Errorf("the file %s is left", name)
		}
	}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(data, "chats.db"), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	used, _, err := db.PictureBytes(t.Context(), access.Local.Owner)
	if err != nil || used != int64(total) {
		t.Errorf("the pictures of the person take %d bytes, %v, want %d", used, err, total)
	}
	if all, err := db.AllPictureBytes(t.Context()); err != nil || all != int64(total) {
		t.Errorf("all pictures take %d bytes, %v, want %d", all, err, total)
	}
}
