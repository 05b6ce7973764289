"""JavaScript and TypeScript cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import outline


def test_javascript() -> None:
    """Functions under whatever way they get their name."""
    source = """
        'use strict'
        /* The panel. */
        const { a } = require('./a')
        import b from './b'

        /**
         * Adds up.
         * @param {number} x the first
         */
        export async function add(x, { y }) {
          return sum(x, y)
        }

        // eslint-disable-next-line
        // Doubles.
        const double = (x) => x * 2
        export const LIMIT = 10,
          other = compute()
        const lower = 1
        export default function () { return new Panel(1) }

        class Panel extends React.Component {
          static #count = 0
          onClick = async (event) => {
            this.setState({ x: dispatch(event) })
          }
          constructor(props) { super(props) }
          get size() { return measure() }
        }

        module.exports.close = function (panel) { panel.shut() }
        Panel.prototype.open = function () {
          draw()
        }
        module.exports = {
          short: () => 1,
          long: function (x) {
            first(x)
            second(x)
            return x
          },
          method(y) { third(y) },
        }
        export const Row = React.memo(function Row(props) {
          return useRow(props)
        })
        const useThing = debounce((x) => {
          work(x)
        }, 100)

        start()
    """
    assert outline("panel.jsx", source) == snapshot(
        [
            ("block", "imports", "1-4", "'use strict'", "", ()),
            (
                "function",
                "add",
                "6-12",
                "export async function add(x, { y })",
                """\
Adds up.
@param {number} x the first\
""",
                ("sum",),
            ),
            ("function", "double", "14-16", "const double = (x) =>", "Doubles.", ()),
            (
                "constant",
                "LIMIT",
                "17-18",
                "export const LIMIT = 10, other = compute()",
                "",
                ("compute",),
            ),
            ("block", "", "19-19", "const lower = 1", "", ()),
            ("function", "default", "20-20", "export default function ()", "", ("Panel",)),
            ("class", "Panel", "22-29", "class Panel extends React.Component", "", ()),
            (
                "method",
                "Panel.onClick",
                "24-26",
                "onClick = async (event) =>",
                "",
                ("setState", "dispatch"),
            ),
            ("method", "Panel.constructor", "27-27", "constructor(props)", "", ()),
            ("method", "Panel.size", "28-28", "get size()", "", ("measure",)),
            (
                "function",
                "close",
                "31-31",
                "module.exports.close = function (panel)",
                "",
                ("shut",),
            ),
            ("method", "Panel.open", "32-34", "Panel.prototype.open = function ()", "", ("draw",)),
            ("block", "#2", "35-36", "module.exports = {", "", ()),
            ("function", "long", "37-41", "long: function (x)", "", ("first", "second")),
            ("function", "method", "42-43", "method(y)", "", ("third",)),
            (
                "function",
                "Row",
                "44-46",
                "export const Row = React.memo(function Row(props)",
                "",
                ("memo", "useRow"),
            ),
            (
                "function",
                "useThing",
                "47-49",
                "const useThing = debounce((x) =>",
                "",
                ("debounce", "work"),
            ),
            ("block", "#3", "51-51", "start()", "", ("start",)),
        ]
    )


def test_tests_are_found_by_their_words() -> None:
    """`describe`, `it`, `test`, with `.only` and `.each`, and what is inside of them."""
    source = """
        import { x } from 'vitest'

        describe('AuthService', () => {
          const make = () => new AuthService()

          function given(x) { return prepare(x) }

          // Tokens end.
          it("rejects an expired token", async () => {
            const inner = () => expire()
            await validate(inner)
          })
          describe.only(`nested
            name`, function () {
            test.each([1, 2])('adds %d', (x) => { add(x) })
          })
          beforeEach('not a test', () => { reset() })
        })
    """
    assert outline("auth.test.js", source) == snapshot(
        [
            ("block", "imports", "1-1", "import { x } from 'vitest'", "", ()),
            (
                "function",
                "AuthService",
                "3-18",
                "describe('AuthService', () =>",
                "",
                ("beforeEach", "reset"),
            ),
            ("function", "AuthService.make", "4-4", "const make = () =>", "", ("AuthService",)),
            ("function", "AuthService.given", "6-6", "function given(x)", "", ("prepare",)),
            (
                "function",
                "AuthService.rejects an expired token",
                "8-12",
                'it("rejects an expired token", async () =>',
                "Tokens end.",
                ("expire", "validate"),
            ),
            (
                "function",
                "AuthService.nested name",
                "13-16",
                "describe.only(`nested name`, function ()",
                "",
                ("only",),
            ),
            (
                "function",
                "AuthService.nested name.adds %d",
                "15-15",
                "test.each([1, 2])('adds %d', (x) =>",
                "",
                ("each",),
            ),
        ]
    )


def test_typescript() -> None:
    """Interfaces, types, enums, namespaces, decorators, overloads."""
    source = """
        import type { Store } from '../store'
        import legacy = require('legacy')
        export * from './other'

        /** A key. */
        export type Key = string | number
        export interface Cache<T> extends Base {
          /** Finds it. */
          get(key: Key): T
        }
        export enum Colour { Red, Green }
        declare module 'foo' {
          export function bar(): void
        }
        namespace Outer.Inner {
          export const LIMIT = 3
          export function within(x: number): number { return clamp(x) }
        }

        /** Parses in two ways. */
        export function parse(text: string): Tree
        export function parse(text: Buffer): Tree
        export function parse(text: any): Tree {
          return read<Tree>(text)
        }

        @Injectable({
          providedIn: 'root',
        })
        export abstract class AuthService<T extends User> implements Auth {
          private readonly limit = 3

          constructor(private store: Store) { super() }

          /** Whether it is good. */
          @Memo()
          async validate(
            token: string,
          ): Promise<boolean> {
            return this.store.lookup(token)
          }
          /** Left to others. */
          abstract other(): void
          handler = (event: Event): void => { this.emit(event) }
        }
        export const selectUser = createSelector((state: State) => pick(state))
        export const config: Config = { a: 1 }
    """
    assert outline("auth.service.ts", source) == snapshot(
        [
            ("block", "imports", "1-3", "import type { Store } from '../store'", "", ()),
            ("type", "Key", "5-6", "export type Key = string | number", "A key.", ()),
            ("type", "Cache", "7-10", "export interface Cache<T> extends Base", "", ()),
            ("class", "Colour", "11-11", "export enum Colour", "", ()),
            ("class", "foo", "12-14", "module 'foo'", "", ()),
            ("class", "Outer.Inner", "15-18", "namespace Outer.Inner", "", ()),
            ("constant", "Outer.Inner.LIMIT", "16-16", "export const LIMIT = 3", "", ()),
            (
                "function",
                "Outer.Inner.within",
                "17-17",
                "export function within(x: number): number",
                "",
                ("clamp",),
            ),
            (
                "function",
                "parse",
                "20-21",
                "function parse(text: string): Tree",
                "Parses in two ways.",
                (),
            ),
            ("block", "", "22-22", "export function parse(text: Buffer): Tree", "", ()),
            (
                "function",
                "parse#2",
                "23-25",
                "export function parse(text: any): Tree",
                "",
                ("read",),
            ),
            (
                "class",
                "AuthService",
                "27-45",
                "export abstract class AuthService<T extends User> implements Auth",
                "",
                ("Injectable", "Memo"),
            ),
            (
                "method",
                "AuthService.constructor",
                "33-33",
                "constructor(private store: Store)",
                "",
                (),
            ),
            (
                "method",
                "AuthService.validate",
                "35-41",
                "async validate(token: string): Promise<boolean>",
                "Whether it is good.",
                ("lookup",),
            ),
            (
                "method",
                "AuthService.other",
                "42-43",
                "abstract other(): void",
                "Left to others.",
                (),
            ),
            (
                "method",
                "AuthService.handler",
                "44-44",
                "handler = (event: Event): void =>",
                "",
                ("emit",),
            ),
            (
                "function",
                "selectUser",
                "46-46",
                "export const selectUser = createSelector((state: State) =>",
                "",
                ("createSelector", "pick"),
            ),
            ("constant", "config", "47-47", "export const config: Config = { a: 1 }", "", ()),
        ]
    )


def test_tsx() -> None:
    """Components."""
    source = """
        export default function App({ name }: Props) {
          const onClick = () => { save(name) }
          return <Panel onClick={onClick}>{format(name)}</Panel>
        }
        export const Row: React.FC<Props> = ({ x }) => <li>{x}</li>
    """
    assert outline("App.tsx", source) == snapshot(
        [
            (
                "function",
                "App",
                "1-4",
                "export default function App({ name }: Props)",
                "",
                ("save", "format"),
            ),
            ("function", "Row", "5-5", "export const Row: React.FC<Props> = ({ x }) =>", "", ()),
        ]
    )
