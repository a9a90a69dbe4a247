package gate

import "testing"

func TestBasePathsThatNeedEscapesOrLeadElsewhereAreRefused(t *testing.T) {
	for p, ok := range map[string]bool{
		"": true, "/llm": true, "/a/b-c_d.e~f/9": true,
		"/": false, "llm": false, "/llm/": false, "//llm": false, "/a//b": false, "/../x": false, "/a/./b": false, "https://x": false,
		"/a b": false, "/a\"b": false, "/<x>": false, "/%2e": false, "/a?b": false, "/é": false, "/\r\nX: y": false,
	} {
		if err := CheckBasePath(p); (err == nil) != ok {
			t.Errorf("%q: %v", p, err)
		}
	}
}
