package worker

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestStderr(t *testing.T) {
	stack := strings.Repeat("goroutine 1 [running]:\nmain.main()\n", 200)
	for _, c := range []struct {
		name, said, log, cause, last string
	}{
		{"the log is passed on", "time=1 level=WARN msg=x\n", "time=1 level=WARN msg=x\n", "", ""},
		{"a crash says why, and where", "a word before\nSIGSEGV: segmentation violation\nPC=0x1\n" + stack, "", "SIGSEGV: segmentation violation", "SIGSEGV: segmentation violation\nPC=0x1\ngoroutine 1"},
		{"of many words the last are kept", strings.Repeat("word\n", 100) + "last", "", "", "word\nword"},
		{"the first reason counts", "panic: a\npanic: b\n" + stack, "", "panic: a", "main.main()"},
		{"an error of the program is its last line", "m40-llm: no such file\n", "", "no such file", "m40-llm: no such file"},
		{"other words are no reason", "hello\n", "", "", "hello"},
		{"a line that never ends is cut", strings.Repeat("x", 1<<20) + "\ny\n", "", "", "x\ny"},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprintf("%s, in pieces of %d bytes", c.name, size), func(t *testing.T) {
				var log bytes.Buffer
				s := &stderr{log: &log}
				for rest := []byte(c.said); len(rest) > 0; {
					n := min(size, len(rest))
					if written, err := s.Write(rest[:n]); written != n || err != nil {
						t.Fatal(written, err)
					}
					rest = rest[n:]
				}
				if log.String() != c.log || s.cause() != c.cause {
					t.Errorf("the log is %q, the cause %q", log.String(), s.cause())
				}
				if last := s.last(); !strings.Contains(last, c.last) || len(last) > maxWords*(maxLine+1) || strings.Count(last, "\n") >= maxWords {
					t.Errorf("the last words are %q", last)
				}
			})
		}
	}
}
