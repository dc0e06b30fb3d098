// Values by name as lines of a text, `name = value`, and back. What a line cannot hold as it is stands there as a JSON string.
type Values = Record<string, unknown>

const AWKWARD = /^["\s]|\s$|[\r\n]/
const LINE = /^\s*("(?:[^"\\]|\\.)*"(?=\s*(?:=|$))|[^=]*?)\s*(?:=(.*))?$/s

const line = (name: string, value: unknown) =>
  `${AWKWARD.test(name) || name.includes('=') ? JSON.stringify(name) : name} = ${typeof value === 'string' && !AWKWARD.test(value) ? value : JSON.stringify(value)}`

function meant(text: string): string {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'string' ? value : text
  } catch { return text }
}

export const linesOf = (values: Values): string => Object.entries(values).map(([name, value]) => line(name, value)).join('\n')

/** What the lines say. A value that reads as it did before is what it was, such as a number. */
export function valuesOf(text: string, before: Values = {}): Values {
  return Object.fromEntries(text.split('\n').filter(each => each.trim()).map(each => {
    const [, first = '', rest = ''] = LINE.exec(each) ?? []
    const name = meant(first.trim()), value = meant(rest.trim())
    return [name, Object.hasOwn(before, name) && line(name, value) === line(name, before[name]) ? before[name] : value]
  }))
}
