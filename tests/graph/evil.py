"""What a hostile file name, message, output or memory may hold."""

EVIL = (
    "</script><script>owned=1</script>", "<script src=https://evil.example/x.js></script>",
    "<!--<script>", "--></style></title></textarea><svg/onload=owned=1>",
    "<img src=x onerror=owned=1>", "<iframe srcdoc='<script>parent.owned=1</script>'>",
    "<a href=javascript:owned=1>x</a>", "<details open ontoggle=owned=1>",
    "<base href=https://evil.example/><link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><input autofocus onfocus=owned=1>",
    '" onmouseover="owned=1" x="', "'};owned=1;//", "${owned=1}{{owned=1}}`",
    "&lt;script&gt;owned=1&lt;/script&gt;", "\\u003cscript\\u003eowned=1",
    "]]><![CDATA[<script>owned=1</script>", "\u202egpj.exe\u2066\u200b\u2028\u2029",
    "\x1b]0;owned\x07\x1b[2J\x08\x9b", "__proto__", "constructor",
)  # fmt: skip
