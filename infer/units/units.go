// Package units formats sizes, counts, rates and lists for users, so that the page, the terminal and
// errors round alike.
package units

import (
	"fmt"
	"strconv"
	"strings"
)

// ByteSize formats n bytes with a decimal unit: 1 kB is 1,000 bytes.
func ByteSize(n int64) string { return scaled(n, " B", " kB", " MB", " GB", " TB") }

// Count formats n, which is not negative, with commas between groups of three digits: 8,192.
func Count(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Quantity formats a number in thousands, millions and so on: 14.2 M.
func Quantity(n int64) string { return scaled(n, "", " K", " M", " B", " T") }

func scaled(n int64, units ...string) string {
	x, i := float64(n), 0
	for x >= 999.5 && i < len(units)-1 {
		x /= 1000
		i++
	}
	if i == 0 || x >= 99.95 {
		return fmt.Sprintf("%.0f%s", x, units[i])
	}
	return fmt.Sprintf("%.1f%s", x, units[i])
}

// TokenRate formats tokens per second without a unit: one decimal below 100, none above.
func TokenRate(tokens float64) string {
	if tokens >= 99.95 {
		return strconv.FormatFloat(tokens, 'f', 0, 64)
	}
	return strconv.FormatFloat(tokens, 'f', 1, 64)
}

// Roughly returns an estimated number of seconds in words, such as "40 s" or "3 min".
func Roughly(seconds float64) string {
	if seconds < 90 {
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

// List joins names for a sentence: a, b and c.
func List(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
