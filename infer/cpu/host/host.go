// Package host says what the machine is and how much of it this process may use. Linux
// says so in files; where they are missing, nothing is known and nothing is limited.
package host

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// Processor returns what the processor calls itself.
func Processor() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return runtime.GOARCH
}

// Cores returns the cores that the scheduler lets this process use: those of
// its affinity mask, or less if its control group has a quota. A fraction of a core
// does not count: a group that uses up its quota is stopped, all threads at once.
func Cores() int {
	cores := runtime.NumCPU() // of the affinity mask
	for _, dir := range controlGroups("cpu") {
		if quota := readQuota(dir); quota > 0 {
			cores = min(cores, max(1, int(quota)))
		}
	}
	return cores
}

// readQuota returns the cores that the group at dir may use together; 0: no limit.
func readQuota(dir string) float64 {
	fields := strings.Fields(readText(path.Join(dir, "cpu.max"))) // version 2: "max 100000", "150000 100000"
	if len(fields) != 2 {
		fields = []string{readText(path.Join(dir, "cpu.cfs_quota_us")), readText(path.Join(dir, "cpu.cfs_period_us"))}
	}
	quota, err := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0
	}
	return quota / period
}

// MemoryAvailable returns the bytes that this process can take before the machine or
// its control group runs out; 0: unknown.
func MemoryAvailable() int64 {
	available := int64(math.MaxInt64)
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemAvailable"), " kB"), 10, 64); err == nil {
		available = kib << 10
	}
	for _, dir := range controlGroups("memory") {
		if left, ok := readMemoryLeft(dir); ok {
			available = min(available, left)
		}
	}
	if available == math.MaxInt64 {
		return 0
	}
	return available
}

// readMemoryLeft returns what the group at dir may still take: its limit less what it
// uses, file pages not counted, which can be dropped. Those of a model in use are among the
// active ones.
func readMemoryLeft(dir string) (int64, bool) {
	limit, ok := readInt(dir, "memory.max", "memory.limit_in_bytes")
	if !ok {
		return 0, false
	}
	used, ok := readInt(dir, "memory.current", "memory.usage_in_bytes")
	if !ok {
		return 0, false
	}
	for line := range strings.Lines(readText(path.Join(dir, "memory.stat"))) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "active_file" || name == "inactive_file" {
			if files, err := strconv.ParseInt(n, 10, 64); err == nil {
				used -= files
			}
		}
	}
	return max(0, limit-used), true
}

// readInt reads a number from the first of names that dir has.
func readInt(dir string, names ...string) (int64, bool) {
	for _, name := range names {
		if n, err := strconv.ParseInt(readText(path.Join(dir, name)), 10, 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// controlGroups returns the folders of the groups that this process is in for a
// controller, its own first, then those around it.
func controlGroups(controller string) []string {
	var dirs []string
	for line := range strings.Lines(readText("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // "0::/user.slice" or "4:cpu,cpuacct:/docker/…"
		if len(parts) != 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ","+controller+",") {
				continue
			}
			root = path.Join(root, controller)
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			dirs = append(dirs, path.Join(root, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}

func readText(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// field returns the value of the first line "name : value" of a file.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
