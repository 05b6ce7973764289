"""Go and Rust cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import outline


def test_go() -> None:
    """Methods by their receiver's type."""
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
    assert outline("auth/service.go", source) == snapshot(
        [
            (
                "block",
                "",
                "1-9",
                "// Copyright 2026 The Authors. All rights reserved.",
                "Package auth says who may do what.",
                (),
            ),
            ("constant", "MaxTries", "11-11", "const MaxTries = 3", "", ()),
            (
                "constant",
                "Open",
                "13-17",
                "const (Open State = iota Closed)",
                "States of a session.",
                (),
            ),
            (
                "constant",
                "ErrExpired",
                "19-19",
                'var ErrExpired = errors.New("expired")',
                "",
                ("New",),
            ),
            ("block", "#2", "20-20", "var cache, other = make(map[string]int), 1", "", ()),
            (
                "class",
                "Service",
                "22-26",
                "type Service struct",
                """\
Service checks tokens.
It is safe for use by many.\
""",
                (),
            ),
            ("block", "#3", "28-28", "type (", "", ()),
            (
                "type",
                "Store",
                "29-32",
                "Store interface { Get(key string) (string, error) }",
                "Store keeps them.",
                (),
            ),
            ("type", "Alias", "33-34", "Alias = map[string]int", "", ()),
            (
                "method",
                "Service.Validate",
                "36-41",
                "func (s *Service) Validate(ctx context.Context, token string) (bool, error)",
                "Validate says whether token is good.",
                ("refresh", "Get"),
            ),
            ("method", "List.Len", "43-44", "func (l List[T]) Len() int", "", ()),
            (
                "function",
                "New",
                "46-50",
                "func New[T any](store Store) *Service",
                "",
                ("Service", "wrap"),
            ),
            ("function", "init", "52-54", "func init()", "", ("register",)),
        ]
    )


def test_a_receiver_over_lines() -> None:
    """Names are one line, however they are written."""
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
    assert outline("src/service.rs", source) == snapshot(
        [
            ("block", "", "1-4", "//! Who may do what.", "Who may do what.", ()),
            ("constant", "MAX_TRIES", "6-6", "pub const MAX_TRIES: u32 = 3", "", ()),
            ("constant", "TABLE", "7-9", "static TABLE: [u8; 2] = [1, 2]", "", ()),
            (
                "type",
                "Result",
                "10-10",
                "pub type Result<T> = std::result::Result<T, Error>",
                "",
                (),
            ),
            (
                "class",
                "Service",
                "12-20",
                "pub struct Service<'a, T: Store>",
                """\
Checks tokens.

In two steps.\
""",
                (),
            ),
            ("class", "Unit", "21-21", "struct Unit", "", ()),
            ("class", "State", "22-22", "pub enum State", "", ()),
            ("class", "impl Service", "24-35", "impl<'a, T> Service<'a, T> where T: Store", "", ()),
            (
                "method",
                "Service.validate",
                "29-34",
                "pub async fn validate(&self, token: &str) -> Result<bool>",
                "Whether it is good.",
                ("lookup", "check", "parse", "is_fresh"),
            ),
            (
                "class",
                "impl Display for Service",
                "36-38",
                "impl<T> fmt::Display for crate::Service<'_, T>",
                "",
                (),
            ),
            (
                "method",
                "Service.fmt",
                "37-37",
                "fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result",
                "",
                (),
            ),
            ("type", "Store", "39-43", "pub trait Store: Send", "", ()),
            (
                "method",
                "Store.lookup",
                "40-41",
                "fn lookup(&self, key: &str) -> Option<String>",
                "Finds it.",
                (),
            ),
            ("method", "Store.has", "42-42", "fn has(&self, key: &str) -> bool", "", ("lookup",)),
            (
                "function",
                "given",
                "44-46",
                "macro_rules! given { ($x:expr) => { prepare($x) }; }",
                "",
                (),
            ),
            ("class", "tests", "48-54", "mod tests", "", ()),
            ("function", "tests.expires", "52-53", "fn expires()", "", ("given", "Service")),
        ]
    )
