"""JavaScript and TypeScript cut into scopes."""

from inline_snapshot import snapshot

from tests.index.cut.outline import drawn


def test_javascript() -> None:
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
    assert drawn("panel.jsx", source) == snapshot("""\
1-4 block imports: 'use strict'
6-12 function add: export async function add(x, { y })
  | Adds up.
  | @param {number} x the first
  > sum
14-16 function double: const double = (x) =>
  | Doubles.
17-18 constant LIMIT: export const LIMIT = 10, other = compute()
  > compute
19-19 block : const lower = 1
20-20 function default: export default function ()
  > Panel
22-29 class Panel: class Panel extends React.Component
24-26 method Panel.onClick: onClick = async (event) =>
  > setState, dispatch
27-27 method Panel.constructor: constructor(props)
28-28 method Panel.size: get size()
  > measure
31-31 function close: module.exports.close = function (panel)
  > shut
32-34 method Panel.open: Panel.prototype.open = function ()
  > draw
35-36 block #2: module.exports = {
37-41 function long: long: function (x)
  > first, second
42-43 function method: method(y)
  > third
44-46 function Row: export const Row = React.memo(function Row(props)
  > memo, useRow
47-49 function useThing: const useThing = debounce((x) =>
  > debounce, work
51-51 block #3: start()
  > start\
""")


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
    assert drawn("auth.test.js", source) == snapshot("""\
1-1 block imports: import { x } from 'vitest'
3-18 function AuthService: describe('AuthService', () =>
  > beforeEach, reset
4-4 function AuthService.make: const make = () =>
  > AuthService
6-6 function AuthService.given: function given(x)
  > prepare
8-12 function AuthService.rejects an expired token: it("rejects an expired token", async () =>
  | Tokens end.
  > expire, validate
13-16 function AuthService.nested name: describe.only(`nested name`, function ()
  > only
15-15 function AuthService.nested name.adds %d: test.each([1, 2])('adds %d', (x) =>
  > each\
""")


def test_typescript() -> None:
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
    assert drawn("auth.service.ts", source) == snapshot("""\
1-3 block imports: import type { Store } from '../store'
5-6 type Key: export type Key = string | number
  | A key.
7-10 type Cache: export interface Cache<T> extends Base
11-11 class Colour: export enum Colour
12-14 class foo: module 'foo'
15-18 class Outer.Inner: namespace Outer.Inner
16-16 constant Outer.Inner.LIMIT: export const LIMIT = 3
17-17 function Outer.Inner.within: export function within(x: number): number
  > clamp
20-21 function parse: function parse(text: string): Tree
  | Parses in two ways.
22-22 block : export function parse(text: Buffer): Tree
23-25 function parse#2: export function parse(text: any): Tree
  > read
27-45 class AuthService: export abstract class AuthService<T extends User> implements Auth
  > Injectable, Memo
33-33 method AuthService.constructor: constructor(private store: Store)
35-41 method AuthService.validate: async validate(token: string): Promise<boolean>
  | Whether it is good.
  > lookup
42-43 method AuthService.other: abstract other(): void
  | Left to others.
44-44 method AuthService.handler: handler = (event: Event): void =>
  > emit
46-46 function selectUser: export const selectUser = createSelector((state: State) =>
  > createSelector, pick
47-47 constant config: export const config: Config = { a: 1 }\
""")


def test_tsx() -> None:
    source = """
        export default function App({ name }: Props) {
          const onClick = () => { save(name) }
          return <Panel onClick={onClick}>{format(name)}</Panel>
        }
        export const Row: React.FC<Props> = ({ x }) => <li>{x}</li>
    """
    assert drawn("App.tsx", source) == snapshot("""\
1-4 function App: export default function App({ name }: Props)
  > save, format
5-5 function Row: export const Row: React.FC<Props> = ({ x }) =>\
""")
