"""Java, C, C++, C#, Ruby, PHP and shell scripts cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import drawn, outline


def test_java() -> None:
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
    assert drawn("src/AuthService.java", source) == snapshot("""\
1-4 block imports: /* Licensed under a licence. */
6-32 class AuthService: public final class AuthService<T> extends Base implements Auth
  | Checks <b>tokens</b>.
13-13 method AuthService.AuthService: public AuthService(Store store)
15-21 method AuthService.validate: public boolean validate(String token) throws ExpiredException
  | Whether it is good.
  > lookup, Token, isFresh
23-23 method AuthService.validate#2: boolean validate()
  > validate, current
25-30 type AuthService.Listener: interface Listener
26-27 method AuthService.Listener.onToken: void onToken(String token)
  | Told of each.
29-29 method AuthService.Listener.onEnd: default void onEnd()
  > finish
31-31 class AuthService.State: enum State
33-33 class Point: record Point(int x, int y)
34-34 type Marked: @interface Marked\
""")


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
    assert drawn("auth.c", source) == snapshot("""\
1-2 block imports: #include <stdio.h>
4-4 constant MAX_TRIES: #define MAX_TRIES 3
5-8 function check: #define check(x) \\ do { \\ verify(x); \\ } while (0)
10-11 type key_t: typedef unsigned long key_t
  | A key.
12-14 class node_t: typedef struct node
15-15 class state: enum state
16-16 constant NAMES: static const char *NAMES[] = { "a" }
18-24 function make: static struct node * make(int size)
  | Makes one;
  | may be NULL.
  > init
26-27 function drop: void drop(node_t *node)
  | Frees it.
28-30 block : int plain(void);
31-32 function main: int main(int argc, char **argv)
  > run, make\
""")


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
    assert drawn("service.h", source) == snapshot("""\
1-4 block imports: #pragma once
6-6 type auth.detail.Key: using Key = std::string
8-18 class auth.detail.Service: class Service final : public Base<T>
  | Checks tokens.
12-12 method auth.detail.Service.Service: explicit Service(Store* store) : store_(store)
14-14 method auth.detail.Service.operator==: bool operator==(const Service& other) const
  > same
15-15 method auth.detail.Service.get: [[nodiscard]] const T& get() const
  > lookup
17-17 class auth.detail.Service.State: enum class State
20-21 method auth.detail.Service.~Service: Service<T>::~Service()
  > release
23-25 method auth.detail.Service.name: std::string& Service<int>::name(int x)
  > Name, convert
27-28 block : struct Forward;\
""")


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
    assert drawn("AuthService.cs", source) == snapshot("""\
1-3 block imports: using System;
5-21 class Shop.Auth.AuthService: public class AuthService : IAuth
  | Checks tokens.
10-14 method Shop.Auth.AuthService.Name: public string Name
  > Load, Store
15-15 method Shop.Auth.AuthService.AuthService: public AuthService(IStore store)
17-20 method Shop.Auth.AuthService.ValidateAsync:
  public async Task<bool> ValidateAsync(string token)
  | Whether it is good.
  > Lookup, Token
22-22 class Shop.Auth.Point: public record Point(int X, int Y)
23-23 type Shop.Auth.Told: public delegate void Told(string token)
24-24 type Shop.Auth.IAuth: public interface IAuth\
""")


def test_ruby() -> None:
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
    assert drawn("auth.rb", source) == snapshot("""\
1-2 block imports: # frozen_string_literal: true
4-25 class Auth: module Auth
  | Who may do what.
6-6 constant Auth.LIMIT: LIMIT = 3
8-24 class Auth.Service: class Service < Base
  | Checks tokens.
12-15 method Auth.Service.valid?: def valid?(token)
  | Whether it is good.
  > Token, fresh?, lookup
17-17 method Auth.Service.build: def self.build
  > create
20-22 method Auth.Service.instance: def instance
27-27 class Auth.Expired: class Auth::Expired < StandardError; end
29-33 function Auth::Service: RSpec.describe Auth::Service do
30-32 function Auth::Service.rejects an expired token: it "rejects an expired token" do
  > expire\
""")


def test_php() -> None:
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
    assert drawn("AuthService.php", source) == snapshot("""\
1-5 block imports: <?php
7-7 constant App.Auth.LIMIT: const LIMIT = 3
9-23 class App.Auth.AuthService: final class AuthService extends Base implements Auth
  | Checks tokens.
17-21 method App.Auth.AuthService.validate: public function validate(string $token): bool
  | Whether it is good.
  > lookup, Token, fresh, check
24-24 type App.Auth.Logs: trait Logs
24-24 method App.Auth.Logs.log: function log()
  > write
25-25 function App.Auth.login: function login($name)
  > make
27-27 block : echo login('x');
  > login\
""")


def test_shell() -> None:
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
    assert drawn("build", source) == snapshot("""\
1-3 block : #!/bin/sh
  | Builds it all.
4-4 constant VERSION: readonly VERSION=1
5-6 constant TARGETS: TARGETS="a b"
8-11 function build: build()
  | Builds one.
  > compile, tee
13-15 function clean: function clean
  > prune
16-16 block #2: build all
  > build\
""")
    assert outline("build.sh", source) == outline("build", source)
