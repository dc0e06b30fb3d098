// JSON whose numbers keep the digits that they were written with, as the service keeps them.
import { Refusal } from './session'

type Source = { source?: string }
const exact = JSON as unknown as { rawJSON?: (text: string) => object; isRawJSON?: (value: unknown) => boolean }

const keep = (_name: string, value: unknown, context?: Source) =>
  typeof value === 'number' && context?.source !== undefined && String(value) !== context.source && exact.rawJSON
    ? exact.rawJSON(context.source)
    : value

/** As JSON.parse; a number that JavaScript would write otherwise becomes an object that JSON.stringify writes as it was. */
export const parse = (text: string): unknown => JSON.parse(text, keep)
export const isNumber = (value: unknown): boolean => typeof value === 'number' || exact.isRawJSON?.(value) === true
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isNumber(value)

export const same = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other)

/** What comes of it; where it cannot be done, the other. */
export function tried<T, Other>(work: () => T, other: Other): T | Other {
  try {
    return work()
  } catch {
    return other
  }
}

/** For a box: a text as it is, all else as JSON, which numbers that keep their digits have alone. */
export const textOf = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''))
/** As JSON that people read. */
export const pretty = (value: unknown): string => JSON.stringify(value, null, 2)
/** To reckon with; what is no number is none. */
export const numberOf = (value: unknown): number => (isNumber(value) ? Number(JSON.stringify(value)) : 0)

type Next = 'value' | 'item' | 'member' | 'name' | 'colon' | 'end'
const TOKEN =
  /[{}[\],:]|"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-])/y
const SPACE = /[ \t\r\n]*/y
const WANTED: Record<Next, string> = {
  value: 'a value',
  item: 'a value or ]',
  member: 'a name in double quotes or }',
  name: 'a name in double quotes',
  colon: 'a colon',
  end: 'nothing more',
}

/** What may come after a token that was wanted; null if it was not. `due` are the brackets that are still open. */
function after(token: string, next: Next, due: string[]): Next | null {
  if (next === 'colon') return token === ':' ? 'value' : null
  if (next === 'end') {
    const last = due.at(-1)
    if (token === ',' && last) return last === '}' ? 'name' : 'value'
    return token === last && due.pop() ? 'end' : null
  }
  if ((next === 'item' && token === ']') || (next === 'member' && token === '}')) return due.pop() ? 'end' : null
  if (next === 'name' || next === 'member') return token.startsWith('"') ? 'colon' : null
  if (token === '{' || token === '[') {
    due.push(token === '{' ? '}' : ']')
    return token === '{' ? 'member' : 'item'
  }
  return /^[}\],:]/.test(token) ? null : 'end'
}

/** Why a text is no JSON, with the line and the column from which on it is none; "" if it is. */
export function flaw(text: string): string {
  const due: string[] = []
  let next: Next = 'value',
    token = '',
    at = 0
  for (;;) {
    SPACE.lastIndex = at
    at += SPACE.exec(text)![0].length
    if (at === text.length && next === 'end' && !due.length) return ''
    TOKEN.lastIndex = at
    token = TOKEN.exec(text)?.[0] ?? ''
    const then: Next | null = token ? after(token, next, due) : null
    if (!then) break
    next = then
    at += token.length
  }
  const lines = text.slice(0, at).split('\n')
  const wanted = next === 'end' && due.length ? `a comma or ${due.at(-1)}` : WANTED[next]
  const what =
    !token && text[at] === '"' ? 'a text does not end on its line, or has an invalid backslash' : `expected ${wanted}`
  return `Not valid JSON at line ${lines.length}, column ${lines.at(-1)!.length + 1}: ${what}.`
}

/** What is typed as JSON and has to be an object. Throws a Refusal that points to the field. */
export function objectOf(text: string, pointer: string): Record<string, unknown> {
  const typed = text.trim() ? text : '{}'
  let message = flaw(typed)
  if (!message) {
    const value = parse(typed)
    if (isObject(value)) return value
    message = 'This must be a JSON object, such as {"data": {}}.'
  }
  throw new Refusal(422, 'invalid', message, [{ pointer, message }])
}
