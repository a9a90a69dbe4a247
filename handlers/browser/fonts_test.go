package browser

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer/fixtures"
)

// A fontSet is the fonts that a browser of the tests sees, whatever else is installed: the names of their files, and the
// families for the generic names of CSS.
type fontSet struct {
	sans, serif, mono string
	files             []string
}

// pinnedFonts are those of Debian's fonts-dejavu-core, with the emoji.
var pinnedFonts = fontSet{"DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono", []string{
	"DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf",
	"NotoColorEmoji.ttf",
}}

// liberationFonts are those of fonts-liberation.
var liberationFonts = fontSet{"Liberation Sans", "Liberation Serif", "Liberation Mono", []string{
	"LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf", "LiberationSans-Italic.ttf", "LiberationSerif-Regular.ttf",
	"LiberationSerif-Bold.ttf", "LiberationMono-Regular.ttf", "LiberationMono-Bold.ttf", "NotoColorEmoji.ttf",
}}

// installedFonts has the path of each font of the machine, by the name of its file.
var installedFonts = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	home, _ := os.UserHomeDir()
	for _, root := range []string{"/usr/share/fonts", "/usr/local/share/fonts", filepath.Join(home, ".local/share/fonts"), filepath.Join(home, ".fonts")} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".ttf") {
				found[d.Name()] = path
			}
			return nil
		})
	}
	return found
})

// needFonts skips a test of the layout where a font of s is not installed.
func needFonts(t testing.TB, s fontSet) {
	t.Helper()
	for _, file := range s.files {
		if installedFonts()[file] == "" {
			fixtures.Skip(t, "the font "+file+" is not installed")
		}
	}
}

// configure makes dir with the installed fonts of s and a configuration of fontconfig that has them alone, and returns its
// path. Where none is installed the machine's fonts are left.
func (s fontSet) configure(dir string) (config string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	from := "/usr/share/fonts"
	for _, file := range s.files {
		if path := installedFonts()[file]; path != "" {
			from = dir
			if err := os.Symlink(path, filepath.Join(dir, file)); err != nil {
				return "", err
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<?xml version=\"1.0\"?>\n<fontconfig>\n<dir>%s</dir>\n<cachedir>%s/cache</cachedir>\n", from, dir)
	for generic, family := range map[string]string{"sans-serif": s.sans, "serif": s.serif, "monospace": s.mono, "system-ui": s.sans, "math": s.serif} {
		fmt.Fprintf(&b, "<alias binding=\"same\"><family>%s</family><prefer><family>%s</family></prefer></alias>\n", generic, family)
	}
	b.WriteString("</fontconfig>\n")
	config = filepath.Join(dir, "fonts.conf")
	return config, os.WriteFile(config, []byte(b.String()), 0o644)
}
