package host

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// folder writes files into a new folder, like that of a control group.
func folder(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  float64
	}{
		{"version 2 with a quota of one core and a half", map[string]string{"cpu.max": "150000 100000\n"}, 1.5},
		{"version 2 without a quota", map[string]string{"cpu.max": "max 100000\n"}, 0},
		{"version 1 with a quota of two cores", map[string]string{"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n"}, 2},
		{"version 1 without a quota", map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 0},
		{"no files", nil, 0},
		{"nonsense", map[string]string{"cpu.max": "100000 0"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := readQuota(folder(t, c.files)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestReadMemoryLeft(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		known bool
	}{
		{"version 2 gives back file pages", map[string]string{"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 400\nactive_file 50\ninactive_file 250\n"}, 600, true},
		{"version 2 without a limit", map[string]string{"memory.max": "max\n", "memory.current": "700\n"}, 0, false},
		{"version 1", map[string]string{"memory.limit_in_bytes": "1000\n", "memory.usage_in_bytes": "700\n"}, 300, true},
		{"a group above its limit has nothing left", map[string]string{"memory.max": "1000\n", "memory.current": "1700\n"}, 0, true},
		{"no files", nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, known := readMemoryLeft(folder(t, c.files)); got != c.want || known != c.known {
				t.Errorf("got %v, %v, want %v, %v", got, known, c.want, c.known)
			}
		})
	}
}

func TestReadLimitLeft(t *testing.T) {
	const statm = "300 80 50 10 0 200 0"
	for _, c := range []struct {
		name, limits, statm string
		want                int64
		known               bool
	}{
		{"the address space is limited", "Limit Soft Hard Units\nMax address space         1000000    unlimited            bytes\n", statm, 1000000 - 300*1000, true},
		{"the data are limited further", "Max data size             250000    unlimited   bytes\nMax address space         1000000    unlimited            bytes\n", statm, 50000, true},
		{"a process above its limit has nothing left", "Max data size  100000 100000 bytes\n", statm, 0, true},
		{"no limits", "Max data size  unlimited unlimited bytes\nMax address space  unlimited unlimited bytes\n", statm, 0, false},
		{"no files", "", "", 0, false},
		{"nonsense", "Max data size", "a b", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, known := readLimitLeft(c.limits, c.statm, 1000); got != c.want || known != c.known {
				t.Errorf("got %v, %v, want %v, %v", got, known, c.want, c.known)
			}
		})
	}
}

func TestCoresStayWithinTheMachine(t *testing.T) {
	if n := Cores(); n < 1 || n > runtime.NumCPU() {
		t.Errorf("got %d of %d", n, runtime.NumCPU())
	}
}
