package people

import (
	"net/netip"
	"strings"
)

// Client is where a secret comes from.
type Client struct {
	Addr      netip.Addr
	UserAgent string
}

// browsers and systems are words of a browser's User-Agent, by what people call it. The first
// that fits counts: most browsers name others too.
var (
	browsers = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser", "Samsung Internet"}, {"Firefox", "Firefox"}, {"FxiOS", "Firefox"},
		{"CriOS", "Chrome"}, {"Chrome", "Chrome"}, {"Safari", "Safari"}}
	systems = [][2]string{{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "Mac"}, {"CrOS", "Chromebook"}, {"Linux", "Linux"}}
)

// label is what a device is called in lists, such as "Safari on iPhone".
func (c Client) label() string {
	find := func(names [][2]string) string {
		for _, name := range names {
			if strings.Contains(c.UserAgent, name[0]) {
				return name[1]
			}
		}
		return ""
	}
	browser, system := find(browsers), find(systems)
	switch {
	case browser == "" && system == "":
		return "A device"
	case browser == "":
		return system
	case system == "":
		return browser
	}
	return browser + " on " + system
}
