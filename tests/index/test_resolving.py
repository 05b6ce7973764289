"""Imports as paths of the project's files."""

import time

import pytest

from ragmem.index.files import Resolver

_PATHS = [
    "pkg/__init__.py", "pkg/store/__init__.py", "pkg/store/base.py", "pkg/app.py", "setup.py",
    "src/lib/__init__.py", "src/lib/core.py", "scripts/run.py", "scripts/common.py",
    "vendor/deep/tool/kit.py",
    "web/index.ts", "web/util.ts", "web/parts/index.tsx", "web/parts/button.jsx", "src/api.ts",
    "go.mod", "main.go", "net/http/serve.go", "net/http/serve_test.go", "net/http/client.go",
    "tools/go.mod", "tools/gen/gen.go",
    "crates/one/Cargo.toml", "crates/one/src/lib.rs", "crates/one/src/store/mod.rs",
    "crates/one/src/store/base.rs", "crates/one/src/util.rs",
    "java/src/main/java/org/acme/App.java", "java/src/main/java/org/acme/util/Text.java",
    "c/main.c", "c/include/list.h", "c/near.h",
]  # fmt: skip
_TEXTS = {"go.mod": "module example.org/big\n\ngo 1.22\n", "tools/go.mod": 'module "x.io/tools"\n'}


@pytest.mark.parametrize(
    ("path", "language", "written", "expected"),
    [
        ("pkg/app.py", "python", "pkg.store.base", ["pkg/store/base.py"]),
        ("pkg/app.py", "python", "pkg.store.base.Store", ["pkg/store/base.py"]),
        ("pkg/app.py", "python", "pkg.store", ["pkg/store/__init__.py"]),
        ("pkg/app.py", "python", ".store.base", ["pkg/store/base.py"]),
        ("pkg/app.py", "python", ".", ["pkg/__init__.py"]),
        ("pkg/store/base.py", "python", "..app", ["pkg/app.py"]),
        ("pkg/store/base.py", "python", "....x", []),
        ("pkg/app.py", "python", "lib.core", ["src/lib/core.py"]),
        ("pkg/app.py", "python", "tool.kit", ["vendor/deep/tool/kit.py"]),
        ("pkg/app.py", "python", "os.path", []),
        ("pkg/store/base.py", "python", "app", []),
        ("scripts/run.py", "python", "common", ["scripts/common.py"]),
        ("web/index.ts", "typescript", "./util", ["web/util.ts"]),
        ("web/index.ts", "typescript", "./util.js", ["web/util.ts"]),
        ("web/index.ts", "typescript", "./parts", ["web/parts/index.tsx"]),
        ("web/parts/index.tsx", "tsx", "../util", ["web/util.ts"]),
        ("web/parts/index.tsx", "tsx", "./button", ["web/parts/button.jsx"]),
        ("web/index.ts", "typescript", "@/api", ["src/api.ts"]),
        ("web/index.ts", "javascript", "react", []),
        ("web/index.ts", "javascript", "../../../etc/passwd", []),
        ("main.go", "go", "example.org/big/net/http",
         ["net/http/client.go", "net/http/serve.go"]),
        ("main.go", "go", "x.io/tools/gen", ["tools/gen/gen.go"]),
        ("main.go", "go", "net/http", []),
        ("crates/one/src/lib.rs", "rust", "self::util", ["crates/one/src/util.rs"]),
        ("crates/one/src/util.rs", "rust", "crate::store::base::Store",
         ["crates/one/src/store/base.rs"]),
        ("crates/one/src/store/base.rs", "rust", "super::super::util",
         ["crates/one/src/util.rs"]),
        ("crates/one/src/util.rs", "rust", "std::fmt", []),
        ("java/src/main/java/org/acme/App.java", "java", "org.acme.util.Text",
         ["java/src/main/java/org/acme/util/Text.java"]),
        ("java/src/main/java/org/acme/App.java", "java", "org.acme.util.Text.Inner",
         ["java/src/main/java/org/acme/util/Text.java"]),
        ("java/src/main/java/org/acme/App.java", "java", "org.acme.util.*",
         ["java/src/main/java/org/acme/util/Text.java"]),
        ("java/src/main/java/org/acme/App.java", "java", "java.util.List", []),
        ("c/main.c", "c", "./near.h", ["c/near.h"]),
        ("c/main.c", "c", "./list.h", ["c/include/list.h"]),
        ("c/main.c", "c", "./stdio.h", []),
        ("pkg/app.py", "python", "pkg.app", []),
        ("a.txt", "text", "pkg.app", []),
    ],
)  # fmt: skip
def test_what_an_import_means(path, language, written, expected):
    resolver = Resolver(_PATHS, lambda file: _TEXTS.get(file, ""))
    assert list(resolver.resolve(path, language, (written,))) == expected


@pytest.mark.parametrize("language", ["python", "javascript", "go", "rust", "java", "c"])
def test_odd_imports_mean_nothing_that_is_not_there(language):
    for written in ("", ".", "..", "...", "/", "::", "*", "a.*", "./", "\0", "é"):
        found = Resolver(_PATHS, lambda _: "").resolve("pkg/app.py", language, (written,))
        assert set(found) <= set(_PATHS)


def test_a_module_file_of_many_blank_lines_takes_no_longer_than_another():
    text = "\n" * 200_000 + "module example.org/big\n"
    started = time.process_time()
    found = Resolver(_PATHS, lambda _: text).resolve("main.go", "go", ("example.org/big/tools",))
    assert time.process_time() - started < 5
    assert set(found) <= set(_PATHS)
