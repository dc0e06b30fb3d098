// Values by name as lines of a text, `name = value`, and back. What a line cannot hold as it is stands there as a JSON string.
import { isNumber, parse, tried } from './exact'

type Values = Record<string, unknown>

const AWKWARD = /^["\s]|\s$|[\r\n]/
const LINE = /^\s*("(?:[^"\\]|\\.)*"(?=\s*(?:=|$))|[^=]*?)\s*(?:=(.*))?$/s

const line = (name: string, value: unknown) =>
  `${AWKWARD.test(name) || name.includes('=') ? JSON.stringify(name) : name} = ${typeof value === 'string' && !AWKWARD.test(value) ? value : JSON.stringify(value)}`

const typeOf = (value: unknown) => (isNumber(value) ? 'number' : typeof value)

/** The text, or what it is as JSON, if that is of this type. */
const meant = (text: string, type = 'string'): unknown =>
  tried(() => {
    const value = parse(text)
    return ['string', type].includes(typeOf(value)) ? value : text
  }, text)

export const linesOf = (values: Values): string =>
  Object.entries(values)
    .map(([name, value]) => line(name, value))
    .join('\n')

/** What the lines say. A value that reads as it did before is what it was; what was a number, or true or false, stays one if it can, and what is new may be true or false. */
export function valuesOf(text: string, before: Values = {}): Values {
  return Object.fromEntries(
    text
      .split('\n')
      .filter(each => each.trim())
      .map(each => {
        const [, first = '', rest = ''] = LINE.exec(each) ?? []
        const name = String(meant(first.trim())),
          isNew = !Object.hasOwn(before, name),
          old = isNew ? '' : before[name]
        const value = meant(rest.trim(), isNew ? 'boolean' : typeOf(old))
        return [name, line(name, value) === line(name, old) ? old : value]
      }),
  )
}

/** The same text, on whose last line a value of this name begins. */
export const begun = (text: string, name: string): string => `${text.trimEnd()}\n${linesOf({ [name]: '' })}`.trimStart()
