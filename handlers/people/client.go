package people

import (
	"net/netip"
	"strings"
)

// Client is the sender of a secret.
type Client struct {
	Addr      netip.Addr
	UserAgent string
}

// browsers and systems are parts of a User-Agent with the names that people know. The first match
// counts, since most browsers also name others.
var (
	browsers = [][2]string{{"Edg", "Edge"}, {"OPR/", "Opera"}, {"SamsungBrowser", "Samsung Internet"}, {"Firefox", "Firefox"}, {"FxiOS", "Firefox"},
		{"CriOS", "Chrome"}, {"Chrome", "Chrome"}, {"Safari", "Safari"}}
	systems = [][2]string{{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"Windows", "Windows"}, {"Mac OS X", "Mac"}, {"CrOS", "Chromebook"}, {"Linux", "Linux"}}
)

// label returns a name of the device for lists, such as "Safari on iPhone".
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
