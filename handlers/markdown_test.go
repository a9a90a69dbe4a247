package handlers

import (
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// hostileMarkdown is what a model could be made to write. Each would set the
// global pwned, or ask another server, if it got through.
var hostileMarkdown = []string{
	`<script>pwned=1</script>`,
	`<SCRIPT SRC=//evil.example/x.js></SCRIPT>`,
	`<scr<script>ipt>pwned=1</scr</script>ipt>`,
	`<script/x>pwned=1</script>`,
	"<script\n>pwned=1</script\n>",
	`<img src=x onerror=pwned=1>`,
	`<img src="//evil.example/x.png">`,
	`<img/src=x/onerror=pwned=1>`,
	`<IMG SRC="javascript:pwned=1">`,
	`![x](https://evil.example/x.png)`,
	`![x](https://evil.example/x.png "onload=pwned=1")`,
	`![x][r]` + "\n\n" + `[r]: https://evil.example/x.png`,
	`![](javascript:pwned=1)`,
	`![" onerror="pwned=1](x)`,
	`![x](x" onerror="pwned=1)`,
	`![x](<x" onerror="pwned=1>)`,
	`[a](javascript:pwned=1)`,
	`[a](JaVaScRiPt:pwned=1)`,
	`[a](java` + "\t" + `script:pwned=1)`,
	`[a](&#106;avascript:pwned=1)`,
	`[a](&#x6A&#x61&#x76&#x61script:pwned=1)`,
	`[a](javascript&colon;pwned=1)`,
	`[a](\x01javascript:pwned=1)`,
	`[a](vbscript:pwned=1)`,
	`[a](data:text/html,<script>pwned=1</script>)`,
	`[a](data:text/html;base64,PHNjcmlwdD5wd25lZD0xPC9zY3JpcHQ+)`,
	`[a](file:///etc/passwd)`,
	`[a](blob:https://evil.example/1)`,
	`[a](//evil.example/)`,
	`[a](https://evil.example/" onclick="pwned=1)`,
	`[a](https://evil.example/ "x\" onclick=\"pwned=1")`,
	`<a href="javascript:pwned=1">a</a>`,
	`<javascript:pwned=1>`,
	`<https://evil.example/"onmouseover="pwned=1>`,
	`https://evil.example/"onmouseover="pwned=1`,
	`[a]: javascript:pwned=1` + "\n\n" + `[a]`,
	`<svg onload=pwned=1>`,
	`<svg><script>pwned=1</script></svg>`,
	`<svg><a xlink:href="javascript:pwned=1"><text>x</text></a></svg>`,
	`<svg><use href="//evil.example/x.svg#x"/></svg>`,
	`<math><mi//xlink:href="data:x,<script>pwned=1</script>">`,
	`<math><mtext><table><mglyph><style><img src=x onerror=pwned=1></style></mglyph></table></mtext></math>`,
	`<iframe src="javascript:pwned=1"></iframe>`,
	`<iframe srcdoc="<script>pwned=1</script>"></iframe>`,
	`<object data="javascript:pwned=1"></object>`,
	`<embed src="//evil.example/x.swf">`,
	`<form action="//evil.example/"><input name=x><button>x</button></form>`,
	`<input autofocus onfocus=pwned=1>`,
	`<body onload=pwned=1>`,
	`<details open ontoggle=pwned=1>`,
	`<video><source onerror=pwned=1></video>`,
	`<audio src=x onerror=pwned=1>`,
	`<marquee onstart=pwned=1>`,
	`<style>@import url(//evil.example/x.css)</style>`,
	`<link rel=stylesheet href=//evil.example/x.css>`,
	`<base href="//evil.example/">`,
	`<meta http-equiv=refresh content="0;url=//evil.example/">`,
	`<p style="background:url(//evil.example/x.png)">x</p>`,
	`<div style="position:fixed;inset:0">x</div>`,
	`<template><script>pwned=1</script></template>`,
	`<noscript><p title="</noscript><img src=x onerror=pwned=1>">`,
	`<!--><img src=x onerror=pwned=1>-->`,
	`<![CDATA[<img src=x onerror=pwned=1>]]>`,
	`<?xml version="1.0"?><x:script xmlns:x="http://www.w3.org/1999/xhtml">pwned=1</x:script>`,
	"```\"><img src=x onerror=pwned=1>\nx\n```",
	"```js\" onclick=\"pwned=1\n</code></pre><script>pwned=1</script>\n```",
	"`</code><script>pwned=1</script>`",
	"    </code></pre><script>pwned=1</script>",
	"| a |\n|---|\n| <img src=x onerror=pwned=1> |",
	"| <script>pwned=1</script> |\n|:-:|\n| x |",
	"# <img src=x onerror=pwned=1>",
	"> <script>pwned=1</script>",
	"1. <img src=x onerror=pwned=1>",
	"~~<svg onload=pwned=1>~~",
	"**<b onmouseover=pwned=1>x</b>**",
	"x\x00<script>pwned=1</script>",
	"\u202e<script>pwned=1</script>",
	"<scr\x00ipt>pwned=1</script>",
	"\xff\xfe<script>pwned=1</script>",
	"<img src=x\u3000onerror=pwned=1>",
	"&lt;script&gt;pwned=1&lt;/script&gt;",
	`<a id="location" name="cookie" class="btn primary" data-stop>x</a>`,
	`<span class="ctl" onclick=pwned=1>x</span>`,
	`<0@00>`,
}

// harmless is every element and attribute that an answer may have.
var harmless = map[string]string{
	"p": "", "br": "", "hr": "", "h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "", "em": "", "strong": "", "del": "", "blockquote": "",
	"ul": "", "ol": "start", "li": "", "pre": "", "code": "class", "span": "class", "table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align",
	"a": "href rel target",
}

var harmlessLink = regexp.MustCompile(`^(https?://|mailto:)`)

// harms returns what is wrong with rendered HTML, as a browser would read it.
func harms(rendered string) string {
	tokens := html.NewTokenizer(strings.NewReader(rendered))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return ""
		case html.CommentToken, html.DoctypeToken:
			return "a comment or doctype"
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			attributes, known := harmless[token.Data]
			if !known {
				return "the element " + token.Data
			}
			mail := strings.Contains(token.String(), `href="mailto:`) // opens no page, so there is no opener
			for _, a := range token.Attr {
				switch {
				case !strings.Contains(" "+attributes+" ", " "+a.Key+" "):
					return "the attribute " + a.Key
				case a.Key == "href" && !harmlessLink.MatchString(a.Val):
					return "the address " + a.Val
				case a.Key == "class" && a.Val != "ctl" && !strings.HasPrefix(a.Val, "language-"):
					return "the class " + a.Val
				case a.Key == "rel" && a.Val != "nofollow noreferrer noopener" && !mail:
					return "the link relation " + a.Val
				}
			}
			if token.Data == "a" && !strings.Contains(token.String(), "rel=") {
				return "a link without rel"
			}
		}
	}
}

func TestNothingHostileSurvivesTheSanitiser(t *testing.T) {
	for _, payload := range hostileMarkdown {
		if harm := harms(renderMarkdown(payload)); harm != "" {
			t.Errorf("%q became %q, with %s", payload, renderMarkdown(payload), harm)
		}
		// Streamed, a payload is rendered cut off anywhere.
		for i := range payload {
			if harm := harms(renderMarkdown(payload[:i])); harm != "" {
				t.Errorf("%q became %q, with %s", payload[:i], renderMarkdown(payload[:i]), harm)
			}
		}
	}
	if n := len(hostileMarkdown); n < 60 {
		t.Errorf("there are only %d payloads", n)
	}
}

func TestLongAnswersAreRenderedBlockByBlock(t *testing.T) {
	paragraph := strings.Repeat("word ", 200) + "**end**\n\n"
	long := strings.Repeat(paragraph, 3*maxMarkdown/len(paragraph))
	if got, want := strings.Count(renderAnswer(long), "<strong>end</strong></p>"), strings.Count(long, "**end**"); got != want {
		t.Errorf("%d of %d paragraphs were rendered", got, want)
	}
	block := strings.Repeat("[a](", maxMarkdown/4+1)
	if got := renderAnswer("# a\n" + block); got != "<h1>a</h1>\n<pre><code>"+block+"</code></pre>\n" {
		t.Errorf("a block over the limit became %.100q", got)
	}
}

func FuzzRenderMarkdown(f *testing.F) {
	for _, payload := range hostileMarkdown {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if harm := harms(renderMarkdown(source)); harm != "" {
			t.Errorf("%q became %q, with %s", source, renderMarkdown(source), harm)
		}
	})
}

func TestMarkdownIsRendered(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"emphasis", "a *b* **c** ~~d~~", "<p>a <em>b</em> <strong>c</strong> <del>d</del></p>\n"},
		{"a code block keeps its language and its text", "```go\na < b\n```", "<pre><code class=\"language-go\">a &lt; b</code></pre>\n"},
		{"HTML is shown as text", "use <b>bold</b>", "<p>use &lt;b&gt;bold&lt;/b&gt;</p>\n"},
		{"a block of HTML is shown as text", "<div>\nx\n</div>", "<p>&lt;div&gt;\nx\n&lt;/div&gt;</p>\n"},
		{"a link opens apart and says nothing of us", "[a](https://b.example/)", `<p><a href="https://b.example/" rel="nofollow noreferrer noopener" target="_blank">a</a></p>` + "\n"},
		{"an image becomes a link", "![cat](https://b.example/c.png)", `<p><a href="https://b.example/c.png" rel="nofollow noreferrer noopener" target="_blank">cat</a></p>` + "\n"},
		{"a list may begin anywhere", "3. a\n4. b", "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>\n"},
		{"a table keeps its alignment", "|a|b|\n|-|-:|\n|1|2|", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>\n"},
		{"characters that turn code around are shown", "```\na\u202eb\u200bc\n```", "<pre><code>a<span class=\"ctl\">U+202E</span>b<span class=\"ctl\">U+200B</span>c</code></pre>\n"},
		{"line breaks stay", "a\nb", "<p>a<br>\nb</p>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := renderMarkdown(c.source); got != c.want {
				t.Errorf("%q became\n%q, want\n%q", c.source, got, c.want)
			}
		})
	}
}
