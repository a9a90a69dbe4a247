// Package host reports the machine's processor, and the cores and memory that this process may use.
// It reads Linux's /proc and /sys; where files are missing, values are unknown or unlimited.
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

// Processor returns the model name of the processor, or GOARCH if it is unknown.
func Processor() string {
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		return name
	}
	return runtime.GOARCH
}

// Cores returns the number of cores that this process may use: those of its affinity mask, or fewer
// if its control group (cgroup) has a CPU quota. Fractions are rounded down to at least 1, because a
// group that exhausts its quota is throttled as a whole.
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

// MemoryAvailable returns how many bytes this process can allocate before the machine or its
// control group runs out of memory, or it reaches a limit of its own; 0: unknown.
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
	if left, ok := readLimitLeft(readText("/proc/self/limits"), readText("/proc/self/statm"), int64(os.Getpagesize())); ok {
		available = min(available, left)
	}
	if available == math.MaxInt64 {
		return 0
	}
	return available
}

// MemoryTotal returns the bytes of main memory, or of the least limit of the process's control groups; 0: unknown.
func MemoryTotal() int64 {
	total := int64(0)
	if kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		total = kib << 10
	}
	for _, dir := range controlGroups("memory") {
		if limit, ok := readInt(dir, "memory.max", "memory.limit_in_bytes"); ok && (total == 0 || limit < total) {
			total = limit
		}
	}
	return total
}

// readLimitLeft returns the bytes that the limits of a process (rlimit) on its address space and data leave, of the
// files limits and statm, which counts pages.
func readLimitLeft(limits, statm string, page int64) (left int64, ok bool) {
	used := strings.Fields(statm) // size resident shared text lib data dt
	for name, column := range map[string]int{"Max address space": 0, "Max data size": 5} {
		for line := range strings.Lines(limits) {
			values, found := strings.CutPrefix(line, name)
			if !found || column >= len(used) {
				continue
			}
			limit, err := strconv.ParseInt(strings.Fields(values + " ?")[0], 10, 64) // "unlimited", or the soft limit
			pages, err2 := strconv.ParseInt(used[column], 10, 64)
			if free := max(0, limit-pages*page); err == nil && err2 == nil && (!ok || free < left) {
				left, ok = free, true
			}
		}
	}
	return left, ok
}

// readMemoryLeft returns the bytes that the group at dir may still allocate: its limit minus its
// usage, without file pages, which the kernel can evict. Pages of a model file in use are among the
// active file pages.
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

// controlGroups returns the directories of this process's control groups for a controller: its own
// group first, then the parents.
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
