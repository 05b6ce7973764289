"""Go and Rust cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import drawn, outline


def test_go() -> None:
    source = """
        // Copyright 2026 The Authors. All rights reserved.

        // Package auth says who may do what.
        package auth

        import (
            "fmt"
            http2 "net/http"
        )

        const MaxTries = 3

        // States of a session.
        const (
            Open State = iota
            Closed
        )

        var ErrExpired = errors.New("expired")
        var cache, other = make(map[string]int), 1

        // Service checks tokens.
        // It is safe for use by many.
        type Service struct {
            store Store // where they are
        }

        type (
            // Store keeps them.
            Store interface {
                Get(key string) (string, error)
            }
            Alias = map[string]int
        )

        // Validate says whether token is good.
        func (s *Service) Validate(ctx context.Context, token string) (bool, error) {
            defer s.mu.Unlock()
            go func() { refresh(ctx) }()
            return s.store.Get(token), fmt.Errorf("x")
        }

        //go:noinline
        func (l List[T]) Len() int { return len(l.items) }

        func New[T any](
            store Store,
        ) *Service {
            return &Service{store: wrap(store)}
        }

        func init() {
            register("auth")
        }
    """
    assert drawn("auth/service.go", source) == snapshot("""\
1-9 block : // Copyright 2026 The Authors. All rights reserved.
  | Package auth says who may do what.
11-11 constant MaxTries: const MaxTries = 3
13-17 constant Open: const (Open State = iota Closed)
  | States of a session.
19-19 constant ErrExpired: var ErrExpired = errors.New("expired")
  > New
20-20 block #2: var cache, other = make(map[string]int), 1
22-26 class Service: type Service struct
  | Service checks tokens.
  | It is safe for use by many.
28-28 block #3: type (
29-32 type Store: Store interface { Get(key string) (string, error) }
  | Store keeps them.
33-34 type Alias: Alias = map[string]int
36-41 method Service.Validate:
  func (s *Service) Validate(ctx context.Context, token string) (bool, error)
  | Validate says whether token is good.
  > refresh, Get
43-44 method List.Len: func (l List[T]) Len() int
46-50 function New: func New[T any](store Store) *Service
  > Service, wrap
52-54 function init: func init()
  > register\
""")


def test_a_receiver_over_lines() -> None:
    source = "package a\nfunc (s *\n\tS[T]) F(x int) error { return g(x) }\n"
    assert [row[1] for row in outline("a.go", source)] == ["imports", "S.F"]


def test_rust() -> None:
    """Methods by the type of their impl, attributes with what they stand on."""
    source = """
        //! Who may do what.
        #![warn(missing_docs)]
        use std::fmt;
        mod store;

        pub const MAX_TRIES: u32 = 3;
        static TABLE: [u8; 2] = [
            1, 2,
        ];
        pub type Result<T> = std::result::Result<T, Error>;

        /// Checks tokens.
        ///
        /// In two steps.
        #[derive(
            Debug,
        )]
        pub struct Service<'a, T: Store> {
            store: &'a T,
        }
        struct Unit;
        pub enum State { Open, Closed(u8) }

        impl<'a, T> Service<'a, T>
        where
            T: Store,
        {
            const LIMIT: u8 = 1;
            /// Whether it is good.
            #[inline]
            pub async fn validate(&self, token: &str) -> Result<bool> {
                let found = self.store.lookup(token)?;
                Ok(check::<T>(found) && Token::parse(token).is_fresh())
            }
        }
        impl<T> fmt::Display for crate::Service<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { write!(f, "x") }
        }
        pub trait Store: Send {
            /// Finds it.
            fn lookup(&self, key: &str) -> Option<String>;
            fn has(&self, key: &str) -> bool { self.lookup(key).is_some() }
        }
        macro_rules! given {
            ($x:expr) => { prepare($x) };
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn expires() { given!(1); Service { store: &1 }; }
        }
    """
    assert drawn("src/service.rs", source) == snapshot("""\
1-4 block : //! Who may do what.
  | Who may do what.
6-6 constant MAX_TRIES: pub const MAX_TRIES: u32 = 3
7-9 constant TABLE: static TABLE: [u8; 2] = [1, 2]
10-10 type Result: pub type Result<T> = std::result::Result<T, Error>
12-20 class Service: pub struct Service<'a, T: Store>
  | Checks tokens.
  |
  | In two steps.
21-21 class Unit: struct Unit
22-22 class State: pub enum State
24-35 class impl Service: impl<'a, T> Service<'a, T> where T: Store
29-34 method Service.validate: pub async fn validate(&self, token: &str) -> Result<bool>
  | Whether it is good.
  > lookup, check, parse, is_fresh
36-38 class impl Display for Service: impl<T> fmt::Display for crate::Service<'_, T>
37-37 method Service.fmt: fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result
39-43 type Store: pub trait Store: Send
40-41 method Store.lookup: fn lookup(&self, key: &str) -> Option<String>
  | Finds it.
42-42 method Store.has: fn has(&self, key: &str) -> bool
  > lookup
44-46 function given: macro_rules! given { ($x:expr) => { prepare($x) }; }
48-54 class tests: mod tests
52-53 function tests.expires: fn expires()
  > given, Service\
""")
