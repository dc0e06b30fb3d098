// Days as filters of a list: in the address as days, asked for as the moments at which they begin and end where the reader is.
import { narrow, useLocation } from './router'

const LABELS = { createdAfter: 'Since', createdBefore: 'Until', updatedAfter: 'Updated since' } as const
type Name = keyof typeof LABELS
export const CREATED: readonly Name[] = ['createdAfter', 'createdBefore']
export const CHANGED: readonly Name[] = [...CREATED, 'updatedAfter']

/** The moment at which a day begins, so many days later; none for what is no day. */
export function begins(day: string, later = 0): Date | null {
  const [year, month, date] = day.split('-').map(Number)
  const found = new Date(year ?? NaN, (month ?? NaN) - 1, (date ?? NaN) + later)
  return Number.isNaN(found.getTime()) ? null : found
}

/** A moment as an input has it, in the viewer's zone, to the minute. */
export function local(at: string | number | null): string {
  if (!at) return ''
  const moment = new Date(at)
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

/** What the API is asked for. The last day is one of them, and so is the first moment of the first. */
export function days(query: URLSearchParams): Partial<Record<Name, string>> {
  const bounds = Object.keys(LABELS).map(name => [name, begins(query.get(name) ?? '', name === 'createdBefore' ? 1 : 0)] as const)
  return Object.fromEntries(bounds.flatMap(([name, at]) => (at ? [[name, new Date(at.getTime() - (name === 'createdBefore' ? 0 : 1)).toISOString()]] : [])))
}

export function Days({ of = CREATED }: { of?: readonly Name[] }) {
  const { query } = useLocation()
  return <>{of.map(name => <label key={name}>{LABELS[name]}
    <input type="date" value={query.get(name) ?? ''} onChange={event => narrow({ [name]: event.currentTarget.value })} />
  </label>)}</>
}
