package readtext_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"m40-llm/infer/readtext"
)

func TestAByteOrderMarkIsTakenOffOnceAndTextIsUTF8(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"\uFEFFroot", "root", ""},
		{"\uFEFF\uFEFFroot", "\uFEFFroot", ""},
		{"ro\uFEFFot", "ro\uFEFFot", ""},
		{"", "", ""},
		{"\uFEFF", "", ""},
		{"a\uFFFDb", "a\uFFFDb", ""},
		{"ä\xff", "", "byte 2 (0xFF)"},
		{"\xff\xfea\x00", "", "byte 0 (0xFF)"}, // UTF-16
		{"a\xc3", "", "byte 1 (0xC3)"},
		{"a\xed\xa0\x80", "", "byte 1 (0xED)"}, // half of a surrogate pair
		{strings.Repeat("x", 65), "", "more than 64 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readtext.File(path, 64)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: got %q, %v, want %q, %s", c.text, got, err, c.want, c.err)
		}
	}
	if _, err := readtext.File(filepath.Join(t.TempDir(), "none"), 64); !os.IsNotExist(err) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestAPipeIsReadAsFarAsSomebodyWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := readtext.File(path, 64); got != "" || err != nil {
		t.Errorf("without a writer: got %q, %v", got, err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	written := make(chan error, 1)
	go func() {
		_, err := writer.WriteString("key")
		written <- errors.Join(err, writer.Close())
	}()
	if got, err := readtext.File(fmt.Sprintf("/dev/fd/%d", reader.Fd()), 64); got != "key" || err != nil {
		t.Errorf("from a pipe: got %q, %v", got, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
