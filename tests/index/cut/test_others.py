"""Java, C, C++, C#, Ruby, PHP and shell scripts cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import outline


def test_java() -> None:
    """Javadoc, annotations, overloads, inner types."""
    source = """
        /* Licensed under a licence. */
        package com.example.auth;

        import java.util.List;

        /**
         * Checks <b>tokens</b>.
         */
        @Service(name = "auth")
        public final class AuthService<T> extends Base implements Auth {
            private static final int LIMIT = 3;

            public AuthService(Store store) { this.store = store; }

            /** Whether it is good. */
            @Override
            @Deprecated
            public boolean validate(String token)
                    throws ExpiredException {
                return store.lookup(new Token<>(token)).isFresh();
            }

            boolean validate() { return validate(Tokens::current); }

            interface Listener {
                /** Told of each. */
                void onToken(String token);
                void undocumented();
                default void onEnd() { finish(); }
            }
            enum State { OPEN, CLOSED }
        }
        record Point(int x, int y) { }
        @interface Marked { }
    """
    assert outline("src/AuthService.java", source) == snapshot(
        [
            ("block", "imports", "1-4", "/* Licensed under a licence. */", "", ()),
            (
                "class",
                "AuthService",
                "6-32",
                "public final class AuthService<T> extends Base implements Auth",
                "Checks <b>tokens</b>.",
                (),
            ),
            (
                "method",
                "AuthService.AuthService",
                "13-13",
                "public AuthService(Store store)",
                "",
                (),
            ),
            (
                "method",
                "AuthService.validate",
                "15-21",
                "public boolean validate(String token) throws ExpiredException",
                "Whether it is good.",
                ("lookup", "Token", "isFresh"),
            ),
            (
                "method",
                "AuthService.validate#2",
                "23-23",
                "boolean validate()",
                "",
                ("validate", "current"),
            ),
            ("type", "AuthService.Listener", "25-30", "interface Listener", "", ()),
            (
                "method",
                "AuthService.Listener.onToken",
                "26-27",
                "void onToken(String token)",
                "Told of each.",
                (),
            ),
            (
                "method",
                "AuthService.Listener.onEnd",
                "29-29",
                "default void onEnd()",
                "",
                ("finish",),
            ),
            ("class", "AuthService.State", "31-31", "enum State", "", ()),
            ("class", "Point", "33-33", "record Point(int x, int y)", "", ()),
            ("type", "Marked", "34-34", "@interface Marked", "", ()),
        ]
    )


def test_c() -> None:
    """Functions behind any declarator, what is typedef'd, macros, documented prototypes."""
    source = """
        #include <stdio.h>
        #include "auth.h"

        #define MAX_TRIES 3
        #define check(x) \\\\
            do { \\\\
                verify(x); \\\\
            } while (0)

        /** A key. */
        typedef unsigned long key_t;
        typedef struct node {
            struct node *next;
        } node_t;
        enum state { OPEN, CLOSED };
        static const char *NAMES[] = { "a" };

        /* Makes one;
           may be NULL. */
        static struct node *
        make(int size)
        {
            return init(malloc(size), 1);
        }

        /// Frees it.
        void drop(node_t *node);
        int plain(void);

        #ifdef DEBUG
        int main(int argc, char **argv) { table->run(make(argc)); return 0; }
        #endif
    """.replace("\\\\", "\\")
    assert outline("auth.c", source) == snapshot(
        [
            ("block", "imports", "1-2", "#include <stdio.h>", "", ()),
            ("constant", "MAX_TRIES", "4-4", "#define MAX_TRIES 3", "", ()),
            (
                "function",
                "check",
                "5-8",
                "#define check(x) \\ do { \\ verify(x); \\ } while (0)",
                "",
                (),
            ),
            ("type", "key_t", "10-11", "typedef unsigned long key_t", "A key.", ()),
            ("class", "node_t", "12-14", "typedef struct node", "", ()),
            ("class", "state", "15-15", "enum state", "", ()),
            ("constant", "NAMES", "16-16", 'static const char *NAMES[] = { "a" }', "", ()),
            (
                "function",
                "make",
                "18-24",
                "static struct node * make(int size)",
                """\
Makes one;
may be NULL.\
""",
                ("init",),
            ),
            ("function", "drop", "26-27", "void drop(node_t *node)", "Frees it.", ()),
            ("block", "", "28-30", "int plain(void);", "", ()),
            ("function", "main", "31-32", "int main(int argc, char **argv)", "", ("run", "make")),
        ]
    )


def test_cpp() -> None:
    """Namespaces and classes in names, templates, methods defined outside."""
    source = """
        #pragma once
        #include <vector>

        namespace auth::detail {

        using Key = std::string;

        /// Checks tokens.
        template <typename T>
        class Service final : public Base<T> {
         public:
          explicit Service(Store* store) : store_(store) {}
          ~Service();
          bool operator==(const Service& other) const { return same(other); }
          [[nodiscard]] const T& get() const { return store_->lookup(1); }
         private:
          enum class State { kOpen };
        };

        template <typename T>
        Service<T>::~Service() { detail::release(store_); }

        std::string& Service<int>::name(int x) {
          return *new Name(convert<int>(x));
        }

        struct Forward;
        }  // namespace auth::detail
    """
    assert outline("service.h", source) == snapshot(
        [
            ("block", "imports", "1-4", "#pragma once", "", ()),
            ("type", "auth.detail.Key", "6-6", "using Key = std::string", "", ()),
            (
                "class",
                "auth.detail.Service",
                "8-18",
                "class Service final : public Base<T>",
                "Checks tokens.",
                (),
            ),
            (
                "method",
                "auth.detail.Service.Service",
                "12-12",
                "explicit Service(Store* store) : store_(store)",
                "",
                (),
            ),
            (
                "method",
                "auth.detail.Service.operator==",
                "14-14",
                "bool operator==(const Service& other) const",
                "",
                ("same",),
            ),
            (
                "method",
                "auth.detail.Service.get",
                "15-15",
                "[[nodiscard]] const T& get() const",
                "",
                ("lookup",),
            ),
            ("class", "auth.detail.Service.State", "17-17", "enum class State", "", ()),
            (
                "method",
                "auth.detail.Service.~Service",
                "20-21",
                "Service<T>::~Service()",
                "",
                ("release",),
            ),
            (
                "method",
                "auth.detail.Service.name",
                "23-25",
                "std::string& Service<int>::name(int x)",
                "",
                ("Name", "convert"),
            ),
            ("block", "", "27-28", "struct Forward;", "", ()),
        ]
    )


def test_c_sharp() -> None:
    """Namespaces of a block and of a file, properties with a body, records."""
    source = """
        using System;

        namespace Shop.Auth;

        /// <summary>Checks tokens.</summary>
        [Serializable]
        public class AuthService : IAuth
        {
            public int Limit { get; set; }
            public string Name
            {
                get { return Load("name"); }
                set { Store(value); }
            }
            public AuthService(IStore store) { _store = store; }

            /// <summary>Whether it is good.</summary>
            [Obsolete("x")]
            public async Task<bool> ValidateAsync(string token) =>
                await _store.Lookup<Token>(new Token(token));
        }
        public record Point(int X, int Y);
        public delegate void Told(string token);
        public interface IAuth { bool Validate(string token); }
    """
    assert outline("AuthService.cs", source) == snapshot(
        [
            ("block", "imports", "1-3", "using System;", "", ()),
            (
                "class",
                "Shop.Auth.AuthService",
                "5-21",
                "public class AuthService : IAuth",
                "Checks tokens.",
                (),
            ),
            (
                "method",
                "Shop.Auth.AuthService.Name",
                "10-14",
                "public string Name",
                "",
                ("Load", "Store"),
            ),
            (
                "method",
                "Shop.Auth.AuthService.AuthService",
                "15-15",
                "public AuthService(IStore store)",
                "",
                (),
            ),
            (
                "method",
                "Shop.Auth.AuthService.ValidateAsync",
                "17-20",
                "public async Task<bool> ValidateAsync(string token)",
                "Whether it is good.",
                ("Lookup", "Token"),
            ),
            ("class", "Shop.Auth.Point", "22-22", "public record Point(int X, int Y)", "", ()),
            ("type", "Shop.Auth.Told", "23-23", "public delegate void Told(string token)", "", ()),
            ("type", "Shop.Auth.IAuth", "24-24", "public interface IAuth", "", ()),
        ]
    )


def test_ruby() -> None:
    """Modules, classes with a path, methods of the class, specs."""
    source = """
        # frozen_string_literal: true
        require 'json'

        # Who may do what.
        module Auth
          LIMIT = 3

          # Checks tokens.
          class Service < Base
            attr_reader :store

            # Whether it is good.
            def valid?(token)
              Token.new(token).fresh? && store.lookup(token)
            end

            def self.build = create(1)

            class << self
              def instance
                @instance ||= build
              end
            end
          end
        end

        class Auth::Expired < StandardError; end

        RSpec.describe Auth::Service do
          it "rejects an expired token" do
            expire(token)
          end
        end
    """
    assert outline("auth.rb", source) == snapshot(
        [
            ("block", "imports", "1-2", "# frozen_string_literal: true", "", ()),
            ("class", "Auth", "4-25", "module Auth", "Who may do what.", ()),
            ("constant", "Auth.LIMIT", "6-6", "LIMIT = 3", "", ()),
            ("class", "Auth.Service", "8-24", "class Service < Base", "Checks tokens.", ()),
            (
                "method",
                "Auth.Service.valid?",
                "12-15",
                "def valid?(token)",
                "Whether it is good.",
                ("Token", "fresh?", "lookup"),
            ),
            ("method", "Auth.Service.build", "17-17", "def self.build", "", ("create",)),
            ("method", "Auth.Service.instance", "20-22", "def instance", "", ()),
            ("class", "Auth.Expired", "27-27", "class Auth::Expired < StandardError; end", "", ()),
            ("function", "Auth::Service", "29-33", "RSpec.describe Auth::Service do", "", ()),
            (
                "function",
                "Auth::Service.rejects an expired token",
                "30-32",
                'it "rejects an expired token" do',
                "",
                ("expire",),
            ),
        ]
    )


def test_php() -> None:
    """Namespaces, traits, attributes."""
    source = """
        <?php
        namespace App\\\\Auth;

        use App\\\\Store;
        require_once __DIR__ . '/helpers.php';

        const LIMIT = 3;

        /**
         * Checks tokens.
         */
        #[Service]
        final class AuthService extends Base implements Auth
        {
            private $store;

            /** Whether it is good. */
            public function validate(string $token): bool
            {
                return $this->store->lookup(new Token($token)) && self::fresh() && check($token);
            }
            abstract protected function other();
        }
        trait Logs { function log() { write(); } }
        function login($name) { return make($name); }

        echo login('x');
    """.replace("\\\\", "\\")
    assert outline("AuthService.php", source) == snapshot(
        [
            ("block", "imports", "1-5", "<?php", "", ()),
            ("constant", "App.Auth.LIMIT", "7-7", "const LIMIT = 3", "", ()),
            (
                "class",
                "App.Auth.AuthService",
                "9-23",
                "final class AuthService extends Base implements Auth",
                "Checks tokens.",
                (),
            ),
            (
                "method",
                "App.Auth.AuthService.validate",
                "17-21",
                "public function validate(string $token): bool",
                "Whether it is good.",
                ("lookup", "Token", "fresh", "check"),
            ),
            ("type", "App.Auth.Logs", "24-24", "trait Logs", "", ()),
            ("method", "App.Auth.Logs.log", "24-24", "function log()", "", ("write",)),
            ("function", "App.Auth.login", "25-25", "function login($name)", "", ("make",)),
            ("block", "", "27-27", "echo login('x');", "", ("login",)),
        ]
    )


def test_shell() -> None:
    """Functions, and what runs between them."""
    source = """
        #!/bin/sh
        # Builds it all.
        set -e
        readonly VERSION=1
        TARGETS="a
        b"

        # Builds one.
        build() {
          compile "$1" | tee log
        }

        function clean {
          rm -rf out; prune
        }
        build all
    """
    assert outline("build", source) == snapshot(
        [
            ("block", "", "1-3", "#!/bin/sh", "Builds it all.", ()),
            ("constant", "VERSION", "4-4", "readonly VERSION=1", "", ()),
            ("constant", "TARGETS", "5-6", 'TARGETS="a b"', "", ()),
            ("function", "build", "8-11", "build()", "Builds one.", ("compile", "tee")),
            ("function", "clean", "13-15", "function clean", "", ("prune",)),
            ("block", "#2", "16-16", "build all", "", ("build",)),
        ]
    )
    assert outline("build.sh", source) == outline("build", source)
